/* test_pointwise.c -- what the cases drawn from signatures (test_ops.c) leave: numbers that are not finite, copies to any
 * place, the tree of position gradients, the rate of dropout, the loss against its formula. */
#include "kernel_case.h"

#include <math.h>

static const orth_dtype both[] = {ORTH_F32, ORTH_BF16};
static const int64_t widths[] = {1, 3, 16, 17, 63, 64, 100, 301, 768};
/* {sequences, tokens, parts} */
static const int shapes[][3] = {{1, 1, 1}, {1, 7, 4}, {3, 5, 1}, {2, 33, 8}, {5, 16, 2}, {7, 40, 8}, {1, 64, 1}};

static orth_attr attr_of(int s)
{
    return (orth_attr){.num_seqs = shapes[s][0], .seq_len = shapes[s][1], .token_parts = shapes[s][2],
                       .eps = 1e-5f, .norm = ORTH_NORM_LAYER};
}

TEST(cast_rounds_specials_as_the_plain_conversion)
{
    case_pool pool = case_pool_make();
    const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001, 0xffffffff, 0x7f7fffff, 0x00000001,
                             0x007fffff, 0x3f808000, 0x3f818000, 0x3f808001, 0x80000000, 0x00008000, 0x0000ffff,
                             0x477fe000, 0xff7f8000, 0x7f800100};
    kernel_case k = {KERNEL_CASE(cast), .in = {case_tensor(ORTH_F32, ORTH_COUNT(bits), 0)},
                     .out = {case_tensor(ORTH_BF16, ORTH_COUNT(bits), 0)}, .num_in = 1, .num_out = 1};
    memcpy(k.in[0].data, bits, sizeof bits);
    case_check(&k, &pool);
    k = (kernel_case){KERNEL_CASE(cast), .in = {case_tensor(ORTH_F32, 1 << 20, 0)}, .out = {case_tensor(ORTH_F16, 1 << 20, 0)},
                      .num_in = 1, .num_out = 1};
    for (uint32_t i = 0; i < 1 << 20; i++) { /* all exponents and, of fractions, all that decide the rounding to fp16 */
        const uint32_t u = (i & 0xfffff) << 12 | (i * 2654435761u & 0xfff) * (i & 1);
        memcpy((float *)k.in[0].data + i, &u, sizeof u);
    }
    case_check(&k, &pool);
    case_pool_free(&pool);
}

/* What `copy` and `zero` write, and nothing beside it, from and to any place of a buffer. */
static void check_bytes(case_pool *pool, orth_dtype type, int64_t n, int shift)
{
    const size_t size = orth_dtype_bytes(type), bytes = (size_t)n * size, skip = (size_t)shift * size;
    orth_tensor from = case_tensor(ORTH_U8, (int64_t)(bytes + 2 * skip) + 1, 0), to = case_copy(&from);
    unsigned char *src = from.data, *dst = to.data;
    for (size_t i = 0; i < bytes + 2 * skip; i++)
        src[i] = (unsigned char)test_rand_int(n, i, 1, 255);
    orth_tensor in = {.data = src + skip, .dtype = type, .num_dims = 1, .dim = {n, 1, 1, 1}}, out = in;
    out.data = dst + 2 * skip;
    const orth_attr attr = {0};
    const orth_op_call copy = {&in, &out, 1, 1, &attr, NULL}, zero = {NULL, &out, 0, 1, &attr, NULL};
    for (int k = 0; k < 2 * CASE_THREADS; k++) {
        orth_ctx *ctx = pool->ctx[k / 2];
        memset(dst, 0x5A, bytes + 2 * skip + 1);
        CHECK_OK(ctx, (k % 2 ? orth_ref_copy : orth_cpu_copy)(ctx, &copy));
        for (size_t i = 0; i < bytes + 2 * skip + 1; i++)
            assert_int_equal(dst[i], i < 2 * skip || i >= 2 * skip + bytes ? 0x5A : src[i - skip]);
        CHECK_OK(ctx, (k % 2 ? orth_ref_zero : orth_cpu_zero)(ctx, &zero));
        for (size_t i = 0; i < bytes + 2 * skip + 1; i++)
            assert_int_equal(dst[i], i < 2 * skip || i >= 2 * skip + bytes ? 0x5A : 0);
    }
    guarded_check(from.data, orth_tensor_bytes(&from), "copy");
    guarded_check(to.data, orth_tensor_bytes(&to), "copy");
    case_free(&from, 1);
    case_free(&to, 1);
}

