/* recompute_auto.c -- see recompute_auto.h. */
#include "plan/recompute_auto.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "plan/again_sets.h"
#include "program/ir/cost.h"
#include "program/passes/views.h"

#define MAX_LAYERS_DIVIDED 8   /* into groups in every way */
/* Where every set in every layer makes no more choices, all are looked at. */
#define MAX_ALL 4096
/* Where bounds do not tell choices apart, all may have to be compiled: so many instructions in all, a second or two. */
#define MAX_COMPILED ((int64_t)1 << 19)
#define MAX_ALL_LEAVING 128    /* so many choices, however long the program is */

/* What is made again in the layers of a stage. */
typedef struct {
    uint64_t *marks;           /* [layers of the stage] */
    orth_again_cost cost;      /* of a micro-batch */
    int32_t rank;              /* between equal costs */
    size_t bound;              /* no rank's worth less; 0: not known yet, or nothing is */
    bool bounded, compiled;
    size_t worst, total;       /* when it is compiled: of the largest rank, of all */
    int worst_rank;
    double flops;              /* of all ranks */
    bool groups;               /* inputs of some layers only are kept */
} choice;

/* All sets of a layer; none if there are too many. */
typedef struct {
    orth_again_set sets[MAX_ALL];
    int32_t num;
} layer_sets;

/* The ranks at one place of the pipeline. */
typedef struct {
    int place;
    choice *choices;           /* [num], those that keep every layer's input first, in either part by cost */
    int32_t num, num_ordered;  /* those from num_ordered on have groups beside layers with any set: what they cost is known when compiled */
    int64_t num_instrs;
    orth_saved saved;
    orth_again_set sets[ORTH_AGAIN_SETS];
    int32_t num_sets;
    size_t constant;           /* bytes of the first class's largest rank that are not transient */
    bool leaves;               /* activations are offloaded */
} stage;

struct orth_again_search {
    orth_programs_spec spec;   /* its choice is `trial` */
    orth_programs programs;    /* of the run with nothing made again */
    orth_arena arena;
    uint64_t *trial;           /* [layers of the model] */
    stage *stages;
    int num_stages;
};

/* ---- what a choice needs: compiled ---- */

static int place_of(const orth_again_search *s, int rank)
{
    return orth_mesh_coord(&s->spec.partition->mesh, rank, ORTH_AXIS_PP);
}

/* What rank 0 needs beside its program is in the host's memory. */
static size_t bytes_beside(const orth_again_search *s, int rank)
{
    return rank == 0 ? s->spec.first_rank_bytes : 0;
}

/* What the limit of a rank is about: its device, or all of a run that has everything in one memory. */
static size_t limited_bytes(const orth_again_search *s, const orth_program *p, int rank)
{
    return p->space_bytes[p->space] + (p->space == ORTH_SPACE_HOST ? bytes_beside(s, rank) : 0);
}

/* Adds the ranks of one class. */
static orth_status add_class(orth_ctx *ctx, const orth_again_search *s, orth_rank_programs *programs, int class_rank, choice *c)
{
    const orth_classes *classes = &s->programs.classes;
    const orth_compile_spec *spec = &programs->step.blocks.spec;
    const orth_program *p = &programs->step.program;
    for (int r = class_rank, twin = -1; r < s->spec.partition->mesh.num_ranks; r++) {
        if (orth_classes_of(classes, r) != class_rank)
            continue;
        if (orth_classes_twin(classes, r) != twin) {
            twin = orth_classes_twin(classes, r);
            ORTH_TRY(orth_program_bind(ctx, &programs->step.program, spec->params, spec->num_params,
                                       orth_mesh_coord(&s->spec.partition->mesh, r, ORTH_AXIS_SHARD)));
        }
        const size_t here = limited_bytes(s, p, r);
        c->worst_rank = here > c->worst ? r : c->worst_rank;
        c->worst = ORTH_MAX(c->worst, here);
        c->total += orth_program_bytes(p) + bytes_beside(s, r);
        c->flops += orth_program_cost(p).hardware_flops;
    }
    return ORTH_OK;
}

