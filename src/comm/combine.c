/* combine.c -- the tree over n buffers, block by block, so that partial sums stay in the first cache. */
#include "comm/combine.h"

#include <string.h>

#include "kernels/sums.h"

#define BLOCK_BYTES 4096          /* of partial sums; a node of each level has one */
#define MAX_LEVELS 11             /* of the tree over the ranks, and the root */
_Static_assert(1 << (MAX_LEVELS - 1) >= ORTH_MAX_RANKS, "a node of each level of the tree over all ranks has a block");

static const comm_combine_table *table_of(orth_isa isa)
{
#if defined(__x86_64__)
    if (isa >= ORTH_ISA_AVX512)
        return &comm_combine_avx512;
    if (isa >= ORTH_ISA_AVX2)
        return &comm_combine_avx2;
#endif
    (void)isa;
    return &comm_combine_base;
}

const comm_combine_fns *comm_combine_of(orth_isa isa, orth_dtype dtype, orth_reduce op)
{
    return &table_of(isa)->fns[dtype][op];
}

void comm_copy(orth_isa isa, void *dst, const void *src, size_t bytes, bool stream)
{
    if (bytes == 0 || dst == src)
        return;
    if (!stream) {
        memcpy(dst, src, bytes);
        return;
    }
    table_of(isa)->stream(dst, src, bytes);
    table_of(isa)->fence();
}

/* Sum of leaves [0, n) of src into block[0]; blocks above it are free for partial sums. */
static void tree(const comm_combine_fns *f, char (*block)[BLOCK_BYTES], const void *const *src, int n,
                 int64_t begin, int64_t count)
{
    if (n == 1 || n == 2 || n == 4) {
        f->leaves(block[0], src, n, begin, count);
        return;
    }
    const int left = (int)orth_tree_left(n);
    tree(f, block, src, left, begin, count);
    tree(f, block + 1, src + left, n - left, begin, count);
    f->merge(block[0], block[0], block[1], count);
}

/* ORTH_ORDER_FREE: four at a time onto one sum; needs one partial block where the tree needs log2(n). */
static void chain(const comm_combine_fns *f, char (*block)[BLOCK_BYTES], const void *const *src, int n,
                  int64_t begin, int64_t count)
{
    for (int i = 0; i < n;) {
        const int take = n - i >= 4 ? 4 : n - i >= 2 ? 2 : 1;
        f->leaves(block[i > 0], src + i, take, begin, count);
        if (i > 0)
            f->merge(block[0], block[0], block[1], count);
        i += take;
    }
}

static void plain_copy(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void comm_combine(const comm_combine_how *how, void *const *dst, int num_dst, const void *const *src, int n,
                  int64_t begin, int64_t count)
{
    const comm_combine_table *table = table_of(how->isa);
    const comm_combine_fns *f = &table->fns[how->dtype][how->op];
    void (*put)(void *, const void *, size_t) = how->stream ? table->stream : plain_copy;
    const size_t elem = orth_dtype_bytes(how->dtype);
    const int64_t block_elems = BLOCK_BYTES / (int64_t)comm_acc_bytes(how->dtype);
    _Alignas(64) char block[MAX_LEVELS][BLOCK_BYTES];
    _Alignas(64) char rounded[BLOCK_BYTES];
    if (n == 2 && num_dst <= 2) {
        const size_t at = (size_t)begin * elem;
        char *d0 = (char *)dst[0] + at, *d1 = (char *)dst[num_dst - 1] + at;
        const char *a = (const char *)src[0] + at, *b = (const char *)src[1] + at;
        if (!how->stream) {
            f->pair(d0, d1, a, b, count);
            return;
        }
        if (num_dst == 2 && ((uintptr_t)d0 | (uintptr_t)d1) % 64 == 0) {
            f->pair_stream(d0, d1, a, b, count);
            table->fence();
            return;
        }
    }
    for (int64_t done = 0; done < count; done += block_elems) {
        const int64_t m = ORTH_MIN(block_elems, count - done);
        const void *result = block[0];
        (how->order == ORTH_ORDER_FREE ? chain : tree)(f, block, src, n, begin + done, m);
        if (comm_acc_bytes(how->dtype) != elem) {
            f->store(rounded, block[0], m);
            result = rounded;
        }
        for (int k = 0; k < num_dst; k++)
            put((char *)dst[k] + (size_t)(begin + done) * elem, result, (size_t)m * elem);
    }
    if (how->stream)
        table->fence();
}