TEST(copy_and_zero_write_their_bytes_and_no_others)
{
    case_pool pool = case_pool_make();
    const orth_dtype types[] = {ORTH_F32, ORTH_BF16, ORTH_F64, ORTH_I32, ORTH_U8};
    const int64_t sizes[] = {0, 1, 3, 17, 1000, 16384, 70001};
    for (int t = 0; t < ORTH_COUNT(types); t++)
        for (int s = 0; s < ORTH_COUNT(sizes); s++)
            for (int shift = 0; shift <= 3; shift += 3)
                check_bytes(&pool, types[t], sizes[s], shift);
    case_pool_free(&pool);
}

TEST(pos_embed_bwd_equals_reference_and_is_the_tree_over_sequences)
{
    case_pool pool = case_pool_make();
    for (int s = 0; s < ORTH_COUNT(shapes); s++) {
        const int64_t B = shapes[s][0], T = shapes[s][1], C = 20, S = T + 3;
        kernel_case k = {KERNEL_CASE(pos_embed_bwd), .workspace = orth_workspace_pos_embed_bwd, .num_in = 2,
                         .num_out = 1, .attr = attr_of(s)};
        k.in[0] = case_tensor(ORTH_I32, B * T, 0);
        for (int64_t r = 0; r < B * T; r++)
            ((int32_t *)k.in[0].data)[r] = (int32_t)orth_fold_pos(T, shapes[s][2], r % T);
        k.in[1] = case_random(ORTH_F32, B * T, C, 2, 1);
        k.out[0] = case_tensor(ORTH_F32, S, C);
        /* Position p of every sequence, gathered, is a tree_acc over B leaves. */
        orth_tensor leaves = case_tensor(ORTH_F32, B, S * C), tree = case_tensor(ORTH_F32, S * C, 0), want[1];
        for (int64_t r = 0; r < B * T; r++)
            memcpy((float *)leaves.data + (r / T * S + ((int32_t *)k.in[0].data)[r]) * C,
                   (float *)k.in[1].data + r * C, (size_t)C * 4);
        orth_op_call merge = {&leaves, &tree, 1, 1, &k.attr, NULL};
        CHECK_OK(pool.ctx[0], orth_cpu_tree_acc(pool.ctx[0], &merge));
        case_run_ref(&k, pool.ctx[0], want);
        assert_memory_equal(want[0].data, tree.data, orth_tensor_bytes(&tree));
        case_free(want, 1);
        case_free(&leaves, 1);
        case_free(&tree, 1);
        case_check(&k, &pool);
    }
    case_pool_free(&pool);
}

TEST(dropout_equals_reference_at_its_rate_and_ignores_the_micro_batch)
{
    case_pool pool = case_pool_make();
    const orth_step_values step = {.seed = 0x123456789abcdefull, .step = 12};
    for (int d = 0; d < 2; d++)
        for (int w = 0; w < ORTH_COUNT(widths); w++) {
            const int64_t B = 3, T = 5, C = widths[w];
            kernel_case k = {KERNEL_CASE(dropout), .num_in = 4, .num_out = 1};
            k.attr = (orth_attr){.num_seqs = 3, .seq_len = 5, .dropout = 0.3f, .site = 9};
            k.in[0] = case_random(both[d], B * T, C, 1, 1);
            k.in[1] = case_ints(B, 2, 0, 100000);
            k.in[2] = case_ints(B * T, 3, 0, 4000);
            k.in[3] = case_step(&step);
            k.out[0] = case_tensor(both[d], B * T, C);
            case_check(&k, &pool);
        }
    /* 64k ones: the mean is 1 within five standard deviations; sequence 1 alone gives its rows again. */
    const int64_t C = 1024;
    orth_attr attr = {.num_seqs = 2, .seq_len = 32, .dropout = 0.25f, .site = 1};
    orth_tensor in[4] = {case_tensor(ORTH_F32, 64, C), case_ints(2, 5, 0, 50), case_ints(64, 6, 0, 99), case_step(&step)};
    orth_tensor out = case_tensor(ORTH_F32, 64, C), half = case_tensor(ORTH_F32, 32, C);
    double sum = 0;
    for (int64_t i = 0; i < 64 * C; i++)
        ((float *)in[0].data)[i] = 1;
    CHECK_OK(pool.ctx[0], orth_cpu_dropout(pool.ctx[0], &(orth_op_call){in, &out, 4, 1, &attr, NULL}));
    for (int64_t i = 0; i < 64 * C; i++)
        sum += ((float *)out.data)[i];
    assert_true(fabs(sum / (64.0 * (double)C) - 1) < 5 * sqrt(0.25 / 0.75 / (64.0 * (double)C)));
    orth_tensor one[4] = {in[0], in[1], in[2], in[3]};
    one[1].data = (int32_t *)in[1].data + 1;
    one[2].data = (int32_t *)in[2].data + 32;
    attr.num_seqs = 1;
    CHECK_OK(pool.ctx[1], orth_cpu_dropout(pool.ctx[1], &(orth_op_call){one, &half, 4, 1, &attr, NULL}));
    assert_memory_equal(half.data, (float *)out.data + 32 * C, orth_tensor_bytes(&half));
    case_free(in, 4);
    case_free(&out, 1);
    case_free(&half, 1);
    case_pool_free(&pool);
}

