/* test_worked_figures.c -- figures that are often quoted wrongly, worked out by plans: what states and activations take, what recomputation costs,
 * which claims and rules of thumb cannot be. docs/planning.md lists them, with those of other tests. */
#include "damage.h"
#include "published_case.h"

#include <math.h>

#include "base/files.h"
#include "plan/cluster.h"
#include "train/describe.h"

static const orth_state_bytes mixed = {2, 2, 12}, plain = {4, 4, 8};  /* fp16 or bf16 with fp32 masters; fp32: Rajbhandari et al. 2020 */

static double total(const orth_state_bytes *r, double elems, int stage, double n)
{
    const orth_states s = orth_states_of(r, elems, stage, n);
    return s.params + s.grads + s.optimizer;
}

static void check_near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * want))
        fail_msg("%s: %.6g, wanted %.6g", what, got, want);
}

static double card_bytes(orth_ctx *ctx)
{
    orth_hardware h;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "h100"));
    return (double)orth_cluster_rank_limit(&h, 0);
}

/* ---- states ---- */

TEST(states_of_gpt_3_need_35_cards_of_80_GB_and_its_weights_alone_700_GB_in_fp32)
{
    check_near("cards", ceil(total(&mixed, 175e9, 0, 1) / 80e9), 35, 0);
    check_near("weights in fp32", orth_states_of(&plain, 175e9, 0, 1).params, 700e9, 1e-9);
    check_near("saved by stage 2", 1 - total(&mixed, 175e9, 2, 8) / total(&mixed, 175e9, 1, 8), 0.318, 1e-3);
    assert_true(total(&mixed, 175e9, 3, 8) > 80e9); /* not even stage 3 on 8 ranks */
}

TEST(mixed_precision_takes_the_states_of_fp32)
{
    assert_true(total(&mixed, 7e9, 0, 1) == total(&plain, 7e9, 0, 1));
}

TEST(rules_of_thumb_by_the_size_of_a_model_fail_the_memory_of_a_card)
{
    orth_ctx *ctx = test_ctx(1);
    const double card = card_bytes(ctx);
    assert_true(total(&mixed, 7e9, 0, 64) > card);    /* "data parallel alone below 13 B" */
    assert_true(total(&mixed, 10e9, 0, 1) > card);    /* "10 B on one GPU" */
    assert_true(total(&mixed, 70e9, 2, 1e6) > card);  /* "ZeRO-2 for 70 B": on no number of ranks, since weights are whole */
    assert_true(total(&mixed, 70e9, 3, 64) < card);
    test_ctx_free(ctx);
}

/* ---- activations and their recomputation ---- */

static orth_job gpt_3(void)
{
    const orth_model_config m = {.family = ORTH_FAMILY_GPT2, .layers = 96, .hidden = 12288, .heads = 96, .kv_heads = 96, .head_dim = 128, .ffn = 49152,
                                 .vocab = 50304, .max_seq = 2048, .norm_eps = 1e-5, .tied = true, .qkv_bias = true, .out_bias = true,
                                 .mlp_bias = true, .init_std = 0.02, .dropout = 0.1, .embed_dropout = 0.1, .attn_dropout = 0.1};
    return (orth_job){.model = m, .seq_len = 2048, .micro_batch = 1, .num_micro_batches = 1, .tp = 1, .pp = 1, .chunks = 1, .dp = 1, .cp = 1,
                      .schedule = "1f1b", .recipe = mixed, .reduced_bytes = 2};
}

static orth_estimate estimate(orth_ctx *ctx, const orth_job *j)
{
    published_place p;
    published_open(ctx, &p);
    return published_estimate(ctx, &p, j);
}

/* Korthikanti et al. 2022: s b h (34 + 5 a s / h) a layer. */
TEST(a_sequence_of_gpt_3_keeps_275_GB_of_activations_where_attention_is_not_fused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_job j = gpt_3();
    const double sbh = 2048.0 * 12288, square = 5 * 96 * 2048.0 / 12288;
    check_near("the formula", 96 * sbh * (34 + square), 275e9, 0.002);
    j.keeps_masks = true;
    check_near("unfused", estimate(ctx, &j).activation_bytes, 96 * sbh * (34 + square), 0.005);
    j.fused_attention = true;
    check_near("fused", estimate(ctx, &j).activation_bytes, 96 * sbh * 34, 0.005);
    j.keeps_masks = false; /* two, a byte an element each, which are drawn again instead */
    check_near("fused, without masks", estimate(ctx, &j).activation_bytes, 96 * sbh * 32, 0.005);
    test_ctx_free(ctx);
}

