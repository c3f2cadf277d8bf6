/* gather.h -- whole parameters, gradients and moments from the parts that the ranks hold.
 *
 * Each element has one owner: the rank that updates it, and of replicas (over data parallelism without
 * ZeRO, of a shard group, over tensor parallelism for tensors that are not split, context parallelism, the two stages of a tied
 * embedding) the first. Two threads never write the same place, and none is left out.
 */
#ifndef ORTH_TRAIN_GATHER_H
#define ORTH_TRAIN_GATHER_H

#include "train/trainer.h"

/* Copies the elements of (bind, parameter `index`) that this rank owns to their places in `whole` (shape as
 * in the registry, row-major); bind: MASTER, GRAD, M or V. Nothing to do if it owns none. Local: barriers
 * before (the memory is there) and after (it is complete) are the caller's. */
void orth_gather_param(const orth_trainer *t, orth_bind bind, int64_t index, float *whole);

/* The same for all parameters; whole [orth_model_num_elems]: one after the other, in registry order. */
orth_status orth_gather_all(orth_ctx *ctx, const orth_trainer *t, orth_bind bind, float *whole);

#endif
