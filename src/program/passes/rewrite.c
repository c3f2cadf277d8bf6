/* rewrite.c -- see rewrite.h. */
#include "program/passes/rewrite.h"

/* The new list is about as long as the old one. */
#define MORE 256

static orth_status list_uses(orth_rewrite *r)
{
    int64_t total = 0;
    for (int32_t i = 0; i < r->num; i++)
        total += orth_instr_num_operands(&r->old[i]);
    r->uses = ORTH_NEW_ARRAY(r->ctx, orth_use, total + 1);
    r->first_use = ORTH_NEW_ARRAY(r->ctx, int32_t, (int64_t)r->p->num_buffers + 3);
    if (!r->uses || !r->first_use)
        return ORTH_ERR_NOMEM;
    /* Counted two places on, so that filling the lists moves each beginning to where it belongs. */
    for (int32_t i = 0; i < r->num; i++)
        for (int k = 0; k < orth_instr_num_operands(&r->old[i]); k++) {
            const int32_t buffer = orth_instr_operand(&r->old[i], k)->buffer;
            r->first_use[buffer + 2] += buffer >= 0;
        }
    for (int32_t b = 2; b < r->p->num_buffers + 3; b++)
        r->first_use[b] += r->first_use[b - 1];
    for (int32_t i = 0; i < r->num; i++)
        for (int k = 0; k < orth_instr_num_operands(&r->old[i]); k++) {
            const int32_t buffer = orth_instr_operand(&r->old[i], k)->buffer;
            const bool writes = k >= r->old[i].num_in;
            if (buffer >= 0)
                r->uses[r->first_use[buffer + 1]++] = (orth_use){i, writes};
        }
    return ORTH_OK;
}

orth_status orth_rewrite_begin(orth_ctx *ctx, orth_program *p, orth_rewrite *r)
{
    *r = (orth_rewrite){.ctx = ctx, .p = p, .old = p->instrs, .num = p->num_instrs};
    p->num_instrs = 0;
    p->cap_instrs = r->num + MORE;
    p->instrs = ORTH_NEW_ARRAY(ctx, orth_instr, p->cap_instrs);
    r->at = ORTH_NEW_ARRAY(ctx, int32_t, (int64_t)r->num + 1);
    if (p->instrs && r->at && list_uses(r) == ORTH_OK)
        return ORTH_OK;
    p->failed = true;
    return orth_rewrite_end(r);
}

void orth_rewrite_reach(orth_rewrite *r, int32_t i)
{
    r->at[i] = r->p->num_instrs;
}

orth_status orth_rewrite_end(orth_rewrite *r)
{
    for (int32_t i = 0; i < r->p->num_instrs && !r->p->failed; i++)
        if (r->p->instrs[i].until > 0)
            r->p->instrs[i].until = r->at[r->p->instrs[i].until];
    orth_mem_free(r->ctx, r->at);
    orth_mem_free(r->ctx, r->old);
    orth_mem_free(r->ctx, r->uses);
    orth_mem_free(r->ctx, r->first_use);
    return orth_program_done(r->p);
}

int32_t orth_uses_behind(const orth_rewrite *r, int32_t buffer, int32_t i)
{
    int32_t low = r->first_use[buffer], high = r->first_use[buffer + 1];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (r->uses[middle].instr > i)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* n writes bytes of operand k of `call`, or `call` writes them and n names them. */
static bool conflicts_with_operand(const orth_instr *n, const orth_instr *call, int k)
{
    for (int i = k < call->num_in ? n->num_in : 0; i < orth_instr_num_operands(n); i++)
        if (orth_operands_overlap(orth_instr_operand(n, i), orth_instr_operand(call, k)))
            return true;
    return false;
}

int32_t orth_conflict_behind(const orth_rewrite *r, int32_t i)
{
    const orth_instr *n = &r->old[i];
    int32_t first = r->num;
    for (int k = 0; k < orth_instr_num_operands(n); k++) {
        const int32_t buffer = orth_instr_operand(n, k)->buffer;
        if (buffer < 0)
            continue;
        for (int32_t u = orth_uses_behind(r, buffer, i); u < r->first_use[buffer + 1] && r->uses[u].instr < first; u++) {
            if (conflicts_with_operand(&r->old[r->uses[u].instr], n, k))
                first = r->uses[u].instr;
        }
    }
    return first;
}

int32_t orth_conflict_before(const orth_rewrite *r, int32_t i)
{
    const orth_instr *n = &r->old[i];
    int32_t last = -1;
    for (int k = 0; k < orth_instr_num_operands(n); k++) {
        const int32_t buffer = orth_instr_operand(n, k)->buffer;
        if (buffer < 0)
            continue;
        for (int32_t u = orth_uses_behind(r, buffer, i - 1) - 1; u >= r->first_use[buffer] && r->uses[u].instr > last; u--)
            if (k >= n->num_in || r->uses[u].writes)
                last = r->uses[u].instr;
    }
    return last;
}
