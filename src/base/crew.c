/* crew.c -- see crew.h. */
#include "base/crew.h"

#include "base/pool.h"

typedef struct {
    orth_ctx ctx;
    int64_t failed;             /* the piece whose error ctx has; -1: none */
} member;

typedef struct {
    orth_crew_fn fn;
    void *arg;
    member *members;            /* of each thread */
    _Atomic bool stop;
} crew;

static void run_piece(void *arg, int64_t index, int worker)
{
    crew *c = arg;
    member *m = &c->members[worker];
    if (!atomic_load(&c->stop) && c->fn(&m->ctx, c->arg, index) != ORTH_OK) {
        m->failed = index;
        atomic_store(&c->stop, true);
    }
}

static orth_status member_init(orth_ctx *ctx, member *m)
{
    if (orth_ctx_init(&m->ctx, 1) != ORTH_OK) {
        ctx->error = m->ctx.error;
        return ctx->error.code;
    }
    m->failed = -1;
    orth_ctx_work_for(&m->ctx, ctx);
    return ORTH_OK;
}

/* The error of the failed piece with the least index. */
static orth_status outcome(orth_ctx *ctx, const crew *c, int num_threads)
{
    const member *first = NULL;
    for (int t = 0; t < num_threads; t++)
        if (c->members[t].failed >= 0 && (!first || c->members[t].failed < first->failed))
            first = &c->members[t];
    if (!first)
        return ORTH_OK;
    ctx->error = first->ctx.error;
    return ctx->error.code;
}

static orth_status run_by(orth_ctx *ctx, int num_threads, int64_t n, crew *c)
{
    orth_pool *pool;
    int made = 0;
    orth_status s = orth_pool_create(ctx, &pool, num_threads);
    if (s != ORTH_OK)
        return s;
    orth_pool_share_cores(pool);
    while (s == ORTH_OK && made < num_threads)
        if ((s = member_init(ctx, &c->members[made])) == ORTH_OK)
            made++;
    if (s == ORTH_OK) {
        orth_pool_run(pool, n, run_piece, c);
        s = outcome(ctx, c, num_threads);
    }
    while (made > 0)
        orth_ctx_destroy(&c->members[--made].ctx);
    orth_pool_destroy(ctx, pool);
    return s;
}

orth_status orth_crew_run(orth_ctx *ctx, int num_threads, int64_t n, orth_crew_fn fn, void *arg)
{
    if (num_threads == 1 || n <= 1) {
        for (int64_t i = 0; i < n; i++)
            ORTH_TRY(fn(ctx, arg, i));
        return ORTH_OK;
    }
    crew c = {.fn = fn, .arg = arg, .members = ORTH_NEW_ARRAY(ctx, member, num_threads)};
    if (!c.members)
        return ORTH_ERR_NOMEM;
    const orth_status s = run_by(ctx, num_threads, n, &c);
    orth_mem_free(ctx, c.members);
    return s;
}
