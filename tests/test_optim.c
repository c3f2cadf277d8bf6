/* test_optim.c -- gradient norm, clipping, AdamW, Adam, SGD follow an independent double-precision version of PyTorch's
 * torch.optim; that fast kernels equal the plain ones is in test_ops.c. */
#include <jansson.h>

#include "kernel_case.h"

#include <math.h>

#include "kernels/optim.h"
#include "kernels/round.h"
#include "program/ir/param.h"

static orth_step_values step_values(uint64_t t)
{
    return (orth_step_values){.step = t,
                              .lr = 0.01f,
                              .weight_decay = 0.1f,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8f,
                              .momentum = 0.9f,
                              .clip_scale = 0.5f};
}

/* op 0 adamw, 1 adam, 2 sgd, 3 sgd without momentum; with or without the bf16 copy. */
#define NUM_OPS 4
static kernel_case optim_case(int op, int64_t n, bool copy, const orth_step_values *s)
{
    static const char *const names[] = {"adamw", "adam", "sgd", "sgd"};
    static const orth_kernel_fn ref[] = {orth_ref_adamw, orth_ref_adam, orth_ref_sgd, orth_ref_sgd};
    static const orth_kernel_fn cpu[] = {orth_cpu_adamw, orth_cpu_adam, orth_cpu_sgd, orth_cpu_sgd};
    kernel_case k = {
        .name = names[op], .ref = ref[op], .cpu = cpu[op], .num_in = 2, .num_out = op >= 2 ? 3 : 4};
    k.attr.lr_factor = n % 3 ? 1.0f : 0.25f;
    k.attr.decay_factor = 1;
    k.attr.nesterov = n % 2;
    k.in[0] = case_random(ORTH_F32, n, 0, 1, 1);
    k.in[1] = case_step(s);
    k.out[0] = case_random(ORTH_F32, n, 0, 2, 1);
    if (op < 3)
        k.out[1] = case_random(ORTH_F32, n, 0, 3, 0.1f);
    if (op < 2) {
        k.out[2] = case_random(ORTH_F32, n, 0, 4, 0.1f);
        for (int64_t i = 0; i < n; i++)
            ((float *)k.out[2].data)[i] = fabsf(((float *)k.out[2].data)[i]);
    }
    if (copy)
        k.out[k.num_out - 1] = case_random(ORTH_BF16, n, 0, 5, 1);
    return k;
}

TEST(a_skipped_or_bad_step_writes_nothing_but_the_copy)
{
    case_pool pool = case_pool_make();
    for (int op = 0; op < NUM_OPS; op++)
        for (int bad = 0; bad < 2; bad++) {
            orth_step_values s = step_values(3);
            s.skip = !bad;
            s.bad = bad;
            kernel_case k = optim_case(op, 100, true, &s);
            orth_tensor want[ORTH_OP_MAX_OUT];
            case_run_ref(&k, pool.ctx[0], want);
            for (int i = 0; i < k.num_out - 1 && k.out[i].data; i++)
                assert_memory_equal(want[i].data, k.out[i].data, orth_tensor_bytes(&k.out[i]));
            const orth_tensor *copy = &want[k.num_out - 1];
            for (int64_t i = 0; i < 100; i++)
                assert_int_equal(((orth_bf16 *)copy->data)[i], orth_bf16_from_f32(((const float *)want[0].data)[i]));
            case_free(want, k.num_out);
            case_check(&k, &pool);
        }
    case_pool_free(&pool);
}

typedef struct {
    double p, m, v;
} exact_state;

/* torch.optim.AdamW, Adam and SGD of one element, in double. */
static void exact_step(exact_state *x, int op, double g, const orth_step_values *s, const orth_attr *attr)
{
    const double wd = (double)s->weight_decay * attr->decay_factor, b1 = s->beta1, b2 = s->beta2;
    const double lr = (double)s->lr * attr->lr_factor;
    if (op == 0)
        x->p -= lr * wd * x->p;
    else
        g += wd * x->p;
    if (op >= 2) {
        x->m = op == 2 ? s->momentum * x->m + g : g;
        x->p -= lr * (op == 2 && attr->nesterov ? g + s->momentum * x->m : x->m);
        return;
    }
    x->m += (g - x->m) * (1 - b1);
    x->v = x->v * b2 + (1 - b2) * g * g;
    double c1 = 1 - pow(b1, (double)s->step), c2 = 1 - pow(b2, (double)s->step);
    x->p -= lr / c1 * x->m / (sqrt(x->v) / sqrt(c2) + s->eps);
}

