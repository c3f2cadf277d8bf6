/* waiting.c -- see waiting.h. */
#include "cli/waiting.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/clock.h"

static void say(void *user, const char *what, int64_t done, int64_t all)
{
    orth_waiting *w = user;
    const double now = orth_clock_s();
    if (now < w->next_s)
        return;
    w->next_s = now + w->every_s;
    fprintf(w->out, "%s: %" PRId64, what, done);
    if (all > 0)
        fprintf(w->out, " of %" PRId64, all);
    fputs(" so far\n", w->out);
}

void orth_waiting_begin(orth_ctx *ctx, orth_waiting *w, FILE *out, double first_s, double every_s)
{
    *w = (orth_waiting){out, orth_clock_s() + first_s, every_s};
    ctx->tell = say;
    ctx->tell_user = w;
}

void orth_waiting_on_terminal(orth_ctx *ctx, orth_waiting *w)
{
    if (isatty(STDERR_FILENO))
        orth_waiting_begin(ctx, w, stderr, 5, 10);
}

void orth_waiting_end(orth_ctx *ctx)
{
    ctx->tell = NULL;
    ctx->tell_user = NULL;
}
