/* cmd_train.c -- `orthant train RUN.yaml`. */
#include <signal.h>
#include <time.h>

#include "cli/numbers.h"
#include "train/run.h"

/* SIGINT and SIGTERM are blocked in all threads of this verb (main.c) and asked for here, between
 * steps: no handler, so no state outside of the run. */
static int pending_signal(void *user)
{
    const struct timespec now = {0, 0};
    int got = sigtimedwait(user, NULL, &now); /* takes the signal: ask once */
    return ORTH_MAX(got, 0);
}

orth_status orth_cmd_train(orth_ctx *ctx, const orth_cmd *cmd)
{
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    orth_run_options options = {.cfg = &cmd->config, .resume = orth_cmd_flag(cmd, "resume") != NULL,
                                .quiet = orth_cmd_flag(cmd, "quiet") != NULL, .init_dir = orth_cmd_flag(cmd, "init"),
                                .stop = pending_signal, .stop_user = &stops};
    if (orth_cmd_flag(cmd, "timeline"))
        ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "timeline", 1, INT64_MAX, &options.timeline));
    orth_run run;
    ORTH_TRY(orth_run_open(ctx, &run, &options));
    orth_status s = orth_run_train(ctx, &run);
    orth_run_close(ctx, &run);
    return s;
}
