/* cmd_plot.c -- `orthant plot RUN...`: the losses of runs in the terminal, as SVG, or all of metrics.jsonl as CSV. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/numbers.h"
#include "report/plot.h"

#define LABEL_COLUMNS 13 /* of the value axis */

typedef struct {
    orth_series lines[ORTH_PLOT_MAX_SERIES], marks[ORTH_PLOT_MAX_SERIES];
    const char *metric;
    const char *minus;     /* the run that is subtracted; NULL: none */
    int64_t mean;          /* steps of a point */
    char title[256];
} picture;

/* Columns of the terminal; 80 where there is none. */
static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* Run i's values of `key`, less those of the run that is subtracted. */
static orth_status read_series(orth_ctx *ctx, orth_series *out, const picture *p, const char *run, const char *key)
{
    orth_series base;
    ORTH_TRY(orth_history_series(ctx, out, run, key));
    if (!p->minus)
        return ORTH_OK;
    ORTH_TRY(orth_history_series(ctx, &base, p->minus, key));
    orth_series_subtract(out, &base);
    orth_series_release(ctx, &base);
    return ORTH_OK;
}

static orth_status read_runs(orth_ctx *ctx, const orth_cmd *cmd, picture *p)
{
    bool any = false, any_read = false;
    for (int i = 0; i < cmd->num_words; i++) {
        ORTH_TRY(read_series(ctx, &p->lines[i], p, cmd->words[i], p->metric));
        any_read = any_read || p->lines[i].num_points > 0;
        orth_series_average(&p->lines[i], p->mean);
        if (strcmp(p->metric, "loss") == 0)
            ORTH_TRY(read_series(ctx, &p->marks[i], p, cmd->words[i], "eval_loss"));
        any = any || p->lines[i].num_points > 0;
    }
    if (any)
        return ORTH_OK;
    const char *others = cmd->num_words > 1 ? " and the others" : "";
    if (!any_read)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plot: no line of %s%s has a number '%s'%s%s", cmd->words[0], others, p->metric,
                         p->minus ? " at a step of " : "", p->minus ? p->minus : "");
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plot: --mean=%" PRId64 ": %s%s have fewer steps with '%s'", p->mean, cmd->words[0], others, p->metric);
}

static orth_status draw(orth_ctx *ctx, const orth_cmd *cmd, const picture *p)
{
    const char *svg = orth_cmd_flag(cmd, "svg");
    int64_t height = 20;
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "height", 5, 100, &height));
    const orth_plot plot = {.series = p->lines, .num_series = cmd->num_words, .marks = p->marks, .title = p->title,
                            .caption = orth_cmd_flag(cmd, "caption"), .log_scale = orth_cmd_flag(cmd, "log") != NULL};
    orth_text t = {0};
    if (svg)
        orth_plot_svg(ctx, &t, &plot);
    else
        orth_plot_text(ctx, &t, &plot, terminal_columns() - LABEL_COLUMNS - 1, (int)height);
    orth_status s = t.failed ? ORTH_ERR_NOMEM : svg ? orth_file_write(ctx, svg, t.s, t.num_bytes) : ORTH_OK;
    if (s == ORTH_OK && !svg)
        fputs(t.s, stdout);
    orth_mem_free(ctx, t.s);
    return s;
}

/* "loss less that of RUN, means of 20 steps" */
static void name_what_is_drawn(picture *p)
{
    char mean[64] = "";
    if (p->mean > 1)
        snprintf(mean, sizeof mean, ", means of %" PRId64 " steps", p->mean);
    snprintf(p->title, sizeof p->title, "%s%s%s%s", p->metric, p->minus ? " less that of " : "", p->minus ? p->minus : "", mean);
}

static orth_status plot_runs(orth_ctx *ctx, const orth_cmd *cmd)
{
    picture p = {.metric = orth_cmd_flag(cmd, "metric") ? orth_cmd_flag(cmd, "metric") : "loss", .minus = orth_cmd_flag(cmd, "minus"), .mean = 1};
    if (cmd->num_words > ORTH_PLOT_MAX_SERIES)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plot: %d runs; at most %d can be told apart in one picture", cmd->num_words,
                         ORTH_PLOT_MAX_SERIES);
    if (p.minus && orth_cmd_flag(cmd, "log"))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plot: --minus and --log: one at a time: differences may be negative");
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "mean", 1, 1000000000, &p.mean));
    name_what_is_drawn(&p);
    orth_status s = read_runs(ctx, cmd, &p);
    if (s == ORTH_OK)
        s = draw(ctx, cmd, &p);
    for (int i = 0; i < ORTH_PLOT_MAX_SERIES; i++) {
        orth_series_release(ctx, &p.lines[i]);
        orth_series_release(ctx, &p.marks[i]);
    }
    return s;
}

static orth_status write_csv(orth_ctx *ctx, const orth_cmd *cmd, const char *path)
{
    orth_text t = {0};
    orth_status s = orth_history_csv(ctx, &t, cmd->words, cmd->num_words);
    if (s == ORTH_OK && strcmp(path, "-") == 0)
        fputs(t.s, stdout);
    else if (s == ORTH_OK)
        s = orth_file_write(ctx, path, t.s, t.num_bytes);
    orth_mem_free(ctx, t.s);
    return s;
}

orth_status orth_cmd_plot(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *csv = orth_cmd_flag(cmd, "csv");
    if (cmd->num_words == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plot: which run? Give run folders or metrics.jsonl files");
    if (csv && orth_cmd_flag(cmd, "svg"))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plot: --csv and --svg: one at a time");
    return csv ? write_csv(ctx, cmd, csv) : plot_runs(ctx, cmd);
}
