/* waits.h -- the calls of all ranks, made in order without data: whether every rank comes to its end, who waits for whom, and
 * when. The check of all ranks and the simulation of a step both run it.
 *
 *   rank that may go on --advance--> its end, or a call that is not complete --a peer posts the counterpart--> may go on
 *
 * A rank makes its calls in order, and computes between them. A call is posted when its rank comes to it. A collective begins when
 * all members have posted it and the one before it in its communicator has ended, a message when both sides have posted it; either
 * takes the longest of the times that its sides say. Blocking calls and `wait` hold their rank until the call is complete; a
 * started call goes on beside it. Who does not care for times has them all zero.
 */
#ifndef ORTH_PROGRAM_WAITS_H
#define ORTH_PROGRAM_WAITS_H

#include "program/check/rank_instances.h"

/* A call, or a `wait`. */
typedef struct {
    double before;   /* seconds of computing since the call before */
    double seconds;  /* of this one */
    int32_t instr, peer, ticket;
    uint8_t op, group;
} orth_wait_call;

/* Of one program; ranks may share it. */
typedef struct {
    orth_wait_call *calls;
    int32_t num_calls;
    double after;    /* seconds of computing after the last */
    int32_t collectives[ORTH_NUM_GROUPS], sends[ORTH_NUM_GROUPS]; /* among the calls */
} orth_wait_list;

/* Appends to calls, which has room. */
void orth_wait_list_add(orth_wait_list *l, const orth_wait_call *c);

/* How far a rank came. */
typedef struct {
    int32_t at;              /* the call that holds it; num_calls: it came to its end */
    double now;              /* and when */
    double comm_s, wait_s;   /* held by calls that had begun, and by those that had not */
    double comm_by_group[ORTH_NUM_GROUPS]; /* comm_s by whose call it was */
    double *ends;            /* [num_calls] when it went on after each; NULL: not kept */
} orth_rank_waits;

typedef struct orth_waits orth_waits;

/* Runs the ranks of `instances` until none can go on. The calls fit together: rank_check_match. lists [num_ranks]; keep_ends: see
 * above. Lives in the arena, with pointers to what it was given. ORTH_ERR_NOMEM. */
orth_status orth_waits_run(orth_ctx *ctx, orth_arena *arena, orth_waits **out, const orth_instances *instances, int num_ranks,
                           const orth_wait_list *const *lists, bool keep_ends);

const orth_rank_waits *orth_waits_of(const orth_waits *w, int rank);

/* A rank without which `rank`, which did not come to its end, cannot go on. */
int orth_waits_for(const orth_waits *w, int rank);

#endif
