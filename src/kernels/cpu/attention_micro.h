/* attention_micro.h -- the inner loops of attention, one table per instruction set.
 *
 * The drivers (attention.c, attention_bwd.c) cut the work into blocks of at most KB queries by KB
 * keys and call these. Operands of products are packed in *units* of 32 bits: one fp32, or with
 * `pairs` two neighbouring bf16 along the summed index. All sums of a product are fp32.
 * fp32 in three pieces of bf16 (gemm_chain.h: bf16x6) lies in three *planes*, one for each piece. A plane is a packed form
 * of pairs of its own; the next one follows KB rows of head_dim values, or of KB probabilities, after it.
 *
 * Dp = head_dim rounded up to 16. Packed forms of a block of up to KB rows of head_dim values:
 *   rows   unit [row][Dp/u]     summed along head_dim, broadcast        (u = elements in a unit)
 *   cols   unit [Dp/u][KB]      summed along head_dim, loaded
 *   inner  unit [KB/u][Dp]      summed along rows, loaded; for u = 1 the same as `rows`
 *   transposed unit [Dp][KB/u]      summed along rows, broadcast
 */
#ifndef ORTH_KERNELS_CPU_ATTENTION_MICRO_H
#define ORTH_KERNELS_CPU_ATTENTION_MICRO_H

#include "kernels/attention.h"

#define KB ORTH_ATTN_BLOCK
#define MIN_QUERIES 32

/* Which corner of a product causality makes zero. Row r of c; offset = first query - first key. */
typedef enum {
    ORTH_ATTN_COLS,   /* columns are keys: only those below offset + r + 1 are wanted */
    ORTH_ATTN_KEYS,   /* the sum runs over keys: it ends at offset + r + 1 */
    ORTH_ATTN_QUERIES, /* the sum runs over queries, rows are keys: it starts at r - offset */
    ORTH_ATTN_QUERIES_TURNED /* the same, columns are keys: it starts at column - offset */
} orth_attn_limit;

/* c[r][j] (+)= sum over i of a[r][i] b[i][j]; strides of a and b in units. */
typedef struct {
    float *c;
    int64_t c_row;
    const uint32_t *a;
    int64_t a_row, a_step;
    const uint32_t *b;
    int64_t b_row;
    int64_t a_plane, b_plane; /* units from one plane to the next; unused if there is one */
    int rows, cols, depth;  /* depth in elements; cols a multiple of 16 */
    orth_attn_limit limit;
    int64_t offset;
    bool accumulate;        /* else from zero */
    const float *row_scale; /* c is multiplied by it first; NULL: 1 */
} orth_attn_product;

/* A block of scores: rows are queries at consecutive positions. */
typedef struct {
    int rows;
    int64_t first_query, first_key;
    const int32_t *doc;     /* [rows] first visible key of each; NULL: 0 */
    const float *drop;      /* [KB][KB] factors; NULL: none */
    float scale;
} orth_attn_scores;

typedef struct {
    bool pairs;
    int planes; /* 3: fp32 operands in pieces, as pairs; else 1 */
    int queries; /* that the forward takes at a time: KB, or MIN_QUERIES where what they need stays in the L1 for it */
    /* Around products, on their thread; may be NULL. */
    void (*enter)(void), (*leave)(void);
    void (*product)(const orth_attn_product *x);
    /* s [KB][KB]: raw products in. p: exponentials for the product with v, [row][KB] elements (p is s
     * itself unless pairs). m, l: running maximum and sum of each row; a: factor for what they held. */
    void (*softmax)(const orth_attn_scores *x, float *s, void *p, float *m, float *l, float *a);
    /* m [KB] becomes the lse of each row. */
    void (*finish)(float *m, const float *l, int rows);
    /* s, dp [KB][KB]: raw products in. Without pairs s becomes p and dp becomes ds, [row][KB]. With them
     * ds: [row][KB] bf16; p_inner, ds_inner: [row/2][KB] pairs of rows; each in every plane. */
    void (*grad)(const orth_attn_scores *x, float *s, float *dp, const float *lse, const float *delta,
                 void *ds, void *p_inner, void *ds_inner);
    /* NULL, or sums over queries are made with keys as columns: c[Dp][KB], limited by QUERIES_TURNED instead of QUERIES,
     * of q and do packed as `transposed` and p_inner, ds_inner. Tiles would have to transpose these as rows. Makes
     * to[KB][Dp] of such a c. */
    void (*transpose)(float *to, const float *c, int64_t Dp);
    /* row[i]: D elements of type `type`. Rows beyond num_rows are zero up to KB, except in rows. */
    void (*pack_rows)(void *dst, const void *const *row, int num_rows, int D, orth_dtype type);
    void (*pack_cols)(void *dst, const void *const *row, int num_rows, int D, orth_dtype type);
    void (*pack_inner)(void *dst, const void *const *row, int num_rows, int D, orth_dtype type);
    void (*pack_transposed)(void *dst, const void *const *row, int num_rows, int D, orth_dtype type); /* NULL as transpose */
    /* dst[d] = src[d] / divisor + 0, rounded to type; src is readable up to Dp. */
    void (*store_row)(void *dst, const float *src, int D, float divisor, orth_dtype type);
    /* delta of attention.h. */
    float (*dot)(const void *a, const void *b, int D, orth_dtype type);
} orth_attn_micro;

extern const orth_attn_micro orth_attn_micro_base;
extern const orth_attn_micro orth_attn_micro_avx2;
extern const orth_attn_micro orth_attn_micro_avx512;
extern const orth_attn_micro orth_attn_micro_avx512bf16; /* these two: pairs, bf16 operands only */
extern const orth_attn_micro orth_attn_micro_amx;
extern const orth_attn_micro orth_attn_micro_amx_bf16x6;   /* three planes of pairs, fp32 operands only */

/* The table for operands of `type` at `isa`. */
const orth_attn_micro *orth_attn_micro_for(orth_dtype type, orth_isa isa);

static inline void orth_attn_enter(const orth_attn_micro *m)
{
    if (m->enter)
        m->enter();
}

static inline void orth_attn_leave(const orth_attn_micro *m)
{
    if (m->leave)
        m->leave();
}

static inline int64_t orth_attn_padded(int D)
{
    return orth_round_up(D, 16);
}

/* Of `count` packed elements, in all planes. */
static inline size_t orth_attn_packed_bytes(const orth_attn_micro *m, int64_t count)
{
    return (size_t)count * (m->pairs ? 2 * (size_t)m->planes : sizeof(float));
}

/* Factors of a block of dropped probabilities, [KB][KB]; drop[r] is the row's. */
void orth_attn_drop_block(float *factor, const orth_attn_drop *drop, int rows, int64_t first_key);

#endif
