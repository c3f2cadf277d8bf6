/* overlap.c -- see overlap.h. */
#include "program/passes/overlap.h"

#include "program/passes/rewrite.h"

typedef struct {
    orth_rewrite r;
    int32_t *start, *until;  /* [r.num] of collectives: behind which instructions they begin, before which they end; -1 */
    int32_t *first, *next;   /* [r.num] calls that begin earlier than they stand: lists by start */
} pass;

/* ---- where a call begins and ends ---- */

static bool is_movable(const orth_instr *n)
{
    return orth_op_family_of(n->op) == ORTH_OPS_COLLECTIVE && n->until == 0;
}

/* The instruction behind which call i is started; i, if there is nothing in between. It stays in its micro-batch, and
 * behind the calls of its group. */
static int32_t find_start(const pass *s, int32_t i)
{
    const orth_instr *call = &s->r.old[i];
    int32_t at = i, rival = orth_conflict_before(&s->r, i);
    while (at > rival + 1) {
        const orth_instr *n = &s->r.old[at - 1];
        bool same_group = orth_op_is_comm(n->op) && n->attr->group == call->attr->group;
        if (same_group || n->phase != call->phase || n->micro_batch != call->micro_batch)
            break;
        at--;
    }
    return at == i ? i : ORTH_MAX(at - 1, 0);
}

static bool gathers_block(const pass *s, int32_t i)
{
    return s->start[i] >= 0 && orth_instr_gathers_params(s->r.p, &s->r.old[i]);
}

/* Gathers of a block, which stand side by side. */
typedef struct {
    int32_t last;         /* of them */
    int32_t last_use;     /* of what they make */
    int64_t elems;
} gathered;

static gathered block_at(const pass *s, int32_t i)
{
    gathered g = {.last = i};
    for (; i < s->r.num && gathers_block(s, i); i++) {
        const orth_instr *n = &s->r.old[i];
        g.last = i;
        g.elems += orth_instr_output_elems(n);
        for (int k = 0; k < n->num_out; k++) {
            const int32_t end = s->r.first_use[n->out[k].buffer + 1];
            g.last_use = ORTH_MAX(g.last_use, s->r.uses[end - 1].instr);
        }
    }
    return g;
}

/* Elements of blocks before `from` that are used when its own are there: layers that stay whole for their backward. */
static int64_t held_elems(const pass *s, const gathered *blocks, int32_t from)
{
    const int32_t at = blocks[from].last;
    int64_t elems = 0;
    for (int32_t k = from - 1; k >= 0 && s->r.old[blocks[k].last].micro_batch == s->r.old[at].micro_batch; k--)
        elems += blocks[k].last_use > at ? blocks[k].elems : 0;
    return elems;
}

/* ahead: elements of the blocks behind `from`, up to the last, which would begin beside `from`. */
static bool is_too_early(const pass *s, const orth_comm_policy *policy, const gathered *blocks, int32_t from, int32_t last, int64_t ahead)
{
    return last - from > policy->prefetch || (policy->prefetch_elems > 0 && ahead > policy->prefetch_elems) ||
           (policy->live_elems > 0 && ahead + blocks[from].elems + held_elems(s, blocks, from) > policy->live_elems);
}

/* Starts the gathers of a block where those of the block `prefetch` blocks earlier stand, or later, within the limits. */
static void prefetch(pass *s, const orth_comm_policy *policy, gathered *blocks)
{
    int32_t num = 0, from = 0;
    int64_t ahead = 0;
    for (int32_t i = 0; i < s->r.num; i++) {
        if (!gathers_block(s, i))
            continue;
        if (num == 0 || blocks[num - 1].last < i) {
            blocks[num++] = block_at(s, i);
            ahead += num > 1 ? blocks[num - 1].elems : 0;
            while (from < num - 1 && is_too_early(s, policy, blocks, from, num - 1, ahead))
                ahead -= blocks[++from].elems;
        }
        s->start[i] = from == num - 1 ? i : ORTH_MAX(blocks[from].last, orth_conflict_before(&s->r, i));
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
    gathered *blocks = ORTH_NEW_ARRAY(s->r.ctx, gathered, s->r.num + 1);
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
    if (blocks)
        prefetch(s, policy, blocks);
    orth_mem_free(s->r.ctx, blocks);
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
    return blocks ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* ---- the new program ---- */

static void append_started(pass *s, int32_t call)
{
    orth_instr *n = orth_program_append(s->r.p, &s->r.old[call]);
    if (n)
        n->until = s->until[call];
}

static void rewrite(pass *s)
{
    for (int32_t i = 0; i < s->r.num && !s->r.p->failed; i++) {
        orth_rewrite_reach(&s->r, i);
        if (s->start[i] < 0)
            orth_program_append(s->r.p, &s->r.old[i]);
        else if (s->start[i] == i)
            append_started(s, i);
        for (int32_t call = s->first[i]; call >= 0; call = s->next[call])
            append_started(s, call);
    }
    orth_rewrite_reach(&s->r, s->r.num);
}

orth_status orth_overlap(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy)
{
    pass s = {.start = NULL};
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
