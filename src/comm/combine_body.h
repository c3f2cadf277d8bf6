/* combine_body.h -- the loops of combine.h; included once per instruction set with COMBINE_NAME set.
 * Plain loops: each compiles to the vectors of the including file's flags. */
#include "comm/combine.h"

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

static inline __attribute__((always_inline)) float f16_load(uint16_t h)
{
    return orth_f16_to_f32(h);
}

static inline __attribute__((always_inline)) uint16_t f16_store(float f)
{
    return orth_f16_from_f32(f);
}

static inline __attribute__((always_inline)) float bf16_load(uint16_t h)
{
    return orth_bf16_to_f32(h);
}

static inline __attribute__((always_inline)) uint16_t bf16_store(float f)
{
    return orth_bf16_from_f32(f);
}

/* 64 bytes past the caches, to an address that is a multiple of 64. */
static inline __attribute__((always_inline)) void stream_line(void *d, const void *s)
{
#if defined(__AVX512F__)
    _mm512_stream_si512(d, _mm512_load_si512(s));
#elif defined(__AVX2__)
    _mm256_stream_si256(d, _mm256_load_si256(s));
    _mm256_stream_si256((void *)((char *)d + 32), _mm256_load_si256((const void *)((const char *)s + 32)));
#else
    memcpy(d, s, 64);
#endif
}

#define SAME(x) (x)
#define OP_SUM(a, b) ((a) + (b))
#define OP_MAX(a, b) ((a) > (b) ? (a) : (b))
#define OP_MIN(a, b) ((a) < (b) ? (a) : (b))

/* Integers add modulo 2^bits (UT unsigned), without undefined overflow. */
#define OP_WRAP32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define OP_WRAP64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

#define COMBINE(ID, T, ACC, LOAD, STORE, OP)                                                             \
    static void leaves_##ID(void *d_, const void *const *s, int num, int64_t begin, int64_t n)           \
    {                                                                                                    \
        ACC *d = d_;                                                                                     \
        const T *a = (const T *)s[0] + begin;                                                            \
        if (num == 1) {                                                                                  \
            for (int64_t i = 0; i < n; i++)                                                              \
                d[i] = LOAD(a[i]);                                                                       \
            return;                                                                                      \
        }                                                                                                \
        const T *b = (const T *)s[1] + begin;                                                            \
        if (num == 2) {                                                                                  \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                         \
                d[i] = OP(LOAD(a[i]), LOAD(b[i]));                                                       \
            return;                                                                                      \
        }                                                                                                \
        const T *e = (const T *)s[2] + begin, *f = (const T *)s[3] + begin;                              \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                             \
        {                                                                                                \
            ACC lo = OP(LOAD(a[i]), LOAD(b[i])), hi = OP(LOAD(e[i]), LOAD(f[i]));                        \
            d[i] = OP(lo, hi);                                                                           \
        }                                                                                                \
    }                                                                                                    \
    static void merge_##ID(void *d_, const void *x_, const void *y_, int64_t n)                          \
    {                                                                                                    \
        ACC *d = d_;                                                                                     \
        const ACC *x = x_, *y = y_;                                                                      \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                             \
            d[i] = OP(x[i], y[i]);                                                                       \
    }                                                                                                    \
    static void pair_##ID(void *d0_, void *d1_, const void *a_, const void *b_, int64_t n)               \
    {                                                                                                    \
        T *d0 = d0_, *d1 = d1_;                                                                          \
        const T *a = a_, *b = b_;                                                                        \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                             \
        {                                                                                                \
            ACC x = OP(LOAD(a[i]), LOAD(b[i]));                                                          \
            T v = STORE(x);                                                                              \
            d0[i] = v;                                                                                   \
            d1[i] = v;                                                                                   \
        }                                                                                                \
    }                                                                                                    \
    static void pair_stream_##ID(void *d0_, void *d1_, const void *a_, const void *b_, int64_t n)        \
    {                                                                                                    \
        enum { LINE = 64 / sizeof(T) };                                                                  \
        T *d0 = d0_, *d1 = d1_;                                                                          \
        const T *a = a_, *b = b_;                                                                        \
        for (; n >= LINE; n -= LINE, a += LINE, b += LINE, d0 += LINE, d1 += LINE) {                     \
            _Alignas(64) T v[LINE];                                                                      \
            for (int i = 0; i < LINE; i++) {                                                             \
                ACC x = OP(LOAD(a[i]), LOAD(b[i]));                                                      \
                v[i] = STORE(x);                                                                         \
            }                                                                                            \
            stream_line(d0, v);                                                                          \
            stream_line(d1, v);                                                                          \
        }                                                                                                \
        pair_##ID(d0, d1, a, b, n);                                                                      \
    }                                                                                                    \
    static void store_##ID(void *d_, const void *x_, int64_t n)                                          \
    {                                                                                                    \
        T *d = d_;                                                                                       \
        const ACC *x = x_;                                                                               \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                             \
            d[i] = STORE(x[i]);                                                                          \
    }

