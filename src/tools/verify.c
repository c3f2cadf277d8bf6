/* verify.c -- see verify.h. */
#include "tools/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/files.h"
#include "base/text.h"

orth_status orth_verify_open(orth_ctx *ctx, orth_verify *v, const char *scratch, int64_t steps)
{
    *v = (orth_verify){.scratch = scratch, .steps = steps};
    v->scalars = ORTH_NEW_ARRAY(ctx, double, 2 * steps);
    return v->scalars ? ORTH_OK : ORTH_ERR_NOMEM;
}

void orth_verify_close(orth_ctx *ctx, orth_verify *v)
{
    orth_mem_free(ctx, v->scalars);
    v->scalars = NULL;
}

/* ---- what two runs may differ in ---- */

static bool starts_with(const char *s, const char *start)
{
    return strncmp(s, start, strlen(start)) == 0;
}

/* Keys that make the problem; the others only say how it is computed, or are worth finding. */
static bool is_of_problem(const char *path)
{
    if (starts_with(path, "model."))
        return strcmp(path, "model.attention") != 0;
    return starts_with(path, "data.") || strcmp(path, "train.global_batch") == 0 ||
           strcmp(path, "train.seed") == 0;
}

static bool is_of_this_machine(const char *path)
{
    return starts_with(path, "checkpoint.") || starts_with(path, "train.log_") || starts_with(path, "log.") || starts_with(path, "train.eval_");
}

/* Values of key `id` in both, if they differ; else NULL in *x and *y. Free both. */
static orth_status read_both(orth_ctx *ctx, const orth_config *a, const orth_config *b, int id, char **x,
                             char **y)
{
    *x = orth_option_text(ctx, a, (orth_option_id)id);
    *y = orth_option_text(ctx, b, (orth_option_id)id);
    bool ok = *x && *y;
    if (ok && strcmp(*x, *y) != 0)
        return ORTH_OK;
    orth_mem_free(ctx, *x);
    orth_mem_free(ctx, *y);
    *x = *y = NULL;
    return ok ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* An asynchronous pipeline updates in the middle of a step: how often and with what weights is a matter of the layout. */
static orth_status check_async(orth_ctx *ctx, const orth_config *a, const orth_config *b)
{
    const char *name = "pipedream";
    const bool x = strcmp(a->parallel_pipeline, name) == 0, y = strcmp(b->parallel_pipeline, name) == 0;
    if (!x && !y)
        return ORTH_OK;
    if (x && y && a->parallel_pp == b->parallel_pp && a->parallel_dp == b->parallel_dp &&
        a->train_micro_batch == b->train_micro_batch)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "verify: parallel.pipeline=pipedream has results of its own for each parallel.pp, "
                     "parallel.dp and train.micro_batch: both run files must have it, and the same of these");
}

orth_status orth_verify_check_same(orth_ctx *ctx, const orth_config *a, const orth_config *b)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const char *path = orth_option_get((orth_option_id)i)->path;
        char *x, *y;
        if (!is_of_problem(path))
            continue;
        ORTH_TRY(read_both(ctx, a, b, i, &x, &y));
        orth_status s = ORTH_OK;
        if (x)
            s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "verify: %s is %s in the first run file and %s in the second: "
                          "model, data, global batch and seed must be the same", path, x, y);
        orth_mem_free(ctx, x);
        orth_mem_free(ctx, y);
        ORTH_TRY(s);
    }
    return check_async(ctx, a, b);
}

char *orth_verify_changes(orth_ctx *ctx, const orth_config *a, const orth_config *b)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "");
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const char *path = orth_option_get((orth_option_id)i)->path;
        char *x, *y;
        if (is_of_this_machine(path) || read_both(ctx, a, b, i, &x, &y) != ORTH_OK || !x)
            continue;
        orth_text_addf(ctx, &t, "%s%s", t.num_bytes > 0 ? ", " : "", path);
        orth_mem_free(ctx, x);
        orth_mem_free(ctx, y);
    }
    return orth_text_take(ctx, &t);
}

/* ---- keeping and comparing ---- */

static char *file_of(orth_ctx *ctx, const orth_verify *v, orth_bind bind, int64_t step)
{
    return bind == ORTH_BIND_GRAD ? orth_mem_printf(ctx, "%s/gradients-%" PRId64, v->scratch, step)
                                  : orth_mem_printf(ctx, "%s/weights", v->scratch);
}

static void __attribute__((format(printf, 2, 3))) say(orth_verify *v, const char *fmt, ...)
{
    size_t n = strlen(v->text);
    va_list list;
    va_start(list, fmt);
    vsnprintf(v->text + n, sizeof v->text - n, fmt, list);
    va_end(list);
}

/* Begins the sentence, or a part of it. */
static void begin_part(orth_verify *v, int64_t step)
{
    if (v->differ)
        say(v, "; ");
    else
        say(v, "step %" PRId64 ": ", step);
    v->differ = true;
}

static void compare_scalars(orth_verify *v, const orth_step_result *r)
{
    const double now[] = {r->loss, r->grad_norm}, *before = v->scalars + 2 * (r->step - 1);
    static const char *const names[] = {"loss", "gradient norm"};
    for (int i = 0; i < 2; i++) {
        if (memcmp(&now[i], &before[i], sizeof now[i]) == 0)
            continue;
        begin_part(v, r->step);
        say(v, "%s %a and %a", names[i], before[i], now[i]);
    }
}

