/* attention_tile.h -- the functions of orth_attn_micro, written once and included per instruction set.
 *
 * The includer defines
 *   VW                      floats in a vector: 8 or 16
 *   TILE_ROWS, TILE_VECS    accumulators held in registers by a product
 *   PAIRS                   1: units are pairs of bf16
 *   PLANES                  3: of pieces of fp32, as OWN_PACKS, pack_rows, pack_cols and pack_inner; optional, else 1
 *   vf, vu, vm              vectors of floats and of units, a mask
 *   V_LOAD V_STORE V_SET V_ADD V_SUB V_MUL V_DIV V_FMA V_MAX V_EXP2 V_LOG V_SEL(mask, yes, no)
 *   V_LESS(a, b)            mask: a < b
 *   V_RANGE(first, lo, hi)  mask: lane i is set iff lo <= first + i < hi
 *   V_TOPS(v)               lane i: the largest lane of v[i], of VW vectors
 *   V_FOLDS(v)              lane i: the lanes of v[i] folded in the order of sum16
 *   V_FOLD16(v)             fold of 16 lanes (16/VW vectors) in the order of sum16
 *   V_FROM_BF16(p)          VW bf16 as floats;  V_TO_BF16(p, v) back, rounded as tensor.h does; V_FROM_F16, V_TO_F16 of fp16
 *   TRANSPOSE_UNITS         optional: a fast transpose_units, see attention_vec512.h
 *   V_UNITS(p) V_BCAST(p) V_STEP(acc, a, b)   one step of a product; or OWN_PRODUCT, a function `product`, and
 *                           QUERIES, ENTER, LEAVE, TRANSPOSE and PACK_TRANSPOSED of orth_attn_micro
 * and with PAIRS, into every plane, which are KB * KB elements apart,
 *   STORE_BF16(p, v0, v1)   2*VW floats, rounded, in order
 *   STORE_TWO(p, v0, v1)    VW units {v0[i], v1[i]}, rounded
 *   STORE_ROWS(to0, to1, p, row0, row1)   row0[2] to to0, row1[2] to to1, and the units {row0, row1} of both vectors to p
 * Every element of a product is its own chain, so the bits do not depend on VW or the tile.
 * No include guard: a file includes it once.
 */
#include <stdbool.h>

#include "kernels/cpu/attention_micro.h"

#ifndef PLANES
#define PLANES 1
#endif

#define INLINE static inline __attribute__((always_inline))
#define NV (KB / VW)
#define UNIT (PAIRS + 1)

#ifndef OWN_PRODUCT
#define QUERIES KB
#define ENTER NULL
#define LEAVE NULL
#define TRANSPOSE NULL
#define PACK_TRANSPOSED NULL

