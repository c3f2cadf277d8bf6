/* culprit.c -- which rank is everyone waiting for?
 *
 * A rank that waits longer than the limit waits for others: the members that have not made the call, or
 * the peer of a message. Those edges lead to the culprit, in this order:
 *   1. a rank that has ended: it will never come (reported at once, whatever the limit);
 *   2. a rank that does not wait for anybody: it is stuck outside of communication;
 *   3. a rank that waits in a call that comes later in its program than the one it is missed in:
 *      it left that one out;
 *   4. else ranks wait for each other in a circle, and all are named.
 * Used by the monitor of a world of threads (thread/watchdog.c), which sees all of it in memory, and by that
 * of rank 0 over MPI (mpi/monitor.c), which is told by the others.
 */
#include "comm/comm_impl.h"

static void describe_wait(char *text, size_t bytes, const comm_rank *r, const char *group)
{
    const orth_comm_kind kind = (orth_comm_kind)atomic_load(&r->kind);
    snprintf(text, bytes, "%s ('%s', instruction %d)", orth_comm_kind_name(kind), group,
             atomic_load(&r->instr));
}

void comm_culprit_consider(comm_shared *s, comm_culprit *v, int a, int m, int32_t instr, const char *group,
                           int64_t waited_ns)
{
    const comm_rank *ra = &s->ranks[a], *rm = &s->ranks[m];
    const bool waits = atomic_load(&rm->since_ns) != 0;
    const int64_t step_a = atomic_load(&ra->step), step_m = atomic_load(&rm->step);
    const int32_t at = waits ? atomic_load(&rm->instr) : atomic_load(&rm->last_instr);
    comm_culprit_kind kind = COMM_CULPRIT_CIRCLE;
    if (atomic_load(&rm->ended))
        kind = COMM_CULPRIT_ENDED;
    else if (!waits)
        kind = COMM_CULPRIT_STUCK;
    else if (step_m > step_a || (step_m == step_a && at > instr))
        kind = COMM_CULPRIT_LEFT_OUT;
    if (kind <= v->kind)
        return;
    char where[96], doing[96];
    describe_wait(where, sizeof where, ra, group);
    const orth_comm_kind last = (orth_comm_kind)atomic_load(&rm->last_kind);
    if (waits)
        snprintf(doing, sizeof doing, "it waits in %s (instruction %d)",
                 orth_comm_kind_name((orth_comm_kind)atomic_load(&rm->kind)), at);
    else
        snprintf(doing, sizeof doing, "its last call was %s (instruction %d)",
                 atomic_load(&rm->calls) ? orth_comm_kind_name(last) : "none", at);
    static const char *const what[] = {
        [COMM_CULPRIT_CIRCLE] = "ranks wait for each other", [COMM_CULPRIT_LEFT_OUT] = "it left out a call",
        [COMM_CULPRIT_STUCK] = "it is stuck outside of communication", [COMM_CULPRIT_ENDED] = "it has ended",
    };
    *v = (comm_culprit){.kind = kind, .rank = m, .waiter = a, .waited_ns = waited_ns, .calls = atomic_load(&rm->calls)};
    snprintf(v->text, sizeof v->text, "%s: %s; rank %d has waited %.1f s for it in %s", what[kind], doing, a,
             1e-9 * (double)waited_ns, where);
}

bool comm_culprit_better(const comm_culprit *v, const comm_culprit *than, int64_t limit_ns)
{
    if (v->kind != COMM_CULPRIT_ENDED && v->waited_ns < limit_ns)
        return false;
    return v->kind > than->kind || (v->kind == than->kind && v->waited_ns > than->waited_ns);
}

bool comm_culprit_same(const comm_culprit *v, const comm_culprit *last)
{
    return v->kind != COMM_CULPRIT_NONE && v->kind == last->kind && v->rank == last->rank &&
           v->waiter == last->waiter && v->calls == last->calls;
}

bool comm_any_busy(comm_shared *s)
{
    for (int i = 0; i < s->num_ranks; i++)
        if (atomic_load(&s->ranks[i].busy))
            return true;
    return false;
}
