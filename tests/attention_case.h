/* attention_case.h -- what the tests of attention share: a problem with its memory, run by any kernels. */
#ifndef ORTH_TESTS_ATTENTION_CASE_H
#define ORTH_TESTS_ATTENTION_CASE_H

#include <math.h>

#include "kernels/attention.h"
#include "test.h"

#define GUARD 64 /* bytes of a pattern on either side of what kernels write */

typedef struct {
    orth_dtype type;
    int B, T, H, KV, D, P;
    bool doc;
    float dropout;
} shape;

typedef struct {
    shape s;
    orth_attr attr;
    int64_t N, R;
    orth_step_values step;
    int32_t *doc, *seq;
    void *qkv, *dout;
    /* written by kernels, guarded */
    void *o, *dqkv;
    float *lse;
} problem;

static inline void *guarded(size_t num_bytes)
{
    char *p = aligned_alloc(64, (size_t)orth_round_up((int64_t)num_bytes + 2 * GUARD, 64));
    memset(p, 0xA5, num_bytes + 2 * GUARD);
    return p + GUARD;
}

static inline void check_guard(const void *p, size_t num_bytes)
{
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(((const unsigned char *)p)[i - GUARD], 0xA5);
        assert_int_equal(((const unsigned char *)p)[num_bytes + (size_t)i], 0xA5);
    }
}

static inline void free_guarded(void *p)
{
    free((char *)p - GUARD);
}

/* Element values depend on (sequence, position, column) only, so that shapes can be compared. */
static inline void fill(const problem *p, void *x, int64_t cols, uint64_t seed)
{
    for (int64_t n = 0; n < p->N; n++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t pos = orth_fold_pos(p->s.T, p->s.P, n % p->s.T);
            uint64_t key = (uint64_t)(n / p->s.T) << 40 | (uint64_t)pos << 20 | (uint64_t)c;
            orth_store_f32(x, p->s.type, n * cols + c, 2.0f * test_rand(seed, key));
        }
}

static inline problem problem_new(shape s)
{
    problem p = {.s = s, .N = (int64_t)s.B * s.T};
    p.attr = (orth_attr){.num_seqs = s.B, .seq_len = s.T, .token_parts = s.P, .heads = s.H, .kv_heads = s.KV,
                         .head_dim = s.D, .scale = 1.0f / sqrtf((float)s.D), .dropout = s.dropout, .site = 3,
                         .first_head = 2, .head_parts = orth_attn_head_parts(s.H, s.KV, s.P)};
    p.R = orth_attn_qkv_cols(&p.attr);
    p.step = (orth_step_values){.seed = 11, .step = 5};
    const size_t e = orth_dtype_bytes(s.type), HD = (size_t)(s.H * s.D);
    p.qkv = malloc((size_t)(p.N * p.R) * e);
    p.dout = malloc((size_t)p.N * HD * e);
    p.doc = malloc((size_t)p.N * sizeof(int32_t));
    p.seq = malloc((size_t)s.B * sizeof(int32_t));
    p.o = guarded((size_t)p.N * HD * e);
    p.dqkv = guarded((size_t)(p.N * p.R) * e);
    p.lse = guarded((size_t)(p.N * s.H) * sizeof(float));
    fill(&p, p.qkv, p.R, 1);
    fill(&p, p.dout, (int64_t)HD, 2);
    for (int b = 0; b < s.B; b++) {
        p.seq[b] = 100 + b;
        for (int pos = 0, start = 0; pos < s.T; pos++) {
            if (test_rand((uint64_t)(7 + b), (uint64_t)pos) > 0.93f)
                start = pos;
            p.doc[b * s.T + orth_fold_row(s.T, s.P, pos)] = start;
        }
    }
    return p;
}

static inline void problem_free(problem *p)
{
    check_guard(p->o, (size_t)(p->N * p->s.H * p->s.D) * orth_dtype_bytes(p->s.type));
    check_guard(p->dqkv, (size_t)(p->N * p->R) * orth_dtype_bytes(p->s.type));
    check_guard(p->lse, (size_t)(p->N * p->s.H) * sizeof(float));
    free(p->qkv), free(p->dout), free(p->doc), free(p->seq);
    free_guarded(p->o), free_guarded(p->dqkv), free_guarded(p->lse);
}

static inline orth_tensor view(void *data, orth_dtype type, int64_t d0, int64_t d1, int64_t d2)
{
    return (orth_tensor){data, type, 3, {d0, d1, d2, 1}};
}

/* Calls fn with a guarded workspace of just the size asked for. */
static inline void call(orth_ctx *ctx, orth_kernel_fn fn, orth_workspace_fn ws, orth_op_call *c)
{
    size_t n = ws ? ws(c, orth_pool_num_threads(ctx->pool), ctx->isa) : 0;
    c->workspace = guarded(n);
    memset(c->workspace, 0xFF, n); /* NaN, so that reading what was not written shows */
    CHECK_OK(ctx, fn(ctx, c));
    check_guard(c->workspace, n);
    free_guarded(c->workspace);
}

static inline void forward(orth_ctx *ctx, problem *p, orth_kernel_fn fn, orth_workspace_fn ws)
{
    orth_tensor in[4] = {view(p->qkv, p->s.type, p->N, p->R, 1),
                         view(p->s.doc ? p->doc : NULL, ORTH_I32, p->N, 1, 1),
                         view(p->seq, ORTH_I32, p->s.B, 1, 1), view(&p->step, ORTH_U8, sizeof p->step, 1, 1)};
    orth_tensor out[2] = {view(p->o, p->s.type, p->N, p->s.H * p->s.D, 1),
                          view(p->lse, ORTH_F32, p->N, p->s.H, 1)};
    orth_op_call c = {in, out, 4, 2, &p->attr, NULL};
    call(ctx, fn, ws, &c);
}

static inline void backward(orth_ctx *ctx, problem *p, orth_kernel_fn fn, orth_workspace_fn ws)
{
    orth_tensor in[7] = {
        view(p->dout, p->s.type, p->N, p->s.H * p->s.D, 1),   view(p->qkv, p->s.type, p->N, p->R, 1),
        view(p->o, p->s.type, p->N, p->s.H * p->s.D, 1),      view(p->lse, ORTH_F32, p->N, p->s.H, 1),
        view(p->s.doc ? p->doc : NULL, ORTH_I32, p->N, 1, 1), view(p->seq, ORTH_I32, p->s.B, 1, 1),
        view(&p->step, ORTH_U8, sizeof p->step, 1, 1)};
    orth_tensor out = view(p->dqkv, p->s.type, p->N, p->R, 1);
    orth_op_call c = {in, &out, 7, 1, &p->attr, NULL};
    call(ctx, fn, ws, &c);
}

static inline void fast(orth_ctx *ctx, problem *p)
{
    forward(ctx, p, orth_cpu_attention, orth_workspace_attention);
    backward(ctx, p, orth_cpu_attention_bwd, orth_workspace_attention_bwd);
}

static inline void plain(orth_ctx *ctx, problem *p)
{
    forward(ctx, p, orth_ref_attention, NULL);
    backward(ctx, p, orth_ref_attention_bwd, NULL);
}

/* |a - b| in norm over |b|. */
static inline double distance(const void *a, const void *b, orth_dtype type, int64_t n)
{
    double diff = 0, norm = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double x = orth_load_f32(a, type, i), y = orth_load_f32(b, type, i);
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(diff / norm);
}

#endif
