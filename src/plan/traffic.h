/* traffic.h -- bytes that a rank sends in a step, per group and collective: planned from its program, counted by its
 * communicators. `sent` is counted where bytes are moved (comm/thread, comm/mpi) and planned by the rule of the algorithm
 * (orth_comm_sent_bytes): they agree to the byte, or one of them is wrong. `ideal` is what a ring would send, whatever runs.
 */
#ifndef ORTH_PLAN_TRAFFIC_H
#define ORTH_PLAN_TRAFFIC_H

#include "base/json_out.h"
#include "comm/comm.h"
#include "program/check/check_flow.h"

typedef struct {
    int64_t calls[ORTH_NUM_GROUPS][ORTH_NUM_COMM_KINDS];
    int64_t ideal[ORTH_NUM_GROUPS][ORTH_NUM_COMM_KINDS];
    int64_t sent[ORTH_NUM_GROUPS][ORTH_NUM_COMM_KINDS];
} orth_traffic;

/* Of one step of a checked program on the rank with these groups, by this method. */
orth_traffic orth_traffic_planned(const orth_program *p, const orth_rank_groups *groups, orth_comm_method m);

/* The same for many ranks that share the program, once the calls that are not a rank's own (orth_program.own) are counted. Lives in
 * the arena; sizes: of the groups, equal on all these ranks. ORTH_ERR_NOMEM. */
typedef struct {
    struct orth_traffic_kind *kinds;   /* that differ from each other */
    int32_t num;
    uint32_t own_groups;               /* 1u << group of the calls that are a rank's own */
    orth_traffic own;                  /* of these on a rank that is bound to `shard` and stands in `groups`; many ranks do */
    orth_rank_groups groups;
    int32_t shard;                     /* -1: of none yet */
} orth_traffic_calls;
orth_status orth_traffic_count(orth_ctx *ctx, orth_arena *arena, const orth_program *p, const orth_rank_groups *sizes,
                               orth_traffic_calls *out);
orth_traffic orth_traffic_of_calls(orth_traffic_calls *calls, const orth_program *p, const orth_rank_groups *groups,
                                   orth_comm_method m);

/* Since the communicators were made, one per group, NULL where the rank has none. Called by the rank's
 * thread. */
orth_traffic orth_traffic_counted(orth_comm *const comms[ORTH_NUM_GROUPS]);

void orth_traffic_add(orth_traffic *sum, const orth_traffic *t);
orth_traffic orth_traffic_minus(const orth_traffic *a, const orth_traffic *b);

/* {"dp": {"all_reduce": 1024}, ...} under `key`: `ideal` or `sent` of t, groups and kinds with calls only (docs/formats/run.md). */
void orth_traffic_json(orth_json_out *j, const char *key, const orth_traffic *t, bool ideal);

#endif
