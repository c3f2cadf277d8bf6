/* happens.c -- see happens.h. */
#include "program/check/happens.h"

#include "program/ir/touched.h"

typedef struct {
    orth_ctx *ctx;
    const orth_program *p;
    orth_arena arena;
    orth_touched touched;
    int32_t *count;          /* [num_instrs] instructions of its queue up to this one */
    int32_t *passed;         /* [num_queues] instructions of each queue so far in the list */
    int32_t *clock;          /* [num_instrs][num_queues] when it begins: instructions of each queue that happened before; */
                             /* of its own queue up to itself */
    int32_t **last;          /* [num_queues] clock of the queue's last so far */
    int32_t *where, *first;  /* instruction number `k` of queue q: where[first[q] + k] */
} proof;

static void name_instr(const orth_program *p, int32_t i, char *text, size_t size)
{
    char queue[48];
    orth_queue_name(&p->queues[p->instrs[i].queue], queue, sizeof queue);
    snprintf(text, size, "instruction %d (%s, in queue %s)", (int)i, orth_op_name(p->instrs[i].op), queue);
}

static orth_status refuse(const proof *s, int32_t i, const char *rule, int64_t value)
{
    char name[128];
    name_instr(s->p, i, name, sizeof name);
    return ORTH_FAIL(s->ctx, ORTH_ERR_INTERNAL, "%s %s (%lld)", name, rule, (long long)value);
}

static bool moves_by(const orth_program *p, const orth_instr *n, orth_queue_kind kind)
{
    const bool file = orth_instr_moves_file(p, n);
    return orth_instr_moves(p, n) && file == (kind == ORTH_QUEUE_FILE) &&
           (file || (kind == ORTH_QUEUE_COPY_IN) == (p->buffers[n->out[0].buffer].space == p->space));
}

/* Nothing that only the host has addresses of is elsewhere. */
static bool is_of_host(const orth_program *p, const orth_instr *n)
{
    const orth_buffer *from, *to;
    bool near = !orth_op_is_comm(n->op) && !orth_instr_copies(p, n, &from, &to);
    for (int k = 0; k < orth_instr_num_operands(n); k++) {
        const int32_t b = orth_instr_operand(n, k)->buffer;
        near = near && (b < 0 || p->buffers[b].space == ORTH_SPACE_HOST);
    }
    return near;
}

static orth_status check_queue(const proof *s, int32_t i)
{
    const orth_instr *n = &s->p->instrs[i];
    if (n->queue < 0 || n->queue >= s->p->num_queues)
        return ORTH_FAIL(s->ctx, ORTH_ERR_INTERNAL, "instruction %d (%s) is in queue %d of %d", (int)i, orth_op_name(n->op),
                         (int)n->queue, (int)s->p->num_queues);
    const orth_queue *q = &s->p->queues[n->queue];
    const bool calls = q->kind >= ORTH_QUEUE_COLLECTIVE;
    if (calls && (!orth_op_is_comm(n->op) || q->group != n->attr->group ||
                  (q->kind == ORTH_QUEUE_SEND) != orth_op_sends(n->op) ||
                  (q->kind == ORTH_QUEUE_RECV) != orth_op_receives(n->op) ||
                  (q->kind != ORTH_QUEUE_COLLECTIVE && q->peer != n->attr->peer)))
        return refuse(s, i, "does not belong into that queue", n->queue);
    if (q->kind == ORTH_QUEUE_HOST && !is_of_host(s->p, n))
        return refuse(s, i, "is nothing that the host computes in its own memory", n->queue);
    if (q->kind >= ORTH_QUEUE_COPY_IN && q->kind <= ORTH_QUEUE_FILE && !moves_by(s->p, n, q->kind))
        return refuse(s, i, "is no copy that belongs into that queue", n->queue);
    return ORTH_OK;
}

