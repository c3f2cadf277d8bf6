/* recompute_auto_stage.c -- the choice of one stage: what its programs need, compiled, or at least, and which fits and computes the least. See
 * recompute_auto_impl.h. */
#include "plan/recompute_auto_impl.h"

#include "program/ir/cost.h"
#include "program/passes/views.h"

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

static void add_rank(const orth_again_search *s, const orth_program *p, int rank, again_choice *c)
{
    const size_t here = limited_bytes(s, p, rank), beside = bytes_beside(s, rank);
    size_t *of = c->bytes.of;
    c->worst_rank = here > of[ORTH_AGAIN_RANK] ? rank : c->worst_rank;
    of[ORTH_AGAIN_RANK] = ORTH_MAX(of[ORTH_AGAIN_RANK], here);
    of[ORTH_AGAIN_ALL] += orth_program_bytes(p) + beside;
    of[ORTH_AGAIN_HOST] += p->space_bytes[ORTH_SPACE_HOST] + beside;
    of[ORTH_AGAIN_FILES] += p->space_bytes[ORTH_SPACE_FILE];
    c->flops += orth_program_cost(p).hardware_flops;
}

/* Adds the ranks of one class. */
static orth_status add_class(orth_ctx *ctx, const orth_again_search *s, orth_rank_programs *programs, int class_rank, again_choice *c)
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
        add_rank(s, p, r, c);
    }
    return ORTH_OK;
}

static orth_status compile_class(orth_ctx *ctx, orth_again_search *s, int rank, again_choice *c)
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

orth_status again_compile(orth_ctx *ctx, orth_again_search *s, again_stage *st, again_choice *c)
{
    if (c->compiled)
        return ORTH_OK;
    for (int32_t l = 0; l < st->saved.num_layers; l++)
        s->trial[st->saved.layers[l]] = c->marks[l];
    for (int r = 0; r < s->spec.partition->mesh.num_ranks; r++)
        if (place_of(s, r) == st->place && orth_classes_of(&s->programs.classes, r) == r)
            ORTH_TRY(compile_class(ctx, s, r, c));
    c->compiled = true;
    if (c == st->choices)
        st->constant = c->bytes.of[ORTH_AGAIN_ALL] - ORTH_MIN(st->transient, c->bytes.of[ORTH_AGAIN_ALL]);
    if (st->exact && (c->named || c < st->choices + st->num_ordered) && !c->groups && c->cost.flops > 0 && st->choices[0].compiled)
        st->flops_of_cost = (c->flops - st->choices[0].flops) / c->cost.flops;
    return ORTH_OK;
}

/* ---- what a choice needs at least ---- */

static int64_t not_waiting(const orth_saved *d, const again_choice *c, int32_t moment)
{
    const int64_t *waiting = d->waiting + (int64_t)moment * d->num_layers * d->num_nodes;
    int64_t bytes = 0;
    for (int32_t l = 0; l < d->num_layers; l++, waiting += d->num_nodes)
        for (int32_t n = 0; c->marks[l] && n < d->num_nodes; n++)
            if (c->marks[l] >> n & 1)
                bytes += waiting[n];
    return bytes;
}

/* Transient bytes of a rank. */
static size_t least_live(const orth_saved *d, const again_choice *c)
{
    int64_t most = 0;
    for (int32_t t = 0; t < d->num_moments; t++)
        most = ORTH_MAX(most, d->live[t] - not_waiting(d, c, t));
    return (size_t)most;
}

/* Where activations leave, nothing is known of what is elsewhere for a while. */
const size_t *again_lower_bounds(const again_stage *st, again_choice *c)
{
    size_t *of = c->bound.of;
    for (int k = 0; k < st->num_classes && !c->bounded && !st->leaves; k++) {
        const size_t live = least_live(&st->classes[k].saved, c);
        of[ORTH_AGAIN_RANK] = ORTH_MAX(of[ORTH_AGAIN_RANK], st->classes[k].constant + live);
        of[ORTH_AGAIN_ALL] += (k == 0 ? st->constant : 0) + (size_t)st->classes[k].num_ranks * live;
    }
    c->bounded = true;
    return of;
}

static size_t transient_bytes(const orth_program *p)
{
    size_t sum = 0;
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        sum += s == ORTH_SPACE_FILE ? 0 : p->transient_bytes[s];
    return sum;
}

/* What lower bounds start from. */
static orth_status make_class(orth_ctx *ctx, orth_again_search *s, again_stage *st, int rank, again_class *c)
{
    const orth_compiled *compiled;
    ORTH_TRY(orth_programs_of(ctx, &s->programs, rank, &compiled));
    const orth_program *p = &compiled->program;
    ORTH_TRY(orth_saved_find(ctx, &s->arena, p, &compiled->blocks.spec, &c->saved));
    c->constant = limited_bytes(s, p, rank) - p->transient_bytes[p->space];
    for (int r = rank; r < s->spec.partition->mesh.num_ranks; r++)
        c->num_ranks += orth_classes_of(&s->programs.classes, r) == rank;
    st->transient += (size_t)c->num_ranks * transient_bytes(p);
    return ORTH_OK;
}

