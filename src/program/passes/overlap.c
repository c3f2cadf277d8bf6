/* overlap.c -- see overlap.h. */
#include "program/passes/overlap.h"

#include "program/passes/rewrite.h"

/* Started calls: collectives of this pass, and the sends that the program has started already. */
typedef struct {
    int32_t call;            /* number in the program as it was */
    int32_t ticket, until;   /* until -1: the program has its own wait */
} flight;

typedef struct {
    orth_rewrite r;
    int32_t *start, *until;  /* [r.num] of collectives: before which instructions they are started and waited for; -1 */
    int32_t *first, *next;   /* [r.num] calls that are started earlier than they stand: lists by start */
    flight flights[ORTH_MAX_TICKETS];
    int num_flights;
} pass;

/* ---- where a call begins and ends ---- */

static bool is_movable(const orth_instr *n)
{
    return orth_op_family_of(n->op) == ORTH_OPS_COLLECTIVE && n->attr.ticket == 0;
}

/* The instruction behind which call i is started; i, if there is nothing in between. It stays in its micro-batch, and
 * behind the calls of its group. */
static int32_t find_start(const pass *s, int32_t i)
{
    const orth_instr *call = &s->r.old[i];
    int32_t at = i, rival = orth_conflict_before(&s->r, i);
    while (at > rival + 1) {
        const orth_instr *n = &s->r.old[at - 1];
        bool same_group = orth_op_is_comm(n->op) && !orth_op_is_wait(n->op) && n->attr.group == call->attr.group;
        if (same_group || n->phase != call->phase || n->micro_batch != call->micro_batch)
            break;
        at--;
    }
    return at == i ? i : ORTH_MAX(at - 1, 0);
}

