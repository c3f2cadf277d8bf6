/* lanes_plain.h -- lanes.h for processors without AVX2: vectors of the C compiler, which it splits into what there is (SSE2, NEON). What
 * has no vector form is a loop over lanes behind a call: sixteen of them in each loop of each kernel would take a compiler minutes. */
typedef float v16 __attribute__((vector_size(64)));
typedef double d16 __attribute__((vector_size(128)));
typedef int32_t i16 __attribute__((vector_size(64)));

#define LANES_CALL static __attribute__((noinline, unused))
#define V_MAP(expr)                     \
    v16 r = {0};                        \
    for (int l = 0; l < 16; l++)        \
        r[l] = (expr);                  \
    return r

LANES_INLINE v16 v_set(float x) { return (v16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
LANES_INLINE v16 v_add(v16 a, v16 b) { return a + b; }
LANES_INLINE v16 v_sub(v16 a, v16 b) { return a - b; }
LANES_INLINE v16 v_mul(v16 a, v16 b) { return a * b; }
LANES_INLINE v16 v_div(v16 a, v16 b) { return a / b; }
LANES_CALL v16 v_fma(v16 a, v16 b, v16 c) { V_MAP(__builtin_fmaf(a[l], b[l], c[l])); }
LANES_INLINE v16 v_fnma(v16 a, v16 b, v16 c) { return v_fma(-a, b, c); } /* c - a*b */
LANES_CALL v16 v_sqrt(v16 a) { V_MAP(__builtin_sqrtf(a[l])); }
LANES_INLINE v16 v_max(v16 a, v16 b)
{
    const i16 above = a > b;
    return (v16)(((i16)a & above) | ((i16)b & ~above));
}
LANES_CALL v16 v_exp(v16 a) { V_MAP(orth_expf(a[l])); }
LANES_CALL v16 v_silu(v16 a) { V_MAP(orth_siluf(a[l])); }
LANES_CALL v16 v_silu_pair(v16 a, v16 *grad)
{
    v16 r = {0}, slope = {0};
    for (int l = 0; l < 16; l++) {
        float g;
        r[l] = orth_silu_pairf(a[l], &g);
        slope[l] = g;
    }
    *grad = slope;
    return r;
}
LANES_CALL v16 v_fill_some(v16 a, int k, float fill) { V_MAP(l < k ? a[l] : fill); }
LANES_INLINE v16 v_fill(v16 a, int k, float fill) { return k == 16 ? a : v_fill_some(a, k, fill); }
LANES_INLINE v16 v_keep(v16 a, int k) { return v_fill(a, k, 0.0f); }
LANES_CALL v16 v_round_bf16(v16 a) { V_MAP(orth_bf16_to_f32(orth_bf16_from_f32(a[l]))); }
LANES_CALL v16 v_round_f16(v16 a) { V_MAP(orth_f16_to_f32(orth_f16_from_f32(a[l]))); }
LANES_CALL v16 v_ld_f16(const orth_f16 *p, int k) { V_MAP(l < k ? orth_f16_to_f32(p[l]) : 0.0f); }
LANES_CALL v16 v_ld_bf16(const orth_bf16 *p, int k) { V_MAP(l < k ? orth_bf16_to_f32(p[l]) : 0.0f); }

LANES_INLINE v16 v_ld_f32(const float *p, int k)
{
    v16 r = {0};
    memcpy(&r, p, (size_t)k * sizeof *p);
    return r;
}

LANES_INLINE void v_st_f32(float *p, v16 v, int k)
{
    memcpy(p, &v, (size_t)k * sizeof *p);
}

LANES_CALL void v_st_bf16(orth_bf16 *p, v16 v, int k)
{
    for (int l = 0; l < k; l++)
        p[l] = orth_bf16_from_f32(v[l]);
}

LANES_CALL void v_st_f16(orth_f16 *p, v16 v, int k)
{
    for (int l = 0; l < k; l++)
        p[l] = orth_f16_from_f32(v[l]);
}

LANES_CALL float v_sum(v16 v)
{
    float lane[ORTH_LANES];
    memcpy(lane, &v, sizeof lane);
    return orth_lanes_fold(lane);
}

LANES_CALL float v_max_all(v16 v)
{
    float m = v[0];
    for (int l = 1; l < 16; l++)
        m = v[l] > m ? v[l] : m;
    return m;
}

LANES_CALL void v_ld_pairs_f32(const float *p, v16 *even, v16 *odd)
{
    v16 e = {0}, o = {0};
    for (int l = 0; l < 16; l++) {
        e[l] = p[2 * l];
        o[l] = p[2 * l + 1];
    }
    *even = e;
    *odd = o;
}

LANES_CALL void v_st_pairs_f32(float *p, v16 even, v16 odd)
{
    for (int l = 0; l < 16; l++) {
        p[2 * l] = even[l];
        p[2 * l + 1] = odd[l];
    }
}

LANES_CALL void v_ld_pairs_bf16(const orth_bf16 *p, v16 *even, v16 *odd)
{
    v16 e = {0}, o = {0};
    for (int l = 0; l < 16; l++) {
        e[l] = orth_bf16_to_f32(p[2 * l]);
        o[l] = orth_bf16_to_f32(p[2 * l + 1]);
    }
    *even = e;
    *odd = o;
}

LANES_CALL void v_st_pairs_bf16(orth_bf16 *p, v16 even, v16 odd)
{
    for (int l = 0; l < 16; l++) {
        p[2 * l] = orth_bf16_from_f32(even[l]);
        p[2 * l + 1] = orth_bf16_from_f32(odd[l]);
    }
}

LANES_CALL v16 v_drop(v16 x, const uint32_t *word, float rate)
{
    V_MAP((float)(word[l] >> 8) * 0x1p-24f >= rate ? x[l] : 0.0f);
}

LANES_INLINE d16 d_zero(void)
{
    return (d16){0};
}

LANES_INLINE d16 d_add_square(d16 acc, v16 v)
{
    const d16 wide = __builtin_convertvector(v, d16);
    return acc + wide * wide;
}

LANES_INLINE void d_store(double lane[ORTH_LANES], d16 v)
{
    memcpy(lane, &v, sizeof v);
}

/* Sixteen uint32. */
typedef uint32_t u16 __attribute__((vector_size(64)));

LANES_INLINE u16 u_set(uint32_t x) { return (u16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
LANES_INLINE u16 u_count(uint32_t first) { return u_set(first) + (u16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
LANES_INLINE u16 u_xor3(u16 a, u16 b, u16 c) { return a ^ b ^ c; }

/* The halves of the 64-bit products a*m. */
LANES_CALL void u_mul(u16 a, uint32_t m, u16 *high, u16 *low)
{
    u16 h = {0}, w = {0};
    for (int l = 0; l < 16; l++) {
        uint64_t p = (uint64_t)a[l] * m;
        h[l] = (uint32_t)(p >> 32);
        w[l] = (uint32_t)p;
    }
    *high = h;
    *low = w;
}

/* word[4*l + i] = lane l of c[i]. */
LANES_CALL void u_store_4(uint32_t word[64], const u16 c[4])
{
    for (int l = 0; l < 64; l++)
        word[l] = c[l % 4][l / 4];
}

LANES_INLINE void v_stream_zero(float *p) { memset(p, 0, 16 * sizeof *p); }
LANES_INLINE void v_stream_end(void) {}
