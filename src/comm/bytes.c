/* bytes.c -- how many bytes a member sends: the one definition, for the planner and the counters. */
#include "comm/comm.h"

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
        sum += i == skip ? 0 : counts[i];
    return sum;
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
