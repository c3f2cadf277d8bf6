/* simulate.c -- see simulate.h.
 *
 *   source --digest--> calls of each rank --waits.h--> when each is complete --clock--> times of all instructions
 *
 * Of a program its calls are kept, with the seconds of computing before each; programs are made again where every
 * instruction is wanted. Ranks of a class take other times in the update only, where each has its own shard: up to there one rank of
 * each class is run, from there on those whose times differ. Calls of one device that run at once share its links (contention.h): how much longer
 * they take is found by clocks of one rank of each class.
 */
#include "plan/simulate.h"

#include <math.h>
#include <xxhash.h>

#include "program/ir/comm_call.h"
#include "program/ir/cost.h"
#include "program/check/alike.h"

double orth_seconds_by_rates(void *rates, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups)
{
    (void)rank;
    const orth_rates *r = rates;
    const orth_instr *n = &p->instrs[instr];
    if (!orth_op_is_comm(n->op)) {
        const orth_cost c = orth_instr_cost(n);
        if (orth_instr_moves_file(p, n))
            return orth_file_seconds(&r->file, p, n);
        return fmax(c.hardware_flops / r->flops, c.bytes / r->bytes);
    }
    const orth_comm_call call = orth_instr_call(n, instr, k, groups->size[n->attr->group]);
    const int64_t received = call.count * (int64_t)orth_dtype_bytes(call.dtype);
    const int64_t sent = orth_comm_bytes(groups->size[n->attr->group], groups->pos[n->attr->group], &call);
    return 2 * (double)(call.kind == ORTH_COMM_RECV ? received : sent) / r->bytes;
}

/* What is kept of a program. */
typedef struct digest {
    orth_wait_list waits;
    double compute;  /* seconds in all, */
    double update;   /* and of the update */
    int32_t num_instrs;
    int32_t own;     /* calls before the first whose time is the rank's own */
    orth_port_load *loads;          /* of the first: [num_calls]; NULL: no call can meet another */
    bool slowed;
    uint64_t hash;   /* of the calls from `own` on, */
    struct digest *spare; /* of a first: the next one with other times, whose calls before `own` are there already */
    int32_t kind;    /* of its rank (orth_timing) */
    struct digest *first, *other; /* the first that has the same program and kind; the one before with other times */
    struct digest *next_kind;     /* the first of the same program on ranks of another kind */
} digest;

typedef struct {
    orth_ctx *ctx;
    const orth_rank_source *source;
    const orth_timing *timing;
    int num_ranks;
    orth_arena arena;
    digest **digests;               /* [num_ranks] */
    const orth_wait_list **lists;   /* [num_ranks] of the digests */
    bool differ;                    /* some ranks share a program and have other times */
    orth_instances instances;
    orth_rank_groups *groups;       /* [num_ranks] */
    orth_alike alike;
    orth_waits *waits;              /* of those that are alike one */
    orth_rank_time *times;
} simulation;

static orth_status find_groups(simulation *x)
{
    orth_instances *all = &x->instances;
    ORTH_TRY(orth_instances_find(x->ctx, &x->arena, x->source, all));
    for (int r = 0; r < x->num_ranks; r++)
        for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
            x->groups[r].size[g] = all->of[r][g] >= 0 ? all->list[all->of[r][g]].n : 1;
            x->groups[r].pos[g] = all->of[r][g] >= 0 ? all->pos[r][g] : 0;
        }
    return ORTH_OK;
}

/* ---- programs ---- */

/* A copy beside computing, or what the host computes. */
static bool is_alone(const orth_program *p, const orth_instr *n)
{
    return n->queue > 0 && orth_queue_is_alone(&p->queues[n->queue]);
}

/* Whether it takes the rank that long, as all computing does but that of a host beside the device. */
static bool takes_rank(const simulation *x, const orth_program *p, const orth_instr *n)
{
    if (is_alone(p, n))
        return p->queues[n->queue].kind == ORTH_QUEUE_HOST && !x->timing->host_is_beside;
    return !orth_op_is_comm(n->op);
}

