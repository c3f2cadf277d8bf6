/* moments8.c -- the dynamic map of moments8.h. */
#include "kernels/moments8.h"

#define DECADES 7

/* Number k of n + 1 that are equally far from each other from 0.1 to 1: each half from its end, as torch.linspace. */
static float piece_end(int k, int n)
{
    const float step = (1.0f - 0.1f) / (float)n;
    return k < (n + 1) / 2 ? fmaf(step, (float)k, 0.1f) : fmaf(-step, (float)(n - k), 1.0f);
}

/* Magnitudes in ascending order, from 0 to 1; how many. */
static int list_magnitudes(float *out, bool is_signed)
{
    static const float tens[DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
    int num = 0;
    out[num++] = 0;
    for (int i = 0; i < DECADES; i++) {
        const int n = 1 << (is_signed ? i : i + 1);
        for (int k = 0; k < n; k++)
            out[num++] = tens[i] * ((piece_end(k, n) + piece_end(k + 1, n)) / 2);
    }
    out[num++] = 1;
    return num;
}

/* Halfway between two codes, where a tie goes down: the largest fp32 number that is not above it. */
static float bound_between(float a, float b)
{
    const double middle = ((double)a + (double)b) / 2; /* exact */
    const float rounded = (float)middle;
    return (double)rounded > middle ? nextafterf(rounded, 0) : rounded;
}

void orth_dynamic_map_make(orth_dynamic_map *out, bool is_signed)
{
    float magnitude[256];
    const int num = list_magnitudes(magnitude, is_signed);
    out->is_signed = is_signed;
    for (int m = 0; m < num; m++)
        out->bound[m] = m + 1 < num ? bound_between(magnitude[m], magnitude[m + 1]) : INFINITY;
    for (int m = 0; m < num; m++) {
        out->value[is_signed ? 127 + m : m] = magnitude[m];
        if (is_signed && m < num - 1)
            out->value[127 - m] = m > 0 ? -magnitude[m] : 0;
    }
    for (int b = 0, m = 0; b < ORTH_MAP_BUCKETS; b++) {
        const uint32_t bits = (uint32_t)(b + ORTH_MAP_LOW) << 16;
        float begin;
        memcpy(&begin, &bits, sizeof begin);
        while (out->bound[m] < begin)
            m++;
        out->first[b] = (uint8_t)m;
    }
}
