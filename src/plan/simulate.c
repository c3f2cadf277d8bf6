/* simulate.c -- see simulate.h.
 *
 *   source --digest--> calls of each rank --run--> when each is complete --clock--> times of all instructions
 *
 * Of a program its calls are kept, with the seconds of computing before each; programs are made again where every
 * instruction is wanted.
 */
#include "plan/simulate.h"

#include <math.h>

#include "program/ir/comm_call.h"
#include "program/ir/cost.h"
#include "program/check/rank_instances.h"

double orth_seconds_by_rates(void *rates, const orth_program *p, int32_t instr, int k, const orth_rank_groups *groups)
{
    const orth_rates *r = rates;
    const orth_instr *n = &p->instrs[instr];
    if (!orth_op_is_comm(n->op)) {
        const orth_cost c = orth_instr_cost(n);
        return fmax(c.hardware_flops / r->flops, c.bytes / r->bytes);
    }
    const orth_comm_call call = orth_instr_call(n, instr, k, groups->size[n->attr.group]);
    const int64_t received = call.count * (int64_t)orth_dtype_bytes(call.dtype);
    const int64_t sent = orth_comm_bytes(groups->size[n->attr.group], groups->pos[n->attr.group], &call);
    return 2 * (double)(call.kind == ORTH_COMM_RECV ? received : sent) / r->bytes;
}

/* ---- what is kept of a program ---- */

typedef struct {
    double before;   /* seconds of computing since the call before */
    double seconds;  /* of this one */
    int32_t instr, peer, ticket;
    uint8_t op, group;
} call;

typedef struct {
    call *calls;
    int32_t num_calls;
    double after;    /* seconds of computing after the last */
    double compute;  /* in all */
    bool sends_on[ORTH_NUM_GROUPS];
    int32_t num_instrs;
} digest;

/* ---- communicators ---- */

/* Members of one group. Message number i of a pair (from * n + to) has its place at first[pair] + i. */
typedef struct {
    int32_t n;
    const int32_t *ranks;
    int32_t *posted;             /* [n] collectives that each member has posted */
    int32_t *arrived;            /* [collectives] members that have posted it */
    double *begin, *length;      /* [collectives] the latest to come; the longest of the members' */
    double free_at;              /* end of the last complete collective */
    int32_t *first, *sent, *received;              /* [n*n]; NULL: no messages */
    double *sent_at, *received_at, *transfer;      /* [messages]; NOT_YET */
} channel;

#define NOT_YET (-1.0)

/* What a rank waits for. */
typedef struct {
    int32_t channel, at;         /* number of the collective, or place of the message */
    bool message;
} condition;

typedef struct {
    double now;
    int32_t at;                  /* call */
    bool posted, queued;
    condition on, tickets[ORTH_MAX_TICKETS];
    double *ends;                /* [num_calls] */
} rank_state;

typedef struct {
    orth_ctx *ctx;
    const orth_rank_source *source;
    orth_seconds_fn seconds;
    void *user;
    int num_ranks;
    orth_arena arena;
    digest **digests;            /* [num_ranks] */
    channel *channels;
    int32_t (*of)[ORTH_NUM_GROUPS];   /* [num_ranks] channel of each group; -1 */
    orth_rank_groups *groups;    /* [num_ranks] */
    rank_state *ranks;
    orth_rank_time *times;
    int32_t *queue;              /* ranks that may go on: a ring of num_ranks */
    int32_t head, num_queued;
} simulation;

static orth_status find_groups(simulation *x)
{
    orth_instances all;
    ORTH_TRY(orth_instances_find(x->ctx, &x->arena, x->source, &all));
    x->of = all.of;
    x->channels = ORTH_ARENA_ARRAY(x->ctx, &x->arena, channel, ORTH_MAX(all.num, 1));
    if (!x->channels)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < all.num; i++)
        x->channels[i] = (channel){.n = all.list[i].n, .ranks = all.list[i].ranks};
    for (int r = 0; r < x->num_ranks; r++)
        for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
            x->groups[r].size[g] = all.of[r][g] >= 0 ? all.list[all.of[r][g]].n : 1;
            x->groups[r].pos[g] = all.of[r][g] >= 0 ? all.pos[r][g] : 0;
        }
    return ORTH_OK;
}

static void add_compute(digest *d)
{
    d->compute = d->after;
    for (int32_t k = 0; k < d->num_calls; k++)
        d->compute += d->calls[k].before;
}

