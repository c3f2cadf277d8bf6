/* rows_pointwise_body.h -- add, sums, cast, bias, swiglu, dropout. */

LANES_INLINE void add_loop(void *dst, const void *a, const void *b, int64_t n, const bool bf16)
{
#define STEP(k) v_st(dst, bf16, i, v_add(v_ld(a, bf16, i, k), v_ld(b, bf16, i, k)), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_add(void *dst, const void *a, const void *b, int64_t n, bool bf16)
{
    if (bf16)
        add_loop(dst, a, b, n, true);
    else
        add_loop(dst, a, b, n, false);
}

LANES_INLINE void accumulate_loop(float *dst, const void *src, int64_t n, const bool bf16)
{
#define STEP(k) v_st_f32(dst + i, v_add(v_ld_f32(dst + i, k), v_ld(src, bf16, i, k)), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_accumulate(float *dst, const void *src, int64_t n, bool bf16)
{
    if (bf16)
        accumulate_loop(dst, src, n, true);
    else
        accumulate_loop(dst, src, n, false);
}

/* Adds rows [0, R) to the chains in dst. */
LANES_INLINE void column_sums_some(float *dst, const void *src, int64_t first, int64_t stride, int64_t n,
                                   const bool bf16, const int R)
{
#define STEP(k)                                                             \
    {                                                                       \
        v16 sum = v_ld_f32(dst + i, k);                                     \
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)                 \
            sum = v_add(sum, v_ld(src, bf16, first + r * stride + i, k));   \
        v_st_f32(dst + i, sum, k);                                          \
    }
    LANES_FOR(n, STEP);
#undef STEP
}

/* Whole rows of the block, four at a time: long runs for the prefetcher, and the chains stay in cache. */
LANES_INLINE void column_sums_loop(float *dst, const void *src, int64_t stride, int64_t rows, int64_t n,
                                   const bool bf16)
{
    int64_t r = 0;
    memset(dst, 0, (size_t)n * sizeof *dst);
    for (; r + 4 <= rows; r += 4)
        column_sums_some(dst, src, r * stride, stride, n, bf16, 4);
    for (; r < rows; r++)
        column_sums_some(dst, src, r * stride, stride, n, bf16, 1);
}

static void rows_column_sums(float *dst, const void *src, int64_t stride, int64_t rows, int64_t n, bool bf16)
{
    if (bf16)
        column_sums_loop(dst, src, stride, rows, n, true);
    else
        column_sums_loop(dst, src, stride, rows, n, false);
}

static void rows_cast(orth_bf16 *dst, const float *src, int64_t n)
{
#define STEP(k) v_st_bf16(dst + i, v_ld_f32(src + i, k), k)
    LANES_FOR(n, STEP);
#undef STEP
}

LANES_INLINE void round_bias_loop(void *y, const float *v, const float *bias, int64_t n, const bool bf16)
{
#define STEP(k)                                         \
    {                                                   \
        v16 x = v_ld_f32(v + i, k);                     \
        if (bias)                                       \
            x = v_add(x, v_ld_f32(bias + i, k));        \
        v_st(y, bf16, i, x, k);                         \
    }
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_round_bias(void *y, const float *v, const float *bias, int64_t n, bool bf16)
{
    if (bf16)
        round_bias_loop(y, v, bias, n, true);
    else
        round_bias_loop(y, v, bias, n, false);
}

/* Zeroes n floats that will not be read soon. */
static void rows_zero(float *dst, int64_t n)
{
    int64_t i = 0;
    for (; i < n && (uintptr_t)(dst + i) % 64; i++)
        dst[i] = 0;
    for (; i + 16 <= n; i += 16)
        v_stream_zero(dst + i);
    v_stream_end();
    for (; i < n; i++)
        dst[i] = 0;
}

/* ---- swiglu: pairs (gate, up); the last few through a padded copy ---- */

LANES_INLINE void swiglu_16(void *a, const void *h, int64_t i, const bool bf16, int k)
{
    v16 gate, up;
    if (bf16)
        v_ld_pairs_bf16((const orth_bf16 *)h + 2 * i, &gate, &up);
    else
        v_ld_pairs_f32((const float *)h + 2 * i, &gate, &up);
    v_st(a, bf16, i, v_mul(v_silu(gate), up), k);
}

LANES_INLINE void swiglu_loop(void *a, const void *h, int64_t n, const bool bf16)
{
    const size_t bytes = bf16 ? 2 : 4;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        swiglu_16(a, h, i, bf16, 16);
    if (i < n) {
        float last[32] = {0};
        memcpy(last, (const char *)h + (size_t)i * 2 * bytes, (size_t)(n - i) * 2 * bytes);
        swiglu_16((char *)a + (size_t)i * bytes, last, 0, bf16, (int)(n - i));
    }
}

static void rows_swiglu(void *a, const void *h, int64_t n, bool bf16)
{
    if (bf16)
        swiglu_loop(a, h, n, true);
    else
        swiglu_loop(a, h, n, false);
}

LANES_INLINE void swiglu_bwd_16(void *dh, const void *da, const void *h, const bool bf16, int k)
{
    v16 gate, up, d = v_ld(da, bf16, 0, k);
    if (bf16)
        v_ld_pairs_bf16(h, &gate, &up);
    else
        v_ld_pairs_f32(h, &gate, &up);
    v16 slope, value = v_silu_pair(gate, &slope);
    v16 dgate = v_mul(v_mul(d, up), slope), dup = v_mul(d, value);
    if (bf16)
        v_st_pairs_bf16(dh, dgate, dup);
    else
        v_st_pairs_f32(dh, dgate, dup);
}

LANES_INLINE void swiglu_bwd_loop(void *dh, const void *da, const void *h, int64_t n, const bool bf16)
{
    const size_t bytes = bf16 ? 2 : 4;
    const char *from = h, *d = da;
    char *to = dh;
    for (; n >= 16; n -= 16, from += 32 * bytes, to += 32 * bytes, d += 16 * bytes)
        swiglu_bwd_16(to, d, from, bf16, 16);
    if (n > 0) {
        float last[32] = {0}, out[32];
        memcpy(last, from, (size_t)n * 2 * bytes);
        swiglu_bwd_16(out, d, last, bf16, (int)n);
        memcpy(to, out, (size_t)n * 2 * bytes);
    }
}

static void rows_swiglu_bwd(void *dh, const void *da, const void *h, int64_t n, bool bf16)
{
    if (bf16)
        swiglu_bwd_loop(dh, da, h, n, true);
    else
        swiglu_bwd_loop(dh, da, h, n, false);
}

/* ---- dropout ---- */

/* The words of 64 columns, in their order: orth_philox of the sixteen counters lo .. lo + 15, side by
 * side. lo is a multiple of 16, so none of them carries into the upper half. */
LANES_INLINE void philox_64(uint32_t word[64], uint64_t seed, uint64_t hi, uint64_t lo)
{
    uint32_t k0 = (uint32_t)seed ^ (uint32_t)ORTH_STREAM_DROPOUT * 0x85EBCA6Bu;
    uint32_t k1 = (uint32_t)(seed >> 32) + (uint32_t)ORTH_STREAM_DROPOUT;
    u16 c[4] = {u_count((uint32_t)lo), u_set((uint32_t)(lo >> 32)), u_set((uint32_t)hi),
                u_set((uint32_t)(hi >> 32))};
    for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        u16 high0, low0, high1, low1;
        u_mul(c[0], 0xD2511F53u, &high0, &low0);
        u_mul(c[2], 0xCD9E8D57u, &high1, &low1);
        c[0] = u_xor3(high1, c[1], u_set(k0));
        c[2] = u_xor3(high0, c[3], u_set(k1));
        c[1] = low1;
        c[3] = low0;
    }
    u_store_4(word, c);
}

static void rows_dropout(void *y, const void *x, int64_t n, bool bf16, float rate, uint64_t seed, uint64_t hi,
                         uint64_t lo)
{
    const v16 scale = v_set(1.0f / (1.0f - rate));
    for (int64_t c = 0; c < n; c += 64) {
        uint32_t word[64];
        philox_64(word, seed, hi, lo + (uint64_t)c / 4);
        for (int64_t i = c; i < ORTH_MIN(n, c + 64); i += 16) {
            const int k = (int)ORTH_MIN(16, n - i);
            v_st(y, bf16, i, v_drop(v_mul(v_ld(x, bf16, i, k), scale), word + (i - c), rate), k);
        }
    }
}
