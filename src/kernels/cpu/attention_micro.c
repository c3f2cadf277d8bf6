/* attention_micro.c -- the portable inner loops, and the choice among tables. */
#include <stdbool.h>

#include "kernels/attention.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/mathf.h"

#define VW 16
#define TILE_ROWS 1
#define TILE_VECS 1
#define PAIRS 0

/* Sixteen floats in plain C: what a compiler makes of it does not matter, only that it is right. */
typedef struct {
    float f[16];
} vf;
typedef vf vu;
typedef struct {
    bool on[16];
} vm;

#define LANES(result, expr) \
    do { \
        for (int i = 0; i < VW; i++) \
            (result) = (expr); \
    } while (0)
#define DEFINE2(name, expr) \
    static inline vf name(vf a, vf b) \
    { \
        LANES(a.f[i], expr); \
        return a; \
    }
DEFINE2(V_ADD, a.f[i] + b.f[i])
DEFINE2(V_SUB, a.f[i] - b.f[i])
DEFINE2(V_MUL, a.f[i] * b.f[i])
DEFINE2(V_DIV, a.f[i] / b.f[i])
DEFINE2(V_MAX, ORTH_MAX(a.f[i], b.f[i]))

static inline vf V_LOAD(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void V_STORE(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

static inline vf V_SET(float x)
{
    vf v;
    LANES(v.f[i], x);
    return v;
}

static inline vf V_FROM_BF16(const orth_bf16 *p)
{
    vf v;
    LANES(v.f[i], orth_bf16_to_f32(p[i]));
    return v;
}

static inline void V_TO_BF16(orth_bf16 *p, vf v)
{
    LANES(p[i], orth_bf16_from_f32(v.f[i]));
}

static inline vf V_FROM_F16(const orth_f16 *p)
{
    vf v;
    LANES(v.f[i], orth_f16_to_f32(p[i]));
    return v;
}

static inline void V_TO_F16(orth_f16 *p, vf v)
{
    LANES(p[i], orth_f16_from_f32(v.f[i]));
}

static inline vf V_FMA(vf a, vf b, vf c)
{
    LANES(c.f[i], __builtin_fmaf(a.f[i], b.f[i], c.f[i]));
    return c;
}

static inline vf V_EXP2(vf v)
{
    LANES(v.f[i], orth_exp2f(v.f[i]));
    return v;
}

static inline vf V_LOG(vf v)
{
    LANES(v.f[i], orth_logf(v.f[i]));
    return v;
}

static inline vm V_RANGE(int first, int lo, int hi)
{
    vm m;
    LANES(m.on[i], first + i >= lo && first + i < hi);
    return m;
}

static inline vf V_SEL(vm m, vf yes, vf no)
{
    LANES(no.f[i], m.on[i] ? yes.f[i] : no.f[i]);
    return no;
}

static inline vm V_LESS(vf a, vf b)
{
    vm m;
    LANES(m.on[i], a.f[i] < b.f[i]);
    return m;
}

static inline vf V_TOPS(const vf *v)
{
    vf top;
    for (int r = 0; r < VW; r++) {
        top.f[r] = v[r].f[0];
        LANES(top.f[r], ORTH_MAX(top.f[r], v[r].f[i]));
    }
    return top;
}

static inline vf V_FOLDS(vf *v)
{
    vf sum;
    LANES(sum.f[i], orth_lanes_fold(v[i].f));
    return sum;
}

static inline float V_FOLD16(vf *v)
{
    return orth_lanes_fold(v->f);
}

#define V_UNITS(p) V_LOAD((const float *)(p))
#define V_BCAST(p) V_SET(*(const float *)(p))
#define V_STEP(acc, a, b) V_FMA(a, b, acc)

#include "kernels/cpu/attention_tile.h"

const orth_attn_micro orth_attn_micro_base = ORTH_ATTN_MICRO_TABLE;

const orth_attn_micro *orth_attn_micro_for(orth_dtype type, orth_isa isa)
{
#if defined(__x86_64__)
    const orth_isa products = orth_gemm_isa(isa, type); /* what its bf16 instructions are good for */
    if (products == ORTH_ISA_AMX_BF16X6)
        return &orth_attn_micro_amx_bf16x6;
    if (products == ORTH_ISA_AMX)
        return &orth_attn_micro_amx;
    if (products == ORTH_ISA_AVX512BF16)
        return &orth_attn_micro_avx512bf16;
    if (isa >= ORTH_ISA_AVX512)
        return &orth_attn_micro_avx512;
    if (isa >= ORTH_ISA_AVX2)
        return &orth_attn_micro_avx2;
#endif
    (void)type, (void)isa;
    return &orth_attn_micro_base;
}

void orth_attn_drop_block(float *factor, const orth_attn_drop *drop, int rows, int64_t first_key)
{
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < KB; k += 4)
            orth_attn_drop_keys(&drop[r], first_key + k, factor + r * KB + k);
}