orth_status again_make_stage(orth_ctx *ctx, orth_again_search *s, again_stage *st)
{
    const int num_ranks = s->spec.partition->mesh.num_ranks;
    int first = -1;
    const orth_compiled *compiled;
    st->classes = ORTH_ARENA_ARRAY(ctx, &s->arena, again_class, num_ranks / s->num_stages);
    if (!st->classes)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < num_ranks; r++) {
        if (place_of(s, r) != st->place || orth_classes_of(&s->programs.classes, r) != r)
            continue;
        first = first < 0 ? r : first;
        ORTH_TRY(make_class(ctx, s, st, r, &st->classes[st->num_classes++]));
    }
    ORTH_TRY(orth_programs_of(ctx, &s->programs, first, &compiled));
    const orth_graph *layer = &compiled->blocks.layer;
    if (layer->num_forward > ORTH_RECOMPUTE_NODES)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "a layer of %d nodes: sets have %d at most", layer->num_forward, ORTH_RECOMPUTE_NODES);
    st->saved = st->classes[0].saved;
    st->num_instrs = compiled->program.num_instrs;
    return again_list_choices(ctx, s, st, compiled->blocks.spec.layers[0].graph);
}

/* ---- the choice ---- */

bool again_is_within(const size_t of[ORTH_AGAIN_LIMITS], const orth_again_bytes *limits)
{
    bool within = true;
    for (int k = 0; k < ORTH_AGAIN_LIMITS; k++)
        within = within && of[k] <= limits->of[k];
    return within;
}

/* Of groups that cost as much as this one, which fits, by the sum over layers: the one that fits and whose program computes the least. */
static orth_status choose_group(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_again_bytes *limits, again_choice **out)
{
    const again_choice *first = *out;
    for (again_choice *c = *out + 1; first->groups && c < st->choices + st->num_ordered && c->cost.flops == first->cost.flops; c++) {
        if (!again_is_within(again_lower_bounds(st, c), limits))
            continue;
        ORTH_TRY(again_compile(ctx, s, st, c));
        if (again_is_within(c->bytes.of, limits) && c->flops < (*out)->flops)
            *out = c;
    }
    return ORTH_OK;
}

/* The first of the ordered ones that fits; NULL: none does. */
static orth_status choose_ordered(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_again_bytes *limits, again_choice **out)
{
    *out = NULL;
    for (int32_t i = 0; i < st->num_ordered; i++) {
        again_choice *c = &st->choices[i];
        if (!again_is_within(again_lower_bounds(st, c), limits))
            continue;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(again_compile(ctx, s, st, c));
        if (!again_is_within(c->bytes.of, limits))
            continue;
        *out = c;
        return choose_group(ctx, s, st, limits, out);
    }
    return ORTH_OK;
}

/* What a named policy computes is known. */
double again_least_added(const again_stage *st, const again_choice *c)
{
    return c->named && st->exact ? c->cost.flops * st->flops_of_cost : 0;
}

double again_added_flops(const again_stage *st, const again_choice *c)
{
    return c->flops - st->choices[0].flops;
}

orth_status again_choose_stage(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_again_bytes *limits, again_choice **out)
{
    ORTH_TRY(again_compile(ctx, s, st, &st->choices[0]));
    ORTH_TRY(choose_ordered(ctx, s, st, limits, out));
    for (int32_t i = st->num_ordered; i < st->num && *out != st->choices; i++) {
        again_choice *c = &st->choices[i];
        if (!again_is_within(again_lower_bounds(st, c), limits) || (*out && again_least_added(st, c) >= again_added_flops(st, *out)))
            continue;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(again_compile(ctx, s, st, c));
        if (again_is_within(c->bytes.of, limits) && (!*out || c->flops < (*out)->flops))
            *out = c;
    }
    return ORTH_OK;
}

orth_status again_choose_least(orth_ctx *ctx, orth_again_search *s, again_stage *st, orth_again_limit which, size_t rank, again_choice **out)
{
    orth_again_bytes limits = {{rank, SIZE_MAX, SIZE_MAX, SIZE_MAX}};
    size_t least = SIZE_MAX;
    for (int32_t i = st->num - 1; i >= 0; i--) {
        again_choice *c = &st->choices[i];
        const size_t *bound = again_lower_bounds(st, c);
        if (bound[ORTH_AGAIN_RANK] > rank || bound[which] >= least)
            continue;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(again_compile(ctx, s, st, c));
        if (c->bytes.of[ORTH_AGAIN_RANK] <= rank)
            least = ORTH_MIN(least, c->bytes.of[which]);
    }
    limits.of[which] = least;
    return again_choose_stage(ctx, s, st, &limits, out);
}
