/* executor_impl.h -- what the files of run/ share.
 *
 *   executor.c   arenas, addresses of all operands, bytes in and out, what was used
 *   step.c       the loop over a step: events, then the instruction
 *   shuffle.c    the same in other orders, for tests
 *   calls.c      an instruction as calls of its communicator
 *   beside.c     copies between memory spaces, and what the host computes, beside the loop
 *   spaces.c     an instruction in its memory spaces
 *   nonfinite.c  the first result that is no number; instructions in words
 */
#ifndef ORTH_RUN_EXECUTOR_IMPL_H
#define ORTH_RUN_EXECUTOR_IMPL_H

#include "run/executor.h"
#include "run/space/space.h"

struct orth_executor {
    const orth_program *p;
    const orth_kernel_fn *kernels;
    const orth_executor *lender;
    orth_region own[ORTH_NUM_SPACES];     /* arenas; none where they lie in the lender's */
    orth_region *region[ORTH_NUM_SPACES]; /* `own`, or the lender's */
    size_t base[ORTH_NUM_SPACES];         /* where the arena begins in it */
    bool borrowed;             /* they are the lender's */
    orth_op_call *calls;       /* [num_instrs] */
    orth_tensor *tensors;      /* of all calls, one after the other */
    int64_t *tags;             /* [num_instrs] of the first call of each */
    orth_comm *comms[ORTH_NUM_GROUPS];
    uint8_t *spaces;           /* [num_instrs] bits of the spaces that the instruction works in */
    uint8_t *ran;              /* [num_instrs] whether it ever ran */
    uint64_t shuffled;         /* seed of the orders of steps; 0: that of the list */
    /* A step. */
    int32_t *list;             /* instructions of queue q, in order, from first[q] on */
    int32_t first[ORTH_MAX_QUEUES + 1];
    int32_t complete[ORTH_MAX_QUEUES]; /* instructions of each queue that are known to be */
    struct executor_beside *beside; /* NULL: the program has no queues of copies, nor of the host */
    orth_request *requests;    /* [num_instrs] of the last call of those in other queues than that of computing */
    int64_t *clock, *held;     /* [orth_clock_length], [num_instrs]: see executor.h */
    int64_t now;               /* when the thread went on last */
};

/* ---- executor.c ---- */

/* The region that a buffer lies in, and *at which byte; NULL: the lender does not have it in that space. */
orth_region *executor_place_of(const orth_executor *e, int32_t buffer, size_t *at);

/* ---- calls.c ---- */

/* Gives all calls their tags. ORTH_ERR_NOMEM. */
orth_status executor_number_calls(orth_ctx *ctx, orth_executor *e);
/* Makes the calls of instruction i: returns when they are complete or, with `request`, starts them; *request is that of the last. */
orth_status executor_call(orth_ctx *ctx, orth_executor *e, int32_t i, orth_request *request);

/* ---- beside.c ---- */

bool executor_is_beside(const orth_executor *e, int32_t i);
orth_status executor_open_beside(orth_ctx *ctx, orth_executor *e);
void executor_close_beside(orth_ctx *ctx, orth_executor *e);
void executor_begin_beside(orth_executor *e);
/* Instruction i, the next of its queue, may begin as far as computing and communicators are concerned. */
void executor_post_beside(orth_executor *e, int32_t i);
/* Whether `count` instructions of a queue are done, in this step; waits until they are. The first error of any. */
bool executor_beside_is_done(const orth_executor *e, int32_t queue, int32_t count);
orth_status executor_wait_beside(orth_ctx *ctx, orth_executor *e, int32_t queue, int32_t count);

/* ---- spaces.c ---- */

uint8_t executor_spaces_of(const orth_program *p, const orth_instr *n);
/* Opens and closes the spaces of instruction i. Between them its operands have addresses. */
orth_status executor_enter(orth_ctx *ctx, const orth_executor *e, int32_t i);
void executor_leave(const orth_executor *e, int32_t i);
/* A `copy` from one space to another, which needs neither. */
orth_status executor_move_between(orth_ctx *ctx, const orth_executor *e, const orth_instr *n);

/* ---- step.c ---- */

/* Makes instruction i, a copy, calls or computing, in this thread. */
orth_status executor_make(orth_ctx *ctx, orth_executor *e, int32_t i);
/* The same for the loop, which shows it and notes its time. */
orth_status executor_do(orth_ctx *ctx, orth_executor *e, int32_t i);
/* Starts the calls of instruction i, which keep its spaces open. */
orth_status executor_start(orth_ctx *ctx, orth_executor *e, int32_t i);
/* Waits for the next instruction of queue q, which was started. */
orth_status executor_complete_next(orth_ctx *ctx, orth_executor *e, int32_t q);
/* Waits for the events of instruction i, then does or starts it; waits for all that was started. */
orth_status executor_issue(orth_ctx *ctx, orth_executor *e, int32_t i);
orth_status executor_finish(orth_ctx *ctx, orth_executor *e);
void executor_begin(orth_executor *e);
/* ctx->progress shows `e`, or nothing (NULL). */
void executor_show(orth_ctx *ctx, const orth_executor *e);
static inline int32_t executor_instr_of(const orth_executor *e, int32_t queue, int32_t number)
{
    return e->list[e->first[queue] + number];
}

/* ---- shuffle.c ---- */

orth_status executor_run_shuffled(orth_ctx *ctx, orth_executor *e);

#endif