static void add_compute(digest *d)
{
    d->compute = d->waits.after;
    for (int32_t k = 0; k < d->waits.num_calls; k++)
        d->compute += orth_wait_list_at(&d->waits, k)->before;
}

/* The first call that is made, or event that is waited for, behind the events of instruction i. */
static int32_t first_call_from(const orth_wait_list *l, int32_t i)
{
    int32_t low = 0, high = l->num_calls;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        const orth_wait_call *c = orth_wait_list_at(l, middle);
        if (c->instr < i || (c->instr == i && c->count > 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void find_own(const orth_program *p, digest *d)
{
    d->own = d->waits.num_calls;
    for (int32_t at = 0; at < p->num_own; at++)
        d->own = ORTH_MIN(d->own, first_call_from(&d->waits, p->own[at]));
}

static int32_t kind_of(const simulation *x, int rank)
{
    return x->timing->kind_of ? x->timing->kind_of[rank] : 0;
}

/* Of calls beside computing, and of those that they may meet. */
static orth_status find_loads(simulation *x, int rank, const orth_program *p, digest *d)
{
    bool any = false;
    for (int32_t k = 0; k < d->waits.num_calls; k++)
        any = any || (d->waits.calls[k].count == 0 && !orth_wait_is_alone(&d->waits.calls[k]) && d->waits.calls[k].queue > 0);
    if (!any)
        return ORTH_OK;
    d->loads = ORTH_ARENA_ARRAY(x->ctx, &x->arena, orth_port_load, d->waits.num_calls);
    if (!d->loads)
        return ORTH_ERR_NOMEM;
    for (int32_t k = 0, i = -1, part = 0; k < d->waits.num_calls; k++) {
        const orth_wait_call *c = &d->waits.calls[k];
        if (c->count > 0 || orth_wait_is_alone(c))
            continue;
        part = c->instr == i ? part + 1 : 0;
        i = c->instr;
        d->loads[k] = x->timing->load(x->timing->user, p, i, part, rank, &x->groups[rank]);
    }
    return ORTH_OK;
}

static orth_status make_digest(simulation *x, int rank, digest **out)
{
    orth_rank_program r;
    digest *d = *out = ORTH_ARENA_ARRAY(x->ctx, &x->arena, digest, 1);
    if (!d)
        return ORTH_ERR_NOMEM;
    orth_wait_list *l = &d->waits;
    ORTH_TRY(x->source->program(x->ctx, x->source->user, rank, &r));
    const orth_program *p = r.program;
    d->num_instrs = p->num_instrs;
    d->kind = kind_of(x, rank);
    ORTH_TRY(orth_wait_list_open(x->ctx, &x->arena, l, p));
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        const bool takes = takes_rank(x, p, n);
        orth_wait_list_add_events(l, p, i, takes);
        if (!orth_op_is_comm(n->op)) {
            const double s = x->timing->seconds(x->timing->user, p, i, 0, rank, &x->groups[rank]);
            if (is_alone(p, n))
                orth_wait_list_add_alone(l, p, i, takes ? 0 : s);
            l->after += takes ? s : 0;
            d->update += takes && n->phase == ORTH_PHASE_UPDATE ? s : 0;
            continue;
        }
        for (int k = 0; k < orth_instr_num_calls(n); k++)
            orth_wait_list_add_call(l, p, i, x->timing->seconds(x->timing->user, p, i, k, rank, &x->groups[rank]));
    }
    orth_wait_list_close(l, p);
    if (x->timing->load)
        ORTH_TRY(find_loads(x, rank, p, d));
    add_compute(d);
    find_own(p, d);
    d->first = d;
    return ORTH_OK;
}

/* Computing between call or event k - 1 and k, again: what waits for event k - 1 is behind it. */
static void time_computing(simulation *x, int rank, const orth_program *p, digest *of, int32_t k)
{
    orth_wait_list *l = &of->waits;
    double *sum = k < l->num_calls ? &orth_wait_list_at(l, k)->before : &l->after;
    const int32_t end = k < l->num_calls ? orth_wait_list_at(l, k)->instr : of->num_instrs;
    *sum = 0;
    for (int32_t i = k > 0 ? orth_wait_list_at(l, k - 1)->instr : 0; i < end; i++)
        if (takes_rank(x, p, &p->instrs[i]))
            *sum += x->timing->seconds(x->timing->user, p, i, 0, rank, &x->groups[rank]);
}

/* Only the instructions that are the rank's own take another time. */
static void time_own(simulation *x, int rank, const orth_program *p, digest *d)
{
    orth_wait_list *l = &d->waits;
    for (int32_t at = 0, done = -1; at < p->num_own; at++) {
        const int32_t i = p->own[at], k = first_call_from(l, i);
        const orth_instr *n = &p->instrs[i];
        const bool takes = takes_rank(x, p, n);
        const int num = takes ? 0 : is_alone(p, n) ? 1 : orth_instr_num_calls(n);
        const int32_t before = k + is_alone(p, n); /* computing is behind the call that stands for it */
        for (int j = 0; j < num; j++)
            orth_wait_list_at(l, k + j)->seconds = x->timing->seconds(x->timing->user, p, i, j, rank, &x->groups[rank]);
        if (takes && before != done)
            time_computing(x, rank, p, d, done = before);
    }
    add_compute(d);
}

/* One like `like`, whose calls from `own` on, timed for each rank anew, are a list of their own. */
static orth_status make_spare(simulation *x, digest *like)
{
    const int32_t num = like->waits.num_calls - like->own;
    digest *d = ORTH_ARENA_ARRAY(x->ctx, &x->arena, digest, 1);
    orth_wait_call *own = ORTH_ARENA_ARRAY(x->ctx, &x->arena, orth_wait_call, num + 1);
    if (!d || !own)
        return ORTH_ERR_NOMEM;
    *d = *like; /* its `first`, too */
    d->spare = NULL;
    d->waits.tail = own;
    d->waits.tail_from = like->own;
    if (num > 0)
        memcpy(own, like->waits.calls + like->own, (size_t)num * sizeof *own);
    like->spare = d;
    return ORTH_OK;
}

/* Of a rank that shares the program of `like`. Ranks with the same times share a digest. */
static orth_status make_digest_like(simulation *x, int rank, digest *like, digest **out)
{
    const size_t bytes = (size_t)(like->waits.num_calls - like->own) * sizeof *like->waits.calls;
    orth_rank_program r;
    ORTH_TRY(x->source->program(x->ctx, x->source->user, rank, &r));
    if (!like->spare)
        ORTH_TRY(make_spare(x, like));
    digest *d = like->spare;
    d->waits.after = like->waits.after;
    time_own(x, rank, r.program, d);
    d->hash = XXH64(d->waits.tail, bytes, 0);
    for (*out = like->other; *out; *out = (*out)->other)
        if ((*out)->hash == d->hash && (*out)->waits.after == d->waits.after && (*out)->update == d->update &&
            memcmp((*out)->waits.tail, d->waits.tail, bytes) == 0)
            return ORTH_OK;
    *out = d;
    d->other = like->other;
    like->other = d;
    like->spare = NULL;
    x->differ = true;
    return ORTH_OK;
}

/* Of a rank that is not the lowest with its program. `same`: of that one. */
static orth_status find_digest(simulation *x, int rank, digest *same, digest **out)
{
    digest *first = same->first;
    while (first->kind != kind_of(x, rank) && first->next_kind)
        first = first->next_kind;
    if (first->kind == kind_of(x, rank))
        return make_digest_like(x, rank, first, out);
    ORTH_TRY(make_digest(x, rank, out));
    first->next_kind = *out;
    return ORTH_OK;
}

static orth_status read_programs(simulation *x)
{
    const orth_rank_source *s = x->source;
    for (int r = 0; r < x->num_ranks; r++) {
        const int same = s->same_as ? s->same_as(s->user, r) : r, twin = s->twin_of ? s->twin_of(s->user, r) : same;
        if (twin < r && kind_of(x, twin) == kind_of(x, r))
            x->digests[r] = x->digests[twin];
        else if (same < r)
            ORTH_TRY(find_digest(x, r, x->digests[same], &x->digests[r]));
        else
            ORTH_TRY(make_digest(x, r, &x->digests[r]));
        x->lists[r] = &x->digests[r]->waits;
    }
    return ORTH_OK;
}

/* ---- links that calls share ---- */

/* Clocks before the last one: the calls of each begin when the clock before says, and take what the links of their devices leave them. Two settle
 * nearly every step. */
#define SHARING_RUNS 2
#define SETTLED 1e-3

/* The seconds that the calls of one colour take when they share links as in `w`. *changed: some take another time now. */
static void share_links(const orth_wait_list *alone, const orth_port_load *loads, const orth_rank_waits *w, orth_transfer *room, orth_wait_list *l,
                        bool *changed)
{
    int32_t num = 0;
    double next = 0; /* when the call behind this one begins */
    for (int32_t k = alone->num_calls - 1; k >= 0; k--) {
        const orth_wait_call *c = &l->calls[k];
        const bool one_of = c->queue > 0 && k + 1 < alone->num_calls && c[1].instr == c->instr && c[1].count == 0; /* ends are kept of the last */
        if (!loads[k].used)
            continue;
        next = (one_of ? next : w->ends[k]) - c->seconds;
        room[num++] = (orth_transfer){.begin = next, .seconds = alone->calls[k].seconds, .load = loads[k], .call = k};
    }
    orth_contention_run(room, num);
    for (int32_t i = 0; i < num; i++) {
        double *seconds = &l->calls[room[i].call].seconds;
        const double now = room[i].end - room[i].begin;
        *changed = *changed || fabs(now - *seconds) > SETTLED * *seconds;
        *seconds = now;
    }
}

/* A class of ranks whose calls share links. */
typedef struct {
    const digest *first;
    orth_wait_list list;   /* with the seconds that its calls take */
} sharing;

static orth_status open_sharing(simulation *x, const orth_alike *a, sharing *s, const orth_wait_list **lists, orth_transfer **room)
{
    int32_t most = 1;
    for (int r = 0; r < x->num_ranks; r++)
        s[a->of[r]].first = x->digests[r]->first;
    for (int32_t c = 0; c < a->num; c++) {
        const size_t bytes = (size_t)a->lists[c]->num_calls * sizeof *a->lists[c]->calls;
        s[c].list = *a->lists[c];
        s[c].list.calls = ORTH_ARENA_ARRAY(x->ctx, &x->arena, orth_wait_call, a->lists[c]->num_calls + 1);
        if (!s[c].list.calls)
            return ORTH_ERR_NOMEM;
        if (bytes > 0)
            memcpy(s[c].list.calls, a->lists[c]->calls, bytes);
        lists[c] = &s[c].list;
        most = ORTH_MAX(most, a->lists[c]->num_calls);
    }
    *room = ORTH_ARENA_ARRAY(x->ctx, &x->arena, orth_transfer, most);
    return *room ? ORTH_OK : ORTH_ERR_NOMEM;
}

static orth_status run_sharing(simulation *x, const orth_alike *a, sharing *s)
{
    const orth_wait_list **lists = ORTH_ARENA_ARRAY(x->ctx, &x->arena, const orth_wait_list *, a->num);
    orth_transfer *room;
    bool changed = true;
    if (!lists)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(open_sharing(x, a, s, lists, &room));
    for (int run = 0; run < SHARING_RUNS && changed; run++) {
        orth_waits *w;
        changed = false;
        ORTH_TRY(orth_waits_run(x->ctx, &x->arena, &w, &a->instances, a->num, lists, NULL, true));
        for (int32_t c = 0; c < a->num; c++)
            if (s[c].first->loads)
                share_links(a->lists[c], s[c].first->loads, orth_waits_of(w, c), room, &s[c].list, &changed);
    }
    return ORTH_OK;
}

/* How much longer each call of a program takes on the ranks where that is the most; all that share the program take so much longer. */
static orth_status slow_down(simulation *x, digest *first, const sharing *s, int32_t num)
{
    const int32_t n = first->waits.num_calls;
    double *longer = ORTH_ARENA_ARRAY(x->ctx, &x->arena, double, n + 1);
    if (!longer)
        return ORTH_ERR_NOMEM;
    for (int32_t c = 0; c < num; c++)
        for (int32_t k = 0; s[c].first == first && k < n; k++)
            if (first->loads[k].used)
                longer[k] = fmax(longer[k], s[c].list.calls[k].seconds / first->waits.calls[k].seconds);
    for (digest *d = first; d; d = d->other)
        for (int32_t k = d->waits.tail_from; k < n; k++) /* those before are the first's */
            orth_wait_list_at(&d->waits, k)->seconds *= fmax(1, longer[k]);
    return ORTH_OK;
}

/* Makes calls that meet on the links of a device longer. */
static orth_status share(simulation *x)
{
    const orth_wait_list **lists = ORTH_ARENA_ARRAY(x->ctx, &x->arena, const orth_wait_list *, x->num_ranks);
    orth_alike classes;
    bool any = false;
    if (!lists)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < x->num_ranks; r++) {
        lists[r] = &x->digests[r]->first->waits;
        any = any || x->digests[r]->first->loads;
    }
    if (!any)
        return ORTH_OK;
    ORTH_TRY(orth_alike_find(x->ctx, &x->arena, &classes, &x->instances, x->num_ranks, lists));
    sharing *s = ORTH_ARENA_ARRAY(x->ctx, &x->arena, sharing, classes.num);
    if (!s)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(run_sharing(x, &classes, s));
    for (int r = 0; r < x->num_ranks; r++)
        if (x->digests[r]->first == x->digests[r] && x->digests[r]->loads && !x->digests[r]->slowed) {
            x->digests[r]->slowed = true;
            ORTH_TRY(slow_down(x, x->digests[r], s, classes.num));
        }
    return ORTH_OK;
}

/* ---- running ---- */

static const orth_rank_waits *waits_of(const simulation *x, int rank)
{
    return orth_waits_of(x->waits, x->alike.of[rank]);
}

/* The ranks of each class as one, up to where their times may differ. */
static orth_status run_classes(simulation *x, orth_alike *classes, orth_waits **out, bool keep_ends)
{
    const orth_wait_list **lists = ORTH_ARENA_ARRAY(x->ctx, &x->arena, const orth_wait_list *, x->num_ranks);
    int32_t *until = ORTH_ARENA_ARRAY(x->ctx, &x->arena, int32_t, x->num_ranks);
    if (!lists || !until)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < x->num_ranks; r++)
        lists[r] = &x->digests[r]->first->waits;
    ORTH_TRY(orth_alike_find(x->ctx, &x->arena, classes, &x->instances, x->num_ranks, lists));
    for (int r = 0; r < x->num_ranks; r++)
        until[classes->of[r]] = x->digests[r]->own;
    return orth_waits_run(x->ctx, &x->arena, out, &classes->instances, classes->num, classes->lists, until, keep_ends);
}

