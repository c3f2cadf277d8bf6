/* gather.h -- whole tensors on rank 0 from the parts that the ranks hold.
 *
 * Each element has one owner: the rank that updates it, and of replicas (over data parallelism without
 * ZeRO, of a shard group, over tensor parallelism for tensors that are not split, context parallelism, the two stages
 * of a tied embedding) the first. Owners send what they own to rank 0, which puts it in place: every element travels
 * once, through a buffer of at most 4 MiB.
 */
#ifndef ORTH_TRAIN_GATHER_H
#define ORTH_TRAIN_GATHER_H

#include "comm/comm.h"
#include "train/trainer.h"

/* Elements that travel at once. */
#define ORTH_GATHER_CHUNK_ELEMS ((int64_t)1 << 20)

/* Collective over `all` (NULL: a rank alone). bind: MASTER, GRAD, M, V or SCALES. chunk [the smaller of ORTH_GATHER_CHUNK_ELEMS and the
 * parameter]: scratch. whole, on rank 0 only (NULL on others): parameter `index`, shape as in the registry (SCALES:
 * of orth_param_scales), row-major; of M and V in 8 bits the codes; elements that no rank owns are left as they are. ORTH_ERR_COMM. */
orth_status orth_gather_one(orth_ctx *ctx, const orth_trainer *t, orth_comm *all, orth_bind bind, int64_t index,
                            float *chunk, float *whole);

/* The same for all parameters: whole[i], on rank 0 only. ORTH_ERR_NOMEM, ORTH_ERR_COMM. */
orth_status orth_gather(orth_ctx *ctx, const orth_trainer *t, orth_comm *all, orth_bind bind, float *const *whole);

#endif
