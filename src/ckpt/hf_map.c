/* hf_map.c -- which of Hugging Face's tensors make up which of our parameters, and in what order.
 *
 * Our rows: kernels/ops.def. For kv head g: k_g, v_g, then the G = H/KV query heads of its group, D
 * rows each; gate and up rows alternate. Theirs: q, k, v one after the other by head; gate and up
 * apart. The names of their tensors are columns of model/weights.def.
 */
#include <inttypes.h>

#include "ckpt/hf.h"

static int64_t stored_rows(const orth_model_config *c, const orth_param *p, orth_hf_rows rows)
{
    switch (rows) {
    case ORTH_HF_Q:
        return c->heads * c->head_dim;
    case ORTH_HF_K:
    case ORTH_HF_V:
        return c->kv_heads * c->head_dim;
    case ORTH_HF_GATE:
    case ORTH_HF_UP:
        return c->ffn;
    case ORTH_HF_ALL:
    case ORTH_HF_QKV:
        break;
    }
    return p->dim[0];
}

static orth_hf_tensor tensor_of(const orth_model_config *c, const orth_param *p, const orth_hf_names *names, int part)
{
    orth_hf_tensor t = {.rows = names->part[part].rows, .transposed = names->transposed, .num_dims = p->num_dims,
                        .heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim,
                        .heads_per_group = c->heads / c->kv_heads, .our_cols = p->dim[1]};
    t.prefix_chars = orth_param_hf_name(c, p, part, t.name);
    const int64_t rows = stored_rows(c, p, t.rows);
    t.dim[0] = t.transposed ? p->dim[1] : rows;
    t.dim[1] = t.transposed ? rows : p->dim[1];
    return t;
}

orth_status orth_hf_map_param(orth_ctx *ctx, const orth_model_config *c, int64_t index,
                              orth_hf_tensor out[ORTH_HF_MAX_PARTS], int *out_num)
{
    orth_param p;
    ORTH_TRY(orth_model_param(ctx, c, index, &p));
    const orth_weight w = orth_weight_get(c, p.weight);
    const orth_hf_names *names = &w.hf[c->family];
    int n = 0;
    for (; n < ORTH_HF_MAX_PARTS && names->part[n].name; n++)
        out[n] = tensor_of(c, &p, names, n);
    if (n == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "parameter %s has no name in Hugging Face's form", p.name);
    *out_num = n;
    return ORTH_OK;
}

/* Row of our parameter that is their row i, counted along the output dim. */
static int64_t our_row(const orth_hf_tensor *t, int64_t i)
{
    const int64_t D = t->head_dim, G = t->heads_per_group, H = t->heads, KV = t->kv_heads;
    const int64_t head = i / D, d = i % D;
    switch (t->rows) {
    case ORTH_HF_Q:
        return D * (head + 2 * (head / G + 1)) + d;
    case ORTH_HF_K:
        return D * head * (G + 2) + d;
    case ORTH_HF_V:
        return D * (head * (G + 2) + 1) + d;
    case ORTH_HF_QKV:
        if (head < H)
            return D * (head + 2 * (head / G + 1)) + d;
        return head < H + KV ? D * (head - H) * (G + 2) + d : D * ((head - H - KV) * (G + 2) + 1) + d;
    case ORTH_HF_GATE:
        return 2 * i;
    case ORTH_HF_UP:
        return 2 * i + 1;
    case ORTH_HF_ALL:
        break;
    }
    return i;
}

int64_t orth_hf_row_elems(const orth_hf_tensor *t)
{
    return t->dim[1];
}

/* About 256 KB, and for a transposed tensor enough rows that each cache line of ours is used whole. */
int64_t orth_hf_block_rows(const orth_hf_tensor *t)
{
    return ORTH_MIN(t->dim[0], ORTH_MAX((int64_t)(1 << 16) / orth_hf_row_elems(t), 16));
}

void orth_hf_gather_rows(float *rows, const orth_hf_tensor *t, const float *ours, int64_t first, int64_t n)
{
    const int64_t W = orth_hf_row_elems(t), C = t->our_cols;
    if (!t->transposed) {
        for (int64_t i = 0; i < n; i++)
            memcpy(rows + i * W, ours + our_row(t, first + i) * C, (size_t)W * sizeof(float));
        return;
    }
    for (int64_t o = 0; o < W; o++) {
        const float *src = ours + our_row(t, o) * C + first;
        for (int64_t i = 0; i < n; i++)
            rows[i * W + o] = src[i];
    }
}

void orth_hf_scatter_rows(float *ours, const orth_hf_tensor *t, const float *rows, int64_t first, int64_t n)
{
    const int64_t W = orth_hf_row_elems(t), C = t->our_cols;
    if (!t->transposed) {
        for (int64_t i = 0; i < n; i++)
            memcpy(ours + our_row(t, first + i) * C, rows + i * W, (size_t)W * sizeof(float));
        return;
    }
    for (int64_t o = 0; o < W; o++) {
        float *dst = ours + our_row(t, o) * C + first;
        for (int64_t i = 0; i < n; i++)
            dst[i] = rows[i * W + o];
    }
}
