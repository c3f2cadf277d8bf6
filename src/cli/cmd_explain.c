/* cmd_explain.c -- `orthant explain RUN.yaml`: the program of a rank, its memory map, or the schedule. */
#include "cli/numbers.h"
#include "parallel/pipeline/draw.h"
#include "program/print.h"
#include "train/describe.h"

#define MEMORY_ROWS 60

/* The schedule in units of a forward on one chunk. */
static orth_status draw_schedule(orth_ctx *ctx, const orth_schedule *s)
{
    orth_arena arena = {0};
    orth_text text = {0};
    orth_sim sim;
    orth_chunk_times *times = ORTH_ARENA_ARRAY(ctx, &arena, orth_chunk_times, s->num_chunks);
    for (int32_t c = 0; times && c < s->num_chunks; c++)
        times[c] = (orth_chunk_times){.time = {1, 2, 1, 1}};
    orth_status status = times ? orth_schedule_simulate(ctx, &arena, s, times, &sim) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK) {
        orth_schedule_draw(ctx, &text, s, &sim, 1, 0);
        orth_schedule_report(ctx, &text, s, &sim);
        status = text.failed ? ORTH_ERR_NOMEM : ORTH_OK;
    }
    if (status == ORTH_OK)
        fputs(text.s, stdout);
    orth_mem_free(ctx, text.s);
    orth_arena_release(ctx, &arena);
    return status;
}

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
    if (s == ORTH_OK && orth_cmd_flag(cmd, "schedule"))
        s = draw_schedule(ctx, &spread.schedule);
    else if (s == ORTH_OK && orth_cmd_flag(cmd, "memory"))
        orth_print_memory(stdout, &unit.program, MEMORY_ROWS);
    else if (s == ORTH_OK)
        orth_print_program(stdout, &unit.program, (int32_t)layer, (int32_t)micro);
    orth_unit_release(&unit);
    orth_spread_release(ctx, &spread);
    return s;
}
