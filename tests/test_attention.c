/* test_attention.c -- attention forward, backward, materialised and cached: fast against plain. */
#include "attention_case.h"

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
    return type == ORTH_F16 || isa < (type == ORTH_BF16 ? ORTH_ISA_AVX512BF16 : ORTH_ISA_AMX_BF16X6);
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
        for (int type = 0; type < 3; type++) {
            shape s = shapes[i];
            s.type = (const orth_dtype[]){ORTH_F32, ORTH_BF16, ORTH_F16}[type];
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
        cmocka_unit_test(dropout_keeps_the_expectation_and_depends_on_the_global_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
