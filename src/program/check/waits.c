/* waits.c -- see waits.h. */
#include "program/check/waits.h"

#include <math.h>

#include "program/ir/comm_call.h"

#define NOT_YET (-1.0)

/* What happens in one communicator. Message number i of a pair (from * n + to) has its place at first[pair] + i. */
typedef struct {
    int32_t n;
    const int32_t *ranks;
    int32_t *posted;             /* [n] collectives that each member has posted */
    int32_t *arrived;            /* [collectives] members that have posted it */
    double *begin, *length;      /* [collectives] the latest to come; the longest of the members' */
    double free_at;              /* end of the last complete collective */
    int32_t *first, *sent, *received;              /* [n*n]; NULL: no messages */
    int64_t messages;
    double *sent_at, *received_at, *transfer;      /* [messages]; NOT_YET */
} channel;

/* What a rank waits for. */
typedef struct {
    int32_t channel, at;         /* number of the collective, or place of the message */
    int32_t peer;                /* position of the other side of a message; -1: a collective; ALONE: none, but until `end` */
    double end;
} condition;
#define ALONE (-2)

/* An instruction of another queue that was made and is not known to be complete: by its last call. */
typedef struct {
    condition on;
    int32_t call;
} pending;

typedef struct {
    orth_rank_waits so_far;
    bool posted, queued, ended;
    condition on;
    int32_t *made, *complete;    /* [num_queues] instructions of each */
    double *free_at;             /* [num_queues] end of the last of each that is alone */
    double alone_from;           /* when the next of these may begin */
    double host;                 /* seconds that the host computes still: neither beside the rank nor holding it so far */
    pending **ring;              /* [num_queues][most] */
} rank_state;

struct orth_waits {
    const orth_instances *instances;
    const orth_wait_list *const *lists;
    const int32_t *until;        /* [num_ranks] calls that are made; NULL: all */
    int num_ranks;
    channel *channels;           /* [num_instances] */
    rank_state *ranks;
    int32_t *queue;              /* ranks that may go on: a ring of num_ranks */
    int32_t head, num_queued;
};

/* ---- lists ---- */

orth_status orth_wait_list_open(orth_ctx *ctx, orth_arena *arena, orth_wait_list *l, const orth_program *p)
{
    int64_t num = orth_program_num_calls(p) + p->num_queues;
    for (int32_t i = 0; i < p->num_instrs; i++)
        num += p->instrs[i].num_waits + (p->num_queues > 0 && orth_queue_is_alone(&p->queues[p->instrs[i].queue]));
    *l = (orth_wait_list){.num_queues = p->num_queues, .calls = ORTH_ARENA_ARRAY(ctx, arena, orth_wait_call, num + 1)};
    return l->calls ? ORTH_OK : ORTH_ERR_NOMEM;
}

static void add(orth_wait_list *l, orth_wait_call c)
{
    c.before = l->after;
    l->after = 0;
    l->calls[l->num_calls++] = c;
}

static uint8_t group_of(const orth_queue *q)
{
    return q->kind == ORTH_QUEUE_HOST ? ORTH_WAIT_HOST : orth_queue_is_alone(q) ? ORTH_WAIT_COPIES : (uint8_t)q->group;
}

/* Nothing that is known already; what is in the queue of computing is complete when the list has come past it. */
static void add_event(orth_wait_list *l, const orth_program *p, int32_t i, int32_t queue, int32_t count, bool holds)
{
    if (queue == 0 || count <= l->complete[queue])
        return;
    const bool of_alone = !holds && orth_queue_is_alone(&p->queues[queue]) && orth_queue_is_alone(&p->queues[p->instrs[i].queue]);
    if (!of_alone)
        l->complete[queue] = count;
    add(l, (orth_wait_call){.instr = i, .queue = queue, .count = count, .of_alone = of_alone, .group = group_of(&p->queues[queue])});
}

void orth_wait_list_add_events(orth_wait_list *l, const orth_program *p, int32_t i, bool holds)
{
    for (int32_t k = 0; k < p->instrs[i].num_waits; k++)
        add_event(l, p, i, p->instrs[i].waits[k].queue, p->instrs[i].waits[k].count, holds);
}

static void note_made(orth_wait_list *l, int32_t queue)
{
    l->made[queue]++;
    l->most[queue] = ORTH_MAX(l->most[queue], l->made[queue] - l->complete[queue]);
}

void orth_wait_list_add_alone(orth_wait_list *l, const orth_program *p, int32_t i, double seconds)
{
    note_made(l, p->instrs[i].queue);
    add(l, (orth_wait_call){.seconds = seconds, .instr = i, .queue = p->instrs[i].queue, .op = (uint8_t)p->instrs[i].op,
                            .group = group_of(&p->queues[p->instrs[i].queue])});
}

