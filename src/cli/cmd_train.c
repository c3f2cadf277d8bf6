/* cmd_train.c -- `orthant train RUN.yaml`. */
#include <signal.h>
#include <time.h>

#include "cli/cmd.h"
#include "train/loop.h"

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
    orth_session_options options = {.cfg = &cmd->config, .resume = orth_cmd_flag(cmd, "resume") != NULL,
                                    .quiet = orth_cmd_flag(cmd, "quiet") != NULL,
                                    .init_dir = orth_cmd_flag(cmd, "init")};
    orth_session session;
    ORTH_TRY(orth_session_open(ctx, &session, &options));
    orth_status s = orth_loop_run(ctx, &session, pending_signal, &stops);
    orth_session_close(ctx, &session);
    return s;
}
