/* folder.c -- see folder.h. */
#include "ckpt/folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define TMP_PREFIX ".tmp-"
#define OLD_PREFIX ".old-"

/* "step-" and at least eight digits; -1: another name. */
static int64_t parse_step(const char *name)
{
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const char *digits = name + 5;
    size_t n = strspn(digits, "0123456789");
    if (n < 8 || n > 18 || digits[n] || (n > 8 && digits[0] == '0'))
        return -1;
    return strtoll(digits, NULL, 10);
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

orth_status orth_checkpoint_list(orth_ctx *ctx, const char *dir, int64_t **out, int64_t *out_num)
{
    int64_t n = 0, room = 64;
    int64_t *steps = ORTH_NEW_ARRAY(ctx, int64_t, room);
    if (!steps)
        return ORTH_ERR_NOMEM;
    DIR *d = opendir(dir);
    if (!d && errno != ENOENT) {
        orth_mem_free(ctx, steps);
        return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: cannot list: %s", dir, strerror(errno));
    }
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        int64_t step = parse_step(e->d_name);
        if (step < 0)
            continue;
        if (n == room) {
            room *= 2;
            int64_t *more = orth_mem_realloc(ctx, steps, (size_t)room * sizeof *steps);
            if (!more) {
                closedir(d);
                orth_mem_free(ctx, steps);
                return ORTH_ERR_NOMEM;
            }
            steps = more;
        }
        steps[n++] = step;
    }
    if (d)
        closedir(d);
    qsort(steps, (size_t)n, sizeof *steps, descending);
    *out = steps;
    *out_num = n;
    return ORTH_OK;
}

static char *step_path(orth_ctx *ctx, const char *dir, const char *prefix, int64_t step)
{
    return orth_mem_printf(ctx, "%s/%sstep-%08" PRId64, dir, prefix, step);
}

char *orth_checkpoint_step_path(orth_ctx *ctx, const char *dir, int64_t step)
{
    return step_path(ctx, dir, "", step);
}

/* What is asked of the run after the commit must not undo the commit: failures become warnings. */
static void remove_or_warn(orth_ctx *ctx, const char *path)
{
    orth_status s = path ? orth_path_remove(ctx, path) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        return;
    orth_log(ctx, ORTH_LOG_WARN, "checkpoint", "cannot remove an old checkpoint: %s", ctx->error.message);
    orth_ctx_clear_error(ctx);
}

/* Temporaries of runs that were killed. */
static void remove_leftovers(orth_ctx *ctx, const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (strncmp(e->d_name, TMP_PREFIX "step-", 10) != 0 &&
            strncmp(e->d_name, OLD_PREFIX "step-", 10) != 0)
            continue;
        char *path = orth_path_join(ctx, dir, e->d_name);
        remove_or_warn(ctx, path);
        orth_mem_free(ctx, path);
    }
    if (d)
        closedir(d);
}

static void remove_older(orth_ctx *ctx, const char *dir, int64_t keep, int64_t saved)
{
    int64_t *steps = NULL, n = 0;
    if (keep <= 0)
        return;
    if (orth_checkpoint_list(ctx, dir, &steps, &n) != ORTH_OK) {
        orth_log(ctx, ORTH_LOG_WARN, "checkpoint", "old checkpoints stay: %s", ctx->error.message);
        orth_ctx_clear_error(ctx);
        return;
    }
    for (int64_t i = keep; i < n; i++) {
        /* A run that went back to an older step saves below what lies there. */
        if (steps[i] == saved)
            continue;
        char *path = step_path(ctx, dir, "", steps[i]);
        remove_or_warn(ctx, path);
        orth_mem_free(ctx, path);
    }
    orth_mem_free(ctx, steps);
}

/* A kill between the two renames of `publish` leaves a checkpoint that only has its aside name. */
static void restore_aside(orth_ctx *ctx, const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const char *name = e->d_name + strlen(OLD_PREFIX);
        if (strncmp(e->d_name, OLD_PREFIX, strlen(OLD_PREFIX)) != 0 || parse_step(name) < 0)
            continue;
        char *from = orth_path_join(ctx, dir, e->d_name);
        char *to = from ? orth_path_join(ctx, dir, name) : NULL;
        if (to && !orth_path_exists(to))
            rename(from, to);
        orth_mem_free(ctx, from);
        orth_mem_free(ctx, to);
    }
    if (d)
        closedir(d);
}

/* A folder cannot be renamed over one that is not empty, so a checkpoint of the same step steps
 * aside first, and comes back if the new one does not get its name. */
