/* cmd_explain.c -- `orthant explain RUN.yaml`: the program of a rank, its memory map, the mesh, the schedule or the path of a gradient. */
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/explain_gradient.h"
#include "cli/numbers.h"
#include "parallel/pipeline/draw.h"
#include "program/ir/print.h"
#include "report/memory_svg.h"
#include "report/schedule_svg.h"
#include "train/describe.h"

#define MEMORY_ROWS 60

#define MESH_ROWS 64

static orth_status print_text(orth_ctx *ctx, orth_text *text)
{
    char *s = orth_text_take(ctx, text);
    if (!s)
        return ORTH_ERR_NOMEM;
    fputs(s, stdout);
    orth_mem_free(ctx, s);
    return ORTH_OK;
}

static orth_status write_text(orth_ctx *ctx, const char *path, orth_text *text)
{
    const orth_status s = text->failed ? ORTH_ERR_NOMEM : orth_file_write(ctx, path, text->s, text->num_bytes);
    orth_mem_free(ctx, text->s);
    return s;
}

static orth_status print_mesh(orth_ctx *ctx, const orth_config *cfg, const orth_partition *partition)
{
    orth_text text = {0};
    orth_mesh_print(ctx, &text, &partition->mesh, (int)cfg->parallel_ranks_per_host, MESH_ROWS);
    return print_text(ctx, &text);
}

/* 0: standard output is no terminal. */
static int terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static orth_status write_schedule(orth_ctx *ctx, const orth_cmd *cmd, orth_arena *arena, const orth_schedule *s, const orth_sim *sim)
{
    orth_text text = {0};
    const orth_span **spans = ORTH_ARENA_ARRAY(ctx, arena, const orth_span *, s->num_ranks);
    if (!spans)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < s->num_ranks; r++)
        spans[r] = sim->ranks[r].spans;
    orth_schedule_svg(ctx, &text, s, spans, sim->makespan, "units");
    return write_text(ctx, orth_cmd_flag(cmd, "svg"), &text);
}

/* In units of time: forward 1, backward 2, of which the halves of a split one are 1 each. */
static orth_status print_schedule(orth_ctx *ctx, const orth_cmd *cmd, orth_partition *partition)
{
    int64_t columns = terminal_columns();
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "width", 20, 100000, &columns));
    const orth_schedule *s = &partition->schedule;
    orth_text text = {0};
    orth_sim sim;
    orth_chunk_times *times = ORTH_ARENA_ARRAY(ctx, &partition->arena, orth_chunk_times, s->num_chunks);
    if (!times)
        return ORTH_ERR_NOMEM;
    for (int c = 0; c < s->num_chunks; c++)
        times[c] = (orth_chunk_times){.time = {[ORTH_ACTION_F] = 1, [ORTH_ACTION_B] = 2, [ORTH_ACTION_BI] = 1,
                                               [ORTH_ACTION_W] = 1}};
    ORTH_TRY(orth_schedule_simulate(ctx, &partition->arena, s, times, &sim));
    if (orth_cmd_flag(cmd, "svg"))
        return write_schedule(ctx, cmd, &partition->arena, s, &sim);
    orth_schedule_draw(ctx, &text, s, &sim, 0, columns > 0 ? orth_schedule_columns(s, (int)columns) : 0);
    orth_schedule_report(ctx, &text, s, &sim);
    return print_text(ctx, &text);
}

/* One picture at a time, and only the program has parts. */
static orth_status check_flags(orth_ctx *ctx, const orth_cmd *cmd)
{
    static const char *const pictures[] = {"mesh", "schedule", "memory", "gradient"}, *const parts[] = {"layer", "micro-batch"};
    const char *picture = NULL;
    for (int i = 0; i < ORTH_COUNT(pictures); i++) {
        if (!orth_cmd_flag(cmd, pictures[i]))
            continue;
        if (picture)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "explain: --%s and --%s: one at a time", picture, pictures[i]);
        picture = pictures[i];
    }
    for (int i = 0; i < ORTH_COUNT(parts) && picture; i++)
        if (orth_cmd_flag(cmd, parts[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "explain: --%s chooses instructions of the program, --%s shows none", parts[i], picture);
    if (orth_cmd_flag(cmd, "svg") && !orth_cmd_flag(cmd, "memory") && !orth_cmd_flag(cmd, "schedule"))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "explain: --svg draws what --memory or --schedule shows: give one of them");
    if (orth_cmd_flag(cmd, "width") && (!orth_cmd_flag(cmd, "schedule") || orth_cmd_flag(cmd, "svg")))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "explain: --width is for --schedule in the terminal");
    return ORTH_OK;
}

/* In the terminal, or as a picture. */
static orth_status print_memory(orth_ctx *ctx, const orth_cmd *cmd, const orth_program *p, int rank)
{
    const char *svg = orth_cmd_flag(cmd, "svg");
    orth_text text = {0};
    if (!svg)
        return orth_print_memory(stdout, p, MEMORY_ROWS);
    orth_memory_svg(ctx, &text, p, rank);
    return write_text(ctx, svg, &text);
}

orth_status orth_cmd_explain(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_model_config model;
    orth_compiled compiled;
    orth_partition partition;
    int64_t rank = 0, layer = ORTH_PRINT_ALL, micro = ORTH_PRINT_ALL;
    ORTH_TRY(check_flags(ctx, cmd));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "rank", 0, INT32_MAX, &rank));
    if (orth_cmd_flag(cmd, "gradient"))
        return orth_explain_gradient(ctx, &cmd->config, orth_cmd_flag(cmd, "gradient"), orth_cmd_flag(cmd, "rank") ? (int)rank : -1);
    ORTH_TRY(orth_describe_step(ctx, &cmd->config, (int)rank, &model, &partition, &compiled));
    orth_status s = orth_cmd_flag_int(ctx, cmd, "layer", -1, model.layers, &layer);
    if (s == ORTH_OK)
        s = orth_cmd_flag_int(ctx, cmd, "micro-batch", 0, compiled.blocks.spec.num_micro_batches - 1, &micro);
    if (s == ORTH_OK && orth_cmd_flag(cmd, "mesh"))
        s = print_mesh(ctx, &cmd->config, &partition);
    else if (s == ORTH_OK && orth_cmd_flag(cmd, "schedule"))
        s = print_schedule(ctx, cmd, &partition);
    else if (s == ORTH_OK && orth_cmd_flag(cmd, "memory"))
        s = print_memory(ctx, cmd, &compiled.program, (int)rank);
    else if (s == ORTH_OK)
        orth_print_program(stdout, &compiled.program, (int32_t)layer, (int32_t)micro);
    orth_compiled_release(&compiled);
    orth_partition_release(ctx, &partition);
    return s;
}
