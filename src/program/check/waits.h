/* waits.h -- the calls of all ranks, made in order without data: whether every rank comes to its end, who waits for whom, and
 * when. The check of all ranks and the simulation of a step both run it.
 *
 *   rank that may go on --advance--> its end, or a call that is not complete --a peer posts the counterpart--> may go on
 *
 * A rank makes its calls in order, and computes between them. A call is posted when its rank comes to it. A collective begins when
 * all members have posted it and the one before it in its communicator has ended, a message when both sides have posted it; either
 * takes the longest of the times that its sides say. A call in the queue of computing holds its rank until it is complete. One in
 * another queue goes on beside it, and an event holds the rank until the calls are complete that it names. A copy between
 * spaces, or what the host computes, in a queue of its own, takes no other rank: it is alone. It begins when the rank has come to it, the one
 * before it in its queue has ended, and those of other such queues that it waits for, which do not hold the rank. That is how the executor
 * works (run/step.c, run/beside.c). Who does not care for times has them all zero.
 */
#ifndef ORTH_PROGRAM_WAITS_H
#define ORTH_PROGRAM_WAITS_H

#include "program/check/rank_instances.h"

/* The groups of what takes no other rank: copies, and what the host computes. */
#define ORTH_WAIT_COPIES ORTH_NUM_GROUPS
#define ORTH_WAIT_HOST (ORTH_NUM_GROUPS + 1)

/* A call, what is alone, or an event. */
typedef struct {
    double before;   /* seconds of computing since the one before */
    double seconds;  /* of the call */
    int32_t instr;   /* of the call; that waits for the event, num_instrs at the end of the step */
    bool of_alone;   /* event: of what is alone, for what is alone; the rank does not wait */
    int32_t peer;
    int32_t queue;   /* of the call, or of those waited for; -1: the program has no queues yet, nobody waits for the call */
    int32_t count;   /* event: so many instructions of the queue are complete; 0: a call */
    uint8_t op, group;
} orth_wait_call;

/* Of one program; ranks may share it. */
typedef struct {
    orth_wait_call *calls;
    int32_t num_calls;
    orth_wait_call *tail;   /* [num_calls - tail_from] those from tail_from on, where the ones before are another list's; NULL: all are in `calls` */
    int32_t tail_from;
    double after;    /* seconds of computing after the last */
    int32_t collectives[ORTH_NUM_GROUPS], sends[ORTH_NUM_GROUPS]; /* among the calls */
    int32_t num_queues;
    /* Instructions of each queue but that of computing: made so far, known to be complete, the most in between. */
    int32_t made[ORTH_MAX_QUEUES], complete[ORTH_MAX_QUEUES], most[ORTH_MAX_QUEUES];
} orth_wait_list;

static inline bool orth_wait_is_alone(const orth_wait_call *c)
{
    return c->group >= ORTH_NUM_GROUPS;
}

static inline orth_wait_call *orth_wait_list_at(const orth_wait_list *l, int32_t k)
{
    return l->tail && k >= l->tail_from ? &l->tail[k - l->tail_from] : &l->calls[k];
}

/* An empty list with room for the calls and events of p, in the arena. ORTH_ERR_NOMEM. */
orth_status orth_wait_list_open(orth_ctx *ctx, orth_arena *arena, orth_wait_list *l, const orth_program *p);
/* The events that instruction i waits for (holds: the rank waits, even if i is alone); one call of it; all that is under way at the end. The first to be added after computing
 * takes over `after` as its `before`. Of a program without queues nothing is alone. */
void orth_wait_list_add_events(orth_wait_list *l, const orth_program *p, int32_t i, bool holds);
void orth_wait_list_add_alone(orth_wait_list *l, const orth_program *p, int32_t i, double seconds);
void orth_wait_list_add_call(orth_wait_list *l, const orth_program *p, int32_t i, double seconds);
void orth_wait_list_close(orth_wait_list *l, const orth_program *p);

/* How far a rank came. */
typedef struct {
    int32_t at;              /* the call or event that holds it; num_calls: it came to its end */
    int32_t held_by;         /* the call that it waits, or waited last, for; -1: none */
    double now;              /* and when */
    double comm_s, wait_s;   /* held by calls that had begun, and by those that had not */
    double move_s, host_s;   /* held by copies, and by what the host computes, which copies may wait for */
    double comm_by_group[ORTH_NUM_GROUPS]; /* comm_s by whose call it was */
    double *ends;            /* [num_calls] when it went on after each; when the last call of an instruction in another queue was
                              * complete; NULL: not kept */
} orth_rank_waits;

typedef struct orth_waits orth_waits;

/* Runs the ranks of `instances` until none can go on. The calls fit together: rank_check_match. lists [num_ranks]; until [num_ranks]:
 * calls of each list that are made, NULL: all; keep_ends: see above. Lives in the arena, with pointers to what it was given.
 * ORTH_ERR_NOMEM. */
orth_status orth_waits_run(orth_ctx *ctx, orth_arena *arena, orth_waits **out, const orth_instances *instances, int num_ranks,
                           const orth_wait_list *const *lists, const int32_t *until, bool keep_ends);
/* Goes on where `from`, which was run `until` some calls, has come: ranks that were alike there differ in times of later calls. Rank r begins
 * as rank like[r] of `from` ended, whose list has the same calls, up to `until` with the same times; its instances are those of its
 * like, member by member, of a group without messages as sets. ORTH_ERR_NOMEM. */
orth_status orth_waits_go_on(orth_ctx *ctx, orth_arena *arena, orth_waits **out, const orth_instances *instances, int num_ranks,
                             const orth_wait_list *const *lists, const orth_waits *from, const int32_t *like, bool keep_ends);

const orth_rank_waits *orth_waits_of(const orth_waits *w, int rank);

/* A rank without which `rank`, which did not come to its end, cannot go on. */
int orth_waits_for(const orth_waits *w, int rank);

#endif
