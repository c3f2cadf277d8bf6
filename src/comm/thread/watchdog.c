/* watchdog.c -- the monitor of a world of threads: looks for the culprit (culprit.c) in the ranks' memory.
 *
 * What is seen must hold unchanged in two looks in a row, so that a rank caught between two calls is
 * not blamed.
 */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/thread/group.h"

/* The members that rank a misses in group g. */
static void consider_group(comm_shared *s, comm_culprit *v, int a, const comm_group *g, int64_t waited)
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
            comm_culprit_consider(s, v, a, g->ranks[i], atomic_load(&mine->instr), g->name, waited);
}

/* Is this rank's wait worth looking at? Either it is over the limit, or what it waits for has ended. */
static comm_culprit look(comm_shared *s, int64_t limit)
{
    comm_culprit best = {0};
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
        comm_culprit v = {0};
        const orth_comm_kind kind = (orth_comm_kind)atomic_load(&r->kind);
        const int peer = atomic_load(&r->peer);
        if (kind != ORTH_COMM_SEND && kind != ORTH_COMM_RECV)
            consider_group(s, &v, a, g, now - since);
        else if (peer >= 0 && peer < g->n)
            comm_culprit_consider(s, &v, a, g->ranks[peer], atomic_load(&r->instr), g->name, now - since);
        if (comm_culprit_better(&v, &best, limit))
            best = v;
    }
    pthread_mutex_unlock(&s->mutex);
    return best;
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
    comm_culprit last = {0};
    for (;;) {
        const int64_t limit = atomic_load(&w->s->limit_ns);
        if (rest(w, ORTH_MIN(limit / 20, 250000000)))
            return NULL;
        if (comm_aborted(w->s) || comm_any_busy(w->s)) {
            last.kind = COMM_CULPRIT_NONE;
            continue;
        }
        comm_culprit v = look(w->s, limit);
        if (comm_culprit_same(&v, &last))
            comm_abort(w->s, v.rank, ORTH_ERR_COMM, "%s", v.text);
        last = v;
    }
}
