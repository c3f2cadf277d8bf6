/* attention_tiles_amx.h -- products of attention on AMX tiles, written once and included after attention_tile.h.
 *
 * tmm0..3 are 32 x 32 of c, tmm4, 5 are 32 rows of a, tmm6, 7 are 32 columns of b; a step is 16 units of the sum.
 * With three planes a step multiplies six pairs of them, in the order of gemm_chain.h: from one pair to the next an
 * operand stays in its tiles.
 * Whole tiles are computed: rows and columns of c that nobody wants are written too, up to 16 of each, and
 * units that do not exist are zero. Rows of a have their units side by side: a_step is 1.
 * No include guard: a file includes it once.
 */
#include "kernels/cpu/tiles.h"
#include "kernels/gemm_chain.h"

#define STEP 16                     /* units */
#if PLANES == 3
#define PRODUCTS ORTH_BF16X6        /* of a step */
#define PLANE_A(i) orth_bf16x6_a[i]
#define PLANE_B(i) orth_bf16x6_b[i]
#else
#define PRODUCTS 1
#define PLANE_A(i) 0
#define PLANE_B(i) 0
#endif

/* An operand of one step, the bytes between its rows, the units between its planes. */
typedef struct {
    const uint32_t *at;
    int64_t stride, plane;
} tile_source;

/* 16 x 16 units, of which `rows` x `cols` exist. */
static tile_source padded(tile_source from, int rows, int cols, uint32_t to[PLANES][STEP][STEP])
{
    const __mmask16 some = (__mmask16)((1u << cols) - 1);
    for (int p = 0; p < PLANES; p++)
        for (int r = 0; r < STEP; r++) {
            const uint32_t *row = from.at + p * from.plane + r * from.stride / 4;
            _mm512_storeu_si512(to[p][r], r < rows ? _mm512_maskz_loadu_epi32(some, row) : _mm512_setzero_si512());
        }
    orth_tiles_will_read(to);
    return (tile_source){to[0][0], 4 * STEP, STEP * STEP};
}

