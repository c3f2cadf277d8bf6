/* cmd_explain.c -- `orthant explain RUN.yaml`: the program of a rank, or its memory map. */
#include "cli/numbers.h"
#include "program/print.h"
#include "train/describe.h"

#define MEMORY_ROWS 60

orth_status orth_cmd_explain(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_model_config model;
    orth_unit unit;
    orth_spread spread;
    int64_t rank = 0, layer = ORTH_PRINT_ALL, micro = ORTH_PRINT_ALL;
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "rank", 0, INT32_MAX, &rank));
    ORTH_TRY(orth_describe_step(ctx, &cmd->config, (int)rank, &model, &spread, &unit));
    orth_status s = orth_cmd_flag_int(ctx, cmd, "layer", -1, model.layers, &layer);
    if (s == ORTH_OK)
        s = orth_cmd_flag_int(ctx, cmd, "micro-batch", 0, unit.blocks.spec.num_micro_batches - 1, &micro);
    if (s == ORTH_OK && orth_cmd_flag(cmd, "memory"))
        orth_print_memory(stdout, &unit.program, MEMORY_ROWS);
    else if (s == ORTH_OK)
        orth_print_program(stdout, &unit.program, (int32_t)layer, (int32_t)micro);
    orth_unit_release(&unit);
    orth_spread_release(ctx, &spread);
    return s;
}
