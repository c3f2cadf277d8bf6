/* rng.h -- counter-based random numbers: any rank can make its part alone.
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11 (Philox 4x32-10).
 * A number is a pure function of (seed, stream, counter): no state, no order. `stream` says what
 * the number is for; the counter is a *global* index (of a parameter's element, of a sequence of the
 * data set, of an activation in the global batch and step), never a local one, so that the layout
 * does not matter.
 */
#ifndef ORTH_BASE_RNG_H
#define ORTH_BASE_RNG_H

#include <stdint.h>

/* The numbers are fixed: runs depend on them. */
typedef enum {
    ORTH_STREAM_INIT = 1,      /* initial weights */
    ORTH_STREAM_DROPOUT = 2,
    ORTH_STREAM_ORDER = 3,     /* order of the samples */
    ORTH_STREAM_SAMPLE = 5,    /* generate */
    ORTH_STREAM_TEST = 7,
    ORTH_STREAM_SPLIT = 8,     /* which documents are held out */
    ORTH_STREAM_ROUND = 9,     /* stochastic rounding of weights and moments */
    ORTH_STREAM_QUANT = 10     /* and of numbers of 4 bits */
} orth_stream;

typedef struct {
    uint32_t v[4];
} orth_rand4;

/* Four independent uniform 32-bit words. key = (seed, stream), counter = (hi, lo). */
static inline orth_rand4 orth_philox(uint64_t seed, uint32_t stream, uint64_t hi, uint64_t lo)
{
    uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32), c2 = (uint32_t)hi, c3 = (uint32_t)(hi >> 32);
    uint32_t k0 = (uint32_t)seed ^ stream * 0x85EBCA6Bu, k1 = (uint32_t)(seed >> 32) + stream;
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (orth_rand4){{c0, c1, c2, c3}};
}

/* Uniform in [0, 1), 24 bits. */
static inline float orth_rand_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* out[i] = element `first + i` of a standard normal sequence, i < n; first is a multiple of 4. `hi` tells
 * sequences of one stream apart (for weights: the number of the parameter). |values| <= 5.5.
 * Plain fp32 arithmetic without library calls: the same bits everywhere. */
void orth_rand_normals(float *out, int64_t n, uint64_t seed, uint32_t stream, uint64_t hi, int64_t first);

#endif
