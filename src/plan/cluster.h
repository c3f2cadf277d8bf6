/* cluster.h -- the programs of a run on a described cluster: whether they fit, how long a step takes, what it costs.
 *
 * Ranks are devices, node after node, in the order of global ranks: the placement of the mesh (mesh.h) decides what lies
 * inside a node, and in which group of a mixed cluster (mixed.h). Memory, FLOPs and bytes sent are exact, read off the programs; times are estimates (device_time.h, link_time.h)
 * on the clock of the simulation, which knows what communication the program hides. Nothing is measured: the same run file and
 * cluster give the same answer everywhere. The workspace is that of the plain CPU kernels on one thread; a device
 * that runs other kernels needs another.
 */
#ifndef ORTH_PLAN_CLUSTER_H
#define ORTH_PLAN_CLUSTER_H

#include "plan/device_time.h"
#include "plan/goodput.h"
#include "plan/mixed.h"
#include "plan/run_plan.h"

typedef struct {
    int worst_rank;          /* needs the most memory, of what its device has */
    double step_s, tokens_per_s, mfu, hfu;
    orth_device_peak peak;   /* that the last two are shares of */
    double compute_s, update_s, move_s, wait_s; /* means over ranks; update is part of no other; move: held by copies of offload */
    double exposed_s[ORTH_NUM_GROUPS];     /* communication that computing waits for, on each group's links */
    double steps;            /* of the run; -1: not known */
    double days, on_demand_usd, spot_usd;  /* of `steps`, interruptions included where they are known; 0: not known, or spot nodes make no progress */
    orth_goodput goodput, spot_goodput;    /* zero: not known */
} orth_cluster_plan;

/* What a rank, on a device of its own, may need; and what any rank may. */
size_t orth_cluster_rank_limit(const orth_hardware *h, int rank);
/* What the host of a rank's node has. */
size_t orth_cluster_node_limit(const orth_hardware *h, int rank);
size_t orth_cluster_most_node_limit(const orth_hardware *h); /* of all nodes */
size_t orth_cluster_least_node_limit(const orth_hardware *h);
/* The same of the disks of a node; 0: not known. */
size_t orth_cluster_file_limit(const orth_hardware *h, int rank);
size_t orth_cluster_most_file_limit(const orth_hardware *h); /* 0: not known of some node */
size_t orth_cluster_least_limit(const orth_hardware *h);

/* Prices p's ranks on `h`, whose devices they are (orth_hardware_use): times, totals, and what fits, each rank
 * by itself. compute: type of products. steps: of the run, or -1: not known, and p->total.no_steps says why. timeline as in orth_run_plan_price.
 * ORTH_ERR_ARG where the devices do not have the type; ORTH_ERR_NOMEM. */
orth_status orth_cluster_price(orth_ctx *ctx, orth_run_plan *p, const orth_hardware *h, orth_dtype compute, int64_t steps,
                               const char *timeline, orth_cluster_plan *out);

/* When each instruction ran: clocks [num_ranks of the source] as orth_simulate_step fills them. partition: of the ranks. */
orth_status orth_cluster_clocks(orth_ctx *ctx, const orth_rank_source *source, const orth_partition *partition, const orth_hardware *h,
                                int64_t *const *clocks);

/* For people: the answer in five lines, then memory of the worst rank and of each stage, and traffic of each axis. Heap
 * memory; NULL with the error recorded. */
char *orth_cluster_text(orth_ctx *ctx, const orth_run_plan *p, const orth_hardware *h, const orth_cluster_plan *c);

/* Of a group: the rank that computes longest, the most bytes that a rank has on its device and what there are, and what the group costs in the whole run;
 * usd 0: not known. */
typedef struct {
    const orth_rank_time *busiest;
    size_t most, limit;
    double usd;
} orth_group_figures;
orth_group_figures orth_cluster_group(const orth_run_plan *p, const orth_device_group *g, const orth_cluster_plan *c);

/* The rows of the text for groups of devices, a JSON array. Heap memory; NULL with the error recorded. */
char *orth_cluster_groups_json(orth_ctx *ctx, const orth_run_plan *p, const orth_mixed *m, const orth_cluster_plan *c);

/* What the text says of products that are timed at the rate of other numbers (device_time.h), as a warning. */
void orth_cluster_warn_products(orth_ctx *ctx, const orth_run_plan *p, const orth_hardware *h);

#endif
