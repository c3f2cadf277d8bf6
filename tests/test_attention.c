/* test_attention.c -- attention forward, backward, materialised and cached: fast against plain. */
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

static void *guarded(size_t num_bytes)
{
    char *p = aligned_alloc(64, (size_t)orth_round_up((int64_t)num_bytes + 2 * GUARD, 64));
    memset(p, 0xA5, num_bytes + 2 * GUARD);
    return p + GUARD;
}

static void check_guard(const void *p, size_t num_bytes)
{
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(((const unsigned char *)p)[i - GUARD], 0xA5);
        assert_int_equal(((const unsigned char *)p)[num_bytes + (size_t)i], 0xA5);
    }
}

static void free_guarded(void *p)
{
    free((char *)p - GUARD);
}

/* Element values depend on (sequence, position, column) only, so that shapes can be compared. */
static void fill(const problem *p, void *x, int64_t cols, uint64_t seed)
{
    for (int64_t n = 0; n < p->N; n++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t pos = orth_fold_pos(p->s.T, p->s.P, n % p->s.T);
            uint64_t key = (uint64_t)(n / p->s.T) << 40 | (uint64_t)pos << 20 | (uint64_t)c;
            orth_store_f32(x, p->s.type, n * cols + c, 2.0f * test_rand(seed, key));
        }
}

static problem problem_new(shape s)
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

static void problem_free(problem *p)
{
    check_guard(p->o, (size_t)(p->N * p->s.H * p->s.D) * orth_dtype_bytes(p->s.type));
    check_guard(p->dqkv, (size_t)(p->N * p->R) * orth_dtype_bytes(p->s.type));
    check_guard(p->lse, (size_t)(p->N * p->s.H) * sizeof(float));
    free(p->qkv), free(p->dout), free(p->doc), free(p->seq);
    free_guarded(p->o), free_guarded(p->dqkv), free_guarded(p->lse);
}

static orth_tensor view(void *data, orth_dtype type, int64_t d0, int64_t d1, int64_t d2)
{
    return (orth_tensor){data, type, 3, {d0, d1, d2, 1}};
}

/* Calls fn with a guarded workspace of just the size asked for. */
static void call(orth_ctx *ctx, orth_kernel_fn fn, orth_workspace_fn ws, orth_op_call *c)
{
    size_t n = ws ? ws(c, orth_pool_num_threads(ctx->pool), ctx->isa) : 0;
    c->workspace = guarded(n);
    memset(c->workspace, 0xFF, n); /* NaN, so that reading what was not written shows */
    CHECK_OK(ctx, fn(ctx, c));
    check_guard(c->workspace, n);
    free_guarded(c->workspace);
}

static void forward(orth_ctx *ctx, problem *p, orth_kernel_fn fn, orth_workspace_fn ws)
{
    orth_tensor in[4] = {view(p->qkv, p->s.type, p->N, p->R, 1),
                         view(p->s.doc ? p->doc : NULL, ORTH_I32, p->N, 1, 1),
                         view(p->seq, ORTH_I32, p->s.B, 1, 1), view(&p->step, ORTH_U8, sizeof p->step, 1, 1)};
    orth_tensor out[2] = {view(p->o, p->s.type, p->N, p->s.H * p->s.D, 1),
                          view(p->lse, ORTH_F32, p->N, p->s.H, 1)};
    orth_op_call c = {in, out, 4, 2, &p->attr, NULL};
    call(ctx, fn, ws, &c);
}

static void backward(orth_ctx *ctx, problem *p, orth_kernel_fn fn, orth_workspace_fn ws)
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

static void fast(orth_ctx *ctx, problem *p)
{
    forward(ctx, p, orth_cpu_attention, orth_workspace_attention);
    backward(ctx, p, orth_cpu_attention_bwd, orth_workspace_attention_bwd);
}

static void plain(orth_ctx *ctx, problem *p)
{
    forward(ctx, p, orth_ref_attention, NULL);
    backward(ctx, p, orth_ref_attention_bwd, NULL);
}

/* |a - b| in norm over |b|. */
static double distance(const void *a, const void *b, orth_dtype type, int64_t n)
{
    double diff = 0, norm = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double x = orth_load_f32(a, type, i), y = orth_load_f32(b, type, i);
        diff += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(diff / norm);
}

