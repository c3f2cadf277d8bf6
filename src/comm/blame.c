/* blame.c -- which rank is everyone waiting for?
 *
 * A rank moves while its ticks do; it is quiet for as long as they stand still. A rank that waits, waits for others: the
 * members that have not made the call, or the peer of a message. Those edges lead to the suspect, the first of:
 *   1. a rank that has ended: it will never come (reported at once, whatever the limit);
 *   2. a rank that is quiet, over its limit, and waits for nobody: it is stuck outside of communication;
 *   3. a rank that left a call out: it has made fewer than its program asked for; or it waits in a later step, or in a later
 *      part of the work (an evaluation, a save), or further on in its program, than the rank that misses it;
 *   4. else ranks wait for each other in a circle, and one of them is named.
 * 3 and 4 need that nobody moves any more: a rank that waits for one that moves, directly or by way of others, is
 * excused, because it will go on when that one comes.
 *
 * What is seen must hold unchanged in two looks in a row, so that a rank caught between two calls is not blamed. Quiet
 * times are sums over the monitor's own looks, none of which counts for much: after a pause of the whole program, or on
 * a machine that is short of time, nobody looks dead. Time for which threads had to wait for a CPU hardly counts either.
 *
 * Used by the monitor of a world of threads (thread/watchdog.c), which sees all of it in memory, and by that of rank 0
 * over MPI (mpi/monitor.c), which is told by the others.
 */
#include "comm/comm_impl.h"

#include "base/clock.h"
#include "base/machine.h"

orth_status comm_watch_open(orth_ctx *ctx, comm_watch *w, comm_shared *s)
{
    *w = (comm_watch){.s = s, .looked_ns = orth_clock_ns(), .starved_ns = -1};
    w->seen = ORTH_NEW_ARRAY(ctx, comm_seen, s->num_ranks);
    w->excused = ORTH_NEW_ARRAY(ctx, bool, s->num_ranks);
    return w->seen && w->excused ? ORTH_OK : ORTH_ERR_NOMEM;
}

void comm_watch_close(orth_ctx *ctx, comm_watch *w)
{
    orth_mem_free(ctx, w->seen);
    orth_mem_free(ctx, w->excused);
    *w = (comm_watch){0};
}

/* Of `passed`, what counts: on a machine that is short of time a rank may wait for a CPU for longer than its limit. The system is
 * asked only where somebody is quiet. An eighth counts always: who computes without end starves, too. Processes of MPI poll while they
 * wait, and would seem to starve where there are more of them than CPUs. */
static int64_t with_a_cpu(comm_watch *w, int64_t passed, bool any_quiet)
{
    const bool asks = any_quiet && w->s->options.backend == ORTH_BACKEND_THREAD;
    const int64_t before = w->starved_ns, now = asks ? orth_machine_starved_ns() : -1;
    w->starved_ns = now;
    return before < 0 || now < before ? passed : ORTH_MAX(passed - (now - before), passed / 8);
}

void comm_watch_count(comm_watch *w, int64_t most_ns)
{
    const int64_t now = orth_clock_ns(), limit = atomic_load(&w->s->limit_ns);
    int64_t passed = ORTH_MIN(now - w->looked_ns, most_ns);
    bool any_quiet = false;
    for (int i = 0; i < w->s->num_ranks; i++)
        any_quiet = any_quiet || atomic_load(&w->s->ranks[i].quiet_ns) > limit / 4;
    w->looked_ns = now;
    passed = with_a_cpu(w, passed, any_quiet);
    for (int i = 0; i < w->s->num_ranks; i++) {
        comm_rank *r = &w->s->ranks[i];
        const int64_t ticks = atomic_load(&r->progress.ticks);
        atomic_store(&r->quiet_ns, ticks == r->ticks_seen ? atomic_load(&r->quiet_ns) + passed : 0);
        r->ticks_seen = ticks;
    }
}

static int64_t limit_of(const comm_shared *s, const comm_rank *r, int64_t limit_ns)
{
    return atomic_load(&r->progress.depth) > 0 ? s->busy_ns : limit_ns;
}