/* Of the 22 billion parameters of Korthikanti et al. 2022, as cases say it; what 24 layers more keep has no part of embedding and head. */
static double bytes_of_a_layer(orth_ctx *ctx, bool sequence_parallel, const char *recompute)
{
    double peak[2];
    for (int k = 0; k < 2; k++) {
        char text[1024], *out;
        snprintf(text, sizeof text, "[{\"id\": \"a\", \"family\": \"korthikanti\", \"time_tier\": \"core\", \"source\": {\"name\": \"Megatron-LM\"}, \"model\": {\"arch\": \"gpt\", "
                 "\"layers\": %d, \"hidden\": 6144, \"heads\": 64, \"vocab\": 51200, \"seq\": 2048, \"tied_embeddings\": true}, \"hardware\": {\"gpu\": \"A100\", \"mem_GiB\": 8000, "
                 "\"peak_dense_bf16_TFLOPs\": 312, \"hbm_GBps\": 2039, \"per_node\": 8, \"intranode_GBps_per_gpu_unidir\": 300}, \"layout\": {\"tp\": 8, \"dp\": 1, \"micro_batch\": 4, \"global_batch_seqs\": 4, \"recompute\": \"%s\", \"sequence_parallel\": %s}, "
                 "\"precision\": \"fp16\"}]", k ? 48 : 24, recompute, sequence_parallel ? "true" : "false");
        CHECK_OK(ctx, published_predict(ctx, text, true, &out));
        peak[k] = strtod(strstr(out, "\"activations_GiB\": ") + strlen("\"activations_GiB\": "), NULL) * 0x1p30;
        orth_mem_free(ctx, out);
    }
    return (peak[1] - peak[0]) / 24;
}

TEST(each_policy_keeps_the_activations_of_its_formula)
{
    orth_ctx *ctx = test_ctx(1);
    const double s = 2048, h = 6144, a = 64, t = 8, sbh = 4 * s * h, square = 5 * a * s / (h * t);
    check_near("none", bytes_of_a_layer(ctx, false, "none"), sbh * (10 + 24 / t + square), 0.01);
    check_near("selective", bytes_of_a_layer(ctx, false, "selective"), sbh * (10 + 24 / t), 0.01);
    check_near("full", bytes_of_a_layer(ctx, false, "full"), sbh * 2, 0.01);
    check_near("none, sequence parallel", bytes_of_a_layer(ctx, true, "none"), sbh * (34 / t + square), 0.01);
    check_near("selective, sequence parallel", bytes_of_a_layer(ctx, true, "selective"), sbh * 34 / t, 0.01);
    check_near("full, sequence parallel", bytes_of_a_layer(ctx, true, "full"), sbh * 2 / t, 0.01);
    test_ctx_free(ctx);
}

TEST(accumulation_does_not_multiply_the_time_of_a_sample)
{
    orth_ctx *ctx = test_ctx(1);
    orth_job j = gpt_3();
    j.dp = 8;
    j.fused_attention = true;
    const double one = estimate(ctx, &j).step_s;
    j.num_micro_batches = 16;
    const double many = estimate(ctx, &j).step_s / 16;
    assert_true(many <= one && many > 0.3 * one);
    test_ctx_free(ctx);
}

/* FLOPs of a step as computed, read off the program of two layers with the width of GPT-3. */
static double flops_of(const char *recompute)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    orth_model_config m;
    orth_run_plan p;
    const char *const words[][2] = {{"model.family", "gpt2"}, {"model.layers", "2"}, {"model.hidden", "12288"}, {"model.heads", "96"}, {"model.vocab", "1024"},
                                    {"data.seq_len", "2048"}, {"train.global_batch", "1"}, {"precision.compute", "bf16"},
                                    {"memory.recompute", recompute}};
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    for (int i = 0; i < ORTH_COUNT(words); i++)
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", words[i][0], words[i][1]));
    CHECK_OK(ctx, orth_describe_model(ctx, &c, &m));
    CHECK_OK(ctx, orth_describe_plan(ctx, &p, &c, &m, false));
    const double flops = p.total.cost.hardware_flops;
    orth_run_plan_release(ctx, &p);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
    return flops;
}

TEST(full_recomputation_costs_at_most_a_third_and_selective_at_most_3_percent)
{
    const double none = flops_of("none"), selective = flops_of("selective") / none, full = flops_of("full") / none;
    assert_true(selective > 1 && selective < 1.03);
    /* The last product of a layer is not made again, since nothing in the backward reads it: 16 of the 24 s h^2 of a forward. */
    check_near("full", full, 1 + 16.0 / 72, 0.01);
    assert_true(full <= 4.0 / 3);
}

/* ---- claims ---- */

