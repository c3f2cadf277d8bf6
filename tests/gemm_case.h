/* gemm_case.h -- what the tests of matrix products share: random products with their memory, fast against plain. */
#ifndef ORTH_TESTS_GEMM_CASE_H
#define ORTH_TESTS_GEMM_CASE_H

#include "test.h"

#include "kernels/gemm.h"

#define GUARD 64                    /* elements on each side of an output */

/* A product with its memory. Operands are larger than needed and strided. */
typedef struct {
    orth_gemm_desc g;
    void *a, *b;
    float *bias, *addend[3];
    char *act_grad_of;
    int64_t c_elems;
} gemm_case;

static inline void *random_operand(orth_dtype type, int64_t n, uint64_t seed)
{
    char *p = malloc((size_t)n * orth_dtype_bytes(type) + 1);
    for (int64_t i = 0; i < n; i++)
        orth_store_f32(p, type, i, test_rand(seed, (uint64_t)i));
    return p;
}

/* layout bit 0: A has K contiguous, else M; bit 1: B has N contiguous, else K; bit 2: no unit stride in A. */
static inline gemm_case case_make(orth_dtype in, orth_dtype out, int64_t M, int64_t N, orth_split split, int layout,
                                  int epilogue, uint64_t seed)
{
    gemm_case c = {0};
    orth_gemm_desc *g = &c.g;
    const int64_t K = orth_split_bound(&split, orth_split_leaves(&split));
    const int64_t pad = test_rand_int(seed, 1, 0, 3), by = layout & 4 ? 2 : 1;
    *g = (orth_gemm_desc){.M = M, .N = N, .K = K, .in_type = in, .c_type = out, .split = split};
    g->a_row = layout & 1 ? (K + pad) * by : by;
    g->a_col = layout & 1 ? by : (M + pad) * by;
    g->b_row = layout & 2 ? N + pad : 1;
    g->b_col = layout & 2 ? 1 : K + pad;
    g->c_row = N + pad;
    g->c_later = seed % 2;
    c.a = random_operand(in, (M + pad) * (K + pad) * by + 1, seed + 1);
    c.b = random_operand(in, (N + pad) * (K + pad) + 1, seed + 2);
    g->a = c.a;
    g->b = c.b;
    c.c_elems = M * g->c_row;
    c.bias = random_operand(ORTH_F32, N + 1, seed + 3);
    c.act_grad_of = random_operand(out, c.c_elems + 1, seed + 4);
    g->bias = epilogue & 1 ? c.bias : NULL;
    g->act = (orth_act)(epilogue >> 1 & 3);
    g->act_grad_of = epilogue & 8 && g->act ? c.act_grad_of : NULL;
    for (int i = 0; i < 3; i++)
        c.addend[i] = random_operand(ORTH_F32, c.c_elems + 1, seed + 5 + (uint64_t)i);
    g->num_addends = epilogue & 16 ? 3 : 0;
    for (int i = 0; i < g->num_addends; i++)
        g->addend[i] = c.addend[i];
    return c;
}

static inline void case_free(gemm_case *c)
{
    free(c->a);
    free(c->b);
    free(c->bias);
    free(c->act_grad_of);
    for (int i = 0; i < 3; i++)
        free(c->addend[i]);
}

/* An output between guards, filled with a pattern that a kernel must keep where it has no business. */
static inline char *output_make(const gemm_case *c)
{
    size_t bytes = (size_t)(c->c_elems + 2 * GUARD) * orth_dtype_bytes(c->g.c_type);
    char *p = aligned_alloc(64, (size_t)orth_round_up((int64_t)bytes, 64));
    memset(p, 0xa5, bytes);
    return p;
}

static inline char *output_body(const gemm_case *c, char *p)
{
    return p + GUARD * orth_dtype_bytes(c->g.c_type);
}

