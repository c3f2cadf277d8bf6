/* moves.c -- copies between memory spaces, beside the loop over a step.
 *
 *   loop --post--> posted --its thread, in order, when the copies of other queues that it waits for are done--> done --wait--> complete
 *
 * Each queue of copies has a thread. The loop waits for what a copy needs of computing and of communicators, as for any instruction, but
 * not for other copies: those the threads wait for, as the queues of a device do. After an error nothing is moved any more.
 */
#include <pthread.h>

#include "base/clock.h"
#include "base/progress.h"
#include "run/executor_impl.h"

typedef struct {
    orth_executor *e;
    orth_ctx ctx;              /* its own: errors, faults */
    int32_t queue;
    pthread_t thread;
    bool running;
} mover;

struct executor_moves {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t posted[ORTH_MAX_QUEUES], done[ORTH_MAX_QUEUES]; /* instructions of each queue in this step */
    orth_error error;          /* the first */
    bool quit;
    mover movers[ORTH_QUEUE_FILE + 1];
    int num;
};

bool executor_is_move(const orth_executor *e, int32_t i)
{
    const int32_t q = e->p->instrs[i].queue;
    return q > 0 && orth_queue_moves(&e->p->queues[q]);
}

/* The copies that copy i waits for are done. */
static bool may_move(const struct executor_moves *m, const orth_executor *e, int32_t i)
{
    const orth_instr *n = &e->p->instrs[i];
    for (int k = 0; k < n->num_waits; k++)
        if (orth_queue_moves(&e->p->queues[n->waits[k].queue]) && m->done[n->waits[k].queue] < n->waits[k].count)
            return false;
    return true;
}

/* With the mutex; nothing is noted if an error was there already. */
static void note_error(struct executor_moves *m, mover *x, orth_status s)
{
    if (s != ORTH_OK && m->error.code == ORTH_OK)
        m->error = x->ctx.error;
    orth_ctx_clear_error(&x->ctx);
}

static void *mover_main(void *arg)
{
    mover *x = arg;
    orth_executor *e = x->e;
    struct executor_moves *m = e->moves;
    pthread_mutex_lock(&m->mutex);
    while (!m->quit) {
        const int32_t at = m->done[x->queue], i = at < m->posted[x->queue] ? executor_instr_of(e, x->queue, at) : -1;
        if (i < 0 || !may_move(m, e, i)) {
            pthread_cond_wait(&m->changed, &m->mutex);
            continue;
        }
        const bool broken = m->error.code != ORTH_OK;
        pthread_mutex_unlock(&m->mutex);
        const int64_t begin = orth_clock_ns();
        const orth_status s = broken ? ORTH_OK : executor_move_between(&x->ctx, e, &e->p->instrs[i]);
        orth_clock_set(e->clock, i, begin, orth_clock_ns());
        pthread_mutex_lock(&m->mutex);
        note_error(m, x, s);
        m->done[x->queue]++;
        pthread_cond_broadcast(&m->changed);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

static orth_status start_mover(orth_ctx *ctx, orth_executor *e, int32_t queue)
{
    mover *x = &e->moves->movers[e->moves->num];
    *x = (mover){.e = e, .queue = queue};
    if (orth_ctx_init(&x->ctx, 1) != ORTH_OK)
        return ORTH_FAIL(ctx, x->ctx.error.code, "%s", x->ctx.error.message);
    e->moves->num++;
    x->ctx.rank = ctx->rank;
    x->ctx.faults = ctx->faults;
    x->ctx.log = ctx->log;
    if (pthread_create(&x->thread, NULL, mover_main, x) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused a thread for copies");
    x->running = true;
    return ORTH_OK;
}

orth_status executor_open_moves(orth_ctx *ctx, orth_executor *e)
{
    bool any = false;
    for (int32_t q = 1; q < e->p->num_queues; q++)
        any = any || orth_queue_moves(&e->p->queues[q]);
    if (!any)
        return ORTH_OK;
    e->moves = ORTH_NEW(ctx, struct executor_moves);
    if (!e->moves)
        return ORTH_ERR_NOMEM;
    pthread_mutex_init(&e->moves->mutex, NULL);
    pthread_cond_init(&e->moves->changed, NULL);
    for (int32_t q = 1; q < e->p->num_queues; q++)
        if (orth_queue_moves(&e->p->queues[q]))
            ORTH_TRY(start_mover(ctx, e, q));
    return ORTH_OK;
}

void executor_close_moves(orth_ctx *ctx, orth_executor *e)
{
    struct executor_moves *m = e->moves;
    if (!m)
        return;
    pthread_mutex_lock(&m->mutex);
    m->quit = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    for (int k = 0; k < m->num; k++) {
        if (m->movers[k].running)
            pthread_join(m->movers[k].thread, NULL);
        orth_ctx_destroy(&m->movers[k].ctx);
    }
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    orth_mem_free(ctx, m);
    e->moves = NULL;
}

/* A step that was given up may have left copies under way. */
void executor_begin_moves(orth_executor *e)
{
    struct executor_moves *m = e->moves;
    if (!m)
        return;
    pthread_mutex_lock(&m->mutex);
    for (int k = 0; k < m->num; k++)
        while (m->done[m->movers[k].queue] < m->posted[m->movers[k].queue])
            pthread_cond_wait(&m->changed, &m->mutex);
    memset(m->posted, 0, sizeof m->posted);
    memset(m->done, 0, sizeof m->done);
    pthread_mutex_unlock(&m->mutex);
}

void executor_post_move(orth_executor *e, int32_t i)
{
    pthread_mutex_lock(&e->moves->mutex);
    e->moves->posted[e->p->instrs[i].queue]++;
    pthread_cond_broadcast(&e->moves->changed);
    pthread_mutex_unlock(&e->moves->mutex);
}

bool executor_move_is_done(const orth_executor *e, int32_t queue, int32_t count)
{
    pthread_mutex_lock(&e->moves->mutex);
    const bool done = e->moves->done[queue] >= count;
    pthread_mutex_unlock(&e->moves->mutex);
    return done;
}

orth_status executor_wait_move(orth_ctx *ctx, orth_executor *e, int32_t queue, int32_t count)
{
    struct executor_moves *m = e->moves;
    pthread_mutex_lock(&m->mutex);
    while (m->done[queue] < count)
        pthread_cond_wait(&m->changed, &m->mutex);
    const orth_error error = m->error;
    pthread_mutex_unlock(&m->mutex);
    orth_tick(ctx);
    return error.code == ORTH_OK ? ORTH_OK : orth_fail(ctx, error.code, error.file, error.line, "%s", error.message);
}