static void expect_same(const problem *a, const problem *b, bool bitwise, const char *what)
{
    const int64_t no = a->N * a->s.H * a->s.D, nq = a->N * a->R;
    const size_t e = orth_dtype_bytes(a->s.type);
    if (bitwise) {
        if (memcmp(a->o, b->o, (size_t)no * e) || memcmp(a->lse, b->lse, (size_t)(a->N * a->s.H) * 4) ||
            memcmp(a->dqkv, b->dqkv, (size_t)nq * e))
            fail_msg(
                "%s: bits differ: type %d B %d T %d H %d KV %d D %d P %d doc %d drop %g: o %g lse %g dqkv %g",
                what, a->s.type, a->s.B, a->s.T, a->s.H, a->s.KV, a->s.D, a->s.P, a->s.doc, a->s.dropout,
                distance(a->o, b->o, a->s.type, no), distance(a->lse, b->lse, ORTH_F32, a->N * a->s.H),
                distance(a->dqkv, b->dqkv, a->s.type, nq));
    } else {
        double o = distance(a->o, b->o, a->s.type, no), q = distance(a->dqkv, b->dqkv, a->s.type, nq);
        double l = distance(a->lse, b->lse, ORTH_F32, a->N * a->s.H);
        const bool f32 = a->s.type == ORTH_F32;
        if (!(o < (f32 ? 1e-6 : 6e-3) && q < (f32 ? 1e-6 : 8e-3) && l < (f32 ? 1e-6 : 1e-5)))
            fail_msg("%s: T %d D %d P %d: o %g lse %g dqkv %g", what, a->s.T, a->s.D, a->s.P, o, l, q);
    }
}

/* Whether `isa` gives the bits of the plain kernels. */
static bool is_plain(orth_dtype type, orth_isa isa)
{
    return isa < (type == ORTH_BF16 ? ORTH_ISA_AVX512BF16 : ORTH_ISA_AMX_BF16X6);
}

static const shape shapes[] = {
    {ORTH_F32, 1, 1, 1, 1, 64, 1, false, 0},    {ORTH_F32, 2, 5, 2, 1, 20, 2, true, 0},
    {ORTH_F32, 1, 63, 4, 1, 24, 1, false, 0},   {ORTH_F32, 1, 64, 2, 2, 80, 4, true, 0},
    {ORTH_F32, 2, 65, 4, 2, 96, 1, false, 0},   {ORTH_F32, 1, 130, 2, 2, 64, 8, false, 0},
    {ORTH_F32, 1, 130, 2, 1, 128, 2, true, 0},  {ORTH_F32, 1, 200, 2, 1, 16, 8, true, 0},
    {ORTH_F32, 1, 200, 1, 1, 33, 1, false, 0},  {ORTH_F32, 1, 3, 1, 1, 8, 8, false, 0},
    {ORTH_F32, 1, 90, 4, 2, 20, 4, true, 0.3f}, {ORTH_F32, 2, 70, 2, 2, 7, 2, false, 0.1f},
    {ORTH_F32, 1, 400, 4, 1, 16, 8, true, 0}, /* more key blocks than a span of the backward */
};

TEST(every_isa_gives_the_bits_of_the_reference)
{
    orth_ctx *ctx = test_ctx(2);
    for (int i = 0; i < ORTH_COUNT(shapes); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            shape s = shapes[i];
            s.type = bf16 ? ORTH_BF16 : ORTH_F32;
            problem want = problem_new(s), got = problem_new(s);
            plain(ctx, &want);
            for (orth_isa isa = ORTH_ISA_BASE; isa <= test_top_isa(); isa++) {
                ctx->isa = isa;
                fast(ctx, &got);
                expect_same(&got, &want, is_plain(s.type, isa), orth_isa_name(isa));
            }
            problem_free(&want);
            problem_free(&got);
        }
    test_ctx_free(ctx);
}

TEST(the_number_of_threads_does_not_matter)
{
    static const int threads[] = {1, 2, 3, 7};
    for (int variant = 0; variant < 3; variant++) {
        shape s = {variant == 1 ? ORTH_BF16 : ORTH_F32, 2, 300, 4, 2, 64, 4, true, 0};
        problem want = problem_new(s), got = problem_new(s);
        for (int i = 0; i < ORTH_COUNT(threads); i++) {
            orth_ctx *ctx = test_ctx(threads[i]);
            ctx->isa = variant == 2 ? test_top_isa() : ctx->isa;
            fast(ctx, i == 0 ? &want : &got);
            if (i > 0)
                expect_same(&got, &want, true, "threads");
            test_ctx_free(ctx);
        }
        problem_free(&want);
        problem_free(&got);
    }
}

