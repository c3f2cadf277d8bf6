/* traffic.h -- bytes that a rank sends in a step, per group and collective: planned from its program, counted
 * by its communicators. Both by orth_comm_bytes, so that they agree to the byte or one of them is wrong.
 */
#ifndef ORTH_PLAN_TRAFFIC_H
#define ORTH_PLAN_TRAFFIC_H

#include "comm/comm.h"
#include "program/check/check_flow.h"

typedef struct {
    int64_t calls[ORTH_NUM_GROUPS][ORTH_NUM_COMM_KINDS];
    int64_t bytes[ORTH_NUM_GROUPS][ORTH_NUM_COMM_KINDS];
} orth_traffic;

/* Of one step of a checked program on the rank with these groups. */
orth_traffic orth_traffic_planned(const orth_program *p, const orth_rank_groups *groups);

/* Since the communicators were made, one per group, NULL where the rank has none. Called by the rank's
 * thread. */
orth_traffic orth_traffic_counted(orth_comm *const comms[ORTH_NUM_GROUPS]);

void orth_traffic_add(orth_traffic *sum, const orth_traffic *t);
orth_traffic orth_traffic_minus(const orth_traffic *a, const orth_traffic *b);
int64_t orth_traffic_bytes(const orth_traffic *t); /* of all groups and kinds */

/* {"dp": {"all_reduce": 1024}, ...}: groups and kinds with calls only (docs/formats/run.md). Allocates nothing: it
 * is written between steps. The limit holds all groups and kinds (64 characters each). */
#define ORTH_TRAFFIC_JSON_MAX (64 * ORTH_NUM_GROUPS * ORTH_NUM_COMM_KINDS)
void orth_traffic_json(const orth_traffic *t, char out[ORTH_TRAFFIC_JSON_MAX]);

/* First difference in words, "dp all_reduce: planned 3 calls, 96 bytes; counted 4 calls, 128 bytes", into
 * out. False: there is none. */
bool orth_traffic_differs(const orth_traffic *planned, const orth_traffic *counted, char *out, size_t size);

#endif
