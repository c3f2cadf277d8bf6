/* loader.c -- see loader.h.
 *
 * Requests are numbered; request r uses buffer r % num_buffers. Three counters say where each one is:
 *     released <= got <= filled <= requested <= released + num_buffers
 * Invariant: the loader thread writes only buffers in [filled, requested), the caller reads only the one
 * before `got`; the mutex guards the counters, never the filling.
 */
#include "data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

typedef struct {
    orth_sample sample;
    int64_t *indices;
    int64_t num_sequences;
    orth_status status;
    orth_error error;
} loader_buffer;

struct orth_loader {
    orth_loader_options options;
    int64_t rows;                /* of one sequence */
    int64_t counted;             /* heap bytes of the buffers */
    loader_buffer *buffers;
    orth_ctx ctx;                /* of the loader thread */
    pthread_t thread;
    bool ctx_ready, started;
    pthread_mutex_t mutex;
    pthread_cond_t asked, ready;
    int64_t requested, filled, got, released;
    bool quit;
};

static void fill_buffer(orth_loader *l, loader_buffer *b)
{
    b->status = ORTH_OK;
    for (int64_t j = 0; j < b->num_sequences && b->status == ORTH_OK; j++) {
        const int64_t row = j * l->rows;
        const orth_sample *s = &b->sample;
        const orth_sample out = {s->tokens + row, s->targets + row, s->weights + row, s->pos + row,
                                 s->doc + row};
        b->status = orth_sampler_fill(&l->ctx, l->options.sampler, &out, b->indices[j], &l->options.rows);
    }
    if (b->status != ORTH_OK) {
        b->error = l->ctx.error;
        orth_ctx_clear_error(&l->ctx);
    }
}

static void *loader_main(void *arg)
{
    orth_loader *l = arg;
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        while (l->filled == l->requested && !l->quit)
            pthread_cond_wait(&l->asked, &l->mutex);
        if (l->quit)
            break;
        loader_buffer *b = &l->buffers[l->filled % l->options.num_buffers];
        pthread_mutex_unlock(&l->mutex);
        fill_buffer(l, b);
        pthread_mutex_lock(&l->mutex);
        l->filled++;
        pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static orth_status alloc_buffers(orth_ctx *ctx, orth_loader *l)
{
    const int64_t n = l->options.max_sequences * l->rows;
    l->buffers = ORTH_NEW_ARRAY(ctx, loader_buffer, l->options.num_buffers);
    if (!l->buffers)
        return ORTH_ERR_NOMEM;
    const int64_t before = atomic_load(&ctx->heap_bytes);
    for (int i = 0; i < l->options.num_buffers; i++) {
        loader_buffer *b = &l->buffers[i];
        b->indices = ORTH_NEW_ARRAY(ctx, int64_t, l->options.max_sequences);
        b->sample.tokens = ORTH_NEW_ARRAY(ctx, int32_t, n);
        b->sample.targets = ORTH_NEW_ARRAY(ctx, int32_t, n);
        b->sample.weights = ORTH_NEW_ARRAY(ctx, float, n);
        b->sample.pos = ORTH_NEW_ARRAY(ctx, int32_t, n);
        b->sample.doc = ORTH_NEW_ARRAY(ctx, int32_t, n);
        if (!b->indices || !b->sample.tokens || !b->sample.targets || !b->sample.weights || !b->sample.pos ||
            !b->sample.doc)
            return ORTH_ERR_NOMEM;
    }
    l->counted = atomic_load(&ctx->heap_bytes) - before;
    return ORTH_OK;
}

static orth_status start(orth_ctx *ctx, orth_loader *l)
{
    ORTH_TRY(alloc_buffers(ctx, l));
    if (orth_ctx_init(&l->ctx, 1) != ORTH_OK)
        return ORTH_FAIL(ctx, l->ctx.error.code, "loader: %s", l->ctx.error.message);
    l->ctx_ready = true;
    l->ctx.rank = ctx->rank;
    l->ctx.log = ctx->log;
    /* Signals end a run in its main thread; the loader must never be the one that gets them. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* of its own reading: a shard that was cut short */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->started = pthread_create(&l->thread, NULL, loader_main, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!l->started)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "loader: the system refused a thread (limits of processes and of addresses: ulimit -u, -v)");
    return ORTH_OK;
}

