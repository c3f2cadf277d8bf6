/* ranks.c -- a world of threads: started, watched, joined; whose error it was. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "comm/thread/group.h"

#define LOOK_NS 100000000         /* between two looks at who is done */
#define GRACE_NS 1000000000ll     /* after an abort, at least this long for ranks to come back */

struct thread_world;

typedef struct {
    struct thread_world *tw;
    orth_ctx ctx;
    orth_world world;
    orth_status status;
    bool primary;                 /* its own error, not the world's cause */
    bool done;                    /* under tw->mutex */
    pthread_t thread;
} thread_rank;

typedef struct thread_world {
    comm_shared *s;
    const orth_ctx *parent;
    orth_rank_fn fn;
    void *arg;
    thread_rank *ranks;
    int num_started, num_done;    /* num_done under mutex */
    pthread_mutex_t mutex;
    pthread_cond_t finished;
    comm_cores cores;             /* none: ranks are not bound */
    comm_watchdog watchdog;
    pthread_t monitor;
    bool watched;
} thread_world;

static void report(thread_rank *r)
{
    thread_world *tw = r->tw;
    atomic_store(&tw->s->ranks[r->world.rank].ended, true);
    pthread_mutex_lock(&tw->mutex);
    r->done = true;
    tw->num_done++;
    pthread_cond_signal(&tw->finished);
    pthread_mutex_unlock(&tw->mutex);
}

static void *rank_main(void *p)
{
    thread_rank *r = p;
    thread_world *tw = r->tw;
    const int threads = tw->s->options.threads_per_rank;
    comm_cores_bind(&tw->cores, r->world.rank * threads, threads);
    r->status = orth_ctx_init(&r->ctx, threads);
    const bool has_ctx = r->status == ORTH_OK;
    if (has_ctx) {
        if (tw->s->num_ranks * threads > tw->s->num_cores)
            orth_pool_share_cores(r->ctx.pool);
        orth_ctx_work_for(&r->ctx, tw->parent);
        r->ctx.rank = r->world.rank;
        r->ctx.progress = &tw->s->ranks[r->world.rank].progress;
        r->status = tw->fn(&r->ctx, &r->world, tw->arg);
    }
    r->primary = r->status != ORTH_OK && !r->world.derived;
    comm_world_end(&r->ctx, &r->world, r->status);
    if (has_ctx)
        orth_ctx_destroy(&r->ctx);
    report(r);
    return NULL;
}

static orth_status start_all(orth_ctx *ctx, thread_world *tw)
{
    comm_shared *s = tw->s;
    if (s->options.pin && s->num_ranks * s->options.threads_per_rank <= s->num_cores)
        comm_cores_find(&tw->cores);
    for (int i = 0; i < s->num_ranks; i++) {
        thread_rank *r = &tw->ranks[i];
        r->tw = tw;
        r->world = (orth_world){.s = s, .rank = i};
        if (pthread_create(&r->thread, NULL, rank_main, r) != 0) {
            ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused thread %d of %d ranks", i + 1, s->num_ranks);
            comm_abort(s, i, ORTH_ERR_NOMEM, "the system refused its thread");
            return ORTH_ERR_NOMEM;
        }
        tw->num_started++;
    }
    if (atomic_load(&s->limit_ns) > 0)
        tw->watched = pthread_create(&tw->monitor, NULL, comm_watchdog_main, &tw->watchdog) == 0;
    if (atomic_load(&s->limit_ns) == 0 || tw->watched)
        return ORTH_OK;
    comm_abort(s, 0, ORTH_ERR_NOMEM, "the system refused the thread that watches the ranks");
    return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused the thread that watches the ranks");
}

/* A rank that has not come back and moves, which may be the end of a checkpoint on a slow disk. */
static bool any_moves(const thread_world *tw, int64_t grace)
{
    for (int i = 0; i < tw->num_started && tw->watched; i++)
        if (!tw->ranks[i].done && comm_rank_moves(tw->s, i, grace))
            return true;
    return false;
}

/* Until all are done, or those that are not stay away too long after an abort. Returns how many did not come back. */
static int wait_all(thread_world *tw)
{
    const int64_t grace = ORTH_MAX(GRACE_NS, (int64_t)(tw->s->options.timeout_s * 1e9));
    int64_t aborted_ns = 0;
    pthread_mutex_lock(&tw->mutex);
    while (tw->num_done < tw->num_started) {
        const struct timespec until = orth_clock_deadline(LOOK_NS);
        pthread_cond_timedwait(&tw->finished, &tw->mutex, &until);
        if (!comm_aborted(tw->s))
            continue;
        aborted_ns = aborted_ns ? aborted_ns : orth_clock_ns();
        if (orth_clock_ns() - aborted_ns > grace && !any_moves(tw, grace))
            break;
    }
    const int missing = tw->num_started - tw->num_done;
    pthread_mutex_unlock(&tw->mutex);
    return missing;
}

