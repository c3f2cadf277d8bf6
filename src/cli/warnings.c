/* warnings.c -- see warnings.h. */
#include "cli/warnings.h"

static void keep(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    orth_warnings *w = user;
    if (level == ORTH_LOG_WARN)
        orth_json_string(&w->out, NULL, text);
    if (level <= w->before.level && w->before.write)
        w->before.write(w->before.user, rank, level, component, text);
}

void orth_warnings_keep(orth_ctx *ctx, orth_warnings *w)
{
    *w = (orth_warnings){.before = ctx->log, .keeps = true};
    w->out = (orth_json_out){ctx, &w->text};
    orth_json_open(&w->out, NULL, '[');
    ctx->log = (orth_log_sink){keep, w, ORTH_MAX(ctx->log.level, ORTH_LOG_WARN)};
}

const char *orth_warnings_stop(orth_ctx *ctx, orth_warnings *w)
{
    if (!w->keeps)
        return NULL;
    ctx->log = w->before;
    w->keeps = false;
    orth_json_close(&w->out, ']');
    return w->text.failed ? NULL : w->text.s;
}

void orth_warnings_release(orth_ctx *ctx, orth_warnings *w)
{
    orth_warnings_stop(ctx, w);
    orth_mem_free(ctx, w->text.s);
    *w = (orth_warnings){0};
}
