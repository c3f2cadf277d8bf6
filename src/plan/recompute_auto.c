/* recompute_auto.c -- see recompute_auto.h. */
#include "plan/recompute_auto_impl.h"

#include <inttypes.h>
#include <math.h>

#include "base/text.h"
#include "plan/plan.h"

static orth_status make_all(orth_ctx *ctx, orth_again_search *s, bool leaves)
{
    s->trial = ORTH_ARENA_ARRAY(ctx, &s->arena, uint64_t, s->spec.model->layers);
    s->stages = ORTH_ARENA_ARRAY(ctx, &s->arena, again_stage, s->num_stages);
    s->picks = ORTH_ARENA_ARRAY(ctx, &s->arena, again_choice *, s->num_stages);
    s->best = ORTH_ARENA_ARRAY(ctx, &s->arena, again_choice *, s->num_stages);
    if (!s->trial || !s->stages || !s->picks || !s->best)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < s->num_stages; i++) {
        s->stages[i].place = i;
        s->stages[i].leaves = leaves;
        ORTH_TRY(again_make_stage(ctx, s, &s->stages[i]));
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

/* ---- of all stages: s->picks ---- */

/* Of each stage what keeps these limits, or else the least of `which`; *all: no stage had to take that. */
static orth_status choose_all(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *limits, orth_again_limit which, bool *all)
{
    *all = true;
    for (int i = 0; i < s->num_stages; i++) {
        again_stage *st = &s->stages[i];
        ORTH_TRY(again_choose_stage(ctx, s, st, limits, &s->picks[i]));
        if (s->picks[i])
            continue;
        *all = false;
        ORTH_TRY(again_choose_least(ctx, s, st, which, which == ORTH_AGAIN_RANK ? SIZE_MAX : limits->of[ORTH_AGAIN_RANK], &s->picks[i]));
    }
    return ORTH_OK;
}

/* Another stage. */
static void add_bytes(orth_again_bytes *sum, const size_t of[ORTH_AGAIN_LIMITS])
{
    for (int k = 0; k < ORTH_AGAIN_LIMITS; k++)
        sum->of[k] = k == ORTH_AGAIN_RANK ? ORTH_MAX(sum->of[k], of[k]) : sum->of[k] + of[k];
}

static orth_again_result sum_of(const orth_again_search *s, again_choice *const *picks, orth_again_bytes *bytes)
{
    orth_again_result sum = {.broken = ORTH_AGAIN_LIMITS};
    *bytes = (orth_again_bytes){{0}};
    for (int i = 0; i < s->num_stages; i++) {
        const again_choice *c = picks[i];
        sum.worst_rank = c->bytes.of[ORTH_AGAIN_RANK] > bytes->of[ORTH_AGAIN_RANK] ? c->worst_rank : sum.worst_rank;
        add_bytes(bytes, c->bytes.of);
        sum.added_flops += again_added_flops(&s->stages[i], c);
    }
    sum.worst_bytes = bytes->of[ORTH_AGAIN_RANK];
    sum.total_bytes = bytes->of[ORTH_AGAIN_ALL];
    return sum;
}

/* Takes the picks for the best where they keep all limits and compute less, or as much in less memory. */
static void compare_picks(orth_again_search *s, const orth_again_bytes *limits, bool *found)
{
    orth_again_bytes bytes, of_best;
    const orth_again_result now = sum_of(s, s->picks, &bytes);
    if (!again_is_within(bytes.of, limits))
        return;
    if (*found) {
        const orth_again_result best = sum_of(s, s->best, &of_best);
        if (now.added_flops > best.added_flops || (now.added_flops == best.added_flops && now.total_bytes >= best.total_bytes))
            return;
    }
    memcpy(s->best, s->picks, (size_t)s->num_stages * sizeof *s->best);
    *found = true;
}

/* The most of `which` in a stage that can still have less: not above `limit`; 0: there is none. */
static size_t most_within(const orth_again_search *s, orth_again_limit which, size_t limit)
{
    size_t most = 0;
    for (int i = 0; i < s->num_stages; i++) {
        const size_t bytes = s->picks[i]->bytes.of[which];
        most = bytes <= limit ? ORTH_MAX(most, bytes) : most;
    }
    return most;
}

/* The picks with the highest limit of each stage with which the sum keeps that of all. As a limit of a stage falls, so do the bytes of its choice. */
static orth_status divide(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *limits, orth_again_limit which)
{
    orth_again_bytes each = {{limits->of[ORTH_AGAIN_RANK], SIZE_MAX, SIZE_MAX, SIZE_MAX}}, bytes;
    bool all;
    ORTH_TRY(choose_all(ctx, s, &each, which, &all));
    size_t low = 0, high = most_within(s, which, SIZE_MAX) + 1;
    while (low + 1 < high) {
        each.of[which] = low + (high - low) / 2;
        ORTH_TRY(choose_all(ctx, s, &each, which, &all));
        sum_of(s, s->picks, &bytes);
        if (bytes.of[which] <= limits->of[which])
            low = each.of[which];
        else
            high = each.of[which];
    }
    each.of[which] = low;
    return choose_all(ctx, s, &each, which, &all);
}

/* The same where several limits may be exceeded: from one limit of a stage to the next below, until all are kept. Where activations leave there are few. */
static orth_status descend(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *limits, orth_again_limit which)
{
    orth_again_bytes each = {{limits->of[ORTH_AGAIN_RANK], SIZE_MAX, SIZE_MAX, SIZE_MAX}}, bytes;
    bool all;
    for (size_t most = SIZE_MAX; most > 0; most = most_within(s, which, each.of[which])) {
        each.of[which] = most == SIZE_MAX ? most : most - 1;
        ORTH_TRY(choose_all(ctx, s, &each, which, &all));
        sum_of(s, s->picks, &bytes);
        if (again_is_within(bytes.of, limits))
            break;
    }
    return ORTH_OK;
}

static bool has_one_set(const again_stage *st, const again_choice *c)
{
    for (int32_t l = 1; l < st->saved.num_layers; l++)
        if (c->marks[l] != c->marks[0])
            return false;
    return true;
}

/* The choice of a stage that makes these nodes again in every layer; NULL: there is none. */
static again_choice *with_one_set(const again_stage *st, uint64_t marks)
{
    for (int32_t i = 0; i < st->num; i++)
        if (st->choices[i].marks[0] == marks && has_one_set(st, &st->choices[i]))
            return &st->choices[i];
    return NULL;
}

/* Picks that set in every stage; false: a stage has no such choice, or the bounds say that a limit is exceeded, or that no less than `flops` is computed. */
static bool pick_one_set(const orth_again_search *s, uint64_t marks, const orth_again_bytes *limits, double flops)
{
    orth_again_bytes least = {{0}};
    double added = 0;
    for (int i = 0; i < s->num_stages; i++) {
        const again_stage *st = &s->stages[i];
        again_choice *c = s->picks[i] = with_one_set(st, marks);
        if (!c)
            return false;
        add_bytes(&least, again_lower_bounds(st, c));
        added += again_least_added(st, c);
    }
    return again_is_within(least.of, limits) && added < flops;
}

/* Equal limits of stages are not always those with which all compute the least, and nobody is to find a named policy that is better than the choice. */
static orth_status try_one_set(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *limits, bool *found)
{
    const again_stage *first = &s->stages[0];
    for (int32_t i = 0; i < first->num; i++) {
        const uint64_t marks = first->choices[i].marks[0];
        orth_again_bytes bytes;
        if (!has_one_set(first, &first->choices[i]) || !pick_one_set(s, marks, limits, *found ? sum_of(s, s->best, &bytes).added_flops : INFINITY))
            continue;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        for (int k = 0; k < s->num_stages; k++)
            ORTH_TRY(again_compile(ctx, s, &s->stages[k], s->picks[k]));
        compare_picks(s, limits, found);
    }
    return ORTH_OK;
}

/* Into s->best what keeps the limits of all together, too. */
static orth_status choose_together(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *limits, bool *found)
{
    *found = false;
    if (s->num_stages == 1) {
        ORTH_TRY(again_choose_stage(ctx, s, &s->stages[0], limits, &s->best[0]));
        *found = s->best[0] != NULL;
        return ORTH_OK;
    }
    for (int k = ORTH_AGAIN_ALL; k < ORTH_AGAIN_LIMITS; k++) {
        if (limits->of[k] == SIZE_MAX)
            continue;
        ORTH_TRY(s->stages[0].leaves ? descend(ctx, s, limits, k) : divide(ctx, s, limits, k));
        compare_picks(s, limits, found);
    }
    return try_one_set(ctx, s, limits, found);
}

/* Nothing was found: into s->best what needs the least of that of which even the least is too much, or of what is limited last. */
static orth_status choose_nearest(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *limits, orth_again_result *out)
{
    for (int k = ORTH_AGAIN_ALL; k < ORTH_AGAIN_LIMITS; k++) {
        orth_again_bytes bytes;
        if (limits->of[k] == SIZE_MAX)
            continue;
        for (int i = 0; i < s->num_stages; i++)
            ORTH_TRY(again_choose_least(ctx, s, &s->stages[i], k, limits->of[ORTH_AGAIN_RANK], &s->best[i]));
        sum_of(s, s->best, &bytes);
        if (bytes.of[k] <= limits->of[k])
            continue;
        if (out->broken == ORTH_AGAIN_LIMITS)
            *out = (orth_again_result){.broken = k, .least_bytes = bytes.of[k]};
        return ORTH_OK;
    }
    return ORTH_OK;
}

/* ---- the choice ---- */

/* Where activations stay, choices change what is elsewhere by the order of a few buffers at most, and no bound tells which do: all would have to be
 * compiled. */
static orth_again_bytes limits_of(const orth_again_search *s, const orth_again_bytes *given)
{
    orth_again_bytes limits = *given;
    for (int k = 0; k < ORTH_AGAIN_LIMITS; k++) {
        const bool is_looked_at = s->stages[0].leaves || k == ORTH_AGAIN_RANK || k == ORTH_AGAIN_ALL;
        limits.of[k] = is_looked_at && limits.of[k] ? limits.of[k] : SIZE_MAX;
    }
    return limits;
}

static orth_again_result take(const orth_again_search *s, again_choice *const *picks, const orth_again_result *found, uint64_t *chosen)
{
    orth_again_bytes bytes;
    orth_again_result out = sum_of(s, picks, &bytes);
    out.fits = found->fits;
    out.broken = found->broken;
    out.least_bytes = found->least_bytes;
    for (int i = 0; i < s->num_stages; i++)
        for (int32_t l = 0; l < s->stages[i].saved.num_layers; l++)
            chosen[s->stages[i].saved.layers[l]] = picks[i]->marks[l];
    return out;
}

/* Where a rank has no room even for the least, the others are to keep the limits beside that. */
orth_status orth_again_choose_within(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *given, uint64_t *chosen, orth_again_result *out)
{
    orth_again_bytes limits = limits_of(s, given), of_rank = {{limits.of[ORTH_AGAIN_RANK], SIZE_MAX, SIZE_MAX, SIZE_MAX}}, bytes;
    orth_again_result r = {.broken = ORTH_AGAIN_LIMITS};
    ORTH_TRY(choose_all(ctx, s, &of_rank, ORTH_AGAIN_RANK, &r.fits));
    sum_of(s, s->picks, &bytes);
    if (!r.fits) {
        r.broken = ORTH_AGAIN_RANK;
        r.least_bytes = limits.of[ORTH_AGAIN_RANK] = bytes.of[ORTH_AGAIN_RANK];
    }
    if (again_is_within(bytes.of, &limits)) {
        *out = take(s, s->picks, &r, chosen);
        return ORTH_OK;
    }
    bool found;
    ORTH_TRY(choose_together(ctx, s, &limits, &found));
    if (!found) {
        r.fits = false;
        ORTH_TRY(choose_nearest(ctx, s, &limits, &r));
    }
    *out = take(s, s->best, &r, chosen);
    return ORTH_OK;
}

orth_status orth_again_choose(orth_ctx *ctx, orth_again_search *s, size_t rank_limit, size_t total_limit, uint64_t *chosen,
                              orth_again_result *out)
{
    return orth_again_choose_within(ctx, s, &(orth_again_bytes){{[ORTH_AGAIN_RANK] = rank_limit, [ORTH_AGAIN_ALL] = total_limit}}, chosen, out);
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

/* Nothing keeps two limits that can both be kept. */
static orth_status refuse_both(orth_ctx *ctx, const orth_again_bytes *limits)
{
    static const char *const names[ORTH_AGAIN_LIMITS] = {"of a rank", "of all memory", "of the host's memory", "of files"};
    orth_text t = {0};
    const char *sep = "";
    for (int k = 0; k < ORTH_AGAIN_LIMITS; k++)
        if (limits->of[k]) {
            orth_text_addf(ctx, &t, "%s%zu bytes %s", sep, limits->of[k], names[k]);
            sep = ", ";
        }
    char *text = orth_text_take(ctx, &t);
    const orth_status s = text ? ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ORTH_NO_FIT "memory.recompute=auto: no choice was found that keeps all limits at once, though "
                                           "each of them can be kept: %s. " OTHER_WAYS, text) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, text);
    return s;
}