/* The row at a position has the same bits whatever follows it and however rows are stored. */
TEST(a_row_does_not_depend_on_length_or_parts)
{
    orth_ctx *ctx = test_ctx(2);
    for (int variant = 0; variant < 3; variant++) {
        shape s = {variant == 1 ? ORTH_BF16 : ORTH_F32, 1, 200, 2, 1, 64, 1, false, 0};
        ctx->isa = variant == 2 ? test_top_isa() : ctx->isa;
        problem want = problem_new(s);
        forward(ctx, &want, orth_cpu_attention, orth_workspace_attention);
        for (int T = 1; T <= 200; T += T == 1 ? 69 : 65)
            for (int P = 1; P <= 8; P *= 2) {
                s.T = T;
                s.P = P;
                problem got = problem_new(s);
                forward(ctx, &got, orth_cpu_attention, orth_workspace_attention);
                const size_t row = (size_t)(s.H * s.D) * orth_dtype_bytes(s.type);
                for (int pos = 0; pos < T; pos++) {
                    int64_t n = orth_fold_row(T, P, pos);
                    assert_memory_equal((char *)got.o + (size_t)n * row, (char *)want.o + (size_t)pos * row,
                                        row);
                    assert_memory_equal(got.lse + n * s.H, want.lse + pos * s.H, (size_t)s.H * 4);
                }
                problem_free(&got);
            }
        problem_free(&want);
    }
    test_ctx_free(ctx);
}

/* Documents packed into one sequence compute what each does alone, up to where key blocks are cut. */
TEST(document_masks_cut_what_is_seen)
{
    orth_ctx *ctx = test_ctx(2);
    shape s = {ORTH_F32, 1, 256, 2, 2, 32, 1, true, 0}, alone = s;
    alone.T = 128;
    alone.doc = false;
    problem two = problem_new(s), one = problem_new(alone);
    for (int i = 0; i < 256; i++)
        two.doc[i] = i / 128 * 128;
    const size_t half = (size_t)(128 * two.R) * sizeof(float), half_o = (size_t)(128 * 64) * sizeof(float);
    memcpy(one.qkv, (char *)two.qkv + half, half);
    memcpy(one.dout, (char *)two.dout + half_o, half_o);
    fast(ctx, &two);
    fast(ctx, &one);
    assert_memory_equal(one.o, (char *)two.o + half_o, half_o);
    assert_memory_equal(one.dqkv, (char *)two.dqkv + half, half);
    problem_free(&two);
    problem_free(&one);
    test_ctx_free(ctx);
}

/* Scores grow from key block to key block, so that each moves the maxima of its rows and what they scaled. */
static problem growing(orth_dtype type)
{
    problem p = problem_new((shape){type, 1, 330, 2, 1, 16, 1, false, 0});
    p.attr.scale *= 20;
    for (int64_t n = 0; n < p.N; n++)
        for (int d = 0; d < p.s.D; d++) {
            const int64_t at = n * p.R + orth_attn_k_col(&p.attr, 0) + d;
            orth_store_f32(p.qkv, type, at, orth_load_f32(p.qkv, type, at) * (float)(1 + n / ORTH_ATTN_BLOCK));
        }
    return p;
}

TEST(growing_scores_move_the_maximum)
{
    orth_ctx *ctx = test_ctx(2);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const orth_dtype type = bf16 ? ORTH_BF16 : ORTH_F32;
        problem plainly = growing(type), full = growing(type), got = growing(type);
        plain(ctx, &plainly);
        forward(ctx, &full, orth_cpu_attention_full, orth_workspace_attention_full);
        for (orth_isa isa = ORTH_ISA_BASE; isa <= test_top_isa(); isa++) {
            ctx->isa = isa;
            fast(ctx, &got);
            if (bf16 || is_plain(type, isa))
                expect_same(&got, &plainly, is_plain(type, isa), orth_isa_name(isa));
            else /* large scores make what is left out of them felt */
                assert_true(distance(got.dqkv, plainly.dqkv, type, got.N * got.R) < 2e-5);
            assert_true(distance(got.o, full.o, type, got.N * got.s.H * got.s.D) < (bf16 ? 6e-3 : 2e-5));
            assert_true(distance(got.lse, full.lse, ORTH_F32, got.N * got.s.H) < 1e-6);
        }
        problem_free(&plainly);
        problem_free(&full);
        problem_free(&got);
    }
    test_ctx_free(ctx);
}

