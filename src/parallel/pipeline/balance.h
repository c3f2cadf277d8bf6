/* balance.h -- which layers go into which chunk of the pipeline.
 *
 * Chunks are contiguous runs of layers in model order, at least one layer each; the embedding counts into
 * the first chunk, final norm and head into the last. Costs are integers (FLOPs, nanoseconds), so that
 * every rank and every machine makes the same split.
 */
#ifndef ORTH_PARALLEL_PIPELINE_BALANCE_H
#define ORTH_PARALLEL_PIPELINE_BALANCE_H

#include "base/arena.h"

/* begin [num_chunks + 1]: chunk c holds the layers [begin[c], begin[c + 1]). */

/* The split whose most expensive chunk is the cheapest; among those the one with the least sum of squared
 * costs; among those the one with the fewest layers in the first chunk, then the second, and so on (early
 * ranks hold the most activations). Exact, by dynamic programming: O(num_chunks * num_layers^2).
 *   cost [num_layers] >= 0, embed, head >= 0; their sum below 2^62
 * ORTH_ERR_ARG if num_chunks > num_layers or a cost is negative, ORTH_ERR_NOMEM. */
orth_status orth_balance_layers(orth_ctx *ctx, const int64_t *cost, int num_layers, int64_t embed,
                                int64_t head, int num_chunks, int32_t *begin);

/* As many layers each. ORTH_ERR_ARG if num_chunks does not divide num_layers. */
orth_status orth_balance_evenly(orth_ctx *ctx, int num_layers, int num_chunks, int32_t *begin);

/* By hand: layers_of_chunk [num_given] must have a whole number >= 1 for each chunk, adding up to num_layers. If
 * not, false and the reason in why[size]; as an error, ORTH_ERR_ARG. */
bool orth_balance_hand_fits(const double *layers_of_chunk, int64_t num_given, int64_t num_layers,
                            int64_t num_chunks, char *why, size_t size);
orth_status orth_balance_by_hand(orth_ctx *ctx, const double *layers_of_chunk, int num_given, int num_layers,
                                 int num_chunks, int32_t *begin);

#endif
