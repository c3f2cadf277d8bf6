/* roofline_svg.h -- ops against what a device can do at most: FLOP/s over FLOPs a byte, both logarithmic.
 *
 * Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures", 2009.
 */
#ifndef ORTH_REPORT_ROOFLINE_SVG_H
#define ORTH_REPORT_ROOFLINE_SVG_H

#include "base/text.h"

typedef struct {
    const char *name;
    int number;                     /* that the picture shows, for a table beside it */
    double flops, bytes, seconds;   /* all > 0 */
} orth_roofline_point;

/* One self-contained SVG element. flops, bytes: of the device, a second. A point's area grows with its seconds. Failures are noted in *out. */
void orth_roofline_svg(orth_ctx *ctx, orth_text *out, const orth_roofline_point *points, int num, double flops, double bytes);

#endif
