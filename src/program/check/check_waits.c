/* check_waits.c -- whether all ranks come to their ends (waits.h), and if not, who waits for whom in a circle. The calls have been
 * matched: only their order is left to judge.
 */
#include "program/check/alike.h"
#include "program/check/check_ranks_impl.h"

#define SHOWN 6 /* ranks of a cycle */

/* The first call of an instruction. */
static const rank_event *event_of(const digest *d, int32_t instr)
{
    const rank_event *e = d->events;
    while (e->instr != instr)
        e++;
    return e;
}

static orth_status refuse_cycle(rank_check *k, const orth_waits *w, int rank)
{
    char text[ORTH_MESSAGE_MAX], one[160];
    size_t at = 0;
    int length = 1;
    for (int i = 0; i < k->num_ranks; i++)
        rank = orth_waits_for(w, rank); /* into the circle */
    for (int q = orth_waits_for(w, rank); q != rank && length < k->num_ranks; q = orth_waits_for(w, q))
        length++;
    for (int i = 0; i < ORTH_MIN(length, SHOWN) && at < sizeof text; i++) {
        const digest *d = k->digests[rank];
        int next = orth_waits_for(w, rank);
        const int32_t call = orth_waits_of(w, rank)->held_by;
        if (call >= 0)
            rank_describe(k, rank, event_of(d, d->waits.calls[call].instr), one, sizeof one);
        else
            snprintf(one, sizeof one, "rank %d (at its end)", rank);
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s%s waits for rank %d", i ? "; " : "", one, next);
        rank = next;
    }
    orth_ctx_clear_error(k->ctx);
    return ORTH_FAIL(k->ctx, ORTH_ERR_INTERNAL, "a cycle of waits of %d ranks: %.900s%s", length, text,
                     length > SHOWN ? "; ..." : "");
}

/* Of all ranks, to say who waits. */
static orth_status refuse(rank_check *k, orth_arena *arena, const orth_wait_list *const *lists)
{
    orth_waits *w = NULL;
    ORTH_TRY(orth_waits_run(k->ctx, arena, &w, &k->instances, k->num_ranks, lists, NULL, false));
    for (int r = 0; r < k->num_ranks; r++)
        if (orth_waits_of(w, r)->at < lists[r]->num_calls)
            return refuse_cycle(k, w, r);
    return ORTH_OK;
}

static orth_status check(rank_check *k, orth_arena *arena)
{
    orth_alike alike;
    orth_waits *w = NULL;
    const orth_wait_list **lists = ORTH_ARENA_ARRAY(k->ctx, arena, const orth_wait_list *, k->num_ranks);
    if (!lists)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < k->num_ranks; r++)
        lists[r] = &k->digests[r]->waits;
    ORTH_TRY(orth_alike_find(k->ctx, arena, &alike, &k->instances, k->num_ranks, lists));
    ORTH_TRY(orth_waits_run(k->ctx, arena, &w, &alike.instances, alike.num, alike.lists, NULL, false));
    for (int32_t c = 0; c < alike.num; c++)
        if (orth_waits_of(w, c)->at < alike.lists[c]->num_calls)
            return refuse(k, arena, lists);
    return ORTH_OK;
}

orth_status rank_check_waits(rank_check *k)
{
    orth_arena arena = {0};
    const orth_status s = check(k, &arena);
    orth_arena_release(k->ctx, &arena);
    return s;
}
