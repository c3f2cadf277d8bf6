/* comm.c -- communicators: made, changed, released. */
#include "comm/comm.h"

#include <string.h>

#include "comm/comm_impl.h"

/* Scratch for blocks that travel, where members could also read each other's memory. */
#define WORK_BYTES ((size_t)1 << 20)

size_t orth_comm_scratch_planned(orth_comm_method m)
{
    if (!m.shares_memory)
        return COMM_MESSAGE_WORK_BYTES;
    return m.algo == ORTH_ALGO_RING || m.algo == ORTH_ALGO_TREE ? WORK_BYTES : 0;
}

size_t orth_comm_scratch_bytes(const orth_comm *c)
{
    return c ? c->work_bytes : 0;
}

/* ORTH_OK and *pos, this rank's place in the list. */
static orth_status check_members(orth_ctx *ctx, const orth_world *w, const char *name, int n,
                                 const int *ranks, int *pos)
{
    if (n < 1 || n > w->s->num_ranks || strlen(name) >= ORTH_COMM_NAME_MAX)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "communicator '%s': %d members of %d ranks", name, n,
                         w->s->num_ranks);
    for (int i = 0; i < n; i++) {
        bool twice = false;
        for (int k = 0; k < i; k++)
            twice = twice || ranks[k] == ranks[i];
        if (twice || ranks[i] < 0 || ranks[i] >= w->s->num_ranks)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "communicator '%s': rank %d is %s", name, ranks[i],
                             twice ? "listed twice" : "not in the world");
        if (ranks[i] == w->rank)
            *pos = i;
    }
    if (*pos < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "communicator '%s': rank %d is not listed", name, w->rank);
    return ORTH_OK;
}

static void release(orth_ctx *ctx, orth_comm *c)
{
    pthread_mutex_destroy(&c->mutex);
    orth_mem_free(ctx, c->requests);
    orth_mem_free(ctx, c->ranks);
    orth_mem_free(ctx, c->work);
    orth_mem_free(ctx, c);
}

static orth_status need_work(orth_ctx *ctx, orth_comm *c, size_t bytes)
{
    if (c->n == 1 || c->work_bytes >= bytes)
        return ORTH_OK;
    char *work = orth_mem_alloc(ctx, bytes);
    if (!work)
        return ORTH_ERR_NOMEM;
    orth_mem_free(ctx, c->work);
    c->work = work;
    c->work_bytes = bytes;
    return ORTH_OK;
}

static orth_status fill(orth_ctx *ctx, orth_comm *c, const int *ranks)
{
    c->ranks = ORTH_NEW_ARRAY(ctx, int, c->n);
    c->requests = ORTH_NEW_ARRAY(ctx, comm_request, c->n > 1 ? ORTH_COMM_PENDING : 1);
    if (!c->ranks || !c->requests)
        return ORTH_ERR_NOMEM;
    memcpy(c->ranks, ranks, (size_t)c->n * sizeof *ranks);
    ORTH_TRY(need_work(ctx, c, c->ops->work_bytes));
    ORTH_TRY(orth_comm_set(ctx, c, c->algo, c->order));
    return c->n > 1 ? c->ops->create(ctx, c) : ORTH_OK;
}

orth_status orth_comm_create(orth_ctx *ctx, orth_world *w, orth_comm **out, const char *name, int n,
                             const int *ranks)
{
    int pos = -1;
    ORTH_TRY(check_members(ctx, w, name, n, ranks, &pos));
    orth_comm *c = ORTH_NEW(ctx, orth_comm);
    if (!c)
        return ORTH_ERR_NOMEM;
    c->world = w;
    c->ops = w->s->ops;
    c->n = n;
    c->pos = pos;
    c->algo = w->s->options.algo;
    c->order = w->s->options.order;
    snprintf(c->name, sizeof c->name, "%s", name);
    pthread_mutex_init(&c->mutex, NULL);
    orth_status status = fill(ctx, c, ranks);
    if (status != ORTH_OK) {
        release(ctx, c);
        return status;
    }
    c->next = w->comms;
    w->comms = c;
    status = orth_barrier(ctx, c); /* nobody goes on before all members are there */
    memset(c->calls, 0, sizeof c->calls);
    memset(c->ideal, 0, sizeof c->ideal);
    if (status != ORTH_OK) {
        orth_comm_destroy(ctx, c);
        return status;
    }
    *out = c;
    return ORTH_OK;
}

void orth_comm_destroy(orth_ctx *ctx, orth_comm *c)
{
    if (!c)
        return;
    for (orth_request t = ORTH_MAX(c->last_request - ORTH_COMM_PENDING, 0) + 1; t <= c->last_request; t++)
        orth_comm_wait(ctx, c, t);
    comm_queue_stop(c);
    if (c->state) {
        c->ops->quiesce(c);
        c->ops->destroy(ctx, c);
    }
    for (orth_comm **at = &c->world->comms; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    release(ctx, c);
}

orth_status orth_comm_set(orth_ctx *ctx, orth_comm *c, orth_comm_algo algo, orth_comm_order order)
{
    if (algo < 0 || algo >= ORTH_NUM_ALGOS)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "communicator '%s': algorithm %d is unknown", c->name, (int)algo);
    if (algo == ORTH_ALGO_RING && order == ORTH_ORDER_CANONICAL)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "communicator '%s': algorithm ring cannot sum in canonical order",
                         c->name);
    if (c->ops->exchange && (algo == ORTH_ALGO_RING || algo == ORTH_ALGO_TREE))
        ORTH_TRY(need_work(ctx, c, WORK_BYTES));
    c->algo = algo;
    c->order = order;
    return ORTH_OK;
}

orth_comm_method orth_comm_method_of(const orth_comm *c)
{
    return (orth_comm_method){.algo = c->algo, .shares_memory = c->ops->work_bytes == 0};
}

orth_comm_algo comm_pick_algo(const orth_comm *c, const orth_comm_call *call)
{
    return orth_comm_algo_of(orth_comm_method_of(c), c->n, call);
}

int orth_comm_size(const orth_comm *c)
{
    return c->n;
}

int orth_comm_pos(const orth_comm *c)
{
    return c->pos;
}

orth_comm_counts orth_comm_counted(const orth_comm *c)
{
    orth_comm_counts out;
    memcpy(out.calls, c->calls, sizeof out.calls);
    memcpy(out.ideal, c->ideal, sizeof out.ideal);
    for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
        out.sent[k] = atomic_load_explicit(&c->sent[k], memory_order_relaxed);
    return out;
}
