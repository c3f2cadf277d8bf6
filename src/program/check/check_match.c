/* check_match.c -- every call has its counterparts: the same collectives in one order, a receive for each
 * send. */
#include "program/check/check_ranks_impl.h"

/* A walk over the events of a rank in one group: its collectives, or its messages with one peer. */
typedef struct {
    int rank;
    const digest *d;
    orth_group group;
    orth_op op;   /* ORTH_OP_send or ORTH_OP_recv; ORTH_NUM_OPS: collectives */
    int32_t peer; /* of messages */
    int32_t at;   /* d->num_events: over */
} walk;

static bool is_met(const walk *w, const rank_event *e)
{
    if (e->group != w->group)
        return false;
    if (w->op == ORTH_NUM_OPS)
        return !event_is_message(e);
    return e->op == w->op && e->peer == w->peer;
}

/* The next event; NULL at the end. */
static const rank_event *next(walk *w)
{
    while (w->at < w->d->num_events && !is_met(w, &w->d->events[w->at]))
        w->at++;
    return w->at < w->d->num_events ? &w->d->events[w->at++] : NULL;
}

/* What differs between two that are to be one collective, or a send and its receive, in words; NULL: nothing. */
static const char *difference(const rank_event *a, const rank_event *b)
{
    const bool message = event_is_message(a);
    if (a->kind != b->kind && !message) /* of a message one is a send, the other a receive */
        return "different collectives";
    if (a->dtype != b->dtype)
        return "different types";
    if (a->reduce != b->reduce)
        return "different reductions";
    if (a->count != b->count)
        return "different counts";
    if (a->blocks != b->blocks)
        return "blocks cut differently";
    if (a->to_come != b->to_come)
        return "different micro-batches";
    if (a->what != b->what)
        return message ? "different keys" : "different things to work on";
    return NULL;
}

static orth_status refuse_pair(rank_check *k, const char *what, int where, int r, const rank_event *a, int q,
                               const rank_event *b)
{
    char x[320], y[320];
    rank_describe(k, r, a, x, sizeof x);
    rank_describe(k, q, b, y, sizeof y);
    orth_ctx_clear_error(k->ctx);
    return ORTH_FAIL(k->ctx, ORTH_ERR_INTERNAL, "%s as call %d on %s: %s; %s", what, where,
                     orth_group_name((orth_group)a->group), x, y);
}

/* Rank r makes a call that rank q has no counterpart for. */
static orth_status refuse_alone(rank_check *k, int r, const rank_event *e, int q, int made)
{
    char x[320];
    const char *what = orth_op_sends(e->op) ? "receive" : orth_op_receives(e->op) ? "send" : "collective";
    rank_describe(k, r, e, x, sizeof x);
    orth_ctx_clear_error(k->ctx);
    return ORTH_FAIL(k->ctx, ORTH_ERR_INTERNAL, "%s has no %s on rank %d, which makes only %d there", x, what,
                     q, made);
}

/* Both make the same calls in the same order. */
static orth_status match(rank_check *k, walk a, walk b)
{
    for (int made = 0;; made++) {
        const rank_event *x = next(&a), *y = next(&b);
        if (!x && !y)
            return ORTH_OK;
        if (!x)
            return refuse_alone(k, b.rank, y, a.rank, made);
        if (!y)
            return refuse_alone(k, a.rank, x, b.rank, made);
        const char *what = difference(x, y);
        if (what)
            return refuse_pair(k, what, made + 1, a.rank, x, b.rank, y);
    }
}

static orth_status match_members(rank_check *k, const orth_instance *in, int r, int q)
{
    const digest *a = k->digests[r], *b = k->digests[q];
    const walk of_r = {.rank = r, .d = a, .group = in->group, .op = ORTH_NUM_OPS};
    const walk of_q = {.rank = q, .d = b, .group = in->group, .op = ORTH_NUM_OPS};
    return a->events == b->events ? ORTH_OK : match(k, of_r, of_q);
}

/* Sends of member `from` to member `to`, and the receives there. */
static orth_status match_messages(rank_check *k, const orth_instance *in, int from, int to)
{
    const int r = in->ranks[from], q = in->ranks[to];
    return match(k, (walk){.rank = r, .d = k->digests[r], .group = in->group, .op = ORTH_OP_send, .peer = to},
                 (walk){.rank = q, .d = k->digests[q], .group = in->group, .op = ORTH_OP_recv, .peer = from});
}

/* Pairs of members that have messages for each other, each once. */
static orth_status match_pairs(rank_check *k, const orth_instance *in)
{
    bool *pairs = NULL;
    orth_status s = ORTH_OK;
    for (int m = 0; m < in->n; m++) {
        const digest *d = k->digests[in->ranks[m]];
        for (int32_t i = 0; d->messages_on[in->group] && i < d->num_events; i++) {
            const rank_event *e = &d->events[i];
            if (e->group != in->group || !event_is_message(e))
                continue;
            if (!pairs)
                pairs = ORTH_NEW_ARRAY(k->ctx, bool, (int64_t)in->n * in->n);
            if (!pairs)
                return ORTH_ERR_NOMEM;
            pairs[orth_op_sends(e->op) ? m * in->n + e->peer : e->peer * in->n + m] = true;
        }
    }
    for (int i = 0; pairs && i < in->n * in->n && s == ORTH_OK; i++)
        if (pairs[i])
            s = match_messages(k, in, i / in->n, i % in->n);
    orth_mem_free(k->ctx, pairs);
    return s;
}

bool rank_same_members(const rank_check *k, const orth_instance *a, const orth_instance *b)
{
    if (a->group != b->group || a->n != b->n)
        return false;
    for (int m = 0; m < a->n; m++)
        if (k->digests[a->ranks[m]]->events != k->digests[b->ranks[m]]->events)
            return false;
    return true;
}

/* The first member with each of the others. Of members with the same calls one stands for all. */
static orth_status match_collectives(rank_check *k, const orth_instance *in, const rank_event **matched)
{
    int32_t num = 0;
    for (int m = 1; m < in->n; m++) {
        int32_t like = num - 1;
        while (like >= 0 && matched[like] != k->digests[in->ranks[m]]->events)
            like--;
        if (like >= 0)
            continue;
        matched[num++] = k->digests[in->ranks[m]]->events;
        ORTH_TRY(match_members(k, in, in->ranks[0], in->ranks[m]));
    }
    return ORTH_OK;
}

/* Of communicators with the same members, as far as their calls go, the first one stands for all. */
orth_status rank_check_match(rank_check *k)
{
    int32_t num = 0, *seen = ORTH_ARENA_ARRAY(k->ctx, &k->arena, int32_t, k->instances.num + 1);
    const rank_event **matched = ORTH_ARENA_ARRAY(k->ctx, &k->arena, const rank_event *, k->num_ranks);
    if (!seen || !matched)
        return ORTH_ERR_NOMEM;
    for (int32_t c = 0; c < k->instances.num; c++) {
        const orth_instance *in = &k->instances.list[c];
        int32_t like = num - 1;
        while (like >= 0 && !rank_same_members(k, in, &k->instances.list[seen[like]]))
            like--;
        if (like >= 0)
            continue;
        seen[num++] = c;
        ORTH_TRY(match_collectives(k, in, matched));
        ORTH_TRY(match_pairs(k, in));
    }
    return ORTH_OK;
}
