/* rng.c -- normal numbers by inversion: z = sqrt(2) * erfinv(u).
 *
 * Source of the approximation of erfinv in single precision: Giles, "Approximating the erfinv
 * function", GPU Computing Gems, 2011. Written without branches on the values, so that compilers
 * vectorise it; no fused operations, so that every processor gets the same bits.
 */
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* log of a normal x > 0. */
static inline float log_positive(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23; /* so that the mantissa is in [sqrt(1/2), sqrt(2)) */
    u -= (uint32_t)e << 23;
    float m;
    memcpy(&m, &u, 4);
    float s = (m - 1.0f) / (m + 1.0f), q = s * s;
    float p = 2.0f * s * (1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9)))));
    return (float)e * 0.693147180559945f + p;
}

static inline float normal_from_word(uint32_t word)
{
    /* An odd multiple of 2^-24 in (-1, 1): never an end, exactly representable. */
    float x = (float)((int32_t)(word >> 8) * 2 + 1 - (1 << 24)) * 0x1p-24f;
    float w = -log_positive((1.0f - x) * (1.0f + x));
    float c = w - 2.5f;
    float p = 2.81022636e-08f;
    p = 3.43273939e-07f + p * c;
    p = -3.5233877e-06f + p * c;
    p = -4.39150654e-06f + p * c;
    p = 0.00021858087f + p * c;
    p = -0.00125372503f + p * c;
    p = -0.00417768164f + p * c;
    p = 0.246640727f + p * c;
    p = 1.50140941f + p * c;
    float t = sqrtf(w > 0 ? w : 0) - 3.0f;
    float q = -0.000200214257f;
    q = 0.000100950558f + q * t;
    q = 0.00134934322f + q * t;
    q = -0.00367342844f + q * t;
    q = 0.00573950773f + q * t;
    q = -0.0076224613f + q * t;
    q = 0.00943887047f + q * t;
    q = 1.00167406f + q * t;
    q = 2.83297682f + q * t;
    return 1.41421356237f * x * (w < 5.0f ? p : q);
}

#define BLOCKS 32            /* counters side by side */
#define BATCH (4 * BLOCKS)   /* numbers computed side by side */

/* orth_philox of BLOCKS counters from `lo` on, a word of all of them at a time: the form that compilers vectorise. */
static inline __attribute__((always_inline)) void philox_blocks(uint32_t words[BATCH], uint64_t seed, uint32_t stream,
                                                                uint64_t hi, uint64_t lo)
{
    uint32_t c0[BLOCKS], c1[BLOCKS], c2[BLOCKS], c3[BLOCKS];
    uint32_t k0 = (uint32_t)seed ^ stream * 0x85EBCA6Bu, k1 = (uint32_t)(seed >> 32) + stream;
    for (int b = 0; b < BLOCKS; b++) {
        c0[b] = (uint32_t)(lo + (uint64_t)b);
        c1[b] = (uint32_t)((lo + (uint64_t)b) >> 32);
        c2[b] = (uint32_t)hi;
        c3[b] = (uint32_t)(hi >> 32);
    }
    for (int r = 0; r < 10; r++) {
        for (int b = 0; b < BLOCKS; b++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[b], p1 = (uint64_t)0xCD9E8D57u * c2[b];
            c0[b] = (uint32_t)(p1 >> 32) ^ c1[b] ^ k0;
            c2[b] = (uint32_t)(p0 >> 32) ^ c3[b] ^ k1;
            c1[b] = (uint32_t)p1;
            c3[b] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int b = 0; b < BLOCKS; b++) {
        words[4 * b] = c0[b];
        words[4 * b + 1] = c1[b];
        words[4 * b + 2] = c2[b];
        words[4 * b + 3] = c3[b];
    }
}

static inline __attribute__((always_inline)) void normals(float *out, int64_t n, uint64_t seed, uint32_t stream,
                                                          uint64_t hi, int64_t first)
{
    for (int64_t begin = 0; begin < n; begin += BATCH) {
        uint32_t words[BATCH];
        float z[BATCH];
        philox_blocks(words, seed, stream, hi, (uint64_t)(first + begin) / 4);
        for (int i = 0; i < BATCH; i++)
            z[i] = normal_from_word(words[i]);
        memcpy(out + begin, z, sizeof(float) * (size_t)(n - begin < BATCH ? n - begin : BATCH));
    }
}

#if defined(__x86_64__)
#if defined(__clang__)
#define WIDE_512 "avx512f,avx512dq,avx512vl"
#else
#define WIDE_512 "avx512f,avx512dq,avx512vl,prefer-vector-width=512"
#endif

/* The same operations on every processor, more of them at a time. */
__attribute__((target("avx2"))) static void normals_avx2(float *out, int64_t n, uint64_t seed, uint32_t stream,
                                                         uint64_t hi, int64_t first)
{
    normals(out, n, seed, stream, hi, first);
}

__attribute__((target(WIDE_512))) static void normals_avx512(float *out, int64_t n, uint64_t seed, uint32_t stream,
                                                             uint64_t hi, int64_t first)
{
    normals(out, n, seed, stream, hi, first);
}
#endif

void orth_rand_normals(float *out, int64_t n, uint64_t seed, uint32_t stream, uint64_t hi, int64_t first)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        normals_avx512(out, n, seed, stream, hi, first);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        normals_avx2(out, n, seed, stream, hi, first);
        return;
    }
#endif
    normals(out, n, seed, stream, hi, first);
}
