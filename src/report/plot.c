/* plot.c -- see plot.h. */
#include "report/plot.h"

#include <math.h>
#include <string.h>

/* ---- axes ---- */

typedef struct {
    double low, high;      /* of what is drawn: logarithms on a log scale */
} range;

typedef struct {
    range x, y;
    bool log_scale;
} axes;

static double scaled(const axes *a, double value)
{
    return a->log_scale ? log10(value) : value;
}

static double unscaled(const axes *a, double y)
{
    return a->log_scale ? pow(10, y) : y;
}

/* Beyond this the range of an axis would not be finite. */
#define LARGEST 1e100

static bool drawable(const axes *a, double value)
{
    return fabs(value) <= LARGEST && (!a->log_scale || value > 0);
}

static void widen(axes *a, const orth_series *s)
{
    for (int64_t i = 0; i < s->num_points; i++) {
        const orth_point *p = &s->points[i];
        if (!drawable(a, p->value))
            continue;
        const double y = scaled(a, p->value);
        a->x = (range){ORTH_MIN(a->x.low, p->step), ORTH_MAX(a->x.high, p->step)};
        a->y = (range){ORTH_MIN(a->y.low, y), ORTH_MAX(a->y.high, y)};
    }
}

/* A range of one value is given some room. */
static void open_range(range *r)
{
    if (r->low > r->high)
        *r = (range){0, 1};
    if (r->low == r->high)
        *r = (range){r->low - 0.5, r->high + 0.5};
}

static axes axes_of(const orth_plot *p)
{
    axes a = {{INFINITY, -INFINITY}, {INFINITY, -INFINITY}, p->log_scale};
    for (int i = 0; i < p->num_series; i++) {
        widen(&a, &p->series[i]);
        if (p->marks)
            widen(&a, &p->marks[i]);
    }
    open_range(&a.x);
    open_range(&a.y);
    return a;
}

/* Position of v in the range, in [0, 1]. */
static double place(range r, double v)
{
    return (v - r.low) / (r.high - r.low);
}

/* ---- characters ---- */

static const char symbols[ORTH_PLOT_MAX_SERIES + 1] = "*+x#o@%&";
#define MARK 'E'
#define MAX_COLUMNS 400
#define MAX_ROWS 100

typedef struct {
    char cell[MAX_ROWS][MAX_COLUMNS];
    int columns, rows;
} grid;

static int column_of(const grid *g, const axes *a, double step)
{
    return (int)lround(place(a->x, step) * (g->columns - 1));
}

static void put(grid *g, const axes *a, int column, double y, char c)
{
    const int row = g->rows - 1 - (int)lround(place(a->y, y) * (g->rows - 1));
    g->cell[ORTH_MAX(0, ORTH_MIN(row, g->rows - 1))][column] = c;
}

static void draw_line(grid *g, const axes *a, const orth_series *s, char symbol)
{
    double sum[MAX_COLUMNS] = {0};
    int count[MAX_COLUMNS] = {0};
    for (int64_t i = 0; i < s->num_points; i++) {
        const orth_point *p = &s->points[i];
        if (!drawable(a, p->value))
            continue;
        const int c = column_of(g, a, p->step);
        sum[c] += scaled(a, p->value);
        count[c]++;
    }
    for (int c = 0; c < g->columns; c++)
        if (count[c] > 0)
            put(g, a, c, sum[c] / count[c], symbol);
}

static void draw_marks(grid *g, const axes *a, const orth_series *s)
{
    for (int64_t i = 0; i < s->num_points; i++)
        if (drawable(a, s->points[i].value))
            put(g, a, column_of(g, a, s->points[i].step), scaled(a, s->points[i].value), MARK);
}

static void add_legend(orth_ctx *ctx, orth_text *out, const orth_plot *p)
{
    bool marked = false;
    for (int i = 0; i < p->num_series; i++) {
        orth_text_addf(ctx, out, "%12s %c %s\n", "", symbols[i], ORTH_SHOWN(p->series[i].name));
        marked = marked || (p->marks && p->marks[i].num_points > 0);
    }
    if (marked)
        orth_text_addf(ctx, out, "%12s %c evaluation\n", "", MARK);
}

void orth_plot_text(orth_ctx *ctx, orth_text *out, const orth_plot *p, int columns, int rows)
{
    const axes a = axes_of(p);
    grid g = {.columns = ORTH_MAX(20, ORTH_MIN(columns, MAX_COLUMNS)), .rows = ORTH_MAX(5, ORTH_MIN(rows, MAX_ROWS))};
    memset(g.cell, ' ', sizeof g.cell);
    for (int i = 0; i < p->num_series; i++)
        draw_line(&g, &a, &p->series[i], symbols[i]);
    for (int i = 0; p->marks && i < p->num_series; i++)
        draw_marks(&g, &a, &p->marks[i]);
    orth_text_addf(ctx, out, "%s\n", p->title);
    if (p->caption)
        orth_text_addf(ctx, out, "%s\n", ORTH_SHOWN(p->caption));
    for (int r = 0; r < g.rows; r++) {
        const double y = a.y.high - (a.y.high - a.y.low) * r / (g.rows - 1);
        int end = g.columns;
        while (end > 0 && g.cell[r][end - 1] == ' ')
            end--;
        if (r % 5 == 0 || r == g.rows - 1)
            orth_text_addf(ctx, out, "%11.5g |%.*s\n", unscaled(&a, y), end, g.cell[r]);
        else
            orth_text_addf(ctx, out, "%11s |%.*s\n", "", end, g.cell[r]);
    }
    orth_text_addf(ctx, out, "%11s +", "");
    for (int c = 0; c < g.columns; c++)
        orth_text_add(ctx, out, "-");
    char first[32], last[32];
    snprintf(first, sizeof first, "%.10g", ceil(a.x.low));
    snprintf(last, sizeof last, "%.10g", floor(a.x.high));
    orth_text_addf(ctx, out, "\n%12s %s%*s step\n", "", first, g.columns - (int)strlen(first) - 5, last);
    add_legend(ctx, out, p);
}

