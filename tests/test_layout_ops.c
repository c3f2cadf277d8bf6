/* test_layout_ops.c -- ops that a layout cuts: slices put together as ranks would equal the whole bit for bit. */
#include "kernel_case.h"

static const orth_dtype both[] = {ORTH_F32, ORTH_BF16};

/* Columns [first, first + n) of a matrix. */
static orth_tensor columns_of(const orth_tensor *t, int64_t first, int64_t n)
{
    orth_tensor out = case_tensor(t->dtype, t->dim[0], n);
    const size_t e = orth_dtype_bytes(t->dtype);
    for (int64_t r = 0; r < t->dim[0]; r++)
        memcpy((char *)out.data + (size_t)(r * n) * e, (char *)t->data + (size_t)(r * t->dim[1] + first) * e,
               (size_t)n * e);
    return out;
}

/* A view of rows [first, first + n). */
static orth_tensor rows_of(const orth_tensor *t, int64_t first, int64_t n)
{
    orth_tensor v = *t;
    v.data = (char *)t->data + (size_t)(first * t->dim[1]) * orth_dtype_bytes(t->dtype);
    v.dim[0] = n;
    return v;
}

static void run_cpu(orth_ctx *ctx, orth_kernel_fn fn, orth_workspace_fn workspace, const orth_tensor *in, int num_in,
                    const orth_tensor *out, int num_out, const orth_attr *attr)
{
    orth_op_call call = {in, out, num_in, num_out, attr, NULL};
    call.workspace = guarded_alloc(workspace ? workspace(&call, orth_pool_num_threads(ctx->pool), ctx->isa) : 0);
    CHECK_OK(ctx, fn(ctx, &call));
    guarded_free(call.workspace);
}

/* Every instruction set of this machine, one after the other. */
#define EACH_ISA(ctx) \
    for (orth_isa isa = ORTH_ISA_BASE; isa <= orth_isa_detect() && ((ctx)->isa = isa, true); isa++)

/* ---- sums of squares ---- */

static orth_tensor marked_sums(int64_t blocks, int64_t P)
{
    orth_tensor t = case_tensor(ORTH_F64, blocks, P);
    for (int64_t i = 0; i < blocks * P; i++)
        ((double *)t.data)[i] = -1.0 - (double)i;
    return t;
}

/* Ranks that hold 8/t parts of the columns each fill in the entries that one rank has for all. */
TEST(grad_square_of_column_slices_is_that_of_the_whole)
{
    orth_ctx *ctx = test_ctx(3);
    const int64_t widths[] = {1, 3, 16, 37, 130}; /* of a part */
    EACH_ISA(ctx)
        for (int w = 0; w < ORTH_COUNT(widths); w++) {
            const int64_t R = 45, K = 8 * widths[w], blocks = orth_div_up(R, 10);
            orth_tensor g = case_random(ORTH_F32, R, K, 1, 1), want = marked_sums(blocks, 8);
            orth_attr attr = {.block_rows = 10, .split = {ORTH_SPLIT_EVEN, 8, K, 1, 1}};
            run_cpu(ctx, orth_cpu_grad_square, NULL, &g, 1, &want, 1, &attr);
            for (int t = 2; t <= 8; t *= 2) {
                orth_tensor got = marked_sums(blocks, 8);
                for (int rank = 0; rank < t; rank++) {
                    orth_tensor part = columns_of(&g, rank * K / t, K / t);
                    attr.split = (orth_split){ORTH_SPLIT_EVEN, 8 / t, K / t, 1, 1};
                    attr.first_part = rank * 8 / t;
                    run_cpu(ctx, orth_cpu_grad_square, NULL, &part, 1, &got, 1, &attr);
                    case_free(&part, 1);
                }
                assert_memory_equal(got.data, want.data, orth_tensor_bytes(&want));
                case_free(&got, 1);
            }
            case_free(&g, 1);
            case_free(&want, 1);
        }
    test_ctx_free(ctx);
}

/* ---- cross-entropy ---- */

typedef struct {
    orth_tensor logits, target, weight, step;
    int64_t N, V;
} xent_problem;

static xent_problem xent_make(int64_t N, int64_t V)
{
    const orth_step_values step = {.loss_scale = 0.125f};
    xent_problem x = {case_random(ORTH_F32, N, V, 1, 8), case_ints(N, 2, 0, V - 1), case_tensor(ORTH_F32, N, 0),
                      case_step(&step), N, V};
    for (int64_t n = 0; n < N; n++)
        ((float *)x.weight.data)[n] = n % 4 == 3 ? 0.0f : n % 4 == 2 ? 0.5f : 1.0f;
    if (N > 3)
        ((int32_t *)x.target.data)[3] = -100; /* weight 0: not looked at */
    return x;
}

static void xent_free(xent_problem *x)
{
    case_free((orth_tensor[]){x->logits, x->target, x->weight, x->step}, 4);
}

