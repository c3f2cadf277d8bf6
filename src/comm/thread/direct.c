/* direct.c -- collectives by reading the peers' buffers where they are.
 *
 * Reductions go in chunks: whoever comes next reads one chunk of all members' inputs, adds them in tree
 * order and writes the sum to all members' outputs. Every byte is read once and written once, which is
 * the least there can be, and no second phase gathers the slices. Each member has a share, which stays
 * in its cache from call to call; who is done with it takes chunks of the others', because on a shared
 * host one of them waits for a core. Small buffers are not worth that.
 */
#include "comm/thread/group.h"

#include <string.h>

#define FIXED_BYTES ((int64_t)256 << 10)    /* up to here nobody takes from another's share */
#define CHUNK_BYTES ((int64_t)256 << 10)    /* of all inputs together */
#define STREAM_BYTES ((int64_t)16 << 20)    /* outputs from here on would push everything out of the caches */
#define SUM_STREAM_BYTES ((int64_t)4 << 20) /* of an all-reduce: twice as many buffers; saves reading outputs first */

static comm_combine_how how_of(const orth_comm *c, const orth_comm_call *call)
{
    const orth_isa isa = c->world->s->heap.isa;
    return (comm_combine_how){.isa = isa, .dtype = call->dtype, .op = call->op, .order = c->order};
}

static const orth_comm_call *call_of(orth_comm *c, int i, int parity)
{
    return &group_of(c)->slots[i].header[parity].call;
}

/* Bytes that member i has sent, which others have read, or that were made for it to hand out. */
static void count_sent(orth_comm *c, int i, orth_comm_kind kind, size_t bytes)
{
    comm_count_sent(group_of(c)->slots[i].comm, kind, bytes);
}

/* The terms of all others have come to the share of `owner`, and the sums have gone to them. It does not matter who took a
 * chunk of it: so what a member sends is the same in every run. */
static void count_share(orth_comm *c, int owner, int64_t elems, size_t elem)
{
    for (int i = 0; i < c->n && elems > 0; i++)
        count_sent(c, i, ORTH_COMM_ALL_REDUCE, (size_t)(i == owner ? (c->n - 1) * elems : elems) * elem);
}

static void all_reduce(orth_comm *c, const orth_comm_call *call, int parity)
{
    const int n = c->n;
    const int64_t elem = (int64_t)orth_dtype_bytes(call->dtype), bytes = call->count * elem, line = comm_line_elems(call->dtype);
    const void *src[ORTH_MAX_RANKS];
    void *dst[ORTH_MAX_RANKS];
    bool in_place = false;
    for (int i = 0; i < n; i++) {
        src[i] = call_of(c, i, parity)->send;
        dst[i] = call_of(c, i, parity)->recv;
        in_place = in_place || src[i] == dst[i];
    }
    comm_combine_how how = how_of(c, call);
    how.stream = bytes >= SUM_STREAM_BYTES && !in_place; /* in place outputs are in the cache: they were read as inputs */
    const int64_t share = comm_share(call, n);
    const int64_t chunk = ORTH_MAX(CHUNK_BYTES / n / elem / line, 1) * line;
    for (int k = 0; k < n; k++) {
        const int owner = (c->pos + k) % n;
        const int64_t first = ORTH_MIN(owner * share, call->count);
        const int64_t last = ORTH_MIN(first + share, call->count);
        _Atomic int64_t *next = &group_of(c)->slots[owner].next_chunk;
        int64_t summed = 0;
        if (k > 0 && bytes <= FIXED_BYTES)
            return;
        for (;;) {
            const int64_t begin = first + atomic_fetch_add_explicit(next, 1, memory_order_relaxed) * chunk;
            if (begin >= last)
                break;
            const int64_t take = ORTH_MIN(chunk, last - begin);
            comm_combine(&how, dst, n, src, n, begin, take);
            summed += take;
        }
        count_share(c, owner, summed, (size_t)elem);
    }
}

