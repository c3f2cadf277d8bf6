/* check_waits.c -- runs the calls of all ranks without data: whether all of them end, and if not, who waits
 * for whom in a circle. The calls have been matched: only their order is left to judge.
 *
 *   runnable rank --advance--> end, or blocked on a call --a peer posts the counterpart--> runnable
 *
 * A call is posted when its rank reaches it. A collective is complete when all members have posted it; a send
 * when the receive is posted, and the other way.
 */
#include "program/check/check_ranks_impl.h"

/* What a call waits for. */
typedef struct {
    int32_t instance, seq; /* number of the collective, or of the message of this pair */
    int32_t pair;          /* from * n + to; -1: a collective */
    bool sends;
} condition;

/* Of an instance. */
typedef struct {
    int32_t *posted;          /* [n] collectives that each member has posted */
    int32_t *arrived;         /* [collectives] members that have posted it */
    int32_t *sent, *received; /* [n*n] posted; NULL: no messages */
} traffic;

typedef struct {
    int32_t at;  /* event */
    bool posted; /* its call is posted, and it waits for `on` */
    bool queued;
    condition on;
    condition *tickets; /* [ORTH_MAX_TICKETS] of started calls */
} rank_state;

typedef struct {
    rank_check *k;
    orth_arena arena;
    traffic *traffic; /* [num_instances] */
    rank_state *ranks;
    int32_t *queue; /* runnable ranks: a ring of num_ranks */
    int32_t head, num_queued;
} waits;

static bool complete(const waits *w, const condition *c)
{
    const traffic *t = &w->traffic[c->instance];
    if (c->pair < 0)
        return t->arrived[c->seq] == w->k->instances.list[c->instance].n;
    return (c->sends ? t->received : t->sent)[c->pair] > c->seq;
}

static void wake(waits *w, int rank)
{
    rank_state *r = &w->ranks[rank];
    if (r->queued)
        return;
    r->queued = true;
    w->queue[(w->head + w->num_queued++) % w->k->num_ranks] = rank;
}

static condition post(waits *w, int rank, const rank_event *e)
{
    const int32_t id = w->k->instances.of[rank][e->group], me = w->k->instances.pos[rank][e->group];
    const orth_instance *in = &w->k->instances.list[id];
    traffic *t = &w->traffic[id];
    if (event_is_message(e)) {
        bool sends = e->op == ORTH_OP_send;
        int32_t pair = sends ? me * in->n + e->peer : e->peer * in->n + me;
        wake(w, in->ranks[e->peer]);
        return (condition){id, (sends ? t->sent : t->received)[pair]++, pair, sends};
    }
    int32_t seq = t->posted[me]++;
    if (++t->arrived[seq] == in->n)
        for (int i = 0; i < in->n; i++)
            wake(w, in->ranks[i]);
    return (condition){.instance = id, .seq = seq, .pair = -1};
}

/* Goes on until the rank must wait, or ends. */
static void advance(waits *w, int rank)
{
    const digest *d = w->k->digests[rank];
    rank_state *r = &w->ranks[rank];
    while (r->at < d->num_events) {
        const rank_event *e = &d->events[r->at];
        if (!r->posted) {
            r->on = orth_op_is_wait(e->op) ? r->tickets[e->ticket % ORTH_MAX_TICKETS] : post(w, rank, e);
            r->posted = true;
            if (!orth_op_is_wait(e->op) && e->ticket > 0)
                r->tickets[e->ticket % ORTH_MAX_TICKETS] = r->on;
        }
        bool blocks = orth_op_is_wait(e->op) || e->ticket <= 0;
        if (blocks && !complete(w, &r->on))
            return;
        r->posted = false;
        r->at++;
    }
}

/* A rank without which `rank` cannot go on. */
static int waits_for(const waits *w, int rank)
{
    const condition *c = &w->ranks[rank].on;
    const orth_instance *in = &w->k->instances.list[c->instance];
    if (c->pair >= 0)
        return in->ranks[c->sends ? c->pair % in->n : c->pair / in->n];
    for (int i = 0; i < in->n; i++)
        if (w->traffic[c->instance].posted[i] <= c->seq)
            return in->ranks[i];
    return rank;
}

#define SHOWN 6 /* ranks of a cycle */

static orth_status refuse_cycle(waits *w, int rank)
{
    rank_check *k = w->k;
    char text[ORTH_MESSAGE_MAX], one[160];
    size_t at = 0;
    int length = 1;
    for (int i = 0; i < k->num_ranks; i++)
        rank = waits_for(w, rank); /* into the circle */
    for (int q = waits_for(w, rank); q != rank && length < k->num_ranks; q = waits_for(w, q))
        length++;
    for (int i = 0; i < ORTH_MIN(length, SHOWN) && at < sizeof text; i++) {
        const digest *d = k->digests[rank];
        int next = waits_for(w, rank);
        if (w->ranks[rank].at < d->num_events)
            rank_describe(k, rank, &d->events[w->ranks[rank].at], one, sizeof one);
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

static orth_status prepare(waits *w)
{
    rank_check *k = w->k;
    w->traffic = ORTH_ARENA_ARRAY(k->ctx, &w->arena, traffic, k->instances.num + 1);
    w->ranks = ORTH_ARENA_ARRAY(k->ctx, &w->arena, rank_state, k->num_ranks);
    w->queue = ORTH_ARENA_ARRAY(k->ctx, &w->arena, int32_t, k->num_ranks);
    if (!w->traffic || !w->ranks || !w->queue)
        return ORTH_ERR_NOMEM;
    for (int32_t c = 0; c < k->instances.num; c++) {
        const orth_instance *in = &k->instances.list[c];
        const digest *d = k->digests[in->ranks[0]]; /* all members make the same collectives */
        int64_t collectives = 0;
        bool messages = false;
        for (int32_t i = 0; i < d->num_events; i++)
            collectives += d->events[i].group == in->group;
        for (int m = 0; m < in->n; m++)
            messages = messages || k->digests[in->ranks[m]]->messages_on[in->group];
        int64_t pairs = messages ? (int64_t)in->n * in->n : 0;
        int32_t *all = ORTH_ARENA_ARRAY(k->ctx, &w->arena, int32_t, in->n + collectives + 2 * pairs + 1);
        if (!all)
            return ORTH_ERR_NOMEM;
        w->traffic[c] =
            (traffic){all, all + in->n, all + in->n + collectives, all + in->n + collectives + pairs};
    }
    for (int r = 0; r < k->num_ranks; r++) {
        w->ranks[r].tickets = ORTH_ARENA_ARRAY(k->ctx, &w->arena, condition, ORTH_MAX_TICKETS);
        if (!w->ranks[r].tickets)
            return ORTH_ERR_NOMEM;
    }
    return ORTH_OK;
}

static orth_status run(waits *w)
{
    rank_check *k = w->k;
    for (int r = 0; r < k->num_ranks; r++)
        wake(w, r);
    while (w->num_queued > 0) {
        int rank = w->queue[w->head];
        w->head = (w->head + 1) % k->num_ranks;
        w->num_queued--;
        w->ranks[rank].queued = false;
        advance(w, rank);
    }
    for (int r = 0; r < k->num_ranks; r++)
        if (w->ranks[r].at < k->digests[r]->num_events)
            return refuse_cycle(w, r);
    return ORTH_OK;
}

orth_status rank_check_waits(rank_check *k)
{
    waits w = {.k = k};
    orth_status s = prepare(&w);
    if (s == ORTH_OK)
        s = run(&w);
    orth_arena_release(k->ctx, &w.arena);
    return s;
}
