/* saver.c -- see saver.h.
 *
 *   idle --write--> writing --(thread: done)--outcome--> idle
 *
 * The writing thread has a ctx of its own and reads `view`, which nobody changes before its outcome was told.
 */
#include "train/saver.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/pages.h"
#include "base/progress.h"
#include "train/gather.h"
#include "train/setup.h"
#include "train/weights.h"

#define ALIGN_ELEMS 16                   /* each tensor begins on a cache line */
#define WAIT_LOOK_NS 20000000            /* between two looks at a write that is waited for */

struct orth_saver {
    const orth_config *cfg;
    const orth_model_config *model;
    const orth_executor *alone;
    orth_saver_source source;
    orth_ctx *caller;                    /* of rank 0, while it waits for the write */
    const orth_folder_claim *run;
    const char *dir;
    bool background;
    orth_checkpoint_array *arrays;       /* [num_params] */
    int64_t num_params;
    bool *frozen;                        /* [num_params] */
    orth_checkpoint_delayed delayed;     /* in the copy */
    void *copy;                          /* what they point into */
    size_t copy_bytes, counted;
    float *chunk;                        /* behind it, where several ranks hand in */
    orth_checkpoint_view view;
    char *config;                        /* of the view */
    int lines_fd;                        /* -1: none */
    const char *lines_path;
    orth_ctx ctx;                        /* of the thread */
    orth_progress progress;              /* of the thread in the background */
    pthread_t thread;
    bool writing;
    bool done;                           /* under mutex */
    int64_t newest, proven;              /* steps of checkpoints; -1: none yet */
    int64_t resumed;                     /* the one that the run goes on from; -1: it began anew */
    int64_t spare, after;                /* of the write: what was proven before it; what it removes is above `after` */
    pthread_mutex_t mutex;
    pthread_cond_t finished;
    orth_status status;
    double begin, blocked_s, end;
};

static bool in_background(const orth_config *cfg)
{
    return cfg->checkpoint_async && cfg->checkpoint_every_steps > 0;
}

_Static_assert((int)ORTH_CHECKPOINT_MASTER == 0 && (int)ORTH_CHECKPOINT_M == 1 && (int)ORTH_CHECKPOINT_V == 2 &&
               (int)ORTH_CHECKPOINT_SCALES == 3, "kinds in the order of the list below");

int orth_saver_binds(const orth_config *cfg, const orth_bind **out)
{
    static const orth_bind binds[ORTH_NUM_CHECKPOINT_KINDS] = {ORTH_BIND_MASTER, ORTH_BIND_M, ORTH_BIND_V, ORTH_BIND_SCALES};
    *out = binds;
    if (orth_config_keeps_no_moments(cfg))
        return 1;
    return cfg->optimizer_name == ORTH_optimizer_name_sgd ? 2 : cfg->precision_moments == ORTH_precision_moments_8bit ? 4 : 3;
}

bool orth_saver_keeps(const orth_config *cfg, const orth_model_config *model, const orth_param *p, bool frozen, orth_bind bind)
{
    return bind == ORTH_BIND_MASTER || (!frozen && (bind != ORTH_BIND_SCALES || orth_setup_scale_cols(cfg, model, p->weight) > 0));
}

static float **array_of(orth_checkpoint_array *a, int kind)
{
    return kind == ORTH_CHECKPOINT_MASTER ? &a->master : kind == ORTH_CHECKPOINT_M ? &a->m : kind == ORTH_CHECKPOINT_V ? &a->v : &a->scales;
}

/* Elements of an array of a parameter, from one cache line to another; 0: there is none. */
static int64_t array_elems(const orth_config *cfg, const orth_model_config *model, const orth_param *p, bool frozen, int kind)
{
    const orth_bind *binds;
    orth_saver_binds(cfg, &binds);
    if (!orth_saver_keeps(cfg, model, p, frozen, binds[kind]))
        return 0;
    const int64_t n = kind == ORTH_CHECKPOINT_SCALES ? p->dim[0] * orth_setup_scale_cols(cfg, model, p->weight) : orth_param_elems(p);
    return orth_round_up(n, ALIGN_ELEMS);
}