static void reduce_scatter(orth_comm *c, const orth_comm_call *call, int parity)
{
    const size_t elem = orth_dtype_bytes(call->dtype);
    const int64_t count = comm_count_of(call->counts, call->count, c->pos);
    const size_t at = (size_t)comm_offset_of(call->counts, call->count, c->pos) * elem;
    const void *src[ORTH_MAX_RANKS];
    if (count == 0)
        return;
    for (int i = 0; i < c->n; i++) {
        src[i] = (const char *)call_of(c, i, parity)->send + at;
        if (i != c->pos)
            count_sent(c, i, ORTH_COMM_REDUCE_SCATTER, (size_t)count * elem);
    }
    comm_combine_how how = how_of(c, call);
    how.stream = count * (int64_t)elem >= STREAM_BYTES && call->recv != src[c->pos];
    comm_combine(&how, (void *[]){call->recv}, 1, src, c->n, 0, count);
}

/* From a buffer of member `from` to another's, of which it is a part; `all`: elements of that. */
static void copy(orth_comm *c, const orth_comm_call *call, int from, int to, void *dst, const void *src, size_t bytes, int64_t all)
{
    if (bytes == 0)
        return;
    const bool stream = all * (int64_t)orth_dtype_bytes(call->dtype) >= STREAM_BYTES;
    comm_copy(c->world->s->heap.isa, dst, src, bytes, stream);
    if (from != to)
        count_sent(c, from, call->kind, bytes);
}

/* Members start at different blocks, so that they do not all read the same one. */
static void all_gather(orth_comm *c, const orth_comm_call *call, int parity)
{
    const size_t elem = orth_dtype_bytes(call->dtype);
    const int64_t all = comm_offset_of(call->counts, call->count, c->n);
    for (int k = 0; k < c->n; k++) {
        const int i = (c->pos + k) % c->n;
        const size_t bytes = (size_t)comm_count_of(call->counts, call->count, i) * elem;
        const size_t at = (size_t)comm_offset_of(call->counts, call->count, i) * elem;
        copy(c, call, i, c->pos, (char *)call->recv + at, call_of(c, i, parity)->send, bytes, all);
    }
}

static void all_to_all(orth_comm *c, const orth_comm_call *call, int parity)
{
    const size_t elem = orth_dtype_bytes(call->dtype);
    const int64_t all = comm_offset_of(call->counts, call->count, c->n);
    for (int k = 0; k < c->n; k++) {
        const int i = (c->pos + k) % c->n;
        const orth_comm_call *theirs = call_of(c, i, parity);
        const size_t bytes = (size_t)comm_count_of(call->counts, call->count, i) * elem;
        const size_t to = (size_t)comm_offset_of(call->counts, call->count, i) * elem;
        const size_t from = (size_t)comm_offset_of(theirs->send_counts, theirs->count, c->pos) * elem;
        copy(c, call, i, c->pos, (char *)call->recv + to, (const char *)theirs->send + from, bytes, all);
    }
}

/* Each member, the sender too, brings a share of the bytes to all others. */
static void broadcast(orth_comm *c, const orth_comm_call *call, int parity)
{
    const int64_t elem = (int64_t)orth_dtype_bytes(call->dtype);
    const int64_t share = comm_share(call, c->n);
    const int64_t first = ORTH_MIN(c->pos * share, call->count), count = ORTH_MIN(share, call->count - first);
    const char *from = (const char *)call_of(c, call->peer, parity)->recv + first * elem;
    for (int k = 0; k < c->n; k++) {
        const int i = (c->pos + k) % c->n;
        if (i != call->peer && count > 0)
            copy(c, call, call->peer, i, (char *)call_of(c, i, parity)->recv + first * elem, from, (size_t)(count * elem),
                 call->count);
    }
}

bool comm_direct(orth_comm *c, const orth_comm_call *call, int parity)
{
    if (!comm_reader_enter(c))
        return false;
    switch (call->kind) {
    case ORTH_COMM_ALL_REDUCE:
        all_reduce(c, call, parity);
        break;
    case ORTH_COMM_REDUCE_SCATTER:
        reduce_scatter(c, call, parity);
        break;
    case ORTH_COMM_ALL_GATHER:
        all_gather(c, call, parity);
        break;
    case ORTH_COMM_BROADCAST:
        broadcast(c, call, parity);
        break;
    default:
        all_to_all(c, call, parity);
        break;
    }
    comm_reader_leave(c);
    return true;
}
