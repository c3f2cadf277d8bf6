/* pointwise.c -- swiglu, add, bias, dropout, cast, plainly. Letters: see ops.def. */
#include "base/rng.h"
#include "kernels/dropout.h"
#include "kernels/mathf.h"
#include "kernels/ref/ref.h"

orth_status orth_ref_swiglu(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t n = orth_tensor_elems(&call->out[0]);
    for (int64_t i = 0; i < n; i++)
        ref_put(&call->out[0], i,
                orth_siluf(ref_get(&call->in[0], 2 * i)) * ref_get(&call->in[0], 2 * i + 1));
    return ORTH_OK;
}

orth_status orth_ref_swiglu_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t n = orth_tensor_elems(&call->in[0]);
    for (int64_t i = 0; i < n; i++) {
        float da = ref_get(&call->in[0], i);
        float gate = ref_get(&call->in[1], 2 * i), up = ref_get(&call->in[1], 2 * i + 1);
        ref_put(&call->out[0], 2 * i, da * up * orth_silu_gradf(gate));
        ref_put(&call->out[0], 2 * i + 1, da * orth_siluf(gate));
    }
    return ORTH_OK;
}

orth_status orth_ref_add(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t n = orth_tensor_elems(&call->out[0]);
    for (int64_t i = 0; i < n; i++)
        ref_put(&call->out[0], i, ref_get(&call->in[0], i) + ref_get(&call->in[1], i));
    return ORTH_OK;
}

orth_status orth_ref_round_bias(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const float *v = call->in[0].data, *bias = call->in[1].data;
    const int64_t n = orth_tensor_elems(&call->out[0]), C = call->out[0].dim[1];
    for (int64_t i = 0; i < n; i++)
        ref_put(&call->out[0], i, bias ? v[i] + bias[i % C] : v[i]);
    return ORTH_OK;
}

orth_status orth_ref_dropout(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int32_t *seq = call->in[1].data, *pos = call->in[2].data;
    const orth_step_values *step = call->in[3].data;
    const int64_t N = call->out[0].dim[0], C = call->out[0].dim[1], T = call->attr->seq_len;
    const float rate = call->attr->dropout, scale = 1.0f / (1.0f - rate);
    const uint64_t hi = orth_dropout_hi(call->attr->site, step->step);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) {
            uint64_t lo = orth_dropout_lo(seq[n / T], pos[n], c);
            float u = orth_rand_unit(orth_philox(step->seed, ORTH_STREAM_DROPOUT, hi, lo).v[c % 4]);
            ref_put(&call->out[0], n * C + c, u >= rate ? ref_get(&call->in[0], n * C + c) * scale : 0.0f);
        }
    return ORTH_OK;
}

orth_status orth_ref_cast(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t n = orth_tensor_elems(&call->out[0]);
    for (int64_t i = 0; i < n; i++)
        ref_put(&call->out[0], i, ref_get(&call->in[0], i));
    return ORTH_OK;
}

orth_status orth_ref_widen(orth_ctx *ctx, const orth_op_call *call)
{
    return orth_ref_cast(ctx, call);
}

orth_status orth_ref_cast_int8(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t n = orth_tensor_elems(&call->in[0]);
    for (int64_t i = 0; i < n; i += ORTH_Q8_NUM)
        orth_q8_from_f32((orth_q8 *)call->out[0].data + i / ORTH_Q8_NUM, (const float *)call->in[0].data + i, ORTH_MIN(n - i, ORTH_Q8_NUM));
    return ORTH_OK;
}

orth_status orth_ref_widen_int8(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    const int64_t n = orth_tensor_elems(&call->out[0]);
    for (int64_t i = 0; i < n; i += ORTH_Q8_NUM)
        orth_q8_to_f32((float *)call->out[0].data + i, (const orth_q8 *)call->in[0].data + i / ORTH_Q8_NUM, ORTH_MIN(n - i, ORTH_Q8_NUM));
    return ORTH_OK;
}

orth_status orth_ref_copy(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    memcpy(call->out[0].data, call->in[0].data, orth_tensor_bytes(&call->out[0]));
    return ORTH_OK;
}

orth_status orth_ref_zero(orth_ctx *ctx, const orth_op_call *call)
{
    (void)ctx;
    memset(call->out[0].data, 0, orth_tensor_bytes(&call->out[0]));
    return ORTH_OK;
}
