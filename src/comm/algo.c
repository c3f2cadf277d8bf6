/* algo.c -- ring, tree and direct for back ends that move blocks between members (`exchange`).
 *
 *   ring    reduce: n-1 steps to the next member, each slice growing into its sum; gather: n-1 more.
 *           2(n-1)/n of the buffer sent, in 2(n-1) steps. A slice's sum starts at its own place in
 *           the ring: free order only.
 *   tree    recursive doubling: at level l blocks of 2^l members swap sums with their neighbour block;
 *           every level is one of the aligned tree, so the order is canonical, for any n.
 *           log2(n) of the buffer sent, in log2(n) steps.
 *   direct  each member gets its slice from all others at once, sums in tree order, hands it out.
 *           As many bytes as the ring, in 2 steps of n-1 messages.
 *
 * Sums run in c->work in pieces that fit it. bf16 and int8 travel as fp32 where partial sums travel (ring, tree).
 */
#include <string.h>

#include "comm/comm_impl.h"

/* How a reduction is cut: block i of the buffer is [off[i], off[i] + len[i]); a piece takes `cap` elements of
 * each block at a time. */
typedef struct {
    const orth_comm_call *call;
    const comm_combine_fns *fns;
    size_t elem, acc;
    int64_t off[ORTH_MAX_RANKS], len[ORTH_MAX_RANKS];
    int64_t cap, largest;
    bool gather;               /* all-reduce: everyone gets every block */
} cut;

static void cut_make(cut *k, orth_comm *c, const orth_comm_call *call, size_t bytes_per_elem)
{
    const int n = c->n;
    k->call = call;
    k->fns = comm_combine_of(c->world->s->heap.isa, call->dtype, call->op);
    k->elem = orth_dtype_bytes(call->dtype);
    k->acc = comm_acc_bytes(call->dtype);
    k->gather = call->kind == ORTH_COMM_ALL_REDUCE;
    k->largest = 0;
    for (int i = 0; i < n; i++) {
        if (k->gather) {
            k->off[i] = call->count * i / n;
            k->len[i] = call->count * (i + 1) / n - k->off[i];
        } else {
            k->off[i] = i ? k->off[i - 1] + k->len[i - 1] : 0;
            k->len[i] = comm_count_of(call->counts, call->count, i);
        }
        k->largest = ORTH_MAX(k->largest, k->len[i]);
    }
    k->cap = ORTH_MAX((int64_t)(c->work_bytes / bytes_per_elem) / (n + 1), 1);
}

/* Elements of block i in the piece that starts at p. */
static int64_t piece(const cut *k, int i, int64_t p)
{
    return ORTH_MIN(ORTH_MAX(k->len[i] - p, 0), k->cap);
}

static const void *input(const cut *k, int i, int64_t p)
{
    return (const char *)k->call->send + (size_t)(k->off[i] + p) * k->elem;
}

/* Where the result of block i goes: reduce-scatter has only its own. */
static void *output(const cut *k, int i, int64_t p)
{
    return (char *)k->call->recv + (size_t)((k->gather ? k->off[i] : 0) + p) * k->elem;
}

static void load(const cut *k, void *acc, const void *src, int64_t n)
{
    k->fns->leaves(acc, &src, 1, 0, n);
}

static void store(const cut *k, void *dst, const void *acc, int64_t n)
{
    k->fns->store(dst, acc, n);
}

static comm_block to(int peer, const void *p, size_t bytes)
{
    return (comm_block){.peer = peer, .send = p, .bytes = bytes};
}

static comm_block from(int peer, void *p, size_t bytes)
{
    return (comm_block){.peer = peer, .incoming = true, .recv = p, .bytes = bytes};
}

/* ---- ring ---- */

/* One step: block `out` to the next member, block `in` from the one before. */
static bool ring_step(orth_comm *c, orth_comm_kind kind, const void *send, size_t send_bytes, void *recv, size_t recv_bytes)
{
    const int next = (c->pos + 1) % c->n, before = (c->pos + c->n - 1) % c->n;
    const comm_block blocks[] = {to(next, send, send_bytes), from(before, recv, recv_bytes)};
    return c->ops->exchange(c, kind, blocks, 2);
}