bool comm_rank_moves(const comm_shared *s, int rank, int64_t limit_ns)
{
    const comm_rank *r = &s->ranks[rank];
    return atomic_load(&r->quiet_ns) < limit_of(s, r, limit_ns);
}

bool comm_rank_lacks(const comm_rank *r)
{
    const bool any = atomic_load(&r->made_epoch) == atomic_load(&r->progress.epoch);
    return r->remote ? r->remote_lacks : atomic_load(&r->progress.asked) > (any ? atomic_load(&r->made) : 0);
}

static bool misses_nobody(const comm_seen *v)
{
    uint64_t any = 0;
    for (int i = 0; i < COMM_SET_WORDS; i++)
        any |= v->missing.word[i];
    return any == 0;
}

/* Moves, or is about to: all that it waits for is there. */
static bool is_alive(const comm_watch *w, int rank, int64_t limit_ns)
{
    const comm_seen *v = &w->seen[rank];
    return !atomic_load(&w->s->ranks[rank].ended) &&
           (comm_rank_moves(w->s, rank, limit_ns) || (v->waits && misses_nobody(v)));
}

/* Those that move, and from them backwards all that wait for them. */
static void find_excused(comm_watch *w, int64_t limit_ns)
{
    const int n = w->s->num_ranks;
    for (int i = 0; i < n; i++)
        w->excused[i] = is_alive(w, i, limit_ns);
    for (bool more = true; more;) {
        more = false;
        for (int a = 0; a < n; a++)
            for (int m = 0; m < n && w->seen[a].waits && !w->excused[a]; m++)
                if (w->excused[m] && comm_set_has(&w->seen[a].missing, m))
                    more = w->excused[a] = true;
    }
}

/* What is wrong with rank m, for which a waits. */
static comm_suspect_kind kind_of(const comm_watch *w, int a, int m, int64_t limit_ns)
{
    const comm_rank *ra = &w->s->ranks[a], *rm = &w->s->ranks[m];
    if (atomic_load(&rm->ended))
        return COMM_SUSPECT_ENDED;
    if (atomic_load(&ra->quiet_ns) < ORTH_MIN(limit_ns, limit_of(w->s, ra, limit_ns)) || comm_rank_moves(w->s, m, limit_ns))
        return COMM_SUSPECT_NONE;
    if (!w->seen[m].waits)
        return COMM_SUSPECT_STUCK;
    if (w->excused[m])
        return COMM_SUSPECT_NONE;
    const int64_t step_a = atomic_load(&ra->step), step_m = atomic_load(&rm->step);
    const int64_t epoch_a = atomic_load(&ra->progress.epoch), epoch_m = atomic_load(&rm->progress.epoch);
    const bool later = step_m != step_a ? step_m > step_a : epoch_m != epoch_a ? epoch_m > epoch_a
                                                                              : w->seen[m].instr > w->seen[a].instr;
    const bool lacks_a = comm_rank_lacks(ra), lacks_m = comm_rank_lacks(rm);
    if (lacks_a != lacks_m)
        return lacks_m ? COMM_SUSPECT_LEFT_OUT : COMM_SUSPECT_CIRCLE;
    return later ? COMM_SUSPECT_LEFT_OUT : COMM_SUSPECT_CIRCLE;
}

