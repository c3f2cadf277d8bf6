/* rows_quant_body.h -- the largest magnitude of a run of numbers, and the run as codes of 8 or 4 bits: orth_float8_saturate without a branch. */

LANES_INLINE float amax_loop(const void *x, int64_t n, const orth_dtype type)
{
    float most[16] = {0}, v[16];
    for (int64_t i = 0; i < n; i += 16) {
        v_st_f32(v, v_ld(x, type, i, (int)ORTH_MIN(n - i, 16)), 16);
        for (int k = 0; k < 16; k++)
            most[k] = fabsf(v[k]) > most[k] ? fabsf(v[k]) : most[k];
    }
    for (int k = 1; k < 16; k++)
        most[0] = most[k] > most[0] ? most[k] : most[0];
    return most[0];
}

static float rows_amax(const void *x, int64_t n, orth_dtype type)
{
    return type == ORTH_BF16 ? amax_loop(x, n, ORTH_BF16) : type == ORTH_F16 ? amax_loop(x, n, ORTH_F16) : amax_loop(x, n, ORTH_F32);
}

LANES_INLINE uint8_t saturated(float x, const orth_float8_form f)
{
    const int drop = 23 - f.fraction;
    const uint32_t magic = (uint32_t)(127 + 1 - f.bias - f.fraction + 23) << 23, least = (uint32_t)(127 + 1 - f.bias) << 23;
    const uint32_t u = orth_bits_of_f32(x), a = u & 0x7fffffffu, sign = u >> 31 << (31 - f.sign_shift);
    const uint32_t small = orth_bits_of_f32(orth_f32_of_bits(a) + orth_f32_of_bits(magic)) - magic;
    const uint32_t large = (a - ((uint32_t)(127 - f.bias) << 23) + ((1u << (drop - 1)) - 1) + (a >> drop & 1)) >> drop;
    const uint32_t code = a < least ? small : a > orth_bits_of_f32(f.max) ? f.largest : large;
    return (uint8_t)(sign | (a > 0x7f800000u ? f.nan : code));
}

LANES_INLINE void quantize_loop(uint8_t *q, const void *x, int64_t n, float scale, const orth_float8 to, const orth_dtype type)
{
    const v16 by = v_set(scale);
    for (int64_t i = 0; i < n; i += 16) {
        float v[16];
        uint8_t code[16];
        const int64_t m = ORTH_MIN(n - i, 16);
        v_st_f32(v, v_mul(v_ld(x, type, i, (int)m), by), 16);
        for (int k = 0; k < 16; k++)
            code[k] = saturated(v[k], orth_float8_form_of(to));
        if (m == 16)
            memcpy(q + i, code, 16);
        else
            memcpy(q + i, code, (size_t)m);
    }
}

static void rows_quantize(uint8_t *q, const void *x, int64_t n, orth_dtype type, float scale, orth_float8 to)
{
    if (to == ORTH_E4M3)
        LANES_TYPED(type, quantize_loop, q, x, n, scale, ORTH_E4M3);
    else if (to == ORTH_E5M2)
        LANES_TYPED(type, quantize_loop, q, x, n, scale, ORTH_E5M2);
    else
        LANES_TYPED(type, quantize_loop, q, x, n, scale, ORTH_E2M1);
}