/* ZeRO 3: shards, which nobody writes before the update, become the parameters of a block. */
static bool gathers_block(const pass *s, int32_t i)
{
    const orth_instr *n = &s->r.old[i];
    return s->start[i] >= 0 && n->op == ORTH_OP_all_gather && n->phase != ORTH_PHASE_UPDATE &&
           s->r.p->buffers[n->in[0].buffer].cls == ORTH_CLASS_PARAMS;
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
    for (int32_t i = 0; i < s->r.num; i++) {
        if (!gathers_block(s, i))
            continue;
        if (num == 0 || last[num - 1] < i) {
            bytes[num++] = 0;
            for (int32_t k = i; k < s->r.num && gathers_block(s, k); k++) {
                bytes[num - 1] += gathered_bytes(&s->r.old[k]);
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
        if (i != call && !orth_op_is_comm(s->r.old[i].op))
            return true;
    return false;
}

static orth_status decide(pass *s, const orth_comm_policy *policy)
{
    int32_t *last = ORTH_NEW_ARRAY(s->r.ctx, int32_t, s->r.num + 1);
    int64_t *bytes = ORTH_NEW_ARRAY(s->r.ctx, int64_t, s->r.num + 1);
    for (int32_t i = 0; i < s->r.num; i++) {
        bool movable = is_movable(&s->r.old[i]);
        s->start[i] = movable ? i : -1;
        s->until[i] = movable ? orth_conflict_behind(&s->r, i) : -1;
        s->first[i] = s->next[i] = -1;
        if (!gathers_block(s, i))
            s->start[i] = movable ? find_start(s, i) : -1;
        else if (s->until[i] == s->r.num || s->r.old[s->until[i]].phase == ORTH_PHASE_UPDATE)
            s->start[i] = -1; /* its block reads nothing of it: it must not live on */
    }
    if (last && bytes)
        prefetch(s, policy, last, bytes);
    orth_mem_free(s->r.ctx, last);
    orth_mem_free(s->r.ctx, bytes);
    for (int32_t i = s->r.num - 1; i >= 0; i--) {
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
    const orth_instr *call = &s->r.old[s->flights[f].call];
    int num = call->num_in + call->num_out;
    orth_operand *all = ORTH_ARENA_ARRAY(s->r.ctx, &s->r.p->arena, orth_operand, num);
    s->r.p->failed = s->r.p->failed || !all;
    if (all) {
        memcpy(all, call->in, (size_t)call->num_in * sizeof *all);
        memcpy(all + call->num_in, call->out, (size_t)call->num_out * sizeof *all);
        orth_program_append(s->r.p, &(orth_instr){
            .op = ORTH_OP_wait, .attr = {.group = call->attr.group, .ticket = s->flights[f].ticket}, .in = all,
            .num_in = num, .phase = call->phase, .layer = call->layer, .micro_batch = call->micro_batch, .action = -1,
            .block = call->block, .node = call->node});
    }
    end_flight(s, f);
}

/* The lowest number that no call under way has. */
static int32_t free_ticket(const pass *s)
{
    bool taken[ORTH_MAX_TICKETS + 1] = {false};
    for (int f = 0; f < s->num_flights; f++)
        taken[s->flights[f].ticket] = true;
    int32_t ticket = 1;
    while (taken[ticket])
        ticket++;
    return ticket;
}

/* A call that starts early finds others under way which work on the same. */
static void wait_for_rivals(pass *s, int32_t call)
{
    for (int f = 0; f < s->num_flights; f++)
        if (s->flights[f].until >= 0 && orth_instrs_conflict(&s->r.old[s->flights[f].call], &s->r.old[call]))
            emit_wait(s, f--);
}

static void emit_start(pass *s, int32_t call, int32_t until)
{
    if (s->start[call] != call)
        wait_for_rivals(s, call);
    for (int f = 0; f < s->num_flights && s->num_flights >= ORTH_MAX_TICKETS - 1; f++)
        if (s->flights[f].until >= 0)
            emit_wait(s, f); /* the oldest */
    int32_t ticket = free_ticket(s);
    orth_instr *n = orth_program_append(s->r.p, &s->r.old[call]);
    if (n)
        n->attr.ticket = ticket;
    s->flights[s->num_flights++] = (flight){call, ticket, until};
}

/* Sends and their waits get new tickets. */
static void emit_own_wait(pass *s, int32_t i)
{
    int f = 0;
    while (s->flights[f].until >= 0 || s->r.old[s->flights[f].call].attr.ticket != s->r.old[i].attr.ticket)
        f++;
    orth_instr *n = orth_program_append(s->r.p, &s->r.old[i]);
    if (n)
        n->attr.ticket = s->flights[f].ticket;
    end_flight(s, f);
}

static void rewrite(pass *s)
{
    for (int32_t i = 0; i <= s->r.num && !s->r.p->failed; i++) {
        for (int f = 0; f < s->num_flights; f++)
            if (s->flights[f].until == i)
                emit_wait(s, f--);
        if (i == s->r.num)
            break;
        if (orth_op_is_wait(s->r.old[i].op))
            emit_own_wait(s, i);
        else if (s->r.old[i].attr.ticket > 0)
            emit_start(s, i, -1);
        else if (s->start[i] < 0)
            orth_program_append(s->r.p, &s->r.old[i]);
        else if (s->start[i] == i)
            emit_start(s, i, s->until[i]);
        for (int32_t call = s->first[i]; call >= 0; call = s->next[call])
            emit_start(s, call, s->until[call]);
    }
}

orth_status orth_overlap(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy)
{
    pass s = {.num_flights = 0};
    ORTH_TRY(orth_rewrite_begin(ctx, p, &s.r));
    int32_t *all = ORTH_NEW_ARRAY(ctx, int32_t, 4 * (int64_t)s.r.num + 1);
    if (all) {
        s.start = all;
        s.until = all + s.r.num;
        s.first = all + 2 * (int64_t)s.r.num;
        s.next = all + 3 * (int64_t)s.r.num;
    }
    if (all && decide(&s, policy) == ORTH_OK)
        rewrite(&s);
    else
        p->failed = true;
    orth_mem_free(ctx, all);
    return orth_rewrite_end(&s.r);
}
