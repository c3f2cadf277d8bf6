/* schedule_svg.h -- a picture of a pipeline schedule: a row for each rank, a box for each action. */
#ifndef ORTH_REPORT_SCHEDULE_SVG_H
#define ORTH_REPORT_SCHEDULE_SVG_H

#include "base/text.h"
#include "parallel/pipeline/simulate.h"

/* One self-contained SVG element. spans [num_ranks of s][num_actions of the rank's list]: when each action ran, in any unit, from 0 on; an
 * action with no span is left out. `end`: of the time axis. unit: its name, such as "s". Forward is blue, backward orange, its
 * input half light, its weight half dark; chunks of one rank have shades. Actions that are wide enough show their micro-batch; all have
 * a title. Failures are noted in *out. */
void orth_schedule_svg(orth_ctx *ctx, orth_text *out, const orth_schedule *s, const orth_span *const *spans, double end, const char *unit);

#endif
