/* test_products.c -- a step whose linear layers multiply quantised operands (precision.products) against PyTorch's float8 types
 * (tests/fixtures/models/gpt2_spread). That all layouts compute the same bits is in test_layouts.c, the kernels in test_ops.c. */
#include "engine.h"

#include "kernels/quant.h"
#include "plan/device_time.h"

/* Relative, of a gradient tensor in norm. Sums in another order are 1e-6 apart, and now and then move a number across the border between two
 * codes, which then are 1/16 apart. Rules that differ show at 1e-2 and more. */
static const double limit = 3e-3;

/* As in the script of the fixture: the loss of each step of fp8_delayed is multiplied by this, and the other recipes have the last one alone. No
 * step changes a weight: what changes are gradients, and scales. */
static const float delayed_steps[] = {7, 5, 3, 1};

/* One step that changes no weight, on the batch `main` of the model's fixture, with the loss `times` as large. Returns the mean loss. */
static double run_step(orth_ctx *ctx, engine *e, const golden *g, int64_t B, int64_t T, float times)
{
    int32_t *tokens = golden_ints(g, "main", "input_ids", NULL), *targets = golden_ints(g, "main", "targets", NULL);
    float *weights = golden_tensor(g, "main", "weight", NULL);
    double total = 0;
    for (int64_t i = 0; i < B * T; i++)
        total += (double)weights[i];
    engine_fill(e, B, tokens, targets, weights, NULL);
    engine_set_step(e, 0, (orth_step_values){.step = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .loss_scale = times / (float)total});
    CHECK_OK(ctx, orth_executor_run(ctx, e->ex));
    free(tokens);
    free(targets);
    free(weights);
    return engine_loss(e) / total;
}

static void check_recipe(orth_ctx *ctx, orth_recipe recipe, const orth_kernel_fn *kernels, int32_t micro)
{
    const char *name = orth_recipe_of(recipe)->name;
    golden g;
    engine e;
    int64_t B, T;
    golden_open(ctx, &g, "gpt2_spread");
    golden_shape(&g, "main", &B, &T);
    const orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = (int32_t)B / micro, .num_micro_batches = micro, .seq_len = (int32_t)T,
                                    .parts = 1, .products = recipe, .delayed = {.history = 2, .margin = 1}, .optimizer = ORTH_OP_adamw};
    engine_open(ctx, &e, &g, &shape, kernels);
    double loss = 0;
    for (int i = orth_recipe_of(recipe)->delayed ? 0 : ORTH_COUNT(delayed_steps) - 1; i < ORTH_COUNT(delayed_steps); i++)
        loss = run_step(ctx, &e, &g, B, T, delayed_steps[i]);
    const double norm = engine_step_values(&e).grad_norm;
    const double want_loss = golden_number(&g, name, "loss"), want_norm = golden_number(&g, name, "grad_norm");
    if (!(fabs(loss - want_loss) <= 1e-4 * want_loss && fabs(norm - want_norm) <= limit * want_norm))
        fail_msg("%s: loss %.9g, PyTorch %.9g; norm %.9g, PyTorch %.9g", name, loss, want_loss, norm, want_norm);
    for (int64_t i = 0; i < orth_model_num_params(&e.model); i++) {
        float *grad = engine_get(&e, ORTH_BIND_GRAD, i);
        golden_check_grad(ctx, &g, &e.model, name, i, grad, limit, 0, NULL);
        free(grad);
    }
    engine_close(ctx, &e);
    golden_close(ctx, &g);
}

TEST(a_step_is_that_of_pytorch_with_operands_that_its_float8_types_round)
{
    orth_ctx *ctx = test_ctx(2);
    for (int recipe = 1; recipe < ORTH_NUM_RECIPES; recipe++) {
        check_recipe(ctx, (orth_recipe)recipe, orth_kernels_ref(), 1);
        check_recipe(ctx, (orth_recipe)recipe, orth_kernels_cpu(), 2);
    }
    test_ctx_free(ctx);
}

