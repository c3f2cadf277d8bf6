/* embed.c -- token and position embeddings, plainly. Letters: see ops.def. */
#include "kernels/ref/ref.h"

orth_status orth_ref_embed(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int32_t *tok = call->in[0].data, *pos = call->in[1].data;
    const orth_tensor *wte = &call->in[2], *wpe = &call->in[3], *x = &call->out[0];
    const int64_t N = x->dim[0], C = x->dim[1];
    for (int64_t n = 0; n < N; n++) {
        const int64_t row = tok[n] - call->attr->first_row;
        const bool here = row >= 0 && row < wte->dim[0];
        for (int64_t c = 0; c < C; c++) {
            float v = here ? ref_get(wte, row * C + c) : 0.0f;
            if (here && wpe->data)
                v += ref_get(wpe, pos[n] * C + c);
            ref_put(x, n * C + c, v);
        }
    }
    return ORTH_OK;
}

typedef struct {
    const orth_tensor *dx;  /* [N,C] */
    const int32_t *row_of;  /* [N] */
    orth_split split;
    int64_t first_row;      /* what row_of calls row 0 of the table */
    int64_t C, row, col;
} gather;

/* Chain over the rows of one token slot that used table row `row`. */
static float gather_leaf(const void *arg, int64_t leaf)
{
    const gather *g = arg;
    float sum = 0;
    for (int64_t n = orth_split_bound(&g->split, leaf), end = orth_split_bound(&g->split, leaf + 1); n < end; n++)
        if (g->row_of[n] - g->first_row == g->row)
            sum += ref_get(g->dx, n * g->C + g->col);
    return sum;
}

static orth_status table_gradient(const orth_op_call *call, int64_t first_row)
{
    const orth_tensor *out = &call->out[0];
    gather g = {.dx = &call->in[1], .row_of = call->in[0].data, .first_row = first_row, .C = out->dim[1],
                .split = orth_token_split(call->attr)};
    for (g.row = 0; g.row < out->dim[0]; g.row++)
        for (g.col = 0; g.col < g.C; g.col++) {
            int64_t i = g.row * g.C + g.col;
            ref_put(out, i, ref_addends(call, i, ref_tree(gather_leaf, &g, 0, orth_split_leaves(&g.split))));
        }
    return ORTH_OK;
}

orth_status orth_ref_embed_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    return table_gradient(call, call->attr->first_row);
}

/* A position occurs at most once per sequence, so the tree over slots is the tree over sequences. */
orth_status orth_ref_pos_embed_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    return table_gradient(call, 0);
}
