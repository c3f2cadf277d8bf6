/* cmd_train.c -- `orthant train RUN.yaml`. */
#include <signal.h>

#include "cli/console.h"
#include "cli/numbers.h"
#include "tools/ladder.h"
#include "train/run.h"

/* A run that does not fit ends with what would make it fit; the error stays as it is. Over MPI every process would say so. */
static void tell_ladder(orth_ctx *ctx, const orth_cmd *cmd)
{
    const orth_error error = ctx->error;
    orth_place_to_run here;
    orth_ladder *ladder;
    if (!orth_plan_no_fit(&error) || cmd->config.comm_backend != ORTH_comm_backend_thread)
        return;
    orth_ctx_clear_error(ctx);
    fputs("planning the changes that would make the run fit (an interrupt leaves this out)\n", stderr);
    ladder = ORTH_NEW(ctx, orth_ladder);
    if (ladder && orth_place_to_run_find(ctx, &here, NULL) == ORTH_OK && orth_ladder_find(ctx, &cmd->config, &here, 0, ORTH_LADDER_SECONDS, ladder) == ORTH_OK) {
        char *text = orth_ladder_text(ctx, ladder);
        fputs(text ? text : "", stderr);
        orth_mem_free(ctx, text);
    } else {
        fprintf(stderr, "they cannot be planned: %s\n", ctx->error.message);
    }
    orth_mem_free(ctx, ladder);
    ctx->error = error;
}

orth_status orth_cmd_train(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_run_options options = {.cfg = &cmd->config, .resume = orth_cmd_flag(cmd, "resume") != NULL,
                                .resume_or_start = orth_cmd_flag(cmd, "resume-or-start") != NULL,
                                .override = orth_cmd_flag(cmd, "override") != NULL, .init_dir = orth_cmd_flag(cmd, "init"),
                                .stop = ctx->stop, .stop_user = ctx->stop_user};
    if (!cmd->run_file && cmd->config.data_path.n == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "train: no run file is given, and data.path is not set: `orthant init book.txt` writes run.yaml for your "
                         "text, and `orthant train run.yaml` trains it");
    if (orth_cmd_flag(cmd, "timeline"))
        ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "timeline", 1, INT64_MAX, &options.timeline));
    if (options.resume && options.resume_or_start)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "train: --resume fails where there is no checkpoint, --resume-or-start starts anew there: give one of them");
    if (options.resume && options.init_dir)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "train: --resume continues with the weights of the run's own checkpoint: "
                         "--init=%s cannot be given with it", options.init_dir);
    if (options.override && !options.resume && !options.resume_or_start)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "train: --override changes the learning rate of a run that is resumed: give --resume with it");
    signal(SIGPIPE, SIG_IGN); /* who reads the progress may go (`| head`): the run goes on */
    orth_console *console;
    ORTH_TRY(orth_console_open(ctx, &console));
    if (!orth_cmd_flag(cmd, "quiet"))
        options.print = orth_console_sink(console);
    const orth_status s = orth_run_whole(ctx, &options);
    const orth_status printed = orth_console_close(ctx, console);
    tell_ladder(ctx, cmd);
    return s == ORTH_OK ? printed : s;
}
