/* check_match.c -- every call has its counterparts: the same collectives in one order, a receive for each
 * send. */
#include "program/check_ranks_impl.h"

/* Next event from `at` on that is a collective of the group; num_events if there is none. */
static int32_t next_collective(const digest *d, int32_t at, orth_group g)
{
    while (at < d->num_events && !(d->events[at].group == g && d->events[at].op != ORTH_OP_wait &&
                                   !event_is_message(&d->events[at])))
        at++;
    return at;
}

/* What differs, in words; NULL: nothing. */
static const char *difference(const rank_event *a, const rank_event *b)
{
    if (a->kind != b->kind)
        return "different collectives";
    if (a->dtype != b->dtype)
        return "different types";
    if (a->reduce != b->reduce)
        return "different reductions";
    if (a->count != b->count)
        return "different counts";
    if (a->blocks != b->blocks)
        return "blocks cut differently";
    if (a->micro_batch != b->micro_batch)
        return "different micro-batches";
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
    const char *what = e->op == ORTH_OP_send ? "receive" : e->op == ORTH_OP_recv ? "send" : "collective";
    rank_describe(k, r, e, x, sizeof x);
    orth_ctx_clear_error(k->ctx);
    return ORTH_FAIL(k->ctx, ORTH_ERR_INTERNAL, "%s has no %s on rank %d, which makes only %d there", x, what,
                     q, made);
}

static orth_status match_members(rank_check *k, const instance *in, int r, int q)
{
    const digest *a = k->digests[r], *b = k->digests[q];
    if (a == b)
        return ORTH_OK;
    int32_t i = next_collective(a, 0, in->group), j = next_collective(b, 0, in->group);
    for (int made = 0;; made++) {
        if (i == a->num_events && j == b->num_events)
            return ORTH_OK;
        if (i == a->num_events)
            return refuse_alone(k, q, &b->events[j], r, made);
        if (j == b->num_events)
            return refuse_alone(k, r, &a->events[i], q, made);
        const rank_event *x = &a->events[i], *y = &b->events[j];
        const char *what = difference(x, y);
        if (!what && x->what != y->what)
            what = "different things to work on";
        if (what)
            return refuse_pair(k, what, made + 1, r, x, q, y);
        i = next_collective(a, i + 1, in->group);
        j = next_collective(b, j + 1, in->group);
    }
}

static int32_t next_message(const digest *d, int32_t at, orth_group g, orth_op op, int32_t peer)
{
    while (at < d->num_events &&
           !(d->events[at].group == g && d->events[at].op == op && d->events[at].peer == peer))
        at++;
    return at;
}

/* Sends of member `from` to member `to`, and the receives there. */
static orth_status match_messages(rank_check *k, const instance *in, int from, int to)
{
    int r = in->ranks[from], q = in->ranks[to];
    const digest *a = k->digests[r], *b = k->digests[q];
    int32_t i = next_message(a, 0, in->group, ORTH_OP_send, to),
            j = next_message(b, 0, in->group, ORTH_OP_recv, from);
    for (int made = 0;; made++) {
        if (i == a->num_events && j == b->num_events)
            return ORTH_OK;
        if (i == a->num_events)
            return refuse_alone(k, q, &b->events[j], r, made);
        if (j == b->num_events)
            return refuse_alone(k, r, &a->events[i], q, made);
        rank_event sent = a->events[i];
        sent.kind = b->events[j].kind;
        const char *what = difference(&sent, &b->events[j]);
        if (!what && sent.what != b->events[j].what)
            what = "different keys";
        if (what)
            return refuse_pair(k, what, made + 1, r, &a->events[i], q, &b->events[j]);
        i = next_message(a, i + 1, in->group, ORTH_OP_send, to);
        j = next_message(b, j + 1, in->group, ORTH_OP_recv, from);
    }
}

/* Pairs of members that have messages for each other, each once. */
static orth_status match_pairs(rank_check *k, const instance *in)
{
    bool *pairs = NULL;
    orth_status s = ORTH_OK;
    for (int m = 0; m < in->n; m++) {
        const digest *d = k->digests[in->ranks[m]];
        for (int32_t i = 0; i < d->num_events; i++) {
            const rank_event *e = &d->events[i];
            if (e->group != in->group || !event_is_message(e))
                continue;
            if (!pairs)
                pairs = ORTH_NEW_ARRAY(k->ctx, bool, (int64_t)in->n * in->n);
            if (!pairs)
                return ORTH_ERR_NOMEM;
            pairs[e->op == ORTH_OP_send ? m * in->n + e->peer : e->peer * in->n + m] = true;
        }
    }
    for (int i = 0; pairs && i < in->n * in->n && s == ORTH_OK; i++)
        if (pairs[i])
            s = match_messages(k, in, i / in->n, i % in->n);
    orth_mem_free(k->ctx, pairs);
    return s;
}

orth_status rank_check_match(rank_check *k)
{
    for (int32_t c = 0; c < k->num_instances; c++) {
        const instance *in = &k->instances[c];
        for (int m = 1; m < in->n; m++)
            ORTH_TRY(match_members(k, in, in->ranks[0], in->ranks[m]));
        ORTH_TRY(match_pairs(k, in));
    }
    return ORTH_OK;
}
