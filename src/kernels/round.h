/* round.h -- what an optimizer keeps in 16 bits: rounded to the nearest, or to bf16 at random.
 *
 * Stochastic rounding takes one of the two bf16 numbers around x, the farther one as rarely as it is far, so that the expected value is x
 * and a small update is not lost for ever. Source: Zamirai et al., "Revisiting bfloat16 training", arXiv:2010.06192.
 * The draw is a function of (seed, step, parameter, element of the whole parameter, what is rounded): the same for every layout.
 */
#ifndef ORTH_KERNELS_ROUND_H
#define ORTH_KERNELS_ROUND_H

#include <math.h>

#include "base/rng.h"
#include "kernels/op.h"

typedef enum { ORTH_ROUND_WEIGHT = 0, ORTH_ROUND_M, ORTH_ROUND_V } orth_round_what;

/* Sixteen random bits for each of the three, for elements 2k and 2k + 1 of a parameter. */
static inline orth_rand4 orth_round_draw(const orth_step_values *step, int64_t param, int64_t k)
{
    return orth_philox(step->seed, ORTH_STREAM_ROUND, step->step << 24 | (uint64_t)param, (uint64_t)k);
}

static inline uint32_t orth_round_bits(const orth_rand4 *draw, int64_t elem, orth_round_what what)
{
    const uint32_t word = draw->v[2 * (elem & 1) + (what == ORTH_ROUND_V)];
    return what == ORTH_ROUND_M ? word >> 16 : word & 0xffff;
}

/* x to bf16: up if the lower half of its bits and `bits`, below 2^16, make a carry. What is not finite is rounded to nearest. */
static inline orth_bf16 orth_bf16_stochastic(float x, uint32_t bits)
{
    return isfinite(x) ? (orth_bf16)((orth_bits_of_f32(x) + bits) >> 16) : orth_bf16_from_f32(x);
}

#endif