static orth_status compile_class(orth_ctx *ctx, orth_again_search *s, int rank, choice *c)
{
    orth_rank_programs programs;
    orth_chunk *chunks = ORTH_NEW_ARRAY(ctx, orth_chunk, s->spec.partition->schedule.num_chunks);
    if (!chunks)
        return ORTH_ERR_NOMEM;
    orth_status status = orth_rank_programs_build(ctx, &s->spec, rank, NULL, chunks, &programs);
    if (status == ORTH_OK) {
        status = add_class(ctx, s, &programs, rank, c);
        orth_rank_programs_release(&programs);
    }
    orth_mem_free(ctx, chunks);
    return status;
}

static orth_status compile(orth_ctx *ctx, orth_again_search *s, const stage *st, choice *c)
{
    if (c->compiled)
        return ORTH_OK;
    for (int32_t l = 0; l < st->saved.num_layers; l++)
        s->trial[st->saved.layers[l]] = c->marks[l];
    for (int r = 0; r < s->spec.partition->mesh.num_ranks; r++)
        if (place_of(s, r) == st->place && orth_classes_of(&s->programs.classes, r) == r)
            ORTH_TRY(compile_class(ctx, s, r, c));
    c->compiled = true;
    return ORTH_OK;
}

/* ---- what a choice needs at least ---- */

static int64_t not_waiting(const stage *st, const choice *c, int32_t moment)
{
    const orth_saved *d = &st->saved;
    const int64_t *waiting = d->waiting + (int64_t)moment * d->num_layers * d->num_nodes;
    int64_t bytes = 0;
    for (int32_t l = 0; l < d->num_layers; l++, waiting += d->num_nodes)
        for (int32_t n = 0; c->marks[l] && n < d->num_nodes; n++)
            if (c->marks[l] >> n & 1)
                bytes += waiting[n];
    return bytes;
}

static size_t lower_bound(const stage *st, choice *c)
{
    int64_t most = 0;
    for (int32_t t = 0; t < st->saved.num_moments && !c->bounded && !st->leaves; t++)
        most = ORTH_MAX(most, st->saved.live[t] - not_waiting(st, c, t));
    if (!c->bounded)
        c->bound = st->constant + (size_t)most;
    c->bounded = true;
    return c->bound;
}

/* ---- choices of a stage, in their order ---- */

/* Whether a chunk begins with layer l. */
static bool begins_chunk(const orth_partition *s, int32_t l)
{
    int32_t c = 0;
    while (c < s->schedule.num_chunks && s->first_layer[c] != l)
        c++;
    return c < s->schedule.num_chunks;
}

static void set_layer(choice *c, int32_t l, const orth_again_set *set, uint64_t joined)
{
    c->marks[l] = set->marks | joined;
    c->cost.flops += set->cost.flops;
    c->cost.moved += set->cost.moved;
}

/* All in groups of `size` layers, which do not reach beyond a chunk. */
static orth_status add_groups(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_graph *layer, int32_t size)
{
    const orth_recompute full = {.kind = ORTH_RECOMPUTE_FULL};
    const orth_saved *d = &st->saved;
    bool again[ORTH_RECOMPUTE_NODES];
    choice *c = &st->choices[st->num++];
    *c = (choice){.bounded = true, .groups = true, .rank = st->num, .marks = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, d->num_layers)};
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
static orth_status add_mixture(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_again_mixture *m, const orth_again_set *last)
{
    choice *c = &st->choices[st->num];
    *c = (choice){.rank = st->num++, .marks = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, st->saved.num_layers)};
    if (!c->marks)
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
    const choice *x = a, *y = b;
    const int c = orth_again_compare(x->cost, y->cost);
    return c ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Of all layers, or of all but the last one, which has any of the sets: where that makes no more choices than can be looked at. */