orth_status orth_loader_create(orth_ctx *ctx, orth_loader **out, const orth_loader_options *options)
{
    orth_loader_options o = *options;
    o.num_buffers = o.num_buffers ? o.num_buffers : 2;
    const int64_t rows = o.rows.row_end - o.rows.row_begin;
    if (o.num_buffers < 2 || o.num_buffers > 1024)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "loader: num_buffers=%d is not in [2, 1024]", o.num_buffers);
    if (o.max_sequences < 1 || rows < 1 || rows > orth_sampler_seq_len(o.sampler) ||
        o.max_sequences > INT64_MAX / 64 / rows)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "loader: %" PRId64 " sequences of %" PRId64 " rows",
                         o.max_sequences, rows);
    orth_loader *l = ORTH_NEW(ctx, orth_loader);
    if (!l)
        return ORTH_ERR_NOMEM;
    l->options = o;
    l->rows = rows;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->asked, NULL);
    pthread_cond_init(&l->ready, NULL);
    orth_status status = start(ctx, l);
    if (status != ORTH_OK) {
        orth_loader_destroy(ctx, l);
        return status;
    }
    *out = l;
    return ORTH_OK;
}

void orth_loader_destroy(orth_ctx *ctx, orth_loader *l)
{
    if (!l)
        return;
    if (l->started) {
        pthread_mutex_lock(&l->mutex);
        l->quit = true;
        pthread_cond_signal(&l->asked);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->thread, NULL);
    }
    if (l->ctx_ready)
        orth_ctx_destroy(&l->ctx);
    for (int i = 0; i < l->options.num_buffers && l->buffers; i++) {
        loader_buffer *b = &l->buffers[i];
        orth_mem_free(ctx, b->indices);
        orth_mem_free(ctx, b->sample.tokens);
        orth_mem_free(ctx, b->sample.targets);
        orth_mem_free(ctx, b->sample.weights);
        orth_mem_free(ctx, b->sample.pos);
        orth_mem_free(ctx, b->sample.doc);
    }
    orth_mem_free(ctx, l->buffers);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->asked);
    pthread_mutex_destroy(&l->mutex);
    orth_mem_free(ctx, l);
}

int64_t orth_loader_bytes(const orth_loader_options *o)
{
    const int64_t per_row = 4 * (int64_t)sizeof(int32_t) + (int64_t)sizeof(float);
    return (o->num_buffers ? o->num_buffers : 2) * o->max_sequences *
           ((o->rows.row_end - o->rows.row_begin) * per_row + (int64_t)sizeof(int64_t));
}

int64_t orth_loader_counted(const orth_loader *l)
{
    return l->counted;
}

pthread_t orth_loader_thread(const orth_loader *l)
{
    return l->thread;
}

orth_status orth_loader_request(orth_ctx *ctx, orth_loader *l, const int64_t *indices, int64_t n)
{
    if (n < 0 || n > l->options.max_sequences)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "loader: %" PRId64 " sequences asked for, max_sequences=%" PRId64,
                         n, l->options.max_sequences);
    if (l->requested == l->released + l->options.num_buffers)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "loader: all %d buffers are held or asked for",
                         l->options.num_buffers);
    /* Only this thread moves `requested` and `released`; the buffer is the caller's until it is counted. */
    loader_buffer *b = &l->buffers[l->requested % l->options.num_buffers];
    memcpy(b->indices, indices, (size_t)n * sizeof *indices);
    b->num_sequences = n;
    pthread_mutex_lock(&l->mutex);
    l->requested++;
    pthread_cond_signal(&l->asked);
    pthread_mutex_unlock(&l->mutex);
    return ORTH_OK;
}

orth_status orth_loader_get(orth_ctx *ctx, orth_loader *l, orth_loader_batch *out)
{
    if (l->got == l->requested)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "loader: get without a request");
    l->released = l->got;
    pthread_mutex_lock(&l->mutex);
    while (l->filled == l->got)
        pthread_cond_wait(&l->ready, &l->mutex);
    pthread_mutex_unlock(&l->mutex);
    const loader_buffer *b = &l->buffers[l->got++ % l->options.num_buffers];
    if (b->status != ORTH_OK)
        return orth_fail(ctx, b->status, b->error.file, b->error.line, "%s", b->error.message);
    *out = (orth_loader_batch){.num_sequences = b->num_sequences,
                               .indices = b->indices,
                               .tokens = b->sample.tokens,
                               .targets = b->sample.targets,
                               .pos = b->sample.pos,
                               .doc = b->sample.doc,
                               .weights = b->sample.weights};
    return ORTH_OK;
}