static orth_status refuse(orth_ctx *ctx, const orth_programs_spec *spec, const orth_again_bytes *limits, const orth_again_result *r)
{
    static const char *const of[ORTH_AGAIN_LIMITS] = {[ORTH_AGAIN_ALL] = "", [ORTH_AGAIN_HOST] = " of the host's memory", [ORTH_AGAIN_FILES] = " in files"},
                      *const keys[ORTH_AGAIN_LIMITS] = {[ORTH_AGAIN_ALL] = "memory.limit", [ORTH_AGAIN_HOST] = "memory.limit_host",
                                                        [ORTH_AGAIN_FILES] = "memory.limit_file, or what is free in memory.offload_dir"};
    if (r->broken == ORTH_AGAIN_LIMITS)
        return refuse_both(ctx, limits);
    if (r->broken == ORTH_AGAIN_RANK)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ORTH_NO_FIT "memory.recompute=auto: rank %d needs %zu bytes at least, with as little kept as "
                         "possible; the limit of a rank is %zu (%s). " OTHER_WAYS, r->worst_rank, r->least_bytes, spec->rank_limit,
                         spec->limit_of ? spec->limit_of : "memory.recompute_limit");
    return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ORTH_NO_FIT "memory.recompute=auto: all ranks together need %zu bytes%s at least, whatever is made again%s; the "
                     "limit is %zu (%s). " OTHER_WAYS, r->least_bytes, of[r->broken], limits->of[ORTH_AGAIN_RANK] ? " within the limit of a rank" : "",
                     limits->of[r->broken], keys[r->broken]);
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
    const orth_again_bytes limits = {{[ORTH_AGAIN_RANK] = spec->rank_limit, [ORTH_AGAIN_ALL] = spec->total_limit,
                                      [ORTH_AGAIN_HOST] = spec->space_limit[ORTH_SPACE_HOST], [ORTH_AGAIN_FILES] = spec->space_limit[ORTH_SPACE_FILE]}};
    ORTH_TRY(orth_again_search_make(ctx, &s, spec));
    orth_status status = orth_again_choose_within(ctx, s, &limits, chosen, &result);
    if (status == ORTH_OK && !result.fits && !spec->least_if_none)
        status = refuse(ctx, spec, &limits, &result);
    if (status == ORTH_OK)
        status = describe(ctx, arena, s, chosen, words);
    orth_again_search_release(ctx, s);
    spec->step.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = chosen, .holds = ORTH_RECOMPUTE_HOLDS_ALL};
    return status;
}
