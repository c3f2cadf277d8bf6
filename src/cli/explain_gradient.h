/* explain_gradient.h -- `explain --gradient WEIGHT`: the path of a gradient from the backward pass to the update. */
#ifndef ORTH_CLI_EXPLAIN_GRADIENT_H
#define ORTH_CLI_EXPLAIN_GRADIENT_H

#include "config/config.h"

/* Prints the path of the gradient of the weight with this name on `rank`; -1: on the first rank that has the weight, which
 * is like all others; of a tied weight on two stages, on the first rank of both. ORTH_ERR_ARG: there is no such weight, with the
 * nearest name, or no such rank, or the rank does not have it. */
orth_status orth_explain_gradient(orth_ctx *ctx, const orth_config *cfg, const char *weight, int rank);

#endif
