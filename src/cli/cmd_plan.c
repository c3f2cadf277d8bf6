/* cmd_plan.c -- `orthant plan RUN.yaml`: what a run will need, without running it. */
#ifdef __linux__
#include <malloc.h>
#endif

#include "cli/cmd.h"
#include "train/describe.h"

/* One program is compiled after the other. What the last one freed is used again, instead of being mapped and zeroed anew,
 * which took a third of the time. */
static void keep_freed_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

static orth_status make(orth_ctx *ctx, const orth_cmd *cmd, orth_run_plan *plan, const orth_model_config *model, bool evaluates)
{
    orth_rates rates;
    ORTH_TRY(orth_describe_plan(ctx, plan, &cmd->config, model, evaluates));
    orth_status s = orth_run_plan_check(ctx, plan);
    if (s == ORTH_OK)
        s = orth_machine_rates(ctx, &cmd->config, plan->num_ranks, &rates);
    if (s == ORTH_OK)
        s = orth_run_plan_price(ctx, plan, &rates, orth_cmd_flag(cmd, "timeline"));
    if (s != ORTH_OK)
        orth_run_plan_release(ctx, plan);
    return s;
}

orth_status orth_cmd_plan(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_run_plan plan;
    orth_model_config model;
    bool evaluates;
    keep_freed_memory();
    ORTH_TRY(orth_describe_model(ctx, &cmd->config, &model));
    ORTH_TRY(orth_describe_evaluates(ctx, &cmd->config, &evaluates));
    ORTH_TRY(make(ctx, cmd, &plan, &model, evaluates));
    const bool json = orth_cmd_flag(cmd, "json") != NULL;
    char *text = NULL, *more = NULL, *epochs = NULL;
    text = json ? orth_plan_json(ctx, plan.ranks, plan.num_ranks, &plan.total) : orth_plan_text(ctx, &plan.total, plan.num_ranks);
    orth_status s = text ? ORTH_OK : ORTH_ERR_NOMEM;
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
