/* simulate.c -- see simulate.h. */
#include "parallel/pipeline/simulate.h"

#define NOT_YET (-1.0)

typedef struct {
    const orth_schedule *s;
    const orth_chunk_times *times;   /* [num_chunks]; NULL: */
    const double *const *durations;  /* [num_ranks][num_actions] */
    double *end_f, *end_b;   /* [chunk * m + micro-batch] end of F, and of B or BI; NOT_YET */
    double *now;             /* [num_ranks] end of the rank's last action */
    int32_t *done;           /* [num_ranks] actions done */
    orth_span **spans;       /* [num_ranks] */
} sim_state;

/* When the input of `a` is at its rank; NOT_YET if its sender has not come that far. */
static double input_at(const sim_state *x, const orth_action *a)
{
    const orth_schedule *s = x->s;
    const int64_t m = s->num_micro_batches;
    const int from = a->kind == ORTH_ACTION_F ? a->chunk - 1 : a->chunk + 1;
    if (a->kind == ORTH_ACTION_W || from < 0 || from >= s->num_chunks)
        return 0; /* the rest is a matter of the own list's order */
    const double end = (a->kind == ORTH_ACTION_F ? x->end_f : x->end_b)[from * m + a->micro_batch];
    if (end < 0 || !x->times || s->chunk_rank[from] == s->chunk_rank[a->chunk])
        return end;
    return end + (a->kind == ORTH_ACTION_F ? x->times[from].send_forward : x->times[from].send_backward);
}

static double duration_of(const sim_state *x, int rank, int i)
{
    const orth_action *a = &x->s->lists[rank].actions[i];
    return x->times ? x->times[a->chunk].time[a->kind] : x->durations[rank][i];
}

/* Runs the next action of `rank` if its input is there. */
static bool advance(sim_state *x, int rank)
{
    const orth_action_list *l = &x->s->lists[rank];
    if (x->done[rank] == l->num_actions)
        return false;
    const orth_action *a = &l->actions[x->done[rank]];
    const double input = input_at(x, a);
    if (input < 0)
        return false;
    const double start = ORTH_MAX(x->now[rank], input), end = start + duration_of(x, rank, x->done[rank]);
    const int64_t i = (int64_t)a->chunk * x->s->num_micro_batches + a->micro_batch;
    if (a->kind == ORTH_ACTION_F)
        x->end_f[i] = end;
    else if (a->kind != ORTH_ACTION_W)
        x->end_b[i] = end;
    x->now[rank] = end;
    x->spans[rank][x->done[rank]++] = (orth_span){start, end};
    return true;
}

/* The result does not depend on the order in which ranks are visited: a start is a maximum over ends. */
static orth_status run_all(orth_ctx *ctx, sim_state *x)
{
    const orth_schedule *s = x->s;
    for (int64_t i = 0; i < (int64_t)s->num_chunks * s->num_micro_batches; i++)
        x->end_f[i] = x->end_b[i] = NOT_YET;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->num_ranks; r++)
            while (advance(x, r))
                moved = true;
    }
    for (int r = 0; r < s->num_ranks; r++)
        if (x->done[r] < s->lists[r].num_actions)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "pipeline=%s: rank %d is stuck at action %d", s->name, r,
                             (int)x->done[r]);
    return ORTH_OK;
}

static void sum_up(const sim_state *x, orth_rank_sim *ranks, orth_sim *out)
{
    const orth_schedule *s = x->s;
    double sum_busy = 0;
    for (int r = 0; r < s->num_ranks; r++) {
        orth_rank_sim *k = &ranks[r];
        const int n = s->lists[r].num_actions;
        for (int i = 0; i < n; i++)
            k->busy += duration_of(x, r, i);
        k->first = n ? x->spans[r][0].start : 0;
        k->last = x->now[r];
        k->spans = x->spans[r];
        k->peak_in_flight = orth_schedule_peak_in_flight(s, r);
        k->peak_versions = orth_schedule_peak_versions(s, r);
        sum_busy += k->busy;
        out->makespan = ORTH_MAX(out->makespan, k->last);
        out->ideal = ORTH_MAX(out->ideal, k->busy);
        out->inner_bubble = ORTH_MAX(out->inner_bubble, k->last - k->first - k->busy);
    }
    for (int r = 0; r < s->num_ranks; r++)
        ranks[r].idle = out->makespan - ranks[r].busy;
    out->bubble = out->makespan - out->ideal;
    out->idle_share = out->makespan > 0 ? 1 - sum_busy / s->num_ranks / out->makespan : 0;
}

static orth_status simulate(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s, const orth_chunk_times *times,
                            const double *const *durations, orth_sim *out)
{
    const int64_t p = s->num_ranks, pairs = (int64_t)s->num_chunks * s->num_micro_batches;
    orth_arena scratch = {0};
    sim_state x = {.s = s, .times = times, .durations = durations,
                   .end_f = ORTH_ARENA_ARRAY(ctx, &scratch, double, pairs),
                   .end_b = ORTH_ARENA_ARRAY(ctx, &scratch, double, pairs),
                   .now = ORTH_ARENA_ARRAY(ctx, &scratch, double, p),
                   .done = ORTH_ARENA_ARRAY(ctx, &scratch, int32_t, p),
                   .spans = ORTH_ARENA_ARRAY(ctx, &scratch, orth_span *, p)};
    orth_rank_sim *ranks = ORTH_ARENA_ARRAY(ctx, arena, orth_rank_sim, p);
    bool room = x.end_f && x.end_b && x.now && x.done && x.spans && ranks;
    for (int r = 0; r < p && room; r++) {
        x.spans[r] = ORTH_ARENA_ARRAY(ctx, arena, orth_span, s->lists[r].num_actions);
        room = x.spans[r] != NULL;
    }
    const orth_status status = room ? run_all(ctx, &x) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK) {
        *out = (orth_sim){.num_ranks = s->num_ranks, .ranks = ranks};
        sum_up(&x, ranks, out);
    }
    orth_arena_release(ctx, &scratch);
    return status;
}

orth_status orth_schedule_simulate(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s,
                                   const orth_chunk_times *times, orth_sim *out)
{
    return simulate(ctx, arena, s, times, NULL, out);
}

orth_status orth_schedule_replay(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s,
                                 const double *const *durations, orth_sim *out)
{
    return simulate(ctx, arena, s, NULL, durations, out);
}
