/* watchdog.c -- the monitor of a world of threads: looks for the suspect (blame.c) in the ranks' memory. */
#include <string.h>

#include "base/clock.h"
#include "comm/thread/group.h"

#define LOOK_MOST_NS 250000000    /* between two looks; they are closer where the limit is short */

/* The members of g that rank a misses. */
static void miss_members(comm_seen *seen, int a, const comm_group *g)
{
    int pos = 0;
    while (pos < g->n && g->ranks[pos] != a)
        pos++;
    if (pos == g->n)
        return;
    const comm_slot *mine = &g->slots[pos];
    const uint32_t posted = atomic_load(&mine->posted);
    seen->instr = atomic_load(&mine->instr);
    for (int i = 0; i < g->n; i++)
        if ((int32_t)(posted - atomic_load(&g->slots[i].posted)) > 0)
            comm_set_add(&seen->missing, g->ranks[i]);
}

/* Under the lock no group goes away; one that is not in the list any more is not looked into. */
static void look_at(comm_shared *s, int a, comm_seen *seen)
{
    const comm_rank *r = &s->ranks[a];
    const comm_group *g = s->groups;
    memset(seen, 0, sizeof *seen);
    if (atomic_load(&r->since_ns) == 0)
        return;
    while (g && g != atomic_load(&r->group))
        g = g->next;
    seen->waits = true;
    if (!g)
        return;
    memcpy(seen->group, g->name, sizeof seen->group);
    seen->instr = atomic_load(&r->instr);
    const orth_comm_kind kind = (orth_comm_kind)atomic_load(&r->kind);
    const int peer = atomic_load(&r->peer);
    if (kind != ORTH_COMM_SEND && kind != ORTH_COMM_RECV)
        miss_members(seen, a, g);
    else if (peer >= 0 && peer < g->n)
        comm_set_add(&seen->missing, g->ranks[peer]);
}

/* Sleeps; true when it is time to go. */
static bool rest(comm_watchdog *w, int64_t ns)
{
    const struct timespec until = orth_clock_deadline(ns);
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
    comm_shared *s = w->watch.s;
    for (;;) {
        const int64_t limit = ORTH_MIN(atomic_load(&s->limit_ns), s->busy_ns), ns = ORTH_MIN(limit / 20, LOOK_MOST_NS);
        if (rest(w, ns))
            return NULL;
        comm_watch_count(&w->watch, 2 * ns);
        pthread_mutex_lock(&s->mutex);
        for (int a = 0; a < s->num_ranks; a++)
            look_at(s, a, &w->watch.seen[a]);
        pthread_mutex_unlock(&s->mutex);
        comm_watch_judge(&w->watch);
    }
}
