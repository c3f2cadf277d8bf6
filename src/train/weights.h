/* weights.h -- filling the parameters of an executor: at random, or from outside. */
#ifndef ORTH_TRAIN_WEIGHTS_H
#define ORTH_TRAIN_WEIGHTS_H

#include "model/config.h"
#include "run/executor.h"

/* Initial weights from (seed, number of the parameter, index of the element): any rank could make any
 * part alone. Fills the masters and the copies in the compute type. */
orth_status orth_weights_init(orth_ctx *ctx, const orth_model_config *c, const orth_executor *e, uint64_t seed);

/* Makes the compute copies from the masters, after somebody filled these. */
orth_status orth_weights_refresh(orth_ctx *ctx, const orth_model_config *c, const orth_executor *e);

#endif
