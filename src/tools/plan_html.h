/* plan_html.h -- a plan as one page that needs nothing else: memory in each space, groups of devices, timeline, roofline, scaling, cost. For `plan --html`. */
#ifndef ORTH_TOOLS_PLAN_HTML_H
#define ORTH_TOOLS_PLAN_HTML_H

#include "base/text.h"
#include "plan/cluster.h"
#include "tools/scaling.h"
#include "tools/shares.h"

typedef struct {
    const orth_run_plan *plan;          /* priced, with its detail */
    const orth_hardware *hardware;      /* NULL: this machine, at measured peaks */
    const orth_cluster_plan *cluster;   /* NULL: ranks share a machine */
    const orth_scaling *scaling;
    const orth_shares *shares;          /* NULL: there is one group of devices, or one data-parallel rank */
    double flops, bytes;                /* what a rank has, a second */
} orth_plan_page;

/* HTML that is well-formed XML, too, without scripts, links or anything that is loaded. Readable from 400 pixels on: what is wider scrolls in its own
 * box. Heap memory; NULL with the error recorded. */
char *orth_plan_html(orth_ctx *ctx, const orth_plan_page *page);

#endif