TEST(materialised_attention_agrees)
{
    orth_ctx *ctx = test_ctx(2);
    for (int i = 0; i < ORTH_COUNT(shapes); i++) {
        problem a = problem_new(shapes[i]), b = problem_new(shapes[i]), c = problem_new(shapes[i]);
        const int64_t no = a.N * a.s.H * a.s.D;
        forward(ctx, &a, orth_cpu_attention, orth_workspace_attention);
        forward(ctx, &b, orth_cpu_attention_full, orth_workspace_attention_full);
        forward(ctx, &c, orth_ref_attention_full, NULL);
        assert_memory_equal(b.o, c.o, (size_t)no * sizeof(float));
        assert_true(distance(a.o, b.o, ORTH_F32, no) < 1e-6);
        assert_true(distance(a.lse, b.lse, ORTH_F32, a.N * a.s.H) < 1e-6);
        problem_free(&a), problem_free(&b), problem_free(&c);
    }
    test_ctx_free(ctx);
}

/* Steps of any size over the cache give the bits of one pass over the sequence. */
static void run_cached(orth_ctx *ctx, problem *p, int cap, const int *steps, bool ref)
{
    const size_t e = orth_dtype_bytes(p->s.type);
    const int64_t kvd = (int64_t)p->s.KV * p->s.D, HD = (int64_t)p->s.H * p->s.D;
    const size_t cache_bytes = (size_t)(p->s.B * cap * kvd) * e;
    void *ck = guarded(cache_bytes), *cv = guarded(cache_bytes);
    int32_t past[8] = {0};
    for (int i = 0; steps[i] && past[0] < p->s.T; i++) {
        const int n = ORTH_MIN(steps[i], p->s.T - past[0]);
        char *rows = malloc((size_t)(p->s.B * n * p->R) * e), *o = guarded((size_t)(p->s.B * n * HD) * e);
        for (int b = 0; b < p->s.B; b++)
            memcpy(rows + (size_t)(b * n * p->R) * e,
                   (char *)p->qkv + (size_t)(((int64_t)b * p->s.T + past[b]) * p->R) * e,
                   (size_t)(n * p->R) * e);
        orth_tensor in[4] = {view(rows, p->s.type, p->s.B * n, p->R, 1), view(past, ORTH_I32, p->s.B, 1, 1),
                             view(ck, p->s.type, p->s.B, cap, kvd), view(cv, p->s.type, p->s.B, cap, kvd)};
        orth_tensor out = view(o, p->s.type, p->s.B * n, HD, 1);
        orth_op_call c = {in, &out, 4, 1, &p->attr, NULL};
        call(ctx, ref ? orth_ref_attention_cached : orth_cpu_attention_cached,
             ref ? NULL : orth_workspace_attention_cached, &c);
        check_guard(o, (size_t)(p->s.B * n * HD) * e);
        for (int b = 0; b < p->s.B; b++) {
            memcpy((char *)p->o + (size_t)(((int64_t)b * p->s.T + past[b]) * HD) * e,
                   o + (size_t)(b * n * HD) * e, (size_t)(n * HD) * e);
            past[b] += n;
        }
        free(rows);
        free_guarded(o);
    }
    check_guard(ck, cache_bytes);
    check_guard(cv, cache_bytes);
    free_guarded(ck);
    free_guarded(cv);
}

TEST(cached_attention_gives_the_bits_of_the_whole)
{
    static const int steps[][64] = {{200}, {1, 62, 1, 1, 3, 80, 1, 1, 70}, {65, 64, 63, 62}};
    orth_ctx *ctx = test_ctx(2);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (orth_isa isa = ORTH_ISA_BASE; isa <= test_top_isa(); isa++) {
            ctx->isa = isa;
            shape s = {bf16 ? ORTH_BF16 : ORTH_F32,    2, 150,   4, 2,
                       isa == ORTH_ISA_AVX2 ? 20 : 64, 1, false, 0};
            problem want = problem_new(s), got = problem_new(s);
            const size_t n = (size_t)(want.N * s.H * s.D) * orth_dtype_bytes(s.type);
            forward(ctx, &want, orth_cpu_attention, orth_workspace_attention);
            for (int i = 0; i < ORTH_COUNT(steps); i++) {
                memset(got.o, 0, n);
                run_cached(ctx, &got, 151, steps[i], false);
                assert_memory_equal(got.o, want.o, n);
            }
            if (is_plain(s.type, isa)) {
                run_cached(ctx, &got, 151, steps[1], true);
                assert_memory_equal(got.o, want.o, n);
            }
            problem_free(&want);
            problem_free(&got);
        }
    test_ctx_free(ctx);
}