COMBINE(f32_sum, float, float, SAME, SAME, OP_SUM)
COMBINE(f32_max, float, float, SAME, SAME, OP_MAX)
COMBINE(f32_min, float, float, SAME, SAME, OP_MIN)
COMBINE(f16_sum, uint16_t, float, f16_load, f16_store, OP_SUM)
COMBINE(f16_max, uint16_t, float, f16_load, f16_store, OP_MAX)
COMBINE(f16_min, uint16_t, float, f16_load, f16_store, OP_MIN)
COMBINE(bf16_sum, uint16_t, float, bf16_load, bf16_store, OP_SUM)
COMBINE(bf16_max, uint16_t, float, bf16_load, bf16_store, OP_MAX)
COMBINE(bf16_min, uint16_t, float, bf16_load, bf16_store, OP_MIN)
COMBINE(f64_sum, double, double, SAME, SAME, OP_SUM)
COMBINE(f64_max, double, double, SAME, SAME, OP_MAX)
COMBINE(f64_min, double, double, SAME, SAME, OP_MIN)
COMBINE(i32_sum, int32_t, int32_t, SAME, SAME, OP_WRAP32)
COMBINE(i32_max, int32_t, int32_t, SAME, SAME, OP_MAX)
COMBINE(i32_min, int32_t, int32_t, SAME, SAME, OP_MIN)
COMBINE(i64_sum, int64_t, int64_t, SAME, SAME, OP_WRAP64)
COMBINE(i64_max, int64_t, int64_t, SAME, SAME, OP_MAX)
COMBINE(i64_min, int64_t, int64_t, SAME, SAME, OP_MIN)

/* The sum of two buffers of bf16, two elements to a word: a word's halves are fp32 numbers after one shift or mask each, where
 * widening elements and packing them again costs more than adding them. */
typedef uint32_t __attribute__((may_alias, aligned(2))) bf16_pair;

static inline __attribute__((always_inline)) uint32_t add_bf16_pair(uint32_t a, uint32_t b)
{
    const uint32_t high = 0xffff0000u;
    const float even = orth_f32_of_bits(a << 16) + orth_f32_of_bits(b << 16);
    const float odd = orth_f32_of_bits(a & high) + orth_f32_of_bits(b & high);
    return (uint32_t)orth_bf16_from_f32(even) | (uint32_t)orth_bf16_from_f32(odd) << 16;
}

static void pair_bf16_words(void *d0, void *d1, const void *a, const void *b, int64_t n)
{
    bf16_pair *to0 = d0, *to1 = d1;
    const bf16_pair *from_a = a, *from_b = b;
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n / 2; i++)
    {
        const uint32_t v = add_bf16_pair(from_a[i], from_b[i]);
        to0[i] = v;
        to1[i] = v;
    }
    const int64_t done = n / 2 * 2;
    pair_bf16_sum((uint16_t *)d0 + done, (uint16_t *)d1 + done, (const uint16_t *)a + done, (const uint16_t *)b + done, n % 2);
}

static void pair_bf16_words_stream(void *d0_, void *d1_, const void *a_, const void *b_, int64_t n)
{
    char *d0 = d0_, *d1 = d1_;
    const char *a = a_, *b = b_;
    for (; n >= 32; n -= 32, a += 64, b += 64, d0 += 64, d1 += 64) {
        _Alignas(64) uint32_t v[16];
        for (int i = 0; i < 16; i++)
            v[i] = add_bf16_pair(((const bf16_pair *)a)[i], ((const bf16_pair *)b)[i]);
        stream_line(d0, v);
        stream_line(d1, v);
    }
    pair_stream_bf16_sum(d0, d1, a, b, n);
}

