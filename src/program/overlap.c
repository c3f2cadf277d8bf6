/* overlap.c -- see overlap.h. */
#include "program/overlap.h"

/* Started calls: collectives of this pass, and the sends that the program has started already. */
typedef struct {
    int32_t call;            /* number in the program as it was */
    int32_t ticket, until;   /* until -1: the program has its own wait */
} flight;

typedef struct {
    orth_ctx *ctx;
    orth_program *p;
    const orth_instr *old;   /* [num] */
    int32_t num;
    int32_t *start, *until;  /* [num] of collectives: before which instructions they are started and waited for; -1 */
    int32_t *first, *next;   /* [num] calls that are started earlier than they stand: lists by start */
    uint8_t *mark;           /* [num_buffers] how the call that is looked at uses a buffer */
    flight flights[ORTH_MAX_TICKETS];
    int num_flights;
} pass;

enum { READS = 1, WRITES = 2 };

/* ---- where a call ends ---- */

static void set_marks(pass *s, const orth_instr *call, bool on)
{
    for (int k = 0; k < call->num_in; k++)
        s->mark[call->in[k].buffer] = on ? READS : 0;
    for (int k = 0; k < call->num_out; k++)
        s->mark[call->out[k].buffer] = on ? READS | WRITES : 0;
}

static bool any_overlap(const orth_operand *o, const orth_operand *of, int num)
{
    for (int k = 0; k < num; k++)
        if (orth_operands_overlap(o, &of[k]))
            return true;
    return false;
}

/* Whether n reads what the call writes, or writes what it reads or writes. */
static bool touches(const pass *s, const orth_instr *n, const orth_instr *call)
{
    for (int k = 0; k < n->num_in + n->num_out; k++) {
        const orth_operand *o = k < n->num_in ? &n->in[k] : &n->out[k - n->num_in];
        bool writes = k >= n->num_in;
        if (o->buffer < 0 || !s->mark[o->buffer])
            continue;
        if (any_overlap(o, call->out, call->num_out) || (writes && any_overlap(o, call->in, call->num_in)))
            return true;
    }
    return false;
}

static int32_t find_until(pass *s, int32_t i)
{
    const orth_instr *call = &s->old[i];
    int32_t at = i + 1;
    set_marks(s, call, true);
    while (at < s->num && (s->old[at].op == ORTH_OP_wait || !touches(s, &s->old[at], call)))
        at++;
    set_marks(s, call, false);
    return at;
}

/* ---- where it begins ---- */

static bool is_movable(const orth_instr *n)
{
    bool collective = n->op == ORTH_OP_all_reduce || n->op == ORTH_OP_reduce_scatter || n->op == ORTH_OP_all_gather ||
                      n->op == ORTH_OP_all_to_all;
    return collective && n->attr.ticket == 0;
}

/* As `touches`, for buffers as a whole: an empty piece of one is made before it is used, too. What a wait names may
 * be written until then. */
static bool shares_buffer(const pass *s, const orth_instr *n)
{
    for (int k = 0; k < n->num_in + n->num_out; k++) {
        const orth_operand *o = k < n->num_in ? &n->in[k] : &n->out[k - n->num_in];
        int use = o->buffer >= 0 ? s->mark[o->buffer] : 0;
        if (use & WRITES || (use && (k >= n->num_in || n->op == ORTH_OP_wait)))
            return true;
    }
    return false;
}

/* What call i must stand behind: other micro-batches, the calls of its group, and what touches its operands. */
static bool stands_behind(const pass *s, int32_t i, int32_t before)
{
    const orth_instr *n = &s->old[before], *call = &s->old[i];
    bool same_group = n->op >= ORTH_FIRST_COMM_OP && n->op != ORTH_OP_wait && n->attr.group == call->attr.group;
    return same_group || n->phase != call->phase || n->micro_batch != call->micro_batch || shares_buffer(s, n);
}

/* The instruction behind which call i is started: i, if there is nothing in between. */
static int32_t find_start(pass *s, int32_t i)
{
    int32_t at = i;
    set_marks(s, &s->old[i], true);
    while (at > 0 && !stands_behind(s, i, at - 1))
        at--;
    set_marks(s, &s->old[i], false);
    return at == i ? i : ORTH_MAX(at - 1, 0);
}

