/* plot.h -- series over steps as a picture: characters for a terminal, or SVG. */
#ifndef ORTH_REPORT_PLOT_H
#define ORTH_REPORT_PLOT_H

#include "report/history.h"

typedef struct {
    const orth_series *series;   /* lines */
    int num_series;
    const orth_series *marks;    /* points beside the lines (evaluations), one for each line; NULL: none */
    const char *title;           /* of the value axis, such as "loss" */
    const char *caption;         /* a line below the title; NULL: none */
    bool log_scale;              /* of the values; they must be positive */
} orth_plot;

#define ORTH_PLOT_MAX_SERIES 8   /* distinguishable lines */

/* Characters, `columns` wide and `rows` high without axis and legend (at least 20 and 5). A column shows the mean of its steps. */
void orth_plot_text(orth_ctx *ctx, orth_text *out, const orth_plot *p, int columns, int rows);
/* One self-contained SVG document of 800 by 450. */
void orth_plot_svg(orth_ctx *ctx, orth_text *out, const orth_plot *p);

#endif