static orth_status run_all(simulation *x, bool keep_ends)
{
    orth_alike classes, *a = &x->alike;
    orth_waits *begun;
    ORTH_TRY(orth_alike_find(x->ctx, &x->arena, a, &x->instances, x->num_ranks, x->lists));
    if (!x->differ)
        return orth_waits_run(x->ctx, &x->arena, &x->waits, &a->instances, a->num, a->lists, NULL, keep_ends);
    ORTH_TRY(run_classes(x, &classes, &begun, keep_ends));
    int32_t *like = ORTH_ARENA_ARRAY(x->ctx, &x->arena, int32_t, a->num);
    if (!like)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < x->num_ranks; r++)
        like[a->of[r]] = classes.of[r];
    return orth_waits_go_on(x->ctx, &x->arena, &x->waits, &a->instances, a->num, a->lists, begun, like, keep_ends);
}

static orth_status run(simulation *x, bool keep_ends)
{
    double step = 0;
    ORTH_TRY(run_all(x, keep_ends));
    for (int r = 0; r < x->num_ranks; r++) {
        const orth_rank_waits *w = waits_of(x, r);
        if (w->at < x->lists[r]->num_calls)
            return ORTH_FAIL(x->ctx, ORTH_ERR_INTERNAL, "simulation: rank %d never gets past instruction %d", r,
                             (int)orth_wait_list_at(x->lists[r], w->at)->instr);
        step = fmax(step, w->now);
    }
    for (int r = 0; r < x->num_ranks; r++) {
        const orth_rank_waits *w = waits_of(x, r);
        x->times[r] = (orth_rank_time){.step_s = step, .compute_s = x->digests[r]->compute + w->host_s, .comm_s = w->comm_s, .move_s = w->move_s,
                                       .wait_s = w->wait_s + (step - w->now), .update_s = x->digests[r]->update + w->host_s};
        memcpy(x->times[r].comm_by_group, w->comm_by_group, sizeof w->comm_by_group);
    }
    return ORTH_OK;
}

