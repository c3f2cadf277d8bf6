/* recompute_choices.c -- the choices of a stage, in the order in which they are tried: see recompute_auto.h. */
#include <math.h>
#include <stdlib.h>

#include "plan/recompute_auto_impl.h"

#define MAX_LAYERS_DIVIDED 8   /* into groups in every way */
/* Where every set in every layer makes no more choices, all are looked at. */
#define MAX_ALL 4096
/* Where bounds do not tell choices apart, all may have to be compiled: so many instructions in all, a second or two. */
#define MAX_COMPILED ((int64_t)1 << 19)
#define MAX_ALL_LEAVING 128    /* so many choices, however long the program is */

/* All sets of a layer; none if there are too many. */
typedef struct {
    orth_again_set sets[MAX_ALL];
    int32_t num;
} layer_sets;

static bool can_compile(const again_stage *st, double num)
{
    return num * (double)st->num_instrs <= (double)MAX_COMPILED;
}

/* Whether a chunk begins with layer l. */
static bool begins_chunk(const orth_partition *s, int32_t l)
{
    int32_t c = 0;
    while (c < s->schedule.num_chunks && s->first_layer[c] != l)
        c++;
    return c < s->schedule.num_chunks;
}

static void set_layer(again_choice *c, int32_t l, const orth_again_set *set, uint64_t joined)
{
    c->marks[l] = set->marks | joined;
    c->cost.flops += set->cost.flops;
    c->cost.moved += set->cost.moved;
}

/* Another choice, in which no layer makes anything again yet; NULL: no memory. */
static again_choice *add_choice(orth_ctx *ctx, orth_again_search *s, again_stage *st)
{
    again_choice *c = &st->choices[st->num];
    *c = (again_choice){.rank = st->num++, .marks = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, st->saved.num_layers)};
    return c->marks ? c : NULL;
}

/* All in groups of `size` layers, which do not reach beyond a chunk. */
static orth_status add_groups(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer, int32_t size)
{
    const orth_recompute full = {.kind = ORTH_RECOMPUTE_FULL};
    const orth_saved *d = &st->saved;
    bool again[ORTH_RECOMPUTE_NODES];
    again_choice *c = &st->choices[st->num++];
    *c = (again_choice){.bounded = true, .groups = true, .rank = st->num, .marks = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, d->num_layers)};
    if (!c->marks)
        return ORTH_ERR_NOMEM;
    orth_recompute_mark(&full, 0, layer, s->spec.partition->layout.sequence_parallel, again);
    const orth_again_set last = orth_again_set_of(d, layer, again, false), inner = orth_again_set_of(d, layer, again, true);
    for (int32_t k = 0, from = 0; k < d->num_layers; k++) {
        if (k - from == size || begins_chunk(s->spec.partition, d->layers[k]))
            from = k;
        const bool ends = k + 1 == d->num_layers || k + 1 - from == size || begins_chunk(s->spec.partition, d->layers[k + 1]);
        set_layer(c, k, ends ? &last : &inner, from < k ? ORTH_RECOMPUTE_JOINED : 0);
    }
    return ORTH_OK;
}

/* Layers from the first on, those with the sets that spare the most first; the last one has `last`, if it is not NULL. */
static orth_status add_mixture(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_again_mixture *m, const orth_again_set *last)
{
    again_choice *c = add_choice(ctx, s, st);
    if (!c)
        return ORTH_ERR_NOMEM;
    int32_t l = 0;
    for (int32_t k = st->num_sets - 1; k >= 0; k--)
        for (int32_t i = 0; i < m->layers[k]; i++)
            set_layer(c, l++, &st->sets[k], 0);
    if (last)
        set_layer(c, l, last, 0);
    return ORTH_OK;
}

