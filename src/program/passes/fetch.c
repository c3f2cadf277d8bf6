/* fetch.c -- see fetch.h. The copies of a block are a unit: they stand side by side. */
#include "program/passes/fetch.h"

#include "program/passes/rewrite.h"

typedef struct {
    int32_t begin, end;      /* instructions [begin, end) of the old list */
    int64_t bytes;           /* that come to where kernels work */
    int32_t at;              /* the unit whose place it gets */
} unit;

typedef struct {
    orth_rewrite r;
    unit *units;             /* [num] */
    int32_t num;
} pass;

/* A copy from a parameter on its way to where kernels work. Nobody writes parameters before the update. */
static bool fetches(const pass *s, int32_t i)
{
    const orth_instr *n = &s->r.old[i];
    if (n->op != ORTH_OP_copy || n->phase == ORTH_PHASE_UPDATE)
        return false;
    const orth_buffer *to = &s->r.p->buffers[n->out[0].buffer];
    return to->copy_of > 0 && to->cls == ORTH_CLASS_PARAMS;
}

static void find_units(pass *s)
{
    for (int32_t i = 0; i < s->r.num; i++) {
        if (!fetches(s, i))
            continue;
        unit *u = &s->units[s->num++];
        *u = (unit){.begin = i};
        for (; i < s->r.num && fetches(s, i); i++)
            if (s->r.p->buffers[s->r.old[i].out[0].buffer].space == s->r.p->space)
                u->bytes += (int64_t)orth_operand_bytes(&s->r.old[i].out[0]);
        u->end = i;
    }
}

/* The gather that reads what a unit copies stands behind it. */
static bool is_gathered(const pass *s, const unit *u)
{
    return u->end < s->r.num && s->r.old[u->end].op == ORTH_OP_all_gather;
}

static void decide(pass *s, const orth_comm_policy *policy)
{
    int64_t ahead = 0; /* bytes of the units behind `from`, up to the one at hand */
    for (int32_t k = 0, from = 0; k < s->num; k++) {
        const int32_t most = policy->prefetch > 0 ? policy->prefetch + is_gathered(s, &s->units[k]) : 0;
        ahead += k > 0 ? s->units[k].bytes : 0;
        while (from < k && (k - from > most || (policy->prefetch_bytes > 0 && ahead > policy->prefetch_bytes)))
            ahead -= s->units[++from].bytes;
        s->units[k].at = from;
    }
}

static void append(pass *s, const unit *u)
{
    for (int32_t i = u->begin; i < u->end; i++)
        orth_program_append(s->r.p, &s->r.old[i]);
}

static void rewrite(pass *s)
{
    int32_t k = 0, next = 0; /* the unit that stands at i or behind; the first that is not in the new list */
    for (int32_t i = 0; i < s->r.num && !s->r.p->failed; i++) {
        orth_rewrite_reach(&s->r, i);
        if (k == s->num || i < s->units[k].begin) {
            orth_program_append(s->r.p, &s->r.old[i]);
            continue;
        }
        for (; i == s->units[k].begin && next < s->num && s->units[next].at <= k; next++)
            append(s, &s->units[next]);
        k += i + 1 == s->units[k].end;
    }
    orth_rewrite_reach(&s->r, s->r.num);
}

orth_status orth_fetch_ahead(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy)
{
    pass s = {.num = 0};
    ORTH_TRY(orth_rewrite_begin(ctx, p, &s.r));
    s.units = ORTH_NEW_ARRAY(ctx, unit, s.r.num + 1);
    if (s.units) {
        find_units(&s);
        decide(&s, policy);
        rewrite(&s);
    } else {
        p->failed = true;
    }
    orth_mem_free(ctx, s.units);
    return orth_rewrite_end(&s.r);
}
