/* world.c -- what a world is, whatever the back end: options, abort and its cause, steps, waits.
 *
 * The first failure anywhere writes the cause and raises `aborted`; every wait of every rank looks at
 * that flag, so all of them end with the same message.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "comm/comm_impl.h"

#define TIMEOUT_S 5.0
#define STARTUP_S 60.0            /* where nobody knows how long a step takes */
#define STARTUP_STEPS 4            /* the first step also touches all memory */
#define BUSY_S 300.0               /* file systems of clusters come back from a failure within minutes */

static const char *const kind_names[] = {
#define KIND(NAME, text, ring, tree) [ORTH_COMM_##NAME] = text,
#include "comm/kinds.def"
#undef KIND
};

const char *orth_comm_kind_name(orth_comm_kind kind)
{
    return kind >= 0 && kind < ORTH_NUM_COMM_KINDS ? kind_names[kind] : "unknown";
}

const char *orth_comm_backend_name(orth_comm_backend b)
{
    static const char *const names[ORTH_NUM_BACKENDS] = {
        [ORTH_BACKEND_THREAD] = "thread", [ORTH_BACKEND_NULL] = "null", [ORTH_BACKEND_MPI] = "mpi"};
    return names[b];
}

static const comm_ops *ops_of(orth_comm_backend b)
{
    static const comm_ops *const ops[ORTH_NUM_BACKENDS] = {
        [ORTH_BACKEND_THREAD] = &comm_ops_thread, [ORTH_BACKEND_NULL] = &comm_ops_null,
#if ORTH_HAVE_MPI
        [ORTH_BACKEND_MPI] = &comm_ops_mpi,
#endif
    };
    return ops[b];
}

bool orth_comm_backend_built(orth_comm_backend b)
{
    return b >= 0 && b < ORTH_NUM_BACKENDS && ops_of(b) != NULL;
}

/* ---- running ---- */

static void set_limit(comm_shared *s)
{
    orth_world_options *o = &s->options;
    if (o->timeout_s == 0)
        o->timeout_s = TIMEOUT_S;
    const double startup = o->startup_s > 0 ? o->startup_s : ORTH_MAX(STARTUP_S, o->timeout_s);
    atomic_store(&s->limit_ns, o->timeout_s < 0 ? 0 : (int64_t)(startup * 1e9));
    s->busy_ns = (int64_t)(1e9 * (o->busy_timeout_s > 0 ? o->busy_timeout_s : BUSY_S));
}

/* The null back end: one rank after the other. */
static orth_status run_in_turn(orth_ctx *ctx, int num_ranks, orth_rank_fn fn, void *arg, comm_shared *s)
{
    const int rank_before = ctx->rank;
    orth_status status = ORTH_OK;
    for (int r = 0; r < num_ranks && status == ORTH_OK; r++) {
        orth_world w = {.s = s, .rank = r};
        ctx->rank = r;
        status = fn(ctx, &w, arg);
        comm_world_end(ctx, &w, status);
    }
    ctx->rank = rank_before;
    return status;
}

orth_status orth_run_ranks(orth_ctx *ctx, int num_ranks, orth_rank_fn fn, void *arg,
                           const orth_world_options *options)
{
    const orth_world_options o = options ? *options : (orth_world_options){0};
    const bool from_launcher = o.backend == ORTH_BACKEND_MPI && num_ranks == 0;
    if (!from_launcher && (num_ranks < 1 || num_ranks > ORTH_MAX_RANKS))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "ranks=%d is not in [1, %d]", num_ranks, ORTH_MAX_RANKS);
    if (!orth_comm_backend_built(o.backend))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "comm.backend '%s' is not in this build",
                         orth_comm_backend_name(o.backend));
    if (o.order == ORTH_ORDER_CANONICAL && o.algo == ORTH_ALGO_RING)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "algorithm ring cannot sum in canonical order");
    comm_shared *s = ORTH_NEW(ctx, comm_shared);
    if (!s)
        return ORTH_ERR_NOMEM;
    s->options = o;
    s->options.threads_per_rank = ORTH_MAX(o.threads_per_rank, 1);
    s->ops = ops_of(o.backend);
    s->num_ranks = num_ranks;
    s->num_cores = orth_machine_cores();
    s->spins = num_ranks <= s->num_cores ? COMM_SPIN_ROUNDS : 0;
    s->heap.isa = ctx->isa;
    s->heap.faults = ctx->faults;
    set_limit(s);
    pthread_mutex_init(&s->mutex, NULL);
    orth_status status;
    bool left_behind = false;
    if (o.backend == ORTH_BACKEND_NULL) {
        status = run_in_turn(ctx, num_ranks, fn, arg, s);
#if ORTH_HAVE_MPI
    } else if (o.backend == ORTH_BACKEND_MPI) {
        status = comm_run_mpi_rank(ctx, num_ranks, fn, arg, s);
#endif
    } else {
        status = comm_run_thread_ranks(ctx, num_ranks, fn, arg, s, &left_behind);
    }
    if (left_behind)
        return status; /* a stalled rank still uses it */
    pthread_mutex_destroy(&s->mutex);
    orth_mem_free(ctx, s);
    return status;
}

void orth_comm_shutdown(void)
{
#if ORTH_HAVE_MPI
    comm_mpi_shutdown();
#endif
}

void comm_world_end(orth_ctx *ctx, orth_world *w, orth_status status)
{
    if (status != ORTH_OK && !w->derived)
        comm_abort(w->s, w->rank, status, "%s",
                   ctx->error.code ? ctx->error.message : orth_status_name(status));
    while (w->comms)
        orth_comm_destroy(ctx, w->comms);
}

