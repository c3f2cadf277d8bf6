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

#define BATCH 64 /* numbers computed side by side */

void orth_rand_normals(float *out, int64_t n, uint64_t seed, uint32_t stream, uint64_t hi, int64_t first)
{
    for (int64_t begin = 0; begin < n; begin += BATCH) {
        uint32_t words[BATCH];
        float z[BATCH];
        uint64_t block = (uint64_t)(first + begin) / 4;
        for (int b = 0; b < BATCH / 4; b++) {
            orth_rand4 r = orth_philox(seed, stream, hi, block + (uint64_t)b);
            memcpy(words + 4 * b, r.v, sizeof r.v);
        }
        for (int i = 0; i < BATCH; i++)
            z[i] = normal_from_word(words[i]);
        memcpy(out + begin, z, sizeof(float) * (size_t)(n - begin < BATCH ? n - begin : BATCH));
    }
}
