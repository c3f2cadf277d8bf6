/* peak.h -- what is in a rank's memory when most is: buffers, the largest first, and activations by layer and op. */
#ifndef ORTH_PLAN_PEAK_H
#define ORTH_PLAN_PEAK_H

#include "base/json_out.h"
#include "program/ir/program.h"

/* Rows for people, about rank `rank`'s placed program p: the `rows` largest buffers of each space in which it has an arena, and the
 * activations among all by layer and by op. Failures are noted in *out. */
void orth_peak_add_text(orth_ctx *ctx, orth_text *out, const orth_program *p, int rank, int rows);

/* The same as JSON: an object for each space, into an array (docs/formats/run.md). */
void orth_peak_add_json(orth_json_out *j, const orth_program *p, int rank, int rows);
#endif