/* sum(dout * o) in double, with qkv[at] moved by `by`. */
static double loss_in_double(const problem *p, int64_t at, double by)
{
    const int D = p->s.D, T = p->s.T, G = p->s.H / p->s.KV;
    double total = 0, score[64];
#define X(i) ((double)((float *)p->qkv)[i] + ((i) == at ? by : 0.0))
    for (int64_t n = 0; n < p->N; n++)
        for (int h = 0; h < p->s.H; h++) {
            int64_t b = n / T, pos = orth_fold_pos(T, p->s.P, n % T),
                    q = n * p->R + orth_attn_q_col(&p->attr, h);
            double sum = 0, out = 0;
            orth_attn_drop drop = orth_attn_drop_row(&p->attr, &p->step, h, p->seq[b], pos);
            for (int64_t k = p->s.doc ? p->doc[n] : 0; k <= pos; k++) {
                int64_t row = (b * T + orth_fold_row(T, p->s.P, k)) * p->R,
                        kc = row + orth_attn_k_col(&p->attr, h / G);
                float f[4] = {1, 1, 1, 1};
                if (p->s.dropout > 0)
                    orth_attn_drop_keys(&drop, k / 4 * 4, f);
                double s = 0, dp = 0;
                for (int d = 0; d < D; d++) {
                    s += X(q + d) * X(kc + d);
                    dp += (double)((float *)p->dout)[(n * p->s.H + h) * D + d] * X(kc + D + d);
                }
                score[k] = exp(s * (double)p->attr.scale);
                sum += score[k];
                out += score[k] * (double)f[k % 4] * dp;
            }
            total += out / sum;
        }
#undef X
    return total;
}

TEST(gradients_are_those_of_finite_differences)
{
    static const shape cases[] = {
        {ORTH_F32, 2, 13, 2, 1, 6, 2, false, 0}, {ORTH_F32, 1, 17, 2, 2, 5, 4, true, 0},
        {ORTH_F32, 1, 12, 2, 1, 4, 1, true, 0.25f}};
    orth_ctx *ctx = test_ctx(2);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        problem p = problem_new(cases[i]);
        fast(ctx, &p);
        double diff = 0, norm = 0;
        for (int64_t at = 0; at < p.N * p.R; at++) {
            double want = (loss_in_double(&p, at, 1e-5) - loss_in_double(&p, at, -1e-5)) / 2e-5;
            double error = ((float *)p.dqkv)[at] - want;
            diff += error * error;
            norm += want * want;
        }
        assert_true(sqrt(diff / norm) < 1e-6);
        problem_free(&p);
    }
    test_ctx_free(ctx);
}

/* o and dqkv of every head, without dropout. */
static void in_double(const problem *p, double *o, double *dqkv)
{
    const int D = p->s.D, T = p->s.T, G = p->s.H / p->s.KV;
    const float *x = p->qkv, *dout = p->dout;
    double prob[512], dp[512];
    memset(o, 0, (size_t)(p->N * p->s.H * D) * sizeof *o);
    memset(dqkv, 0, (size_t)(p->N * p->R) * sizeof *dqkv);
    for (int64_t n = 0; n < p->N; n++)
        for (int h = 0; h < p->s.H; h++) {
            const int64_t q = n * p->R + orth_attn_q_col(&p->attr, h), at = (n * p->s.H + h) * D;
            const int64_t keys = n / T * T * p->R + orth_attn_k_col(&p->attr, h / G);
            double sum = 0, delta = 0;
            for (int64_t k = 0; k <= n % T; k++) {
                double s = dp[k] = 0;
                for (int d = 0; d < D; d++) {
                    s += (double)x[q + d] * (double)x[keys + k * p->R + d];
                    dp[k] += (double)dout[at + d] * (double)x[keys + k * p->R + D + d];
                }
                sum += prob[k] = exp(s * (double)p->attr.scale);
            }
            for (int64_t k = 0; k <= n % T; k++)
                delta += (prob[k] /= sum) * dp[k];
            for (int64_t k = 0; k <= n % T; k++)
                for (int d = 0; d < D; d++) {
                    const int64_t kd = keys + k * p->R + d;
                    const double ds = prob[k] * (dp[k] - delta) * (double)p->attr.scale;
                    o[at + d] += prob[k] * (double)x[kd + D];
                    dqkv[q + d] += ds * (double)x[kd];
                    dqkv[kd] += ds * (double)x[q + d];
                    dqkv[kd + D] += prob[k] * (double)dout[at + d];
                }
        }
}

