/* recipe.h -- how the products of a block quantise their operands, and which elements of an operand share a scale.
 *
 * Along a dim that products contract, tiles begin anew at each canonical part (tensor/parts.h): a rank has whole parts, and so whole tiles,
 * whatever the layout. A tile at the end of a part is cut short.
 */
#ifndef ORTH_KERNELS_RECIPE_H
#define ORTH_KERNELS_RECIPE_H

#include <stdbool.h>

#include "tensor/float8.h"
#include "tensor/parts.h"

typedef enum {
    ORTH_RECIPE_none = 0,               /* products of the compute type */
#define RECIPE(name, ...) ORTH_RECIPE_##name,
#include "kernels/recipes.def"
#undef RECIPE
    ORTH_NUM_RECIPES
} orth_recipe;

typedef enum { ORTH_SCALE_F32 = 0, ORTH_SCALE_E8M0, ORTH_SCALE_E4M3 } orth_scale;

typedef struct {
    const char *name;
    orth_float8 forward, backward;
    int32_t tile_k, tile_w;
    orth_scale scale;
    bool power_of_2;
    int32_t interval;
    bool at_random, delayed;
} orth_recipe_row;                      /* the columns of recipes.def */
const orth_recipe_row *orth_recipe_of(orth_recipe recipe);

/* Of scales that the steps before decide. */
typedef struct {
    int32_t history;                    /* steps whose largest magnitudes are kept; 0: there are no such scales */
    bool most_recent;                   /* the last of them alone decides, not the largest */
    int32_t margin;                     /* powers of 2 that a scale is smaller */
} orth_delayed_scaling;

static inline orth_dtype orth_scale_dtype(orth_scale scale)
{
    return scale == ORTH_SCALE_F32 ? ORTH_F32 : ORTH_U8;
}

/* Tokens that are transformed together where a recipe rounds at random: a canonical part of a sequence has whole such runs. */
#define ORTH_HADAMARD_RUN 16

/* Tiles along one dim of n elements. Of the first `skip`, which no product reads, nothing is known: they count with the first tile. */
typedef struct {
    int64_t n, skip, tile;              /* tile 0: one of all; of tokens one of each sequence */
    const orth_split *split;            /* of the n - skip elements; NULL: tiles are counted from 0 on */
} orth_tile_axis;

/* One of them: elements [begin, end), in leaf `leaf` of the split. */
typedef struct {
    int64_t index, begin, end, leaf;
} orth_tile;
#define ORTH_BEFORE_TILES ((orth_tile){-1, 0, 0, 0})

/* The next one; false: there is none. Canonical parts without elements have no tiles. */
bool orth_tile_next(const orth_tile_axis *axis, orth_tile *t);
/* The one that has element i. */
orth_tile orth_tile_at(const orth_tile_axis *axis, int64_t i);
int64_t orth_num_tiles(const orth_tile_axis *axis);

#endif