/* Elements of all arrays together, and of the largest. */
static void count_elems(const orth_config *cfg, const orth_model_config *model, const bool *frozen, int64_t *all, int64_t *largest)
{
    orth_ctx none = {.rank = 0}; /* the parameters of a checked model do not fail */
    const orth_bind *binds;
    const int num_kinds = orth_saver_binds(cfg, &binds);
    *all = *largest = 0;
    for (int64_t i = 0; i < orth_model_num_params(model); i++) {
        orth_param p;
        if (orth_model_param(&none, model, i, &p) != ORTH_OK)
            continue;
        for (int kind = 0; kind < num_kinds; kind++) {
            const int64_t n = array_elems(cfg, model, &p, frozen[i], kind);
            *all += n;
            *largest = ORTH_MAX(*largest, n);
        }
    }
}

static int64_t delayed_elems(const orth_checkpoint_delayed *d)
{
    return d->steps > 0 ? orth_round_up(orth_checkpoint_delayed_rows(d) * (1 + d->steps), ALIGN_ELEMS) : 0;
}

/* Elements of the copy, which ends with what delayed scaling has, and behind it of the chunk in which others hand in. */
static void count_memory(const orth_config *cfg, const orth_model_config *model, const bool *frozen, bool alone, int64_t *copy, int64_t *chunk)
{
    int64_t all, largest;
    count_elems(cfg, model, frozen, &all, &largest);
    const orth_checkpoint_delayed delayed = orth_setup_delayed(cfg, model);
    *copy = (in_background(cfg) ? all : largest) + delayed_elems(&delayed);
    *chunk = alone ? 0 : ORTH_MIN(largest, ORTH_GATHER_CHUNK_ELEMS);
}

orth_status orth_saver_bytes(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, int num_ranks, size_t *out)
{
    bool *frozen = ORTH_NEW_ARRAY(ctx, bool, orth_model_num_params(model));
    orth_status s = frozen ? orth_setup_frozen(ctx, cfg, model, frozen) : ORTH_ERR_NOMEM;
    int64_t copy, chunk;
    if (s == ORTH_OK) {
        count_memory(cfg, model, frozen, num_ranks == 1, &copy, &chunk);
        *out = (size_t)(copy + chunk) * sizeof(float);
    }
    orth_mem_free(ctx, frozen);
    return s;
}

orth_status orth_saver_create(orth_ctx *ctx, orth_saver **out, const orth_config *cfg, const orth_model_config *model,
                              const orth_executor *alone, const orth_saver_source *source, const orth_folder_claim *run, const char *dir)
{
    int64_t copy, chunk;
    orth_saver *s = ORTH_NEW(ctx, orth_saver);
    if (!s)
        return ORTH_ERR_NOMEM;
    *s = (orth_saver){.cfg = cfg, .model = model, .alone = alone, .run = run, .dir = dir, .background = in_background(cfg),
                      .num_params = orth_model_num_params(model), .delayed = orth_setup_delayed(cfg, model), .newest = -1, .proven = -1,
                      .resumed = -1, .lines_fd = -1};
    if (!alone)
        s->source = *source;
    orth_progress_init(&s->progress);
    pthread_mutex_init(&s->mutex, NULL);
    orth_clock_cond_init(&s->finished);
    s->arrays = ORTH_NEW_ARRAY(ctx, orth_checkpoint_array, s->num_params);
    s->frozen = ORTH_NEW_ARRAY(ctx, bool, s->num_params);
    const bool room = s->arrays && s->frozen;
    orth_status status = room ? orth_ctx_init(&s->ctx, 1) : ORTH_ERR_NOMEM;
    if (room && status != ORTH_OK)
        ORTH_FAIL(ctx, status, "%s", s->ctx.error.message);
    if (status == ORTH_OK)
        status = orth_setup_frozen(ctx, cfg, model, s->frozen);
    if (status == ORTH_OK) {
        count_memory(cfg, model, s->frozen, alone != NULL, &copy, &chunk);
        s->copy_bytes = (size_t)(copy + chunk) * sizeof(float);
    }
    if (status == ORTH_OK && s->copy_bytes > 0)
        status = orth_pages_map(ctx, &s->copy, s->copy_bytes);
    if (status == ORTH_OK && !alone)
        s->chunk = (float *)s->copy + copy;
    if (status == ORTH_OK && s->delayed.steps > 0) {
        s->delayed.scales = (float *)s->copy + copy - delayed_elems(&s->delayed);
        s->delayed.history = s->delayed.scales + orth_checkpoint_delayed_rows(&s->delayed);
    }
    if (status != ORTH_OK) {
        orth_saver_destroy(ctx, s);
        return status;
    }
    s->ctx.log = ctx->log;
    s->ctx.faults = ctx->faults;
    s->ctx.progress = s->background ? &s->progress : ctx->progress;
    *out = s;
    return ORTH_OK;
}

/* ---- the copy ---- */

