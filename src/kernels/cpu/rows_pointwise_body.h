/* rows_pointwise_body.h -- add, sums, cast, bias, swiglu, dropout. */

LANES_INLINE void add_loop(void *dst, const void *a, const void *b, int64_t n, const orth_dtype type)
{
#define STEP(k) v_st(dst, type, i, v_add(v_ld(a, type, i, k), v_ld(b, type, i, k)), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_add(void *dst, const void *a, const void *b, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, add_loop, dst, a, b, n);
}

LANES_INLINE void accumulate_loop(float *dst, const void *src, int64_t n, const orth_dtype type)
{
#define STEP(k) v_st_f32(dst + i, v_add(v_ld_f32(dst + i, k), v_ld(src, type, i, k)), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_accumulate(float *dst, const void *src, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, accumulate_loop, dst, src, n);
}

/* Adds rows [0, R) to the chains in dst. */
LANES_INLINE void column_sums_some(float *dst, const void *src, int64_t first, int64_t stride, int64_t n,
                                   const orth_dtype type, const int R)
{
#define STEP(k)                                                             \
    {                                                                       \
        v16 sum = v_ld_f32(dst + i, k);                                     \
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)                 \
            sum = v_add(sum, v_ld(src, type, first + r * stride + i, k));   \
        v_st_f32(dst + i, sum, k);                                          \
    }
    LANES_FOR(n, STEP);
#undef STEP
}

/* Whole rows of the block, four at a time: long runs for the prefetcher, and the chains stay in cache. */
LANES_INLINE void column_sums_loop(float *dst, const void *src, int64_t stride, int64_t rows, int64_t n,
                                   const orth_dtype type)
{
    int64_t r = 0;
    memset(dst, 0, (size_t)n * sizeof *dst);
    for (; r + 4 <= rows; r += 4)
        column_sums_some(dst, src, r * stride, stride, n, type, 4);
    for (; r < rows; r++)
        column_sums_some(dst, src, r * stride, stride, n, type, 1);
}

static void rows_column_sums(float *dst, const void *src, int64_t stride, int64_t rows, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, column_sums_loop, dst, src, stride, rows, n);
}

LANES_INLINE void cast_loop(void *dst, const float *src, int64_t n, const orth_dtype type)
{
#define STEP(k) v_st(dst, type, i, v_ld_f32(src + i, k), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_cast(void *dst, const float *src, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, cast_loop, dst, src, n);
}

LANES_INLINE void widen_loop(float *dst, const void *src, int64_t n, const orth_dtype type)
{
#define STEP(k) v_st_f32(dst + i, v_ld(src, type, i, k), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_widen(float *dst, const void *src, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, widen_loop, dst, src, n);
}

static void rows_cast_int8(orth_q8 *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += ORTH_Q8_NUM)
        orth_q8_from_f32(&dst[i / ORTH_Q8_NUM], src + i, ORTH_MIN(n - i, ORTH_Q8_NUM));
}

static void rows_widen_int8(float *dst, const orth_q8 *src, int64_t n)
{
    for (int64_t i = 0; i < n; i += ORTH_Q8_NUM)
        orth_q8_to_f32(dst + i, &src[i / ORTH_Q8_NUM], ORTH_MIN(n - i, ORTH_Q8_NUM));
}

LANES_INLINE void round_bias_loop(void *y, const float *v, const float *bias, int64_t n, const orth_dtype type)
{
#define STEP(k)                                         \
    {                                                   \
        v16 x = v_ld_f32(v + i, k);                     \
        if (bias)                                       \
            x = v_add(x, v_ld_f32(bias + i, k));        \
        v_st(y, type, i, x, k);                         \
    }
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_round_bias(void *y, const float *v, const float *bias, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, round_bias_loop, y, v, bias, n);
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

LANES_INLINE void swiglu_16(void *a, const void *h, int64_t i, const orth_dtype type, int k)
{
    v16 gate, up;
    v_ld_pairs((const char *)h + (size_t)(2 * i) * rows_bytes(type), type, &gate, &up);
    v_st(a, type, i, v_mul(v_silu(gate), up), k);
}

LANES_INLINE void swiglu_loop(void *a, const void *h, int64_t n, const orth_dtype type)
{
    const size_t bytes = rows_bytes(type);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        swiglu_16(a, h, i, type, 16);
    if (i < n) {
        float last[32] = {0};
        memcpy(last, (const char *)h + (size_t)i * 2 * bytes, (size_t)(n - i) * 2 * bytes);
        swiglu_16((char *)a + (size_t)i * bytes, last, 0, type, (int)(n - i));
    }
}

static void rows_swiglu(void *a, const void *h, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, swiglu_loop, a, h, n);
}

LANES_INLINE void swiglu_bwd_16(void *dh, const void *da, const void *h, const orth_dtype type, int k)
{
    v16 gate, up, d = v_ld(da, type, 0, k);
    v_ld_pairs(h, type, &gate, &up);
    v16 slope, value = v_silu_pair(gate, &slope);
    v16 dgate = v_mul(v_mul(d, up), slope), dup = v_mul(d, value);
    v_st_pairs(dh, type, dgate, dup);
}

LANES_INLINE void swiglu_bwd_loop(void *dh, const void *da, const void *h, int64_t n, const orth_dtype type)
{
    const size_t bytes = rows_bytes(type);
    const char *from = h, *d = da;
    char *to = dh;
    for (; n >= 16; n -= 16, from += 32 * bytes, to += 32 * bytes, d += 16 * bytes)
        swiglu_bwd_16(to, d, from, type, 16);
    if (n > 0) {
        float last[32] = {0}, out[32];
        memcpy(last, from, (size_t)n * 2 * bytes);
        swiglu_bwd_16(out, d, last, type, (int)n);
        memcpy(to, out, (size_t)n * 2 * bytes);
    }
}

static void rows_swiglu_bwd(void *dh, const void *da, const void *h, int64_t n, orth_dtype type)
{
    LANES_TYPED(type, swiglu_bwd_loop, dh, da, h, n);
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

static void rows_dropout(void *y, const void *x, int64_t n, orth_dtype type, float rate, uint64_t seed, uint64_t hi,
                         uint64_t lo)
{
    const v16 scale = v_set(1.0f / (1.0f - rate));
    for (int64_t c = 0; c < n; c += 64) {
        uint32_t word[64];
        philox_64(word, seed, hi, lo + (uint64_t)c / 4);
        for (int64_t i = c; i < ORTH_MIN(n, c + 64); i += 16) {
            const int k = (int)ORTH_MIN(16, n - i);
            v_st(y, type, i, v_drop(v_mul(v_ld(x, type, i, k), scale), word + (i - c), rate), k);
        }
    }
}
