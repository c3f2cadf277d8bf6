/* saver.c -- see saver.h.
 *
 *   idle --arrays--> filling --write--> writing --(thread: done)--outcome--> idle
 *
 * The writing thread has a ctx of its own and reads `view`, which nobody changes before its outcome was told.
 */
#include "train/saver.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/pages.h"
#include "base/pool.h"
#include "ckpt/folder.h"

#define ALIGN_ELEMS 16                   /* each tensor begins on a cache line */
#define COPY_ELEMS ((int64_t)1 << 18)    /* copied by a task */

struct orth_saver {
    const orth_config *cfg;
    const orth_model_config *model;
    const orth_executor *alone;
    const char *dir;
    bool background;
    orth_checkpoint_array *arrays;       /* [num_params] */
    int64_t num_params;
    void *copy;                          /* what they point into; NULL: into the executor, or nothing yet */
    size_t copy_bytes, counted;
    orth_checkpoint_view view;
    char *config;                        /* of the view */
    orth_ctx ctx;                        /* of the thread */
    pthread_t thread;
    bool writing;
    _Atomic bool done;
    orth_status status;
    double begin, blocked_s, end;
};

static bool in_background(const orth_config *cfg)
{
    return cfg->checkpoint_async && cfg->checkpoint_every_steps > 0;
}

static bool has_second_moment(const orth_config *cfg)
{
    return cfg->optimizer_name != ORTH_optimizer_name_sgd;
}

static size_t whole_bytes(const orth_config *cfg, const orth_model_config *model)
{
    int64_t elems = 0;
    orth_ctx none = {.rank = 0}; /* the parameters of a checked model do not fail */
    for (int64_t i = 0; i < orth_model_num_params(model); i++) {
        orth_param p;
        if (orth_model_param(&none, model, i, &p) == ORTH_OK)
            elems += orth_round_up(orth_param_elems(&p), ALIGN_ELEMS);
    }
    return (size_t)elems * sizeof(float) * (has_second_moment(cfg) ? 3 : 2);
}

size_t orth_saver_bytes(const orth_config *cfg, const orth_model_config *model, int num_ranks)
{
    return num_ranks == 1 && in_background(cfg) ? whole_bytes(cfg, model) : 0;
}

orth_status orth_saver_create(orth_ctx *ctx, orth_saver **out, const orth_config *cfg, const orth_model_config *model,
                              const orth_executor *alone, const char *dir)
{
    orth_saver *s = ORTH_NEW(ctx, orth_saver);
    if (!s)
        return ORTH_ERR_NOMEM;
    *s = (orth_saver){.cfg = cfg, .model = model, .alone = alone, .dir = dir, .background = in_background(cfg),
                      .num_params = orth_model_num_params(model), .copy_bytes = whole_bytes(cfg, model)};
    s->arrays = ORTH_NEW_ARRAY(ctx, orth_checkpoint_array, s->num_params);
    orth_status status = s->arrays ? orth_ctx_init(&s->ctx, 1) : ORTH_ERR_NOMEM;
    if (s->arrays && status != ORTH_OK)
        ORTH_FAIL(ctx, status, "%s", s->ctx.error.message);
    if (status == ORTH_OK && alone && s->background)
        status = orth_pages_map(ctx, &s->copy, s->copy_bytes);
    if (status != ORTH_OK) {
        orth_saver_destroy(ctx, s);
        return status;
    }
    s->ctx.log = ctx->log;
    s->ctx.faults = ctx->faults;
    *out = s;
    return ORTH_OK;
}

/* ---- the copy ---- */

/* Of `alone`, where it has them. */
static void find_arrays(orth_saver *s)
{
    for (int64_t i = 0; i < s->num_params; i++)
        s->arrays[i] = (orth_checkpoint_array){.index = i, .master = orth_executor_find(s->alone, ORTH_BIND_MASTER, i),
                                               .m = orth_executor_find(s->alone, ORTH_BIND_M, i),
                                               .v = orth_executor_find(s->alone, ORTH_BIND_V, i)};
}

typedef struct {
    float *to;
    const float *from;
    int64_t n;
} copy_job;

static void copy_task(void *arg, int64_t index, int worker)
{
    (void)worker;
    const copy_job *j = arg;
    int64_t at = index * COPY_ELEMS;
    memcpy(j->to + at, j->from + at, (size_t)ORTH_MIN(COPY_ELEMS, j->n - at) * sizeof *j->to);
}

