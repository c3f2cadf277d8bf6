/* monitor.c -- see monitor.h.
 *
 * A peer's silence is counted by this thread's own looks, at most LOOK_MOST_NS for each, so that a machine that
 * was suspended or short of time does not take everyone for dead when it goes on.
 */
#include "comm/mpi/monitor.h"

#include <mpi.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/pool.h"

#define LOOK_NS 10000000          /* between two looks at what has come */
#define LOOK_MOST_NS 100000000
#define NOTE_NS 200000000         /* between two notes to the same rank, if nothing changes */
#define JUDGE_NS 300000000        /* between two looks for a suspect: each rank has reported something new */
#define LAST_WORDS_NS 2000000000  /* for the verdict to get out */
#define SILENCE_S 5.0             /* at least */
#define STALE_NS 1000000000       /* what a rank reported longer ago is not held against it */

/* What processes tell each other; sent as it is. */
typedef struct {
    int64_t calls, step, ticks, epoch;
    int32_t last_kind, last_instr, depth; /* depth > 0: in a phase */
    comm_seen seen;                     /* whether and for whom it waits */
    char place[ORTH_PLACE_MAX];         /* in words; ends with a file: */
    bool file;
    bool lacks;                         /* comm_rank_lacks */
    bool ended, primary;                /* its function has returned; with an error of its own */
    bool aborted;                       /* then cause_rank, status, text */
    bool over;                          /* rank 0's verdict: status, text, and who says it */
    int32_t status, cause_rank, speaker;
    char text[ORTH_MESSAGE_MAX];
} note;

typedef struct {
    int rank;
    MPI_Request in, out;
    note received, sent;
    int64_t silent_ns, last_sent_ns;
    bool told_abort, told_end;
    bool lost;                    /* not heard of */
    bool ended;
    note end;                     /* of a rank that has */
} peer;

struct comm_monitor {
    comm_shared *s;
    int rank, num_peers;
    MPI_Comm comm;
    peer *peers;                  /* rank 0: all others; else rank 0 */
    bool *same_host;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool has_ended;               /* under mutex, with `own` */
    note own;
    /* The thread's own. */
    int64_t silence_ns, looked_ns, judged_ns, aborted_ns;
    comm_watch watch;             /* rank 0 */
    note verdict;
    bool has_verdict;
};

/* ---- notes ---- */

static const orth_comm *waits_in(const comm_rank *me)
{
    return atomic_load(&me->since_ns) ? atomic_load(&me->group) : NULL;
}