static orth_status publish(orth_ctx *ctx, const char *tmp, const char *path, const char *old)
{
    const bool replaces = orth_path_exists(path);
    if (replaces) {
        ORTH_TRY(orth_path_remove(ctx, old));
        ORTH_TRY(orth_path_rename(ctx, path, old));
    }
    orth_status s = orth_path_rename(ctx, tmp, path);
    if (s != ORTH_OK && replaces && !orth_path_exists(path))
        rename(old, path);
    return s;
}

static orth_status save(orth_ctx *ctx, const char *dir, const orth_checkpoint_view *view, const char *tmp,
                        const char *path, const char *old)
{
    ORTH_TRY(orth_path_make_dirs(ctx, dir));
    restore_aside(ctx, dir);
    ORTH_TRY(orth_path_remove(ctx, tmp));
    ORTH_TRY(orth_path_make_dirs(ctx, tmp));
    ORTH_TRY(orth_checkpoint_write(ctx, tmp, view));
    return publish(ctx, tmp, path, old);
}

orth_status orth_checkpoint_save(orth_ctx *ctx, const char *dir, const orth_checkpoint_view *view,
                                 int64_t keep, char **out_path)
{
    const int64_t step = view->state.step;
    if (step < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "checkpoint: step=%" PRId64 " is negative", step);
    char *tmp = step_path(ctx, dir, TMP_PREFIX, step);
    char *path = tmp ? step_path(ctx, dir, "", step) : NULL;
    char *old = path ? step_path(ctx, dir, OLD_PREFIX, step) : NULL;
    orth_status s = old ? save(ctx, dir, view, tmp, path, old) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK) {
        remove_leftovers(ctx, dir);
        remove_older(ctx, dir, keep, step);
    } else if (tmp) {
        orth_path_remove(ctx, tmp); /* the first error stays the one that is told */
    }
    orth_mem_free(ctx, old);
    orth_mem_free(ctx, tmp);
    if (s == ORTH_OK && out_path)
        *out_path = path;
    else
        orth_mem_free(ctx, path);
    return s;
}

orth_status orth_checkpoint_newest(orth_ctx *ctx, const char *dir, char **out)
{
    int64_t *steps = NULL, n = 0;
    restore_aside(ctx, dir);
    ORTH_TRY(orth_checkpoint_list(ctx, dir, &steps, &n));
    char *found = NULL;
    orth_status s = ORTH_OK;
    for (int64_t i = 0; i < n && !found && s == ORTH_OK; i++) {
        char *path = step_path(ctx, dir, "", steps[i]);
        s = path ? orth_checkpoint_verify(ctx, path) : ORTH_ERR_NOMEM;
        if (s == ORTH_OK) {
            found = path;
            break;
        }
        if (s == ORTH_ERR_DATA || s == ORTH_ERR_IO) {
            orth_log(ctx, ORTH_LOG_WARN, "checkpoint", "%s is passed over: %s", path, ctx->error.message);
            orth_ctx_clear_error(ctx);
            s = ORTH_OK;
        }
        orth_mem_free(ctx, path);
    }
    orth_mem_free(ctx, steps);
    if (s == ORTH_OK)
        *out = found;
    return s;
}

orth_status orth_checkpoint_resolve(orth_ctx *ctx, const char *path, char **out)
{
    char *state = orth_path_join(ctx, path, "state.json");
    if (!state)
        return ORTH_ERR_NOMEM;
    const bool itself = orth_path_exists(state);
    orth_mem_free(ctx, state);
    if (itself) {
        char *copy = orth_mem_strdup(ctx, path);
        if (copy)
            *out = copy;
        return copy ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    char *found = NULL, *below = NULL;
    orth_status s = orth_checkpoint_newest(ctx, path, &found);
    if (s == ORTH_OK && !found) {
        below = orth_path_join(ctx, path, "checkpoints");
        s = below ? orth_checkpoint_newest(ctx, below, &found) : ORTH_ERR_NOMEM;
        orth_mem_free(ctx, below);
    }
    if (s == ORTH_OK && !found)
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, orth_path_is_dir(path) ? "%s: holds no valid checkpoint" : "%s: there is no "
                      "such folder", path);
    if (s == ORTH_OK)
        *out = found;
    return s;
}

orth_status orth_checkpoint_find_weights(orth_ctx *ctx, const char *path, char **out, bool *out_own)
{
    *out_own = orth_checkpoint_resolve(ctx, path, out) == ORTH_OK;
    if (*out_own)
        return ORTH_OK;
    char *config = orth_path_join(ctx, path, "config.json");
    if (!config || !orth_path_exists(config)) {
        orth_mem_free(ctx, config);
        return ctx->error.code;
    }
    orth_mem_free(ctx, config);
    orth_ctx_clear_error(ctx);
    *out = orth_mem_strdup(ctx, path);
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}
