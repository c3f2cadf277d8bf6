/* plan.h -- what a run will need, read off its program: no second formula for anything.
 *
 * Memory per class and in all, FLOPs per step, for each rank. The same figures are counted by the
 * run (memory.json), so that a plan can be held to its word.
 */
#ifndef ORTH_PLAN_PLAN_H
#define ORTH_PLAN_PLAN_H

#include "base/text.h"
#include "plan/device_time.h"
#include "plan/file_time.h"
#include "plan/memory.h"
#include "plan/peak.h"
#include "plan/simulate.h"
#include "plan/traffic.h"
#include "program/ir/cost.h"

typedef struct {
    int dp, tp, pp, cp;
} orth_plan_coords;

/* Bytes, and what they may be; 0: not known. */
typedef struct {
    size_t bytes, limit;
} orth_node_use;

typedef struct {
    orth_memory memory;        /* arenas, and on rank 0 what saves checkpoints */
    orth_arena_use arenas[ORTH_NUM_SPACES]; /* of one rank, not of totals */
    orth_outside outside;      /* what the rank has besides, which `total_bytes` and `fits` leave out */
    size_t total_bytes;        /* sum of `memory` without files */
    size_t device_bytes;       /* of a rank, of totals the rank with the most: where its kernels work, which is all without offload */
    orth_peak_moment peak;     /* when most of that is live; of one rank, not of totals */
    size_t file_bytes;         /* in files */
    orth_file_moves file_moves; /* bytes of a step, to and from files */
    orth_file_rates file_rates; /* of totals, where the time was priced: what those have together whose files take longest, */
    double file_floor_s;       /* and the least that a step takes for them; 0: no files, or not priced */
    double loading_s;          /* of totals on a described cluster: a rank reads the tokens of a step, where that takes longest; 0: not priced, */
    double data_s;             /* and what of that the step waits for */
    /* What they may be: of each rank, and, where something is offloaded, of all together; 0: not known. */
    size_t device_limit_bytes, host_limit_bytes, file_limit_bytes;
    bool file_limit_is_room;   /* the last is what is free in memory.offload_dir */
    size_t lower_bound_bytes;  /* what no placement could go below */
    size_t limit_bytes;        /* what it may take; 0: not known */
    size_t worst_bytes;        /* of totals whose limit is that of each rank: of the rank that needs the most; else 0 */
    orth_node_use node_host, node_files; /* of the same, with offload: what ranks of a node have in its host's memory, and on its disks */
    orth_cost cost;            /* of a step */
    int64_t tokens;            /* of a step */
    int64_t num_elems, num_trained; /* parameters of the model; of these, not frozen */
    bool fits;
    const char *recomputed;    /* what memory.recompute=auto has chosen, in words; NULL: another policy */
    int32_t num_instrs;        /* of the program; of one rank, not of totals */
    orth_traffic traffic;      /* of a step */
    orth_rank_time time;       /* simulated, means over ranks in totals; step_s = 0: not priced */
    double peak_flops;         /* of all ranks together, as priced; of totals */
    char peak_name[ORTH_PEAK_NAME_MAX]; /* of totals on a described cluster: of which numbers that is the rate (device_time.h) */
    const char *times_of;      /* the machine whose measured times they are; NULL: measured peaks */
    double days, on_demand_usd, spot_usd; /* of the whole run on a described cluster; of totals; 0: not known, null in JSON */
    bool steps_known;          /* of totals: these are known, be they 0 */
    const char *no_steps;      /* of totals: why not, in words */
    bool has_on_demand;        /* of totals: on_demand_usd is known where days are, even if it is 0 */
    double goodput, spot_goodput; /* share of that time that makes progress, and of a run at price.spot; 0: not known, or none */
    const char *peaks;         /* of totals, a JSON array: what is live at the peak of ranks (plan/peak.h); NULL: not looked for */
    const char *shares;        /* of totals, a JSON object: the step with other shares of the batch (tools/shares.h); NULL: not looked for */
    const char *changes;       /* of totals, a JSON object: what would make it fit (tools/ladder.h); NULL: not looked for */
    const char *groups;        /* of totals, a JSON array: each group of devices; NULL: there is one kind */
    const char *warnings;      /* of totals, a JSON array: what the log was warned of; NULL: of a run, which has its log */
    orth_plan_coords coords;   /* place of the rank in the mesh */
    bool on_devices;           /* kernels work in the memory of a device that is not the host's */
} orth_plan;

/* What a plan is held to: each memory that has a limit of its own. */
typedef enum { ORTH_BUDGET_ALL, ORTH_BUDGET_DEVICE, ORTH_BUDGET_HOST, ORTH_BUDGET_FILES, ORTH_NUM_BUDGETS } orth_budget_kind;
typedef struct {
    const char *where;         /* "in files"; "": all memory */
    const char *key;           /* that gives the limit, or what does */
    size_t bytes, limit;       /* 0: the plan needs none of it; not known */
} orth_budget;

/* Of a cluster's total a device's alone. */
void orth_plan_budgets(const orth_plan *p, orth_budget out[ORTH_NUM_BUDGETS]);
bool orth_budget_exceeded(const orth_budget *b);

/* Of a placed program. */
orth_plan orth_plan_of(const orth_program *p, int64_t num_elems, int64_t num_trained, size_t limit_bytes);
/* Of a program that is bound to another rank than for the plan `like`, when its own instructions cost `own`. */
orth_plan orth_plan_of_views(const orth_plan *like, const orth_cost *own, const orth_program *p);

/* All ranks on one machine: sums of bytes and FLOPs; tokens: of the whole step. */
orth_plan orth_plan_total(const orth_plan *plans, int num_ranks, int64_t tokens, size_t limit_bytes);

/* The time of the total from that of the ranks, and the peak that they had. */
void orth_plan_price_total(orth_plan *total, const orth_plan *ranks, int num_ranks, double peak_flops);

/* Bytes of files: of another rank as well; and the floor of those added up, `sharers` ranks with rates of `each`. */
void orth_plan_add_file_moves(orth_plan *sum, const orth_plan *rank);
void orth_plan_set_file_floor(orth_plan *sum, const orth_file_rates *each, double sharers);
/* A line of text, if there are files and a time. of_node: of a described cluster. */
void orth_plan_add_file_floor(orth_ctx *ctx, orth_text *t, const orth_plan *total, bool of_node);

/* "--json" and plan.json (docs/formats/run.md). Heap memory; NULL with the error recorded. */
char *orth_plan_json(orth_ctx *ctx, const orth_plan *plans, int num_ranks, const orth_plan *total);
/* For people, several lines: `plan` is that of the only rank, or the total of num_ranks. */
char *orth_plan_text(orth_ctx *ctx, const orth_plan *plan, int num_ranks);

/* What the error of every run that does not fit begins with: who answers with the changes with which it would knows it by that. */
#define ORTH_NO_FIT "the run does not fit: "
/* NULL: `error` is another one; else the reason, within it. */
const char *orth_plan_no_fit(const orth_error *error);
/* ORTH_ERR_NOMEM, of files ORTH_ERR_NOSPACE, with the figures of the plan if it does not fit. */
orth_status orth_plan_require_fit(orth_ctx *ctx, const orth_plan *plan);

#endif