void comm_monitor_misses(orth_comm *c, const comm_set *positions)
{
    comm_shared *s = c->world->s;
    comm_rank *me = &s->ranks[c->world->rank];
    pthread_mutex_lock(&s->mutex);
    if (atomic_load(&me->group) == c) {
        me->missing.known = positions != NULL;
        memset(&me->missing.set, 0, sizeof me->missing.set);
        for (int i = 0; positions && i < c->n; i++)
            if (comm_set_has(positions, i))
                comm_set_add(&me->missing.set, c->ranks[i]);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* Whom this rank waits for. Under s->mutex: no communicator goes away meanwhile. */
static void look_at(const comm_rank *me, comm_seen *seen)
{
    const orth_comm *c = waits_in(me);
    if (!c)
        return;
    const orth_comm_kind kind = (orth_comm_kind)atomic_load(&me->kind);
    const int at = atomic_load(&me->peer);
    seen->waits = true;
    seen->instr = atomic_load(&me->instr);
    memcpy(seen->group, c->name, sizeof seen->group);
    if (kind != ORTH_COMM_SEND && kind != ORTH_COMM_RECV && me->missing.known)
        seen->missing = me->missing.set;
    else if ((kind == ORTH_COMM_SEND || kind == ORTH_COMM_RECV) && at >= 0 && at < c->n)
        comm_set_add(&seen->missing, c->ranks[at]);
}

/* What this rank does at the moment. */
static void describe_rank(comm_shared *s, int rank, note *n)
{
    const comm_rank *me = &s->ranks[rank];
    memset(n, 0, sizeof *n);
    n->calls = atomic_load(&me->calls);
    n->step = atomic_load(&me->step);
    n->ticks = atomic_load(&me->progress.ticks);
    n->depth = atomic_load(&me->progress.depth);
    n->epoch = atomic_load(&me->progress.epoch);
    n->lacks = comm_rank_lacks(me);
    n->last_kind = atomic_load(&me->last_kind);
    n->last_instr = atomic_load(&me->last_instr);
    pthread_mutex_lock(&s->mutex);
    look_at(me, &n->seen);
    comm_place(s, rank, n->seen.waits ? n->seen.group : NULL, n->place, sizeof n->place, &n->file);
    n->aborted = comm_aborted(s);
    if (n->aborted) {
        n->cause_rank = s->cause_rank;
        n->status = (int32_t)s->cause_code;
        memcpy(n->text, s->cause, sizeof n->text);
    }
    pthread_mutex_unlock(&s->mutex);
}

static void compose(comm_monitor *m, note *n)
{
    describe_rank(m->s, m->rank, n);
    pthread_mutex_lock(&m->mutex);
    if (m->has_ended) {
        n->ended = true;
        n->primary = m->own.primary;
        if (m->own.primary || !n->aborted) {
            n->status = m->own.status;
            memcpy(n->text, m->own.text, sizeof n->text);
        }
    }
    pthread_mutex_unlock(&m->mutex);
}

/* What a rank reported last, where blame.c looks for it. */
static void remember(comm_monitor *m, int rank, const note *n)
{
    comm_rank *r = &m->s->ranks[rank];
    atomic_store(&r->calls, n->calls);
    atomic_store(&r->step, n->step);
    atomic_store(&r->progress.ticks, n->ticks);
    atomic_store(&r->progress.depth, n->depth);
    atomic_store(&r->progress.epoch, n->epoch);
    r->remote_lacks = n->lacks;
    atomic_store(&r->last_kind, n->last_kind);
    atomic_store(&r->last_instr, n->last_instr);
    atomic_store(&r->ended, n->ended);
    m->watch.seen[rank] = n->seen;
    r->remote = true;
    r->remote_file = n->file;
    memcpy(r->remote_place, n->place, sizeof r->remote_place);
}

static void listen_to(comm_monitor *m, peer *p)
{
    MPI_Irecv(&p->received, (int)sizeof p->received, MPI_BYTE, p->rank, 0, m->comm, &p->in);
}

static void take_note(comm_monitor *m, peer *p)
{
    const note *n = &p->received;
    p->silent_ns = 0;
    if (n->aborted)
        comm_adopt_cause(m->s, n->cause_rank, (orth_status)n->status, n->text);
    if (m->rank == 0)
        remember(m, p->rank, n);
    if (n->ended && m->rank == 0) {
        p->ended = true;
        p->end = *n;
        return; /* it says no more */
    }
    if (n->over) {
        m->verdict = *n;
        m->has_verdict = true;
        return;
    }
    listen_to(m, p);
}

/* All that have been silent for nearly as long as this one. */
static void report_lost(comm_monitor *m, const peer *p)
{
    char who[160] = "";
    int num = 0, first = p->rank;
    for (int i = 0; i < m->num_peers; i++) {
        peer *q = &m->peers[i];
        if (q->ended || q->silent_ns < m->silence_ns - STALE_NS)
            continue;
        q->lost = true;
        first = ORTH_MIN(first, q->rank);
        num++;
        const size_t at = strlen(who);
        snprintf(who + at, sizeof who - at, "%s%d", at ? ", " : "", q->rank);
    }
    const bool many = num > 1;
    comm_abort(m->s, first, ORTH_ERR_COMM, "nothing has been heard of rank%s %s for %.1f s: %s stopped, or the network to "
               "%s is down", many ? "s" : "", who, 1e-9 * (double)p->silent_ns,
               many ? "their processes or hosts have" : "its process or host has", many ? "them" : "it");
}

static void take_notes(comm_monitor *m)
{
    const int64_t now = orth_clock_ns(), passed = ORTH_MIN(now - m->looked_ns, LOOK_MOST_NS);
    m->looked_ns = now;
    for (int i = 0; i < m->num_peers; i++) {
        peer *p = &m->peers[i];
        int come = 0;
        while (p->in != MPI_REQUEST_NULL && MPI_Test(&p->in, &come, MPI_STATUS_IGNORE) == MPI_SUCCESS && come)
            take_note(m, p);
        if (!p->ended)
            p->silent_ns += passed;
    }
    for (int i = 0; i < m->num_peers && m->silence_ns > 0; i++) {
        peer *p = &m->peers[i];
        if (!p->ended && !p->lost && !m->has_verdict && p->silent_ns > m->silence_ns)
            report_lost(m, p);
    }
}

static void send_notes(comm_monitor *m)
{
    const int64_t now = orth_clock_ns();
    const bool aborted = comm_aborted(m->s);
    pthread_mutex_lock(&m->mutex);
    const bool ended = m->has_ended;
    pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < m->num_peers; i++) {
        peer *p = &m->peers[i];
        const bool tells_end = m->rank != 0 && ended; /* of rank 0 the verdict is enough */
        const bool news = (aborted && !p->told_abort) || (tells_end && !p->told_end);
        int out = 1;
        if (p->out != MPI_REQUEST_NULL)
            MPI_Test(&p->out, &out, MPI_STATUS_IGNORE);
        if (!out || p->told_end || (!news && now - p->last_sent_ns < NOTE_NS))
            continue;
        compose(m, &p->sent);
        p->sent.ended = p->sent.ended && m->rank != 0;
        p->told_abort = p->sent.aborted;
        p->told_end = p->sent.ended;
        p->last_sent_ns = now;
        MPI_Isend(&p->sent, (int)sizeof p->sent, MPI_BYTE, p->rank, 0, m->comm, &p->out);
    }
}

/* ---- rank 0: who is to blame, and how it all ended ---- */

/* Is there a rank of whom nothing has been heard for a while? It may be about to be reported lost. */
static bool any_stale(const comm_monitor *m)
{
    for (int i = 0; i < m->num_peers; i++)
        if (!m->peers[i].ended && m->peers[i].silent_ns > STALE_NS)
            return true;
    return false;
}

static void judge(comm_monitor *m)
{
    const int64_t now = orth_clock_ns();
    note own;
    if (atomic_load(&m->s->limit_ns) == 0 || now - m->judged_ns < JUDGE_NS)
        return;
    m->judged_ns = now;
    if (any_stale(m)) {
        m->watch.last.kind = COMM_SUSPECT_NONE;
        return;
    }
    describe_rank(m->s, 0, &own);
    m->watch.seen[0] = own.seen;
    comm_watch_judge(&m->watch);
}

/* The lowest rank with an error of its own, else the world's cause; and the lowest rank that is there says it. */
static void decide(comm_monitor *m, bool here)
{
    note *v = &m->verdict;
    compose(m, v);
    bool own_error = v->ended && v->primary;
    v->over = true;
    v->speaker = here ? 0 : -1;
    for (int i = 0; i < m->num_peers; i++) {
        const peer *p = &m->peers[i];
        if (!p->ended)
            continue;
        v->speaker = v->speaker < 0 ? p->rank : v->speaker;
        if (p->end.primary && !own_error) {
            own_error = true;
            v->status = p->end.status;
            memcpy(v->text, p->end.text, sizeof v->text);
        }
    }
    m->has_verdict = true;
}

/* To all that have ended; they listen until it comes. */
static void send_verdict(comm_monitor *m)
{
    const int64_t start = orth_clock_ns();
    for (int left = 1; left && orth_clock_ns() - start < LAST_WORDS_NS;) {
        left = 0;
        for (int i = 0; i < m->num_peers; i++) {
            peer *p = &m->peers[i];
            int out = 1;
            if (p->out != MPI_REQUEST_NULL)
                MPI_Test(&p->out, &out, MPI_STATUS_IGNORE);
            left += p->ended && (!out || !p->told_end);
            if (!p->ended || !out || p->told_end)
                continue;
            MPI_Isend(&m->verdict, (int)sizeof m->verdict, MPI_BYTE, p->rank, 0, m->comm, &p->out);
            p->told_end = true;
        }
        if (left)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* A rank that has not ended and moves, which may be the end of a checkpoint on a slow disk. */
static bool any_moves(const comm_monitor *m, bool here, int64_t grace)
{
    bool any = !here && comm_rank_moves(m->s, 0, grace);
    for (int i = 0; i < m->num_peers && m->s->options.timeout_s > 0; i++)
        any = any || (!m->peers[i].ended && !m->peers[i].lost && comm_rank_moves(m->s, m->peers[i].rank, grace));
    return any;
}

/* Has everyone ended who will? Then the verdict goes out. */
static void settle(comm_monitor *m)
{
    const int64_t now = orth_clock_ns();
    bool waiting = false;
    pthread_mutex_lock(&m->mutex);
    const bool here = m->has_ended;
    pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < m->num_peers; i++)
        waiting = waiting || (!m->peers[i].ended && !m->peers[i].lost);
    if (comm_aborted(m->s))
        m->aborted_ns = m->aborted_ns ? m->aborted_ns : now;
    const int64_t grace = (int64_t)(1e9 * ORTH_MAX(m->s->options.timeout_s, 1.0));
    if ((waiting || !here) && (m->aborted_ns == 0 || now - m->aborted_ns < grace || any_moves(m, here, grace)))
        return;
    decide(m, here);
    send_verdict(m);
}

/* ---- the thread ---- */

/* Without rank 0 there is no verdict: the process ends with what it has. */
static bool is_alone(comm_monitor *m)
{
    pthread_mutex_lock(&m->mutex);
    const bool ended = m->has_ended;
    pthread_mutex_unlock(&m->mutex);
    return ended && m->rank != 0 && m->peers[0].lost;
}

static void rest(comm_monitor *m)
{
    const struct timespec until = orth_clock_deadline(LOOK_NS);
    pthread_mutex_lock(&m->mutex);
    pthread_cond_timedwait(&m->wake, &m->mutex, &until);
    pthread_mutex_unlock(&m->mutex);
}

static void *monitor_main(void *p)
{
    comm_monitor *m = p;
    for (int i = 0; i < m->num_peers; i++)
        listen_to(m, &m->peers[i]);
    while (!m->has_verdict && !is_alone(m)) {
        take_notes(m);
        if (m->has_verdict)
            break;
        send_notes(m);
        if (m->rank == 0) {
            comm_watch_count(&m->watch, LOOK_MOST_NS);
            judge(m);
            settle(m);
        }
        if (!m->has_verdict)
            rest(m);
    }
    return NULL;
}

/* ---- from outside ---- */

static orth_status find_hosts(orth_ctx *ctx, comm_monitor *m, int size)
{
    enum { HOST = MPI_MAX_PROCESSOR_NAME };
    char mine[HOST] = "", (*all)[HOST] = orth_mem_alloc(ctx, (size_t)size * HOST);
    m->same_host = ORTH_NEW_ARRAY(ctx, bool, size);
    if (!all || !m->same_host) {
        orth_mem_free(ctx, all);
        return ORTH_ERR_NOMEM;
    }
    int n;
    MPI_Get_processor_name(mine, &n);
    MPI_Allgather(mine, HOST, MPI_BYTE, all, HOST, MPI_BYTE, m->comm);
    int here = 0;
    for (int i = 0; i < size; i++)
        here += m->same_host[i] = strcmp(mine, all[i]) == 0;
    m->s->same_host = m->same_host;
    m->s->spins = here <= m->s->num_cores ? COMM_SPIN_ROUNDS : 0;
    if (here * orth_pool_num_threads(ctx->pool) > m->s->num_cores)
        orth_pool_share_cores(ctx->pool);
    orth_mem_free(ctx, all);
    return ORTH_OK;
}

static void release(orth_ctx *ctx, comm_monitor *m)
{
    m->s->same_host = NULL;
    comm_watch_close(ctx, &m->watch);
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->wake);
    orth_mem_free(ctx, m->same_host);
    orth_mem_free(ctx, m->peers);
    orth_mem_free(ctx, m);
}

orth_status comm_monitor_start(orth_ctx *ctx, comm_shared *s, int rank, comm_monitor **out)
{
    comm_monitor *m = ORTH_NEW(ctx, comm_monitor);
    if (!m)
        return ORTH_ERR_NOMEM;
    m->s = s;
    m->rank = rank;
    m->num_peers = rank == 0 ? s->num_ranks - 1 : 1;
    m->looked_ns = orth_clock_ns();
    if (s->options.timeout_s > 0)
        m->silence_ns = (int64_t)(1e9 * ORTH_MAX(s->options.timeout_s, SILENCE_S));
    pthread_mutex_init(&m->mutex, NULL);
    orth_clock_cond_init(&m->wake);
    m->peers = ORTH_NEW_ARRAY(ctx, peer, m->num_peers);
    for (int i = 0; m->peers && i < m->num_peers; i++) {
        m->peers[i].rank = rank == 0 ? i + 1 : 0;
        m->peers[i].in = m->peers[i].out = MPI_REQUEST_NULL;
    }
    orth_status status = m->peers ? comm_watch_open(ctx, &m->watch, s) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK && MPI_Comm_dup(MPI_COMM_WORLD, &m->comm) != MPI_SUCCESS)
        status = ORTH_FAIL(ctx, ORTH_ERR_COMM, "MPI refused a communicator for the monitor");
    if (status == ORTH_OK) {
        MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
        status = find_hosts(ctx, m, s->num_ranks);
    }
    if (status == ORTH_OK && pthread_create(&m->thread, NULL, monitor_main, m) != 0)
        status = ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused a thread to monitor the ranks");
    if (status != ORTH_OK) {
        release(ctx, m);
        return status;
    }
    *out = m;
    return ORTH_OK;
}

orth_status comm_monitor_end(orth_ctx *ctx, comm_monitor *m, orth_status status, bool derived)
{
    pthread_mutex_lock(&m->mutex);
    m->has_ended = true;
    atomic_store(&m->s->ranks[m->rank].ended, true);
    m->own.primary = status != ORTH_OK && !derived;
    m->own.status = (int32_t)status;
    if (m->own.primary)
        snprintf(m->own.text, sizeof m->own.text, "rank %d: %.1000s", m->rank,
                 ctx->error.code ? ctx->error.message : orth_status_name(status));
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->mutex);
    pthread_join(m->thread, NULL);
    const note *v = &m->verdict;
    if (m->has_verdict)
        status = (orth_status)v->status;
    if (status != ORTH_OK) {
        char text[ORTH_MESSAGE_MAX];
        snprintf(text, sizeof text, "%s", m->has_verdict ? v->text : m->own.primary ? m->own.text : m->s->cause);
        orth_ctx_clear_error(ctx);
        ORTH_FAIL(ctx, status, "%s", text);
        ctx->error.printed_elsewhere = m->has_verdict && v->speaker != m->rank;
    } else {
        MPI_Comm_free(&m->comm);
    }
    release(ctx, m);
    return status;
}
