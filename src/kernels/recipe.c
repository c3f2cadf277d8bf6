/* recipe.c -- see recipe.h. */
#include "kernels/recipe.h"

#include "base/ctx.h"

static const orth_recipe_row rows[ORTH_NUM_RECIPES] = {
    {.name = "none"},
#define RECIPE(name, forward, backward, tile_k, tile_w, scale, power_of_2, interval, at_random, delayed) \
    {#name, ORTH_##forward, ORTH_##backward, tile_k, tile_w, ORTH_SCALE_##scale, power_of_2, interval, at_random, delayed},
#include "kernels/recipes.def"
#undef RECIPE
};

const orth_recipe_row *orth_recipe_of(orth_recipe recipe)
{
    return &rows[recipe];
}

/* Elements [begin, end) that tiles are counted in: a leaf of the split, a sequence of tokens, or all. */
typedef struct {
    int64_t begin, end, tile;
} run;

static run run_of(const orth_tile_axis *axis, int64_t leaf)
{
    const orth_split *s = axis->split;
    const int64_t all = ORTH_MAX(axis->n, 1);
    if (!s || (axis->tile == 0 && s->kind != ORTH_SPLIT_TOKENS))
        return (run){0, axis->n, axis->tile > 0 ? axis->tile : all};
    const int64_t first = axis->tile == 0 ? leaf / s->parts * s->parts : leaf, end = axis->tile == 0 ? first + s->parts : leaf + 1;
    return (run){first > 0 ? axis->skip + orth_split_bound(s, first) : 0, axis->skip + orth_split_bound(s, end),
                 axis->tile > 0 ? axis->tile : all};
}

/* Elements of the run's first tile that are not counted. */
static int64_t uncounted(const orth_tile_axis *axis, const run *r)
{
    return r->begin == 0 ? axis->skip : 0;
}

static int64_t tiles_of(const orth_tile_axis *axis, const run *r)
{
    return orth_div_up(r->end - r->begin - uncounted(axis, r), r->tile);
}

bool orth_tile_next(const orth_tile_axis *axis, orth_tile *t)
{
    t->begin = t->end;
    if (t->begin >= axis->n)
        return false;
    t->index++;
    run r = run_of(axis, t->leaf);
    while (r.end <= t->begin)
        r = run_of(axis, ++t->leaf);
    t->end = ORTH_MIN(r.end, t->begin + r.tile + (t->begin == 0 ? axis->skip : 0));
    return true;
}

orth_tile orth_tile_at(const orth_tile_axis *axis, int64_t i)
{
    orth_tile t = {0, 0, 0, 0};
    run r = run_of(axis, 0), next;
    for (; r.end <= i; r = next) {
        next = run_of(axis, ++t.leaf);
        t.index += next.begin > r.begin ? tiles_of(axis, &r) : 0;
    }
    const int64_t skip = uncounted(axis, &r), of = ORTH_MAX(i - r.begin - skip, 0) / r.tile;
    t.index += of;
    t.begin = r.begin + (of > 0 ? skip + of * r.tile : 0);
    t.end = ORTH_MIN(r.end, r.begin + skip + (of + 1) * r.tile);
    return t;
}

int64_t orth_num_tiles(const orth_tile_axis *axis)
{
    return axis->n > 0 ? orth_tile_at(axis, axis->n - 1).index + 1 : 0;
}