static orth_status list_mixtures(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_graph *layer, const layer_sets *all)
{
    layer_sets of_last = *all;
    orth_again_set *last = of_last.sets;
    orth_again_mixture *mixtures;
    int32_t num;
    const int32_t layers = st->saved.num_layers;
    st->num_sets = orth_again_sets(&st->saved, layer, s->spec.partition->layout.sequence_parallel, st->sets);
    int32_t num_last = of_last.num ? orth_again_sets_of_last(&st->saved, last, of_last.num) : 0;
    ORTH_TRY(orth_again_mixtures(ctx, &s->arena, st->sets, st->num_sets, layers - 1, &mixtures, &num));
    const bool apart = num_last > 0 && (int64_t)num * num_last <= 2 * MAX_ALL;
    if (!apart)
        ORTH_TRY(orth_again_mixtures(ctx, &s->arena, st->sets, st->num_sets, layers, &mixtures, &num));
    num_last = apart ? num_last : 1;
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, choice, num * num_last + layers);
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
static double count_joined(const orth_again_search *s, const stage *st, const layer_sets *of, uint32_t joined)
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
static orth_status add_joined(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_graph *layer, const layer_sets *of, uint32_t joined)
{
    const orth_recompute full = {.kind = ORTH_RECOMPUTE_FULL};
    const int32_t layers = st->saved.num_layers, num = (int32_t)count_joined(s, st, of, joined);
    bool again[ORTH_RECOMPUTE_NODES];
    orth_recompute_mark(&full, 0, layer, s->spec.partition->layout.sequence_parallel, again);
    const orth_again_set last = orth_again_set_of(&st->saved, layer, again, false), inner = orth_again_set_of(&st->saved, layer, again, true);
    for (int32_t i = 0; i < num; i++) {
        choice *c = &st->choices[st->num];
        *c = (choice){.rank = st->num++, .bounded = joined != 0, .marks = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, layers)};
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
static orth_status list_all(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_graph *layer, const layer_sets *of)
{
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, choice, (int64_t)count_joined(s, st, of, 0) + st->saved.num_layers);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(add_joined(ctx, s, st, layer, of, 0));
    qsort(st->choices, (size_t)st->num, sizeof *st->choices, by_cost);
    return ORTH_OK;
}

/* Behind the others, where they are few enough to be compiled: every way to divide the layers into groups, of which a layer alone has any set. */
static orth_status list_divided(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_graph *layer, const layer_sets *of, bool *listed)
{
    const int32_t layers = st->saved.num_layers;
    const uint32_t ways = (uint32_t)1 << ORTH_MAX(ORTH_MIN(layers, MAX_LAYERS_DIVIDED) - 1, 0);
    const choice *before = st->choices;
    double num = 0;
    for (uint32_t joined = 1; joined < ways; joined++)
        num += count_joined(s, st, of, joined);
    *listed = of->num > 0 && layers <= MAX_LAYERS_DIVIDED && num * (double)st->num_instrs <= (double)MAX_COMPILED;
    st->num_ordered = st->num;
    if (!*listed)
        return ORTH_OK;
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, choice, st->num + (int64_t)num + 1);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    memcpy(st->choices, before, (size_t)st->num * sizeof *before);
    for (uint32_t joined = 1; joined < ways; joined++)
        ORTH_TRY(add_joined(ctx, s, st, layer, of, joined));
    return ORTH_OK;
}

/* The same set in every layer. */
static orth_status list_equal(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_graph *layer)
{
    const int32_t layers = st->saved.num_layers;
    st->num_sets = orth_again_sets(&st->saved, layer, s->spec.partition->layout.sequence_parallel, st->sets);
    st->choices = ORTH_ARENA_ARRAY(ctx, &s->arena, choice, st->num_sets + layers);
    if (!st->choices)
        return ORTH_ERR_NOMEM;
    for (int32_t k = 0; k < st->num_sets; k++) {
        orth_again_mixture m = {.layers = {0}};
        m.layers[k] = layers;
        ORTH_TRY(add_mixture(ctx, s, st, &m, NULL));
    }
    qsort(st->choices, (size_t)st->num, sizeof *st->choices, by_cost);
    return ORTH_OK;
}

static orth_status list_choices(orth_ctx *ctx, orth_again_search *s, stage *st, const orth_graph *layer)
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
        ORTH_TRY(list_equal(ctx, s, st, layer));
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

