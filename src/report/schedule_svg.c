/* schedule_svg.c -- see schedule_svg.h. */
#include "report/schedule_svg.h"

#define WIDTH 960
#define LEFT 60
#define RIGHT 16
#define TOP 12
#define ROW 22
#define AXIS 46
#define LABEL_PIXELS 16      /* of an action that shows its number */
#define MAX_SHADES 4

static const char *const colours[ORTH_NUM_ACTION_KINDS] = {[ORTH_ACTION_F] = "#4472b4", [ORTH_ACTION_B] = "#d98032", [ORTH_ACTION_BI] = "#e2a368",
                                                           [ORTH_ACTION_W] = "#9c5512"};

static double x_of(double at, double end)
{
    return LEFT + at / end * (WIDTH - LEFT - RIGHT);
}

/* 0 for the first chunk of its rank, 1 for the second, and so on. */
static int shade_of(const orth_schedule *s, int chunk)
{
    int before = 0;
    for (int c = 0; c < chunk; c++)
        before += s->chunk_rank[c] == s->chunk_rank[chunk];
    return before % MAX_SHADES;
}

static void add_action(orth_ctx *ctx, orth_text *out, const orth_schedule *s, const orth_action *a, const orth_span *span, double end, int row)
{
    const double x = x_of(span->start, end), w = x_of(span->end, end) - x;
    const int y = TOP + row * ROW;
    if (span->end <= span->start)
        return;
    orth_text_addf(ctx, out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" fill-opacity=\"%.2f\" stroke=\"#ffffff\" stroke-width=\"0.5\">"
                   "<title>%s of micro-batch %d, chunk %d: %.6g to %.6g</title></rect>\n", x, y, w, ROW - 3, colours[a->kind],
                   1 - 0.18 * shade_of(s, a->chunk), orth_action_name(a->kind), (int)a->micro_batch, (int)a->chunk, span->start, span->end);
    if (w >= LABEL_PIXELS)
        orth_text_addf(ctx, out, "<text x=\"%.2f\" y=\"%d\" fill=\"#ffffff\" text-anchor=\"middle\">%d</text>\n", x + w / 2, y + 14,
                       (int)a->micro_batch);
}

static void add_axis(orth_ctx *ctx, orth_text *out, int rows, double end, const char *unit)
{
    const int y = TOP + rows * ROW + 4;
    static const struct {
        orth_action_kind kind;
        const char *name;
    } kinds[] = {{ORTH_ACTION_F, "forward"}, {ORTH_ACTION_B, "backward"}, {ORTH_ACTION_BI, "input gradient"}, {ORTH_ACTION_W, "weight gradient"}};
    for (int i = 0; i <= 4; i++)
        orth_text_addf(ctx, out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#cccccc\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.4g %s</text>\n",
                       x_of(end * i / 4, end), x_of(end * i / 4, end), TOP, y, x_of(end * i / 4, end), y + 12,
                       i == 0 ? "start" : i == 4 ? "end" : "middle", end * i / 4, unit);
    for (int i = 0; i < ORTH_COUNT(kinds); i++)
        orth_text_addf(ctx, out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", LEFT + 150 * i,
                       y + 20, colours[kinds[i].kind], LEFT + 150 * i + 17, y + 30, kinds[i].name);
}

void orth_schedule_svg(orth_ctx *ctx, orth_text *out, const orth_schedule *s, const orth_span *const *spans, double end, const char *unit)
{
    const int height = TOP + s->num_ranks * ROW + AXIS;
    orth_text_addf(ctx, out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                   "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", WIDTH, height, WIDTH, height);
    add_axis(ctx, out, s->num_ranks, end, unit);
    for (int r = 0; r < s->num_ranks; r++) {
        orth_text_addf(ctx, out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">stage %d</text>\n", LEFT - 6, TOP + r * ROW + 14, r);
        for (int a = 0; a < s->lists[r].num_actions; a++)
            add_action(ctx, out, s, &s->lists[r].actions[a], &spans[r][a], end, r);
    }
    orth_text_add(ctx, out, "</svg>\n");
}
