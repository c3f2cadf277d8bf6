/* attention_micro_amx.c -- the inner loops of attention whose products run on AMX tiles.
 *
 * tmm0..3 are 32 x 32 of c, tmm4, 5 are 32 rows of a, tmm6, 7 are 32 columns of b; a step is 16 units of the sum.
 * Whole tiles are computed: rows and columns of c that nobody wants are written too, up to 16 of each, and
 * units that do not exist are zero.
 */
#include "kernels/cpu/attention_vec512bf16.h"
#include "kernels/cpu/tiles.h"

#define PAIRS 1
#define OWN_PRODUCT
#define QUERIES MIN_QUERIES /* rows that a step of a product takes in any case */
#define ENTER orth_tiles_configure
#define LEAVE orth_tiles_release

#define STEP 16                     /* units */

#include "kernels/cpu/attention_tile.h"

/* An operand of one step, and the bytes between its rows. */
typedef struct {
    const uint32_t *at;
    int64_t stride;
} tile_source;

/* 16 x 16 units, of which `rows` x `cols` exist. */
static tile_source padded(tile_source from, int rows, int cols, uint32_t to[STEP][STEP])
{
    const __mmask16 some = (__mmask16)((1u << cols) - 1);
    for (int r = 0; r < STEP; r++)
        _mm512_storeu_si512(to[r], r < rows ? _mm512_maskz_loadu_epi32(some, from.at + r * from.stride / 4)
                                            : _mm512_setzero_si512());
    orth_tiles_will_read(to);
    return (tile_source){to[0], 4 * STEP};
}

/* One step of c: m 16-row halves of a by n 16-column halves of b. */
static void multiply(const tile_source a[2], const tile_source b[2], int m, int n)
{
    _tile_loadd(4, a[0].at, a[0].stride);
    _tile_loadd(6, b[0].at, b[0].stride);
    _tile_dpbf16ps(0, 4, 6);
    if (n > 1) {
        _tile_loadd(7, b[1].at, b[1].stride);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (m > 1) {
        _tile_loadd(5, a[1].at, a[1].stride);
        _tile_dpbf16ps(2, 5, 6);
        if (n > 1)
            _tile_dpbf16ps(3, 5, 7);
    }
}

/* The last step, of `units` < STEP. */
static void multiply_rest(const tile_source a[2], const tile_source b[2], int m, int n, int units)
{
    uint32_t pad_a[2][STEP][STEP], pad_b[2][STEP][STEP];
    tile_source pa[2], pb[2];
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
    tile_source rows[2] = {{a.at + k0, a.stride}, {a.at + k0 + STEP * a.stride / 4, a.stride}};
    tile_source cols[2] = {{b.at + k0 * b.stride / 4, b.stride}, {b.at + k0 * b.stride / 4 + STEP, b.stride}};
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

/* a[r][k] at a_row = 1, a_step = KB becomes to[r][k]. */
static void turn(const orth_attn_product *x, uint32_t to[KB][KB / 2])
{
    const int units = (int)orth_div_up(x->depth, 2);
    for (int r0 = 0; r0 < x->rows; r0 += STEP)
        for (int k0 = 0; k0 < units; k0 += STEP) {
            __m512i v[STEP];
            for (int k = 0; k < STEP; k++)
                v[k] = _mm512_loadu_si512(x->a + (k0 + k) * x->a_step + r0);
            transpose16(v);
            for (int r = 0; r < STEP; r++)
                _mm512_storeu_si512(&to[r0 + r][k0], v[r]);
        }
    orth_tiles_will_read(to);
}

static void scale_rows(const orth_attn_product *x)
{
    for (int r = 0; r < x->rows; r++)
        if (x->row_scale[r] != 1.0f)
            for (int j = 0; j < x->cols; j += VW)
                V_STORE(x->c + r * x->c_row + j,
                        V_MUL(V_LOAD(x->c + r * x->c_row + j), V_SET(x->row_scale[r])));
}

/* Units [*begin, *end) of the sum, whole steps of what is not zero, and columns up to *cols that rows [r0, r1) want. */
static void limits(const orth_attn_product *x, int r0, int r1, int64_t *begin, int64_t *end, int64_t *cols)
{
    const int64_t units = orth_div_up(x->depth, 2), seen = x->offset + r1;
    *begin = 0;
    *end = units;
    *cols = x->cols;
    if (x->limit == ORTH_ATTN_COLS)
        *cols = ORTH_MIN(x->cols, ORTH_MAX(seen, 0));
    else if (x->limit == ORTH_ATTN_KEYS)
        *end = ORTH_MIN(units, orth_round_up(orth_div_up(ORTH_MAX(seen, 0), 2), STEP));
    else
        *begin = ORTH_MIN(ORTH_MAX(r0 - x->offset, 0) / 2 / STEP * STEP, units);
}

static void product(const orth_attn_product *x)
{
    uint32_t turned[KB][KB / 2] __attribute__((aligned(64)));
    tile_source a = {x->a, 4 * x->a_row};
    if (x->a_step != 1) {
        turn(x, turned);
        a = (tile_source){turned[0], sizeof turned[0]};
    }
    if (x->accumulate && x->row_scale)
        scale_rows(x);
    for (int r0 = 0; r0 < x->rows; r0 += 2 * STEP) {
        const int r1 = ORTH_MIN(x->rows, r0 + 2 * STEP), m = r1 - r0 > STEP ? 2 : 1;
        int64_t k0, k1, cols;
        limits(x, r0, r1, &k0, &k1, &cols);
        for (int c0 = 0; c0 < cols; c0 += 2 * STEP)
            tile_32(x, x->c + r0 * x->c_row + c0, (tile_source){a.at + r0 * a.stride / 4, a.stride},
                    (tile_source){x->b + c0, 4 * x->b_row}, k0, k1, m, cols - c0 > STEP ? 2 : 1);
    }
}

const orth_attn_micro orth_attn_micro_amx = ORTH_ATTN_MICRO_TABLE;