/* One array into the copy. */
static orth_status copy_array(orth_ctx *ctx, const orth_saver *s, orth_bind bind, int64_t index, float *to)
{
    if (!s->alone)
        return s->source.fetch(ctx, s->source.user, bind, index, s->chunk, to);
    const size_t elem = orth_dtype_bytes(orth_executor_type(s->alone, bind, index));
    return orth_weights_read(ctx, s->alone, bind, index, 0, (int64_t)(orth_executor_size(s->alone, bind, index) / elem), to);
}

/* Where the arrays are, kind by kind: in the copy, which is filled; or all in one place, filled when their turn comes. */
static orth_status find_arrays(orth_ctx *ctx, orth_saver *s)
{
    const orth_bind *binds;
    const int num_kinds = orth_saver_binds(s->cfg, &binds);
    float *to = s->copy;
    memset(s->arrays, 0, (size_t)s->num_params * sizeof *s->arrays);
    for (int kind = 0; kind < num_kinds; kind++) {
        for (int64_t i = 0; i < s->num_params; i++) {
            orth_param p;
            ORTH_TRY(orth_model_param(ctx, s->model, i, &p));
            const int64_t elems = array_elems(s->cfg, s->model, &p, s->frozen[i], kind);
            s->arrays[i].index = i;
            s->arrays[i].scale_cols = orth_setup_scale_cols(s->cfg, s->model, p.weight);
            *array_of(&s->arrays[i], kind) = elems > 0 ? to : NULL;
            if (!s->background || elems == 0)
                continue;
            ORTH_TRY(copy_array(ctx, s, binds[kind], i, to));
            to += elems;
        }
    }
    return ORTH_OK;
}

/* All ranks have all of it. */
static orth_status copy_delayed(orth_ctx *ctx, const orth_saver *s, const orth_executor *mine)
{
    const size_t bytes = (size_t)orth_checkpoint_delayed_rows(&s->delayed) * sizeof(float);
    if (s->delayed.steps == 0)
        return ORTH_OK;
    ORTH_TRY(orth_executor_read(ctx, mine, (orth_ref){ORTH_BIND_DATA, ORTH_DATA_FP8_SCALES, 0, bytes}, s->delayed.scales));
    const orth_ref history = {ORTH_BIND_DATA, ORTH_DATA_FP8_HISTORY, 0, bytes * (size_t)s->delayed.steps};
    return orth_executor_read(ctx, mine, history, s->delayed.history);
}

size_t orth_saver_counted(const orth_saver *s)
{
    return s->counted;
}

/* ---- writing ---- */

static orth_status fetch(orth_ctx *ctx, void *user, int64_t index, orth_checkpoint_kind kind)
{
    (void)ctx; /* of the writing thread, which is rank 0's here */
    const orth_saver *s = user;
    const orth_bind *binds;
    orth_saver_binds(s->cfg, &binds);
    return copy_array(s->caller, s, binds[kind], index, s->copy);
}

/* Removes what `keep` does not spare. Between a look at the folder and the removal little time passes. */
static orth_status retain(orth_ctx *ctx, const orth_saver *s, int64_t after, int64_t spare)
{
    ORTH_TRY(orth_folder_require(ctx, s->run));
    orth_checkpoint_retain(ctx, s->dir, s->cfg->checkpoint_keep, after, s->view.state.step, spare);
    return ORTH_OK;
}

static orth_status save_and_retain(orth_ctx *ctx, const orth_saver *s)
{
    const orth_status lines = s->lines_fd >= 0 ? orth_file_sync(ctx, s->lines_fd, s->lines_path) : ORTH_OK;
    const orth_error error = ctx->error;
    orth_ctx_clear_error(ctx);
    if (s->spare >= 0) /* what was spared for it goes first: the disk holds keep + 1 at most */
        ORTH_TRY(retain(ctx, s, s->after, s->spare));
    ORTH_TRY(orth_checkpoint_save_in_run(ctx, s->run, s->dir, &s->view));
    ORTH_TRY(retain(ctx, s, s->after, s->spare));
    if (lines != ORTH_OK)
        ctx->error = error;
    return lines;
}

