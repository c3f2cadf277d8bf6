/* dropout.h -- which random word decides about which activation.
 *
 * u = orth_rand_unit of word column%4 of orth_philox(seed, ORTH_STREAM_DROPOUT, hi, lo). Keys are global
 * (sequence index, position), so every layout drops the same elements. Fields are wide enough for
 * 16M sequences a batch, 4M positions and 1M columns, 65,536 sites.
 */
#ifndef ORTH_KERNELS_DROPOUT_H
#define ORTH_KERNELS_DROPOUT_H

#include <stdint.h>

static inline uint64_t orth_dropout_hi(int32_t site, uint64_t step)
{
    return (uint64_t)(uint32_t)site << 48 ^ step;
}

static inline uint64_t orth_dropout_lo(int64_t sequence, int64_t position, int64_t column)
{
    return (uint64_t)sequence << 40 ^ (uint64_t)position << 18 ^ (uint64_t)column / 4;
}

#endif
