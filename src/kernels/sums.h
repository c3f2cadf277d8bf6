/* sums.h -- the two orders of summation that kernels share, for plain code.
 *
 * Rows: a sum along a row (a norm's mean, a softmax's denominator) runs in 16 lanes, element i in lane
 * i mod 16 (i from the start of the row or canonical part), each lane one ascending chain from +0; then
 * the lanes are folded in halves: l[i] += l[i+8], then +4, +2, +1. Every vector width can do that.
 * Tokens: leaves are the token slots of each sequence, see tensor/parts.h.
 */
#ifndef ORTH_KERNELS_SUMS_H
#define ORTH_KERNELS_SUMS_H

#include "kernels/op.h"

#define ORTH_LANES 16

static inline float orth_lanes_fold(float lane[ORTH_LANES])
{
    for (int w = ORTH_LANES / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            lane[i] += lane[i + w];
    return lane[0];
}

static inline double orth_lanes_fold_f64(double lane[ORTH_LANES])
{
    for (int w = ORTH_LANES / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            lane[i] += lane[i + w];
    return lane[0];
}

/* Slots of the stored tokens of a call: leaf i covers rows [orth_split_bound(i), orth_split_bound(i+1)). */
static inline orth_split orth_token_split(const orth_attr *attr)
{
    return (orth_split){ORTH_SPLIT_TOKENS, ORTH_MAX(attr->token_parts, 1), attr->seq_len, 1, attr->num_seqs};
}

/* Of n >= 2 leaves, how many are under the left child of the aligned tree's root: the largest power of
 * two below n. */
static inline int64_t orth_tree_left(int64_t n)
{
    int64_t half = 1;
    while (2 * half < n)
        half *= 2;
    return half;
}

/* Addend k of a gradient op (the last inputs). */
static inline const float *orth_addend(const orth_op_call *call, int k)
{
    return call->in[call->num_in - call->attr->num_addends + k].data;
}

#endif