static void *write_main(void *arg)
{
    orth_saver *s = arg;
    s->status = save_and_retain(&s->ctx, s);
    s->end = orth_clock_s();
    pthread_mutex_lock(&s->mutex);
    s->done = true;
    pthread_cond_signal(&s->finished);
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

orth_status orth_saver_write(orth_ctx *ctx, orth_saver *s, const orth_executor *mine, const orth_checkpoint_state *state,
                             const orth_bytes *tokenizer, const char *tokenizer_config)
{
    s->begin = orth_clock_s();
    ORTH_TRY(copy_delayed(ctx, s, mine));
    ORTH_TRY(find_arrays(ctx, s));
    s->config = orth_config_yaml(ctx, s->cfg);
    if (!s->config)
        return ORTH_ERR_NOMEM;
    s->view = (orth_checkpoint_view){.config = *s->model, .state = *state, .arrays = s->arrays, .num_arrays = s->num_params,
                                     .delayed = s->delayed, .weight_dtype = ORTH_F32, .run_config = s->config, .tokenizer = tokenizer->v,
                                     .tokenizer_bytes = tokenizer->num, .tokenizer_config = tokenizer_config};
    if (!s->background) {
        s->view.fetch = fetch;
        s->view.fetch_user = s;
    }
    s->caller = ctx;
    s->counted = s->copy_bytes;
    s->spare = s->proven;
    s->after = s->proven < 0 ? s->resumed : -1;
    s->newest = state->step;
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

static bool is_done(orth_saver *s)
{
    pthread_mutex_lock(&s->mutex);
    const bool done = s->done;
    pthread_mutex_unlock(&s->mutex);
    return done;
}

/* Waits for the thread. As long as bytes are written this rank moves; the disk alone is to blame when none are. */
static void await_thread(orth_ctx *ctx, orth_saver *s)
{
    int64_t seen = -1;
    orth_phase_begin(ctx, "writing checkpoint step-%08" PRId64, s->view.state.step);
    pthread_mutex_lock(&s->mutex);
    while (!s->done) {
        const struct timespec until = orth_clock_deadline(WAIT_LOOK_NS);
        pthread_cond_timedwait(&s->finished, &s->mutex, &until);
        orth_progress_follow(ctx, &s->progress, &seen);
    }
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    orth_phase_end(ctx);
}

/* Back to idle. */
static void finish(orth_ctx *ctx, orth_saver *s)
{
    if (s->background && s->writing)
        await_thread(ctx, s);
    s->writing = false;
    orth_mem_free(ctx, s->config);
    s->config = NULL;
}

orth_status orth_saver_outcome(orth_ctx *ctx, orth_saver *s, bool wait, orth_saved *out)
{
    *out = (orth_saved){.step = 0};
    if (!s->writing || (!wait && !is_done(s)))
        return ORTH_OK;
    finish(ctx, s);
    if (s->status != ORTH_OK)
        return orth_fail(ctx, s->status, s->ctx.error.file, s->ctx.error.line, "%s", s->ctx.error.message);
    *out = (orth_saved){.step = s->view.state.step, .seconds = s->end - s->begin, .blocked_s = s->blocked_s};
    return ORTH_OK;
}

/* ---- which stay ---- */

void orth_saver_has_lines(orth_saver *s, int fd, const char *path)
{
    s->lines_fd = fd;
    s->lines_path = path;
}

void orth_saver_goes_on(orth_saver *s, int64_t step)
{
    s->newest = s->resumed = step;
}

void orth_saver_proves(orth_saver *s)
{
    s->proven = s->newest;
}

orth_status orth_saver_settle(orth_ctx *ctx, const orth_saver *s)
{
    const int64_t saved = s->view.state.step;
    orth_phase_begin(ctx, "removing older checkpoints");
    const orth_status status = saved > 0 ? retain(ctx, s, -1, saved) : ORTH_OK;
    orth_phase_end(ctx);
    return status;
}

/* By the ctx of the thread, which has ended: the rank's has the error that ends the run. */
void orth_saver_retreat(orth_ctx *ctx, orth_saver *s)
{
    finish(ctx, s);
    s->ctx.progress = ctx->progress;
    if (s->status == ORTH_OK && s->newest > s->proven && orth_folder_require(&s->ctx, s->run) == ORTH_OK)
        orth_checkpoint_withdraw(&s->ctx, s->dir, s->newest);
}

void orth_saver_destroy(orth_ctx *ctx, orth_saver *s)
{
    if (!s)
        return;
    finish(ctx, s);
    pthread_cond_destroy(&s->finished);
    pthread_mutex_destroy(&s->mutex);
    orth_progress_destroy(&s->progress);
    orth_pages_unmap(s->copy, s->copy_bytes);
    if (s->ctx.pool)
        orth_ctx_destroy(&s->ctx);
    orth_mem_free(ctx, s->arrays);
    orth_mem_free(ctx, s->frozen);
    orth_mem_free(ctx, s);
}
