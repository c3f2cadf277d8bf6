/* memory_svg.c -- see memory_svg.h. A column is an instruction or several; a class is drawn as one polygon over all columns. */
#include "report/memory_svg.h"

#include "program/ir/live.h"

#define WIDTH 960
#define PANEL 420        /* height of a space's panel */
#define LEFT 90
#define RIGHT 20
#define TOP 50
#define BOTTOM 60
#define MAX_COLUMNS (WIDTH - LEFT - RIGHT)

static const char *const colours[ORTH_NUM_CLASSES] = {"#4472b4", "#d98032", "#6a9e58", "#b4483f", "#8d6bb0", "#8c8c8c"};

typedef struct {
    const orth_program *p;
    orth_space space;
    const orth_live_bytes *live;
    int32_t columns;
    int top;                 /* of the panel in the picture */
} panel;

/* The instruction that column c shows: the fullest of those that fall into it. */
static int32_t instr_of(const panel *x, int32_t c)
{
    const int64_t n = x->p->num_instrs;
    int32_t at = (int32_t)(c * n / x->columns);
    for (int32_t i = at; i < (c + 1) * n / x->columns; i++)
        at = orth_live_sum(&x->live[i]) > orth_live_sum(&x->live[at]) ? i : at;
    return at;
}

static double x_of(const panel *x, int32_t c)
{
    return LEFT + (double)c * MAX_COLUMNS / x->columns;
}

static double y_of(const panel *x, double bytes)
{
    const double height = PANEL - TOP - BOTTOM;
    return x->top + TOP + height * (1 - bytes / (double)x->p->space_bytes[x->space]);
}

/* Bytes of classes [0, num) during the instruction of column c. */
static double stacked(const panel *x, int32_t c, int num)
{
    const orth_live_bytes *live = &x->live[instr_of(x, c)];
    size_t sum = 0;
    for (int k = 0; k < num; k++)
        sum += x->p->persistent_bytes[x->space][k] + live->of[k];
    return (double)sum;
}

/* Its lower edge is the upper edge of the class before it. */
static void add_class(orth_ctx *ctx, orth_text *out, const panel *x, orth_class k)
{
    orth_text_addf(ctx, out, "<polygon fill=\"%s\" points=\"", colours[k]);
    for (int32_t c = 0; c < x->columns; c++) {
        const double y = y_of(x, stacked(x, c, (int)k + 1));
        orth_text_addf(ctx, out, "%.1f,%.1f %.1f,%.1f ", x_of(x, c), y, x_of(x, c + 1), y);
    }
    for (int32_t c = x->columns - 1; c >= 0; c--) {
        const double y = y_of(x, stacked(x, c, (int)k));
        orth_text_addf(ctx, out, "%.1f,%.1f %.1f,%.1f ", x_of(x, c + 1), y, x_of(x, c), y);
    }
    orth_text_addf(ctx, out, "\"><title>%s</title></polygon>\n", orth_class_name(k));
}

static void add_axes(orth_ctx *ctx, orth_text *out, const panel *x)
{
    const double bytes = (double)x->p->space_bytes[x->space];
    const double unit = bytes >= 0x1p33 ? 0x1p30 : 0x1p20;
    for (int i = 0; i <= 4; i++) {
        const double y = y_of(x, bytes * i / 4);
        orth_text_addf(ctx, out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#cccccc\"/>"
                       "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g %s</text>\n", LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4,
                       bytes * i / 4 / unit, unit > 0x1p20 ? "GiB" : "MiB");
    }
    orth_text_addf(ctx, out, "<text x=\"%d\" y=\"%d\">instruction 0</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", LEFT,
                   x->top + PANEL - BOTTOM + 16, WIDTH - RIGHT, x->top + PANEL - BOTTOM + 16, (int)x->p->num_instrs - 1);
}

static void add_legend(orth_ctx *ctx, orth_text *out, const panel *x)
{
    for (int k = 0; k < ORTH_NUM_CLASSES; k++) {
        const int at = LEFT + k * 140, y = x->top + PANEL - 22;
        orth_text_addf(ctx, out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n", at,
                       y - 10, colours[k], at + 17, y, orth_class_name((orth_class)k));
    }
}

static void add_panel(orth_ctx *ctx, orth_text *out, const panel *x, int rank)
{
    const int32_t peak = x->p->peak_instr[x->space];
    orth_text_addf(ctx, out, "<text x=\"%d\" y=\"%d\" font-size=\"14\">rank %d: %s memory over the step; most is live during instruction %d "
                   "(%s)</text>\n", LEFT, x->top + 24, rank, orth_space_name(x->space), (int)peak, orth_op_name(x->p->instrs[peak].op));
    add_axes(ctx, out, x);
    for (int k = 0; k < ORTH_NUM_CLASSES; k++)
        add_class(ctx, out, x, (orth_class)k);
    add_legend(ctx, out, x);
}

void orth_memory_svg(orth_ctx *ctx, orth_text *out, const orth_program *p, int rank)
{
    int panels = 0;
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        panels += p->space_bytes[s] > 0;
    orth_text_addf(ctx, out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                   "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", WIDTH, panels * PANEL);
    for (int s = 0, top = 0; s < ORTH_NUM_SPACES && p->num_instrs > 0; s++) {
        orth_live_bytes *live = NULL;
        if (p->space_bytes[s] == 0)
            continue;
        out->failed = out->failed || orth_live_over_step(ctx, p, (orth_space)s, &live) != ORTH_OK;
        const panel x = {.p = p, .space = (orth_space)s, .live = live, .columns = ORTH_MIN(p->num_instrs, MAX_COLUMNS), .top = top};
        if (live)
            add_panel(ctx, out, &x, rank);
        orth_mem_free(ctx, live);
        top += PANEL;
    }
    orth_text_add(ctx, out, "</svg>\n");
}