TEST(fifty_steps_follow_torch_optim_in_double)
{
    enum { N = 200, STEPS = 50 };
    orth_ctx *ctx = test_ctx(2);
    static const float lr_factors[] = {1, 1, 0.5f, 0}, decay_factors[] = {1, 0, 0.3f, 1};
    for (int variant = 0; variant < 8 * NUM_OPS; variant++) {
        const int op = variant % NUM_OPS;
        orth_step_values s = step_values(1);
        kernel_case k = optim_case(op, N, true, &s);
        k.attr.nesterov = variant / NUM_OPS & 1;
        if (k.attr.nesterov) /* of sgd; the others have betas that are 1 in fp32 */
            s.beta1 = 0.99999999, s.beta2 = 0.999999999;
        k.attr.lr_factor = lr_factors[variant / (2 * NUM_OPS)];
        k.attr.decay_factor = decay_factors[variant / (2 * NUM_OPS)];
        exact_state x[N];
        for (int i = 0; i < N; i++)
            x[i] = (exact_state){.p = ((float *)k.out[0].data)[i]};
        if (op < 3)
            memset(k.out[1].data, 0, N * 4);
        if (op < 2)
            memset(k.out[2].data, 0, N * 4);
        for (uint64_t t = 1; t <= STEPS; t++) {
            s.step = t;
            s.lr = 0.01f / (float)t;
            s.clip_scale = t % 3 ? 1.0f : 0.25f;
            memcpy(k.in[1].data, &s, sizeof s);
            for (int i = 0; i < N; i++) {
                float g = test_rand(t, (uint64_t)i) * (i % 5 == 0 ? 1e-4f : 1.0f);
                ((float *)k.in[0].data)[i] = g;
                exact_step(&x[i], op, (double)g * s.clip_scale, &s, &k.attr);
            }
            CHECK_OK(ctx, k.cpu(ctx, &(orth_op_call){k.in, k.out, k.num_in, k.num_out, &k.attr, NULL}));
        }
        for (int i = 0; i < N; i++) {
            float p = ((float *)k.out[0].data)[i];
            assert_true(fabs(p - x[i].p) < 2e-6);
            assert_int_equal(((orth_bf16 *)k.out[k.num_out - 1].data)[i], orth_bf16_from_f32(p));
        }
        case_free(k.in, k.num_in);
        case_free(k.out, k.num_out);
    }
    test_ctx_free(ctx);
}

/* The buffer of a momentum of 0 would change no bit of the weights. */
TEST(sgd_without_momentum_has_the_bits_of_a_momentum_of_0)
{
    case_pool pool = case_pool_make();
    for (int64_t n = 1; n < 600; n = n * 3 + 1) {
        orth_step_values s = step_values(3);
        s.momentum = 0;
        kernel_case with = optim_case(2, n, true, &s), without = optim_case(3, n, true, &s);
        orth_tensor want[ORTH_OP_MAX_OUT], got[ORTH_OP_MAX_OUT];
        case_run_ref(&with, pool.ctx[0], want);
        case_run_ref(&without, pool.ctx[0], got);
        assert_memory_equal(want[0].data, got[0].data, orth_tensor_bytes(&with.out[0]));
        assert_memory_equal(want[2].data, got[2].data, orth_tensor_bytes(&with.out[2]));
        case_free(want, with.num_out);
        case_free(got, without.num_out);
        case_check(&with, &pool);
        case_check(&without, &pool);
    }
    case_pool_free(&pool);
}

TEST(bias_corrections_need_no_libm)
{
    for (uint64_t n = 0; n < 3000000; n = n * 3 + 1) {
        assert_true(fabs(orth_power(0.999, n) - pow(0.999, (double)n)) < 1e-12);
        assert_true(fabs(orth_power(0.9999999, n) - pow(0.9999999, (double)n)) < 1e-9);
    }
}