static orth_status make_digest(simulation *x, int rank, digest *d)
{
    orth_rank_program r;
    ORTH_TRY(x->source->program(x->ctx, x->source->user, rank, &r));
    const orth_program *p = r.program;
    d->num_instrs = p->num_instrs;
    d->calls = ORTH_ARENA_ARRAY(x->ctx, &x->arena, call, orth_program_num_events(p) + 1);
    if (!d->calls)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (!orth_op_is_comm(n->op)) {
            d->after += x->seconds(x->user, p, i, 0, &x->groups[rank]);
            continue;
        }
        for (int k = 0; k < (orth_op_is_wait(n->op) ? 1 : orth_instr_num_calls(n)); k++) {
            const double s = orth_op_is_wait(n->op) ? 0 : x->seconds(x->user, p, i, k, &x->groups[rank]);
            d->calls[d->num_calls++] = (call){d->after, s, i, n->attr.peer, n->attr.ticket, (uint8_t)n->op,
                                              (uint8_t)n->attr.group};
            d->after = 0;
        }
        d->sends_on[n->attr.group] = d->sends_on[n->attr.group] || n->op == ORTH_OP_send;
    }
    add_compute(d);
    return ORTH_OK;
}

/* The first call of the digest that is made by instruction i, or after it. */
static int32_t first_call_from(const digest *d, int32_t i)
{
    int32_t low = 0, high = d->num_calls;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (d->calls[middle].instr < i)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Computing between call k - 1 and call k, again. */
static void time_computing(simulation *x, int rank, const orth_program *p, digest *d, int32_t k)
{
    double *sum = k < d->num_calls ? &d->calls[k].before : &d->after;
    const int32_t end = k < d->num_calls ? d->calls[k].instr : d->num_instrs;
    *sum = 0;
    for (int32_t i = k > 0 ? d->calls[k - 1].instr + 1 : 0; i < end; i++)
        *sum += x->seconds(x->user, p, i, 0, &x->groups[rank]);
}

/* Of a rank that shares the program of `like`: only the instructions that are its own take another time. */
static orth_status make_digest_like(simulation *x, int rank, const digest *like, digest *d)
{
    orth_rank_program r;
    ORTH_TRY(x->source->program(x->ctx, x->source->user, rank, &r));
    const orth_program *p = r.program;
    *d = *like;
    d->calls = ORTH_ARENA_ARRAY(x->ctx, &x->arena, call, d->num_calls + 1);
    if (!d->calls)
        return ORTH_ERR_NOMEM;
    memcpy(d->calls, like->calls, (size_t)d->num_calls * sizeof *d->calls);
    for (int32_t at = 0, done = -1; at < p->num_own; at++) {
        const int32_t i = p->own[at], k = first_call_from(d, i);
        const orth_instr *n = &p->instrs[i];
        if (orth_op_is_wait(n->op))
            continue;
        for (int j = 0; orth_op_is_comm(n->op) && j < orth_instr_num_calls(n); j++)
            d->calls[k + j].seconds = x->seconds(x->user, p, i, j, &x->groups[rank]);
        if (!orth_op_is_comm(n->op) && k != done)
            time_computing(x, rank, p, d, done = k);
    }
    add_compute(d);
    return ORTH_OK;
}

static orth_status read_programs(simulation *x)
{
    const orth_rank_source *s = x->source;
    for (int r = 0; r < x->num_ranks; r++) {
        const int same = s->same_as ? s->same_as(s->user, r) : r, twin = s->twin_of ? s->twin_of(s->user, r) : same;
        x->digests[r] = twin < r ? x->digests[twin] : ORTH_ARENA_ARRAY(x->ctx, &x->arena, digest, 1);
        if (!x->digests[r])
            return ORTH_ERR_NOMEM;
        if (twin == r)
            ORTH_TRY(same < r ? make_digest_like(x, r, x->digests[same], x->digests[r]) : make_digest(x, r, x->digests[r]));
        x->ranks[r].ends = ORTH_ARENA_ARRAY(x->ctx, &x->arena, double, x->digests[r]->num_calls + 1);
        if (!x->ranks[r].ends)
            return ORTH_ERR_NOMEM;
    }
    return ORTH_OK;
}

static bool is_message(const call *e)
{
    return orth_op_is_message(e->op);
}

/* Counts the messages of each pair into c->first, which become places. */
static orth_status open_messages(simulation *x, channel *c, int g)
{
    int64_t messages = 0, pairs = (int64_t)c->n * c->n;
    c->first = ORTH_ARENA_ARRAY(x->ctx, &x->arena, int32_t, 3 * pairs);
    if (!c->first)
        return ORTH_ERR_NOMEM;
    c->sent = c->first + pairs;
    c->received = c->sent + pairs;
    for (int m = 0; m < c->n; m++) {
        const digest *d = x->digests[c->ranks[m]];
        for (int32_t i = 0; d->sends_on[g] && i < d->num_calls; i++)
            if (d->calls[i].group == g && d->calls[i].op == ORTH_OP_send)
                c->first[(int64_t)m * c->n + d->calls[i].peer]++;
    }
    for (int64_t i = 0; i < pairs; i++) {
        const int32_t num = c->first[i];
        c->first[i] = (int32_t)messages;
        messages += num;
    }
    c->sent_at = ORTH_ARENA_ARRAY(x->ctx, &x->arena, double, 3 * messages + 1);
    if (!c->sent_at)
        return ORTH_ERR_NOMEM;
    c->received_at = c->sent_at + messages;
    c->transfer = c->received_at + messages;
    for (int64_t i = 0; i < 2 * messages; i++)
        c->sent_at[i] = NOT_YET;
    return ORTH_OK;
}

/* Room for the calls of group g. */
static orth_status open_channel(simulation *x, channel *c, int g)
{
    const digest *first = x->digests[c->ranks[0]];
    int64_t collectives = 0;
    bool sends = false;
    for (int32_t i = 0; i < first->num_calls; i++)
        collectives += first->calls[i].group == g && !is_message(&first->calls[i]);
    c->posted = ORTH_ARENA_ARRAY(x->ctx, &x->arena, int32_t, c->n);
    c->arrived = ORTH_ARENA_ARRAY(x->ctx, &x->arena, int32_t, collectives + 1);
    c->begin = ORTH_ARENA_ARRAY(x->ctx, &x->arena, double, 2 * collectives + 1);
    if (!c->posted || !c->arrived || !c->begin)
        return ORTH_ERR_NOMEM;
    c->length = c->begin + collectives;
    for (int m = 0; m < c->n; m++)
        sends = sends || x->digests[c->ranks[m]]->sends_on[g];
    return sends ? open_messages(x, c, g) : ORTH_OK;
}

static orth_status open_channels(simulation *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            if (x->of[r][g] >= 0 && !x->channels[x->of[r][g]].posted)
                ORTH_TRY(open_channel(x, &x->channels[x->of[r][g]], g));
    return ORTH_OK;
}

/* ---- running ---- */

static void wake(simulation *x, int rank)
{
    if (x->ranks[rank].queued)
        return;
    x->ranks[rank].queued = true;
    x->queue[(x->head + x->num_queued++) % x->num_ranks] = rank;
}

static condition post(simulation *x, int rank, const call *e)
{
    const int32_t id = x->of[rank][e->group], me = x->groups[rank].pos[e->group];
    const double now = x->ranks[rank].now;
    channel *c = &x->channels[id];
    if (is_message(e)) {
        const bool sends = e->op == ORTH_OP_send;
        const int32_t pair = sends ? me * c->n + e->peer : e->peer * c->n + me;
        const int32_t at = c->first[pair] + (sends ? c->sent : c->received)[pair]++;
        (sends ? c->sent_at : c->received_at)[at] = now;
        c->transfer[at] = fmax(c->transfer[at], e->seconds);
        wake(x, c->ranks[e->peer]);
        return (condition){id, at, true};
    }
    const int32_t at = c->posted[me]++;
    c->begin[at] = fmax(c->begin[at], now);
    c->length[at] = fmax(c->length[at], e->seconds);
    if (++c->arrived[at] == c->n) {
        c->begin[at] = fmax(c->begin[at], c->free_at);
        c->free_at = c->begin[at] + c->length[at];
        for (int i = 0; i < c->n; i++)
            wake(x, c->ranks[i]);
    }
    return (condition){id, at, false};
}

/* Whether the call has all it takes; then when it began and ended. */
static bool complete(const simulation *x, const condition *on, double *begin, double *end)
{
    const channel *c = &x->channels[on->channel];
    if (on->message) {
        *begin = fmax(c->sent_at[on->at], c->received_at[on->at]);
        *end = *begin + c->transfer[on->at];
        return c->sent_at[on->at] >= 0 && c->received_at[on->at] >= 0;
    }
    *begin = c->begin[on->at];
    *end = *begin + c->length[on->at];
    return c->arrived[on->at] == c->n;
}

/* Goes on until the rank must wait for others, or ends. */
static void advance(simulation *x, int rank)
{
    const digest *d = x->digests[rank];
    rank_state *r = &x->ranks[rank];
    orth_rank_time *t = &x->times[rank];
    for (; r->at < d->num_calls; r->at++) {
        const call *e = &d->calls[r->at];
        if (!r->posted) {
            r->now += e->before;
            r->on = orth_op_is_wait(e->op) ? r->tickets[e->ticket % ORTH_MAX_TICKETS] : post(x, rank, e);
            r->posted = true;
            if (!orth_op_is_wait(e->op) && e->ticket > 0)
                r->tickets[e->ticket % ORTH_MAX_TICKETS] = r->on;
        }
        if (orth_op_is_wait(e->op) || e->ticket <= 0) {
            double begin, end;
            if (!complete(x, &r->on, &begin, &end))
                return;
            end = fmax(end, r->now);
            begin = fmin(fmax(begin, r->now), end);
            t->wait_s += begin - r->now;
            t->comm_s += end - begin;
            r->now = end;
        }
        r->posted = false;
        r->ends[r->at] = r->now;
    }
}

static orth_status run(simulation *x)
{
    double step = 0;
    for (int r = 0; r < x->num_ranks; r++)
        wake(x, r);
    while (x->num_queued > 0) {
        const int rank = x->queue[x->head];
        x->head = (x->head + 1) % x->num_ranks;
        x->num_queued--;
        x->ranks[rank].queued = false;
        advance(x, rank);
    }
    for (int r = 0; r < x->num_ranks; r++) {
        if (x->ranks[r].at < x->digests[r]->num_calls)
            return ORTH_FAIL(x->ctx, ORTH_ERR_INTERNAL, "simulation: rank %d never gets past instruction %d", r,
                             (int)x->digests[r]->calls[x->ranks[r].at].instr);
        x->times[r].compute_s = x->digests[r]->compute;
        x->ranks[r].now += x->digests[r]->after;
        step = fmax(step, x->ranks[r].now);
    }
    for (int r = 0; r < x->num_ranks; r++) {
        x->times[r].step_s = step;
        x->times[r].wait_s += step - x->ranks[r].now;
    }
    return ORTH_OK;
}

/* ---- every instruction ---- */

static orth_status fill_clock(simulation *x, int rank, int64_t *clock)
{
    const digest *d = x->digests[rank];
    orth_rank_program r;
    ORTH_TRY(x->source->program(x->ctx, x->source->user, rank, &r));
    double now = 0;
    int32_t k = 0;
    clock[0] = 0;
    for (int32_t i = 0; i < r.program->num_instrs; i++) {
        if (!orth_op_is_comm(r.program->instrs[i].op))
            now += x->seconds(x->user, r.program, i, 0, &x->groups[rank]);
        for (; k < d->num_calls && d->calls[k].instr == i; k++)
            now = x->ranks[rank].ends[k];
        clock[i + 1] = llround(1e9 * now);
    }
    return ORTH_OK;
}

static orth_status simulate(simulation *x, int64_t *const *clock)
{
    const int R = x->num_ranks;
    x->digests = ORTH_ARENA_ARRAY(x->ctx, &x->arena, digest *, R);
    x->groups = ORTH_ARENA_ARRAY(x->ctx, &x->arena, orth_rank_groups, R);
    x->ranks = ORTH_ARENA_ARRAY(x->ctx, &x->arena, rank_state, R);
    x->queue = ORTH_ARENA_ARRAY(x->ctx, &x->arena, int32_t, R);
    if (!x->digests || !x->groups || !x->ranks || !x->queue)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < R; r++)
        x->times[r] = (orth_rank_time){0};
    ORTH_TRY(find_groups(x));
    ORTH_TRY(read_programs(x));
    ORTH_TRY(open_channels(x));
    ORTH_TRY(run(x));
    for (int r = 0; clock && r < R; r++)
        ORTH_TRY(fill_clock(x, r, clock[r]));
    return ORTH_OK;
}

orth_status orth_simulate_step(orth_ctx *ctx, const orth_rank_source *source, orth_seconds_fn seconds, void *user,
                               orth_rank_time *times, int64_t *const *clock)
{
    simulation x = {.ctx = ctx, .source = source, .seconds = seconds, .user = user, .num_ranks = source->num_ranks,
                    .times = times};
    const orth_status s = simulate(&x, clock);
    orth_arena_release(ctx, &x.arena);
    return s;
}
