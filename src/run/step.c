/* step.c -- the loop over a step: a loop without policy.
 *
 * One thread issues the instructions of all queues in the order of the list, as the host of a GPU does with streams. What is in the
 * queue of computing is complete when the loop goes on. A call in another queue is only started: its communicator makes it beside
 * the loop, those of one queue one after the other. An event is waited for where the first instruction needs it. Copies between
 * spaces, and what the host computes for its device, are made beside the loop, too (beside.c).
 *
 * So when an instruction is issued, all before it in the queue of computing are complete, and all events that any instruction
 * before it has waited for.
 */
#include "base/clock.h"
#include "base/progress.h"
#include "run/executor_impl.h"

/* The thread turns to instruction i, for those who watch it. */
static void show_instr(orth_ctx *ctx, int32_t i)
{
    if (ctx->progress)
        atomic_store_explicit(&ctx->progress->instr, i, memory_order_relaxed);
    orth_tick(ctx);
}

/* The thread was held by instruction i until now. */
static void note_held(orth_executor *e, int32_t i)
{
    const int64_t now = orth_clock_ns();
    e->held[i] += now - e->now;
    e->now = now;
}

orth_status executor_make(orth_ctx *ctx, orth_executor *e, int32_t i)
{
    const orth_instr *n = &e->p->instrs[i];
    if (orth_instr_moves(e->p, n))
        return executor_move_between(ctx, e, n);
    ORTH_TRY(executor_enter(ctx, e, i));
    const orth_status s = orth_op_is_comm(n->op) ? executor_call(ctx, e, i, NULL) : e->kernels[n->op](ctx, &e->calls[i]);
    executor_leave(e, i);
    return s;
}

orth_status executor_do(orth_ctx *ctx, orth_executor *e, int32_t i)
{
    const int64_t begin = e->now;
    show_instr(ctx, i);
    e->ran[i] = 1;
    ORTH_TRY(executor_make(ctx, e, i));
    note_held(e, i);
    orth_clock_set(e->clock, i, begin, e->now);
    return ORTH_OK;
}

orth_status executor_start(orth_ctx *ctx, orth_executor *e, int32_t i)
{
    const int64_t begin = e->now;
    show_instr(ctx, i);
    e->ran[i] = 1;
    if (executor_is_beside(e, i)) {
        executor_post_beside(e, i);
        note_held(e, i);
        return ORTH_OK;
    }
    ORTH_TRY(executor_enter(ctx, e, i));
    e->requests[i] = 0;
    const orth_status s = executor_call(ctx, e, i, &e->requests[i]);
    if (s != ORTH_OK)
        executor_leave(e, i);
    note_held(e, i);
    orth_clock_set(e->clock, i, begin, e->now);
    return s;
}

orth_status executor_complete_next(orth_ctx *ctx, orth_executor *e, int32_t q)
{
    const int32_t i = executor_instr_of(e, q, e->complete[q]);
    show_instr(ctx, i);
    if (executor_is_beside(e, i)) {
        const orth_status made = executor_wait_beside(ctx, e, q, ++e->complete[q]);
        note_held(e, i);
        return made;
    }
    const orth_status s = orth_comm_wait(ctx, e->comms[e->p->instrs[i].attr->group], e->requests[i]);
    executor_leave(e, i);
    e->complete[q]++;
    note_held(e, i);
    orth_clock_set(e->clock, i, orth_clock_begin(e->clock, i), e->now);
    return s;
}

orth_status executor_issue(orth_ctx *ctx, orth_executor *e, int32_t i)
{
    const orth_instr *n = &e->p->instrs[i];
    const bool beside = executor_is_beside(e, i);
    for (int k = 0; k < n->num_waits; k++)
        while (!(beside && orth_queue_is_alone(&e->p->queues[n->waits[k].queue])) && e->complete[n->waits[k].queue] < n->waits[k].count)
            ORTH_TRY(executor_complete_next(ctx, e, n->waits[k].queue));
    if (n->queue > 0)
        return executor_start(ctx, e, i);
    ORTH_TRY(executor_do(ctx, e, i));
    e->complete[0]++;
    return ORTH_OK;
}

orth_status executor_finish(orth_ctx *ctx, orth_executor *e)
{
    for (int32_t q = 1; q < e->p->num_queues; q++)
        while (e->complete[q] < e->p->queues[q].num_instrs)
            ORTH_TRY(executor_complete_next(ctx, e, q));
    return ORTH_OK;
}

void executor_begin(orth_executor *e)
{
    executor_begin_beside(e);
    memset(e->complete, 0, sizeof e->complete);
    memset(e->held, 0, (size_t)e->p->num_instrs * sizeof *e->held);
    e->clock[0] = e->now = orth_clock_ns();
}

static orth_status run_all(orth_ctx *ctx, orth_executor *e)
{
    executor_begin(e);
    if (e->shuffled)
        ORTH_TRY(executor_run_shuffled(ctx, e));
    for (int32_t i = 0; i < e->p->num_instrs && !e->shuffled; i++)
        ORTH_TRY(executor_issue(ctx, e, i));
    return executor_finish(ctx, e);
}

void executor_show(orth_ctx *ctx, const orth_executor *e)
{
    if (!ctx->progress)
        return;
    atomic_store(&ctx->progress->program, e);
    orth_progress_part(ctx);
}

orth_status orth_executor_run(orth_ctx *ctx, orth_executor *e)
{
    executor_show(ctx, e);
    ctx->frozen = true;
    orth_status s = run_all(ctx, e);
    ctx->frozen = false;
    executor_show(ctx, NULL);
    return s;
}

void orth_executor_exposed(const orth_executor *e, double seconds[ORTH_NUM_GROUPS])
{
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        seconds[g] = 0;
    for (int32_t i = 0; i < e->p->num_instrs; i++)
        if (orth_op_is_comm(e->p->instrs[i].op))
            seconds[e->p->instrs[i].attr->group] += 1e-9 * (double)e->held[i];
}

const int64_t *orth_executor_clock(const orth_executor *e)
{
    return e->clock;
}

const int64_t *orth_executor_held(const orth_executor *e)
{
    return e->held;
}