/* Of the gradients of two recipes: the largest difference, relative in norm. */
static double apart(const golden *g, const char *of_a, const char *of_b)
{
    const size_t prefix = strlen(of_a);
    double most = 0;
    for (int64_t i = 0; i < g->expected.num_tensors; i++) {
        const char *name = g->expected.tensors[i].name;
        if (strncmp(name, of_a, prefix) != 0 || strncmp(name + prefix, ".grad.", 6) != 0)
            continue;
        int64_t n;
        float *a = golden_tensor(g, of_a, name + prefix + 1, &n), *b = golden_tensor(g, of_b, name + prefix + 1, &n);
        most = fmax(most, rel_error_norm(a, b, n));
        free(a);
        free(b);
    }
    return most;
}

/* Else the test above would take one for another: the numbers of the fixture are spread so that each recipe loses something else. */
TEST(the_fixture_has_gradients_of_each_recipe_that_are_far_from_those_of_all_others)
{
    orth_ctx *ctx = test_ctx(1);
    golden g;
    golden_open(ctx, &g, "gpt2_spread");
    for (int a = 1; a < ORTH_NUM_RECIPES; a++)
        for (int b = 1; b < a; b++) {
            const char *of_a = orth_recipe_of((orth_recipe)a)->name, *of_b = orth_recipe_of((orth_recipe)b)->name;
            if (!(apart(&g, of_a, of_b) > 10 * limit))
                fail_msg("%s and %s are %.3g apart at most", of_a, of_b, apart(&g, of_a, of_b));
        }
    golden_close(ctx, &g);
    test_ctx_free(ctx);
}

/* A rank with a copy of another's key and value heads has other rows in their tile. */
TEST(tiles_that_copies_of_heads_would_cut_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config model;
    orth_compiled compiled;
    CHECK_OK(ctx, orth_model_preset(ctx, "llama-tiny", &model));
    model.kv_heads = 2;
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = 1, .num_micro_batches = 1, .seq_len = 16, .parts = 4, .optimizer = ORTH_OP_adamw};
    shape.mesh.size[ORTH_GROUP_TP] = 4;
    for (int recipe = 1; recipe < ORTH_NUM_RECIPES; recipe++) {
        shape.products = (orth_recipe)recipe;
        if (orth_recipe_of(shape.products)->tile_k > 0) {
            CHECK_FAILS(ctx, ORTH_ERR_ARG, "with parallel.tp=4 above model.kv_heads=2", orth_compiled_build(ctx, &model, &shape, &compiled));
        } else {
            CHECK_OK(ctx, orth_compiled_build(ctx, &model, &shape, &compiled));
            orth_compiled_release(&compiled);
        }
    }
    shape.products = ORTH_RECIPE_none;
    shape.comm.reduce = ORTH_Q8; /* nor blocks of gradients */
    CHECK_OK(ctx, orth_compiled_build(ctx, &model, &shape, &compiled));
    orth_compiled_release(&compiled);
    shape.mesh.size[ORTH_GROUP_DP] = 2;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "precision.grad_reduce=int8 with parallel.tp=4 above model.kv_heads=2", orth_compiled_build(ctx, &model, &shape, &compiled));
    test_ctx_free(ctx);
}

TEST(delayed_scales_of_steps_without_an_end_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config model;
    orth_compiled compiled;
    CHECK_OK(ctx, orth_model_preset(ctx, "llama-tiny", &model));
    const orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = 1, .num_micro_batches = 1, .seq_len = 16, .parts = 1, .optimizer = ORTH_OP_adamw,
                                    .products = ORTH_RECIPE_fp8_delayed, .async = true};
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "precision.products=fp8_delayed with an asynchronous pipeline", orth_compiled_build(ctx, &model, &shape, &compiled));
    test_ctx_free(ctx);
}

/* A scale is that of the largest of the history, or of the newest; a step in which a tensor was 0 changes nothing, an infinite one no scale.
 * The columns are what the kernel of TransformerEngine gives (delayed_scaling.cu, kernel_bulk). */
