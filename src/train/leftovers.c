/* leftovers.c -- see leftovers.h. */
#include "train/leftovers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "train/run.h"

#define TMP ".tmp-"
#define KEY_DIGITS 16             /* of what data/data.c keeps */

/* "-old": what orth_prepare has put aside. A process of this number that is this one has not written anything yet. */
static bool was_left(const char *number)
{
    const size_t digits = strspn(number, "0123456789");
    if (digits == 0 || digits > 9 || (number[digits] && strcmp(number + digits, "-old") != 0))
        return false;
    const pid_t pid = (pid_t)strtol(number, NULL, 10);
    return pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH);
}

static bool is_of_run(const char *name, size_t n)
{
    const char *own;
    for (int i = 0; (own = orth_run_file(i)); i++)
        if (strlen(own) == n && strncmp(own, name, n) == 0)
            return true;
    return false;
}

/* KEY, a prepared folder; tokenizer-KEY.json. */
static bool is_of_data(const char *name, size_t n)
{
    static const char before[] = "tokenizer-", after[] = ".json";
    const size_t around = sizeof before - 1 + sizeof after - 1;
    const bool tokenizer = n == KEY_DIGITS + around && strncmp(name, before, sizeof before - 1) == 0 &&
                           strncmp(name + n - (sizeof after - 1), after, sizeof after - 1) == 0;
    return (tokenizer || n == KEY_DIGITS) && strspn(tokenizer ? name + sizeof before - 1 : name, "0123456789abcdef") >= KEY_DIGITS;
}

/* A folder that is being prepared is locked: its process may be on another host, or have its number in a container. */
static bool is_held(orth_ctx *ctx, const char *path)
{
    int lock;
    if (!orth_path_is_dir(path))
        return false;
    if (orth_path_lock(ctx, path, "is being written", &lock) == ORTH_OK)
        return close(lock) != 0;
    orth_ctx_clear_error(ctx);
    return true;
}

static void remove_left(orth_ctx *ctx, const char *dir, const char *name)
{
    char *path = orth_path_join(ctx, dir, name);
    if (path && is_held(ctx, path)) {
        orth_mem_free(ctx, path);
        return;
    }
    if (path && orth_path_remove(ctx, path) == ORTH_OK)
        orth_log(ctx, ORTH_LOG_INFO, "files", "%s: left by a process that was killed, is removed", path);
    else
        orth_log(ctx, ORTH_LOG_WARN, "files", "%s/%s: left by a process that was killed, cannot be removed: %s", dir, name, ctx->error.message);
    orth_ctx_clear_error(ctx);
    orth_mem_free(ctx, path);
}

/* is_own: bool (name, n), of the name without what follows TMP. */
static orth_status look_at(orth_ctx *ctx, void *is_own, const char *dir, const char *name)
{
    bool (*const *own)(const char *name, size_t n) = is_own;
    const char *tmp = strstr(name, TMP);
    if (tmp && (*own)(name, (size_t)(tmp - name)) && was_left(tmp + sizeof TMP - 1))
        remove_left(ctx, dir, name);
    return ORTH_OK;
}

void orth_leftovers_remove(orth_ctx *ctx, const char *run, const char *data)
{
    bool (*of_run)(const char *name, size_t n) = is_of_run, (*of_data)(const char *name, size_t n) = is_of_data;
    if (orth_path_each(ctx, run, look_at, &of_run) == ORTH_OK && orth_path_each(ctx, data, look_at, &of_data) == ORTH_OK)
        return;
    orth_log(ctx, ORTH_LOG_WARN, "files", "what killed processes left cannot be removed: %s", ctx->error.message);
    orth_ctx_clear_error(ctx);
}
