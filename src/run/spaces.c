/* spaces.c -- an instruction in its memory spaces: open while it works, and closed in between where they can be. */
#include "run/executor_impl.h"

uint8_t executor_spaces_of(const orth_program *p, const orth_instr *n)
{
    int bits = 0;
    for (int k = 0; k < n->num_in; k++)
        bits |= n->in[k].buffer < 0 ? 0 : 1 << p->buffers[n->in[k].buffer].space;
    for (int k = 0; k < n->num_out; k++)
        bits |= n->out[k].buffer < 0 ? 0 : 1 << p->buffers[n->out[k].buffer].space;
    return (uint8_t)bits;
}

void executor_leave(const orth_executor *e, int32_t i)
{
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        if (!(e->spaces[i] >> s & 1))
            continue;
        e->region[s]->ops->leave(e->region[s]);
        if (e->lender && !e->borrowed)
            e->lender->region[s]->ops->leave(e->lender->region[s]);
    }
}

/* Those of the lender, too: external buffers are there. */
orth_status executor_enter(orth_ctx *ctx, const orth_executor *e, int32_t i)
{
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        if (!(e->spaces[i] >> s & 1))
            continue;
        ORTH_TRY(e->region[s]->ops->enter(ctx, e->region[s]));
        if (e->lender && !e->borrowed)
            ORTH_TRY(e->lender->region[s]->ops->enter(ctx, e->lender->region[s]));
    }
    return ORTH_OK;
}

/* `copy` between two spaces, one of which is the host's memory. */
orth_status executor_move_between(orth_ctx *ctx, const orth_executor *e, const orth_instr *n)
{
    size_t from, to;
    orth_region *in = executor_place_of(e, n->in[0].buffer, &from), *out = executor_place_of(e, n->out[0].buffer, &to);
    from += n->in[0].byte_offset;
    to += n->out[0].byte_offset;
    if (e->p->buffers[n->out[0].buffer].space == ORTH_SPACE_HOST)
        return in->ops->read(ctx, in, from, out->base + to, orth_operand_bytes(&n->in[0]));
    return out->ops->write(ctx, out, to, in->base + from, orth_operand_bytes(&n->in[0]));
}