/* One array of a parameter: from now on in the copy, with what it held. */
static void move(orth_ctx *ctx, float **array, float **to, int64_t n)
{
    copy_job job = {*to, *array, n};
    if (*array)
        orth_pool_run(ctx->pool, orth_div_up(n, COPY_ELEMS), copy_task, &job);
    *array = *to;
    *to += orth_round_up(n, ALIGN_ELEMS);
}

static orth_status use_copy(orth_ctx *ctx, orth_saver *s)
{
    float *to = s->copy;
    for (int64_t i = 0; i < s->num_params; i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, s->model, i, &p));
        s->arrays[i].index = i;
        move(ctx, &s->arrays[i].master, &to, orth_param_elems(&p));
        move(ctx, &s->arrays[i].m, &to, orth_param_elems(&p));
        if (has_second_moment(s->cfg))
            move(ctx, &s->arrays[i].v, &to, orth_param_elems(&p));
    }
    return ORTH_OK;
}

orth_status orth_saver_arrays(orth_ctx *ctx, orth_saver *s, const orth_checkpoint_array **out)
{
    s->begin = orth_clock_s();
    memset(s->arrays, 0, (size_t)s->num_params * sizeof *s->arrays);
    if (s->alone)
        find_arrays(s);
    else
        ORTH_TRY(orth_pages_map(ctx, &s->copy, s->copy_bytes));
    if (s->copy)
        ORTH_TRY(use_copy(ctx, s));
    if (s->copy && s->alone)
        s->counted = s->copy_bytes;
    *out = s->arrays;
    return ORTH_OK;
}

size_t orth_saver_counted(const orth_saver *s)
{
    return s->counted;
}

/* ---- writing ---- */

static void *write_main(void *arg)
{
    orth_saver *s = arg;
    s->status = orth_path_make_dirs(&s->ctx, s->dir);
    if (s->status == ORTH_OK)
        s->status = orth_checkpoint_save(&s->ctx, s->dir, &s->view, s->cfg->checkpoint_keep, NULL);
    s->end = orth_clock_s();
    s->done = true;
    return NULL;
}

orth_status orth_saver_write(orth_ctx *ctx, orth_saver *s, const orth_checkpoint_state *state, const orth_bytes *tokenizer)
{
    s->config = orth_config_yaml(ctx, s->cfg);
    if (!s->config)
        return ORTH_ERR_NOMEM;
    s->view = (orth_checkpoint_view){.config = *s->model, .state = *state, .arrays = s->arrays, .num_arrays = s->num_params,
                                     .weight_dtype = ORTH_F32, .run_config = s->config, .tokenizer = tokenizer->v,
                                     .tokenizer_bytes = tokenizer->num};
    s->done = false;
    s->writing = true;
    if (s->background && pthread_create(&s->thread, NULL, write_main, s) != 0) {
        s->writing = false;
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused the thread that writes checkpoints");
    }
    if (!s->background)
        write_main(s);
    s->blocked_s = orth_clock_s() - s->begin;
    return ORTH_OK;
}

/* Back to idle. */
static void finish(orth_ctx *ctx, orth_saver *s)
{
    if (s->background && s->writing)
        pthread_join(s->thread, NULL);
    s->writing = false;
    orth_mem_free(ctx, s->config);
    s->config = NULL;
    if (!s->alone) { /* only the copy of a rank alone is planned: the others go at once */
        orth_pages_unmap(s->copy, s->copy_bytes);
        s->copy = NULL;
    }
}

orth_status orth_saver_outcome(orth_ctx *ctx, orth_saver *s, bool wait, orth_saved *out)
{
    *out = (orth_saved){.step = 0};
    if (!s->writing || (!wait && !s->done))
        return ORTH_OK;
    finish(ctx, s);
    if (s->status != ORTH_OK)
        return orth_fail(ctx, s->status, s->ctx.error.file, s->ctx.error.line, "%s", s->ctx.error.message);
    *out = (orth_saved){.step = s->view.state.step, .seconds = s->end - s->begin, .blocked_s = s->blocked_s};
    return ORTH_OK;
}

void orth_saver_destroy(orth_ctx *ctx, orth_saver *s)
{
    if (!s)
        return;
    finish(ctx, s);
    orth_pages_unmap(s->copy, s->copy_bytes);
    if (s->ctx.pool)
        orth_ctx_destroy(&s->ctx);
    orth_mem_free(ctx, s->arrays);
    orth_mem_free(ctx, s);
}
