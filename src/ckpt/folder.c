/* folder.c -- see folder.h. */
#include "ckpt/folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define TMP_PREFIX ".tmp-"
#define OLD_PREFIX ".old-"
#define DEL_PREFIX ".del-"
#define MAX_LOOKS 100           /* of a reader at a folder in which checkpoints come and go */
#define LOOK_AGAIN_NS 2000000   /* before another look */

/* ---- names ---- */

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

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static char *step_path(orth_ctx *ctx, const char *dir, const char *prefix, int64_t step)
{
    return orth_mem_printf(ctx, "%s/%sstep-%08" PRId64, dir, prefix, step);
}

char *orth_checkpoint_step_path(orth_ctx *ctx, const char *dir, int64_t step)
{
    return step_path(ctx, dir, "", step);
}

typedef struct {
    int64_t *steps, num, room;
    bool aside;                 /* those that have only their aside name, too */
} step_list;

static orth_status list_step(orth_ctx *ctx, void *user, const char *dir, const char *name)
{
    (void)dir;
    step_list *list = user;
    const bool aside = list->aside && has_prefix(name, OLD_PREFIX);
    const int64_t step = parse_step(aside ? name + strlen(OLD_PREFIX) : name);
    if (step < 0)
        return ORTH_OK;
    if (list->num == list->room) {
        const int64_t room = ORTH_MAX(64, 2 * list->room);
        int64_t *more = orth_mem_realloc(ctx, list->steps, (size_t)room * sizeof *more);
        if (!more)
            return ORTH_ERR_NOMEM;
        list->steps = more;
        list->room = room;
    }
    list->steps[list->num++] = step;
    return ORTH_OK;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* On failure the list is empty. */
static orth_status list_steps(orth_ctx *ctx, const char *dir, step_list *list)
{
    orth_status s = orth_path_each(ctx, dir, list_step, list);
    if (s != ORTH_OK) {
        orth_mem_free(ctx, list->steps);
        *list = (step_list){.steps = NULL};
    } else if (list->num > 0) {
        qsort(list->steps, (size_t)list->num, sizeof *list->steps, descending);
    }
    return s;
}

orth_status orth_checkpoint_list(orth_ctx *ctx, const char *dir, int64_t **out, int64_t *out_num)
{
    step_list list = {.aside = false};
    ORTH_TRY(list_steps(ctx, dir, &list));
    *out = list.steps;
    *out_num = list.num;
    return ORTH_OK;
}

/* ---- removing ---- */

/* Removes checkpoint `from` of a step: it first gets a name that nobody reads, so that a kill leaves no part of it under a name
 * that says it is whole. */
static orth_status discard(orth_ctx *ctx, const char *dir, const char *from, int64_t step)
{
    char *doomed = step_path(ctx, dir, DEL_PREFIX, step);
    orth_status s = doomed ? orth_path_remove(ctx, doomed) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_path_rename(ctx, from, doomed);
    if (s == ORTH_OK)
        s = orth_path_remove(ctx, doomed);
    orth_mem_free(ctx, doomed);
    return s;
}

/* What is asked of the run after the commit must not undo the commit: failures become warnings. */
static void warn(orth_ctx *ctx, orth_status s)
{
    if (s == ORTH_OK)
        return;
    orth_log(ctx, ORTH_LOG_WARN, "checkpoint", "cannot remove an old checkpoint: %s", ctx->error.message);
    orth_ctx_clear_error(ctx);
}

/* The same by `keep`, which leaves a checkpoint that is being read until it removes one again. */
static orth_status discard_unread(orth_ctx *ctx, const char *dir, int64_t step)
{
    bool is_read;
    char *path = step_path(ctx, dir, "", step);
    if (!path)
        return ORTH_ERR_NOMEM;
    const int lock = orth_folder_lock(path, ORTH_LOCK_ALONE, &is_read);
    const orth_status s = is_read ? ORTH_OK : discard(ctx, dir, path, step);
    orth_folder_unlock(lock);
    orth_mem_free(ctx, path);
    return s;
}

void orth_checkpoint_retain(orth_ctx *ctx, const char *dir, int64_t keep, int64_t after, int64_t newest, int64_t spare)
{
    step_list list = {.aside = false};
    warn(ctx, list_steps(ctx, dir, &list));
    for (int64_t i = 0, kept = 0; i < list.num; i++)
        if (list.steps[i] > after && list.steps[i] <= newest && kept++ >= keep && list.steps[i] != newest && list.steps[i] != spare)
            warn(ctx, discard_unread(ctx, dir, list.steps[i]));
    orth_mem_free(ctx, list.steps);
}

/* The highest valid step below `step`; -1: none. */
static orth_status find_older(orth_ctx *ctx, const char *dir, int64_t step, int64_t *out)
{
    step_list list = {.aside = false};
    orth_status s = list_steps(ctx, dir, &list);
    *out = -1;
    for (int64_t i = 0; i < list.num && *out < 0 && s == ORTH_OK; i++) {
        if (list.steps[i] >= step)
            continue;
        char *path = step_path(ctx, dir, "", list.steps[i]);
        s = path ? orth_checkpoint_verify(ctx, path) : ORTH_ERR_NOMEM;
        *out = s == ORTH_OK ? list.steps[i] : -1;
        orth_mem_free(ctx, path);
        if (s == ORTH_ERR_DATA) {
            orth_ctx_clear_error(ctx);
            s = ORTH_OK;
        }
    }
    orth_mem_free(ctx, list.steps);
    return s;
}

void orth_checkpoint_withdraw(orth_ctx *ctx, const char *dir, int64_t step)
{
    int64_t older;
    char *path = step_path(ctx, dir, "", step);
    orth_status s = path ? find_older(ctx, dir, step, &older) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && older >= 0)
        s = discard_unread(ctx, dir, step);
    if (s == ORTH_OK && older >= 0 && !orth_path_exists(path))
        orth_log(ctx, ORTH_LOG_WARN, "checkpoint", "%s is removed, because its weights give a loss that is not finite; step-%08" PRId64
                 " stays", path, older);
    warn(ctx, s);
    orth_mem_free(ctx, path);
}