/* ---- every instruction ---- */

static orth_status fill_clock(simulation *x, int rank, int64_t *clock)
{
    const orth_wait_list *l = x->lists[rank];
    orth_rank_program r;
    ORTH_TRY(x->source->program(x->ctx, x->source->user, rank, &r));
    const orth_rank_waits *w = waits_of(x, rank);
    double now = 0;
    int32_t k = 0;
    clock[0] = 0;
    for (int32_t i = 0; i < r.program->num_instrs; i++) {
        for (; k < l->num_calls && orth_wait_list_at(l, k)->instr == i && orth_wait_list_at(l, k)->count > 0; k++)
            now = w->ends[k];
        double begin = now, end = now;
        const bool takes = takes_rank(x, r.program, &r.program->instrs[i]);
        if (takes)
            now = end = begin + x->timing->seconds(x->timing->user, r.program, i, 0, rank, &x->groups[rank]);
        for (; k < l->num_calls && orth_wait_list_at(l, k)->instr == i; k++) {
            const orth_wait_call *c = orth_wait_list_at(l, k);
            if (takes)
                continue;
            end = w->ends[k];
            begin = orth_wait_is_alone(c) ? end - c->seconds : begin;
            now = c->queue == 0 ? end : now;
        }
        orth_clock_set(clock, i, llround(1e9 * begin), llround(1e9 * end));
    }
    return ORTH_OK;
}

static orth_status simulate(simulation *x, int64_t *const *clock)
{
    const int R = x->num_ranks;
    x->digests = ORTH_ARENA_ARRAY(x->ctx, &x->arena, digest *, R);
    x->groups = ORTH_ARENA_ARRAY(x->ctx, &x->arena, orth_rank_groups, R);
    x->lists = ORTH_ARENA_ARRAY(x->ctx, &x->arena, const orth_wait_list *, R);
    if (!x->digests || !x->groups || !x->lists)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(find_groups(x));
    ORTH_TRY(read_programs(x));
    ORTH_TRY(share(x));
    ORTH_TRY(run(x, clock != NULL));
    for (int r = 0; clock && r < R; r++)
        if (clock[r])
            ORTH_TRY(fill_clock(x, r, clock[r]));
    return ORTH_OK;
}

orth_status orth_simulate_step(orth_ctx *ctx, const orth_rank_source *source, const orth_timing *timing, orth_rank_time *times,
                               int64_t *const *clock)
{
    simulation x = {.ctx = ctx, .source = source, .timing = timing, .num_ranks = source->num_ranks, .times = times};
    const orth_status s = simulate(&x, clock);
    orth_arena_release(ctx, &x.arena);
    return s;
}