int orth_world_rank(const orth_world *w)
{
    return w->rank;
}

int orth_world_size(const orth_world *w)
{
    return w->s->num_ranks;
}

bool orth_world_shares_host(const orth_world *w, int rank)
{
    return !w->s->same_host || w->s->same_host[rank];
}

/* ---- abort ---- */

void comm_abort(comm_shared *s, int rank, orth_status code, const char *fmt, ...)
{
    pthread_mutex_lock(&s->mutex);
    if (!comm_aborted(s)) {
        int n = snprintf(s->cause, sizeof s->cause, "rank %d: ", rank);
        va_list args;
        va_start(args, fmt);
        vsnprintf(s->cause + n, sizeof s->cause - (size_t)n, fmt, args);
        va_end(args);
        s->cause_rank = rank;
        s->cause_code = code;
        atomic_store(&s->aborted, true);
    }
    pthread_mutex_unlock(&s->mutex);
}

void comm_adopt_cause(comm_shared *s, int rank, orth_status code, const char *cause)
{
    pthread_mutex_lock(&s->mutex);
    if (!comm_aborted(s)) {
        snprintf(s->cause, sizeof s->cause, "%s", cause);
        s->cause_rank = rank;
        s->cause_code = code;
        atomic_store(&s->aborted, true);
    }
    pthread_mutex_unlock(&s->mutex);
}

void orth_world_abort(orth_world *w, orth_status code, const char *cause)
{
    comm_abort(w->s, w->rank, code, "%s", cause);
}

orth_status orth_world_cause(const orth_world *w)
{
    return comm_aborted(w->s) ? w->s->cause_code : ORTH_OK; /* written before `aborted`, and never again */
}

bool orth_world_keeps_buffers(const orth_world *w)
{
    return w->s->ops->keeps_buffers && comm_aborted(w->s);
}

orth_status comm_fail(orth_ctx *ctx, orth_world *w)
{
    if (ctx->error.code == ORTH_OK)
        w->derived = true;
    /* The cause does not change once it is there; the lock orders this read after its writing. */
    pthread_mutex_lock(&w->s->mutex);
    orth_status status = ORTH_FAIL(ctx, ORTH_ERR_COMM, "%s", w->s->cause);
    pthread_mutex_unlock(&w->s->mutex);
    return status;
}

/* ---- what the watchdog is told ---- */

static comm_rank *self(const orth_world *w)
{
    return w->s->ranks ? &w->s->ranks[w->rank] : NULL;
}

void comm_wait_begin(orth_comm *c, const orth_comm_call *call, orth_request t)
{
    comm_rank *r = self(c->world);
    if (!r)
        return;
    atomic_store_explicit(&r->group, c->group, memory_order_relaxed);
    atomic_store_explicit(&r->request, t, memory_order_relaxed);
    atomic_store_explicit(&r->kind, (int32_t)call->kind, memory_order_relaxed);
    atomic_store_explicit(&r->instr, call->instr, memory_order_relaxed);
    atomic_store_explicit(&r->peer, call->peer, memory_order_relaxed);
    atomic_store_explicit(&r->since_ns, orth_clock_ns(), memory_order_release);
}

void comm_wait_end(orth_comm *c)
{
    comm_rank *r = self(c->world);
    if (!r)
        return;
    atomic_fetch_add_explicit(&r->progress.ticks, 1, memory_order_relaxed);
    atomic_store_explicit(&r->since_ns, 0, memory_order_release);
}

void comm_wait_over(orth_comm *c, orth_request t)
{
    comm_rank *r = self(c->world);
    int64_t since = r ? atomic_load_explicit(&r->since_ns, memory_order_acquire) : 0;
    /* The time is unlike that of any later wait, so a wait that has begun meanwhile is not ended. */
    if (since && atomic_load_explicit(&r->group, memory_order_relaxed) == c->group &&
        atomic_load_explicit(&r->request, memory_order_relaxed) == t)
        atomic_compare_exchange_strong(&r->since_ns, &since, 0);
}

void orth_world_expect(orth_world *w, double seconds)
{
    const orth_world_options *o = &w->s->options;
    if (w->rank == 0 && w->num_steps == 0 && seconds > 0 && o->startup_s == 0 && o->timeout_s > 0)
        atomic_store(&w->s->limit_ns, (int64_t)(1e9 * ORTH_MAX(o->timeout_s, STARTUP_STEPS * seconds)));
}

void orth_world_name_instrs(orth_world *w, orth_instr_name_fn name)
{
    if (!self(w))
        return;
    pthread_mutex_lock(&w->s->mutex);
    self(w)->name = name;
    pthread_mutex_unlock(&w->s->mutex);
}

static int compare_ns(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void orth_world_step(orth_world *w, int64_t step)
{
    const int64_t now = orth_clock_ns();
    const int room = ORTH_COUNT(w->step_ns);
    if (self(w)) {
        atomic_store(&self(w)->step, step);
        atomic_fetch_add(&self(w)->progress.ticks, 1);
    }
    if (w->step_start_ns)
        w->step_ns[w->num_steps++ % room] = now - w->step_start_ns;
    w->step_start_ns = now;
    if (w->rank != 0 || w->num_steps == 0 || w->s->options.timeout_s < 0)
        return;
    int64_t sorted[ORTH_COUNT(w->step_ns)];
    const int n = ORTH_MIN(w->num_steps, room);
    memcpy(sorted, w->step_ns, (size_t)n * sizeof sorted[0]);
    qsort(sorted, (size_t)n, sizeof sorted[0], compare_ns);
    atomic_store(&w->s->limit_ns, ORTH_MAX((int64_t)(w->s->options.timeout_s * 1e9), 3 * sorted[n / 2]));
}