/* One name that a killed run may have left. A kill between the two renames of `publish` leaves a checkpoint that only has its
 * aside name: it gets its own back. */
static orth_status tidy_name(orth_ctx *ctx, void *user, const char *dir, const char *name)
{
    (void)user;
    const bool aside = has_prefix(name, OLD_PREFIX "step-");
    if (!aside && !has_prefix(name, TMP_PREFIX "step-") && !has_prefix(name, DEL_PREFIX "step-"))
        return ORTH_OK;
    const int64_t step = aside ? parse_step(name + strlen(OLD_PREFIX)) : -1;
    if (aside && step < 0)
        return ORTH_OK;
    char *path = orth_path_join(ctx, dir, name);
    char *own = path && aside ? step_path(ctx, dir, "", step) : NULL;
    orth_status s = ORTH_OK;
    if (!path || (aside && !own))
        s = ORTH_ERR_NOMEM;
    else if (!aside)
        warn(ctx, orth_path_remove(ctx, path));
    else if (orth_path_exists(own))
        warn(ctx, discard(ctx, dir, path, step));
    else
        s = orth_path_rename(ctx, path, own);
    orth_mem_free(ctx, path);
    orth_mem_free(ctx, own);
    return s;
}

orth_status orth_checkpoint_tidy(orth_ctx *ctx, const char *dir)
{
    return orth_path_each(ctx, dir, tidy_name, NULL);
}

/* ---- writing ---- */

/* A folder cannot be renamed over one that is not empty, so a checkpoint of the same step steps aside first, and comes back if
 * the new one does not get its name; should that fail, too, orth_checkpoint_tidy gives it back. */
static orth_status publish(orth_ctx *ctx, const char *tmp, const char *path, const char *old)
{
    bool replaces;
    ORTH_TRY(orth_path_look(ctx, path, &replaces));
    if (replaces)
        ORTH_TRY(orth_path_rename(ctx, path, old));
    orth_status s = orth_path_rename(ctx, tmp, path);
    if (s != ORTH_OK && replaces && !orth_path_exists(path))
        rename(old, path);
    return s;
}