static orth_status check_waits(const proof *s, int32_t i)
{
    const orth_instr *n = &s->p->instrs[i];
    for (int k = 0; k < n->num_waits; k++) {
        const orth_wait *w = &n->waits[k];
        if (w->queue < 0 || w->queue >= s->p->num_queues || w->queue == n->queue)
            return refuse(s, i, "waits for a queue that is its own or not there", w->queue);
        if (w->count < 1 || w->count > s->passed[w->queue])
            return refuse(s, i, "waits for more instructions of another queue than are before it in the list", w->count);
    }
    return ORTH_OK;
}

static void join(int32_t *clock, const int32_t *other, int32_t num)
{
    for (int32_t q = 0; other && q < num; q++)
        clock[q] = ORTH_MAX(clock[q], other[q]);
}

static void set_clock(proof *s, int32_t i)
{
    const orth_instr *n = &s->p->instrs[i];
    const int32_t Q = s->p->num_queues;
    int32_t *c = s->clock + (int64_t)i * Q;
    join(c, s->last[n->queue], Q);
    for (int k = 0; k < n->num_waits; k++)
        join(c, s->clock + (int64_t)s->where[s->first[n->waits[k].queue] + n->waits[k].count - 1] * Q, Q);
    s->where[s->first[n->queue] + s->passed[n->queue]] = i;
    c[n->queue] = s->count[i] = ++s->passed[n->queue];
    s->last[n->queue] = c;
}

static orth_status must_happen_before(void *user, const orth_access *a, int32_t earlier)
{
    const proof *s = user;
    const int32_t q = s->p->instrs[earlier].queue, i = a->instr;
    if (s->clock[(int64_t)i * s->p->num_queues + q] >= s->count[earlier])
        return ORTH_OK;
    char one[128], other[128];
    name_instr(s->p, i, one, sizeof one);
    name_instr(s->p, earlier, other, sizeof other);
    if (a->operand < 0)
        return ORTH_FAIL(s->ctx, ORTH_ERR_INTERNAL, "%s calls on the communicator of %s, and no event orders them", one, other);
    const orth_operand *o = orth_instr_operand(&s->p->instrs[i], a->operand);
    return ORTH_FAIL(s->ctx, ORTH_ERR_INTERNAL, "%s %s '%s', and no event says that %s is complete, which touches the same bytes",
                     one, a->writes ? "writes" : "reads", s->p->buffers[o->buffer].name, other);
}

static orth_status prepare(proof *s)
{
    const orth_program *p = s->p;
    s->count = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_instrs + 1);
    s->where = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_instrs + 1);
    s->passed = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_queues);
    s->first = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, p->num_queues + 1);
    s->last = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t *, p->num_queues);
    s->clock = ORTH_ARENA_ARRAY(s->ctx, &s->arena, int32_t, (int64_t)(p->num_instrs + 1) * p->num_queues);
    if (!s->count || !s->where || !s->passed || !s->first || !s->last || !s->clock)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_instrs; i++)
        ORTH_TRY(check_queue(s, i));
    for (int32_t i = 0; i < p->num_instrs; i++)
        s->first[p->instrs[i].queue + 1]++;
    for (int32_t q = 0; q < p->num_queues; q++)
        s->first[q + 1] += s->first[q];
    return orth_touched_make(s->ctx, &s->arena, p, &s->touched);
}

static orth_status prove(proof *s)
{
    ORTH_TRY(prepare(s));
    for (int32_t i = 0; i < s->p->num_instrs; i++) {
        ORTH_TRY(check_waits(s, i));
        set_clock(s, i);
        ORTH_TRY(orth_touched_visit(&s->touched, i, must_happen_before, s));
        orth_touched_note(&s->touched, i);
    }
    return ORTH_OK;
}

orth_status orth_check_happens(orth_ctx *ctx, const orth_program *p)
{
    if (p->num_queues == 0)
        return ORTH_OK;
    proof s = {.ctx = ctx, .p = p};
    const orth_status status = prove(&s);
    orth_arena_release(ctx, &s.arena);
    return status;
}
