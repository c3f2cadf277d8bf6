/* cross_check.c -- do the members mean the same call? And if not, who is wrong.
 *
 * Blame: the member whose call differs from what most say; if no more than half agree, the one whose count is not what it was
 * at this instruction before; else the one that is furthest on (step, part of it, tag, instruction): it left a call out, or made
 * one too early. All members
 * judge the same headers, so all come to the same verdict.
 */
#include <string.h>

#include "base/hash.h"
#include "comm/comm_impl.h"

uint64_t comm_extent(const orth_comm *c, const orth_comm_call *call)
{
    if (call->kind == ORTH_COMM_BARRIER || call->kind == ORTH_COMM_ALL_TO_ALL)
        return 0; /* all-to-all: compared pair by pair */
    if (call->kind != ORTH_COMM_REDUCE_SCATTER && call->kind != ORTH_COMM_ALL_GATHER)
        return (uint64_t)call->count;
    uint64_t h = 0;
    for (int i = 0; i < c->n; i++)
        h = orth_hash_mix(h, (uint64_t)comm_count_of(call->counts, call->count, i));
    return h;
}

/* What a member's own call asks for, in an all-to-all as well. */
static uint64_t own_extent(const orth_comm *c, const orth_comm_call *call)
{
    if (call->kind != ORTH_COMM_ALL_TO_ALL)
        return comm_extent(c, call);
    return (uint64_t)(comm_offset_of(call->counts, call->count, c->n) + comm_offset_of(call->send_counts, call->count, c->n));
}

/* The last call of this key, or room for it. */
static comm_history *find_history(comm_history *all, uint64_t key)
{
    enum { NUM = 1 << COMM_HISTORY_BITS, PROBES = 8 };
    const uint64_t first = key * 0x9e3779b97f4a7c15u >> (64 - COMM_HISTORY_BITS);
    for (int i = 0; i < PROBES; i++) {
        comm_history *h = &all[(first + (uint64_t)i) % NUM];
        if (!h->seen || h->key == key)
            return h;
    }
    return &all[first];
}

/* Which call of its instruction it is, from 0: one on several tensors makes several. */
static int64_t repeat(orth_comm *c, const orth_comm_call *call, const comm_rank *r, bool message)
{
    const int64_t step = atomic_load(&r->step), epoch = atomic_load(&r->progress.epoch);
    const bool same = c->repeat[message].instr == call->instr + 1 && c->repeat[message].step == step && c->repeat[message].epoch == epoch;
    c->repeat[message].count = same ? c->repeat[message].count + 1 : 0;
    c->repeat[message].instr = call->instr + 1; /* 0: none yet */
    c->repeat[message].step = step;
    c->repeat[message].epoch = epoch;
    return c->repeat[message].count;
}

/* Programs repeat: the same call with another count than last time is suspicious. The same is the instruction
 * of the same program (an evaluation has its own); outside of programs, the tag; and of messages the peer. */
bool comm_call_unusual(orth_comm *c, const orth_comm_call *call)
{
    const uint64_t extent = own_extent(c, call);
    const bool message = call->kind == ORTH_COMM_SEND || call->kind == ORTH_COMM_RECV;
    const uint64_t what = call->instr >= 0 ? (uint64_t)call->instr : ~(uint64_t)call->tag;
    const comm_rank *r = c->world->s->ranks ? &c->world->s->ranks[c->world->rank] : NULL;
    const uint64_t program = call->instr >= 0 && r ? (uint64_t)(uintptr_t)atomic_load(&r->progress.program) : 0;
    const uint64_t peer = message ? (uint64_t)call->peer * 2 + (call->kind == ORTH_COMM_SEND) : 0;
    const uint64_t nth = call->instr >= 0 && r ? (uint64_t)repeat(c, call, r, message) : 0;
    const uint64_t key = program * 0xff51afd7ed558ccdu + nth * 0xc4ceb9fe1a85ec53u + what * 4 * ORTH_MAX_RANKS + peer;
    /* Collectives come from the queue's thread, messages from the caller's: each has its own half. */
    comm_history *h = find_history(c->history[message], key);
    const bool unusual = h->seen && h->key == key && h->extent != extent;
    *h = (comm_history){.seen = true, .key = key, .extent = extent};
    return unusual;
}

void comm_header_fill(comm_header *h, orth_comm *c, const orth_comm_call *call, uint32_t seq)
{
    const comm_rank *r = c->world->s->ranks ? &c->world->s->ranks[c->world->rank] : NULL;
    memset(h, 0, sizeof *h);
    h->call = *call;
    h->extent = comm_extent(c, call);
    h->algo = comm_pick_algo(c, call);
    h->step = r ? atomic_load_explicit(&r->step, memory_order_relaxed) : 0;
    h->epoch = r ? atomic_load_explicit(&r->progress.epoch, memory_order_relaxed) : 0;
    h->seq = seq;
    h->unusual = comm_call_unusual(c, call);
}

bool comm_header_same(const comm_header *a, const comm_header *b)
{
    const orth_comm_call *x = &a->call, *y = &b->call;
    return x->kind == y->kind && x->dtype == y->dtype && x->op == y->op && x->tag == y->tag &&
           a->extent == b->extent && a->algo == b->algo && a->seq == b->seq &&
           (x->kind != ORTH_COMM_BROADCAST || x->peer == y->peer);
}