void orth_wait_list_add_call(orth_wait_list *l, const orth_program *p, int32_t i, double seconds)
{
    const orth_instr *n = &p->instrs[i];
    const int32_t queue = n->until > 0 && p->num_queues == 0 ? -1 : n->queue;
    const bool another = l->num_calls > 0 && l->calls[l->num_calls - 1].instr == i && l->calls[l->num_calls - 1].count == 0;
    if (queue > 0 && !another)
        note_made(l, queue);
    l->sends[n->attr->group] += orth_op_sends(n->op);
    l->collectives[n->attr->group] += !orth_op_is_message(n->op);
    add(l, (orth_wait_call){.seconds = seconds, .instr = i, .peer = n->attr->peer, .queue = queue, .op = (uint8_t)n->op,
                            .group = (uint8_t)n->attr->group});
}

void orth_wait_list_close(orth_wait_list *l, const orth_program *p)
{
    for (int32_t q = 1; q < l->num_queues; q++)
        add_event(l, p, p->num_instrs, q, l->made[q], true);
}

/* ---- room ---- */

/* Counts the messages of each pair into c->first, which become places. */
static orth_status count_messages(orth_ctx *ctx, orth_arena *arena, const orth_waits *w, channel *c, int g)
{
    const int64_t pairs = (int64_t)c->n * c->n;
    c->first = ORTH_ARENA_ARRAY(ctx, arena, int32_t, pairs);
    if (!c->first)
        return ORTH_ERR_NOMEM;
    for (int m = 0; m < c->n; m++) {
        const orth_wait_list *l = w->lists[c->ranks[m]];
        for (int32_t i = 0; l->sends[g] > 0 && i < l->num_calls; i++) {
            const orth_wait_call *e = orth_wait_list_at(l, i);
            if (e->group == g && e->count == 0 && orth_op_sends(e->op))
                c->first[(int64_t)m * c->n + e->peer]++;
        }
    }
    for (int64_t i = 0; i < pairs; i++) {
        const int32_t num = c->first[i];
        c->first[i] = (int32_t)c->messages;
        c->messages += num;
    }
    return ORTH_OK;
}

static orth_status open_messages(orth_ctx *ctx, orth_arena *arena, channel *c)
{
    const int64_t pairs = (int64_t)c->n * c->n;
    c->sent = ORTH_ARENA_ARRAY(ctx, arena, int32_t, 2 * pairs);
    c->sent_at = ORTH_ARENA_ARRAY(ctx, arena, double, 3 * c->messages + 1);
    if (!c->sent || !c->sent_at)
        return ORTH_ERR_NOMEM;
    c->received = c->sent + pairs;
    c->received_at = c->sent_at + c->messages;
    c->transfer = c->received_at + c->messages;
    for (int64_t i = 0; i < 2 * c->messages; i++)
        c->sent_at[i] = NOT_YET;
    return ORTH_OK;
}

/* All members make the same collectives. like: the channel of the ranks that are gone on from; NULL: there is none. */
static orth_status open_channel(orth_ctx *ctx, orth_arena *arena, const orth_waits *w, const orth_instance *in, const channel *like,
                                channel *c)
{
    const int64_t collectives = w->lists[in->ranks[0]]->collectives[in->group];
    bool sends = false;
    *c = (channel){.n = in->n, .ranks = in->ranks};
    c->posted = ORTH_ARENA_ARRAY(ctx, arena, int32_t, c->n);
    c->arrived = ORTH_ARENA_ARRAY(ctx, arena, int32_t, collectives + 1);
    c->begin = ORTH_ARENA_ARRAY(ctx, arena, double, 2 * collectives + 1);
    if (!c->posted || !c->arrived || !c->begin)
        return ORTH_ERR_NOMEM;
    c->length = c->begin + collectives;
    for (int m = 0; m < c->n; m++)
        sends = sends || w->lists[c->ranks[m]]->sends[in->group] > 0;
    if (!sends)
        return ORTH_OK;
    if (!like) {
        ORTH_TRY(count_messages(ctx, arena, w, c, in->group));
    } else { /* position by position the same */
        c->first = like->first;
        c->messages = like->messages;
    }
    return open_messages(ctx, arena, c);
}