static char *predict(orth_ctx *ctx, const char *measured)
{
    char text[2048], *out;
    /* 74 billion parameters on 128 A100 as dp=16 tp=4 pp=2. */
    snprintf(text, sizeof text, "[{\"id\": \"claim\", \"family\": \"f\", \"time_tier\": \"core\", \"precision\": \"bf16\", \"model\": {\"arch\": \"gpt\", \"layers\": 90, "
            "\"hidden\": 8192, \"heads\": 64, \"kv_heads\": 64, \"head_dim\": 128, \"ffn\": 32768, \"glu\": false, \"vocab\": 50257, \"seq\": 2048}, "
            "\"hardware\": {\"gpu\": \"A100-SXM4-80GB\", \"mem_GiB\": 80, \"peak_dense_bf16_TFLOPs\": 312, \"hbm_GBps\": 2039, \"per_node\": 8, "
            "\"intranode_GBps_per_gpu_unidir\": 300, \"internode_GBps_per_gpu_unidir\": 25}, \"layout\": {\"tp\": 4, \"pp\": 2, \"dp\": 16, \"cp\": 1, "
            "\"zero_stage\": 1, \"micro_batch\": 1, \"global_batch_seqs\": 512, \"flash_attention\": true}, %s}]", measured);
    CHECK_OK(ctx, published_predict(ctx, text, false, &out));
    return out;
}

/* ---- arrays and orders ---- */

/* 8. A texture array of 32 x 200 x 13 x 224 x 224 numbers in fp32 is 16.7 GB, not 52. */
TEST(an_array_of_32_x_200_x_13_x_224_x_224_in_fp32_is_16_7_GB)
{
    const int64_t dim[] = {(int64_t)32 * 200 * 13, 224 * 224};
    const orth_operand o = orth_operand_of(0, ORTH_F32, 2, dim);
    check_near("bytes", (double)orth_operand_bytes(&o), 16.7e9, 2e-3);
}

/* 12. What chooses the inputs of a layer must stand before it: on a later stage it is invalid. Of a language model that is the embedding, which
 * selects the row of each token. */
TEST(a_stage_whose_first_layer_reads_what_a_later_stage_selects_is_refused)
{
    const layout_case c = damage_case(LAYOUT_PP);
    patient *x = patient_new(&c, false);
    assert_int_equal(patient_check(x), ORTH_OK);
    drop(P(0), find_op(P(0), ORTH_OP_embed, ORTH_GROUP_TP, 0)); /* as a split would that gives it to the second stage */
    CHECK_FAILS(x->ctx, ORTH_ERR_INTERNAL, "read before it is written", patient_check(x));
    patient_free(x);
}

TEST(claims_faster_than_the_peak_or_larger_than_the_memory_are_called_impossible)
{
    static const struct {
        const char *measured, *said;
    } claims[] = {
        {"\"derived\": {\"tokens_per_s_per_gpu\": 3468.75}", "impossible: the measured speed is 4.96 times the peak"},   /* 444,000 tokens/s in all */
        {"\"measured\": {\"peak_mem_GiB\": 140}", "impossible: a device of 80 GiB cannot have held 140.0"},
        {"\"derived\": {\"tokens_per_s_per_gpu\": 350}, \"measured\": {\"peak_mem_GiB\": 60}", NULL}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(claims); i++) {
        char *out = predict(ctx, claims[i].measured);
        if (claims[i].said ? !strstr(out, claims[i].said) : strstr(out, "impossible") != NULL)
            fail_msg("%s: %s", claims[i].measured, out);
        assert_true((strstr(out, "\ncore ") != NULL) == (i == 2)); /* no error is counted of a claim that cannot be */
        orth_mem_free(ctx, out);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_gpt_3_need_35_cards_of_80_GB_and_its_weights_alone_700_GB_in_fp32),
        cmocka_unit_test(mixed_precision_takes_the_states_of_fp32),
        cmocka_unit_test(rules_of_thumb_by_the_size_of_a_model_fail_the_memory_of_a_card),
        cmocka_unit_test(a_sequence_of_gpt_3_keeps_275_GB_of_activations_where_attention_is_not_fused),
        cmocka_unit_test(accumulation_does_not_multiply_the_time_of_a_sample),
        cmocka_unit_test(full_recomputation_costs_at_most_a_third_and_selective_at_most_3_percent),
        cmocka_unit_test(an_array_of_32_x_200_x_13_x_224_x_224_in_fp32_is_16_7_GB),
        cmocka_unit_test(a_stage_whose_first_layer_reads_what_a_later_stage_selects_is_refused),
        cmocka_unit_test(claims_faster_than_the_peak_or_larger_than_the_memory_are_called_impossible),
        cmocka_unit_test(each_policy_keeps_the_activations_of_its_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