/* Of the first class: what the lower bounds start from. */
static orth_status make_stage(orth_ctx *ctx, orth_again_search *s, stage *st)
{
    int rank = 0;
    const orth_compiled *compiled;
    while (place_of(s, rank) != st->place)
        rank++;
    rank = orth_classes_of(&s->programs.classes, rank);
    ORTH_TRY(orth_programs_of(ctx, &s->programs, rank, &compiled));
    const orth_compile_spec *spec = &compiled->blocks.spec;
    if (compiled->blocks.layer.num_forward > ORTH_RECOMPUTE_NODES)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "a layer of %d nodes: sets have %d at most", compiled->blocks.layer.num_forward,
                         ORTH_RECOMPUTE_NODES);
    ORTH_TRY(orth_saved_find(ctx, &s->arena, &compiled->program, spec, &st->saved));
    st->num_instrs = compiled->program.num_instrs;
    st->constant = limited_bytes(s, &compiled->program, rank) - compiled->program.transient_bytes[compiled->program.space];
    return list_choices(ctx, s, st, compiled->blocks.spec.layers[0].graph);
}

static orth_status make_all(orth_ctx *ctx, orth_again_search *s, bool leaves)
{
    s->trial = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, s->spec.model->layers);
    s->stages = ORTH_ARENA_ARRAY(ctx, &s->arena, stage, s->num_stages);
    if (!s->trial || !s->stages)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < s->num_stages; i++) {
        s->stages[i].place = i;
        s->stages[i].leaves = leaves;
        ORTH_TRY(make_stage(ctx, s, &s->stages[i]));
    }
    s->spec.step.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = s->trial};
    return ORTH_OK;
}

orth_status orth_again_search_make(orth_ctx *ctx, orth_again_search **out, const orth_programs_spec *spec)
{
    orth_again_search *s = ORTH_NEW(ctx, orth_again_search);
    if (!s)
        return ORTH_ERR_NOMEM;
    s->spec = *spec;
    s->spec.step.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_NONE};
    s->spec.step.offload.activations = ORTH_TIER_NONE; /* what is kept is read off a program in which it stays */
    s->num_stages = spec->partition->mesh.size[ORTH_AXIS_PP];
    orth_status status = orth_programs_make(ctx, &s->programs, &s->spec);
    if (status == ORTH_OK) {
        status = make_all(ctx, s, spec->step.offload.activations != ORTH_TIER_NONE);
        s->spec.step.offload.activations = spec->step.offload.activations;
        if (status != ORTH_OK)
            orth_again_search_release(ctx, s);
        else
            *out = s;
        return status;
    }
    orth_mem_free(ctx, s);
    return status;
}

void orth_again_search_release(orth_ctx *ctx, orth_again_search *s)
{
    orth_programs_release(ctx, &s->programs);
    orth_arena_release(ctx, &s->arena);
    orth_mem_free(ctx, s);
}

/* ---- the choice ---- */

/* Of groups that cost as much as this one, which fits, by the sum over layers: the one that fits and whose program computes the least. */
static orth_status choose_group(orth_ctx *ctx, orth_again_search *s, stage *st, size_t limit, choice **out)
{
    const choice *first = *out;
    for (choice *c = *out + 1; first->groups && c < st->choices + st->num_ordered && c->cost.flops == first->cost.flops; c++) {
        if (lower_bound(st, c) > limit)
            continue;
        ORTH_TRY(compile(ctx, s, st, c));
        if (c->worst <= limit && c->flops < (*out)->flops)
            *out = c;
    }
    return ORTH_OK;
}

/* The first of the ordered ones that fits; NULL: none does. */
static orth_status choose_ordered(orth_ctx *ctx, orth_again_search *s, stage *st, size_t limit, choice **out)
{
    *out = NULL;
    for (int32_t i = 0; i < st->num_ordered; i++) {
        choice *c = &st->choices[i];
        if (lower_bound(st, c) > limit)
            continue;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(compile(ctx, s, st, c));
        if (c->worst > limit)
            continue;
        *out = c;
        return choose_group(ctx, s, st, limit, out);
    }
    return ORTH_OK;
}