/* ZeRO 3: shards, which nobody writes before the update, become the parameters of a block. */
static bool gathers_block(const pass *s, int32_t i)
{
    const orth_instr *n = &s->old[i];
    return s->start[i] >= 0 && n->op == ORTH_OP_all_gather && n->phase != ORTH_PHASE_UPDATE &&
           s->p->buffers[n->in[0].buffer].cls == ORTH_CLASS_PARAMS;
}

static int64_t gathered_bytes(const orth_instr *n)
{
    int64_t bytes = 0;
    for (int k = 0; k < n->num_out; k++)
        bytes += (int64_t)orth_operand_bytes(&n->out[k]);
    return bytes;
}

/* Starts the gathers of a block where those of the block `prefetch` blocks earlier stand, or later, so that what is
 * gathered ahead stays within the limit. A block's gathers stand side by side. */
static void prefetch(pass *s, const orth_comm_policy *policy, int32_t *last, int64_t *bytes)
{
    int32_t num = 0, from = 0;
    int64_t ahead = 0; /* bytes of the blocks behind `from`, up to the one at hand */
    for (int32_t i = 0; i < s->num; i++) {
        if (!gathers_block(s, i))
            continue;
        if (num == 0 || last[num - 1] < i) {
            bytes[num++] = 0;
            for (int32_t k = i; k < s->num && gathers_block(s, k); k++) {
                bytes[num - 1] += gathered_bytes(&s->old[k]);
                last[num - 1] = k;
            }
            ahead += num > 1 ? bytes[num - 1] : 0;
            while (from < num - 1 && (num - 1 - from > policy->prefetch ||
                                      (policy->prefetch_bytes > 0 && ahead > policy->prefetch_bytes)))
                ahead -= bytes[++from];
        }
        s->start[i] = from == num - 1 ? i : last[from];
    }
}

static bool computes_between(const pass *s, int32_t begin, int32_t end, int32_t call)
{
    for (int32_t i = begin; i < end; i++)
        if (i != call && s->old[i].op < ORTH_FIRST_COMM_OP)
            return true;
    return false;
}

