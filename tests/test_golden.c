/* test_golden.c -- the fixtures agree with themselves, and golden.h reads them. Nothing is trained here. */
#include "golden.h"

static const char *const batches[] = {"main", "long", "packed"};

TEST(rel_error_norm_is_the_distance_over_the_norm)
{
    const float truth[] = {3, 4}, near[] = {3, 4.05f}, nan[] = {3, NAN}, zero[] = {0, 0};
    assert_true(fabs(rel_error_norm(near, truth, 2) - 0.01) < 1e-6);
    assert_true(rel_error_norm(truth, truth, 2) <= 0);
    assert_false(rel_error_norm(nan, truth, 2) <= 1e30);
    assert_true(rel_error_norm(truth, zero, 2) > 1);
}

/* sum(weight * nll) / sum(weight) from the stored logits, in double. */
static double loss_of(const golden *g, const char *batch)
{
    int64_t n, rows;
    float *logits = golden_tensor(g, batch, "logits", &n), *weight = golden_tensor(g, batch, "weight", &rows);
    int32_t *target = golden_ints(g, batch, "targets", NULL);
    const int64_t V = n / rows;
    double loss = 0, total = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = logits + r * V;
        double sum = 0;
        for (int64_t v = 0; v < V; v++)
            sum += exp(row[v]);
        assert_in_range(target[r], 0, V - 1);
        loss += weight[r] * (log(sum) - row[target[r]]);
        total += weight[r];
    }
    free(logits);
    free(weight);
    free(target);
    return loss / total;
}

TEST(the_loss_follows_from_the_logits)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < GOLDEN_NUM_CASES; i++) {
        golden g;
        golden_open(ctx, &g, golden_cases[i]);
        for (int b = 0; b < 3; b++) {
            const double loss = loss_of(&g, batches[b]), stored = golden_number(&g, batches[b], "loss");
            if (!(fabs(loss - stored) <= 2e-6 * stored))
                fail_msg("%s %s: %.9g from the logits, %.9g stored", golden_cases[i], batches[b], loss, stored);
        }
        golden_close(ctx, &g);
    }
    test_ctx_free(ctx);
}

/* Through the map there and back: every registry parameter has its gradient, none is counted twice. */
TEST(the_gradient_norm_follows_from_the_gradients)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < GOLDEN_NUM_CASES; i++) {
        golden g;
        golden_open(ctx, &g, golden_cases[i]);
        orth_hf_source *src = NULL;
        CHECK_OK(ctx, orth_hf_open(ctx, &src, g.dir));
        const orth_model_config *c = orth_hf_source_config(src);
        double square = 0;
        golden_errors errors = {0};
        for (int64_t p = 0; p < orth_model_num_params(c); p++) {
            int64_t n;
            float *grad = golden_grad(ctx, &g, c, "main", p, &n);
            for (int64_t k = 0; k < n; k++)
                square += (double)grad[k] * grad[k];
            golden_check_grad(ctx, &g, c, "main", p, grad, 1e-12, 0, &errors);
            golden_check_grad(ctx, &g, c, "main", p, grad, 0, 1, &errors);
            assert_true(errors.squares <= 0 && errors.num > 0);
            free(grad);
        }
        const double stored = golden_number(&g, "main", "grad_norm");
        if (!(fabs(sqrt(square) - stored) <= 1e-9 * stored))
            fail_msg("%s: norm %.12g of the gradients, %.12g stored", golden_cases[i], sqrt(square), stored);
        orth_hf_close(ctx, src);
        golden_close(ctx, &g);
    }
    test_ctx_free(ctx);
}

/* What makes each case worth having, read from its config.json. */
TEST(every_case_is_the_model_it_is_said_to_be)
{
    static const struct {
        const char *name;
        int64_t layers, hidden, heads, kv_heads, head_dim, ffn;
        double rope_factor;
        bool tied, qkv_bias, out_bias, mlp_bias, qk_norm;
    } want[] = {
        {"gpt2", 2, 48, 4, 4, 12, 104, 1, true, true, true, true, false},
        {"gpt2_hub", 2, 16, 2, 2, 8, 64, 1, true, true, true, true, false},
        {"llama", 2, 48, 4, 2, 12, 88, 4, false, false, false, false, false},
        {"llama_tied", 2, 32, 4, 4, 8, 56, 8, true, true, true, true, false},
        {"mistral", 3, 48, 6, 2, 8, 72, 1, false, false, false, false, false},
        {"qwen2", 2, 32, 4, 2, 8, 80, 1, true, true, false, false, false},
        {"qwen3", 2, 32, 4, 2, 16, 64, 1, true, false, false, false, true},
        {"gpt2_erf", 2, 24, 3, 3, 8, 96, 1, true, true, true, true, false},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < GOLDEN_NUM_CASES; i++) {
        golden g;
        golden_open(ctx, &g, want[i].name);
        orth_hf_source *src = NULL;
        CHECK_OK(ctx, orth_hf_open(ctx, &src, g.dir));
        const orth_model_config *c = orth_hf_source_config(src);
        const bool gpt2 = strncmp(want[i].name, "gpt2", 4) == 0;
        assert_int_equal(c->family, gpt2 ? ORTH_FAMILY_GPT2 : ORTH_FAMILY_LLAMA);
        assert_int_equal(c->layers, want[i].layers);
        assert_int_equal(c->hidden, want[i].hidden);
        assert_int_equal(c->heads, want[i].heads);
        assert_int_equal(c->kv_heads, want[i].kv_heads);
        assert_int_equal(c->head_dim, want[i].head_dim);
        assert_int_equal(c->ffn, want[i].ffn);
        assert_int_equal(c->vocab, 131);
        assert_int_equal(c->tied, want[i].tied);
        assert_int_equal(c->gelu_erf, strcmp(want[i].name, "gpt2_erf") == 0);
        if (!gpt2) {                            /* GPT-2 has biases by family, whatever the flags say */
            assert_true(fabs(c->rope_factor - want[i].rope_factor) <= 0);
            assert_int_equal(c->qkv_bias, want[i].qkv_bias);
            assert_int_equal(c->out_bias, want[i].out_bias);
            assert_int_equal(c->mlp_bias, want[i].mlp_bias);
            assert_int_equal(c->qk_norm, want[i].qk_norm);
        }
        orth_hf_close(ctx, src);
        golden_close(ctx, &g);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rel_error_norm_is_the_distance_over_the_norm),
        cmocka_unit_test(the_loss_follows_from_the_logits),
        cmocka_unit_test(the_gradient_norm_follows_from_the_gradients),
        cmocka_unit_test(every_case_is_the_model_it_is_said_to_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