static comm_suspect find(comm_watch *w, int64_t limit_ns)
{
    const comm_shared *s = w->s;
    comm_suspect best = {.waiter = -1};
    int64_t longest = -1;
    find_excused(w, limit_ns);
    for (int a = 0; a < s->num_ranks; a++) {
        const int64_t quiet = atomic_load(&s->ranks[a].quiet_ns);
        for (int m = 0; m < s->num_ranks && w->seen[a].waits; m++) {
            const comm_suspect_kind kind = comm_set_has(&w->seen[a].missing, m) ? kind_of(w, a, m, limit_ns) : COMM_SUSPECT_NONE;
            if (kind < best.kind || kind == COMM_SUSPECT_NONE || (kind == best.kind && quiet <= longest))
                continue;
            best = (comm_suspect){.kind = kind, .rank = m, .waiter = a};
            longest = quiet;
        }
    }
    /* One that nobody waits for, yet or at all: in a phase, or in a step for as long as in a phase. */
    for (int m = 0; m < s->num_ranks && best.kind == COMM_SUSPECT_NONE; m++)
        if (!w->seen[m].waits && !atomic_load(&s->ranks[m].ended) && !comm_rank_moves(s, m, ORTH_MAX(limit_ns, s->busy_ns)))
            best = (comm_suspect){.kind = COMM_SUSPECT_STUCK, .rank = m, .waiter = -1};
    best.ticks = atomic_load(&s->ranks[best.rank].progress.ticks);
    return best;
}

/* "all_reduce on 'tp'": the call before the suspect was stuck. */
static void put_last_call(comm_shared *s, int rank, char *text, size_t n)
{
    const comm_rank *r = &s->ranks[rank];
    char words[ORTH_PLACE_MAX - 64];
    if (atomic_load(&r->calls) == 0) {
        snprintf(text, n, "it has made no call");
        return;
    }
    comm_instr_words(s, rank, atomic_load(&r->last_instr), words, sizeof words);
    snprintf(text, n, "its last call was %s (%s)", orth_comm_kind_name((orth_comm_kind)atomic_load(&r->last_kind)), words);
}

static void put_suspect(comm_watch *w, const comm_suspect *v, char *text, size_t n)
{
    comm_shared *s = w->s;
    const comm_rank *r = &s->ranks[v->rank];
    const comm_seen *seen = &w->seen[v->rank];
    const bool busy = atomic_load(&r->progress.depth) > 0;
    const double quiet_s = 1e-9 * (double)atomic_load(&r->quiet_ns);
    char place[ORTH_PLACE_MAX], last[ORTH_PLACE_MAX];
    bool file;
    comm_place(s, v->rank, seen->waits ? seen->group : NULL, place, sizeof place, &file);
    if (v->kind == COMM_SUSPECT_STUCK && busy) {
        snprintf(text, n, "it is stuck %s, no %s for %.1f s", place, file ? "byte" : "progress", quiet_s);
    } else if (v->kind == COMM_SUSPECT_STUCK) {
        put_last_call(s, v->rank, last, sizeof last);
        snprintf(text, n, "it is stuck outside of communication, %s, no progress for %.1f s; %s", place, quiet_s, last);
    } else if (v->kind == COMM_SUSPECT_ENDED) {
        snprintf(text, n, "it has ended");
    } else {
        snprintf(text, n, "%s: it waits in %s", v->kind == COMM_SUSPECT_CIRCLE ? "ranks wait for each other" : "it left out a call",
                 place);
    }
    if (v->waiter < 0)
        return;
    const size_t at = strlen(text);
    comm_place(s, v->waiter, w->seen[v->waiter].group, place, sizeof place, &file);
    snprintf(text + at, n - at, "; rank %d has waited %.1f s for it in %s", v->waiter,
             1e-9 * (double)atomic_load(&s->ranks[v->waiter].quiet_ns), place);
}

void comm_watch_judge(comm_watch *w)
{
    comm_shared *s = w->s;
    const int64_t limit_ns = atomic_load(&s->limit_ns);
    char text[ORTH_MESSAGE_MAX - 32];
    if (comm_aborted(s) || limit_ns == 0) {
        w->last.kind = COMM_SUSPECT_NONE;
        return;
    }
    const comm_suspect v = find(w, limit_ns), *last = &w->last;
    const bool same = v.kind != COMM_SUSPECT_NONE && v.kind == last->kind && v.rank == last->rank &&
                      v.waiter == last->waiter && v.ticks == last->ticks;
    w->last = v;
    if (!same)
        return;
    pthread_mutex_lock(&s->mutex);
    put_suspect(w, &v, text, sizeof text);
    pthread_mutex_unlock(&s->mutex);
    comm_abort(s, v.rank, ORTH_ERR_COMM, "%s", text);
}
