/* schedule.c -- the table of schedules, and from a row to checked lists. */
#include "parallel/pipeline/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "base/files.h"
#include "parallel/pipeline/emit.h"

/* 3 actions per (chunk, micro-batch) stay countable in 32 bits. */
#define MAX_PAIRS ((int64_t)1 << 28)

static const orth_schedule_kind kinds[] = {
#define SCHEDULE(id, name, min_virtual, max_virtual, whole_rounds, async, split, help) \
    {name, help, min_virtual, max_virtual, whole_rounds, async, split},
#include "parallel/pipeline/schedules.def"
#undef SCHEDULE
};

static orth_status (*const emitters[])(orth_ctx *, orth_emitter *) = {
#define SCHEDULE(id, ...) orth_emit_##id,
#include "parallel/pipeline/schedules.def"
#undef SCHEDULE
};

const orth_schedule_kind *orth_schedule_kind_get(int index)
{
    return index >= 0 && index < ORTH_COUNT(kinds) ? &kinds[index] : NULL;
}

const orth_schedule_kind *orth_schedule_kind_find(const char *name)
{
    for (int i = 0; i < ORTH_COUNT(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

bool orth_schedule_is_async(const char *name)
{
    const orth_schedule_kind *k = orth_schedule_kind_find(name);
    return k && k->async;
}

static bool is_file(const char *name)
{
    return strncmp(name, "file:", 5) == 0;
}

/* With one rank and one chunk there is nothing to interleave, and every schedule is F B F B. */
static const orth_schedule_kind *kind_for(const char *name, int64_t p, int64_t v)
{
    const orth_schedule_kind *k = orth_schedule_kind_find(name);
    return k && p == 1 && v == 1 && k->min_virtual > 1 ? orth_schedule_kind_find("1f1b") : k;
}

static void name_schedules(char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < ORTH_COUNT(kinds) && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s, ", kinds[i].name);
    if (used < size)
        snprintf(out + used, size - used, "file:PATH");
}

bool orth_schedule_fits(const char *name, int64_t p, int64_t v, int64_t m, char *why, size_t size)
{
    const orth_schedule_kind *k = kind_for(name, p, v);
    if (!k && !is_file(name)) {
        char all[160];
        name_schedules(all, sizeof all);
        snprintf(why, size, "pipeline=%s: unknown; there are %s", name, all);
    } else if (is_file(name) && name[5] == '\0') {
        snprintf(why, size, "pipeline=file: needs a path, as in file:my.schedule");
    } else if (p < 1 || v < 1 || m < 1) {
        snprintf(why, size, "pipeline=%s: pp=%" PRId64 ", virtual_stages=%" PRId64 " and %" PRId64
                 " micro-batches must each be at least 1", name, p, v, m);
    } else if (p > MAX_PAIRS || v > MAX_PAIRS / p || m > MAX_PAIRS / p / v) {
        snprintf(why, size, "pipeline=%s: pp=%" PRId64 " x virtual_stages=%" PRId64 " x %" PRId64
                 " micro-batches is more than %" PRId64, name, p, v, m, MAX_PAIRS);
    } else if (k && v < k->min_virtual) {
        snprintf(why, size, "pipeline=%s needs virtual_stages%s%d, not %" PRId64, name,
                 k->min_virtual == k->max_virtual ? "=" : " >= ", (int)k->min_virtual, v);
    } else if (k && v > k->max_virtual) {
        snprintf(why, size, "pipeline=%s needs virtual_stages=%d, not %" PRId64, name, (int)k->max_virtual,
                 v);
    } else if (k && k->whole_rounds && m % p != 0) {
        snprintf(why, size, "pipeline=%s: %" PRId64 " micro-batches are not a multiple of pp=%" PRId64
                 ", and it runs them in rounds of pp", name, m, p);
    } else {
        return true;
    }
    return false;
}

/* Room for every action of p, v, m: the lists of s are those of e. */
static orth_status make_room(orth_ctx *ctx, orth_arena *arena, orth_emitter *e)
{
    const int64_t p = e->num_ranks, v = e->num_virtual, m = e->num_micro_batches;
    e->chunk_rank = ORTH_ARENA_ARRAY(ctx, arena, int32_t, p * v);
    e->actions = ORTH_ARENA_ARRAY(ctx, arena, orth_action *, p);
    e->num_actions = ORTH_ARENA_ARRAY(ctx, arena, int32_t, p);
    orth_action *all = ORTH_ARENA_ARRAY(ctx, arena, orth_action, 3 * p * v * m);
    if (!e->chunk_rank || !e->actions || !e->num_actions || !all)
        return ORTH_ERR_NOMEM;
    for (int64_t c = 0; c < p * v; c++)
        e->chunk_rank[c] = (int32_t)(c % p);
    for (int64_t r = 0; r < p; r++)
        e->actions[r] = all + r * 3 * v * m;
    return ORTH_OK;
}

static orth_status make_from_row(orth_ctx *ctx, orth_arena *arena, orth_schedule *out, const char *name,
                                 const orth_schedule_kind *k, orth_emitter *e)
{
    orth_action_list *lists = ORTH_ARENA_ARRAY(ctx, arena, orth_action_list, e->num_ranks);
    if (!lists)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(make_room(ctx, arena, e));
    ORTH_TRY(emitters[k - kinds](ctx, e));
    for (int r = 0; r < e->num_ranks; r++)
        lists[r] = (orth_action_list){e->actions[r], e->num_actions[r]};
    const orth_schedule s = {.name = orth_arena_printf(ctx, arena, "%s", name), .num_ranks = e->num_ranks,
                             .num_chunks = e->num_ranks * e->num_virtual, .chunk_rank = e->chunk_rank,
                             .num_micro_batches = e->num_micro_batches, .lists = lists, .async = k->async,
                             .split = k->split};
    char place[ORTH_SCHEDULE_PLACE_MAX];
    if (!s.name)
        return ORTH_ERR_NOMEM;
    snprintf(place, sizeof place, "pipeline=%s", name);
    /* Our own lists: a broken rule is our mistake. */
    ORTH_TRY(orth_schedule_check_as(ctx, &s, ORTH_ERR_INTERNAL, place, e->actions));
    *out = s;
    return ORTH_OK;
}

orth_status orth_schedule_make(orth_ctx *ctx, orth_arena *arena, orth_schedule *out, const char *name,
                               int num_ranks, int virtual_stages, int num_micro_batches)
{
    char why[ORTH_MESSAGE_MAX];
    if (!orth_schedule_fits(name, num_ranks, virtual_stages, num_micro_batches, why, sizeof why))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s", why);
    if (!is_file(name)) {
        orth_emitter e = {.num_ranks = num_ranks, .num_virtual = virtual_stages,
                          .num_micro_batches = num_micro_batches};
        return make_from_row(ctx, arena, out, name, kind_for(name, num_ranks, virtual_stages), &e);
    }
    char *text;
    size_t num_bytes;
    ORTH_TRY(orth_file_read_named(ctx, name + 5, &text, &num_bytes));
    const orth_status status = orth_schedule_parse(ctx, arena, out, name + 5, text, num_bytes, num_ranks,
                                                   virtual_stages, num_micro_batches);
    orth_mem_free(ctx, text);
    return orth_as_configuration(ctx, status);
}