static orth_status open_rank(orth_ctx *ctx, orth_arena *arena, const orth_wait_list *l, rank_state *r, bool keep_ends)
{
    int64_t room = 0;
    for (int32_t q = 1; q < l->num_queues; q++)
        room += l->most[q];
    r->so_far.held_by = -1;
    r->made = ORTH_ARENA_ARRAY(ctx, arena, int32_t, 2 * (int64_t)l->num_queues + 1);
    r->free_at = ORTH_ARENA_ARRAY(ctx, arena, double, l->num_queues + 1);
    r->ring = ORTH_ARENA_ARRAY(ctx, arena, pending *, l->num_queues + 1);
    pending *ring = ORTH_ARENA_ARRAY(ctx, arena, pending, room + 1);
    if (!r->made || !r->free_at || !r->ring || !ring)
        return ORTH_ERR_NOMEM;
    r->complete = r->made + l->num_queues;
    for (int32_t q = 1; q < l->num_queues; ring += l->most[q++])
        r->ring[q] = ring;
    if (!keep_ends)
        return ORTH_OK;
    r->so_far.ends = ORTH_ARENA_ARRAY(ctx, arena, double, l->num_calls + 1);
    return r->so_far.ends ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* The channel of `from` in which the ranks like those of instance i are. */
static const channel *channel_like(const orth_waits *w, int32_t i, const orth_waits *from, const int32_t *like)
{
    const orth_instance *in = &w->instances->list[i];
    return from ? &from->channels[from->instances->of[like[in->ranks[0]]][in->group]] : NULL;
}

static orth_status make_room(orth_ctx *ctx, orth_arena *arena, orth_waits *w, const orth_waits *from, const int32_t *like, bool keep_ends)
{
    w->channels = ORTH_ARENA_ARRAY(ctx, arena, channel, w->instances->num + 1);
    w->ranks = ORTH_ARENA_ARRAY(ctx, arena, rank_state, w->num_ranks);
    w->queue = ORTH_ARENA_ARRAY(ctx, arena, int32_t, w->num_ranks);
    if (!w->channels || !w->ranks || !w->queue)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < w->instances->num; i++)
        ORTH_TRY(open_channel(ctx, arena, w, &w->instances->list[i], channel_like(w, i, from, like), &w->channels[i]));
    for (int r = 0; r < w->num_ranks; r++)
        ORTH_TRY(open_rank(ctx, arena, w->lists[r], &w->ranks[r], keep_ends));
    return ORTH_OK;
}

/* ---- going on from another run ---- */

static void move_condition(const orth_waits *w, int rank, const orth_waits *from, condition *on)
{
    if (on->peer != ALONE)
        on->channel = w->instances->of[rank][from->instances->list[on->channel].group];
}

/* Rank r of w is where rank f of `from` is. */
static void copy_rank(orth_waits *w, int rank, const orth_waits *from, const rank_state *f)
{
    rank_state *r = &w->ranks[rank], room = *r;
    const orth_wait_list *l = w->lists[rank];
    *r = *f;
    r->so_far.ends = room.so_far.ends;
    r->made = room.made;
    r->complete = room.complete;
    r->free_at = room.free_at;
    r->ring = room.ring;
    if (r->so_far.ends)
        memcpy(r->so_far.ends, f->so_far.ends, (size_t)l->num_calls * sizeof *f->so_far.ends);
    memcpy(r->made, f->made, 2 * (size_t)l->num_queues * sizeof *r->made);
    memcpy(r->free_at, f->free_at, (size_t)l->num_queues * sizeof *r->free_at);
    if (r->so_far.held_by >= 0)
        move_condition(w, rank, from, &r->on);
    for (int32_t q = 1; q < l->num_queues; q++)
        for (int32_t k = 0; k < ORTH_MIN(l->most[q], r->made[q]); k++) {
            r->ring[q][k] = f->ring[q][k];
            move_condition(w, rank, from, &r->ring[q][k].on);
        }
}

static void copy_channel(orth_waits *w, int32_t i, const orth_waits *from, const int32_t *like)
{
    const orth_instance *in = &w->instances->list[i];
    const channel *f = channel_like(w, i, from, like);
    channel *c = &w->channels[i];
    const int64_t collectives = w->lists[in->ranks[0]]->collectives[in->group];
    for (int m = 0; m < c->n; m++) {
        c->posted[m] = f->posted[from->instances->pos[like[in->ranks[m]]][in->group]];
        for (int32_t at = 0; at < c->posted[m]; at++)
            c->arrived[at]++;
    }
    memcpy(c->begin, f->begin, 2 * (size_t)collectives * sizeof *c->begin);
    c->free_at = f->free_at;
    if (!c->first)
        return;
    memcpy(c->sent, f->sent, 2 * (size_t)c->n * (size_t)c->n * sizeof *c->sent);
    memcpy(c->sent_at, f->sent_at, 3 * (size_t)c->messages * sizeof *c->sent_at);
}

