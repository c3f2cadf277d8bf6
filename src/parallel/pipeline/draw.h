/* draw.h -- a simulated schedule for people: a text drawing and a report. */
#ifndef ORTH_PARALLEL_PIPELINE_DRAW_H
#define ORTH_PARALLEL_PIPELINE_DRAW_H

#include "base/text.h"
#include "parallel/pipeline/simulate.h"

/* Appends a row per rank, time to the right, one column per `unit` of time (0: the shortest action):
 *
 *   rank 0 |F0 F1 F2 F3 .  .  B0 B0 ...
 *
 * F, B, I (input gradient), W and the micro-batch; a rank with several chunks says which in a letter after
 * the number: a for its first chunk in model order, b for its second, and so on. "." is idle; an action
 * longer than a column is repeated. A column shows what runs in its middle. At most max_columns columns
 * (0: 200), then "..." */
void orth_schedule_draw(orth_ctx *ctx, orth_text *out, const orth_schedule *s, const orth_sim *sim,
                        double unit, int max_columns);

/* Columns of a drawing whose lines have at most `width` characters; at least 1. */
int orth_schedule_columns(const orth_schedule *s, int width);

/* One line per rank: busy, idle, in flight, versions; then makespan and bubble. */
void orth_schedule_report(orth_ctx *ctx, orth_text *out, const orth_schedule *s, const orth_sim *sim);

#endif