static void name_element(orth_verify *v, const orth_param *p, orth_bind bind, int64_t at, float before,
                         float now)
{
    say(v, "%s of %s, element ", bind == ORTH_BIND_GRAD ? "gradient" : "weight", p->name);
    if (p->num_dims > 1)
        say(v, "[%" PRId64 ", %" PRId64 "]", at / p->dim[1], at % p->dim[1]);
    else
        say(v, "[%" PRId64 "]", at);
    say(v, ": %a and %a", (double)before, (double)now);
}

static orth_status compare_tensors(orth_ctx *ctx, orth_verify *v, const orth_model_config *model,
                                   int64_t step, orth_bind bind, const float *before, const float *now)
{
    int64_t bad_tensors = 0, bad_elems = 0;
    for (int64_t i = 0; i < v->num_tensors; i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, model, i, &p));
        int64_t n = orth_param_elems(&p), bad = 0;
        for (int64_t k = 0; k < n; k++) {
            if (memcmp(&before[k], &now[k], sizeof *now) == 0)
                continue;
            if (bad_elems + bad == 0) {
                begin_part(v, step);
                name_element(v, &p, bind, k, before[k], now[k]);
            }
            bad++;
        }
        bad_tensors += bad > 0;
        bad_elems += bad;
        before += n;
        now += n;
    }
    if (bad_tensors > 0)
        say(v, " (%" PRId64 " of %" PRId64 " tensors differ, in %" PRId64 " of %" PRId64 " elements)",
            bad_tensors, v->num_tensors, bad_elems, v->num_elems);
    else if (v->differ)
        say(v, "; all %s are equal", bind == ORTH_BIND_GRAD ? "gradients" : "weights");
    return ORTH_OK;
}

static orth_status compare(orth_ctx *ctx, orth_verify *v, const orth_model_config *model,
                           const orth_step_result *r, orth_bind bind, const float *values)
{
    char *path = file_of(ctx, v, bind, r->step);
    orth_file_map before;
    orth_status s = path ? orth_file_map_open(ctx, &before, path) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    ORTH_TRY(s);
    if (before.size != (size_t)v->num_elems * sizeof *values) {
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: a file of another size than was written", v->scratch);
    } else {
        if (bind == ORTH_BIND_GRAD)
            compare_scalars(v, r);
        s = compare_tensors(ctx, v, model, r->step, bind, (const float *)(const void *)before.data,
                            values);
    }
    orth_file_map_close(&before);
    return s;
}

static orth_status keep(orth_ctx *ctx, orth_verify *v, const orth_step_result *r, orth_bind bind,
                        const float *values)
{
    char *path = file_of(ctx, v, bind, r->step);
    v->scalars[2 * (r->step - 1)] = r->loss;
    v->scalars[2 * (r->step - 1) + 1] = r->grad_norm;
    const size_t bytes = (size_t)v->num_elems * sizeof *values;
    orth_status s = path ? orth_file_write(ctx, path, values, bytes) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    return s;
}

/* Every element has come from some rank: nothing that trains has all bits set. */
static orth_status require_whole(orth_ctx *ctx, const orth_verify *v, const float *values)
{
    static const unsigned char unset[sizeof(float)] = {0xff, 0xff, 0xff, 0xff};
    for (int64_t i = 0; i < v->num_elems; i++)
        if (memcmp(&values[i], unset, sizeof unset) == 0)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "verify: no rank owns element %" PRId64 " of the model",
                             i);
    return ORTH_OK;
}

static orth_status show(orth_ctx *ctx, void *user, const orth_model_config *model,
                        const orth_step_result *result, orth_bind bind, const float *values)
{
    orth_verify *v = user;
    int64_t num_elems = orth_model_num_elems(model);
    if (v->compares && num_elems != v->num_elems)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "verify: a model of %" PRId64 " parameters and one of %" PRId64,
                         v->num_elems, num_elems);
    v->num_tensors = orth_model_num_params(model);
    v->num_elems = num_elems;
    ORTH_TRY(require_whole(ctx, v, values));
    if (!v->compares)
        return keep(ctx, v, result, bind, values);
    return v->differ ? ORTH_OK : compare(ctx, v, model, result, bind, values);
}

orth_status orth_verify_run(orth_ctx *ctx, orth_verify *v, orth_config *cfg)
{
    const orth_run_watch watch = {.steps = v->steps, .show = show, .user = v};
    /* Under mpirun every process would run it again, each for itself. */
    if (cfg->comm_backend == ORTH_comm_backend_mpi)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "verify: comm.backend=mpi: both runs are compared in one process; give "
                         "comm.backend=thread, whose bits are the same");
    ORTH_TRY(orth_config_set(ctx, cfg, "verify", "checkpoint.dir", v->scratch));
    orth_run_options options = {.cfg = cfg, .watch = &watch, .stop = ctx->stop, .stop_user = ctx->stop_user};
    orth_status s = orth_run_whole(ctx, &options);
    v->compares = true;
    return s;
}