static void stop_watchdog(thread_world *tw)
{
    if (!tw->watched)
        return;
    pthread_mutex_lock(&tw->watchdog.mutex);
    tw->watchdog.quit = true;
    pthread_cond_signal(&tw->watchdog.wake);
    pthread_mutex_unlock(&tw->watchdog.mutex);
    pthread_join(tw->monitor, NULL);
}

/* The lowest rank with an error of its own; else the cause that the watchdog or a check found. A rank alone is not named. */
static orth_status verdict(orth_ctx *ctx, thread_world *tw)
{
    comm_shared *s = tw->s;
    orth_status status = ORTH_OK;
    pthread_mutex_lock(&tw->mutex); /* a rank that was given up may come back just now */
    for (int i = 0; i < tw->num_started && status == ORTH_OK; i++) {
        const thread_rank *r = &tw->ranks[i];
        const char *message = r->ctx.error.code ? r->ctx.error.message : orth_status_name(r->status);
        if (r->done && r->primary)
            status = s->num_ranks == 1 ? ORTH_FAIL(ctx, r->status, "%s", message)
                                       : ORTH_FAIL(ctx, r->status, "rank %d: %s", i, message);
    }
    pthread_mutex_unlock(&tw->mutex);
    if (status == ORTH_OK && comm_aborted(s))
        status = ORTH_FAIL(ctx, s->cause_code, "%s", s->cause);
    return status;
}

static void release(orth_ctx *ctx, thread_world *tw)
{
    comm_watch_close(ctx, &tw->watchdog.watch);
    for (int i = 0; tw->s->ranks && i < tw->s->num_ranks; i++)
        orth_progress_destroy(&tw->s->ranks[i].progress);
    pthread_mutex_destroy(&tw->mutex);
    pthread_cond_destroy(&tw->finished);
    pthread_mutex_destroy(&tw->watchdog.mutex);
    pthread_cond_destroy(&tw->watchdog.wake);
    orth_mem_free(ctx, tw->s->ranks);
    tw->s->ranks = NULL;
    orth_mem_free(ctx, tw->ranks);
    orth_mem_free(ctx, tw);
}

orth_status comm_run_thread_ranks(orth_ctx *ctx, int num_ranks, orth_rank_fn fn, void *arg, comm_shared *s,
                                  bool *left_behind)
{
    thread_world *tw = ORTH_NEW(ctx, thread_world);
    if (!tw)
        return ORTH_ERR_NOMEM;
    *tw = (thread_world){.s = s, .parent = ctx, .fn = fn, .arg = arg};
    pthread_mutex_init(&tw->mutex, NULL);
    orth_clock_cond_init(&tw->finished);
    pthread_mutex_init(&tw->watchdog.mutex, NULL);
    orth_clock_cond_init(&tw->watchdog.wake);
    tw->ranks = ORTH_NEW_ARRAY(ctx, thread_rank, num_ranks);
    s->ranks = ORTH_NEW_ARRAY(ctx, comm_rank, num_ranks);
    for (int i = 0; s->ranks && i < num_ranks; i++)
        orth_progress_init(&s->ranks[i].progress);
    if (!tw->ranks || !s->ranks || comm_watch_open(ctx, &tw->watchdog.watch, s) != ORTH_OK) {
        release(ctx, tw);
        return ORTH_ERR_NOMEM;
    }
    orth_status status = start_all(ctx, tw);
    const int missing = wait_all(tw);
    stop_watchdog(tw);
    for (int i = 0; i < tw->num_started; i++) {
        pthread_mutex_lock(&tw->mutex); /* one may come back at the last moment */
        const bool done = tw->ranks[i].done;
        pthread_mutex_unlock(&tw->mutex);
        if (done || missing == 0)
            pthread_join(tw->ranks[i].thread, NULL);
        else
            pthread_detach(tw->ranks[i].thread);
    }
    if (status == ORTH_OK)
        status = verdict(ctx, tw);
    *left_behind = ctx->error.left_behind = missing > 0;
    if (missing == 0)
        release(ctx, tw);
    return status;
}