TEST(grad_square_equals_reference_and_double)
{
    case_pool pool = case_pool_make();
    const int64_t n_of[] = {
        1, 17, ORTH_NORM_BLOCK - 1, ORTH_NORM_BLOCK, ORTH_NORM_BLOCK + 1, 5 * ORTH_NORM_BLOCK + 99};
    for (int i = 0; i < ORTH_COUNT(n_of); i++) {
        const int64_t n = n_of[i], m = orth_div_up(n, ORTH_NORM_BLOCK);
        kernel_case k = {KERNEL_CASE(grad_square), .num_in = 1, .num_out = 1,
                         .attr = {.block_rows = ORTH_NORM_BLOCK}};
        k.in[0] = case_random(ORTH_F32, n, 0, 1, 1);
        k.out[0] = case_tensor(ORTH_F64, m, 0);
        orth_tensor want[1];
        case_run_ref(&k, pool.ctx[0], want);
        double got = 0, sum = 0;
        for (int64_t j = 0; j < m; j++)
            got += ((double *)want[0].data)[j];
        for (int64_t j = 0; j < n; j++)
            sum += (double)((float *)k.in[0].data)[j] * ((float *)k.in[0].data)[j];
        assert_true(fabs(got - sum) <= 1e-12 * sum);
        case_free(want, 1);
        case_check(&k, &pool);
    }
    case_pool_free(&pool);
}

/* ---- 16 bits ---- */

/* The tensors of a case in bf16: bit 0 of `which` the weights, 1 and 2 the moments. */
static void narrow(kernel_case *k, int which)
{
    for (int t = 0; t < k->num_out - 1; t++) {
        if (!(which >> t & 1) || !k->out[t].data)
            continue;
        const orth_tensor wide = k->out[t];
        k->out[t] = case_tensor(ORTH_BF16, wide.dim[0], 0);
        for (int64_t i = 0; i < wide.dim[0]; i++)
            orth_store_f32(k->out[t].data, ORTH_BF16, i, ((float *)wide.data)[i]);
        guarded_check(wide.data, orth_tensor_bytes(&wide), "narrow");
        case_free((orth_tensor *)&wide, 1);
    }
}

TEST(states_in_16_bits_are_the_same_bits_on_every_instruction_set)
{
    case_pool pool = case_pool_make();
    for (int variant = 0; variant < 64; variant++) {
        orth_step_values s = step_values((uint64_t)variant + 1);
        kernel_case k = optim_case(variant % NUM_OPS, (const int64_t[]){1, 255, 1030, 40000}[variant / NUM_OPS % 4], variant / 32, &s);
        narrow(&k, 1 + variant % 7);
        k.attr.stochastic = variant / 16 % 2;
        k.attr.place = (orth_elem_place){.param = 7, .first = 3, .cols = 21, .whole_cols = 77, .row = 5, .col = 11,
                                         .replica_rows = 2, .replica_first = 900};
        case_check(&k, &pool);
    }
    case_pool_free(&pool);
}

