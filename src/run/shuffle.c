/* shuffle.c -- a step in an order drawn from a seed, among all that its queues and events allow: for tests.
 *
 *   instruction   next of its queue, events told --begin--> begun --its calls are complete--> --tell--> told
 *
 * A draw begins an instruction or tells one complete, which may be long after it was. The next of a queue begins when the one
 * before it is told. Calls in the queue of computing are started, too, so that other queues go on beside them. Some seeds tell
 * only when nothing else is left to do.
 */
#include <time.h>

#include "base/progress.h"
#include "base/rng.h"
#include "run/executor_impl.h"

typedef struct {
    orth_executor *e;
    int32_t begun[ORTH_MAX_QUEUES];
    uint64_t draws;
    bool late;
} shuffle;

static bool is_started(const orth_executor *e, int32_t i)
{
    return orth_op_is_comm(e->p->instrs[i].op) || executor_is_beside(e, i);
}

static bool may_begin(const shuffle *s, int32_t q)
{
    const orth_executor *e = s->e;
    if (s->begun[q] > e->complete[q] || s->begun[q] == e->p->queues[q].num_instrs)
        return false;
    const orth_instr *n = &e->p->instrs[executor_instr_of(e, q, s->begun[q])];
    for (int k = 0; k < n->num_waits; k++)
        if (e->complete[n->waits[k].queue] < n->waits[k].count)
            return false;
    return true;
}

static bool may_tell(const shuffle *s, int32_t q)
{
    const orth_executor *e = s->e;
    if (s->begun[q] == e->complete[q])
        return false;
    const int32_t i = executor_instr_of(e, q, e->complete[q]);
    const orth_instr *n = &e->p->instrs[i];
    if (executor_is_beside(e, i))
        return executor_beside_is_done(e, q, e->complete[q] + 1);
    return !orth_op_is_comm(n->op) || orth_comm_is_complete(e->comms[n->attr->group], e->requests[i]);
}

static orth_status begin(orth_ctx *ctx, shuffle *s, int32_t q)
{
    const int32_t i = executor_instr_of(s->e, q, s->begun[q]++);
    return is_started(s->e, i) ? executor_start(ctx, s->e, i) : executor_do(ctx, s->e, i);
}

static orth_status tell(orth_ctx *ctx, shuffle *s, int32_t q)
{
    if (is_started(s->e, executor_instr_of(s->e, q, s->e->complete[q])))
        return executor_complete_next(ctx, s->e, q);
    s->e->complete[q]++;
    return ORTH_OK;
}

/* One draw among all that may be done; nothing: calls of others are waited for. */
static orth_status draw(orth_ctx *ctx, shuffle *s)
{
    int32_t begins[ORTH_MAX_QUEUES], tells[ORTH_MAX_QUEUES], num_begins = 0, num_tells = 0;
    for (int32_t q = 0; q < s->e->p->num_queues; q++) {
        if (may_begin(s, q))
            begins[num_begins++] = q;
        if (may_tell(s, q))
            tells[num_tells++] = q;
    }
    const int32_t num = num_begins + (s->late && num_begins > 0 ? 0 : num_tells);
    if (num == 0) {
        orth_tick(ctx);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        return ORTH_OK;
    }
    const int32_t k = (int32_t)(orth_philox(s->e->shuffled, ORTH_STREAM_TEST, 0, s->draws++).v[0] % (uint32_t)num);
    return k < num_begins ? begin(ctx, s, begins[k]) : tell(ctx, s, tells[k - num_begins]);
}

orth_status executor_run_shuffled(orth_ctx *ctx, orth_executor *e)
{
    shuffle s = {.e = e, .late = e->shuffled % 2 == 0};
    int32_t told = 0;
    while (told < e->p->num_instrs) {
        ORTH_TRY(draw(ctx, &s));
        told = 0;
        for (int32_t q = 0; q < e->p->num_queues; q++)
            told += e->complete[q];
    }
    e->shuffled += 2; /* the next step has another order */
    return ORTH_OK;
}

void orth_executor_shuffle(orth_executor *e, uint64_t seed)
{
    e->shuffled = seed;
}
