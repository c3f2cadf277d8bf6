/* cmd_train.c -- `orthant train RUN.yaml`. */
#include <signal.h>
#include <time.h>

#include "cli/numbers.h"
#include "train/run.h"

/* SIGINT and SIGTERM are blocked in all threads of this verb (main.c) and asked for here, between steps and
 * during the long work before the first one: no handler, so no state outside of the run. */
typedef struct {
    sigset_t set;
    _Atomic int got; /* asking takes the signal, so it is kept */
} stop_signals;

static int pending_signal(void *user)
{
    stop_signals *s = user;
    const struct timespec now = {0, 0};
    const int got = s->got ? s->got : sigtimedwait(&s->set, NULL, &now);
    if (got > 0)
        s->got = got;
    return s->got;
}

orth_status orth_cmd_train(orth_ctx *ctx, const orth_cmd *cmd)
{
    stop_signals stops = {.got = 0};
    sigemptyset(&stops.set);
    sigaddset(&stops.set, SIGINT);
    sigaddset(&stops.set, SIGTERM);
    orth_run_options options = {.cfg = &cmd->config, .resume = orth_cmd_flag(cmd, "resume") != NULL,
                                .quiet = orth_cmd_flag(cmd, "quiet") != NULL, .init_dir = orth_cmd_flag(cmd, "init"),
                                .stop = pending_signal, .stop_user = &stops};
    if (orth_cmd_flag(cmd, "timeline"))
        ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "timeline", 1, INT64_MAX, &options.timeline));
    if (options.resume && options.init_dir)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "train: --resume continues with the weights of the run's own checkpoint: "
                         "--init=%s cannot be given with it", options.init_dir);
    signal(SIGPIPE, SIG_IGN); /* who reads the progress may go (`| head`): the run goes on */
    ctx->stop = pending_signal;
    ctx->stop_user = &stops;
    orth_status s = orth_run_whole(ctx, &options);
    ctx->stop = NULL;
    ctx->stop_user = NULL;
    ORTH_TRY(s);
    orth_comm_shutdown();
    return ORTH_OK;
}