static orth_status decide(pass *s, const orth_comm_policy *policy)
{
    int32_t *last = ORTH_NEW_ARRAY(s->ctx, int32_t, s->num + 1);
    int64_t *bytes = ORTH_NEW_ARRAY(s->ctx, int64_t, s->num + 1);
    for (int32_t i = 0; i < s->num; i++) {
        bool movable = is_movable(&s->old[i]);
        s->start[i] = movable ? i : -1;
        s->until[i] = movable ? find_until(s, i) : -1;
        s->first[i] = s->next[i] = -1;
        if (!gathers_block(s, i))
            s->start[i] = movable ? find_start(s, i) : -1;
        else if (s->until[i] == s->num || s->old[s->until[i]].phase == ORTH_PHASE_UPDATE)
            s->start[i] = -1; /* its block reads nothing of it: it must not live on */
    }
    if (last && bytes)
        prefetch(s, policy, last, bytes);
    orth_mem_free(s->ctx, last);
    orth_mem_free(s->ctx, bytes);
    for (int32_t i = s->num - 1; i >= 0; i--) {
        int32_t start = s->start[i];
        if (start < 0)
            continue;
        if (!computes_between(s, start < i ? start + 1 : i, s->until[i], i)) {
            s->start[i] = -1; /* nothing to do meanwhile */
        } else if (start < i) {
            s->next[i] = s->first[start];
            s->first[start] = i;
        }
    }
    return last && bytes ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* ---- the new program ---- */

static void end_flight(pass *s, int f)
{
    s->num_flights--;
    memmove(s->flights + f, s->flights + f + 1, (size_t)(s->num_flights - f) * sizeof *s->flights);
}

/* The wait names all operands of the call: they live until then. */
static void emit_wait(pass *s, int f)
{
    const orth_instr *call = &s->old[s->flights[f].call];
    int num = call->num_in + call->num_out;
    orth_operand *all = ORTH_ARENA_ARRAY(s->ctx, &s->p->arena, orth_operand, num);
    s->p->failed = s->p->failed || !all;
    if (all) {
        memcpy(all, call->in, (size_t)call->num_in * sizeof *all);
        memcpy(all + call->num_in, call->out, (size_t)call->num_out * sizeof *all);
        orth_program_append(s->p, &(orth_instr){
            .op = ORTH_OP_wait, .attr = {.group = call->attr.group, .ticket = s->flights[f].ticket}, .in = all,
            .num_in = num, .phase = call->phase, .layer = call->layer, .micro_batch = call->micro_batch});
    }
    end_flight(s, f);
}

/* The lowest number that no call under way has. */
static int32_t free_ticket(pass *s)
{
    int32_t ticket = 1;
    for (int f = 0; f < s->num_flights; f++) {
        if (s->flights[f].ticket == ticket) {
            ticket++;
            f = -1;
        }
    }
    return ticket;
}

/* A call that starts early finds others under way which work on the same. */
static void wait_for_rivals(pass *s, int32_t call)
{
    set_marks(s, &s->old[call], true);
    for (int f = 0; f < s->num_flights; f++)
        if (s->flights[f].until >= 0 && touches(s, &s->old[s->flights[f].call], &s->old[call]))
            emit_wait(s, f--);
    set_marks(s, &s->old[call], false);
}

static void emit_start(pass *s, int32_t call, int32_t until)
{
    if (s->start[call] != call)
        wait_for_rivals(s, call);
    for (int f = 0; f < s->num_flights && s->num_flights >= ORTH_MAX_TICKETS - 1; f++)
        if (s->flights[f].until >= 0)
            emit_wait(s, f); /* the oldest */
    int32_t ticket = free_ticket(s);
    orth_instr *n = orth_program_append(s->p, &s->old[call]);
    if (n)
        n->attr.ticket = ticket;
    s->flights[s->num_flights++] = (flight){call, ticket, until};
}

/* Sends and their waits get new tickets. */
static void emit_own_wait(pass *s, int32_t i)
{
    int f = 0;
    while (s->flights[f].until >= 0 || s->old[s->flights[f].call].attr.ticket != s->old[i].attr.ticket)
        f++;
    orth_instr *n = orth_program_append(s->p, &s->old[i]);
    if (n)
        n->attr.ticket = s->flights[f].ticket;
    end_flight(s, f);
}

static void rewrite(pass *s)
{
    for (int32_t i = 0; i <= s->num && !s->p->failed; i++) {
        for (int f = 0; f < s->num_flights; f++)
            if (s->flights[f].until == i)
                emit_wait(s, f--);
        if (i == s->num)
            break;
        if (s->old[i].op == ORTH_OP_wait)
            emit_own_wait(s, i);
        else if (s->old[i].attr.ticket > 0)
            emit_start(s, i, -1);
        else if (s->start[i] < 0)
            orth_program_append(s->p, &s->old[i]);
        else if (s->start[i] == i)
            emit_start(s, i, s->until[i]);
        for (int32_t call = s->first[i]; call >= 0; call = s->next[call])
            emit_start(s, call, s->until[call]);
    }
}

orth_status orth_overlap(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy)
{
    pass s = {.ctx = ctx, .p = p, .old = p->instrs, .num = p->num_instrs};
    orth_instr *old = p->instrs;
    int32_t *all = ORTH_NEW_ARRAY(ctx, int32_t, 4 * (int64_t)s.num + 1);
    s.mark = ORTH_NEW_ARRAY(ctx, uint8_t, p->num_buffers + 1);
    s.start = all;
    s.until = all + s.num;
    s.first = all + 2 * (int64_t)s.num;
    s.next = all + 3 * (int64_t)s.num;
    orth_status status = all && s.mark ? decide(&s, policy) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK) {
        p->instrs = NULL;
        p->num_instrs = p->cap_instrs = 0;
        rewrite(&s);
        orth_mem_free(ctx, old);
        status = orth_program_done(p);
    }
    orth_mem_free(ctx, all);
    orth_mem_free(ctx, s.mark);
    return status;
}