/* ---- blocks of int8 ---- */

/* Block `at` of 1, 2 or 4 leaves. */
static void sum_q8(float *d, const void *const *s, int num, int64_t at)
{
    float leaf[3][ORTH_Q8_NUM];
    orth_q8_to_f32(d, (const orth_q8 *)s[0] + at, ORTH_Q8_NUM);
    for (int k = 1; k < num; k++)
        orth_q8_to_f32(leaf[k - 1], (const orth_q8 *)s[k] + at, ORTH_Q8_NUM);
    for (int i = 0; num == 2 && i < ORTH_Q8_NUM; i++)
        d[i] += leaf[0][i];
    for (int i = 0; num == 4 && i < ORTH_Q8_NUM; i++)
        d[i] = (d[i] + leaf[0][i]) + (leaf[1][i] + leaf[2][i]);
}

static void leaves_q8(void *d_, const void *const *s, int num, int64_t begin, int64_t n)
{
    float(*d)[ORTH_Q8_NUM] = d_;
    for (int64_t i = 0; i < n; i++)
        sum_q8(d[i], s, num, begin + i);
}

static void merge_q8(void *d, const void *x, const void *y, int64_t n)
{
    merge_f32_sum(d, x, y, n * ORTH_Q8_NUM);
}

static void store_q8(void *d_, const void *x_, int64_t n)
{
    orth_q8 *d = d_;
    const float(*x)[ORTH_Q8_NUM] = x_;
    for (int64_t i = 0; i < n; i++)
        orth_q8_from_f32(&d[i], x[i], ORTH_Q8_NUM);
}

static void pair_q8(void *d0_, void *d1_, const void *a, const void *b, int64_t n)
{
    orth_q8 *d0 = d0_, *d1 = d1_;
    for (int64_t i = 0; i < n; i++) {
        float sum[ORTH_Q8_NUM];
        sum_q8(sum, (const void *const[]){a, b}, 2, i);
        orth_q8_from_f32(&d0[i], sum, ORTH_Q8_NUM);
        if (d1 != d0)
            d1[i] = d0[i];
    }
}

static void stream(void *d_, const void *s_, size_t bytes)
{
    char *d = d_;
    const char *s = s_;
#if defined(__AVX2__)
    size_t head = (64 - (uintptr_t)d % 64) % 64;
    if (bytes >= 256) {
        memcpy(d, s, head);
        d += head, s += head, bytes -= head;
#if defined(__AVX512F__)
        for (; bytes >= 64; d += 64, s += 64, bytes -= 64)
            _mm512_stream_si512((void *)d, _mm512_loadu_si512(s));
#else
        for (; bytes >= 32; d += 32, s += 32, bytes -= 32)
            _mm256_stream_si256((void *)d, _mm256_loadu_si256((const void *)s));
#endif
    }
#endif
    memcpy(d, s, bytes);
}

/* Streamed stores are not ordered by the release that publishes them. */
static void fence(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

#define FNS(ID) {leaves_##ID, merge_##ID, pair_##ID, pair_stream_##ID, store_##ID}
#define ROW(T) {[ORTH_SUM] = FNS(T##_sum), [ORTH_MAX_OF] = FNS(T##_max), [ORTH_MIN_OF] = FNS(T##_min)}
#define ROW_BF16                                                                                                               \
    {[ORTH_SUM] = {leaves_bf16_sum, merge_bf16_sum, pair_bf16_words, pair_bf16_words_stream, store_bf16_sum},                    \
     [ORTH_MAX_OF] = FNS(bf16_max), [ORTH_MIN_OF] = FNS(bf16_min)}

const comm_combine_table COMBINE_NAME = {
    .fns = {[ORTH_F32] = ROW(f32), [ORTH_BF16] = ROW_BF16, [ORTH_F16] = ROW(f16), [ORTH_F64] = ROW(f64), [ORTH_I32] = ROW(i32),
            [ORTH_I64] = ROW(i64), [ORTH_Q8] = {[ORTH_SUM] = {leaves_q8, merge_q8, pair_q8, pair_q8, store_q8}}},
    .stream = stream,
    .fence = fence,
};
