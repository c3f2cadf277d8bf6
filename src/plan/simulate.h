/* simulate.h -- a step of all ranks in time, from their programs: what the executors would do.
 *
 * A rank runs its instructions in order, one at a time. A computing instruction takes what the cost says, and so does a call, in the
 * model of program/check/waits.h, which has the order of waits for the check of all ranks, too.
 */
#ifndef ORTH_PLAN_SIMULATE_H
#define ORTH_PLAN_SIMULATE_H

#include "plan/contention.h"
#include "plan/file_time.h"
#include "program/check/check_flow.h"
#include "program/check/check_ranks.h"

/* Seconds of an instruction: of call `k` of a communicating one on `rank`, which has these groups. Ranks with one program may be
 * asked for once. */
typedef double (*orth_seconds_fn)(void *user, const orth_program *p, int32_t instr, int k, int rank,
                                  const orth_rank_groups *groups);

/* What the same call asks of the links of its rank's device. */
typedef orth_port_load (*orth_load_fn)(void *user, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups);

/* What decides times. Ranks share what they are asked for where they share a program and are of one kind. */
typedef struct {
    orth_seconds_fn seconds;
    void *user;
    const int32_t *kind_of;  /* [num_ranks] of its device and of its links; NULL: all alike */
    bool host_is_beside;     /* the host has cores of its own, beside the device; false: they are the same, and compute one thing at a time */
    orth_load_fn load;       /* calls of one device that run at once slow each other down (contention.h); NULL: they do not */
} orth_timing;

/* What one rank can do; costs by the larger of operations and bytes. */
typedef struct {
    double flops;    /* FLOP/s */
    double bytes;    /* bytes/s to and from memory, read plus written */
    orth_file_rates file;
} orth_rates;
/* An orth_seconds_fn on orth_rates: an instruction takes its operations at the peak or its bytes at the rate of
 * copying, whichever is longer: no kernel is faster, real ones are slower. What a rank sends or receives is read
 * once and written once. */
double orth_seconds_by_rates(void *rates, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups);

/* compute_s + comm_s + move_s + wait_s = step_s, the same on all ranks. */
typedef struct {
    double step_s;
    double compute_s;
    double comm_s;   /* held by a call after it has begun: communication that is not hidden */
    double wait_s;   /* held before it began, and after the rank's end: bubble, imbalance */
    double move_s;   /* held by copies between memory spaces */
    double update_s; /* of compute_s, what the update takes; of one that the host computes beside the device, what holds the device */
    double comm_by_group[ORTH_NUM_GROUPS];  /* comm_s by whose call it was */
} orth_rank_time;

/* times [num_ranks of the source]. clock: NULL, or [num_ranks] clocks (program.h) that are filled in ns from
 * the beginning of the step; NULL: not of that rank. The programs have passed orth_check_ranks;
 * ORTH_ERR_INTERNAL if they cannot come to their ends, ORTH_ERR_NOMEM, or what the source returned. */
orth_status orth_simulate_step(orth_ctx *ctx, const orth_rank_source *source, const orth_timing *timing, orth_rank_time *times,
                               int64_t *const *clock);

#endif
