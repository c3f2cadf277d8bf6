/* moments8.h -- moments of an optimizer in 8 bits: a code for each element, and for each block of elements a scale.
 *
 * Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", arXiv:2110.02861, which bitsandbytes implements.
 * A number is scale * value[code]: scale is the largest magnitude of its block, value the dynamic map of 256 numbers in [-1, 1]
 * (first moment) or [0, 1] (second one). A code is that of the nearest value; between two equally near ones the smaller magnitude.
 *
 *   dynamic map: decade i of 7 has n numbers, 10^(i-6) times the middles of n equal pieces of [0.1, 1]: n = 2^i with a sign,
 *   for both signs, or 2^(i+1) without; and 0; and 1; in steps of fp32, as bitsandbytes makes it. Codes ascend with the values.
 *
 * Blocks: each row of the whole weight, or each canonical part of its columns where tensor parallelism may split them, begins a new
 * block; a block has ORTH_MOMENT_BLOCK elements or what is left. So no layout cuts one, and the bits are the same in all. Every
 * part has as many blocks as the widest one; the last may be empty.
 */
#ifndef ORTH_KERNELS_MOMENTS8_H
#define ORTH_KERNELS_MOMENTS8_H

#include <math.h>
#include <string.h>

#include "base/ctx.h"
#include "tensor/parts.h"
#include "tensor/tensor.h"

#define ORTH_MOMENT_BLOCK 256
#define ORTH_BLOCK_SCALES 2         /* of each block: first moment, second moment */

/* ---- blocks of a row; `s` (ORTH_SPLIT_EVEN) are the parts of its columns here ---- */

static inline int64_t orth_moment_part_blocks(const orth_split *s)
{
    return orth_div_up(orth_div_up(s->units, s->of ? s->of : s->parts) * s->unit, ORTH_MOMENT_BLOCK);
}

static inline int64_t orth_moment_row_blocks(const orth_split *s)
{
    return s->parts * orth_moment_part_blocks(s);
}

/* Columns [*begin, *end) of block b; perhaps none. */
static inline void orth_moment_block(const orth_split *s, int64_t b, int64_t *begin, int64_t *end)
{
    const int64_t each = orth_moment_part_blocks(s), part_end = orth_split_bound(s, b / each + 1);
    *begin = ORTH_MIN(orth_split_bound(s, b / each) + b % each * ORTH_MOMENT_BLOCK, part_end);
    *end = ORTH_MIN(*begin + ORTH_MOMENT_BLOCK, part_end);
}

/* ---- numbers ---- */

/* Magnitudes are looked up by the upper 16 bits of the number, from 2^-23 on: a bucket has at most one bound of two codes. */
#define ORTH_MAP_LOW ((127 - 23) << 7)
#define ORTH_MAP_BUCKETS ((23 << 7) + 1)

typedef struct {
    bool is_signed;
    float value[256];               /* by code */
    float bound[256];               /* magnitude m rounds up from what is above this on; of the largest: infinite */
    uint8_t first[ORTH_MAP_BUCKETS]; /* the smallest magnitude of a bucket */
} orth_dynamic_map;

void orth_dynamic_map_make(orth_dynamic_map *out, bool is_signed);

/* The magnitude that is nearest to a in [0, 1]. */
static inline int32_t orth_dynamic_magnitude(const orth_dynamic_map *map, float a)
{
    const int32_t at = ORTH_MIN(ORTH_MAX((int32_t)(orth_bits_of_f32(a) >> 16) - ORTH_MAP_LOW, 0), ORTH_MAP_BUCKETS - 1), m = map->first[at];
    return m + (a > map->bound[m]);
}

/* x in [-1, 1]. A signed map has no -1: its first code is nearest. */
static inline uint8_t orth_dynamic_code(const orth_dynamic_map *map, float x)
{
    const int32_t m = orth_dynamic_magnitude(map, (float)fabs(x));
    return (uint8_t)(!map->is_signed ? m : x < 0 ? 127 - ORTH_MIN(m, 127) : 127 + m);
}

/* A code of a block whose elements are all 0 is that of 0, whatever it is: memory that was only zeroed is valid. */
static inline float orth_dynamic_value(const orth_dynamic_map *map, uint8_t code, float scale)
{
    return map->value[code] * scale + 0.0f; /* -0 becomes +0 */
}

/* n elements of a block as codes. */
static inline void orth_dynamic_codes(const orth_dynamic_map *map, uint8_t *restrict code, const float *x, int64_t n, float scale)
{
    float y[ORTH_MOMENT_BLOCK];
    for (int64_t i = 0; i < n; i++)
        y[i] = scale > 0 ? x[i] / scale : 0.0f;
    for (int64_t i = 0; map->is_signed && i < n; i++)
        code[i] = orth_dynamic_code(map, y[i]);
    for (int64_t i = 0; !map->is_signed && i < n; i++)
        code[i] = (uint8_t)orth_dynamic_magnitude(map, y[i]);
}

#endif