static bool ring_piece(orth_comm *c, const cut *k, int64_t p)
{
    const int n = c->n;
    const size_t room = (size_t)k->cap * k->acc;
    char *inbox = c->work + (size_t)n * room;
    for (int i = 0; i < n; i++)
        load(k, c->work + (size_t)i * room, input(k, i, p), piece(k, i, p));
    for (int step = 0; step < n - 1; step++) {
        const int out = (c->pos - 1 - step + 2 * n) % n, in = (c->pos - 2 - step + 2 * n) % n;
        char *sum = c->work + (size_t)in * room;
        if (!ring_step(c, k->call->kind, c->work + (size_t)out * room, (size_t)piece(k, out, p) * k->acc, inbox,
                       (size_t)piece(k, in, p) * k->acc))
            return false;
        k->fns->merge(sum, inbox, sum, piece(k, in, p));
    }
    for (int step = 0; k->gather && step < n - 1; step++) {
        const int out = (c->pos - step + n) % n, in = (c->pos - 1 - step + n) % n;
        if (!ring_step(c, k->call->kind, c->work + (size_t)out * room, (size_t)piece(k, out, p) * k->acc,
                       c->work + (size_t)in * room, (size_t)piece(k, in, p) * k->acc))
            return false;
    }
    for (int i = 0; i < n; i++)
        if (k->gather || i == c->pos)
            store(k, output(k, i, p), c->work + (size_t)i * room, piece(k, i, p));
    return true;
}

static bool ring_gather(orth_comm *c, const orth_comm_call *call)
{
    const size_t elem = orth_dtype_bytes(call->dtype);
    char *recv = call->recv;
    const int n = c->n;
    size_t at[ORTH_MAX_RANKS + 1];
    at[0] = 0;
    for (int i = 0; i < n; i++)
        at[i + 1] = at[i] + (size_t)comm_count_of(call->counts, call->count, i) * elem;
    if (at[c->pos + 1] > at[c->pos] && recv + at[c->pos] != (const char *)call->send)
        memcpy(recv + at[c->pos], call->send, at[c->pos + 1] - at[c->pos]);
    for (int step = 0; step < n - 1; step++) {
        const int out = (c->pos - step + n) % n, in = (c->pos - 1 - step + n) % n;
        if (!ring_step(c, call->kind, recv + at[out], at[out + 1] - at[out], recv + at[in], at[in + 1] - at[in]))
            return false;
    }
    return true;
}

/* ---- tree ---- */

/* One level of recursive doubling: the sum of this member's block, in `mine`, meets that of its sibling
 * block. Every member of either block needs the other's sum; all members of a block hold the same. */
static bool tree_level(orth_comm *c, const cut *k, int level, char *mine, char *theirs, int64_t n)
{
    const int width = 1 << level, block = c->pos >> level, first = block << level;
    const int sibling = (block ^ 1) << level;
    const int my_size = ORTH_MIN(width, c->n - first), their_size = ORTH_MIN(width, c->n - sibling);
    const int index = c->pos - first;
    const size_t bytes = (size_t)n * k->acc;
    comm_block blocks[ORTH_MAX_RANKS + 1];
    int num = 0;
    if (their_size > 0) {
        for (int i = index; i < their_size; i += my_size)
            blocks[num++] = to(sibling + i, mine, bytes);
        blocks[num++] = from(sibling + index % their_size, theirs, bytes);
    }
    /* Also with no blocks: all members call it as often. */
    if (!c->ops->exchange(c, k->call->kind, blocks, num))
        return false;
    if (their_size <= 0)
        return true;
    if (block & 1) /* the lower members are the left operand on both sides: the bits are the same */
        k->fns->merge(mine, theirs, mine, n);
    else
        k->fns->merge(mine, mine, theirs, n);
    return true;
}

static bool tree_all_reduce(orth_comm *c, const orth_comm_call *call)
{
    cut k;
    cut_make(&k, c, call, 1);
    const int64_t cap = (int64_t)(c->work_bytes / 2 / k.acc);
    char *mine = c->work, *theirs = c->work + c->work_bytes / 2;
    for (int64_t p = 0; p < call->count; p += cap) {
        const int64_t n = ORTH_MIN(cap, call->count - p);
        load(&k, mine, (const char *)call->send + (size_t)p * k.elem, n);
        for (int level = 0; 1 << level < c->n; level++)
            if (!tree_level(c, &k, level, mine, theirs, n))
                return false;
        store(&k, (char *)call->recv + (size_t)p * k.elem, mine, n);
    }
    return true;
}

/* Binomial: at level l the 2^l members nearest after the root hold the data and pass it 2^l further. */
static bool tree_broadcast(orth_comm *c, const orth_comm_call *call)
{
    const int n = c->n, v = (c->pos - call->peer + n) % n;
    const size_t bytes = (size_t)call->count * orth_dtype_bytes(call->dtype);
    for (int width = 1; width < n; width *= 2) {
        comm_block block;
        int num = 0;
        if (v < width && v + width < n)
            block = to((c->pos + width) % n, call->recv, bytes), num = 1;
        else if (v >= width && v < 2 * width)
            block = from((c->pos - width + n) % n, call->recv, bytes), num = 1;
        if (!c->ops->exchange(c, call->kind, &block, num))
            return false;
    }
    return true;
}