/* The call of global rank `rank` in a group of n. */
static void describe(char *text, size_t bytes, comm_shared *s, int rank, const orth_comm_call *call, int n)
{
    static const char *const ops[] = {"sum ", "max ", "min "};
    const bool reduces = call->kind == ORTH_COMM_ALL_REDUCE || call->kind == ORTH_COMM_REDUCE_SCATTER;
    int at = snprintf(text, bytes, "%s", orth_comm_kind_name(call->kind));
    if (call->kind != ORTH_COMM_BARRIER)
        at += snprintf(text + at, bytes - (size_t)at, " %s%s x %lld", reduces ? ops[call->op] : "",
                       orth_dtype_name(call->dtype),
                       (long long)(call->counts ? comm_offset_of(call->counts, 0, n) : call->count));
    char words[ORTH_PLACE_MAX];
    pthread_mutex_lock(&s->mutex);
    comm_instr_words(s, rank, call->instr, words, sizeof words);
    pthread_mutex_unlock(&s->mutex);
    snprintf(text + at, bytes - (size_t)at, " (%s, tag %lld)", words, (long long)call->tag);
}

/* Is it more likely to be a that is wrong? */
static bool is_worse(const comm_header *a, const comm_header *b)
{
    const bool same_place = a->call.instr >= 0 && b->call.instr >= 0 && a->call.tag == b->call.tag && a->step == b->step;
    if (same_place && a->unusual != b->unusual)
        return a->unusual;
    if (a->step != b->step)
        return a->step > b->step;
    if (a->epoch != b->epoch)
        return a->epoch > b->epoch;
    if (a->call.tag != b->call.tag)
        return a->call.tag > b->call.tag;
    return a->call.instr != b->call.instr ? a->call.instr > b->call.instr : a->unusual && !b->unusual;
}

/* The member to blame, and one to compare it with. False when all agree. */
static bool find_odd(const comm_header *const *h, int n, int *odd, int *other)
{
    int best = -1, best_votes = 0;
    for (int i = 0; i < n; i++) {
        int votes = 0;
        for (int k = 0; k < n; k++)
            votes += comm_header_same(h[i], h[k]);
        if (votes == n)
            return false;
        if (votes > best_votes)
            best = i, best_votes = votes;
    }
    if (2 * best_votes > n) {
        *other = best;
        for (int i = 0; i < n; i++)
            if (!comm_header_same(h[i], h[best])) {
                *odd = i;
                return true;
            }
    }
    *odd = 0;
    for (int i = 1; i < n; i++)
        if (is_worse(h[i], h[*odd]))
            *odd = i;
    for (*other = 0; comm_header_same(h[*other], h[*odd]);)
        ++*other;
    return true;
}

static bool check_pairs(orth_comm *c, const comm_header *const *h)
{
    const orth_comm_call *mine = &h[c->pos]->call;
    for (int i = 0; i < c->n && mine->kind == ORTH_COMM_ALL_TO_ALL; i++) {
        const orth_comm_call *theirs = &h[i]->call;
        const int64_t sent = h[i]->has_pair ? h[i]->pair
                                            : comm_count_of(theirs->send_counts, theirs->count, c->pos);
        const int64_t wanted = comm_count_of(mine->counts, mine->count, i);
        if (sent == wanted)
            continue;
        char a[ORTH_PLACE_MAX + 96], b[ORTH_PLACE_MAX + 96];
        describe(a, sizeof a, c->world->s, c->ranks[i], theirs, c->n);
        describe(b, sizeof b, c->world->s, c->ranks[c->pos], mine, c->n);
        const bool me = h[c->pos]->unusual && !h[i]->unusual;
        comm_abort(c->world->s, c->ranks[me ? c->pos : i], ORTH_ERR_COMM, "'%s' call %u: rank %d sends %lld elements in %s where rank %d expects "
                   "%lld in %s", c->name, h[i]->seq, c->ranks[i], (long long)sent, a, c->ranks[c->pos], (long long)wanted, b);
        return false;
    }
    return true;
}

bool comm_headers_check(orth_comm *c, const comm_header *const *h)
{
    bool same = true;
    for (int i = 0; i < c->n; i++)
        same = same && comm_header_same(h[i], h[c->pos]);
    int odd, other;
    if (same || !find_odd(h, c->n, &odd, &other))
        return check_pairs(c, h);
    char a[ORTH_PLACE_MAX + 96], b[ORTH_PLACE_MAX + 96];
    describe(a, sizeof a, c->world->s, c->ranks[odd], &h[odd]->call, c->n);
    describe(b, sizeof b, c->world->s, c->ranks[other], &h[other]->call, c->n);
    comm_abort(c->world->s, c->ranks[odd], ORTH_ERR_COMM,
               "'%s' call %u: rank %d called %s in step %lld where rank %d called %s in step %lld", c->name,
               h[odd]->seq, c->ranks[odd], a, (long long)h[odd]->step, c->ranks[other], b,
               (long long)h[other]->step);
    return false;
}

bool comm_message_check(orth_comm *c, const comm_request *sent, const comm_request *wanted)
{
    const orth_comm_call *s = &sent->call, *w = &wanted->call;
    if (s->dtype == w->dtype && s->count == w->count && s->tag == w->tag)
        return true;
    /* A tag behind what is wanted means that this rank left a message out; else the sender did. */
    const bool mine = s->tag < w->tag || (s->tag == w->tag && wanted->unusual && !sent->unusual);
    const int me = c->ranks[c->pos], sender = c->ranks[w->peer];
    char a[ORTH_PLACE_MAX + 96], b[ORTH_PLACE_MAX + 96];
    describe(a, sizeof a, c->world->s, sender, s, c->n);
    describe(b, sizeof b, c->world->s, me, w, c->n);
    comm_abort(c->world->s, mine ? me : sender, ORTH_ERR_COMM,
               "'%s': rank %d called %s where rank %d called %s", c->name, sender, a, me, b);
    return false;
}
