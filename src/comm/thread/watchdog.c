/* watchdog.c -- the monitor of a world of threads: which rank is everyone waiting for?
 *
 * A rank that waits longer than the limit waits for others: the members that have not made the call, or
 * the peer of a message. Those edges lead to the culprit, in this order:
 *   1. a rank that has ended: it will never come (reported at once, whatever the limit);
 *   2. a rank that does not wait for anybody: it is stuck outside of communication;
 *   3. a rank that waits in a call that comes later in its program than the one it is missed in:
 *      it left that one out;
 *   4. else ranks wait for each other in a circle, and all are named.
 * What is seen must hold unchanged in two looks in a row, so that a rank caught between two calls is
 * not blamed.
 */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/thread/group.h"

typedef enum {
    VERDICT_NONE = 0, VERDICT_CIRCLE, VERDICT_LEFT_OUT, VERDICT_STUCK, VERDICT_ENDED
} verdict_kind;

/* The best explanation found in one look. */
typedef struct {
    verdict_kind kind;
    int culprit, waiter;
    int num_waiters;               /* ranks that miss the culprit */
    int64_t culprit_calls;
    int64_t waited_ns;
    char text[ORTH_MESSAGE_MAX - 32];
} verdict;

static void describe_wait(char *text, size_t bytes, const comm_rank *r, const char *group)
{
    const orth_comm_kind kind = (orth_comm_kind)atomic_load(&r->kind);
    snprintf(text, bytes, "%s ('%s', instruction %d)", orth_comm_kind_name(kind), group,
             atomic_load(&r->instr));
}

/* Rank m is missed by rank a, in a call with this instruction id. */
static void consider(comm_shared *s, verdict *v, int a, int m, int32_t instr, const char *group,
                     int64_t waited)
{
    const comm_rank *ra = &s->ranks[a], *rm = &s->ranks[m];
    const bool waits = atomic_load(&rm->since_ns) != 0;
    const int64_t step_a = atomic_load(&ra->step), step_m = atomic_load(&rm->step);
    const int32_t at = waits ? atomic_load(&rm->instr) : atomic_load(&rm->last_instr);
    verdict_kind kind = VERDICT_CIRCLE;
    if (atomic_load(&rm->ended))
        kind = VERDICT_ENDED;
    else if (!waits)
        kind = VERDICT_STUCK;
    else if (step_m > step_a || (step_m == step_a && at > instr))
        kind = VERDICT_LEFT_OUT;
    if (kind == v->kind && m == v->culprit)
        v->num_waiters++;
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
        [VERDICT_CIRCLE] = "ranks wait for each other", [VERDICT_LEFT_OUT] = "it left out a call",
        [VERDICT_STUCK] = "it is stuck outside of communication", [VERDICT_ENDED] = "it has ended",
    };
    *v = (verdict){.kind = kind, .culprit = m, .waiter = a, .num_waiters = 1, .waited_ns = waited,
                   .culprit_calls = atomic_load(&rm->calls)};
    snprintf(v->text, sizeof v->text, "%s: %s; rank %d has waited %.1f s for it in %s", what[kind], doing, a,
             1e-9 * (double)waited, where);
}

/* The members that rank a misses in group g. */
static void consider_group(comm_shared *s, verdict *v, int a, const comm_group *g, int64_t waited)
{
    int pos = 0;
    while (pos < g->n && g->ranks[pos] != a)
        pos++;
    if (pos == g->n)
        return;
    const comm_slot *mine = &g->slots[pos];
    const uint32_t posted = atomic_load(&mine->posted);
    for (int i = 0; i < g->n; i++)
        if ((int32_t)(posted - atomic_load(&g->slots[i].posted)) > 0)
            consider(s, v, a, g->ranks[i], atomic_load(&mine->instr), g->name, waited);
}

/* Is this rank's wait worth looking at? Either it is over the limit, or what it waits for has ended. */
static verdict look(comm_shared *s, int64_t limit)
{
    verdict best = {0};
    const int64_t now = orth_clock_ns();
    /* Under the lock no group goes away; one that is not in the list any more is not looked into. */
    pthread_mutex_lock(&s->mutex);
    for (int a = 0; a < s->num_ranks; a++) {
        const comm_rank *r = &s->ranks[a];
        const int64_t since = atomic_load(&r->since_ns);
        if (since == 0)
            continue;
        const comm_group *g = s->groups;
        while (g && g != atomic_load(&r->group))
            g = g->next;
        if (!g)
            continue;
        verdict v = {0};
        const orth_comm_kind kind = (orth_comm_kind)atomic_load(&r->kind);
        const int peer = atomic_load(&r->peer);
        if (kind != ORTH_COMM_SEND && kind != ORTH_COMM_RECV)
            consider_group(s, &v, a, g, now - since);
        else if (peer >= 0 && peer < g->n)
            consider(s, &v, a, g->ranks[peer], atomic_load(&r->instr), g->name, now - since);
        if (v.kind != VERDICT_ENDED && now - since < limit)
            continue;
        if (v.kind > best.kind || (v.kind == best.kind && v.waited_ns > best.waited_ns))
            best = v;
    }
    pthread_mutex_unlock(&s->mutex);
    return best;
}

static bool any_busy(comm_shared *s)
{
    for (int i = 0; i < s->num_ranks; i++)
        if (atomic_load(&s->ranks[i].busy))
            return true;
    return false;
}

/* Sleeps; true when it is time to go. */
static bool rest(comm_watchdog *w, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (until.tv_nsec + ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + ns) % 1000000000;
    pthread_mutex_lock(&w->mutex);
    if (!w->quit)
        pthread_cond_timedwait(&w->wake, &w->mutex, &until);
    const bool quit = w->quit;
    pthread_mutex_unlock(&w->mutex);
    return quit;
}

void *comm_watchdog_main(void *watchdog)
{
    comm_watchdog *w = watchdog;
    verdict last = {0};
    for (;;) {
        const int64_t limit = atomic_load(&w->s->limit_ns);
        if (rest(w, ORTH_MIN(limit / 20, 250000000)))
            return NULL;
        if (comm_aborted(w->s) || any_busy(w->s)) {
            last.kind = VERDICT_NONE;
            continue;
        }
        verdict v = look(w->s, limit);
        const bool again = v.kind != VERDICT_NONE && v.kind == last.kind && v.culprit == last.culprit &&
                           v.waiter == last.waiter && v.culprit_calls == last.culprit_calls;
        if (again)
            comm_abort(w->s, v.culprit, ORTH_ERR_COMM, "%s", v.text);
        last = v;
    }
}
