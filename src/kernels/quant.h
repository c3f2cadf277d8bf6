/* quant.h -- scales of quantised tensors, and how numbers of 4 bits are rounded at random.
 *
 * The rules are those of TransformerEngine's quantisers. An encode scale is what numbers are multiplied with before they are rounded, a decode
 * scale what codes are multiplied with. amax is the largest magnitude; NaN does not count, and becomes the format's NaN, or the largest.
 *
 *   tensor, blocks: encode = largest / amax, or the power of 2 below it; 1 if amax is 0 or infinite; decode = 1 / encode. Where that is
 *                   infinite: the largest number; of blocks, the largest of the numbers' type
 *   MX (E8M0):      decode = the power of 2 that is not below amax * (1 / largest), encode = 1 / decode
 *   delayed:        encode = largest * 2^-margin / amax of steps before; 1 in the first step; as it was if amax is infinite, or 0 in the last step
 *   NVFP4:          of the tensor S = 448 * 6 / amax; of a block the E4M3 nearest to (block's amax / 6) * S; encode = S / that
 *
 * Stochastic rounding and the random Hadamard transform: NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv:2509.25149.
 */
#ifndef ORTH_KERNELS_QUANT_H
#define ORTH_KERNELS_QUANT_H

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "kernels/dropout.h"
#include "kernels/op.h"

/* An infinite amax gives 1, as in TransformerEngine's kernels; its reference in PyTorch gives 0, which would make NaN of all. x: the type of what is quantised. */
static inline float orth_quant_encode_scale(float amax, orth_float8 t, bool power_of_2, orth_dtype x)
{
    if (!(amax > 0) || isinf(amax))
        return 1;
    const float quotient = orth_float8_form_of(t).max / amax, most = x == ORTH_BF16 ? 0x1.fep127f : FLT_MAX, scale = isinf(quotient) ? most : quotient;
    return power_of_2 ? orth_f32_of_bits(orth_bits_of_f32(scale) & 0xff800000u) : scale;
}

static inline uint8_t orth_quant_mx_scale(float amax, orth_float8 t)
{
    return orth_e8m0_up(amax * (1.0f / orth_float8_form_of(t).max));
}

/* Of quant_delayed. A scale of 0 was never made. */
static inline float orth_quant_scale_before(const orth_op_call *call)
{
    const float scale = ((const float *)call->in[1].data)[call->attr->row];
    return scale > 0 ? scale : 1;
}

/* A row of delayed_scales: the history gets the amax of a step, and the scale is that of the next one. most: of the numbers, less the margin. */
static inline void orth_quant_delayed_row(float *scale, float *history, int64_t length, float amax, float most, bool most_recent)
{
    if (!(amax > 0)) /* nothing was quantised */
        return;
    float largest = amax;
    for (int64_t i = length - 1; i > 0; i--) {
        history[i] = history[i - 1];
        largest = most_recent ? amax : fmaxf(largest, history[i]);
    }
    history[0] = amax;
    if (!isinf(largest))
        *scale = fminf(most / largest, FLT_MAX);
}

/* Both kernels: this is too little to be done fast. */
static inline void orth_quant_delayed_scales(const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    const int64_t length = call->out[1].dim[1];
    for (int64_t r = 0; r < call->in[0].dim[0]; r++) {
        const bool gradient = r % ORTH_PRODUCT_TENSORS == ORTH_PRODUCT_TENSORS - 1;
        const float most = ldexpf(orth_float8_form_of(gradient ? a->gradients : a->float8).max, -a->delayed.margin);
        orth_quant_delayed_row((float *)call->out[0].data + r, (float *)call->out[1].data + r * length, length,
                               ((const float *)call->in[0].data)[r], most, a->delayed.most_recent);
    }
}

/* Of the whole tensor. */
static inline float orth_quant_nvfp4_tensor(float amax)
{
    const float s = amax > 0 ? fminf(448.0f * 6.0f / amax, FLT_MAX) : 1;
    return s > 0 ? s : 1;
}

/* E4M3 of a block; *encode: of its numbers. */
static inline uint8_t orth_quant_nvfp4_block(float amax, float tensor, float *encode)
{
    const uint8_t code = orth_float8_saturate(fminf(amax * (tensor * (1.0f / 6.0f)), FLT_MAX), ORTH_E4M3);
    *encode = fminf(1.0f / (orth_float8_to_f32(code, ORTH_E4M3) * (1.0f / tensor)), FLT_MAX);
    return code;
}

/* Of an element and its neighbours in the row, from column - column % 4 on, and the 24 random bits for one of them: a function of the step, of
 * which tensor of the step it is (use < 2^24), and of the element's place in the whole tensor of the global batch. */
static inline orth_rand4 orth_quant_draw(const orth_step_values *step, int32_t use, int64_t sequence, int64_t position, int64_t column)
{
    return orth_philox(step->seed, ORTH_STREAM_QUANT, step->step << 24 | (uint64_t)(uint32_t)use, orth_dropout_lo(sequence, position, column));
}

static inline uint32_t orth_quant_bits(const orth_rand4 *draw, int64_t column)
{
    return draw->v[column % 4] >> 8;
}

/* Operands of quant_nvfp4 beside x: amax, then what makes it round at random. */
static inline bool orth_quant_is_at_random(const orth_op_call *call)
{
    return call->in[2].data != NULL;
}

/* Of row r of quant_nvfp4: the scale of its tensor, and the draw for column c and its neighbours. */
static inline float orth_quant_tensor_of_row(const orth_op_call *call, int64_t r)
{
    return orth_quant_nvfp4_tensor(((const float *)call->in[1].data)[r / call->attr->seq_len]);
}

static inline orth_rand4 orth_quant_draw_at(const orth_op_call *call, int64_t r, int64_t c)
{
    const orth_attr *a = call->attr;
    return orth_quant_draw(call->in[4].data, a->use, ((const int32_t *)call->in[2].data)[r / a->seq_len], ((const int32_t *)call->in[3].data)[r],
                           a->first_col + c);
}

/* x to E2M1: to one of the two numbers around it, the farther one as rarely as it is far. */
static inline uint8_t orth_quant_e2m1_at_random(float x, uint32_t bits)
{
    const float a = (float)fmin(fabs(x), 6);
    const uint32_t u = orth_bits_of_f32(a), down = a < 1 ? (uint32_t)(a * 2) : (u - (126u << 23)) >> 22;
    const float low = orth_float8_to_f32((uint8_t)down, ORTH_E2M1), step = a < 2 ? 0.5f : a < 4 ? 1 : 2;
    return (uint8_t)((down + ((a - low) / step > (float)bits * 0x1p-24f)) | orth_bits_of_f32(x) >> 31 << 3);
}

/* Sixteen numbers: signs, then the Hadamard transform, over 4, which is orthogonal. Bit i of `signs`: x[i] is negated. Each
 * stage adds and subtracts neighbours 1, 2, 4, 8 apart. */
static inline void orth_hadamard_16(float x[16], uint32_t signs)
{
    for (int i = 0; i < 16; i++)
        x[i] = signs >> i & 1 ? -x[i] : x[i];
    for (int h = 1; h < 16; h *= 2)
        for (int i = 0; i < 16; i++)
            if (!(i & h)) {
                const float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
    for (int i = 0; i < 16; i++)
        x[i] *= 0.25f;
}

#endif
