/* lanes_plain.h -- lanes.h in portable C, for processors without AVX2. */
typedef struct {
    float f[16];
} v16;
typedef struct {
    double f[16];
} d16;

#define V_MAP(expr)                     \
    v16 r;                              \
    for (int l = 0; l < 16; l++)        \
        r.f[l] = (expr);                \
    return r

LANES_INLINE v16 v_set(float x) { V_MAP(x); }
LANES_INLINE v16 v_add(v16 a, v16 b) { V_MAP(a.f[l] + b.f[l]); }
LANES_INLINE v16 v_sub(v16 a, v16 b) { V_MAP(a.f[l] - b.f[l]); }
LANES_INLINE v16 v_mul(v16 a, v16 b) { V_MAP(a.f[l] * b.f[l]); }
LANES_INLINE v16 v_div(v16 a, v16 b) { V_MAP(a.f[l] / b.f[l]); }
LANES_INLINE v16 v_fma(v16 a, v16 b, v16 c) { V_MAP(__builtin_fmaf(a.f[l], b.f[l], c.f[l])); }
LANES_INLINE v16 v_fnma(v16 a, v16 b, v16 c) { V_MAP(__builtin_fmaf(-a.f[l], b.f[l], c.f[l])); } /* c - a*b */
LANES_INLINE v16 v_sqrt(v16 a) { V_MAP(__builtin_sqrtf(a.f[l])); }
LANES_INLINE v16 v_max(v16 a, v16 b) { V_MAP(a.f[l] > b.f[l] ? a.f[l] : b.f[l]); }
LANES_INLINE v16 v_exp(v16 a) { V_MAP(orth_expf(a.f[l])); }
LANES_INLINE v16 v_silu(v16 a) { V_MAP(orth_siluf(a.f[l])); }
LANES_INLINE v16 v_silu_pair(v16 a, v16 *grad) { V_MAP(orth_silu_pairf(a.f[l], &grad->f[l])); }
LANES_INLINE v16 v_fill(v16 a, int k, float fill) { V_MAP(l < k ? a.f[l] : fill); }
LANES_INLINE v16 v_keep(v16 a, int k) { return v_fill(a, k, 0.0f); }
LANES_INLINE v16 v_round_bf16(v16 a) { V_MAP(orth_bf16_to_f32(orth_bf16_from_f32(a.f[l]))); }
/* Calls: sixteen conversions in each loop of each kernel take a compiler minutes. */
#define LANES_CALL static __attribute__((noinline, unused))
LANES_CALL v16 v_round_f16(v16 a) { V_MAP(orth_f16_to_f32(orth_f16_from_f32(a.f[l]))); }
LANES_CALL v16 v_ld_f16(const orth_f16 *p, int k) { V_MAP(l < k ? orth_f16_to_f32(p[l]) : 0.0f); }
LANES_INLINE v16 v_ld_f32(const float *p, int k) { V_MAP(l < k ? p[l] : 0.0f); }
LANES_INLINE v16 v_ld_bf16(const orth_bf16 *p, int k) { V_MAP(l < k ? orth_bf16_to_f32(p[l]) : 0.0f); }

LANES_INLINE void v_st_f32(float *p, v16 v, int k)
{
    memcpy(p, v.f, (size_t)k * sizeof *p);
}

LANES_INLINE void v_st_bf16(orth_bf16 *p, v16 v, int k)
{
    for (int l = 0; l < k; l++)
        p[l] = orth_bf16_from_f32(v.f[l]);
}

LANES_CALL void v_st_f16(orth_f16 *p, v16 v, int k)
{
    for (int l = 0; l < k; l++)
        p[l] = orth_f16_from_f32(v.f[l]);
}

LANES_INLINE float v_sum(v16 v) { return orth_lanes_fold(v.f); }

LANES_INLINE float v_max_all(v16 v)
{
    float m = v.f[0];
    for (int l = 1; l < 16; l++)
        m = v.f[l] > m ? v.f[l] : m;
    return m;
}

LANES_INLINE void v_ld_pairs_f32(const float *p, v16 *even, v16 *odd)
{
    for (int l = 0; l < 16; l++) {
        even->f[l] = p[2 * l];
        odd->f[l] = p[2 * l + 1];
    }
}

LANES_INLINE void v_st_pairs_f32(float *p, v16 even, v16 odd)
{
    for (int l = 0; l < 16; l++) {
        p[2 * l] = even.f[l];
        p[2 * l + 1] = odd.f[l];
    }
}

LANES_INLINE void v_ld_pairs_bf16(const orth_bf16 *p, v16 *even, v16 *odd)
{
    for (int l = 0; l < 16; l++) {
        even->f[l] = orth_bf16_to_f32(p[2 * l]);
        odd->f[l] = orth_bf16_to_f32(p[2 * l + 1]);
    }
}

LANES_INLINE void v_st_pairs_bf16(orth_bf16 *p, v16 even, v16 odd)
{
    for (int l = 0; l < 16; l++) {
        p[2 * l] = orth_bf16_from_f32(even.f[l]);
        p[2 * l + 1] = orth_bf16_from_f32(odd.f[l]);
    }
}

LANES_INLINE v16 v_drop(v16 x, const uint32_t *word, float rate)
{
    V_MAP((float)(word[l] >> 8) * 0x1p-24f >= rate ? x.f[l] : 0.0f);
}

LANES_INLINE d16 d_zero(void)
{
    return (d16){{0}};
}

LANES_INLINE d16 d_add_square(d16 acc, v16 v)
{
    for (int l = 0; l < 16; l++)
        acc.f[l] += (double)v.f[l] * (double)v.f[l];
    return acc;
}

LANES_INLINE void d_store(double lane[ORTH_LANES], d16 v)
{
    memcpy(lane, v.f, sizeof v.f);
}

/* Sixteen uint32. */
typedef struct {
    uint32_t u[16];
} u16;

#define U_MAP(expr)                     \
    u16 r;                              \
    for (uint32_t l = 0; l < 16; l++)   \
        r.u[l] = (expr);                \
    return r

LANES_INLINE u16 u_set(uint32_t x) { U_MAP(x); }
LANES_INLINE u16 u_count(uint32_t first) { U_MAP(first + l); }
LANES_INLINE u16 u_xor3(u16 a, u16 b, u16 c) { U_MAP(a.u[l] ^ b.u[l] ^ c.u[l]); }

/* The halves of the 64-bit products a*m. */
LANES_INLINE void u_mul(u16 a, uint32_t m, u16 *high, u16 *low)
{
    for (int l = 0; l < 16; l++) {
        uint64_t p = (uint64_t)a.u[l] * m;
        high->u[l] = (uint32_t)(p >> 32);
        low->u[l] = (uint32_t)p;
    }
}

/* word[4*l + i] = lane l of c[i]. */
LANES_INLINE void u_store_4(uint32_t word[64], const u16 c[4])
{
    for (int l = 0; l < 64; l++)
        word[l] = c[l % 4].u[l / 4];
}

LANES_INLINE void v_stream_zero(float *p) { memset(p, 0, 16 * sizeof *p); }
LANES_INLINE void v_stream_end(void) {}
