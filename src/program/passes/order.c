/* order.c -- see order.h.
 *
 * One walk over the list. clock[i][q] is how many instructions of queue q are complete when instruction i is, by its own
 * queue and by its waits: a vector clock. What an instruction conflicts with gives it the waits that it needs, for each
 * queue the latest; those that the clock of its predecessor, or of another of them, covers are dropped.
 */
#include "program/passes/order.h"

#include "program/ir/touched.h"

typedef struct {
    orth_ctx *ctx;
    orth_program *p;
    orth_arena arena;          /* dies with the pass */
    orth_touched touched;
    int32_t *at;               /* [num_instrs] place in the queue */
    int32_t *list, *first;     /* instructions of queue q: list from first[q] on */
    int32_t *clock;            /* [num_instrs][num_queues] */
    int32_t *none;             /* [num_queues] the clock before anything */
    int32_t need[ORTH_MAX_QUEUES]; /* of the instruction at hand: instructions of each queue that must be complete */
    int32_t num_waits;
} pass;

/* ---- queues ---- */

static orth_queue queue_of(const orth_program *p, const orth_instr *n)
{
    if (n->until == 0)
        return (orth_queue){.kind = ORTH_QUEUE_COMPUTE};
    const orth_buffer *from, *to;
    if (orth_instr_copies(p, n, &from, &to))
        return (orth_queue){.kind = orth_instr_moves_file(p, n) ? ORTH_QUEUE_FILE : to->space == p->space ? ORTH_QUEUE_COPY_IN : ORTH_QUEUE_COPY_OUT};
    if (!orth_op_is_comm(n->op))
        return (orth_queue){.kind = ORTH_QUEUE_HOST};
    const orth_queue_kind kind = orth_op_sends(n->op) ? ORTH_QUEUE_SEND
                                 : orth_op_receives(n->op) ? ORTH_QUEUE_RECV
                                                         : ORTH_QUEUE_COLLECTIVE;
    return (orth_queue){.kind = kind, .group = n->attr->group, .peer = kind == ORTH_QUEUE_COLLECTIVE ? 0 : n->attr->peer};
}

/* Those that the instructions are in, in the order of their first. */
static orth_status number_queues(orth_ctx *ctx, orth_program *p)
{
    p->num_queues = 1;
    p->queues[0] = (orth_queue){.kind = ORTH_QUEUE_COMPUTE};
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_queue of = queue_of(p, &p->instrs[i]);
        int32_t q = 0;
        while (q < p->num_queues && (p->queues[q].kind != of.kind || p->queues[q].group != of.group || p->queues[q].peer != of.peer))
            q++;
        if (q == ORTH_MAX_QUEUES)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "instruction %d needs more than %d queues", (int)i, ORTH_MAX_QUEUES);
        if (q == p->num_queues)
            p->queues[p->num_queues++] = of;
        p->queues[q].num_instrs++;
        p->instrs[i].queue = q;
        p->instrs[i].waits = NULL;
        p->instrs[i].num_waits = 0;
    }
    return ORTH_OK;
}

static void list_queues(pass *s)
{
    for (int32_t q = 0; q < s->p->num_queues; q++)
        s->first[q + 1] = s->first[q] + s->p->queues[q].num_instrs;
    int32_t filled[ORTH_MAX_QUEUES] = {0};
    for (int32_t i = 0; i < s->p->num_instrs; i++) {
        const int32_t q = s->p->instrs[i].queue;
        s->at[i] = filled[q];
        s->list[s->first[q] + filled[q]++] = i;
    }
}

/* ---- waits ---- */

static const int32_t *clock_of(const pass *s, int32_t i)
{
    return s->clock + (int64_t)i * s->p->num_queues;
}

/* The clock of the instruction before i in its queue. */
static const int32_t *clock_before(const pass *s, int32_t i)
{
    return s->at[i] > 0 ? clock_of(s, s->list[s->first[s->p->instrs[i].queue] + s->at[i] - 1]) : s->none;
}

/* The clock of the last instruction that is complete when `need` of queue q are. */
static const int32_t *clock_needed(const pass *s, int32_t q)
{
    return clock_of(s, s->list[s->first[q] + s->need[q] - 1]);
}

static orth_status note_need(void *user, const orth_access *access, int32_t earlier)
{
    pass *s = user;
    const int32_t q = s->p->instrs[earlier].queue;
    if (q != s->p->instrs[access->instr].queue)
        s->need[q] = ORTH_MAX(s->need[q], s->at[earlier] + 1);
    return ORTH_OK;
}

/* Waiting for queue q is implied by another wait. Nothing waits for itself, so of two waits one at most implies the other. */
static bool is_implied(const pass *s, int32_t q)
{
    for (int32_t other = 0; other < s->p->num_queues; other++)
        if (other != q && s->need[other] > 0 && clock_needed(s, other)[q] >= s->need[q])
            return true;
    return false;
}

static void set_clock(pass *s, int32_t i, const int32_t *before)
{
    int32_t *c = s->clock + (int64_t)i * s->p->num_queues;
    memcpy(c, before, (size_t)s->p->num_queues * sizeof *c);
    for (int32_t q = 0; q < s->p->num_queues; q++)
        for (int32_t r = 0; s->need[q] > 0 && r < s->p->num_queues; r++)
            c[r] = ORTH_MAX(c[r], clock_needed(s, q)[r]);
    c[s->p->instrs[i].queue] = s->at[i] + 1;
}

static orth_status derive(pass *s, int32_t i)
{
    const int32_t *before = clock_before(s, i);
    orth_instr *n = &s->p->instrs[i];
    orth_wait waits[ORTH_MAX_QUEUES];
    memset(s->need, 0, (size_t)s->p->num_queues * sizeof *s->need);
    ORTH_TRY(orth_touched_visit(&s->touched, i, note_need, s));
    orth_touched_note(&s->touched, i);
    for (int32_t q = 0; q < s->p->num_queues; q++) /* what an earlier instruction of its queue has waited for is complete */
        if (before[q] >= s->need[q])
            s->need[q] = 0;
    for (int32_t q = 0; q < s->p->num_queues; q++)
        if (s->need[q] > 0 && !is_implied(s, q))
            waits[n->num_waits++] = (orth_wait){q, s->need[q]};
    set_clock(s, i, before);
    if (n->num_waits == 0)
        return ORTH_OK;
    orth_wait *kept = ORTH_ARENA_ARRAY(s->ctx, &s->p->arena, orth_wait, n->num_waits);
    if (!kept)
        return ORTH_ERR_NOMEM;
    memcpy(kept, waits, (size_t)n->num_waits * sizeof *kept);
    n->waits = kept;
    return ORTH_OK;
}

static orth_status run(pass *s)
{
    const orth_program *p = s->p;
    s->at = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_instrs);
    s->list = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_instrs);
    s->first = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_queues + 1);
    s->none = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_queues);
    s->clock = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, (int64_t)p->num_instrs * p->num_queues);
    if (!s->at || !s->list || !s->first || !s->none || !s->clock)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_touched_make(s->ctx, &s->arena, p, &s->touched));
    list_queues(s);
    for (int32_t i = 0; i < p->num_instrs; i++)
        ORTH_TRY(derive(s, i));
    return ORTH_OK;
}

orth_status orth_order(orth_ctx *ctx, orth_program *p)
{
    ORTH_TRY(number_queues(ctx, p));
    if (p->num_queues == 1)
        return ORTH_OK;
    pass s = {.ctx = ctx, .p = p};
    const orth_status status = run(&s);
    orth_arena_release(ctx, &s.arena);
    return status;
}
