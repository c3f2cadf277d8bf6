/* compile.h -- a rank's part of a step as a program: lowered, then rewritten by the passes that its spec asks for. The driver above
 * lower/ and passes/. Placement, queues and checks follow (plan/programs.h).
 */
#ifndef ORTH_PROGRAM_COMPILE_H
#define ORTH_PROGRAM_COMPILE_H

#include "program/lower/compile.h"

/* Into an initialised program, which is not placed yet. ORTH_ERR_NOMEM, ORTH_ERR_INTERNAL. */
orth_status orth_compile(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out);

#endif
