/* fit.h -- `orthant plan RUN.yaml --fit=KEY`: the largest value of one key with which the run fits, found over real plans, by bisection. */
#ifndef ORTH_TOOLS_FIT_H
#define ORTH_TOOLS_FIT_H

#include "tools/price.h"

/* key: micro_batch, seq_len, layers or hidden, or its name in the run file (train.micro_batch, ...). Values go up in steps that a
 * run can have: divisors of the global batch; 8 tokens; 1 layer; 2 numbers in each head. A value that a rule refuses is left out. The
 * result fits and the next value does not, or is refused. rank_limit: bytes for each rank; 0: what there is (memory.limit, or on a
 * cluster a device). *out is heap memory, text or JSON: all values that were tried. ORTH_ERR_ARG: another key. ORTH_ERR_NOMEM. */
orth_status orth_fit(orth_ctx *ctx, const orth_config *base, orth_place_to_run *where, const char *key, size_t rank_limit, bool json,
                     char **out);
#endif