/* A matrix of 12 x 40 as one, by rows, by columns, with replicated rows, and in shards of each. */
TEST(pieces_of_a_weight_are_rounded_as_the_whole_is)
{
    enum { ROWS = 12, COLS = 40 };
    orth_ctx *ctx = test_ctx(1);
    for (int split = 0; split < 3; split++) {
        orth_step_values s = step_values(2);
        s.seed = 9;
        kernel_case k = optim_case(0, ROWS * COLS, false, &s), part = optim_case(0, ROWS * COLS, false, &s);
        narrow(&k, 7);
        narrow(&part, 7);
        const int64_t rows = split == 1 ? 4 : ROWS, cols = split == 2 ? 10 : COLS;
        const orth_param_desc d = {.num_dims = 2, .dim = {rows, cols}, .whole_cols = COLS, .split_dim = split - 1,
                                   .split = {.parts = 4, .units = split == 1 ? ROWS : COLS, .unit = 1}, .first_part = 2, .num_parts = 1};
        const int64_t first = 7, n = rows * cols - first;
        const int64_t row = split == 1 ? 6 : 0, col = split == 2 ? 20 : 0;
        part.attr = k.attr;
        k.attr.stochastic = part.attr.stochastic = true;
        k.attr.place = (orth_elem_place){.param = 3, .cols = COLS, .whole_cols = COLS};
        part.attr.place = orth_param_place(&d, 3, first);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = (row + (first + i) / cols) * COLS + col + (first + i) % cols;
            ((float *)part.in[0].data)[i] = ((float *)k.in[0].data)[at % (ROWS * COLS)];
            for (int t = 0; t < 3; t++)
                ((orth_bf16 *)part.out[t].data)[i] = ((orth_bf16 *)k.out[t].data)[at % (ROWS * COLS)];
        }
        for (int t = 0; t < 3; t++)
            part.out[t].dim[0] = n;
        CHECK_OK(ctx, orth_cpu_adamw(ctx, &(orth_op_call){k.in, k.out, 2, 4, &k.attr, NULL}));
        CHECK_OK(ctx, orth_cpu_adamw(ctx, &(orth_op_call){part.in, part.out, 2, 4, &part.attr, NULL}));
        for (int64_t i = 0; i < n && split < 3; i++) {
            const int64_t at = (row + (first + i) / cols) * COLS + col + (first + i) % cols;
            for (int t = 0; t < 3 && at < ROWS * COLS; t++)
                assert_int_equal(((orth_bf16 *)part.out[t].data)[i], ((orth_bf16 *)k.out[t].data)[at]);
        }
        for (int t = 0; t < 3; t++)
            part.out[t].dim[0] = ROWS * COLS;
        case_free(k.in, 2);
        case_free(k.out, 3);
        case_free(part.in, 2);
        case_free(part.out, 3);
    }
    test_ctx_free(ctx);
}

/* The mean of many roundings is the number itself; each is one of the two neighbours; what bf16 holds stays. */
TEST(stochastic_rounding_is_right_in_the_mean)
{
    enum { DRAWS = 1 << 16 };
    static const float some[] = {1.001f, -3.14159f, 1e-20f, 0x1.01p-126f, 0x1.fep127f, 2.0f, -0.0f, 0x1p-140f};
    const orth_step_values s = {.seed = 3, .step = 2};
    for (int i = 0; i < ORTH_COUNT(some); i++) {
        double sum = 0, low = INFINITY, high = -INFINITY;
        for (int64_t e = 0; e < DRAWS; e++) {
            const orth_rand4 draw = orth_round_draw(&s, 1, e / 2);
            const double x = (double)orth_bf16_to_f32(orth_bf16_stochastic(some[i], orth_round_bits(&draw, e, (orth_round_what)(e % 3))));
            sum += x;
            low = fmin(low, x);
            high = fmax(high, x);
        }
        const double step = high - low;
        assert_true(low <= (double)some[i] && (double)some[i] <= high && (step > 0) == (low != (double)some[i]));
        assert_true(fabs(sum / DRAWS - (double)some[i]) <= 4 * 0.5 * step / sqrt(DRAWS));
    }
    assert_true(isnan(orth_bf16_to_f32(orth_bf16_stochastic(NAN, 0xffff))) && isinf(orth_bf16_to_f32(orth_bf16_stochastic(INFINITY, 0xffff))));
}

static void load_bits(orth_tensor *t, const json_t *bits)
{
    for (int64_t i = 0; i < t->dim[0]; i++) {
        const orth_bf16 h = (orth_bf16)json_integer_value(json_array_get(bits, (size_t)i));
        orth_store_f32(t->data, t->dtype, i, orth_bf16_to_f32(h));
    }
}

/* Numbers that are not those of the fixture; by more than one bf16: the test fails. */
static int others(const orth_tensor *t, const json_t *bits)
{
    int n = 0;
    for (int64_t i = 0; i < t->dim[0]; i++) {
        const int want = (int)json_integer_value(json_array_get(bits, (size_t)i)), got = ((orth_bf16 *)t->data)[i];
        assert_true(abs(want - got) <= 1);
        n += want != got;
    }
    return n;
}