/* Everything is read back before it gets its name: what follows relies on it, and removes older checkpoints. */
static orth_status save(orth_ctx *ctx, const orth_folder_claim *run, const char *dir, const orth_checkpoint_view *view, const char *tmp,
                        const char *path, const char *old)
{
    ORTH_TRY(orth_folder_require(ctx, run));
    ORTH_TRY(run ? orth_path_make_dir(ctx, dir) : orth_path_make_dirs(ctx, dir));
    ORTH_TRY(orth_checkpoint_tidy(ctx, dir));
    ORTH_TRY(orth_path_remove(ctx, tmp));
    ORTH_TRY(orth_path_make_dir(ctx, tmp));
    ORTH_TRY(orth_checkpoint_write(ctx, tmp, view));
    ORTH_TRY(orth_checkpoint_verify(ctx, tmp));
    ORTH_TRY(orth_folder_require(ctx, run));
    return publish(ctx, tmp, path, old);
}

/* After a failure: whether the run still has its folder. If not, that is the error, and the paths are those of somebody else. */
static bool still_has(orth_ctx *ctx, const orth_folder_claim *run)
{
    const orth_error error = ctx->error;
    orth_ctx_clear_error(ctx);
    if (orth_folder_require(ctx, run) != ORTH_OK)
        return false;
    ctx->error = error;
    return true;
}

/* run: NULL for a folder that belongs to none. */
static orth_status save_in(orth_ctx *ctx, const orth_folder_claim *run, const char *dir, const orth_checkpoint_view *view, char **out_path)
{
    const int64_t step = view->state.step;
    if (step < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "checkpoint: step=%" PRId64 " is negative", step);
    char *tmp = step_path(ctx, dir, TMP_PREFIX, step);
    char *path = tmp ? step_path(ctx, dir, "", step) : NULL;
    char *old = path ? step_path(ctx, dir, OLD_PREFIX, step) : NULL;
    orth_status s = old ? save(ctx, run, dir, view, tmp, path, old) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK) {
        if (orth_path_exists(old))
            warn(ctx, discard(ctx, dir, old, step));
    } else if (!still_has(ctx, run)) {
        s = ctx->error.code;
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

orth_status orth_checkpoint_save(orth_ctx *ctx, const char *dir, const orth_checkpoint_view *view, char **out_path)
{
    return save_in(ctx, NULL, dir, view, out_path);
}

orth_status orth_checkpoint_save_in_run(orth_ctx *ctx, const orth_folder_claim *run, const char *dir, const orth_checkpoint_view *view)
{
    return save_in(ctx, run, dir, view, NULL);
}

/* ---- reading ---- */

/* Whether it is worth to look again after `s`, and if so forgets the error. */
static bool went_away(orth_ctx *ctx, orth_status s, const char *path, orth_folder_id was)
{
    const orth_folder_id is = orth_folder_identify(path);
    if (s != ORTH_ERR_DATA && s != ORTH_ERR_IO)
        return false;
    if (is.unknown || orth_folder_same(is, was))
        return false;
    orth_ctx_clear_error(ctx);
    return true;
}

static void rest(void)
{
    const struct timespec t = {.tv_nsec = LOOK_AGAIN_NS};
    nanosleep(&t, NULL);
}

static orth_status fail_too_fast(orth_ctx *ctx, const char *path)
{
    return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: its checkpoints are removed faster than they can be read (%d looks)", path, MAX_LOOKS);
}

/* *found, and *lock on it, if it is valid. *again: it went away. A damaged one is passed over; one that cannot be read is an
 * error. */
static orth_status try_step(orth_ctx *ctx, const char *dir, int64_t step, char **found, int *lock, bool *again)
{
    char *path = step_path(ctx, dir, "", step);
    if (path && !orth_path_exists(path)) {
        orth_mem_free(ctx, path);
        path = step_path(ctx, dir, OLD_PREFIX, step);
    }
    if (!path)
        return ORTH_ERR_NOMEM;
    orth_folder_id id;
    *again = !orth_folder_hold(path, lock, &id);
    orth_status s = *again ? ORTH_OK : orth_checkpoint_verify(ctx, path);
    if (s == ORTH_OK && !*again) {
        *found = path;
        return ORTH_OK;
    }
    *again = *again || went_away(ctx, s, path, id);
    if (*again) {
        s = ORTH_OK;
    } else if (s == ORTH_ERR_DATA) {
        orth_log(ctx, ORTH_LOG_WARN, "checkpoint", "%s is passed over: %s", path, ctx->error.message);
        orth_ctx_clear_error(ctx);
        s = ORTH_OK;
    }
    orth_folder_unlock(*lock);
    *lock = -1;
    orth_mem_free(ctx, path);
    return s;
}

/* *lock: on *out, -1 if there is none. */
static orth_status newest(orth_ctx *ctx, const char *dir, char **out, int *lock)
{
    *lock = -1;
    for (int look = 0; look < MAX_LOOKS; look++) {
        step_list list = {.aside = true};
        char *found = NULL;
        bool again = false;
        ORTH_TRY(list_steps(ctx, dir, &list));
        orth_status s = ORTH_OK;
        for (int64_t i = 0; i < list.num && !found && !again && s == ORTH_OK; i++)
            if (i == 0 || list.steps[i] != list.steps[i - 1])
                s = try_step(ctx, dir, list.steps[i], &found, lock, &again);
        orth_mem_free(ctx, list.steps);
        if (s == ORTH_OK && !again)
            *out = found;
        if (!again)
            return s;
        rest();
    }
    return fail_too_fast(ctx, dir);
}

orth_status orth_checkpoint_newest(orth_ctx *ctx, const char *dir, char **out)
{
    int lock;
    const orth_status s = newest(ctx, dir, out, &lock);
    orth_folder_unlock(lock);
    return s;
}

/* *lock: on *out, -1 if there is none. */
static orth_status resolve(orth_ctx *ctx, const char *path, char **out, int *lock)
{
    bool itself;
    *lock = -1;
    ORTH_TRY(orth_path_holds(ctx, path, "state.json", &itself));
    if (itself) {
        bool refused;
        char *copy = orth_mem_strdup(ctx, path);
        if (!copy)
            return ORTH_ERR_NOMEM;
        *lock = orth_folder_lock(path, ORTH_LOCK_SHARED, &refused);
        *out = copy;
        return ORTH_OK;
    }
    char *found = NULL, *below = NULL;
    orth_status s = newest(ctx, path, &found, lock);
    if (s == ORTH_OK && !found) {
        below = orth_path_join(ctx, path, "checkpoints");
        s = below ? newest(ctx, below, &found, lock) : ORTH_ERR_NOMEM;
        orth_mem_free(ctx, below);
    }
    if (s == ORTH_OK && !found)
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, orth_path_is_dir(path) ? "%s: holds no valid checkpoint" : "%s: there is no "
                      "such folder", path);
    if (s == ORTH_OK)
        *out = found;
    return s;
}

