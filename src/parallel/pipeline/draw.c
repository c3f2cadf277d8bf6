/* draw.c -- see draw.h. */
#include "parallel/pipeline/draw.h"

#include <math.h>
#include <string.h>

#define DEFAULT_COLUMNS 200
#define CELL_MAX 24

/* Place of `chunk` among those of its rank, and whether it has others. */
static int chunk_place(const orth_schedule *s, int chunk, bool *several)
{
    int before = 0, num = 0;
    for (int c = 0; c < s->num_chunks; c++) {
        if (s->chunk_rank[c] == s->chunk_rank[chunk]) {
            before += c < chunk;
            num++;
        }
    }
    *several = num > 1;
    return before;
}

/* "F3", "F3b"; past the 26th chunk of a rank "F3@77". */
static int cell_of(const orth_schedule *s, const orth_action *a, char out[CELL_MAX])
{
    bool several;
    const int place = chunk_place(s, a->chunk, &several);
    const char letter = orth_action_letter(a->kind);
    if (!several)
        return snprintf(out, CELL_MAX, "%c%d", letter, (int)a->micro_batch);
    if (place < 26)
        return snprintf(out, CELL_MAX, "%c%d%c", letter, (int)a->micro_batch, 'a' + place);
    return snprintf(out, CELL_MAX, "%c%d@%d", letter, (int)a->micro_batch, (int)a->chunk);
}

static double shortest(const orth_schedule *s, const orth_sim *sim)
{
    double unit = sim->makespan;
    for (int r = 0; r < s->num_ranks; r++) {
        for (int i = 0; i < s->lists[r].num_actions; i++) {
            const double d = sim->ranks[r].spans[i].end - sim->ranks[r].spans[i].start;
            if (d > 0)
                unit = fmin(unit, d);
        }
    }
    return unit > 0 ? unit : 1;
}

static int widest_cell(const orth_schedule *s)
{
    int width = 1;
    char cell[CELL_MAX];
    for (int r = 0; r < s->num_ranks; r++)
        for (int i = 0; i < s->lists[r].num_actions; i++)
            width = ORTH_MAX(width, cell_of(s, &s->lists[r].actions[i], cell));
    return width;
}

static int label_digits(const orth_schedule *s)
{
    return snprintf(NULL, 0, "%d", (int)s->num_ranks - 1);
}

int orth_schedule_columns(const orth_schedule *s, int width)
{
    const int around = (int)strlen("rank  | ...") + label_digits(s);
    return ORTH_MAX(1, (width - around) / (widest_cell(s) + 1));
}

void orth_schedule_draw(orth_ctx *ctx, orth_text *out, const orth_schedule *s, const orth_sim *sim,
                        double unit, int max_columns)
{
    if (unit <= 0)
        unit = shortest(s, sim);
    if (max_columns <= 0)
        max_columns = DEFAULT_COLUMNS;
    const int width = widest_cell(s) + 1;
    const double all = ceil(sim->makespan / unit - 1e-9);
    const int columns = all > max_columns ? max_columns : (int)all;
    const int label = label_digits(s);
    for (int r = 0; r < s->num_ranks; r++) {
        int i = 0;
        orth_text_addf(ctx, out, "rank %-*d |", label, r);
        for (int c = 0; c < columns; c++) {
            const double middle = (c + 0.5) * unit;
            char cell[CELL_MAX] = ".";
            while (i < s->lists[r].num_actions && sim->ranks[r].spans[i].end <= middle)
                i++;
            if (i < s->lists[r].num_actions && sim->ranks[r].spans[i].start <= middle)
                cell_of(s, &s->lists[r].actions[i], cell);
            orth_text_addf(ctx, out, "%-*s", c + 1 < columns ? width : 0, cell);
        }
        orth_text_add(ctx, out, all > columns ? " ...\n" : "\n");
    }
}

void orth_schedule_report(orth_ctx *ctx, orth_text *out, const orth_schedule *s, const orth_sim *sim)
{
    orth_text_addf(ctx, out, "%-6s %12s %12s %7s %10s%s\n", "rank", "busy", "idle", "idle", "in flight",
                   s->async ? "  versions" : "");
    for (int r = 0; r < s->num_ranks; r++) {
        const orth_rank_sim *k = &sim->ranks[r];
        orth_text_addf(ctx, out, "%-6d %12.6g %12.6g %6.1f%% %10d", r, k->busy, k->idle,
                       sim->makespan > 0 ? 100 * k->idle / sim->makespan : 0, (int)k->peak_in_flight);
        if (s->async)
            orth_text_addf(ctx, out, "%10d", (int)k->peak_versions);
        orth_text_add(ctx, out, "\n");
    }
    orth_text_addf(ctx, out, "time %.6g, bubble %.6g; ranks idle %.1f%% of it on average\n",
                   sim->makespan, sim->bubble, 100 * sim->idle_share);
}