static double error(const float *a, const double *b, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(diff / norm);
}

/* Six products of pieces are as good as fma. */
TEST(pieces_of_bf16_keep_the_precision_of_fp32)
{
    static const shape cases[] = {{ORTH_F32, 1, 130, 2, 1, 64, 1, false, 0}, {ORTH_F32, 1, 400, 2, 2, 128, 1, false, 0},
                                  {ORTH_F32, 2, 200, 2, 1, 33, 1, false, 0}};
    orth_ctx *ctx = test_ctx(2);
    if (test_top_isa() != ORTH_ISA_AMX_BF16X6) {
        test_ctx_free(ctx);
        skip();
    }
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        problem fma = problem_new(cases[i]), got = problem_new(cases[i]);
        const int64_t no = fma.N * fma.s.H * fma.s.D, nq = fma.N * fma.R;
        double *o = malloc((size_t)no * sizeof *o), *dqkv = malloc((size_t)nq * sizeof *dqkv);
        in_double(&fma, o, dqkv);
        ctx->isa = ORTH_ISA_AVX512;
        fast(ctx, &fma);
        ctx->isa = ORTH_ISA_AMX_BF16X6;
        fast(ctx, &got);
        const double o_fma = error(fma.o, o, no), o_got = error(got.o, o, no);
        const double q_fma = error(fma.dqkv, dqkv, nq), q_got = error(got.dqkv, dqkv, nq);
        if (o_got > 1.5 * o_fma || q_got > 1.5 * q_fma)
            fail_msg("T %d D %d: o %g, with fma %g; dqkv %g, with fma %g", got.s.T, got.s.D, o_got, o_fma, q_got, q_fma);
        free(o), free(dqkv);
        problem_free(&fma), problem_free(&got);
    }
    test_ctx_free(ctx);
}

/* With v = 1 an output is the sum of the kept probabilities: 1 on average. */
TEST(dropout_keeps_the_expectation_and_depends_on_the_global_sequence)
{
    orth_ctx *ctx = test_ctx(2);
    shape s = {ORTH_F32, 2, 200, 2, 2, 16, 1, false, 0.2f};
    problem p = problem_new(s);
    for (int64_t n = 0; n < p.N; n++)
        for (int g = 0; g < 2; g++)
            for (int d = 0; d < 16; d++)
                ((float *)p.qkv)[n * p.R + orth_attn_v_col(&p.attr, g) + d] = 1.0f;
    forward(ctx, &p, orth_cpu_attention, orth_workspace_attention);
    double mean = 0;
    for (int64_t n = 0; n < p.N; n++)
        for (int h = 0; h < 2; h++)
            mean += ((float *)p.o)[(n * 2 + h) * 16] / (double)(p.N * 2);
    assert_true(fabs(mean - 1.0) < 0.02);

    problem q = problem_new(s);
    memcpy(q.qkv, p.qkv, (size_t)(p.N * p.R) * sizeof(float));
    q.seq[0] = p.seq[1]; /* only sequence 0 draws other numbers */
    forward(ctx, &q, orth_cpu_attention, orth_workspace_attention);
    const size_t half = (size_t)(p.N / 2 * 32) * sizeof(float);
    assert_int_not_equal(memcmp(p.o, q.o, half), 0);
    assert_memory_equal((char *)p.o + half, (char *)q.o + half, half);
    problem_free(&p);
    problem_free(&q);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_isa_gives_the_bits_of_the_reference),
        cmocka_unit_test(the_number_of_threads_does_not_matter),
        cmocka_unit_test(a_row_does_not_depend_on_length_or_parts),
        cmocka_unit_test(document_masks_cut_what_is_seen),
        cmocka_unit_test(growing_scores_move_the_maximum),
        cmocka_unit_test(materialised_attention_agrees),
        cmocka_unit_test(cached_attention_gives_the_bits_of_the_whole),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(pieces_of_bf16_keep_the_precision_of_fp32),
        cmocka_unit_test(dropout_keeps_the_expectation_and_depends_on_the_global_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
