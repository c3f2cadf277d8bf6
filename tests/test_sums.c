/* test_sums.c -- sums over tokens and sequences: fast kernels equal the plain ones, which are the aligned tree over chains;
 * they ignore the split into micro-batches. */
#include "kernel_case.h"

/* {sequences, tokens, parts} */
static const int shapes[][3] = {{1, 1, 1}, {1, 7, 4}, {3, 5, 1}, {2, 33, 8}, {5, 16, 2}, {7, 40, 8}, {1, 64, 1}};

/* The aligned tree over leaves [first, +n) of tensor/parts.h: a node of level l covers what exists of 2^l leaves. */
static double tree_of(const double *leaves, int64_t first, int64_t n)
{
    int64_t left = 1;
    if (n == 1)
        return leaves[first];
    while (left * 2 < n)
        left *= 2;
    return tree_of(leaves, first, left) + tree_of(leaves, first + left, n - left);
}

TEST(loss_sum_is_the_tree_of_chains)
{
    case_pool pool = case_pool_make();
    for (int s = 0; s < ORTH_COUNT(shapes); s++) {
        const int64_t B = shapes[s][0], T = shapes[s][1], P = shapes[s][2];
        kernel_case k = {KERNEL_CASE(loss_sum), .num_in = 1, .num_out = 1,
                         .attr = {.num_seqs = (int32_t)B, .seq_len = (int32_t)T, .token_parts = (int32_t)P}};
        k.in[0] = case_random(ORTH_F32, B * T, 0, 1, 3);
        k.out[0] = case_tensor(ORTH_F64, B, 0);
        for (int64_t i = 0; i < B * T; i++) /* so that the order shows */
            ((float *)k.in[0].data)[i] *= i % 3 ? 1e-9f : 1.0f;
        orth_tensor want[ORTH_OP_MAX_OUT];
        case_run_ref(&k, pool.ctx[0], want);
        for (int64_t b = 0; b < B; b++) {
            double slots[8] = {0};
            const float *nll = (const float *)k.in[0].data + b * T;
            int64_t i = 0;
            for (int64_t q = 0; q < P; q++) { /* stored: parts 0, P-1, 1, P-2, ... */
                const int64_t part = q % 2 ? P - (q + 1) / 2 : q / 2, n = T * (part + 1) / P - T * part / P;
                for (int64_t end = i + n; i < end; i++)
                    slots[q] += nll[i];
            }
            const double tree = tree_of(slots, 0, P);
            assert_memory_equal(&((double *)want[0].data)[b], &tree, sizeof tree);
        }
        case_free(want, 1);
        case_check(&k, &pool);
    }
    case_pool_free(&pool);
}

TEST(tree_acc_f64_is_the_aligned_tree)
{
    case_pool pool = case_pool_make();
    for (int64_t L = 1; L <= 70; L++) {
        kernel_case k = {KERNEL_CASE(tree_acc_f64), .num_in = 1, .num_out = 1};
        k.in[0] = case_doubles(L, 1);
        k.out[0] = case_doubles(1, 2); /* what it held is replaced */
        const double tree = tree_of(k.in[0].data, 0, L);
        orth_tensor want[ORTH_OP_MAX_OUT];
        case_run_ref(&k, pool.ctx[0], want);
        assert_memory_equal(want[0].data, &tree, sizeof tree);
        case_free(want, 1);
        case_check(&k, &pool);
    }
    case_pool_free(&pool);
}

/* dgain of 8 sequences, made `micro` at a time; the leaves of all are then one tree. */
static void gain_gradient(orth_ctx *ctx, float *dgain, int micro, const orth_tensor *all, int64_t T, int64_t C)
{
    orth_tensor leaves = case_tensor(ORTH_F32, 8, C), total = case_tensor(ORTH_F32, C, 0);
    orth_tensor dx = case_tensor(ORTH_F32, micro * T, C);
    orth_attr attr = {.num_seqs = micro, .seq_len = (int32_t)T, .token_parts = 4};
    for (int b = 0; b < 8; b += micro) {
        orth_tensor in[5] = {all[0], all[1], all[2], all[3], {0}}, out[3] = {dx, leaves, {0}};
        for (int i = 0; i < 3; i++) {
            in[i].dim[0] = micro * T;
            in[i].data = (float *)all[i].data + b * T * all[i].dim[1];
        }
        out[1].dim[0] = micro;
        out[1].data = (float *)leaves.data + b * C;
        orth_op_call call = {in, out, 5, 3, &attr, NULL};
        call.workspace = guarded_alloc(orth_workspace_norm_bwd(&call, orth_pool_num_threads(ctx->pool), ctx->isa));
        CHECK_OK(ctx, orth_cpu_norm_bwd(ctx, &call));
        guarded_free(call.workspace);
    }
    CHECK_OK(ctx, orth_cpu_tree_acc(ctx, &(orth_op_call){&leaves, &total, 1, 1, &attr, NULL}));
    memcpy(dgain, total.data, (size_t)C * sizeof *dgain);
    case_free(&leaves, 1);
    case_free(&total, 1);
    case_free(&dx, 1);
}

TEST(gain_gradients_ignore_the_split_into_micro_batches)
{
    orth_ctx *ctx = test_ctx(2);
    enum { T = 21, C = 50 };
    orth_tensor all[4] = {case_random(ORTH_F32, 8 * T, C, 1, 1), case_random(ORTH_F32, 8 * T, C, 2, 1),
                          case_random(ORTH_F32, 8 * T, 2, 3, 1), case_random(ORTH_F32, C, 0, 4, 1)};
    float want[C], got[C];
    gain_gradient(ctx, want, 8, all, T, C);
    for (int micro = 1; micro < 8; micro *= 2) {
        gain_gradient(ctx, got, micro, all, T, C);
        assert_memory_equal(got, want, sizeof want);
    }
    case_free(all, 4);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_sum_is_the_tree_of_chains),
        cmocka_unit_test(tree_acc_f64_is_the_aligned_tree),
        cmocka_unit_test(gain_gradients_ignore_the_split_into_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
