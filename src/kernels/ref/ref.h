/* ref.h -- helpers of the plain kernels. */
#ifndef ORTH_KERNELS_REF_REF_H
#define ORTH_KERNELS_REF_REF_H

#include "kernels/sums.h"
#include "tensor/q8.h"

/* Element i of tensor t as fp32, and back with one rounding. */
static inline float ref_get(const orth_tensor *t, int64_t i)
{
    return orth_load_f32(t->data, t->dtype, i);
}

static inline void ref_put(const orth_tensor *t, int64_t i, float v)
{
    orth_store_f32(t->data, t->dtype, i, v);
}

/* Aligned tree over leaves [first, first + n). */
typedef float (*ref_leaf_fn)(const void *arg, int64_t leaf);

static inline float ref_tree(ref_leaf_fn leaf, const void *arg, int64_t first, int64_t n)
{
    if (n == 1)
        return leaf(arg, first);
    int64_t left = orth_tree_left(n);
    return ref_tree(leaf, arg, first, left) + ref_tree(leaf, arg, first + left, n - left);
}

/* acc[k-1] + ( ... + (acc[0] + v)) at element i. */
static inline float ref_addends(const orth_op_call *call, int64_t i, float v)
{
    for (int k = 0; k < call->attr->num_addends; k++)
        v = orth_addend(call, k)[i] + v;
    return v;
}

#endif
