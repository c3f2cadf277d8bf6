/* rng.c -- see rng.h. */
#include "base/rng.h"

#include <math.h>

float orth_rand_normal(uint64_t seed, uint32_t stream, uint64_t hi, uint64_t index)
{
    orth_rand4 r = orth_philox(seed, stream, hi, index / 2);
    /* (0, 1], so that the logarithm is finite. */
    double u = ((double)r.v[0] * 0x1p32 + r.v[1] + 1.0) * 0x1p-64;
    double angle = ((double)r.v[2] * 0x1p32 + r.v[3]) * 0x1p-64 * 6.283185307179586476925;
    double radius = sqrt(-2.0 * log(u));
    return (float)(radius * (index % 2 ? sin(angle) : cos(angle)));
}
