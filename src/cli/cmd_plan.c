/* cmd_plan.c -- `orthant plan RUN.yaml`: what a run will need, without running it. */
#include "base/machine.h"
#include "cli/cmd.h"
#include "plan/plan.h"
#include "train/describe.h"

orth_status orth_cmd_plan(orth_ctx *ctx, const orth_cmd *cmd)
{
    const orth_config *c = &cmd->config;
    orth_model_config model;
    orth_unit unit;
    ORTH_TRY(orth_describe_step(ctx, c, &model, &unit));
    size_t limit = c->memory_limit > 0 ? (size_t)c->memory_limit : (size_t)orth_machine_available_bytes();
    orth_plan plan = orth_plan_of(&unit.program, orth_model_num_elems(&model), limit);
    orth_unit_release(&unit);
    char *text = orth_cmd_flag(cmd, "json") ? orth_plan_json(ctx, &plan) : orth_plan_text(ctx, &plan);
    if (!text)
        return ORTH_ERR_NOMEM;
    fputs(text, stdout);
    orth_mem_free(ctx, text);
    return orth_plan_require_fit(ctx, &plan);
}
