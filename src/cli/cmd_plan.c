/* cmd_plan.c -- `orthant plan RUN.yaml`: what a run will need, without running it. */
#include "cli/cmd.h"
#include "train/timeline.h"

static orth_status price(orth_ctx *ctx, const orth_cmd *cmd, orth_run_plan *plan, const orth_model_config *model)
{
    orth_rates rates;
    ORTH_TRY(orth_machine_rates(ctx, &cmd->config, plan->num_ranks, &rates));
    return orth_run_plan_price(ctx, plan, &cmd->config, model, &rates, orth_cmd_flag(cmd, "timeline"));
}

orth_status orth_cmd_plan(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_run_plan plan;
    orth_model_config model;
    bool evaluates;
    ORTH_TRY(orth_describe_model(ctx, &cmd->config, &model));
    ORTH_TRY(orth_describe_evaluates(ctx, &cmd->config, &evaluates));
    ORTH_TRY(orth_run_plan_make(ctx, &plan, &cmd->config, &model, evaluates));
    const bool json = orth_cmd_flag(cmd, "json") != NULL;
    char *text = NULL, *more = NULL, *epochs = NULL;
    orth_status s = price(ctx, cmd, &plan, &model);
    if (s == ORTH_OK) {
        text = json ? orth_plan_json(ctx, plan.ranks, plan.num_ranks, &plan.total)
                    : orth_plan_text(ctx, &plan.total, plan.num_ranks);
        s = text ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    if (s == ORTH_OK && !json)
        s = orth_describe_zero_cost(ctx, &plan, &cmd->config, &model, &more);
    if (s == ORTH_OK && !json)
        s = orth_describe_epochs(ctx, &cmd->config, &epochs);
    if (epochs)
        fputs(epochs, stdout);
    if (text)
        fputs(text, stdout);
    if (more)
        fputs(more, stdout);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, more);
    orth_mem_free(ctx, epochs);
    if (s == ORTH_OK)
        s = orth_plan_require_fit(ctx, &plan.total);
    orth_run_plan_release(ctx, &plan);
    return s;
}