TEST(a_scale_follows_the_history_of_its_tensor)
{
    static const float most = 448, amax[] = {2, 8, 4, 0, 1, INFINITY, 1, 1, 1, 1e-38f};
    static const float largest[] = {2, 8, 8, 8, 8, 8, 8, 8, 1, 1}, newest[] = {2, 8, 4, 4, 1, 1, 1, 1, 1, 0}; /* 448 / scale, of a history of 3 */
    for (int recent = 0; recent < 2; recent++) {
        float scale = 0, history[3] = {0};
        for (int step = 0; step < ORTH_COUNT(amax); step++) {
            const float by = (recent ? newest : largest)[step];
            orth_quant_delayed_row(&scale, history, 3, amax[step], most, recent);
            assert_true(scale == (by > 0 ? most / by : FLT_MAX));
            assert_true(history[0] == (amax[step] > 0 ? amax[step] : amax[step - 1]));
        }
    }
}

/* A margin makes scales smaller by powers of 2, of E4M3 and of E5M2; a history of one step is the step before. */
TEST(a_margin_leaves_room_above_the_largest_magnitude)
{
    orth_ctx *ctx = test_ctx(1);
    float amax[ORTH_PRODUCT_TENSORS] = {3, 5, 7}, scale[ORTH_PRODUCT_TENSORS] = {0}, history[ORTH_PRODUCT_TENSORS] = {0};
    const orth_attr attr = {.float8 = ORTH_E4M3, .gradients = ORTH_E5M2, .delayed = {.history = 1, .margin = 2}};
    const orth_tensor in = {.data = amax, .dtype = ORTH_F32, .num_dims = 1, .dim = {ORTH_PRODUCT_TENSORS}};
    const orth_tensor out[] = {{.data = scale, .dtype = ORTH_F32, .num_dims = 1, .dim = {ORTH_PRODUCT_TENSORS}},
                               {.data = history, .dtype = ORTH_F32, .num_dims = 2, .dim = {ORTH_PRODUCT_TENSORS, 1}}};
    CHECK_OK(ctx, orth_ref_delayed_scales(ctx, &(orth_op_call){&in, out, 1, 2, &attr, NULL}));
    assert_true(scale[0] == 448.0f / 4 / 3 && scale[1] == 448.0f / 4 / 5 && scale[2] == 57344.0f / 4 / 7 && history[2] == 7);
    test_ctx_free(ctx);
}

TEST(parts_of_sequences_that_would_cut_runs_of_transformed_tokens_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config model;
    orth_compiled compiled;
    CHECK_OK(ctx, orth_model_preset(ctx, "llama-tiny", &model));
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = 1, .num_micro_batches = 1, .seq_len = 32, .parts = 4, .optimizer = ORTH_OP_adamw,
                              .products = ORTH_RECIPE_nvfp4};
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "precision.products=nvfp4: data.seq_len=32 is no multiple of 16 * numerics.parts=4",
                orth_compiled_build(ctx, &model, &shape, &compiled));
    shape.parts = 2;
    CHECK_OK(ctx, orth_compiled_build(ctx, &model, &shape, &compiled));
    orth_compiled_release(&compiled);
    test_ctx_free(ctx);
}

/* ---- price ---- */