static int by_cost(const void *a, const void *b)
{
    const again_choice *x = a, *y = b;
    const int c = orth_again_compare(x->cost, y->cost);
    return c ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

static orth_status add_equal(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_again_set *set)
{
    again_choice *c = add_choice(ctx, s, st);
    for (int32_t l = 0; c && l < st->saved.num_layers; l++)
        set_layer(c, l, set, 0);
    return c ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* ---- policies that have a name ---- */

#define MAX_NAMED 256

typedef struct {
    orth_again_set sets[MAX_NAMED];
    int32_t num;
} named_sets;

static void add_named(named_sets *x, const orth_again_search *s, const again_stage *st, const orth_graph *layer, const orth_recompute *r)
{
    bool again[ORTH_RECOMPUTE_NODES];
    orth_recompute_mark(r, 0, layer, s->spec.partition->layout.sequence_parallel, again);
    const orth_again_set set = orth_again_set_of(&st->saved, layer, again, false);
    for (int32_t i = 0; i < x->num; i++)
        if (x->sets[i].marks == set.marks)
            return;
    if (x->num < MAX_NAMED)
        x->sets[x->num++] = set;
}

/* All of one kind of op, or of two, and all but those. */
static void list_named(named_sets *x, const orth_again_search *s, const again_stage *st, const orth_graph *layer, bool two)
{
    static const orth_recompute_kind kinds[] = {ORTH_RECOMPUTE_OPS, ORTH_RECOMPUTE_KEEP};
    const char *names[ORTH_RECOMPUTE_NODES];
    int32_t num = 0;
    x->num = 0;
    for (int32_t n = 0; n < layer->num_forward; n++) {
        const char *name = orth_op_name(layer->nodes[n].op);
        int32_t i = 0;
        while (i < num && strcmp(names[i], name) != 0)
            i++;
        names[i] = name;
        num = ORTH_MAX(num, i + 1);
    }
    add_named(x, s, st, layer, &(orth_recompute){.kind = ORTH_RECOMPUTE_SELECTIVE});
    for (int k = 0; k < ORTH_COUNT(kinds); k++)
        for (int32_t i = 0; i < num; i++)
            for (int32_t j = i; j < (two ? num : i + 1); j++)
                add_named(x, s, st, layer, &(orth_recompute){.kind = kinds[k], .ops = (const char *[]){names[i], names[j]}, .num_ops = 1 + (j > i)});
}

/* Of all layers, or of all but the last one, which has any of the sets: where that makes no more choices than can be looked at. */
static orth_status list_mixtures(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer, const layer_sets *all)
{
    orth_again_set *last = ORTH_ARENA_ARRAY(ctx, &s->arena, orth_again_set, all->num + 1);
    orth_again_mixture *mixtures;
    int32_t num;
    const int32_t layers = st->saved.num_layers;
    if (!last)
        return ORTH_ERR_NOMEM;
    memcpy(last, all->sets, (size_t)all->num * sizeof *last);
    st->num_sets = orth_again_sets(&st->saved, layer, s->spec.partition->layout.sequence_parallel, st->sets);
    int32_t num_last = all->num ? orth_again_sets_of_last(&st->saved, last, all->num) : 0;
    ORTH_TRY(orth_again_mixtures(ctx, &s->arena, st->sets, st->num_sets, layers - 1, &mixtures, &num));
    const bool apart = num_last > 0 && (int64_t)num * num_last <= 2 * MAX_ALL;
    if (!apart)
        ORTH_TRY(orth_again_mixtures(ctx, &s->arena, st->sets, st->num_sets, layers, &mixtures, &num));
    num_last = apart ? num_last : 1;
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, again_choice, num * num_last + layers);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < num * num_last; i++)
        ORTH_TRY(add_mixture(ctx, s, st, &mixtures[i / num_last], apart ? &last[i % num_last] : NULL));
    qsort(st->choices, (size_t)st->num, sizeof *st->choices, by_cost);
    return ORTH_OK;
}

/* ---- groups beside layers with any set: bit l - 1 of `joined`: layer l is in one group with the layer before ---- */

static bool is_joined(uint32_t joined, int32_t l)
{
    return l > 0 && l < MAX_LAYERS_DIVIDED && joined >> (l - 1) & 1;
}

static bool is_alone(uint32_t joined, int32_t l)
{
    return !is_joined(joined, l) && !is_joined(joined, l + 1);
}

/* How many choices have these groups; 0: a group would reach beyond a chunk. */
static double count_joined(const orth_again_search *s, const again_stage *st, const layer_sets *of, uint32_t joined)
{
    double num = 1;
    for (int32_t l = 0; l < st->saved.num_layers; l++) {
        if (is_joined(joined, l) && begins_chunk(s->spec.partition, st->saved.layers[l]))
            return 0;
        num *= is_alone(joined, l) ? of->num : 1;
    }
    return num;
}

/* All choices with these groups, of which all is made again; a layer alone has any of its sets. */
static orth_status add_joined(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer, const layer_sets *of, uint32_t joined)
{
    const orth_recompute full = {.kind = ORTH_RECOMPUTE_FULL};
    const int32_t layers = st->saved.num_layers, num = (int32_t)count_joined(s, st, of, joined);
    bool again[ORTH_RECOMPUTE_NODES];
    orth_recompute_mark(&full, 0, layer, s->spec.partition->layout.sequence_parallel, again);
    const orth_again_set last = orth_again_set_of(&st->saved, layer, again, false), inner = orth_again_set_of(&st->saved, layer, again, true);
    for (int32_t i = 0; i < num; i++) {
        again_choice *c = &st->choices[st->num];
        *c = (again_choice){.rank = st->num++, .bounded = joined != 0, .marks = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, layers)};
        if (!c->marks)
            return ORTH_ERR_NOMEM;
        for (int32_t l = 0, which = i; l < layers; l++) {
            const bool alone = is_alone(joined, l);
            const orth_again_set *set = alone ? &of->sets[which % of->num] : is_joined(joined, l + 1) ? &inner : &last;
            set_layer(c, l, set, is_joined(joined, l) ? ORTH_RECOMPUTE_JOINED : 0);
            which /= alone ? of->num : 1;
        }
    }
    return ORTH_OK;
}

/* Every set in every layer. */
static orth_status list_all(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer, const layer_sets *of)
{
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, again_choice, (int64_t)count_joined(s, st, of, 0) + st->saved.num_layers);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(add_joined(ctx, s, st, layer, of, 0));
    qsort(st->choices, (size_t)st->num, sizeof *st->choices, by_cost);
    return ORTH_OK;
}

