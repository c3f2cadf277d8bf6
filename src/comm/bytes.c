/* bytes.c -- how many bytes a member sends: by a ring, which is what prices go by, and by the method in use, which is what the
 * back ends count. algo.c and thread/direct.c move them, and do not use what is computed here. */
#include "comm/comm_impl.h"

static int64_t slice(int64_t count, int n, int i)
{
    return count * (i + 1) / n - count * i / n;
}

static int64_t sum_except(const int64_t *counts, int64_t count, int n, int skip)
{
    if (!counts)
        return count * (n - 1);
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum - counts[skip];
}

int64_t orth_comm_bytes(int n, int pos, const orth_comm_call *call)
{
    if (n < 2)
        return 0;
    const int next = (pos + 1) % n;
    int64_t elems = 0;
    switch (call->kind) {
    case ORTH_COMM_ALL_REDUCE:
        /* Ring: this member sends every slice but its own while reducing, and every slice but its
         * successor's while gathering. */
        elems = 2 * call->count - slice(call->count, n, pos) - slice(call->count, n, next);
        break;
    case ORTH_COMM_REDUCE_SCATTER:
        elems = sum_except(call->counts, call->count, n, pos);
        break;
    case ORTH_COMM_ALL_GATHER:
        elems = sum_except(call->counts, call->count, n, next);
        break;
    case ORTH_COMM_BROADCAST:
        elems = next == call->peer ? 0 : call->count;
        break;
    case ORTH_COMM_ALL_TO_ALL:
        elems = sum_except(call->send_counts, call->count, n, pos);
        break;
    case ORTH_COMM_SEND:
        elems = call->count;
        break;
    default:
        break;
    }
    return elems * (int64_t)orth_dtype_bytes(call->dtype);
}

/* ---- by the method in use ---- */

/* Where members share memory direct wins at every size: it needs two meetings, a tree 2*log2(n), a ring 4(n-1). Where they send
 * messages (bench/algorithms.sh; bench/results/2026-11-24-algorithms.md): a sum of up to 16 KB took a tree 0.4 to 0.8 of direct's
 * time over TCP between 2, 4 and 8 processes; from 64 KB on direct was faster, or slower by a quarter at most; through shared memory
 * the two are near each other. A ring was never the fastest. A broadcast goes the same way; but the root of a large group does not
 * send to all by itself. */
#define TREE_BYTES ((int64_t)16 << 10)
#define DIRECT_BROADCAST_RANKS 8

orth_comm_algo orth_comm_algo_of(orth_comm_method m, int n, const orth_comm_call *call)
{
    static const bool can[ORTH_NUM_COMM_KINDS][ORTH_NUM_ALGOS] = {
#define KIND(NAME, text, ring, tree) \
    [ORTH_COMM_##NAME] = {[ORTH_ALGO_RING] = ring, [ORTH_ALGO_TREE] = tree, [ORTH_ALGO_DIRECT] = true},
#include "comm/kinds.def"
#undef KIND
    };
    if (m.algo != ORTH_ALGO_AUTO)
        return can[call->kind][m.algo] ? m.algo : ORTH_ALGO_DIRECT;
    const bool broadcast = call->kind == ORTH_COMM_BROADCAST;
    const size_t sent = broadcast ? orth_dtype_bytes(call->dtype) : comm_acc_bytes(call->dtype);
    const bool tree = call->count * (int64_t)sent <= TREE_BYTES || (broadcast && n > DIRECT_BROADCAST_RANKS);
    return !m.shares_memory && tree && can[call->kind][ORTH_ALGO_TREE] ? ORTH_ALGO_TREE : ORTH_ALGO_DIRECT;
}

/* Recursive doubling: how many buffers a member sends, over all levels. */
static int64_t tree_sends(int n, int pos)
{
    int64_t num = 0;
    for (int width = 1; width < n; width *= 2) {
        const int first = pos / width * width, sibling = pos / width % 2 ? first - width : first + width;
        const int mine = ORTH_MIN(width, n - first), theirs = ORTH_MIN(width, n - sibling);
        for (int i = pos - first; i < theirs; i += mine)
            num++;
    }
    return num;
}

/* Binomial broadcast: members that it passes the buffer to. v: how far it is behind the root. */
static int64_t tree_children(int n, int v)
{
    int64_t num = 0;
    for (int width = 1; width < n; width *= 2)
        num += v < width && v + width < n;
    return num;
}

/* Elements that it sums in a direct all-reduce. */
static int64_t share(orth_comm_method m, int n, int pos, const orth_comm_call *call)
{
    if (!m.shares_memory)
        return slice(call->count, n, pos);
    const int64_t each = comm_share(call, n);
    return ORTH_MIN(ORTH_MAX(call->count - pos * each, 0), each);
}

int64_t orth_comm_sent_bytes(orth_comm_method m, int n, int pos, const orth_comm_call *call)
{
    const orth_comm_algo algo = orth_comm_algo_of(m, n, call);
    const int64_t elem = (int64_t)orth_dtype_bytes(call->dtype), sum_elem = (int64_t)comm_acc_bytes(call->dtype);
    const bool reduces = call->kind == ORTH_COMM_ALL_REDUCE || call->kind == ORTH_COMM_REDUCE_SCATTER;
    if (n < 2)
        return 0;
    if (algo == ORTH_ALGO_RING)
        return orth_comm_bytes(n, pos, call) / elem * (reduces ? sum_elem : elem);
    switch (call->kind) {
    case ORTH_COMM_ALL_REDUCE: /* direct: all but its share to those that sum it, the sum of its share to all */
        if (algo == ORTH_ALGO_TREE)
            return tree_sends(n, pos) * call->count * sum_elem;
        return (call->count + (n - 2) * share(m, n, pos, call)) * elem;
    case ORTH_COMM_ALL_GATHER:
        return (n - 1) * comm_count_of(call->counts, call->count, pos) * elem;
    case ORTH_COMM_BROADCAST:
        if (algo == ORTH_ALGO_TREE)
            return tree_children(n, (pos - call->peer + n) % n) * call->count * elem;
        return pos == call->peer ? (n - 1) * call->count * elem : 0;
    default:
        return orth_comm_bytes(n, pos, call);
    }
}