/* ---- running ---- */

static void wake(orth_waits *w, int rank)
{
    if (w->ranks[rank].queued)
        return;
    w->ranks[rank].queued = true;
    w->queue[(w->head + w->num_queued++) % w->num_ranks] = rank;
}

static condition post_message(orth_waits *w, int rank, int32_t id, const orth_wait_call *e)
{
    channel *c = &w->channels[id];
    const int32_t me = w->instances->pos[rank][e->group];
    const bool sends = orth_op_sends(e->op);
    const int32_t pair = sends ? me * c->n + e->peer : e->peer * c->n + me;
    const int32_t at = c->first[pair] + (sends ? c->sent : c->received)[pair]++;
    (sends ? c->sent_at : c->received_at)[at] = w->ranks[rank].so_far.now;
    c->transfer[at] = fmax(c->transfer[at], e->seconds);
    wake(w, c->ranks[e->peer]);
    return (condition){id, at, e->peer, 0};
}

static condition post_collective(orth_waits *w, int rank, int32_t id, const orth_wait_call *e)
{
    channel *c = &w->channels[id];
    const int32_t at = c->posted[w->instances->pos[rank][e->group]]++;
    c->begin[at] = fmax(c->begin[at], w->ranks[rank].so_far.now);
    c->length[at] = fmax(c->length[at], e->seconds);
    if (++c->arrived[at] == c->n) {
        c->begin[at] = fmax(c->begin[at], c->free_at);
        c->free_at = c->begin[at] + c->length[at];
        for (int i = 0; i < c->n; i++)
            wake(w, c->ranks[i]);
    }
    return (condition){id, at, -1, 0};
}

static condition post_alone(rank_state *r, const orth_wait_call *e)
{
    double *free_at = &r->free_at[e->queue];
    r->host += e->group == ORTH_WAIT_HOST ? e->seconds : 0;
    *free_at = fmax(fmax(*free_at, r->alone_from), r->so_far.now) + e->seconds;
    r->alone_from = 0;
    return (condition){.channel = -1, .peer = ALONE, .end = *free_at};
}

/* Whether the call has all it takes; then when it began and ended. */
static bool complete(const orth_waits *w, const condition *on, double *begin, double *end)
{
    if (on->peer == ALONE) {
        *begin = 0;
        *end = on->end;
        return true;
    }
    const channel *c = &w->channels[on->channel];
    if (on->peer >= 0) {
        *begin = fmax(c->sent_at[on->at], c->received_at[on->at]);
        *end = *begin + c->transfer[on->at];
        return c->sent_at[on->at] >= 0 && c->received_at[on->at] >= 0;
    }
    *begin = c->begin[on->at];
    *end = *begin + c->length[on->at];
    return c->arrived[on->at] == c->n;
}

static void pass_time(rank_state *r, double seconds)
{
    r->so_far.now += seconds;
    r->host = fmax(0, r->host - seconds);
}

/* False: the rank must wait for others before the call is complete. *end: of the call, which may be long past. */
static bool hold(const orth_waits *w, rank_state *r, const condition *on, int32_t call, int group, double *end)
{
    orth_rank_waits *t = &r->so_far;
    double begin;
    r->on = *on;
    t->held_by = call;
    if (!complete(w, on, &begin, end))
        return false;
    const double until = fmax(*end, t->now);
    begin = fmin(fmax(begin, t->now), until);
    t->wait_s += begin - t->now;
    if (group >= ORTH_NUM_GROUPS) { /* copies and the host wait for each other: it is copies as far as the host has no more to do */
        const double host = fmin(until - begin, r->host);
        t->host_s += host;
        t->move_s += until - begin - host;
    } else {
        t->comm_s += until - begin;
        t->comm_by_group[group] += until - begin;
    }
    pass_time(r, until - t->now);
    return true;
}

static void post(orth_waits *w, int rank, const orth_wait_list *l, int32_t call)
{
    const orth_wait_call *e = orth_wait_list_at(l, call), *last = call > 0 ? orth_wait_list_at(l, call - 1) : NULL;
    rank_state *r = &w->ranks[rank];
    const int32_t q = e->queue;
    r->on = orth_wait_is_alone(e)         ? post_alone(r, e)
            : orth_op_is_message(e->op) ? post_message(w, rank, w->instances->of[rank][e->group], e)
                                        : post_collective(w, rank, w->instances->of[rank][e->group], e);
    if (q <= 0)
        return;
    const bool another = last && last->instr == e->instr && last->count == 0;
    r->made[q] += !another;
    r->ring[q][(r->made[q] - 1) % l->most[q]] = (pending){r->on, call};
}