/* What `t` ranks compute, into nll [t][N] and dlogits [t] of [N, V/t]. */
static void xent_ranks(orth_ctx *ctx, const xent_problem *x, int t, int parts, orth_tensor *nll, orth_tensor *dlogits)
{
    const int64_t N = x->N, V = x->V / t;
    orth_tensor logits[8], max[8], sums[8];
    orth_attr attr = {.split = {ORTH_SPLIT_EVEN, parts / t, V, 1, 1}};
    for (int r = 0; r < t; r++) {
        logits[r] = columns_of(&x->logits, r * V, V);
        max[r] = case_tensor(ORTH_F32, N, 0);
        sums[r] = case_tensor(ORTH_F32, N, 2);
        run_cpu(ctx, orth_cpu_xent_max, NULL, &logits[r], 1, &max[r], 1, &attr);
    }
    for (int r = 1; r < t; r++)
        for (int64_t n = 0; n < N; n++)
            ((float *)max[0].data)[n] = ORTH_MAX(((float *)max[0].data)[n], ((float *)max[r].data)[n]);
    for (int r = 0; r < t; r++) {
        attr.first_row = r * V;
        run_cpu(ctx, orth_cpu_xent_sum, NULL, (orth_tensor[]){logits[r], x->target, max[0]}, 3, &sums[r], 1, &attr);
    }
    for (int w = 1; w < t; w *= 2) /* the aligned tree over ranks */
        for (int r = 0; r + w < t; r += 2 * w)
            for (int64_t i = 0; i < 2 * N; i++)
                ((float *)sums[r].data)[i] += ((float *)sums[r + w].data)[i];
    for (int r = 0; r < t; r++) {
        attr.first_row = r * V;
        run_cpu(ctx, orth_cpu_xent_grad, NULL,
                (orth_tensor[]){logits[r], x->target, x->weight, max[0], sums[0], x->step}, 6,
                (orth_tensor[]){nll[r], dlogits[r]}, 2, &attr);
    }
    case_free(logits, t);
    case_free(max, t);
    case_free(sums, t);
}

TEST(xent_steps_on_slices_give_the_bits_of_softmax_xent)
{
    orth_ctx *ctx = test_ctx(3);
    const int64_t sizes[] = {8, 8 * 13, 8 * 16, 8 * 129};
    EACH_ISA(ctx)
        for (int s = 0; s < ORTH_COUNT(sizes); s++)
            for (int d = 0; d < 2; d++) {
                const int64_t N = 7, V = sizes[s];
                xent_problem x = xent_make(N, V);
                orth_attr attr = {.split = {ORTH_SPLIT_EVEN, 8, V, 1, 1}};
                orth_tensor want[2] = {case_tensor(ORTH_F32, N, 0), case_tensor(both[d], N, V)};
                run_cpu(ctx, orth_cpu_softmax_xent, orth_workspace_softmax_xent,
                        (orth_tensor[]){x.logits, x.target, x.weight, x.step}, 4, want, 2, &attr);
                for (int t = 1; t <= 8; t *= 2) {
                    orth_tensor nll[8], dlogits[8];
                    for (int r = 0; r < t; r++) {
                        nll[r] = case_random(ORTH_F32, N, 0, 3, 1);
                        dlogits[r] = case_random(both[d], N, V / t, 3, 1);
                    }
                    xent_ranks(ctx, &x, t, 8, nll, dlogits);
                    for (int r = 0; r < t; r++) {
                        orth_tensor part = columns_of(&want[1], r * V / t, V / t);
                        assert_memory_equal(nll[r].data, want[0].data, orth_tensor_bytes(&want[0]));
                        assert_memory_equal(dlogits[r].data, part.data, orth_tensor_bytes(&part));
                        case_free(&part, 1);
                    }
                    case_free(nll, t);
                    case_free(dlogits, t);
                }
                case_free(want, 2);
                xent_free(&x);
            }
    test_ctx_free(ctx);
}

/* ---- embeddings ---- */

TEST(embedding_slices_put_together_are_the_whole)
{
    orth_ctx *ctx = test_ctx(3);
    EACH_ISA(ctx)
        for (int d = 0; d < 2; d++) {
            const int64_t B = 3, T = 19, C = 33, V = 40, N = B * T;
            orth_attr attr = {.num_seqs = (int)B, .seq_len = (int)T, .token_parts = 4};
            orth_tensor tok = case_ints(N, 1, 0, V - 1), pos = case_ints(N, 2, 0, 9), none = {.dtype = both[d]};
            orth_tensor wte = case_random(both[d], V, C, 3, 1), dx = case_random(both[d], N, C, 4, 1);
            orth_tensor x = case_tensor(both[d], N, C), dwte = case_tensor(ORTH_F32, V, C);
            orth_tensor part = case_tensor(both[d], N, C), sum = case_tensor(both[d], N, C), got = case_tensor(ORTH_F32, V, C);
            run_cpu(ctx, orth_cpu_embed, NULL, (orth_tensor[]){tok, pos, wte, none}, 4, &x, 1, &attr);
            run_cpu(ctx, orth_cpu_embed_bwd, orth_workspace_embed_bwd, (orth_tensor[]){tok, dx}, 2, &dwte, 1, &attr);
            for (int t = 2; t <= 8; t *= 2) {
                memset(sum.data, 0, orth_tensor_bytes(&sum));
                for (int r = 0; r < t; r++) {
                    attr.first_row = r * V / t;
                    orth_tensor slice = rows_of(&wte, attr.first_row, V / t), to = rows_of(&got, attr.first_row, V / t);
                    run_cpu(ctx, orth_cpu_embed, NULL, (orth_tensor[]){tok, pos, slice, none}, 4, &part, 1, &attr);
                    run_cpu(ctx, orth_cpu_add, NULL, (orth_tensor[]){sum, part}, 2, &sum, 1, &attr);
                    run_cpu(ctx, orth_cpu_embed_bwd, orth_workspace_embed_bwd, (orth_tensor[]){tok, dx}, 2, &to, 1, &attr);
                }
                attr.first_row = 0;
                assert_memory_equal(sum.data, x.data, orth_tensor_bytes(&x));
                assert_memory_equal(got.data, dwte.data, orth_tensor_bytes(&dwte));
            }
            case_free((orth_tensor[]){tok, pos, wte, dx, x, dwte, part, sum, got}, 9);
        }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grad_square_of_column_slices_is_that_of_the_whole),
        cmocka_unit_test(xent_steps_on_slices_give_the_bits_of_softmax_xent),
        cmocka_unit_test(embedding_slices_put_together_are_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
