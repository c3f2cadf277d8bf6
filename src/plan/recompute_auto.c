/* recompute_auto.c -- see recompute_auto.h. */
#include "plan/recompute_auto_impl.h"

#include <inttypes.h>

#include "base/text.h"
#include "plan/plan.h"
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
        const size_t here = limited_bytes(s, p, r);
        c->worst_rank = here > c->worst ? r : c->worst_rank;
        c->worst = ORTH_MAX(c->worst, here);
        c->total += orth_program_bytes(p) + bytes_beside(s, r);
        c->flops += orth_program_cost(p).hardware_flops;
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

static orth_status compile(orth_ctx *ctx, orth_again_search *s, again_stage *st, again_choice *c)
{
    if (c->compiled)
        return ORTH_OK;
    for (int32_t l = 0; l < st->saved.num_layers; l++)
        s->trial[st->saved.layers[l]] = c->marks[l];
    for (int r = 0; r < s->spec.partition->mesh.num_ranks; r++)
        if (place_of(s, r) == st->place && orth_classes_of(&s->programs.classes, r) == r)
            ORTH_TRY(compile_class(ctx, s, r, c));
    c->compiled = true;
    if (st->exact && (c->named || c < st->choices + st->num_ordered) && !c->groups && c->cost.flops > 0 && st->choices[0].compiled)
        st->flops_of_cost = (c->flops - st->choices[0].flops) / c->cost.flops;
    return ORTH_OK;
}

/* ---- what a choice needs at least ---- */

static int64_t not_waiting(const again_stage *st, const again_choice *c, int32_t moment)
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

static size_t lower_bound(const again_stage *st, again_choice *c)
{
    int64_t most = 0;
    for (int32_t t = 0; t < st->saved.num_moments && !c->bounded && !st->leaves; t++)
        most = ORTH_MAX(most, st->saved.live[t] - not_waiting(st, c, t));
    if (!c->bounded)
        c->bound = st->constant + (size_t)most;
    c->bounded = true;
    return c->bound;
}

/* Of the first class: what the lower bounds start from. */
static orth_status make_stage(orth_ctx *ctx, orth_again_search *s, again_stage *st)
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
    return again_list_choices(ctx, s, st, compiled->blocks.spec.layers[0].graph);
}

static orth_status make_all(orth_ctx *ctx, orth_again_search *s, bool leaves)
{
    s->trial = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, s->spec.model->layers);
    s->stages = ORTH_ARENA_ARRAY(ctx, &s->arena, again_stage, s->num_stages);
    if (!s->trial || !s->stages)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < s->num_stages; i++) {
        s->stages[i].place = i;
        s->stages[i].leaves = leaves;
        ORTH_TRY(make_stage(ctx, s, &s->stages[i]));
    }
    s->spec.step.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = s->trial, .holds = ORTH_RECOMPUTE_HOLDS_ALL};
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
static orth_status choose_group(orth_ctx *ctx, orth_again_search *s, again_stage *st, size_t limit, again_choice **out)
{
    const again_choice *first = *out;
    for (again_choice *c = *out + 1; first->groups && c < st->choices + st->num_ordered && c->cost.flops == first->cost.flops; c++) {
        if (lower_bound(st, c) > limit)
            continue;
        ORTH_TRY(compile(ctx, s, st, c));
        if (c->worst <= limit && c->flops < (*out)->flops)
            *out = c;
    }
    return ORTH_OK;
}

/* The first of the ordered ones that fits; NULL: none does. */
static orth_status choose_ordered(orth_ctx *ctx, orth_again_search *s, again_stage *st, size_t limit, again_choice **out)
{
    *out = NULL;
    for (int32_t i = 0; i < st->num_ordered; i++) {
        again_choice *c = &st->choices[i];
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

/* Whether a named policy cannot compute less than a choice that is compiled. What it computes is known beforehand. */
static bool computes_no_less(const again_stage *st, const again_choice *c, const again_choice *than)
{
    if (!c->named || !than || !st->exact)
        return false;
    const double added = than->flops - st->choices[0].flops;
    return added == 0 || (st->flops_of_cost > 0 && c->cost.flops * st->flops_of_cost >= added);
}

/* The one that fits and computes the least, of equal ones the first; where none fits, *fits is false, and it is the smallest. */
static orth_status choose_stage(orth_ctx *ctx, orth_again_search *s, again_stage *st, size_t limit, again_choice **out, bool *fits)
{
    ORTH_TRY(compile(ctx, s, st, &st->choices[0]));
    ORTH_TRY(choose_ordered(ctx, s, st, limit, out));
    for (int32_t i = st->num_ordered; i < st->num && *out != st->choices; i++) {
        again_choice *c = &st->choices[i];
        if (lower_bound(st, c) > limit || computes_no_less(st, c, *out))
            continue;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(compile(ctx, s, st, c));
        if (c->worst <= limit && (!*out || c->flops < (*out)->flops))
            *out = c;
    }
    *fits = *out != NULL;
    if (*fits)
        return ORTH_OK;
    for (int32_t i = st->num - 1; i >= 0; i--) {
        again_choice *c = &st->choices[i];
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
        again_stage *st = &s->stages[i];
        again_choice *c;
        bool fits;
        ORTH_TRY(choose_stage(ctx, s, st, limit, &c, &fits));
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
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ORTH_NO_FIT "memory.recompute=auto: rank %d needs %zu bytes at least, with as little kept as "
                         "possible; the limit of a rank is %zu (%s). " OTHER_WAYS, r->worst_rank,
                         r->worst_bytes, spec->rank_limit,
                         spec->limit_of ? spec->limit_of : "memory.recompute_limit");
    return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ORTH_NO_FIT "memory.recompute=auto: all ranks together need %zu bytes at least, with as little kept "
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
    spec->step.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = chosen, .holds = ORTH_RECOMPUTE_HOLDS_ALL};
    return status;
}