/* Behind the others, where they are few enough to be compiled: every way to divide the layers into groups, of which a layer alone has any set. */
static orth_status list_divided(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer, const layer_sets *of, bool *listed)
{
    const int32_t layers = st->saved.num_layers;
    const uint32_t ways = (uint32_t)1 << ORTH_MAX(ORTH_MIN(layers, MAX_LAYERS_DIVIDED) - 1, 0);
    const again_choice *before = st->choices;
    double num = 0;
    for (uint32_t joined = 1; joined < ways; joined++)
        num += count_joined(s, st, of, joined);
    *listed = of->num > 0 && layers <= MAX_LAYERS_DIVIDED && can_compile(st, num);
    st->num_ordered = st->num;
    if (!*listed)
        return ORTH_OK;
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, again_choice, st->num + (int64_t)num + 1);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    memcpy(st->choices, before, (size_t)st->num * sizeof *before);
    for (uint32_t joined = 1; joined < ways; joined++)
        ORTH_TRY(add_joined(ctx, s, st, layer, of, joined));
    return ORTH_OK;
}

/* The same set in every layer: one that is worth it, or, where they can all be compiled, any that computes nothing. What is spared does not say what a
 * device keeps of what leaves. */
static orth_status list_equal(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer, const layer_sets *of)
{
    const int32_t layers = st->saved.num_layers;
    int32_t num_free = 0;
    st->num_sets = orth_again_sets(&st->saved, layer, s->spec.partition->layout.sequence_parallel, st->sets);
    for (int32_t k = 0; k < of->num; k++)
        num_free += of->sets[k].cost.flops == 0;
    num_free = can_compile(st, num_free + st->num_sets) ? num_free : 0;
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, again_choice, st->num_sets + num_free + layers);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    for (int32_t k = 0; k < st->num_sets; k++)
        ORTH_TRY(add_equal(ctx, s, st, &st->sets[k]));
    for (int32_t k = 0; k < of->num && num_free > 0; k++)
        if (of->sets[k].cost.flops == 0)
            ORTH_TRY(add_equal(ctx, s, st, &of->sets[k]));
    qsort(st->choices, (size_t)st->num, sizeof *st->choices, by_cost);
    return ORTH_OK;
}

/* Behind the others, as they are compiled: policies that have a name. They spare no more than others for what they cost, by the sum over layers. But
 * neither what is alive at the peak nor what the last layer makes again is that sum, and nobody is to find a policy that is better than the choice. */
static orth_status append_named(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer)
{
    const again_choice *before = st->choices;
    named_sets named;
    st->exact = s->spec.step.ffn_chunk_rows == 0;
    const bool few = st->exact && !st->leaves; /* have to be compiled: bounds on bytes, and FLOPs that are known, leave out most */
    list_named(&named, s, st, layer, true);
    if (!few && !can_compile(st, named.num))
        list_named(&named, s, st, layer, false);
    if (!few && !can_compile(st, named.num))
        return ORTH_OK;
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, again_choice, st->num + named.num);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    memcpy(st->choices, before, (size_t)st->num * sizeof *before);
    const int32_t first = st->num;
    for (int32_t i = 0; i < named.num; i++) {
        ORTH_TRY(add_equal(ctx, s, st, &named.sets[i]));
        st->choices[st->num - 1].named = true;
    }
    /* Behind the first that fits, none is cheaper. */
    qsort(st->choices + first, (size_t)(st->num - first), sizeof *st->choices, by_cost);
    return ORTH_OK;
}

static orth_status list_in_order(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer)
{
    const int32_t layers = st->saved.num_layers;
    layer_sets of;
    of.num = orth_again_all_sets(&st->saved, layer, s->spec.partition->layout.sequence_parallel, MAX_ALL, of.sets);
    double num = of.num ? 1 : INFINITY;
    for (int32_t l = 0; l < layers; l++)
        num *= of.num;
    const double most = st->leaves ? ORTH_MAX(MAX_ALL_LEAVING, (double)MAX_COMPILED / (double)st->num_instrs) : MAX_ALL;
    if (num <= ORTH_MIN(most, MAX_ALL))
        ORTH_TRY(list_all(ctx, s, st, layer, &of));
    else if (st->leaves)
        ORTH_TRY(list_equal(ctx, s, st, layer, &of));
    else
        ORTH_TRY(list_mixtures(ctx, s, st, layer, &of));
    bool divided;
    ORTH_TRY(list_divided(ctx, s, st, layer, &of, &divided));
    if (divided)
        return ORTH_OK;
    const int32_t first = st->num;
    for (int32_t size = 2; size <= layers; size++)
        ORTH_TRY(add_groups(ctx, s, st, layer, size));
    qsort(st->choices + first, (size_t)(st->num - first), sizeof *st->choices, by_cost);
    st->num_ordered = st->num;
    return ORTH_OK;
}

orth_status again_list_choices(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer)
{
    ORTH_TRY(list_in_order(ctx, s, st, layer));
    return append_named(ctx, s, st, layer);
}
