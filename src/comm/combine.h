/* combine.h -- several buffers into one, element by element, in the order of the aligned tree.
 *
 * acc(type): fp32 for bf16, fp16 and int8 (ORTH_Q8_NUM for an element, which is a block), else the type itself. One table per
 * instruction set, all with the same bits (each element sees the same exactly rounded additions). Buffers are aligned as their type is, no more.
 */
#ifndef ORTH_COMM_COMBINE_H
#define ORTH_COMM_COMBINE_H

#include "comm/comm.h"
#include "tensor/q8.h"

typedef struct {
    /* d = s[0] op s[1] ..., num = 1, 2 or 4 leaves as tree; d is of acc type. */
    void (*leaves)(void *d, const void *const *s, int num, int64_t begin, int64_t n);
    /* d = x op y, all of acc type. */
    void (*merge)(void *d, const void *x, const void *y, int64_t n);
    /* d0 = d1 = a op b, all of the type; d0 and d1 may be a and b. */
    void (*pair)(void *d0, void *d1, const void *a, const void *b, int64_t n);
    /* The same past the caches, then a fence; d0 and d1 are multiples of 64 and neither a nor b. */
    void (*pair_stream)(void *d0, void *d1, const void *a, const void *b, int64_t n);
    /* d (type) = x (acc). */
    void (*store)(void *d, const void *x, int64_t n);
} comm_combine_fns;

typedef struct {
    comm_combine_fns fns[ORTH_NUM_DTYPES][ORTH_NUM_REDUCES]; /* NULL functions: cannot be reduced */
    void (*stream)(void *d, const void *s, size_t bytes);   /* memcpy past the caches; then a fence */
    void (*fence)(void);
} comm_combine_table;

extern const comm_combine_table comm_combine_base;
#if defined(__x86_64__)
extern const comm_combine_table comm_combine_avx2, comm_combine_avx512;
#endif

/* Bytes of acc(type) for each element of the type. */
static inline size_t comm_acc_bytes(orth_dtype t)
{
    return t == ORTH_BF16 || t == ORTH_F16 ? sizeof(float) : t == ORTH_Q8 ? ORTH_Q8_NUM * sizeof(float) : orth_dtype_bytes(t);
}

typedef struct {
    orth_isa isa;
    orth_dtype dtype;
    orth_reduce op;
    orth_comm_order order;
    bool stream;                 /* outputs are too large to be read again soon, and not inputs */
} comm_combine_how;

/* dst[k][i] = tree over j of src[j][i] for all k < num_dst and i in [begin, begin + count). A dst may be one
 * of the src. n >= 2. */
void comm_combine(const comm_combine_how *how, void *const *dst, int num_dst, const void *const *src, int n,
                  int64_t begin, int64_t count);
const comm_combine_fns *comm_combine_of(orth_isa isa, orth_dtype dtype, orth_reduce op);
static inline bool comm_can_reduce(orth_dtype dtype, orth_reduce op)
{
    return (unsigned)op < ORTH_NUM_REDUCES && comm_combine_of(ORTH_ISA_BASE, dtype, op)->leaves;
}
/* memcpy that goes past the caches when that is told. */
void comm_copy(orth_isa isa, void *dst, const void *src, size_t bytes, bool stream);

#endif
