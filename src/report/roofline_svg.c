/* roofline_svg.c -- see roofline_svg.h. */
#include "report/roofline_svg.h"

#include <math.h>

#define WIDTH 960
#define HEIGHT 380
#define LEFT 86
#define RIGHT 30
#define SMALLEST 8 /* radius of a point, which holds its number */
#define TOP 16
#define BOTTOM 44

/* Decades that the axes show. */
typedef struct {
    double x0, x1, y0, y1;
} frame;

static double x_of(const frame *f, double v)
{
    return LEFT + (log10(v) - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const frame *f, double v)
{
    return HEIGHT - BOTTOM - (log10(v) - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

static frame frame_of(const orth_roofline_point *p, int num, double flops, double bytes)
{
    const double ridge = flops / bytes;
    frame f = {floor(log10(ridge) - 1), ceil(log10(ridge) + 1), floor(log10(flops) - 1), log10(flops) + 0.2};
    for (int i = 0; i < num; i++) {
        f.x0 = fmin(f.x0, floor(log10(p[i].flops / p[i].bytes)));
        f.x1 = fmax(f.x1, ceil(log10(p[i].flops / p[i].bytes) + 0.01));
        f.y0 = fmin(f.y0, floor(log10(p[i].flops / p[i].seconds)));
    }
    return f;
}

static void add_axes(orth_ctx *ctx, orth_text *out, const frame *f)
{
    for (double d = f->x0; d <= f->x1; d++) {
        const double x = x_of(f, pow(10, d));
        orth_text_addf(ctx, out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#e0e0e0\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                       x, x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 14, pow(10, d));
    }
    const bool large = f->y1 > 13;
    for (double d = f->y0; d <= f->y1; d++) {
        const double y = y_of(f, pow(10, d));
        orth_text_addf(ctx, out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e0e0e0\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g %sFLOP/s</text>\n",
                       LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, pow(10, d - (large ? 12 : 9)), large ? "T" : "G");
    }
    orth_text_addf(ctx, out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">FLOPs a byte</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

void orth_roofline_svg(orth_ctx *ctx, orth_text *out, const orth_roofline_point *points, int num, double flops, double bytes)
{
    const frame f = frame_of(points, num, flops, bytes);
    const double ridge = flops / bytes, left = fmax(pow(10, f.x0), pow(10, f.y0) / bytes);
    double most = 0;
    for (int i = 0; i < num; i++)
        most = fmax(most, points[i].seconds);
    orth_text_addf(ctx, out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                   "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", WIDTH, HEIGHT, WIDTH, HEIGHT);
    add_axes(ctx, out, &f);
    orth_text_addf(ctx, out, "<polyline fill=\"none\" stroke=\"#333333\" stroke-width=\"1.5\" points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\"/>\n", x_of(&f, left),
                   y_of(&f, left * bytes), x_of(&f, ridge), y_of(&f, flops), x_of(&f, pow(10, f.x1)), y_of(&f, flops));
    for (int i = 0; i < num; i++) {
        const orth_roofline_point *p = &points[i];
        const double x = x_of(&f, p->flops / p->bytes), y = y_of(&f, p->flops / p->seconds);
        orth_text_addf(ctx, out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"#4472b4\" fill-opacity=\"0.45\"><title>%s: %.4g FLOPs a byte, %.4g GFLOP/s, "
                       "%.4g s</title></circle><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", x, y, SMALLEST + 6 * sqrt(p->seconds / most),
                       p->name, p->flops / p->bytes, 1e-9 * p->flops / p->seconds, p->seconds, x, y + 4, p->number);
    }
    orth_text_add(ctx, out, "</svg>\n");
}