TEST(a_device_multiplies_codes_at_its_rate_for_them_or_at_that_of_bf16)
{
    const orth_hardware slow = {.device_bf16_tflops = 100, .device_memory_GBps = 1e9, .device_memory_share = 1, .device_gemm_share = 1};
    orth_hardware fast = slow;
    fast.device_fp8_tflops = 200;
    orth_operand in[] = {{.num_dims = 2, .dtype = ORTH_U8, .dim = {4096, 4096, 1, 1}}, {.num_dims = 2, .dtype = ORTH_U8, .dim = {4096, 4096, 1, 1}}};
    orth_operand out = {.num_dims = 2, .dtype = ORTH_BF16, .dim = {4096, 4096, 1, 1}};
    orth_instr n = {.op = ORTH_OP_qlinear, .attr = &(orth_attr){0}, .in = in, .out = &out, .num_in = 2, .num_out = 1};
    const double codes = orth_device_seconds(&slow, &n);
    assert_true(fabs(orth_device_seconds(&fast, &n) / codes - 0.5) < 1e-3);
    n.attr = &(orth_attr){.recipe = ORTH_RECIPE_nvfp4};
    assert_true(fabs(orth_device_seconds(&fast, &n) / codes - 0.5) < 1e-3); /* at that of fp8, if it has none of its own */
    fast.device_fp4_tflops = 400;
    assert_true(fabs(orth_device_seconds(&fast, &n) / codes - 0.25) < 1e-3);
    n.op = ORTH_OP_linear;
    in[0].dtype = in[1].dtype = ORTH_BF16;
    assert_true(fabs(orth_device_seconds(&slow, &n) / codes - 1) < 1e-3);
}

/* ---- tiles ---- */

static void check_tiles(const orth_tile_axis *axis, const int64_t *ends, int num)
{
    orth_tile t = ORTH_BEFORE_TILES;
    for (int i = 0; i < num; i++) {
        assert_true(orth_tile_next(axis, &t));
        assert_int_equal(t.index, i);
        assert_int_equal(t.begin, i ? ends[i - 1] : 0);
        assert_int_equal(t.end, ends[i]);
        for (int64_t e = t.begin; e < t.end; e++)
            assert_int_equal(orth_tile_at(axis, e).index, i);
    }
    assert_false(orth_tile_next(axis, &t));
    assert_int_equal(orth_num_tiles(axis), num);
}

TEST(tiles_begin_anew_at_each_canonical_part)
{
    const orth_split even = {ORTH_SPLIT_EVEN, 2, 10, 1, 1, 0, 0}, some = {ORTH_SPLIT_EVEN, 1, 10, 1, 1, 1, 2};
    const orth_split tokens = {ORTH_SPLIT_TOKENS, 2, 5, 1, 2, 0, 0};
    check_tiles(&(orth_tile_axis){.n = 10, .tile = 4, .split = &even}, (const int64_t[]){4, 5, 9, 10}, 4);
    check_tiles(&(orth_tile_axis){.n = 5, .tile = 4, .split = &some}, (const int64_t[]){4, 5}, 2);
    check_tiles(&(orth_tile_axis){.n = 10, .tile = 0, .split = &even}, (const int64_t[]){10}, 1);
    check_tiles(&(orth_tile_axis){.n = 10, .tile = 2, .split = &tokens}, (const int64_t[]){2, 4, 5, 7, 9, 10}, 6);
    check_tiles(&(orth_tile_axis){.n = 10, .tile = 0, .split = &tokens}, (const int64_t[]){5, 10}, 2);
    check_tiles(&(orth_tile_axis){.n = 7, .tile = 3}, (const int64_t[]){3, 6, 7}, 3);
    check_tiles(&(orth_tile_axis){.n = 7, .skip = 2, .tile = 3, .split = &(orth_split){ORTH_SPLIT_EVEN, 1, 5, 1, 1, 0, 0}},
                (const int64_t[]){5, 7}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_that_of_pytorch_with_operands_that_its_float8_types_round),
        cmocka_unit_test(the_fixture_has_gradients_of_each_recipe_that_are_far_from_those_of_all_others),
        cmocka_unit_test(delayed_scales_of_steps_without_an_end_are_refused),
        cmocka_unit_test(a_scale_follows_the_history_of_its_tensor),
        cmocka_unit_test(a_margin_leaves_room_above_the_largest_magnitude),
        cmocka_unit_test(parts_of_sequences_that_would_cut_runs_of_transformed_tokens_are_refused),
        cmocka_unit_test(tiles_that_copies_of_heads_would_cut_are_refused),
        cmocka_unit_test(a_device_multiplies_codes_at_its_rate_for_them_or_at_that_of_bf16),
        cmocka_unit_test(tiles_begin_anew_at_each_canonical_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