/* The one that fits and computes the least, of equal ones the first; where none fits, *fits is false, and it is the smallest. */
static orth_status choose_stage(orth_ctx *ctx, orth_again_search *s, stage *st, size_t limit, choice **out, bool *fits)
{
    ORTH_TRY(choose_ordered(ctx, s, st, limit, out));
    for (int32_t i = st->num_ordered; i < st->num && *out != st->choices; i++) {
        choice *c = &st->choices[i];
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(compile(ctx, s, st, c));
        if (c->worst <= limit && (!*out || c->flops < (*out)->flops))
            *out = c;
    }
    *fits = *out != NULL;
    if (*fits)
        return ORTH_OK;
    for (int32_t i = st->num - 1; i >= 0; i--) {
        choice *c = &st->choices[i];
        if (*out && lower_bound(st, c) >= (*out)->worst)
            continue;
        ORTH_TRY(compile(ctx, s, st, c));
        if (!*out || c->worst < (*out)->worst)
            *out = c;
    }
    return ORTH_OK;
}

static orth_status choose_all(orth_ctx *ctx, orth_again_search *s, size_t limit, uint64_t *chosen, orth_again_result *out)
{
    *out = (orth_again_result){.fits = true};
    for (int i = 0; i < s->num_stages; i++) {
        stage *st = &s->stages[i];
        choice *c;
        bool fits;
        ORTH_TRY(choose_stage(ctx, s, st, limit, &c, &fits));
        ORTH_TRY(compile(ctx, s, st, &st->choices[0]));
        out->fits = out->fits && fits;
        out->worst_rank = c->worst > out->worst_bytes ? c->worst_rank : out->worst_rank;
        out->worst_bytes = ORTH_MAX(out->worst_bytes, c->worst);
        out->total_bytes += c->total;
        out->added_flops += c->flops - st->choices[0].flops;
        for (int32_t l = 0; l < st->saved.num_layers; l++)
            chosen[st->saved.layers[l]] = c->marks[l];
    }
    return ORTH_OK;
}

/* The highest limit for a rank with which the sum of all ranks is no more than `total`; a stage that cannot keep it takes the
 * smallest. */
static orth_status divide(orth_ctx *ctx, orth_again_search *s, size_t total, size_t *limit, uint64_t *chosen, orth_again_result *out)
{
    size_t low = 0, high = *limit;
    while (low + 1 < high) {
        const size_t middle = low + (high - low) / 2;
        ORTH_TRY(choose_all(ctx, s, middle, chosen, out));
        if (out->total_bytes <= total)
            low = middle;
        else
            high = middle;
    }
    *limit = low;
    ORTH_TRY(choose_all(ctx, s, low, chosen, out));
    out->fits = out->total_bytes <= total;
    return ORTH_OK;
}

orth_status orth_again_choose(orth_ctx *ctx, orth_again_search *s, size_t rank_limit, size_t total_limit, uint64_t *chosen,
                              orth_again_result *out)
{
    size_t each = rank_limit ? rank_limit : SIZE_MAX;
    ORTH_TRY(choose_all(ctx, s, each, chosen, out));
    if (!total_limit || out->total_bytes <= total_limit)
        return ORTH_OK;
    const bool kept = out->fits;
    each = out->worst_bytes;
    ORTH_TRY(divide(ctx, s, total_limit, &each, chosen, out));
    out->fits = out->fits && kept;
    return ORTH_OK;
}

/* ---- in words ---- */

static void add_marks(orth_ctx *ctx, orth_text *t, const orth_graph *g, uint64_t marks)
{
    const char *sep = "";
    for (int32_t n = 0; n < g->num_forward; n++)
        if (marks >> n & 1) {
            orth_text_addf(ctx, t, "%s%s", sep, g->values[g->nodes[n].out[0]].name);
            sep = ", ";
        }
    if (!*sep)
        orth_text_add(ctx, t, "nothing");
}

