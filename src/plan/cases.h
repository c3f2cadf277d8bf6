/* cases.h -- `orthant plan --cases FILE`: training runs of other systems, predicted beside what was measured.
 *
 * The file is a JSON list of objects; docs/formats/cases.md has the keys. The prediction reads neither `measured` nor `derived`. What a case
 * leaves open (null) is chosen: the micro-batch and the virtual stages that take the least time among those that fit, and the least recomputation with
 * which the run may fit.
 */
#ifndef ORTH_PLAN_CASES_H
#define ORTH_PLAN_CASES_H

#include "plan/software.h"

/* Predicts all cases of `path`, and prints them: *out is heap memory, text for people or JSON ({"cases": [...], "errors": {...}}).
 * ORTH_ERR_ARG for a file that cannot be read or is not such a list, naming the case and the key. A case that cannot be predicted is listed
 * with the reason. */
orth_status orth_cases_predict(orth_ctx *ctx, const char *path, const orth_software *software, bool json, char **out);

#endif
