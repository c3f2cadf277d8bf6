/* weights.h -- filling the parameters of an executor: at random, or from outside. */
#ifndef ORTH_TRAIN_WEIGHTS_H
#define ORTH_TRAIN_WEIGHTS_H

#include "model/registry.h"
#include "run/executor.h"
#include "program/lower/shard.h"
#include "train/setup.h"

/* Where a buffer's elements lie in the whole parameter (shape as in the registry, row-major): elements
 * [first_elem, +n) of this tensor-parallel rank's share. to_whole: copies local into whole, else back. */
void orth_weights_move(const orth_param_desc *d, int64_t first_elem, int64_t n, float *local, float *whole,
                       bool to_whole);

/* Initial weights from (seed, number of the parameter, index of the element), the same for every layout.
 * Fills this rank's masters and its copies in the compute type. */
orth_status orth_weights_init(orth_ctx *ctx, const orth_model_config *c, const orth_compiled *u, orth_executor *e, uint64_t seed);

/* Fills masters and copies from whole parameters: read(ctx, user, index, out) gives each. */
typedef orth_status (*orth_weights_read_fn)(orth_ctx *ctx, void *user, int64_t index, float *out);
orth_status orth_weights_fill(orth_ctx *ctx, const orth_model_config *c, const orth_compiled *u, orth_executor *e,
                              orth_weights_read_fn read, void *user);

/* Elements [first, +n) of a buffer of a parameter or moment (bind, index), as fp32; moments in 8 bits: their codes. */
orth_status orth_weights_read(orth_ctx *ctx, const orth_executor *e, orth_bind bind, int64_t index, int64_t first, int64_t n, float *out);

/* Writes this rank's part of a whole parameter, or of a moment, into the buffer (bind, index), if the program has it. bind:
 * MASTER, COPY, M or V, rounded to its type (8 bits: codes), or SCALES, whose whole is that of orth_param_scales. Needs 6 MiB. ORTH_ERR_NOMEM. */
orth_status orth_weights_put(orth_ctx *ctx, const orth_compiled *u, orth_executor *e, orth_bind bind, int64_t index, float *whole);

#endif