/* Layers from l on that are one group. */
static int32_t group_size(const uint64_t *chosen, int32_t num_layers, int32_t l)
{
    int32_t end = l + 1;
    while (end < num_layers && chosen[end] & ORTH_RECOMPUTE_JOINED)
        end++;
    return end - l;
}

/* The layer after those from l on that are alike: equal sets, or groups of equal size. */
static int32_t alike_until(const uint64_t *chosen, int32_t num_layers, int32_t l)
{
    const int32_t size = group_size(chosen, num_layers, l);
    int32_t end = l + size;
    while (end < num_layers && group_size(chosen, num_layers, end) == size && chosen[end] == chosen[l])
        end += size;
    return end;
}

char *orth_again_text(orth_ctx *ctx, const orth_graph *layer, const uint64_t *chosen, int32_t num_layers)
{
    orth_text t = {0};
    for (int32_t l = 0, end; l < num_layers; l = end) {
        const int32_t size = group_size(chosen, num_layers, l);
        end = alike_until(chosen, num_layers, l);
        orth_text_addf(ctx, &t, "%slayer%s %d", l ? "; " : "", end > l + 1 ? "s" : "", l);
        if (end > l + 1)
            orth_text_addf(ctx, &t, "-%d", end - 1);
        if (size > 1)
            orth_text_addf(ctx, &t, " in groups of %d", size);
        orth_text_add(ctx, &t, ": ");
        if (size > 1)
            orth_text_add(ctx, &t, "all");
        else
            add_marks(ctx, &t, layer, chosen[l]);
    }
    return orth_text_take(ctx, &t);
}

/* ---- for a run ---- */

#define OTHER_WAYS "A smaller train.micro_batch, parallel.zero, or more ranks (parallel.tp, pp, cp) need less"

static orth_status refuse(orth_ctx *ctx, const orth_programs_spec *spec, const orth_again_result *r)
{
    if (spec->rank_limit && r->worst_bytes > spec->rank_limit)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the run does not fit: memory.recompute=auto: rank %d needs %zu bytes at least, with as little kept as "
                         "possible; the limit of a rank is %zu (%s). " OTHER_WAYS, r->worst_rank,
                         r->worst_bytes, spec->rank_limit,
                         spec->step.space == ORTH_SPACE_DEVICE ? "of its device: memory.recompute_limit or limit_device" : "memory.recompute_limit");
    return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the run does not fit: memory.recompute=auto: all ranks together need %zu bytes at least, with as little kept "
                     "as possible; the limit is %zu (memory.limit). " OTHER_WAYS, r->total_bytes, spec->total_limit);
}

static orth_status describe(orth_ctx *ctx, orth_arena *arena, const orth_again_search *s, const uint64_t *chosen, const char **words)
{
    const orth_model_blocks *any = &s->programs.classes.blocks[0];
    char *text = orth_again_text(ctx, &any->layer, chosen, (int32_t)s->spec.model->layers);
    if (text)
        *words = orth_arena_printf(ctx, arena, "%s", text);
    orth_mem_free(ctx, text);
    return *words ? ORTH_OK : ORTH_ERR_NOMEM;
}

orth_status orth_again_resolve(orth_ctx *ctx, orth_arena *arena, orth_programs_spec *spec, const char **words)
{
    orth_again_search *s;
    orth_again_result result;
    *words = NULL;
    if (spec->step.recompute.kind != ORTH_RECOMPUTE_AUTO)
        return ORTH_OK;
    uint64_t *chosen = ORTH_ARENA_ARRAY(ctx, arena, uint64_t, spec->model->layers);
    if (!chosen)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_again_search_make(ctx, &s, spec));
    orth_status status = orth_again_choose(ctx, s, spec->rank_limit, spec->total_limit, chosen, &result);
    if (status == ORTH_OK && !result.fits && !spec->least_if_none)
        status = refuse(ctx, spec, &result);
    if (status == ORTH_OK)
        status = describe(ctx, arena, s, chosen, words);
    orth_again_search_release(ctx, s);
    spec->step.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = chosen};
    return status;
}
