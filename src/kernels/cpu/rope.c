/* rope.c -- rotary positions, rows shared out. */
#include "base/pool.h"
#include "kernels/cpu/head_rows.h"

#define ROWS 16 /* per task */

typedef struct {
    const orth_op_call *call;
    const orth_head_rows *rows;
} rope;

static void rope_task(void *arg, int64_t index, int worker)
{
    const rope *x = arg;
    (void)worker;
    const orth_attr *a = x->call->attr;
    const orth_tensor *in = &x->call->in[0], *out = &x->call->out[0];
    const int32_t *pos = x->call->in[1].data;
    const int D = a->head_dim;
    const size_t esize = orth_dtype_bytes(in->dtype), row_bytes = (size_t)orth_attn_qkv_cols(a) * esize;
    const int64_t end = ORTH_MIN((index + 1) * ROWS, in->dim[0]);
    for (int64_t n = index * ROWS; n < end; n++) {
        const char *from = (const char *)in->data + (size_t)n * row_bytes;
        char *to = (char *)out->data + (size_t)n * row_bytes;
        const float *row = (const float *)x->call->in[2].data + pos[n] * (int64_t)D;
        for (int j = 0; j < a->heads + a->kv_heads; j++) {
            const size_t at = (size_t)orth_head_col(a, j) * esize;
            x->rows->rotate(to + at, from + at, row, row + D / 2, D / 2, a->inverse ? -1.0f : 1.0f,
                            in->dtype);
        }
        for (int g = 0; g < a->kv_heads && to != from; g++) {
            const size_t at = (size_t)orth_attn_v_col(a, g) * esize;
            memcpy(to + at, from + at, (size_t)D * esize);
        }
    }
}

orth_status orth_cpu_rope(orth_ctx *ctx, const orth_op_call *call)
{
    rope x = {call, orth_head_rows_for(ctx->isa)};
    orth_pool_run(ctx->pool, orth_div_up(call->in[0].dim[0], ROWS), rope_task, &x);
    return ORTH_OK;
}