/* ---- SVG ---- */

#define SVG_WIDTH 800
#define SVG_HEIGHT 450
#define LEFT 70
#define RIGHT 20
#define TOP 40
#define BOTTOM 50

/* Colours that stay apart for colour-blind eyes (Okabe and Ito 2008), and one grey. */
static const char *const colours[ORTH_PLOT_MAX_SERIES] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                          "#e69f00", "#56b4e9", "#777777", "#000000"};

static double svg_x(const axes *a, double step)
{
    return LEFT + place(a->x, step) * (SVG_WIDTH - LEFT - RIGHT);
}

static double svg_y(const axes *a, double y)
{
    return SVG_HEIGHT - BOTTOM - place(a->y, y) * (SVG_HEIGHT - TOP - BOTTOM);
}

static void add_escaped(orth_ctx *ctx, orth_text *out, const char *s)
{
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            orth_text_addf(ctx, out, "&#%d;", c);
        else
            orth_text_addf(ctx, out, "%c", c < ' ' ? '?' : c);
    }
}

/* 1, 2 or 5 times a power of ten, so that the range has 4 to 10 of them. */
static double tick_step(range r)
{
    const double rough = (r.high - r.low) / 6, base = pow(10, floor(log10(rough)));
    const double times = rough / base;
    return base * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

static void add_ticks(orth_ctx *ctx, orth_text *out, const axes *a)
{
    const double dx = ORTH_MAX(tick_step(a->x), 1), dy = tick_step(a->y);
    for (double x = ceil(a->x.low / dx) * dx; x <= a->x.high; x += dx)
        orth_text_addf(ctx, out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.10g</text>\n", svg_x(a, x),
                       SVG_HEIGHT - BOTTOM + 20, x);
    for (double y = ceil(a->y.low / dy) * dy; y <= a->y.high + 1e-9 * dy; y += dy)
        orth_text_addf(ctx, out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                       "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n", LEFT, SVG_WIDTH - RIGHT, svg_y(a, y), svg_y(a, y),
                       LEFT - 6, svg_y(a, y) + 4, unscaled(a, fabs(y) < 1e-9 * dy ? 0 : y));
}

static void add_curve(orth_ctx *ctx, orth_text *out, const axes *a, const orth_series *s, const char *colour)
{
    orth_text_addf(ctx, out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour);
    for (int64_t i = 0; i < s->num_points; i++)
        if (drawable(a, s->points[i].value))
            orth_text_addf(ctx, out, "%.1f,%.1f ", svg_x(a, s->points[i].step), svg_y(a, scaled(a, s->points[i].value)));
    orth_text_add(ctx, out, "\"/>\n");
}

static void add_circles(orth_ctx *ctx, orth_text *out, const axes *a, const orth_series *s, const char *colour)
{
    for (int64_t i = 0; i < s->num_points; i++)
        if (drawable(a, s->points[i].value))
            orth_text_addf(ctx, out, "<circle r=\"4\" fill=\"white\" stroke=\"%s\" stroke-width=\"2\" cx=\"%.1f\" cy=\"%.1f\"/>\n", colour,
                           svg_x(a, s->points[i].step), svg_y(a, scaled(a, s->points[i].value)));
}

/* The highest value in the left or the right half of the picture. */
static double highest(const axes *a, const orth_plot *p, bool right)
{
    double y = -INFINITY;
    for (int i = 0; i < p->num_series; i++)
        for (int64_t k = 0; k < p->series[i].num_points; k++) {
            const orth_point *q = &p->series[i].points[k];
            const double x = place(a->x, q->step);
            if (drawable(a, q->value) && (right ? x >= 0.5 : x < 0.5))
                y = ORTH_MAX(y, scaled(a, q->value));
        }
    return y;
}

void orth_plot_svg(orth_ctx *ctx, orth_text *out, const orth_plot *p)
{
    const axes a = axes_of(p);
    const bool rises = highest(&a, p, true) > highest(&a, p, false); /* names stand where there is room above the lines */
    orth_text_addf(ctx, out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", SVG_WIDTH, SVG_HEIGHT);
    add_ticks(ctx, out, &a);
    for (int i = 0; i < p->num_series; i++) {
        add_curve(ctx, out, &a, &p->series[i], colours[i]);
        if (p->marks)
            add_circles(ctx, out, &a, &p->marks[i], colours[i]);
        orth_text_addf(ctx, out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" fill=\"%s\">", rises ? LEFT + 4 : SVG_WIDTH - RIGHT - 4,
                       TOP + 14 + 16 * i, rises ? "start" : "end", colours[i]);
        add_escaped(ctx, out, p->series[i].name);
        orth_text_add(ctx, out, "</text>\n");
    }
    orth_text_addf(ctx, out, "<text x=\"%d\" y=\"%d\" font-size=\"15\">", LEFT, p->caption ? 16 : 24);
    add_escaped(ctx, out, p->title);
    orth_text_addf(ctx, out, "</text>\n<text x=\"%d\" y=\"33\">", LEFT);
    add_escaped(ctx, out, p->caption ? p->caption : "");
    orth_text_addf(ctx, out, "</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n</svg>\n", (LEFT + SVG_WIDTH - RIGHT) / 2,
                   SVG_HEIGHT - 10);
}
