/* price.h -- what a run file costs, in one line: the plan of the run, priced on a described cluster or on this machine. For what looks at
 * many run files (compare.h, search.h).
 */
#ifndef ORTH_TOOLS_PRICE_H
#define ORTH_TOOLS_PRICE_H

#include "plan/cluster.h"
#include "train/describe.h"

/* Where runs are priced. */
typedef struct {
    bool described;                 /* devices, one for each rank */
    bool host;                      /* a machine with measured times, which ranks share (plan/host.h) */
    orth_hardware hardware;         /* of either */
    orth_rates rates[2];            /* of this machine in fp32 and in bf16; flops 0: not measured yet */
    orth_file_rates file;           /* the same of files, which all runs have together */
    bool least;                     /* recomputation auto that no limit has room for is priced with as little kept as possible, not refused */
} orth_place_to_run;

/* cluster: of orth_hardware_find; NULL: this machine, by the times that run.hardware names, or by peaks that are measured when the first run is priced. A described cluster is planned for
 * by one thread without vector kernels, so that the answer is the same everywhere: ctx is set so. ORTH_ERR_ARG, ORTH_ERR_IO. */
orth_status orth_place_to_run_find(orth_ctx *ctx, orth_place_to_run *out, const char *cluster);

void orth_place_to_run_release(orth_ctx *ctx, orth_place_to_run *where);

typedef struct {
    bool refused;                   /* by a rule, which `why` says; nothing else is filled in then */
    char why[ORTH_MESSAGE_MAX];
    int num_ranks, worst_rank;
    size_t bytes, limit_bytes;      /* of the worst rank on a cluster, of all ranks together here */
    size_t worst_bytes;             /* of the rank that needs the most */
    orth_budget budgets[ORTH_NUM_BUDGETS]; /* of each memory */
    int64_t num_instrs;             /* of its program */
    bool fits;
    double step_s, tokens_per_s, mfu, hfu;
    orth_device_peak peak;          /* of a device, as on a cluster; here without a name */
    /* Means over ranks; here update is part of compute, and data is not priced; move: copies of offload. */
    double compute_s, update_s, data_s, wait_s, move_s, exposed_s[ORTH_NUM_GROUPS];
    double days, usd;               /* of the whole run, on demand; days 0, usd NAN: not known */
} orth_price;

/* Plans the run and prices it. An invalid run is a price, too: refused. ORTH_ERR_NOMEM and other failures of the machine. */
orth_status orth_price_run(orth_ctx *ctx, orth_place_to_run *where, const orth_config *cfg, orth_price *out);

/* How many runs may be priced at once (base/crew.h), for the cores and the memory that there are: a large plan takes 2 GB. 1 on this machine, where runs are
 * planned for the threads that ctx has. */
int orth_price_threads(const orth_place_to_run *where);

/* "computing 91.7 %, update 0.1 %, waiting 2.1 %, tp 4.3 %, dp 1.7 %": where the step of a priced run goes. */
#define ORTH_PRICE_SPLIT_MAX 320
void orth_price_split(const orth_price *p, char out[ORTH_PRICE_SPLIT_MAX]);

#endif