static inline void run_fast(orth_ctx *ctx, const orth_gemm_desc *g)
{
    size_t bytes = orth_gemm_workspace_bytes(g, orth_pool_num_threads(ctx->pool), ctx->isa);
    char *ws = orth_mem_alloc(ctx, bytes + 64);
    memset(ws, 0xff, bytes + 64); /* NaN, should anything read what it did not write */
    CHECK_OK(ctx, orth_gemm(ctx, g, ws));
    for (int i = 0; i < 64; i++)
        assert_int_equal((unsigned char)ws[bytes + (size_t)i], 0xff);
    orth_mem_free(ctx, ws);
}

/* Outputs (c, pre) of the plain kernel in out[0], [1]; those of what is returned are in [2], [3]. */
static inline orth_gemm_desc outputs_make(orth_ctx *ctx, gemm_case *c, bool with_pre, char *out[4])
{
    orth_gemm_desc g = c->g;
    for (int i = 0; i < 4; i++)
        out[i] = output_make(c);
    for (int i = 0; i < 4; i += 2) {
        g.c = output_body(c, out[i]);
        g.pre = with_pre ? output_body(c, out[i + 1]) : NULL;
        if (i == 0)
            CHECK_OK(ctx, orth_gemm_ref(ctx, &g));
    }
    return g;
}

/* The same with B packed once, also for few rows. */
static inline void run_packed(orth_ctx *ctx, orth_gemm_desc g)
{
    orth_gemm_desc many = g;
    many.M = 1000;
    const size_t bytes = orth_gemm_packed_bytes(&many, ctx->isa);
    unsigned char *packed = orth_mem_alloc(ctx, bytes + 64);
    memset(packed, 0xff, bytes + 64);
    orth_gemm_pack_b(ctx, &many, packed);
    for (int i = 0; i < 64; i++)
        assert_int_equal(packed[bytes + (size_t)i], 0xff);
    g.b = NULL;
    g.b_packed = packed;
    run_fast(ctx, &g);
    orth_mem_free(ctx, packed);
}

/* Fast against plain, guards, gaps between rows and all. */
static inline void check_case(orth_ctx *ctx, gemm_case *c, bool with_pre, const char *what)
{
    size_t bytes = (size_t)(c->c_elems + 2 * GUARD) * orth_dtype_bytes(c->g.c_type);
    char *out[4];
    orth_gemm_desc g = outputs_make(ctx, c, with_pre, out);
    for (int packed = 0; packed < 2; packed++) {
        memset(out[2], 0xa5, bytes);
        memset(out[3], 0xa5, bytes);
        if (packed)
            run_packed(ctx, g);
        else
            run_fast(ctx, &g);
        if (memcmp(out[0], out[2], bytes) != 0 || memcmp(out[1], out[3], bytes) != 0)
            fail_msg("%s%s, isa %s, %s->%s, M=%d N=%d K=%d, %d threads", what, packed ? ", B packed beforehand" : "",
                     orth_isa_name(ctx->isa), orth_dtype_name(g.in_type), orth_dtype_name(g.c_type), (int)g.M,
                     (int)g.N, (int)g.K, orth_pool_num_threads(ctx->pool));
    }
    for (int i = 0; i < 4; i++)
        free(out[i]);
}

/* A split of some kind: 0 whole, 1 even, 2 qkv, 3 tokens whose parts differ in length. */
static inline orth_split random_split(int kind, uint64_t seed)
{
    const int parts = 1 << test_rand_int(seed, 10, 0, 4);
    switch (kind) {
    case 1:
        return (orth_split){ORTH_SPLIT_EVEN, parts, test_rand_int(seed, 11, 1, 90),
                            test_rand_int(seed, 12, 1, 5), 1};
    case 2: {
        const int64_t kv = 1 << test_rand_int(seed, 13, 0, 2), group = test_rand_int(seed, 14, 1, 4);
        return (orth_split){ORTH_SPLIT_QKV, (int32_t)kv, kv * group, test_rand_int(seed, 15, 1, 24), group};
    }
    case 3:
        return (orth_split){ORTH_SPLIT_TOKENS, parts, test_rand_int(seed, 16, 1, 130), 1,
                            test_rand_int(seed, 17, 1, 5)};
    default: return ORTH_SPLIT_WHOLE(test_rand_int(seed, 18, 0, 700));
    }
}

static const int thread_counts[] = {1, 2, 3, 7};

#endif