orth_status orth_checkpoint_resolve(orth_ctx *ctx, const char *path, char **out)
{
    int lock;
    const orth_status s = resolve(ctx, path, out, &lock);
    orth_folder_unlock(lock);
    return s;
}

/* The folder of weights: a checkpoint, or PATH itself with a config.json. */
static orth_status find_weights(orth_ctx *ctx, const char *path, char **out, bool *out_own, int *lock)
{
    bool foreign;
    const orth_status s = resolve(ctx, path, out, lock);
    *out_own = s == ORTH_OK;
    if (s != ORTH_ERR_DATA)
        return s;
    const orth_error error = ctx->error;
    orth_ctx_clear_error(ctx);
    ORTH_TRY(orth_path_holds(ctx, path, "config.json", &foreign));
    if (!foreign) {
        ctx->error = error;
        return s;
    }
    *out = orth_mem_strdup(ctx, path);
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}

orth_status orth_checkpoint_read_weights(orth_ctx *ctx, const char *path, orth_checkpoint_reader read, void *user)
{
    for (int look = 0; look < MAX_LOOKS; look++) {
        char *folder = NULL;
        bool own;
        int lock;
        ORTH_TRY(find_weights(ctx, path, &folder, &own, &lock));
        const orth_folder_id id = orth_folder_identify(folder);
        const orth_status s = read(ctx, user, folder, own);
        const bool again = went_away(ctx, s, folder, id);
        orth_folder_unlock(lock);
        orth_mem_free(ctx, folder);
        if (!again)
            return s;
        rest();
    }
    return fail_too_fast(ctx, path);
}
