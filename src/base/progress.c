/* progress.c -- see progress.h. */
#include "base/progress.h"

#include <string.h>

void orth_progress_init(orth_progress *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->mutex, NULL);
}

void orth_progress_destroy(orth_progress *p)
{
    pthread_mutex_destroy(&p->mutex);
}

void orth_phase_begin(orth_ctx *ctx, const char *fmt, ...)
{
    orth_progress *p = ctx->progress;
    if (!p)
        return;
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&p->mutex);
    const int depth = atomic_load(&p->depth);
    if (depth < ORTH_PHASE_DEPTH)
        vsnprintf(p->phase[depth], sizeof p->phase[depth], fmt, args);
    p->file[0] = '\0';
    atomic_store(&p->depth, depth + 1);
    pthread_mutex_unlock(&p->mutex);
    va_end(args);
    orth_tick(ctx);
}

void orth_phase_end(orth_ctx *ctx)
{
    orth_progress *p = ctx->progress;
    if (!p)
        return;
    orth_tick(ctx); /* before the phase ends: what comes then begins anew */
    pthread_mutex_lock(&p->mutex);
    p->file[0] = '\0';
    atomic_fetch_sub(&p->depth, 1);
    pthread_mutex_unlock(&p->mutex);
}

static void show_file(orth_progress *p, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    pthread_mutex_lock(&p->mutex);
    snprintf(p->file, sizeof p->file, "%s", slash ? slash + 1 : path ? path : "");
    pthread_mutex_unlock(&p->mutex);
}

void orth_phase_file(orth_ctx *ctx, const char *path)
{
    if (!ctx->progress)
        return;
    show_file(ctx->progress, path);
    orth_tick(ctx);
}

bool orth_progress_phase(orth_progress *p, char *text, size_t n, bool *has_file)
{
    pthread_mutex_lock(&p->mutex);
    const int depth = ORTH_MIN(atomic_load(&p->depth), ORTH_PHASE_DEPTH);
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < depth && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%s", i ? ": " : "", p->phase[i]);
    const bool file = depth > 0 && p->file[0];
    if (file && at < n)
        snprintf(text + at, n - at, ": %s", p->file);
    pthread_mutex_unlock(&p->mutex);
    if (has_file)
        *has_file = file;
    return depth > 0;
}

void orth_progress_follow(orth_ctx *ctx, orth_progress *other, int64_t *seen)
{
    const int64_t now = atomic_load(&other->ticks);
    char file[ORTH_PHASE_MAX];
    if (!ctx->progress || now == *seen)
        return;
    *seen = now;
    pthread_mutex_lock(&other->mutex);
    memcpy(file, other->file, sizeof file);
    pthread_mutex_unlock(&other->mutex);
    orth_phase_file(ctx, file);
}