/* m rows by nv vectors of c from (r0, c0), terms [k0, k1) in units. m and nv are constants. */
INLINE void tile(const orth_attn_product *x, int r0, int c0, int64_t k0, int64_t k1, const int m,
                 const int nv)
{
    vf acc[TILE_ROWS][TILE_VECS];
    float *c = x->c + r0 * x->c_row + c0;
#pragma GCC unroll 8
    for (int r = 0; r < m; r++) {
        vf f = V_SET(x->row_scale ? x->row_scale[r0 + r] : 1.0f);
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            acc[r][v] = x->accumulate ? V_MUL(V_LOAD(c + r * x->c_row + v * VW), f) : V_SET(0.0f);
    }
    const uint32_t *a = x->a + r0 * x->a_row + k0 * x->a_step, *b = x->b + k0 * x->b_row + c0;
    for (int64_t k = k0; k < k1; k++, a += x->a_step, b += x->b_row) {
        vu bv[TILE_VECS];
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            bv[v] = V_UNITS(b + v * VW);
#pragma GCC unroll 8
        for (int r = 0; r < m; r++) {
            vu av = V_BCAST(a + r * x->a_row);
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                acc[r][v] = V_STEP(acc[r][v], av, bv[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < m; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            V_STORE(c + r * x->c_row + v * VW, acc[r][v]);
}

#if TILE_VECS == 4
#define TILE_CASE(m) \
    case m: \
        switch (nv) { \
        case 4: tile(x, r0, c0, k0, k1, m, 4); break; \
        case 3: tile(x, r0, c0, k0, k1, m, 3); break; \
        case 2: tile(x, r0, c0, k0, k1, m, 2); break; \
        default: tile(x, r0, c0, k0, k1, m, 1); break; \
        } \
        break;
#elif TILE_VECS == 2
#define TILE_CASE(m) \
    case m: \
        if (nv == 2) \
            tile(x, r0, c0, k0, k1, m, 2); \
        else \
            tile(x, r0, c0, k0, k1, m, 1); \
        break;
#else
#define TILE_CASE(m) \
    case m: tile(x, r0, c0, k0, k1, m, 1); break;
#endif

static void any_tile(const orth_attn_product *x, int r0, int c0, int64_t k0, int64_t k1, int m, int nv)
{
    (void)nv;
    switch (m) {
        TILE_CASE(1)
#if TILE_ROWS >= 6
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
#endif
    }
}

static void product(const orth_attn_product *x)
{
    for (int c0 = 0; c0 < x->cols; c0 += TILE_VECS * VW)
        for (int r0 = 0; r0 < x->rows; r0 += TILE_ROWS) {
            const int m = ORTH_MIN(TILE_ROWS, x->rows - r0);
            int64_t cols = x->cols, begin = 0, end = x->depth, seen = x->offset + r0 + m;
            if (x->limit == ORTH_ATTN_COLS)
                cols = ORTH_MIN(cols, seen);
            else if (x->limit == ORTH_ATTN_KEYS)
                end = ORTH_MAX(ORTH_MIN(end, seen), 0);
            else
                begin = ORTH_MIN(ORTH_MAX(r0 - x->offset, 0), end);
            if (cols <= c0)
                continue;
            int nv = (int)ORTH_MIN(orth_div_up(cols - c0, VW), TILE_VECS);
            any_tile(x, r0, c0, begin / UNIT, orth_div_up(end, UNIT), m, nv);
        }
}

#endif

/* Visible keys [*lo, *hi) of row r within the block. */
INLINE void visible(const orth_attn_scores *x, int r, int *lo, int *hi)
{
    int64_t first = x->doc ? x->doc[r] - x->first_key : 0, last = x->first_query + r - x->first_key + 1;
    *lo = (int)ORTH_MAX(first, 0);
    *hi = (int)ORTH_MAX(ORTH_MIN(last, KB), *lo);
}

/* What sum16 folds: its 16 lanes, or, on 8, the first step of the fold of them. */
INLINE vf lane_sums(const vf *e)
{
    vf lane[16 / VW];
    for (int i = 0; i < 16 / VW; i++) {
        lane[i] = e[i];
        for (int v = i + 16 / VW; v < NV; v += 16 / VW)
            lane[i] = V_ADD(lane[i], e[v]);
    }
    return VW == 16 ? lane[0] : V_ADD(lane[0], lane[16 / VW - 1]);
}

/* Puts `other` where keys are not visible, into n vectors of a row from `first` on. */
INLINE void hide(vf *e, int first, const int n, int lo, int hi, vf other)
{
    if (lo > first * VW || hi < (first + n) * VW)
        for (int v = 0; v < n; v++)
            e[v] = V_SEL(V_RANGE((first + v) * VW, lo, hi), e[v], other);
}

/* The largest visible products of row r lane by lane; -inf where there is none. */
INLINE vf row_tops(const orth_attn_scores *x, const float *s, int r)
{
    const vf none = V_SET(-__builtin_inff());
    vf e[NV];
    int lo, hi;
    if (r >= x->rows)
        return none;
    visible(x, r, &lo, &hi);
    for (int v = 0; v < NV; v++)
        e[v] = V_LOAD(s + r * KB + v * VW);
    hide(e, 0, NV, lo, hi, none);
    for (int v = 1; v < NV; v++)
        e[0] = V_MAX(e[0], e[v]);
    return e[0];
}

/* Moves the maxima m of VW rows from r0 on and leaves a = 2^(m - m'). A row that sees nothing here (its document starts
 * later) keeps m: as if the block were skipped. */
INLINE void move_maxima(const orth_attn_scores *x, const float *s, int r0, float *m, float *a)
{
    vf top[VW];
    for (int i = 0; i < VW; i++)
        top[i] = row_tops(x, s, r0 + i);
    const vf old = V_LOAD(m + r0), here = V_MUL(V_TOPS(top), V_SET(x->scale * ORTH_LOG2E));
    const vf new = V_SEL(V_LESS(V_ADD(old, V_SET(ORTH_ATTN_SLACK)), here), here, old);
    V_STORE(a + r0, V_SEL(V_LESS(V_SET(-__builtin_inff()), old), V_EXP2(V_SUB(old, new)), V_SET(1.0f)));
    V_STORE(m + r0, new);
}

/* Row r becomes exponentials; returns what sum16 folds. */
INLINE vf row_powers(const orth_attn_scores *x, float *s, void *p, int r, float m)
{
    const vf c = V_SET(x->scale * ORTH_LOG2E), top = V_SET(-m);
    vf e[NV];
    int lo, hi;
    visible(x, r, &lo, &hi);
    for (int v = 0; v < NV; v++)
        e[v] = V_EXP2(V_FMA(V_LOAD(s + r * KB + v * VW), c, top));
    hide(e, 0, NV, lo, hi, V_SET(0.0f));
    const vf sum = lane_sums(e);
    if (x->drop)
        for (int v = 0; v < NV; v++)
            e[v] = V_MUL(e[v], V_LOAD(x->drop + r * KB + v * VW));
#if PAIRS
    for (int v = 0; v < NV; v += 2)
        STORE_BF16((orth_bf16 *)p + r * KB + v * VW, e[v], e[v + 1]);
#else
    (void)p;
    for (int v = 0; v < NV; v++)
        V_STORE(s + r * KB + v * VW, e[v]);
#endif
    return sum;
}

static void softmax(const orth_attn_scores *x, float *s, void *p, float *m, float *l, float *a)
{
    for (int r0 = 0; r0 < x->rows; r0 += VW) {
        vf sum[VW];
        move_maxima(x, s, r0, m, a);
        for (int i = 0; i < VW; i++)
            sum[i] = r0 + i < x->rows ? row_powers(x, s, p, r0 + i, m[r0 + i]) : V_SET(0.0f);
        V_STORE(l + r0, V_FMA(V_LOAD(l + r0), V_LOAD(a + r0), V_FOLDS(sum)));
    }
}

static void finish(float *m, const float *l, int rows)
{
    for (int r = 0; r < rows; r += VW)
        V_STORE(m + r, V_FMA(V_LOAD(m + r), V_SET(ORTH_LN2), V_LOG(V_LOAD(l + r))));
}

/* What the gradients of a row of scores take. */
typedef struct {
    vf c, top, scale, shift;
    const float *s, *dp, *drop;
    int lo, hi;
} grad_row;

INLINE grad_row grad_row_of(const orth_attn_scores *x, int r, const float *s, const float *dp, float lse, float delta)
{
    grad_row y = {V_SET(x->scale * ORTH_LOG2E), V_SET(-(lse * ORTH_LOG2E)), V_SET(x->scale), V_SET(-(delta * x->scale)),
                  s + r * KB, dp + r * KB, x->drop ? x->drop + r * KB : NULL, 0, 0};
    visible(x, r, &y.lo, &y.hi);
    return y;
}

/* Two vectors of a row from `first` on: p, the dropped probabilities, and ds, the gradients of the scores. */
INLINE void grad_vectors(const grad_row *y, int first, vf p[2], vf ds[2])
{
    for (int i = 0; i < 2; i++) {
        const int at = (first + i) * VW;
        const vf prob = V_EXP2(V_FMA(V_LOAD(y->s + at), y->c, y->top));
        vf g = V_LOAD(y->dp + at);
        p[i] = prob;
        if (y->drop) {
            g = V_MUL(g, V_LOAD(y->drop + at));
            p[i] = V_MUL(prob, V_LOAD(y->drop + at));
        }
        ds[i] = V_MUL(prob, V_FMA(g, y->scale, y->shift));
    }
    hide(p, first, 2, y->lo, y->hi, V_SET(0.0f)); /* what was not computed may hold anything, even NaN */
    hide(ds, first, 2, y->lo, y->hi, V_SET(0.0f));
}

#if PAIRS
/* Rows r and r+1, of which n exist. */
INLINE void grad_rows(const orth_attn_scores *x, int r, const int n, const float *s, const float *dp, const float *lse,
                      const float *delta, orth_bf16 *ds, uint32_t *p_inner, uint32_t *ds_inner)
{
    grad_row row[2];
    for (int i = 0; i < n; i++)
        row[i] = grad_row_of(x, r + i, s, dp, lse[r + i], delta[r + i]);
    for (int v = 0; v < NV; v += 2) {
        vf p[2][2], g[2][2];
        p[1][0] = p[1][1] = g[1][0] = g[1][1] = V_SET(0.0f);
        for (int i = 0; i < n; i++)
            grad_vectors(&row[i], v, p[i], g[i]);
        for (int j = 0; j < 2; j++)
            STORE_TWO(p_inner + r / 2 * KB + (v + j) * VW, p[0][j], p[1][j]);
        orth_bf16 *to = ds + r * KB + v * VW;
        STORE_ROWS(to, to + KB, ds_inner + r / 2 * KB + v * VW, g[0], g[1]);
    }
}

static void grad(const orth_attn_scores *x, float *s, float *dp, const float *lse, const float *delta,
                 void *ds, void *p_inner, void *ds_inner)
{
    int r = 0;
    for (; r + 2 <= x->rows; r += 2)
        grad_rows(x, r, 2, s, dp, lse, delta, ds, p_inner, ds_inner);
    if (r < x->rows)
        grad_rows(x, r, 1, s, dp, lse, delta, ds, p_inner, ds_inner);
}
#else
static void grad(const orth_attn_scores *x, float *s, float *dp, const float *lse, const float *delta,
                 void *ds, void *p_inner, void *ds_inner)
{
    (void)ds, (void)p_inner, (void)ds_inner;
    for (int r = 0; r < x->rows; r++) {
        const grad_row row = grad_row_of(x, r, s, dp, lse[r], delta[r]);
        for (int v = 0; v < NV; v += 2) {
            vf p[2], g[2];
            grad_vectors(&row, v, p, g);
            for (int i = 0; i < 2; i++) {
                V_STORE(s + r * KB + (v + i) * VW, p[i]);
                V_STORE(dp + r * KB + (v + i) * VW, g[i]);
            }
        }
    }
}
#endif

#ifndef OWN_PACKS
#if PAIRS
/* Unit i of a row: elements 2i and 2i+1, zero beyond D. */
INLINE uint32_t row_unit(const orth_bf16 *row, int i, int D)
{
    return 2 * i + 1 < D ? row[2 * i] | (uint32_t)row[2 * i + 1] << 16 : 2 * i < D ? row[2 * i] : 0;
}

static void pack_rows(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    (void)type;
    const int64_t Dp = orth_attn_padded(D);
    for (int r = 0; r < num_rows; r++) {
        memcpy((orth_bf16 *)dst + r * Dp, row[r], (size_t)D * sizeof(orth_bf16));
        memset((orth_bf16 *)dst + r * Dp + D, 0, (size_t)(Dp - D) * sizeof(orth_bf16));
    }
}

static void pack_inner(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    (void)type;
    const int64_t Dp = orth_attn_padded(D);
    memset(dst, 0, (size_t)(KB / 2 * Dp) * sizeof(uint32_t));
    for (int r = 0; r < num_rows; r += 2) {
        const orth_bf16 *even = row[r], *odd = r + 1 < num_rows ? row[r + 1] : NULL;
        uint32_t *to = (uint32_t *)dst + r / 2 * Dp;
        for (int d = 0; d < D && odd; d++)
            to[d] = even[d] | (uint32_t)odd[d] << 16;
        for (int d = 0; d < D && !odd; d++)
            to[d] = even[d];
    }
}
#else
/* dst[d] for d < D from a row of any type, zero up to Dp. */
INLINE void load_row(float *dst, const void *src, int D, int64_t Dp, orth_dtype type)
{
    if (type == ORTH_BF16)
        for (int d = 0; d < D; d++)
            dst[d] = orth_bf16_to_f32(((const orth_bf16 *)src)[d]);
    else if (type == ORTH_F16)
        for (int d = 0; d < D; d += VW) {
            float wide[VW];
            orth_f16 part[VW] = {0};
            const int n = ORTH_MIN(VW, D - d);
            memcpy(part, (const orth_f16 *)src + d, (size_t)n * sizeof *part);
            V_STORE(wide, V_FROM_F16(part));
            memcpy(dst + d, wide, (size_t)n * sizeof *wide);
        }
    else
        memcpy(dst, src, (size_t)D * sizeof(float));
    for (int64_t d = D; d < Dp; d++)
        dst[d] = 0.0f;
}

static void pack_rows(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    const int64_t Dp = orth_attn_padded(D);
    for (int r = 0; r < num_rows; r++)
        load_row((float *)dst + r * Dp, row[r], D, Dp, type);
}

static void pack_inner(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    const int64_t Dp = orth_attn_padded(D);
    pack_rows(dst, row, num_rows, D, type);
    memset((float *)dst + num_rows * Dp, 0, (size_t)((KB - num_rows) * Dp) * sizeof(float));
}
#endif

static void pack_cols(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    uint32_t *to = dst;
    (void)type;
#ifdef TRANSPOSE_UNITS
    if (D % UNIT == 0 && (PAIRS || type == ORTH_F32)) {
        TRANSPOSE_UNITS(to, row, num_rows, D / UNIT);
        return;
    }
#endif
    memset(dst, 0, (size_t)(orth_attn_padded(D) / UNIT * KB) * sizeof(uint32_t));
    for (int r = 0; r < num_rows; r++)
#if PAIRS
        for (int i = 0; i < (D + 1) / 2; i++)
            to[i * KB + r] = row_unit(row[r], i, D);
#else
        for (int d = 0; d < D; d++) {
            float f = orth_load_f32(row[r], type, d);
            memcpy(to + d * KB + r, &f, sizeof f);
        }
#endif
}

#endif

static void store_row(void *dst, const float *src, int D, float divisor, orth_dtype type)
{
    for (int d = 0; d < D; d += VW) { /* src is padded, dst is not */
        const int n = ORTH_MIN(VW, D - d);
        vf v = V_LOAD(src + d);
        float block[VW];
        if (divisor != 1.0f)
            v = V_DIV(v, V_SET(divisor));
        v = V_ADD(v, V_SET(0.0f));
        if (n == VW && type == ORTH_F32) {
            V_STORE((float *)dst + d, v);
        } else if (n == VW && type == ORTH_BF16) {
            V_TO_BF16((orth_bf16 *)dst + d, v);
        } else if (n == VW) {
            V_TO_F16((orth_f16 *)dst + d, v);
        } else {
            V_STORE(block, v);
            for (int i = 0; i < n; i++)
                orth_store_f32(dst, type, d + i, block[i]);
        }
    }
}

INLINE vf load_vector(const void *p, int64_t i, orth_dtype type)
{
    return type == ORTH_BF16  ? V_FROM_BF16((const orth_bf16 *)p + i)
           : type == ORTH_F16 ? V_FROM_F16((const orth_f16 *)p + i)
                              : V_LOAD((const float *)p + i);
}

static float dot(const void *a, const void *b, int D, orth_dtype type)
{
    vf acc[16 / VW];
    float lane[16];
    int d = 0;
    for (int v = 0; v < 16 / VW; v++)
        acc[v] = V_SET(0.0f);
    for (; d + 16 <= D; d += 16)
        for (int v = 0; v < 16 / VW; v++)
            acc[v] = V_FMA(load_vector(a, d + v * VW, type), load_vector(b, d + v * VW, type), acc[v]);
    if (d == D)
        return V_FOLD16(acc);
    for (int v = 0; v < 16 / VW; v++)
        V_STORE(lane + v * VW, acc[v]);
    for (; d < D; d++)
        lane[d % 16] = __builtin_fmaf(orth_load_f32(a, type, d), orth_load_f32(b, type, d), lane[d % 16]);
    return orth_lanes_fold(lane);
}

#define ORTH_ATTN_MICRO_TABLE \
    {PAIRS, PLANES, QUERIES, ENTER, LEAVE, product, softmax, finish, grad, TRANSPOSE, pack_rows, pack_cols, pack_inner, \
     PACK_TRANSPOSED, store_row, dot}