TEST(adamw_on_weights_and_moments_in_bf16_follows_pytorchs_fused_one)
{
    orth_ctx *ctx = test_ctx(1);
    json_t *root = json_load_file(ORTH_TEST_DIR "/fixtures/bf16_adamw.json", 0, NULL);
    const int64_t n = (int64_t)json_array_size(json_object_get(root, "w"));
    assert_int_equal(n, 200);
    orth_step_values s = {.lr = (float)json_number_value(json_object_get(root, "lr")), .clip_scale = 1,
                          .weight_decay = (float)json_number_value(json_object_get(root, "weight_decay")),
                          .beta1 = json_number_value(json_object_get(root, "beta1")),
                          .beta2 = json_number_value(json_object_get(root, "beta2")),
                          .eps = (float)json_number_value(json_object_get(root, "eps"))};
    kernel_case k = optim_case(0, n, false, &s);
    static const char *const kept[] = {"p", "m", "v"};
    narrow(&k, 7);
    k.attr = (orth_attr){.lr_factor = 1, .decay_factor = 1};
    load_bits(&k.out[0], json_object_get(root, "w"));
    memset(k.out[1].data, 0, (size_t)n * 2);
    memset(k.out[2].data, 0, (size_t)n * 2);
    for (size_t step = 0; step < json_array_size(json_object_get(root, "g")); step++) {
        s.step = step + 1;
        memcpy(k.in[1].data, &s, sizeof s);
        load_bits(&k.in[0], json_array_get(json_object_get(root, "g"), step));
        CHECK_OK(ctx, orth_cpu_adamw(ctx, &(orth_op_call){k.in, k.out, k.num_in, k.num_out, &k.attr, NULL}));
        for (int t = 0; t < 3; t++) {
            const json_t *want = json_array_get(json_object_get(root, kept[t]), step);
            assert_true(others(&k.out[t], want) <= n / 50);
            load_bits(&k.out[t], want); /* one that rounds otherwise is not to count again */
        }
    }
    json_decref(root);
    case_free(k.in, k.num_in);
    case_free(k.out, 3);
    test_ctx_free(ctx);
}

static orth_step_values clip(double a, double b, double loss, float clip_norm)
{
    orth_ctx *ctx = test_ctx(1);
    double sums[2] = {a, b};
    orth_step_values s = {.clip_norm = clip_norm};
    orth_tensor in[2] = {{sums, ORTH_F64, 1, {2, 1, 1, 1}}, {&loss, ORTH_F64, 1, {1, 1, 1, 1}}};
    orth_tensor out = {&s, ORTH_U8, 1, {sizeof s, 1, 1, 1}};
    CHECK_OK(ctx, orth_cpu_clip_scale(ctx, &(orth_op_call){in, &out, 2, 1, &(orth_attr){0}, NULL}));
    test_ctx_free(ctx);
    return s;
}

TEST(clipping_scales_to_the_norm_and_marks_what_is_not_finite)
{
    orth_step_values s = clip(9, 16, 1, 1);
    assert_true(s.grad_norm == 5 && s.clip_scale == (float)(1 / (5 + 1e-6)) && !s.bad);
    s = clip(9, 16, 1, 10);
    assert_true(s.grad_norm == 5 && s.clip_scale == 1 && !s.bad);
    s = clip(9, 16, 1, 0);
    assert_true(s.clip_scale == 1 && !s.bad);
    assert_true(clip(9, INFINITY, 1, 1).bad && clip(NAN, 1, 1, 1).bad && clip(9, 16, NAN, 1).bad);
    assert_true(clip(9, 16, -INFINITY, 0).bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skipped_or_bad_step_writes_nothing_but_the_copy),
        cmocka_unit_test(fifty_steps_follow_torch_optim_in_double),
        cmocka_unit_test(states_in_16_bits_are_the_same_bits_on_every_instruction_set),
        cmocka_unit_test(pieces_of_a_weight_are_rounded_as_the_whole_is),
        cmocka_unit_test(stochastic_rounding_is_right_in_the_mean),
        cmocka_unit_test(adamw_on_weights_and_moments_in_bf16_follows_pytorchs_fused_one),
        cmocka_unit_test(sgd_without_momentum_has_the_bits_of_a_momentum_of_0),
        cmocka_unit_test(bias_corrections_need_no_libm),
        cmocka_unit_test(grad_square_equals_reference_and_double),
        cmocka_unit_test(clipping_scales_to_the_norm_and_marks_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
