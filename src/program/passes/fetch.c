/* fetch.c -- see fetch.h. The copies of a block, or of the sums that a product adds to, are a unit: they stand side by side. */
#include "program/passes/fetch.h"

#include "program/passes/rewrite.h"

/* What comes: each kind of it in the order of its uses. */
typedef enum { WEIGHTS = 0, SUMS, NUM_KINDS } kind;

typedef struct {
    int32_t begin, end;      /* instructions [begin, end) of the old list */
    int64_t elems;           /* that come to where kernels work */
    int32_t before;          /* the instruction of the old list before which it is to stand */
} unit;

typedef struct {
    orth_rewrite r;
    unit *units[NUM_KINDS];  /* [num] */
    int32_t num[NUM_KINDS];
} pass;

/* The kind of which an instruction brings something to where kernels work; NUM_KINDS: it does not. Nobody writes parameters before the
 * update. */
static kind brings(const pass *s, int32_t i)
{
    const orth_program *p = s->r.p;
    const orth_instr *n = &s->r.old[i];
    const orth_buffer *from, *to;
    if (n->phase == ORTH_PHASE_UPDATE || !orth_instr_copies(p, n, &from, &to) || to->copy_of == 0 || from->space == p->space)
        return NUM_KINDS;
    return to->cls == ORTH_CLASS_PARAMS ? WEIGHTS : SUMS;
}

/* ZeRO 3: reads what a unit copies, and stands behind it. */
static bool gathers_weights(const pass *s, int32_t i)
{
    if (i == s->r.num)
        return false;
    return orth_instr_gathers_params(s->r.p, &s->r.old[i]);
}

/* What a copy brings to where kernels work. A shard of a weight does not count, but what is gathered of it. */
static int64_t brought_elems(const pass *s, int32_t i, kind k)
{
    const orth_operand *o = &s->r.old[i].out[0];
    const bool near = s->r.p->buffers[o->buffer].space == s->r.p->space, shard = k == WEIGHTS && o->view != ORTH_VIEW_SAME;
    return near && !shard ? orth_operand_elems(o) : 0;
}

/* A gather of which this rank brings nothing is a unit, too: units and their elements are the same on all ranks, so that where copies stand
 * does not change the order of their calls. */
static void find_units(pass *s, kind k)
{
    for (int32_t i = 0; i < s->r.num; i++) {
        if (brings(s, i) != k && !(k == WEIGHTS && gathers_weights(s, i)))
            continue;
        unit *u = &s->units[k][s->num[k]++];
        *u = (unit){.begin = i, .before = i};
        for (; i < s->r.num && brings(s, i) == k; i++)
            u->elems += brought_elems(s, i, k);
        u->end = i;
        for (; k == WEIGHTS && gathers_weights(s, i); i++)
            u->elems += orth_instr_output_elems(&s->r.old[i]);
        i--;
    }
}

static bool is_gathered(const pass *s, const unit *u)
{
    return gathers_weights(s, u->end);
}

static void fetch_weights(pass *s, const orth_comm_policy *policy)
{
    unit *units = s->units[WEIGHTS];
    int64_t ahead = 0; /* elements of the units behind `from`, up to the one at hand */
    for (int32_t k = 0, from = 0; k < s->num[WEIGHTS]; k++) {
        const int32_t most = policy->prefetch + is_gathered(s, &units[k]);
        ahead += k > 0 ? units[k].elems : 0;
        while (from < k && (k - from > most || (policy->prefetch_elems > 0 && ahead > policy->prefetch_elems)))
            ahead -= units[++from].elems;
        units[k].before = units[from].begin;
    }
}

/* The instruction behind which all copies of a unit may stand. */
static int32_t last_conflict(const pass *s, const unit *u)
{
    int32_t last = -1;
    for (int32_t i = u->begin; i < u->end; i++) {
        const int32_t at = orth_conflict_before(&s->r, i);
        last = at < u->begin ? ORTH_MAX(last, at) : last; /* else another copy of the unit */
    }
    return last;
}

/* Both belong to one phase of one micro-batch. */
static bool are_together(const pass *s, const unit *a, const unit *b)
{
    const orth_instr *x = &s->r.old[a->begin], *y = &s->r.old[b->begin];
    return x->micro_batch == y->micro_batch && x->phase == y->phase;
}

/* A sum comes while the product computes that adds to the one before it, so that two are there at once. Beside a matrix those of gains and
 * biases of its layer, which take no time, do not count: they come with it. */
static void fetch_sums(pass *s)
{
    unit *units = s->units[SUMS];
    const int32_t num = s->num[SUMS];
    for (int32_t k = num - 1; k > 0; k--) {
        unit *u = &units[k], *last = u - 1;
        while (last > units && last->elems < u->elems / 8 && s->r.old[last->begin].layer == s->r.old[u->begin].layer)
            last--;
        const int32_t from = are_together(s, last, u) ? last->end : u->begin;
        const int32_t next = k + 1 < num && are_together(s, u, u + 1) ? u[1].before : u->begin;
        u->before = ORTH_MAX(ORTH_MIN(from, next), last_conflict(s, u) + 1);
    }
    for (int32_t k = 1; k < num; k++)
        units[k].before = ORTH_MAX(units[k].before, units[k - 1].before);
}

static void rewrite(pass *s)
{
    int32_t next[NUM_KINDS] = {0};
    for (int32_t i = 0; i < s->r.num && !s->r.p->failed; i++) {
        orth_rewrite_reach(&s->r, i);
        for (int k = 0; k < NUM_KINDS; k++)
            for (; next[k] < s->num[k] && s->units[k][next[k]].before == i; next[k]++)
                for (int32_t j = s->units[k][next[k]].begin; j < s->units[k][next[k]].end; j++)
                    orth_program_append(s->r.p, &s->r.old[j]);
        if (brings(s, i) == NUM_KINDS)
            orth_program_append(s->r.p, &s->r.old[i]);
    }
    orth_rewrite_reach(&s->r, s->r.num);
}

orth_status orth_fetch_ahead(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy)
{
    pass s = {.num = {0}};
    ORTH_TRY(orth_rewrite_begin(ctx, p, &s.r));
    for (int k = 0; k < NUM_KINDS; k++) {
        s.units[k] = ORTH_NEW_ARRAY(ctx, unit, s.r.num + 1);
        p->failed = p->failed || !s.units[k];
        if (s.units[k])
            find_units(&s, (kind)k);
    }
    if (!p->failed && policy->prefetch > 0) {
        fetch_weights(&s, policy);
        fetch_sums(&s);
    }
    if (!p->failed)
        rewrite(&s);
    for (int k = 0; k < NUM_KINDS; k++)
        orth_mem_free(ctx, s.units[k]);
    return orth_rewrite_end(&s.r);
}
