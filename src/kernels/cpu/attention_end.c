/* attention_end.c -- what attention by blocks of keys begins and ends with: blocks that can travel, the last division,
 * the gradients back in fused rows. Letters: ops.def.
 */
#include "base/pool.h"
#include "kernels/cpu/attention_micro.h"
#include "kernels/cpu/rows.h"

#define ROWS_PER_TASK 16
#define MAX_D 1024 /* model.head_dim */

typedef struct {
    const orth_op_call *call;
    const orth_attn_micro *micro;
    const orth_rows *rows;
    int64_t N;
} block_job;

static orth_status run(orth_ctx *ctx, const orth_op_call *call, orth_dtype type, int64_t N, orth_task_fn task)
{
    block_job job = {call, orth_attn_micro_for(type, ctx->isa), orth_rows_for(ctx->isa), N};
    orth_pool_run(ctx->pool, orth_div_up(N, ROWS_PER_TASK), task, &job);
    return ORTH_OK;
}

/* 16 heads at a time: the width in which logarithms are taken. */
static void end_row(const block_job *j, int64_t n)
{
    const int D = j->call->attr->head_dim, H = j->call->attr->heads;
    const orth_tensor *o = &j->call->out[0];
    const float *from = j->call->in[0].data, *ml = j->call->in[1].data;
    for (int h0 = 0; h0 < H; h0 += 16) {
        const int heads = ORTH_MIN(16, H - h0);
        float m[16] = {0}, l[16] = {0}, row[MAX_D];
        for (int i = 0; i < heads; i++) {
            m[i] = ml[2 * (n * H + h0 + i)];
            l[i] = ml[2 * (n * H + h0 + i) + 1];
        }
        j->micro->finish(m, l, heads);
        for (int i = 0; i < heads; i++) {
            const int64_t at = n * H + h0 + i;
            memset(row, 0, (size_t)orth_attn_padded(D) * sizeof(float));
            memcpy(row, from + at * D, (size_t)D * sizeof(float));
            j->micro->store_row((char *)o->data + (size_t)(at * D) * orth_dtype_bytes(o->dtype), row, D, l[i], o->dtype);
            ((float *)j->call->out[1].data)[at] = m[i];
        }
    }
}

static void end_task(void *arg, int64_t task, int worker)
{
    const block_job *j = arg;
    (void)worker;
    for (int64_t n = task * ROWS_PER_TASK; n < ORTH_MIN(j->N, (task + 1) * ROWS_PER_TASK); n++)
        end_row(j, n);
}

orth_status orth_cpu_attention_end(orth_ctx *ctx, const orth_op_call *call)
{
    return run(ctx, call, call->out[0].dtype, call->out[0].dim[0], end_task);
}

static void blocks_task(void *arg, int64_t task, int worker)
{
    const block_job *j = arg;
    const orth_attr *a = j->call->attr;
    const size_t esize = orth_dtype_bytes(j->call->in[0].dtype), pair = (size_t)a->head_dim * 2 * esize;
    (void)worker;
    for (int64_t n = task * ROWS_PER_TASK; n < ORTH_MIN(j->N, (task + 1) * ROWS_PER_TASK); n++) {
        const int64_t to = orth_attn_block_row(a, n / a->seq_len, n % a->seq_len);
        for (int g = 0; g < a->kv_heads; g++)
            memcpy((char *)j->call->out[0].data + (size_t)(to * a->kv_heads + g) * pair,
                   (const char *)j->call->in[0].data + (size_t)(n * orth_attn_qkv_cols(a) + orth_attn_k_col(a, g)) * esize,
                   pair);
    }
}

orth_status orth_cpu_kv_blocks(orth_ctx *ctx, const orth_op_call *call)
{
    return run(ctx, call, call->in[0].dtype, call->in[0].dim[0], blocks_task);
}

/* Adding +0 gives a zero one sign, as the stores of attention_bwd do. */
static void grad_task(void *arg, int64_t task, int worker)
{
    const block_job *j = arg;
    const orth_attr *a = j->call->attr;
    const orth_tensor *out = &j->call->out[0];
    const int64_t D = a->head_dim, G = a->heads / a->kv_heads, pair = 2 * D;
    const float *dq = j->call->in[0].data, *dkv = j->call->in[1].data;
    const size_t esize = orth_dtype_bytes(out->dtype);
    static const float zero[MAX_D];
    (void)worker;
    for (int64_t n = task * ROWS_PER_TASK; n < ORTH_MIN(j->N, (task + 1) * ROWS_PER_TASK); n++) {
        const int64_t from = orth_attn_block_row(a, n / a->seq_len, n % a->seq_len);
        char *row = (char *)out->data + (size_t)(n * orth_attn_qkv_cols(a)) * esize;
        for (int g = 0; g < a->kv_heads; g++) {
            j->rows->round_bias(row + (size_t)orth_attn_k_col(a, g) * esize, dkv + (from * a->kv_heads + g) * pair, NULL,
                                pair, out->dtype);
            for (int64_t h = g * G; h < (g + 1) * G; h++)
                j->rows->round_bias(row + (size_t)orth_attn_q_col(a, (int)h) * esize, dq + (n * a->heads + h) * D, zero,
                                    D, out->dtype);
        }
    }
}

orth_status orth_cpu_kv_blocks_grad(orth_ctx *ctx, const orth_op_call *call)
{
    return run(ctx, call, call->out[0].dtype, call->out[0].dim[0], grad_task);
}
