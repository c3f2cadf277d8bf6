/* overlap.c -- see overlap.h. */
#include "program/passes/overlap.h"

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
    int32_t *uses;           /* instructions that name a buffer, in order: those of b from first_use[b] on */
    int32_t *first_use;      /* [num_buffers + 3] */
    flight flights[ORTH_MAX_TICKETS];
    int num_flights;
} pass;

/* ---- where a call ends ---- */

static int num_operands(const orth_instr *n)
{
    return n->num_in + n->num_out;
}

static const orth_operand *operand(const orth_instr *n, int k)
{
    return k < n->num_in ? &n->in[k] : &n->out[k - n->num_in];
}

static orth_status list_uses(pass *s)
{
    int64_t total = 0;
    for (int32_t i = 0; i < s->num; i++)
        total += num_operands(&s->old[i]);
    s->uses = ORTH_NEW_ARRAY(s->ctx, int32_t, total + 1);
    s->first_use = ORTH_NEW_ARRAY(s->ctx, int32_t, s->p->num_buffers + 3);
    if (!s->uses || !s->first_use)
        return ORTH_ERR_NOMEM;
    /* Counted two places on, so that filling the lists moves each beginning to where it belongs. */
    for (int32_t i = 0; i < s->num; i++)
        for (int k = 0; k < num_operands(&s->old[i]); k++)
            s->first_use[operand(&s->old[i], k)->buffer + 2] += operand(&s->old[i], k)->buffer >= 0;
    for (int32_t b = 2; b < s->p->num_buffers + 3; b++)
        s->first_use[b] += s->first_use[b - 1];
    for (int32_t i = 0; i < s->num; i++)
        for (int k = 0; k < num_operands(&s->old[i]); k++)
            if (operand(&s->old[i], k)->buffer >= 0)
                s->uses[s->first_use[operand(&s->old[i], k)->buffer + 1]++] = i;
    return ORTH_OK;
}

/* Whether n reads operand k of the call, which it writes, or writes what it reads or writes. */
static bool touches_operand(const orth_instr *n, const orth_instr *call, int k)
{
    for (int i = k < call->num_in ? n->num_in : 0; i < num_operands(n); i++)
        if (orth_operands_overlap(operand(n, i), operand(call, k)))
            return true;
    return false;
}

static bool touches(const orth_instr *n, const orth_instr *call)
{
    for (int k = 0; k < num_operands(call); k++)
        if (touches_operand(n, call, k))
            return true;
    return false;
}

/* Place in `uses` of the first instruction behind i that names the buffer. */
static int32_t first_use_behind(const pass *s, int32_t buffer, int32_t i)
{
    int32_t low = s->first_use[buffer], high = s->first_use[buffer + 1];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (s->uses[middle] > i)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int32_t find_until(const pass *s, int32_t i)
{
    const orth_instr *call = &s->old[i];
    int32_t until = s->num;
    for (int k = 0; k < num_operands(call); k++) {
        const int32_t buffer = operand(call, k)->buffer;
        for (int32_t u = buffer < 0 ? 0 : first_use_behind(s, buffer, i);
             buffer >= 0 && u < s->first_use[buffer + 1] && s->uses[u] < until; u++)
            if (!orth_op_is_wait(s->old[s->uses[u]].op) && touches_operand(&s->old[s->uses[u]], call, k))
                until = s->uses[u];
    }
    return until;
}

/* ---- where it begins ---- */

static bool is_movable(const orth_instr *n)
{
    return orth_op_family_of(n->op) == ORTH_OPS_COLLECTIVE && n->attr.ticket == 0;
}

static bool writes(const orth_instr *n, int32_t buffer)
{
    for (int k = 0; k < n->num_out; k++)
        if (n->out[k].buffer == buffer)
            return true;
    return orth_op_is_wait(n->op); /* what it names may be written until then */
}

/* The last instruction before call i on whose work the call's depends, or the other way round; -1. Buffers count as a
 * whole: an empty piece of one is made before it is used, too. */
static int32_t last_rival(const pass *s, int32_t i)
{
    const orth_instr *call = &s->old[i];
    int32_t rival = -1;
    for (int k = 0; k < num_operands(call); k++) {
        const int32_t buffer = operand(call, k)->buffer;
        for (int32_t u = buffer < 0 ? -1 : first_use_behind(s, buffer, i - 1) - 1;
             buffer >= 0 && u >= s->first_use[buffer] && s->uses[u] > rival; u--)
            if (k >= call->num_in || writes(&s->old[s->uses[u]], buffer))
                rival = s->uses[u];
    }
    return rival;
}

/* The instruction behind which call i is started; i, if there is nothing in between. It stays in its micro-batch, and
 * behind the calls of its group. */
static int32_t find_start(const pass *s, int32_t i)
{
    const orth_instr *call = &s->old[i];
    int32_t at = i, rival = last_rival(s, i);
    while (at > rival + 1) {
        const orth_instr *n = &s->old[at - 1];
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
        if (i != call && !orth_op_is_comm(s->old[i].op))
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
            .num_in = num, .phase = call->phase, .layer = call->layer, .micro_batch = call->micro_batch, .action = -1});
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
        if (s->flights[f].until >= 0 && touches(&s->old[s->flights[f].call], &s->old[call]))
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
        if (orth_op_is_wait(s->old[i].op))
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
    s.start = all;
    s.until = all + s.num;
    s.first = all + 2 * (int64_t)s.num;
    s.next = all + 3 * (int64_t)s.num;
    orth_status status = all ? list_uses(&s) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK)
        status = decide(&s, policy);
    if (status == ORTH_OK) {
        p->instrs = NULL;
        p->num_instrs = p->cap_instrs = 0;
        rewrite(&s);
        orth_mem_free(ctx, old);
        status = orth_program_done(p);
    }
    orth_mem_free(ctx, all);
    orth_mem_free(ctx, s.uses);
    orth_mem_free(ctx, s.first_use);
    return status;
}