static kernel_case xent_case(orth_dtype t, int64_t N, int64_t V, int parts, bool with_gradient)
{
    const orth_step_values step = {.loss_scale = 0.125f};
    kernel_case k = {KERNEL_CASE(softmax_xent), .workspace = orth_workspace_softmax_xent, .num_in = 4, .num_out = 2};
    k.attr.split = (orth_split){ORTH_SPLIT_EVEN, parts, V, 1, 1};
    k.in[0] = case_random(ORTH_F32, N, V, 1, 8);
    k.in[1] = case_ints(N, 2, 0, V - 1);
    k.in[2] = case_tensor(ORTH_F32, N, 0);
    for (int64_t n = 0; n < N; n++)
        ((float *)k.in[2].data)[n] = n % 4 == 3 ? 0.0f : n % 4 == 2 ? 0.5f : 1.0f;
    if (N > 3)
        ((int32_t *)k.in[1].data)[3] = -100; /* weight 0: not looked at */
    k.in[3] = case_step(&step);
    k.out[0] = case_tensor(ORTH_F32, N, 0);
    if (with_gradient)
        k.out[1] = case_random(t, N, V, 9, 1);
    k.out[1].dtype = t;
    return k;
}

/* Against the formula in double. */
TEST(softmax_xent_loss_and_gradient_are_right)
{
    orth_ctx *ctx = test_ctx(2);
    const int64_t N = 6, V = 203;
    kernel_case k = xent_case(ORTH_F32, N, V, 4, true);
    CHECK_OK(ctx, orth_cpu_softmax_xent(ctx, &(orth_op_call){k.in, k.out, 4, 2, &k.attr, NULL}));
    const float *logits = k.in[0].data, *weight = k.in[2].data, *nll = k.out[0].data, *d = k.out[1].data;
    for (int64_t n = 0; n < N; n++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++)
            sum += exp(logits[n * V + v]);
        int32_t target = ((int32_t *)k.in[1].data)[n];
        if (weight[n] == 0) {
            assert_true(nll[n] == 0);
            for (int64_t v = 0; v < V; v++)
                assert_true(d[n * V + v] == 0);
            continue;
        }
        double want = weight[n] * (log(sum) - logits[n * V + target]);
        assert_true(fabs(nll[n] - want) < 2e-6 * (1 + fabs(want)));
        for (int64_t v = 0; v < V; v++) {
            double g = (exp(logits[n * V + v]) / sum - (v == target)) * weight[n] * 0.125;
            assert_true(fabs(d[n * V + v] - g) < 1e-7 * (0.01 + fabs(g)) * 10);
        }
    }
    case_free(k.in, 4);
    case_free(k.out, 2);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cast_rounds_specials_as_the_plain_conversion),
        cmocka_unit_test(copy_and_zero_write_their_bytes_and_no_others),
        cmocka_unit_test(pos_embed_bwd_equals_reference_and_is_the_tree_over_sequences),
        cmocka_unit_test(dropout_equals_reference_at_its_rate_and_ignores_the_micro_batch),
        cmocka_unit_test(softmax_xent_loss_and_gradient_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
