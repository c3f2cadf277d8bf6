/* beside.c -- copies between memory spaces, and what the host computes for its device, beside the loop over a step.
 *
 *   loop --post--> posted --its thread, in order, when those of other such queues that it waits for are done--> done --wait--> complete
 *
 * Each of these queues has a thread, that of the host with as many computing threads as the rank. The loop waits for what an instruction needs
 * of computing and of communicators, as for any, but not for others of these queues: those the threads wait for, as the queues of a device
 * do. After an error nothing is made any more.
 */
#include <pthread.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/progress.h"
#include "run/executor_impl.h"

typedef struct {
    orth_executor *e;
    orth_ctx ctx;              /* its own: errors, faults */
    int32_t queue;
    pthread_t thread;
    bool running;
} worker;

struct executor_beside {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t posted[ORTH_MAX_QUEUES], done[ORTH_MAX_QUEUES]; /* instructions of each queue in this step */
    orth_error error;          /* the first */
    bool quit;
    worker workers[ORTH_QUEUE_HOST + 1];
    int num;
};

bool executor_is_beside(const orth_executor *e, int32_t i)
{
    const int32_t q = e->p->instrs[i].queue;
    return q > 0 && orth_queue_is_alone(&e->p->queues[q]);
}

/* What instruction i waits for in these queues is done. */
static bool may_begin(const struct executor_beside *m, const orth_executor *e, int32_t i)
{
    const orth_instr *n = &e->p->instrs[i];
    for (int k = 0; k < n->num_waits; k++)
        if (orth_queue_is_alone(&e->p->queues[n->waits[k].queue]) && m->done[n->waits[k].queue] < n->waits[k].count)
            return false;
    return true;
}

/* With the mutex; nothing is noted if an error was there already. */
static void note_error(struct executor_beside *m, worker *x, orth_status s)
{
    if (s != ORTH_OK && m->error.code == ORTH_OK)
        m->error = x->ctx.error;
    orth_ctx_clear_error(&x->ctx);
}

static void *worker_main(void *arg)
{
    worker *x = arg;
    orth_executor *e = x->e;
    struct executor_beside *m = e->beside;
    pthread_mutex_lock(&m->mutex);
    while (!m->quit) {
        const int32_t at = m->done[x->queue], i = at < m->posted[x->queue] ? executor_instr_of(e, x->queue, at) : -1;
        if (i < 0 || !may_begin(m, e, i)) {
            pthread_cond_wait(&m->changed, &m->mutex);
            continue;
        }
        const bool broken = m->error.code != ORTH_OK;
        pthread_mutex_unlock(&m->mutex);
        x->ctx.frozen = true;
        const int64_t begin = orth_clock_ns();
        const orth_status s = broken ? ORTH_OK : executor_make(&x->ctx, e, i);
        orth_clock_set(e->clock, i, begin, orth_clock_ns());
        x->ctx.frozen = false;
        pthread_mutex_lock(&m->mutex);
        note_error(m, x, s);
        m->done[x->queue]++;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

static orth_status start_worker(orth_ctx *ctx, orth_executor *e, int32_t queue)
{
    worker *x = &e->beside->workers[e->beside->num];
    *x = (worker){.e = e, .queue = queue};
    char name[48];
    const int threads = e->p->queues[queue].kind == ORTH_QUEUE_HOST ? orth_pool_num_threads(ctx->pool) : 1;
    if (orth_ctx_init(&x->ctx, threads) != ORTH_OK)
        return ORTH_FAIL(ctx, x->ctx.error.code, "%s", x->ctx.error.message);
    e->beside->num++;
    orth_pool_share_cores(x->ctx.pool); /* with those of the rank */
    x->ctx.rank = ctx->rank;
    x->ctx.isa = ctx->isa;
    x->ctx.faults = ctx->faults;
    x->ctx.log = ctx->log;
    orth_queue_name(&e->p->queues[queue], name, sizeof name);
    if (pthread_create(&x->thread, NULL, worker_main, x) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused a thread for queue %s", name);
    x->running = true;
    return ORTH_OK;
}

orth_status executor_open_beside(orth_ctx *ctx, orth_executor *e)
{
    bool any = false;
    for (int32_t q = 1; q < e->p->num_queues; q++)
        any = any || orth_queue_is_alone(&e->p->queues[q]);
    if (!any)
        return ORTH_OK;
    e->beside = ORTH_NEW(ctx, struct executor_beside);
    if (!e->beside)
        return ORTH_ERR_NOMEM;
    pthread_mutex_init(&e->beside->mutex, NULL);
    pthread_cond_init(&e->beside->changed, NULL);
    for (int32_t q = 1; q < e->p->num_queues; q++)
        if (orth_queue_is_alone(&e->p->queues[q]))
            ORTH_TRY(start_worker(ctx, e, q));
    return ORTH_OK;
}

void executor_close_beside(orth_ctx *ctx, orth_executor *e)
{
    struct executor_beside *m = e->beside;
    if (!m)
        return;
    pthread_mutex_lock(&m->mutex);
    m->quit = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    for (int k = 0; k < m->num; k++) {
        if (m->workers[k].running)
            pthread_join(m->workers[k].thread, NULL);
        orth_ctx_destroy(&m->workers[k].ctx);
    }
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    orth_mem_free(ctx, m);
    e->beside = NULL;
}

/* A step that was given up may have left some under way. */
void executor_begin_beside(orth_executor *e)
{
    struct executor_beside *m = e->beside;
    if (!m)
        return;
    pthread_mutex_lock(&m->mutex);
    for (int k = 0; k < m->num; k++)
        while (m->done[m->workers[k].queue] < m->posted[m->workers[k].queue])
            pthread_cond_wait(&m->changed, &m->mutex);
    memset(m->posted, 0, sizeof m->posted);
    memset(m->done, 0, sizeof m->done);
    pthread_mutex_unlock(&m->mutex);
}

void executor_post_beside(orth_executor *e, int32_t i)
{
    pthread_mutex_lock(&e->beside->mutex);
    e->beside->posted[e->p->instrs[i].queue]++;
    pthread_cond_broadcast(&e->beside->changed);
    pthread_mutex_unlock(&e->beside->mutex);
}

bool executor_beside_is_done(const orth_executor *e, int32_t queue, int32_t count)
{
    pthread_mutex_lock(&e->beside->mutex);
    const bool done = e->beside->done[queue] >= count;
    pthread_mutex_unlock(&e->beside->mutex);
    return done;
}

orth_status executor_wait_beside(orth_ctx *ctx, orth_executor *e, int32_t queue, int32_t count)
{
    struct executor_beside *m = e->beside;
    pthread_mutex_lock(&m->mutex);
    while (m->done[queue] < count)
        pthread_cond_wait(&m->changed, &m->mutex);
    const orth_error error = m->error;
    pthread_mutex_unlock(&m->mutex);
    orth_tick(ctx);
    return error.code == ORTH_OK ? ORTH_OK : orth_fail(ctx, error.code, error.file, error.line, "%s", error.message);
}