/* ---- direct ---- */

static bool direct_piece(orth_comm *c, const cut *k, int64_t p)
{
    const int n = c->n, me = c->pos;
    const int64_t mine = piece(k, me, p);
    const size_t room = (size_t)k->cap * k->elem;
    char *sum = c->work + (size_t)n * room;
    comm_block blocks[2 * ORTH_MAX_RANKS];
    const void *leaves[ORTH_MAX_RANKS];
    int num = 0;
    for (int i = 0; i < n; i++) {
        leaves[i] = i == me ? input(k, me, p) : c->work + (size_t)i * room;
        if (i == me)
            continue;
        blocks[num++] = to(i, input(k, i, p), (size_t)piece(k, i, p) * k->elem);
        blocks[num++] = from(i, c->work + (size_t)i * room, (size_t)mine * k->elem);
    }
    if (!c->ops->exchange(c, k->call->kind, blocks, num))
        return false;
    const comm_combine_how how = {c->world->s->heap.isa, k->call->dtype, k->call->op, c->order, false};
    comm_combine(&how, (void *[]){sum}, 1, leaves, n, 0, mine);
    if (mine > 0)
        memcpy(output(k, me, p), sum, (size_t)mine * k->elem);
    num = 0;
    for (int i = 0; k->gather && i < n; i++) {
        if (i == me)
            continue;
        blocks[num++] = to(i, sum, (size_t)mine * k->elem);
        blocks[num++] = from(i, output(k, i, p), (size_t)piece(k, i, p) * k->elem);
    }
    return !k->gather || c->ops->exchange(c, k->call->kind, blocks, num);
}

/* Everything that only moves blocks: all-gather, broadcast, all-to-all. */
static bool direct_move(orth_comm *c, const orth_comm_call *call)
{
    const size_t elem = orth_dtype_bytes(call->dtype);
    const orth_comm_kind kind = call->kind;
    comm_block blocks[2 * ORTH_MAX_RANKS];
    int num = 0;
    int64_t out_at = 0, in_at = 0;
    for (int i = 0; i < c->n; i++) {
        int64_t out = 0, in = 0;
        if (kind == ORTH_COMM_BROADCAST) {
            out = c->pos == call->peer ? call->count : 0;
            in = i == call->peer ? call->count : 0;
        } else {
            in = comm_count_of(call->counts, call->count, i);
            out = kind == ORTH_COMM_ALL_GATHER ? comm_count_of(call->counts, call->count, c->pos)
                                               : comm_count_of(call->send_counts, call->count, i);
        }
        const char *src = kind == ORTH_COMM_BROADCAST ? call->recv : call->send;
        char *dst = call->recv;
        if (src)
            src += (size_t)out_at * elem;
        if (dst)
            dst += (size_t)in_at * elem;
        if (i != c->pos) {
            blocks[num++] = to(i, src, (size_t)out * elem);
            blocks[num++] = from(i, dst, (size_t)in * elem);
        } else if (kind != ORTH_COMM_BROADCAST && in > 0 && src != dst) {
            memcpy(dst, src, (size_t)in * elem);
        }
        out_at += kind == ORTH_COMM_ALL_TO_ALL ? out : 0;
        in_at += kind == ORTH_COMM_BROADCAST ? 0 : in;
    }
    return c->ops->exchange(c, kind, blocks, num);
}

bool comm_algo_run(orth_comm *c, const orth_comm_call *call, orth_comm_algo algo)
{
    const bool reduces = call->kind == ORTH_COMM_ALL_REDUCE || call->kind == ORTH_COMM_REDUCE_SCATTER;
    if (!reduces) {
        if (algo == ORTH_ALGO_RING)
            return ring_gather(c, call);
        return algo == ORTH_ALGO_TREE ? tree_broadcast(c, call) : direct_move(c, call);
    }
    if (algo == ORTH_ALGO_TREE)
        return tree_all_reduce(c, call);
    cut k;
    const bool ring = algo == ORTH_ALGO_RING;
    cut_make(&k, c, call, ring ? comm_acc_bytes(call->dtype) : orth_dtype_bytes(call->dtype));
    for (int64_t p = 0; p < k.largest; p += k.cap)
        if (!(ring ? ring_piece(c, &k, p) : direct_piece(c, &k, p)))
            return false;
    return true;
}