/* One step of c: m 16-row halves of a by n 16-column halves of b. */
static void multiply(const tile_source a[2], const tile_source b[2], int m, int n)
{
#pragma GCC unroll 6
    for (int i = 0; i < PRODUCTS; i++) {
        const int64_t at_a = PLANE_A(i) * a->plane, at_b = PLANE_B(i) * b->plane;
        const bool new_a = i == 0 || PLANE_A(i) != PLANE_A(i - 1), new_b = i == 0 || PLANE_B(i) != PLANE_B(i - 1);
        if (new_a)
            _tile_loadd(4, a[0].at + at_a, a[0].stride);
        if (new_b)
            _tile_loadd(6, b[0].at + at_b, b[0].stride);
        _tile_dpbf16ps(0, 4, 6);
        if (n > 1) {
            if (new_b)
                _tile_loadd(7, b[1].at + at_b, b[1].stride);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (m > 1) {
            if (new_a)
                _tile_loadd(5, a[1].at + at_a, a[1].stride);
            _tile_dpbf16ps(2, 5, 6);
            if (n > 1)
                _tile_dpbf16ps(3, 5, 7);
        }
    }
}

/* The last step, of `units` < STEP. */
static void multiply_rest(const tile_source a[2], const tile_source b[2], int m, int n, int units)
{
    uint32_t pad_a[2][PLANES][STEP][STEP], pad_b[2][PLANES][STEP][STEP];
    tile_source pa[2] = {a[0], a[1]}, pb[2] = {b[0], b[1]};
    for (int i = 0; i < m; i++)
        pa[i] = padded(a[i], STEP, units, pad_a[i]);
    for (int j = 0; j < n; j++)
        pb[j] = padded(b[j], units, STEP, pad_b[j]);
    multiply(pa, pb, m, n);
}

static void load_sums(const float *c, int64_t c_row, int m, int n)
{
    orth_tiles_will_read(c);
    _tile_loadd(0, c, 4 * c_row);
    if (n > 1)
        _tile_loadd(1, c + STEP, 4 * c_row);
    if (m > 1)
        _tile_loadd(2, c + STEP * c_row, 4 * c_row);
    if (m > 1 && n > 1)
        _tile_loadd(3, c + STEP * c_row + STEP, 4 * c_row);
}

static void store_sums(float *c, int64_t c_row, int m, int n)
{
    _tile_stored(0, c, 4 * c_row);
    if (n > 1)
        _tile_stored(1, c + STEP, 4 * c_row);
    if (m > 1)
        _tile_stored(2, c + STEP * c_row, 4 * c_row);
    if (m > 1 && n > 1)
        _tile_stored(3, c + STEP * c_row + STEP, 4 * c_row);
    orth_tiles_will_read(c);
}

/* The 32 x 32 of c at `c` from units [k0, k1) of its rows of a and columns of b. */
static void tile_32(const orth_attn_product *x, float *c, tile_source a, tile_source b, int64_t k0, int64_t k1, int m,
                    int n)
{
    tile_source rows[2] = {a, a}, cols[2] = {b, b};
    for (int i = 0; i < 2; i++) {
        rows[i].at += k0 + i * STEP * a.stride / 4;
        cols[i].at += k0 * b.stride / 4 + i * STEP;
    }
    if (x->accumulate) {
        load_sums(c, x->c_row, m, n);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    int64_t k = k0;
    for (; k + STEP <= k1; k += STEP) {
        multiply(rows, cols, m, n);
        for (int i = 0; i < 2; i++) {
            rows[i].at += STEP;
            cols[i].at += STEP * b.stride / 4;
        }
    }
    if (k < k1)
        multiply_rest(rows, cols, m, n, (int)(k1 - k));
    store_sums(c, x->c_row, m, n);
}

/* to[KB][Dp] of c[Dp][KB]. */
static void transpose(float *to, const float *c, int64_t Dp)
{
    for (int64_t d0 = 0; d0 < Dp; d0 += 16)
        for (int k0 = 0; k0 < KB; k0 += 16) {
            __m512i v[16];
            for (int i = 0; i < 16; i++)
                v[i] = _mm512_loadu_si512(c + (d0 + i) * KB + k0);
            transpose16(v);
            for (int i = 0; i < 16; i++)
                _mm512_storeu_si512(to + (k0 + i) * Dp + d0, v[i]);
        }
}

static void scale_rows(const orth_attn_product *x)
{
    for (int r = 0; r < x->rows; r++)
        if (x->row_scale[r] != 1.0f)
            for (int j = 0; j < x->cols; j += VW)
                V_STORE(x->c + r * x->c_row + j,
                        V_MUL(V_LOAD(x->c + r * x->c_row + j), V_SET(x->row_scale[r])));
}

/* The end of the sum in units, whole steps of what is not zero, and columns up to *cols that rows up to r1 want. */
static void limits(const orth_attn_product *x, int r1, int64_t *end, int64_t *cols)
{
    const int64_t units = orth_div_up(x->depth, 2), seen = ORTH_MAX(x->offset + r1, 0);
    *end = x->limit == ORTH_ATTN_KEYS ? ORTH_MIN(units, orth_round_up(orth_div_up(seen, 2), STEP)) : units;
    *cols = x->limit == ORTH_ATTN_COLS ? ORTH_MIN(x->cols, seen) : x->cols;
}

/* Where the sum begins for columns from c0 on. */
static int64_t first_unit(const orth_attn_product *x, int c0, int64_t end)
{
    if (x->limit != ORTH_ATTN_QUERIES_TURNED)
        return 0;
    return ORTH_MIN(ORTH_MAX(c0 - x->offset, 0) / 2 / STEP * STEP, end);
}

static void product(const orth_attn_product *x)
{
    if (x->accumulate && x->row_scale)
        scale_rows(x);
    for (int r0 = 0; r0 < x->rows; r0 += 2 * STEP) {
        const int r1 = ORTH_MIN(x->rows, r0 + 2 * STEP), m = r1 - r0 > STEP ? 2 : 1;
        int64_t end, cols;
        limits(x, r1, &end, &cols);
        for (int c0 = 0; c0 < cols; c0 += 2 * STEP)
            tile_32(x, x->c + r0 * x->c_row + c0, (tile_source){x->a + r0 * x->a_row, 4 * x->a_row, x->a_plane},
                    (tile_source){x->b + c0, 4 * x->b_row, x->b_plane}, first_unit(x, c0, end), end, m,
                    cols - c0 > STEP ? 2 : 1);
    }
}