/* What event or call `at` holds its rank for; false: it must wait for others. */
static bool pass(const orth_waits *w, rank_state *r, const orth_wait_list *l, int32_t at)
{
    const orth_wait_call *e = orth_wait_list_at(l, at);
    const int32_t q = e->queue;
    double end;
    if (e->of_alone) {
        const int32_t last = r->made[q] - 1, from = ORTH_MAX(r->made[q] - l->most[q], 0), want = e->count - 1;
        if (want >= from && want <= last)
            r->alone_from = fmax(r->alone_from, r->ring[q][want % l->most[q]].on.end);
        return true;
    }
    if (e->count == 0)
        return q != 0 || hold(w, r, &r->on, at, e->group, &end);
    for (; r->complete[q] < e->count; r->complete[q]++) {
        const pending *x = &r->ring[q][r->complete[q] % l->most[q]];
        if (!hold(w, r, &x->on, x->call, e->group, &end))
            return false;
        if (r->so_far.ends)
            r->so_far.ends[x->call] = end;
    }
    return true;
}

/* Goes on until the rank must wait for others, or ends. */
static void advance(orth_waits *w, int rank)
{
    const orth_wait_list *l = w->lists[rank];
    rank_state *r = &w->ranks[rank];
    orth_rank_waits *t = &r->so_far;
    const int32_t until = w->until ? w->until[rank] : l->num_calls;
    for (; t->at < until; t->at++) {
        if (!r->posted) {
            const orth_wait_call *e = orth_wait_list_at(l, t->at);
            pass_time(r, e->before);
            if (e->count == 0)
                post(w, rank, l, t->at);
            r->posted = true;
        }
        if (!pass(w, r, l, t->at))
            return;
        r->posted = false;
        if (t->ends)
            t->ends[t->at] = t->now;
    }
    if (t->at < l->num_calls)
        return;
    t->now += r->ended ? 0 : l->after;
    r->ended = true;
}

static void run_all(orth_waits *w)
{
    for (int r = 0; r < w->num_ranks; r++)
        wake(w, r);
    while (w->num_queued > 0) {
        const int rank = w->queue[w->head];
        w->head = (w->head + 1) % w->num_ranks;
        w->num_queued--;
        w->ranks[rank].queued = false;
        advance(w, rank);
    }
}

orth_status orth_waits_run(orth_ctx *ctx, orth_arena *arena, orth_waits **out, const orth_instances *instances, int num_ranks,
                           const orth_wait_list *const *lists, const int32_t *until, bool keep_ends)
{
    orth_waits *w = ORTH_ARENA_ARRAY(ctx, arena, orth_waits, 1);
    if (!w)
        return ORTH_ERR_NOMEM;
    *w = (orth_waits){.instances = instances, .lists = lists, .until = until, .num_ranks = num_ranks};
    ORTH_TRY(make_room(ctx, arena, w, NULL, NULL, keep_ends));
    run_all(w);
    *out = w;
    return ORTH_OK;
}

orth_status orth_waits_go_on(orth_ctx *ctx, orth_arena *arena, orth_waits **out, const orth_instances *instances, int num_ranks,
                             const orth_wait_list *const *lists, const orth_waits *from, const int32_t *like, bool keep_ends)
{
    orth_waits *w = ORTH_ARENA_ARRAY(ctx, arena, orth_waits, 1);
    if (!w)
        return ORTH_ERR_NOMEM;
    *w = (orth_waits){.instances = instances, .lists = lists, .num_ranks = num_ranks};
    ORTH_TRY(make_room(ctx, arena, w, from, like, keep_ends));
    for (int r = 0; r < num_ranks; r++)
        copy_rank(w, r, from, &from->ranks[like[r]]);
    for (int32_t i = 0; i < instances->num; i++)
        copy_channel(w, i, from, like);
    run_all(w);
    *out = w;
    return ORTH_OK;
}

const orth_rank_waits *orth_waits_of(const orth_waits *w, int rank)
{
    return &w->ranks[rank].so_far;
}

int orth_waits_for(const orth_waits *w, int rank)
{
    const condition *on = &w->ranks[rank].on;
    const channel *c = &w->channels[on->channel];
    if (on->peer >= 0)
        return c->ranks[on->peer];
    for (int i = 0; i < c->n; i++)
        if (c->posted[i] <= on->at)
            return c->ranks[i];
    return rank;
}
