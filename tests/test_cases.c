/* test_cases.c -- training runs of other systems: memory and FLOPs against worked figures, files of cases. */
#include "published_case.h"

#include <glob.h>
#include <math.h>

#include <jansson.h>

#include "base/files.h"
#include "train/describe.h"

static void check_states(const orth_state_bytes *r, double elems, int stage, double n, double params, double grads, double optimizer)
{
    const orth_states s = orth_states_of(r, elems, stage, n);
    const double got[] = {s.params / 1e9, s.grads / 1e9, s.optimizer / 1e9}, want[] = {params, grads, optimizer};
    for (int i = 0; i < 3; i++)
        if (fabs(got[i] - want[i]) > 1e-6 * want[i])
            fail_msg("stage %d, %d: %.6f GB, wanted %.6f", stage, i, got[i], want[i]);
}

/* Rajbhandari et al. 2020: 2 bytes of parameter, 2 of gradient, 12 of optimizer. */
TEST(seven_billion_parameters_on_8_ranks_take_112_38_5_26_25_and_14_GB)
{
    const orth_state_bytes r = {2, 2, 12};
    check_states(&r, 7e9, 0, 8, 14, 14, 84);
    check_states(&r, 7e9, 1, 8, 14, 14, 10.5);
    check_states(&r, 7e9, 2, 8, 14, 1.75, 10.5);
    check_states(&r, 7e9, 3, 8, 1.75, 1.75, 10.5);
}

TEST(gpt_3_fits_no_card_of_80_GB_on_8_ranks_under_any_stage)
{
    const orth_state_bytes r = {2, 2, 12};
    static const double total[] = {2800, 962.5, 656.25, 350};
    for (int stage = 0; stage <= 3; stage++) {
        const orth_states s = orth_states_of(&r, 175e9, stage, 8);
        assert_true(fabs((s.params + s.grads + s.optimizer) / 1e9 - total[stage]) < 1e-6 * total[stage]);
    }
}

TEST(seventy_four_billion_on_tp_4_pp_2_dp_16_with_zero_1_take_43_9_GB_of_states)
{
    const orth_state_bytes r = {2, 2, 12};
    check_states(&r, 74e9 / 8, 1, 16, 18.5, 18.5, 6.9375);
}

/* ---- estimates ---- */

static orth_job job_of(orth_ctx *ctx, const char *preset, int tp, int dp, int64_t seq)
{
    orth_job j = {.seq_len = seq, .micro_batch = 1, .num_micro_batches = 4, .tp = tp, .pp = 1, .chunks = 1, .dp = dp, .cp = 1,
                  .sequence_parallel = tp > 1, .fused_attention = true, .schedule = "1f1b", .recipe = {2, 4, 12}, .reduced_bytes = 2};
    CHECK_OK(ctx, orth_model_preset(ctx, preset, &j.model));
    return j;
}

static orth_estimate estimate_with(orth_ctx *ctx, const orth_job *j, double logits)
{
    published_place p;
    published_open(ctx, &p);
    p.system.logits = logits > 0 ? logits : p.system.logits;
    p.system.saved = 1;
    return published_estimate(ctx, &p, j);
}

static orth_estimate estimate(orth_ctx *ctx, const orth_job *j)
{
    return estimate_with(ctx, j, 0);
}

/* Twice the micro-batches in flight (Qi et al. 2023); scores of the one layer that is made again (Korthikanti et al. 2022: 5 a s^2 b); bytes of a logit on
 * the stage that has the loss. */
TEST(memory_follows_schedule_recomputation_and_logits)
{
    orth_ctx *ctx = test_ctx(1);
    orth_job j = job_of(ctx, "llama3-8b", 1, 1, 4096);
    j.pp = 8;
    j.num_micro_batches = 24;
    const orth_estimate plain = estimate(ctx, &j);
    j.schedule = "zb-2p";
    const orth_estimate twice = estimate(ctx, &j);
    assert_true(fabs(twice.activation_bytes / plain.activation_bytes - 2) < 1e-9);
    j.pp = 1;
    j.schedule = "1f1b";
    j.recompute = ORTH_AGAIN_FULL;
    const orth_estimate fused = estimate_with(ctx, &j, 12), less = estimate_with(ctx, &j, 10);
    assert_true(fabs((fused.peak_bytes - less.peak_bytes) / (2.0 * 4096 * 128256) - 1) < 1e-6);
    j.fused_attention = false;
    const orth_estimate scores = estimate_with(ctx, &j, 12);
    assert_true(fabs((scores.activation_bytes - fused.activation_bytes) / (5.0 * 32 * 4096 * 4096) - 1) < 1e-6);
    test_ctx_free(ctx);
}

/* PyTorch's loop sets gradients to none: with one micro-batch there are none at the loss, with more there are those of the last one. */
TEST(gradients_that_a_step_makes_anew_are_not_there_at_its_loss)
{
    orth_ctx *ctx = test_ctx(1);
    published_place p;
    published_open(ctx, &p);
    orth_job j = job_of(ctx, "gpt2-124m", 1, 1, 1024);
    j.micro_batch = 32;
    const orth_estimate kept = published_estimate(ctx, &p, &j);
    p.system.grads = 0;
    assert_true(published_estimate(ctx, &p, &j).peak_bytes == kept.peak_bytes);
    j.num_micro_batches = 1;
    assert_true(fabs(kept.peak_bytes - kept.grads_bytes - published_estimate(ctx, &p, &j).peak_bytes) < 1);
    j.micro_batch = 1; /* little else is kept: the peak is at the end, with all gradients */
    j.recompute = ORTH_AGAIN_FULL;
    const orth_estimate small = published_estimate(ctx, &p, &j);
    assert_true(small.peak_bytes >= small.params_bytes + small.grads_bytes + small.optimizer_bytes);
    test_ctx_free(ctx);
}

/* Bytes of one layer more, for each token, beside the 14 of each of its parameters. */
static double kept_of_a_layer(orth_ctx *ctx, const char *preset, const char *system)
{
    published_place p;
    published_open(ctx, &p);
    assert_true(orth_software_system(&p.software, system, &p.system));
    orth_job j = job_of(ctx, preset, 1, 1, 1024);
    j.num_micro_batches = 1;
    j.micro_batch = 8;
    const orth_estimate few = published_estimate(ctx, &p, &j);
    j.model.layers++;
    const orth_estimate more = published_estimate(ctx, &p, &j);
    return (more.peak_bytes - few.peak_bytes - 14.0 / 18 * (more.params_bytes + more.grads_bytes + more.optimizer_bytes - few.params_bytes - few.grads_bytes - few.optimizer_bytes)) / (8.0 * 1024);
}

/* Counted by hand, of each layer: GPT: two sums of 4 C, two inputs of 2 C, queries, keys and values 6 C, attention 2 C, twice the 8 C of the
 * feed-forward layer. Llama with a feed-forward layer of F: two sums, five inputs, queries, keys and
 * values, attention, four times 2 F; compiled two
 * inputs and three times 2 F. Statistics of rows and the logarithms of attention are the rest. */
TEST(autocast_keeps_sums_in_32_bits_an_input_for_each_product_and_gates)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config m;
    CHECK_OK(ctx, orth_model_preset(ctx, "llama3-1b", &m));
    const double C = (double)m.hidden, F = (double)m.ffn, kv = (double)m.kv_heads / (double)m.heads;
    assert_true(fabs(kept_of_a_layer(ctx, "gpt2-124m", "torch") / (36 * 768) - 1) < 0.005);
    assert_true(fabs(kept_of_a_layer(ctx, "llama3-1b", "torch") / ((8 + 10 + 2 + 4 * kv + 2) * C + 8 * F) - 1) < 0.005);
    assert_true(fabs(kept_of_a_layer(ctx, "llama3-1b", "compiled") / ((8 + 4 + 2 + 4 * kv + 2) * C + 6 * F) - 1) < 0.005);
    test_ctx_free(ctx);
}

TEST(an_estimate_counts_the_flops_of_the_program)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tp = 1; tp <= 2; tp++) {
        const orth_job j = job_of(ctx, "llama-tiny", tp, 1, 128);
        char text[256];
        orth_config cfg;
        orth_model_config model;
        orth_run_plan plan;
        snprintf(text, sizeof text, "model: {preset: llama-tiny}\ndata: {seq_len: 128}\ntrain: {global_batch: 4}\nparallel: {tp: %d}\n"
                 "precision: {compute: bf16}\n", tp);
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", text, strlen(text)));
        CHECK_OK(ctx, orth_describe_model(ctx, &cfg, &model));
        CHECK_OK(ctx, orth_describe_plan(ctx, &plan, &cfg, &model, false));
        const double want = plan.total.cost.model_flops, got = estimate(ctx, &j).flops;
        if (fabs(got - want) > 1e-9 * want)
            fail_msg("tp=%d: %.9g FLOPs, the program has %.9g", tp, got, want);
        orth_run_plan_release(ctx, &plan);
        orth_config_release(ctx, &cfg);
    }
    test_ctx_free(ctx);
}

/* A step is 3 forwards (a backward costs two), with full recomputation 4: at most 4/3 of the time, not 2 times. */
TEST(full_recomputation_costs_a_forward_and_keeps_inputs_only)
{
    orth_ctx *ctx = test_ctx(1);
    orth_job j = job_of(ctx, "llama3-8b", 1, 1, 4096);
    const orth_estimate none = estimate(ctx, &j);
    j.recompute = ORTH_AGAIN_FULL;
    const orth_estimate full = estimate(ctx, &j);
    assert_true(full.step_s > 1.2 * none.step_s && full.step_s < 1.36 * none.step_s);
    assert_true(full.activation_bytes < 0.2 * none.activation_bytes && full.flops == none.flops && full.hardware_flops > full.flops);
    test_ctx_free(ctx);
}

/* 40 % of the peak of 989 TFLOP/s, at 6 FLOPs for each of 70e9 parameters and token, is about 940 tokens/s a device. */
TEST(seventy_billion_on_64_devices_runs_at_several_hundred_tokens_a_second_and_below_the_peak)
{
    orth_ctx *ctx = test_ctx(1);
    orth_job j = job_of(ctx, "llama3-70b", 8, 8, 4096);
    j.num_micro_batches = 32;
    const orth_estimate e = estimate(ctx, &j);
    const double speed = 32 * 8 * 4096.0 / e.step_s / 64, mfu = e.flops / e.step_s / (64 * 989.5e12);
    if (speed < 700 || speed > 1300 || mfu > 0.6)
        fail_msg("%.1f tokens/s a device, MFU %.3f", speed, mfu);
    test_ctx_free(ctx);
}

/* ---- files ---- */

#define HARDWARE "\"hardware\": {\"gpu\": \"A100-SXM4-80GB\", \"mem_GiB\": 80, \"peak_dense_bf16_TFLOPs\": 312, \"hbm_GBps\": 2039, " \
                 "\"per_node\": 8, \"intranode_GBps_per_gpu_unidir\": 300, \"internode_GBps_per_gpu_unidir\": 25}"
#define LAYOUT "\"layout\": {\"tp\": 1, \"pp\": 1, \"dp\": 8, \"cp\": 1, \"zero_stage\": 1, \"micro_batch\": 2, \"global_batch_seqs\": 16, " \
               "\"flash_attention\": true}"
#define MODEL(arch, heads) MODEL_OF(arch, "12", heads)
#define MODEL_OF(arch, layers, heads) "\"model\": {\"arch\": \"" arch "\", \"layers\": " layers ", \"hidden\": 768, \"heads\": " heads ", \"kv_heads\": 12, " \
                           "\"head_dim\": 64, \"ffn\": 3072, \"glu\": false, \"vocab\": 50257, \"seq\": 1024}"
#define CASE(model, measured) "{\"id\": \"a\", \"family\": \"f\", \"time_tier\": \"core\", \"precision\": \"bf16\", " model ", " HARDWARE ", " LAYOUT measured "}"

TEST(a_prediction_reads_nothing_that_was_measured)
{
    orth_ctx *ctx = test_ctx(1);
    char *alone, *beside;
    CHECK_OK(ctx, published_predict(ctx, "[" CASE(MODEL("gpt", "12"), "") "]", true, &alone));
    CHECK_OK(ctx, published_predict(ctx, "[" CASE(MODEL("gpt", "12"), ", \"derived\": {\"tokens_per_s_per_gpu\": 1000}, \"measured\": {\"peak_mem_GiB\": 5}") "]",
                          true, &beside));
    assert_memory_equal(alone, beside, (size_t)(strstr(alone, "\"errors\"") - alone));
    assert_non_null(strstr(beside, "\"cases\": 1"));
    assert_null(strstr(alone, "\"cases\": 1"));
    orth_mem_free(ctx, alone);
    orth_mem_free(ctx, beside);
    test_ctx_free(ctx);
}

TEST(what_cannot_be_predicted_is_listed_with_the_reason_and_a_bad_file_refused)
{
    orth_ctx *ctx = test_ctx(1);
    char *out;
    CHECK_OK(ctx, published_predict(ctx, "[" CASE(MODEL("moe", "12"), "") ", " CASE(MODEL("gpt", "0"), "") ", " CASE(MODEL("gpt", "8"), "") "]", false, &out));
    assert_non_null(strstr(out, "kv_heads does not divide heads"));
    assert_non_null(strstr(out, "a mixture of experts: not supported by this version"));
    assert_non_null(strstr(out, "layers, hidden, heads, vocab and seq must be given"));
    orth_mem_free(ctx, out);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "is not a list of cases", published_predict(ctx, "{}", false, &out));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, ": case '': model is missing: model, hardware and layout must be objects", published_predict(ctx, "[1]", false, &out));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, ":1:", published_predict(ctx, "[", false, &out));
    test_ctx_free(ctx);
}

static void replace(const char *whole, const char *good, const char *bad, char text[2048])
{
    const char *at = strstr(whole, good);
    assert_non_null(at);
    snprintf(text, 2048, "%.*s%s%s", (int)(at - whole), whole, bad, at + strlen(good));
}

/* A good case with `bad` for `good`. */
static void with_another(const char *good, const char *bad, char text[2048])
{
    replace("[" CASE(MODEL("gpt", "12"), "") "]", good, bad, text);
}

/* Of the global batch, the micro-batch and the accumulation steps two say the third. */
TEST(accumulation_steps_say_what_micro_batch_and_global_batch_leave_out)
{
    static const char *const same[] = {"\"micro_batch\": 4, \"global_batch_seqs\": 96, \"grad_accum\": 3", "\"micro_batch\": null, \"global_batch_seqs\": 96, \"grad_accum\": 3",
                                       "\"micro_batch\": 4, \"global_batch_seqs\": null, \"grad_accum\": 3"};
    static const char given[] = "\"micro_batch\": 2, \"global_batch_seqs\": 16";
    orth_ctx *ctx = test_ctx(1);
    char text[2048], *want, *got;
    with_another(given, "\"micro_batch\": 4, \"global_batch_seqs\": 96", text);
    CHECK_OK(ctx, published_predict(ctx, text, true, &want));
    for (int i = 0; i < ORTH_COUNT(same); i++) {
        with_another(given, same[i], text);
        CHECK_OK(ctx, published_predict(ctx, text, true, &got));
        assert_string_equal(got, want);
        orth_mem_free(ctx, got);
    }
    orth_mem_free(ctx, want);
    test_ctx_free(ctx);
}

/* What the source does not say of recomputation is as little as may fit: with less memory more. */
TEST(recomputation_that_a_case_leaves_out_is_the_least_that_fits)
{
    static const char *const kinds[] = {"none", "selective", "full"};
    orth_ctx *ctx = test_ctx(1);
    char memory[64], words[128], *open, *given;
    for (int i = 0; i < 3; i++) {
        char text[2048], with[2048];
        double peak;
        snprintf(words, sizeof words, "\"flash_attention\": false, \"recompute\": \"%s\"", kinds[i]);
        with_another("\"flash_attention\": true", words, text);
        CHECK_OK(ctx, published_predict(ctx, text, true, &given));
        json_t *root = json_loads(given, 0, NULL);
        peak = json_number_value(json_object_get(json_array_get(json_object_get(root, "cases"), 0), "peak_mem_GiB"));
        assert_true(peak > 0);
        json_decref(root);
        orth_mem_free(ctx, given);
        /* Just the memory of this kind. */
        snprintf(memory, sizeof memory, "\"mem_GiB\": %.3f", peak + 1.6);
        replace(text, "\"mem_GiB\": 80", memory, with);
        CHECK_OK(ctx, published_predict(ctx, with, true, &given));
        snprintf(words, sizeof words, "\"recompute\": \"%s\"", kinds[i]);
        replace(with, words, "\"recompute\": null", text);
        CHECK_OK(ctx, published_predict(ctx, text, true, &open));
        if (strcmp(open, given) != 0)
            fail_msg("%s is not chosen where it just fits:\n%s\n%s", kinds[i], open, given);
        orth_mem_free(ctx, open);
        orth_mem_free(ctx, given);
    }
    test_ctx_free(ctx);
}

/* One value of a good case is replaced. */
TEST(a_case_that_is_absurd_or_contradicts_itself_is_refused_with_file_case_key_and_rule)
{
    static const struct {
        const char *good, *bad, *says;
    } wrong[] = {{"\"per_node\": 8", "\"count\": 0", ": case 'a': hardware.count=0: must be more than 0"},
                 {"\"hbm_GBps\": 2039", "\"hbm_GBps\": -1", "hardware.hbm_GBps=-1: must be more than 0"},
                 {"\"per_node\": 8", "\"count\": 9", "hardware.count=9: must be the 8 ranks of the layout"},
                 {"\"micro_batch\": 2", "\"micro_batch\": 3", "layout.global_batch_seqs=16: must be a multiple of micro_batch * dp = 24"},
                 {"\"micro_batch\": 2", "\"micro_batch\": 2, \"vpp\": 5", "layout.vpp=5 needs layout.pp above 1"},
                 {"\"zero_stage\": 1", "\"zero_stage\": 9", "layout.zero_stage=9: must be 0, 1, 2 or 3"},
                 {"\"cp\": 1", "\"cp\": 1.5", "layout.cp=1.5: must be a whole number"},
                 {"\"cp\": 1", "\"cp\": \"4\"", "layout.cp=\"4\": must be a whole number"},
                 {"\"cp\": 1", "\"cp\": true", "layout.cp=true: must be a whole number"},
                 {"\"cp\": 1", "\"cp\": [1]", "layout.cp=a list: must be a whole number"},
                 {"\"zero_stage\": 1", "\"zero_stage\": true", "layout.zero_stage=true: must be a whole number"},
                 {"\"cp\": 1", "\"recompute\": \"Full\"",
                  "case 'a': layout.recompute=\"Full\": must be one of none, full, selective, selective-op, selective-block, gelu"},
                 {"\"cp\": 1", "\"recompute\": true", "layout.recompute=true: must be one of none, full"},
                 {"\"cp\": 1", "\"schedule\": \"foo\"", "layout.schedule=\"foo\": must be one of 1f1b, 1f1b-interleaved, interleaved, zb-1p, zb-2p"},
                 {"\"cp\": 1", "\"offload\": \"foo\"", "layout.offload=\"foo\": must be one of none, optimizer"},
                 {"\"cp\": 1", "\"optimizer_state\": \"foo\"", "layout.optimizer_state=\"foo\": must be text with one of adam-mixed, fp32 params, bf16 adam"},
                 {"\"cp\": 1", "\"sequence_parallel\": \"nan\"", "layout.sequence_parallel=\"nan\": must be true or false"},
                 {"\"flash_attention\": true", "\"flash_attention\": \"yes\"", "layout.flash_attention=\"yes\": must be true, false or one of v1, v2, v3"},
                 {"\"global_batch_seqs\": 16", "\"global_batch_seqs\": \"x\"", "layout.global_batch_seqs=\"x\": must be a whole number"},
                 {"\"global_batch_seqs\": 16", "\"global_batch_seqs\": 16, \"grad_accum\": 3",
                  "layout.grad_accum=3: micro_batch * dp * grad_accum is 48, and must be global_batch_seqs=16"},
                 {"\"micro_batch\": 2", "\"grad_accum\": 3", "layout.global_batch_seqs=16: must be a multiple of grad_accum * dp = 24"},
                 {"\"arch\": \"gpt\"", "\"arch\": \"x\"", "model.arch=\"x\": must be one of gpt, llama, moe"},
                 {"\"cp\": 1", "\"micro_bath\": 8", ": case 'a': layout.micro_bath: there is no such key; was 'micro_batch' meant?"},
                 {"\"cp\": 1", "\"zzzzzzzz\": null", "layout.zzzzzzzz: there is no such key"},
                 {"\"per_node\": 8", "\"per_nod\": 8", "hardware.per_nod: there is no such key; was 'per_node' meant?"},
                 {"\"glu\": false", "\"glue\": true", "model.glue: there is no such key; was 'glu' meant?"},
                 {"\"cp\": 1", "\"ep\": 8", "layout.ep=8: must be 1 where model.arch is not moe: there are no experts"},
                 {"\"cp\": 1", "\"etp\": 2", "layout.etp=2: must be 1 where model.arch is not moe"},
                 {"\"glu\": false", "\"moe\": {\"experts\": 8}", "model.moe: must be null where model.arch is not moe"},
                 {"\"layers\": 12", "\"layers\": 12.5", "model.layers=12.5: must be a whole number"},
                 {"\"glu\": false", "\"glu\": \"no\"", "model.glu=\"no\": must be true or false"},
                 {"\"glu\": false", "\"tied_embeddings\": 1", "model.tied_embeddings=1: must be true or false"},
                 {"\"gpu\": \"A100-SXM4-80GB\"", "\"gpu\": 5", "hardware.gpu=5: must be text"},
                 {"\"peak_dense_bf16_TFLOPs\": 312, ", "", "case 'a': hardware.peak_dense_bf16_TFLOPs is missing"},
                 {"\"peak_dense_bf16_TFLOPs\": 312", "\"peak_dense_bf16_TFLOPs\": null", "hardware.peak_dense_bf16_TFLOPs is missing"},
                 {"\"precision\": \"bf16\"", "\"precision\": 16", ": case 'a': precision=16: must be text"},
                 {"\"layers\": 12", "\"layers\": 1e9", ": case 'a': model.layers=1e+09: must be 0 or more, and at most 1000"},
                 {"\"hidden\": 768", "\"hidden\": 1e7", "model.hidden=10000000: must be 0 or more, and at most 1000000"},
                 {"\"micro_batch\": 2, \"global_batch_seqs\": 16", "\"global_batch_seqs\": 8e8", "layout.global_batch_seqs=800000000: must be more than 0, and at most 1000000"},
                 {"\"pp\": 1, \"dp\": 8, \"cp\": 1, \"zero_stage\": 1, \"micro_batch\": 2, \"global_batch_seqs\": 16", "\"pp\": 12, \"dp\": 1, \"micro_batch\": 1, \"global_batch_seqs\": 1e6",
                  "layout.global_batch_seqs=1000000: 1000000 micro-batches of a rank, times pp * vpp = 12, must be at most 10000000"},
                 {"\"flash_attention\": true}", "\"flash_attention\": true}, \"measured\": {\"peak_mem_GiB\": -4}",
                  ": case 'a': measured.peak_mem_GiB=-4: must be more than 0"},
                 {"\"flash_attention\": true}", "\"flash_attention\": true}, \"measured\": {\"step_time_s\": 0}", "measured.step_time_s=0: must be more than 0"},
                 {"\"flash_attention\": true}", "\"flash_attention\": true}, \"measured\": {\"mfu\": \"40\"}", "measured.mfu=\"40\": must be a number"},
                 {"\"flash_attention\": true}", "\"flash_attention\": true}, \"derived\": {\"tokens_per_s_per_gpu\": -1}",
                  "derived.tokens_per_s_per_gpu=-1: must be more than 0"}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(wrong); i++) {
        char text[2048], *out;
        with_another(wrong[i].good, wrong[i].bad, text);
        CHECK_FAILS(ctx, ORTH_ERR_ARG, wrong[i].says, published_predict(ctx, text, false, &out));
    }
    test_ctx_free(ctx);
}

/* What a case says to people only. */
TEST(notes_of_a_case_change_nothing)
{
    static const struct {
        const char *good, *more;
    } notes[] = {{"\"cp\": 1", "\"cp\": 1, \"ep\": 1, \"etp\": 1, \"notes\": \"two pods\""},
                 {"\"per_node\": 8", "\"per_node\": 8, \"intranode\": \"NVLink\", \"net_note\": null"},
                 {"\"glu\": false", "\"glu\": false, \"name\": \"GPT-2\", \"bias\": true, \"moe\": null, \"mla\": null, \"extra\": {}, \"params_B\": 0.124"}};
    orth_ctx *ctx = test_ctx(1);
    char text[2048], *want, *got;
    CHECK_OK(ctx, published_predict(ctx, "[" CASE(MODEL("gpt", "12"), "") "]", true, &want));
    for (int i = 0; i < ORTH_COUNT(notes); i++) {
        with_another(notes[i].good, notes[i].more, text);
        CHECK_OK(ctx, published_predict(ctx, text, true, &got));
        assert_string_equal(got, want);
        orth_mem_free(ctx, got);
    }
    with_another("\"glu\": false", "\"glu\": false, \"mla\": {\"rank\": 512}", text);
    CHECK_OK(ctx, published_predict(ctx, text, false, &got));
    assert_non_null(strstr(got, "multi-latent attention: not supported by this version"));
    orth_mem_free(ctx, got);
    orth_mem_free(ctx, want);
    test_ctx_free(ctx);
}

/* A figure of the device or of a link is needed where something of the run takes its time; nothing is taken in its place. */
TEST(a_case_without_a_figure_that_its_ranks_need_is_not_predicted)
{
    static const char all[] = "\"mem_GiB\": 80, \"peak_dense_bf16_TFLOPs\": 312, \"hbm_GBps\": 2039, \"per_node\": 8, \"intranode_GBps_per_gpu_unidir\": 300, "
                              "\"internode_GBps_per_gpu_unidir\": 25";
#define PEAK "\"peak_dense_bf16_TFLOPs\": 312"
#define DEVICE PEAK ", \"mem_GiB\": 80, \"hbm_GBps\": 2039"
    static const struct {
        const char *figures, *ranks;
        const char *says; /* NULL: it is predicted as with all figures */
    } cases[] = {
        {PEAK ", \"hbm_GBps\": 2039", "\"dp\": 1", "hardware.mem_GiB is missing, which 1 rank needs: whether it fits"},
        {PEAK ", \"mem_GiB\": 80", "\"dp\": 1", "hardware.hbm_GBps is missing, which 1 rank needs: operations between products"},
        {PEAK ", \"mem_GiB\": null, \"hbm_GBps\": 2039", "\"dp\": 1", "hardware.mem_GiB is missing"},
        {DEVICE, "\"dp\": 1", NULL},
        {DEVICE ", \"per_node\": 8", "\"dp\": 1", NULL},
        {DEVICE, "\"dp\": 8", "hardware.per_node is missing, which 8 ranks need"},
        {DEVICE ", \"per_node\": 8", "\"dp\": 8", "hardware.intranode_GBps_per_gpu_unidir is missing, which 8 ranks need: it connects those of a node"},
        {DEVICE ", \"per_node\": 8, \"intranode_GBps_per_gpu_unidir\": 300", "\"dp\": 8", NULL},
        {DEVICE ", \"per_node\": 8, \"intranode_GBps_per_gpu_unidir\": 300, \"internode_GBps_per_gpu_unidir\": null", "\"dp\": 8", NULL},
        {DEVICE ", \"per_node\": 8, \"intranode_GBps_per_gpu_unidir\": 300", "\"dp\": 16",
         "hardware.internode_GBps_per_gpu_unidir is missing, which 16 ranks need: they are on several nodes"},
        {DEVICE ", \"per_node\": 8, \"internode_GBps_per_gpu_unidir\": 25", "\"dp\": 16", "hardware.intranode_GBps_per_gpu_unidir is missing, which 8 ranks need"},
        {DEVICE ", \"per_node\": 1, \"internode_GBps_per_gpu_unidir\": 25", "\"dp\": 8", NULL},
    };
    orth_ctx *ctx = test_ctx(1);
    char base[2048], whole[2048], text[2048], *want, *got;
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        replace("[" CASE(MODEL("gpt", "12"), ", \"derived\": {\"tokens_per_s_per_gpu\": 1000}") "]", "\"dp\": 8", cases[i].ranks, base);
        replace(base, "\"global_batch_seqs\": 16", "\"global_batch_seqs\": 32", whole);
        replace(whole, all, cases[i].figures, text);
        replace(whole, "\"per_node\": 8", strstr(cases[i].figures, "\"per_node\": 1,") ? "\"per_node\": 1" : "\"per_node\": 8", base);
        CHECK_OK(ctx, published_predict(ctx, base, true, &want));
        CHECK_OK(ctx, published_predict(ctx, text, true, &got));
        const bool scored = strstr(got, "\"cases\": 1") != NULL;
        if (cases[i].says ? !strstr(got, cases[i].says) || scored : strcmp(got, want) != 0)
            fail_msg("case %d, %s, %s:\n%s\nwith all figures\n%s", i, cases[i].figures, cases[i].ranks, got, want);
        orth_mem_free(ctx, got);
        orth_mem_free(ctx, want);
    }
    test_ctx_free(ctx);
}

TEST(words_of_precision_that_are_not_priced_are_said_and_none_is_priced_as_bf16)
{
    static const char *const not_priced[] = {"banana", "int4", "fp64", "fp32", "tf32", "bf16, int8 moments", "nvfp4"};
    static const char *const same[] = {"null", "\"BF16\"", "\"bf16/fp16\"", "\"bfloat16\""};
    orth_ctx *ctx = test_ctx(1);
    char text[2048], words[128], *out, *want;
    for (int i = 0; i < ORTH_COUNT(not_priced); i++) {
        snprintf(words, sizeof words, "\"precision\": \"%s\"", not_priced[i]);
        with_another("\"precision\": \"bf16\"", words, text);
        CHECK_OK(ctx, published_predict(ctx, text, false, &out));
        snprintf(words, sizeof words, "precision=\"%s\": not supported: bf16, fp16 and fp8 are", not_priced[i]);
        assert_non_null(strstr(out, words));
        orth_mem_free(ctx, out);
    }
    CHECK_OK(ctx, published_predict(ctx, "[" CASE(MODEL("gpt", "12"), "") "]", true, &want));
    for (int i = 0; i < ORTH_COUNT(same); i++) {
        snprintf(words, sizeof words, "\"precision\": %s", same[i]);
        with_another("\"precision\": \"bf16\"", words, text);
        CHECK_OK(ctx, published_predict(ctx, text, true, &out));
        assert_string_equal(out, want);
        orth_mem_free(ctx, out);
    }
    orth_mem_free(ctx, want);
    test_ctx_free(ctx);
}

TEST(a_measured_speed_above_the_peak_is_impossible_in_whatever_figure_it_is_given)
{
    static const struct {
        const char *figure, *key;
    } fast[] = {{"\"tokens_per_s_per_gpu\": 1e9", "measured.tokens_per_s_per_gpu"}, {"\"mfu\": 150", "measured.mfu"}, {"\"hfu\": 150", "measured.hfu"},
                {"\"step_time_s\": 1e-6", "measured.step_time_s"}, {"\"step_s\": 1e-6", "measured.step_s"}, {"\"tflops_per_gpu\": 999", "measured.tflops_per_gpu"}};
    orth_ctx *ctx = test_ctx(1);
    char text[2048], words[160], *out;
    for (int i = 0; i < ORTH_COUNT(fast); i++) {
        snprintf(words, sizeof words, "\"flash_attention\": true}, \"derived\": {}, \"measured\": {%s}", fast[i].figure);
        with_another("\"flash_attention\": true}", words, text);
        CHECK_OK(ctx, published_predict(ctx, text, false, &out));
        snprintf(words, sizeof words, "times the peak of the devices (%s)", fast[i].key);
        if (!strstr(out, words))
            fail_msg("%s is not called impossible:\n%s", fast[i].figure, out);
        orth_mem_free(ctx, out);
    }
    /* 40 % of the peak of 312 TFLOP/s, and the step of 16 sequences that a device takes at 150,000 tokens/s: 6 * 124e6 FLOPs a token. */
    with_another("\"flash_attention\": true}", "\"flash_attention\": true}, \"measured\": {\"mfu\": 40, \"hfu\": 53, \"tflops_per_gpu\": 125, \"step_time_s\": 0.0137, "
                 "\"tokens_per_s_per_gpu\": 150000}", text);
    CHECK_OK(ctx, published_predict(ctx, text, false, &out));
    assert_null(strstr(out, "impossible"));
    orth_mem_free(ctx, out);
    test_ctx_free(ctx);
}

typedef struct {
    double speed[3], mfu[3], GiB[3];
} figures;

/* Three runs of a sweep, measured as `m` says (NULL: not), scaled; the third ran out of memory. */
static json_t *judge(orth_ctx *ctx, const figures *m, double mfu_more, double GiB_times)
{
    static const char *const models[] = {MODEL_OF("gpt", "4", "12"), MODEL_OF("gpt", "8", "12"), MODEL_OF("gpt", "16", "12")};
    char text[8192] = "[", *out;
    for (int i = 0; i < 3; i++) {
        size_t at = strlen(text);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s{\"id\": \"%d\", \"family\": \"f\", \"group\": \"g\", \"time_tier\": \"core\", "
                               "\"memory_class\": \"allocated\", \"precision\": \"bf16\", %s, " HARDWARE ", " LAYOUT, i ? ", " : "", i, models[i]);
        if (m)
            at += (size_t)snprintf(text + at, sizeof text - at, ", \"derived\": {\"tokens_per_s_per_gpu\": %.17g, \"mfu_vs_bf16_peak_pct\": %.17g}, "
                                   "\"measured\": {\"peak_mem_GiB\": %.17g, \"oom\": %s}", m->speed[i], 100 * m->mfu[i] + mfu_more, m->GiB[i] * GiB_times,
                                   i == 2 ? "true" : "null");
        snprintf(text + at, sizeof text - at, "}");
    }
    strncat(text, "]", sizeof text - strlen(text) - 1);
    CHECK_OK(ctx, published_predict(ctx, text, true, &out));
    json_t *root = json_loads(out, 0, NULL);
    assert_non_null(root);
    orth_mem_free(ctx, out);
    return root;
}

static double at(const json_t *root, const char *what, const char *key)
{
    const json_t *errors = json_object_get(root, "errors"), *o = json_object_get(errors, what);
    return json_number_value(json_object_get(o, key));
}

/* Measurements are made of the predictions, so that every score is known. */
TEST(scores_of_predictions_are_those_of_their_definitions)
{
    orth_ctx *ctx = test_ctx(1);
    figures f;
    json_t *root = judge(ctx, NULL, 0, 1);
    for (int i = 0; i < 3; i++) {
        const json_t *c = json_array_get(json_object_get(root, "cases"), (size_t)i);
        f.speed[i] = json_number_value(json_object_get(c, "tokens_per_s_per_gpu"));
        f.mfu[i] = json_number_value(json_object_get(c, "mfu"));
        f.GiB[i] = json_number_value(json_object_get(c, "peak_mem_GiB"));
    }
    json_decref(root);
    assert_true(f.speed[0] > 1.1 * f.speed[1] && f.speed[1] > 1.1 * f.speed[2]);
    root = judge(ctx, &f, 2.5, 1.25);
    assert_true(at(root, "sweeps", "pairs") == 3 && at(root, "sweeps", "right") == 3);
    assert_true(at(root, "sweeps", "sweeps") == 1 && at(root, "sweeps", "best_within_3_percent") == 1);
    assert_true(fabs(at(root, "mfu_points", "mean") - 2.5) < 1e-5 && fabs(at(root, "mfu_points", "p90") - 2.5) < 1e-5);
    const json_t *memory = json_object_get(json_object_get(json_object_get(root, "errors"), "memory"), "allocated");
    assert_true(fabs(json_number_value(json_object_get(memory, "mean")) - 0.2) < 1e-6);
    assert_true(fabs(json_number_value(json_object_get(memory, "bias")) + 0.2) < 1e-6);
    assert_true(at(root, "ran_out", "cases") == 1 && at(root, "ran_out", "called_fitting") == 1);
    json_decref(root);
    const figures wrong = {{f.speed[2], f.speed[1], f.speed[0]}, {f.mfu[0], f.mfu[1], f.mfu[2]}, {f.GiB[0], f.GiB[1], f.GiB[2]}};
    root = judge(ctx, &wrong, 0, 1);
    assert_true(at(root, "sweeps", "pairs") == 3 && at(root, "sweeps", "right") == 0 && at(root, "sweeps", "best_within_3_percent") == 0);
    json_decref(root);
    test_ctx_free(ctx);
}

/* tools/fit_software.py writes both from the same predictions. */
TEST(the_errors_beside_estimates_are_those_of_the_newest_report)
{
    orth_ctx *ctx = test_ctx(1);
    orth_software s;
    glob_t found;
    char *text, row[96];
    size_t bytes;
    assert_int_equal(glob(ORTH_TEST_DIR "/../bench/results/*-published-runs.md", 0, NULL, &found), 0);
    CHECK_OK(ctx, orth_file_read(ctx, found.gl_pathv[found.gl_pathc - 1], &text, &bytes));
    CHECK_OK(ctx, orth_software_load(ctx, &s, NULL));
    const char *held_out = strstr(text, "| core, held out | ");
    double runs, mean, median, p90;
    assert_non_null(held_out);
    snprintf(row, sizeof row, "%.*s", (int)strcspn(held_out, "\n"), held_out);
    assert_int_equal(sscanf(row, "| core, held out | %lf | %lf | %lf | %lf |", &runs, &mean, &median, &p90), 4);
    if (s.errors_runs != runs || fabs(s.errors_median - median) > 0.051 || fabs(s.errors_p90 - p90) > 0.051)
        fail_msg("%g runs, %g, %g; the report: %s", s.errors_runs, s.errors_median, s.errors_p90, row);
    orth_mem_free(ctx, text);
    globfree(&found);
    test_ctx_free(ctx);
}

/* What `plan --cases --json` says of a file in bench/. */
static json_t *predicted(orth_ctx *ctx, const char *path)
{
    orth_software software;
    char *out;
    CHECK_OK(ctx, orth_software_load(ctx, &software, NULL));
    CHECK_OK(ctx, orth_cases_predict(ctx, path, &software, true, &out));
    json_t *root = json_loads(out, 0, NULL);
    orth_mem_free(ctx, out);
    assert_non_null(root);
    return root;
}

/* Of all of them, fitted and held out; tools/fit_software.py tells the halves apart. */
TEST(the_published_runs_of_the_repository_are_predicted_within_the_errors_that_are_promised)
{
    orth_ctx *ctx = test_ctx(1);
    json_t *root = predicted(ctx, ORTH_TEST_DIR "/../bench/published_cases.json");
    json_t *tiers = json_object_get(json_object_get(root, "errors"), "time_tier"), *core = json_object_get(tiers, "core");
    assert_true(json_integer_value(json_object_get(core, "cases")) > 100);
    assert_true(json_number_value(json_object_get(core, "mean")) <= 0.08 && json_number_value(json_object_get(core, "median")) <= 0.055);
    assert_true(json_number_value(json_object_get(core, "p90")) <= 0.17);
    assert_true(json_number_value(json_object_get(json_object_get(tiers, "stress"), "median")) <= 0.2);
    assert_true(at(root, "mfu_points", "mean") <= 3.5 && at(root, "sweeps", "right") >= 0.9 * at(root, "sweeps", "pairs"));
    assert_true(at(root, "ran_out", "cases") == 1 && at(root, "ran_out", "called_fitting") == 0);
    json_decref(root);
    test_ctx_free(ctx);
}

/* A token costs 72 L h^2 + 12 L h s + 6 h V; a layer made again 24 h^2 + 4 h s of it, its attention alone 4 h s (Narayanan et al. 2021; Korthikanti et al. 2022). */
TEST(hardware_flops_count_what_is_computed_again_attention_in_full)
{
    static const struct { const char *id; double layers, h, s, again; } cases[] = {
        {"sc21-t1-145.6B", 80, 12288, 2048, 24.0 * 12288 * 12288 + 4.0 * 12288 * 2048}, {"kort-22B-selsp", 48, 6144, 2048, 4.0 * 6144 * 2048}};
    orth_ctx *ctx = test_ctx(1);
    json_t *root = predicted(ctx, ORTH_TEST_DIR "/../bench/published_cases.json"), *c;
    size_t i;
    int found = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c)
        for (int k = 0; k < ORTH_COUNT(cases); k++)
            if (strcmp(json_string_value(json_object_get(c, "id")), cases[k].id) == 0) {
                const double h = cases[k].h, layer = 72 * h * h + 12 * h * cases[k].s, token = cases[k].layers * layer + 6 * h * 51200;
                const double ratio = json_number_value(json_object_get(c, "hfu")) / json_number_value(json_object_get(c, "mfu"));
                if (fabs(ratio - 1 - cases[k].layers * cases[k].again / token) > 0.001)
                    fail_msg("%s: hfu / mfu is %.5f, wanted %.5f", cases[k].id, ratio, 1 + cases[k].layers * cases[k].again / token);
                found++;
            }
    assert_int_equal(found, 2);
    json_decref(root);
    test_ctx_free(ctx);
}

/* bench/results/2026-11-27-one-gpu-runs.md has what was predicted before these runs, too. */
TEST(the_runs_of_the_repository_on_one_device_are_predicted_within_the_errors_that_are_reported)
{
    orth_ctx *ctx = test_ctx(1);
    json_t *root = predicted(ctx, ORTH_TEST_DIR "/../bench/one_gpu_cases.json");
    json_t *errors = json_object_get(root, "errors"), *core = json_object_get(json_object_get(errors, "time_tier"), "core");
    assert_true(json_integer_value(json_object_get(core, "cases")) == 78 && json_number_value(json_object_get(core, "mean")) <= 0.035);
    const json_t *memory = json_object_get(json_object_get(errors, "memory"), "allocated");
    assert_true(json_number_value(json_object_get(memory, "mean")) <= 0.01 && json_number_value(json_object_get(memory, "p90")) <= 0.02);
    assert_true(at(root, "sweeps", "right") == at(root, "sweeps", "pairs"));
    json_decref(root);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seven_billion_parameters_on_8_ranks_take_112_38_5_26_25_and_14_GB),
        cmocka_unit_test(gpt_3_fits_no_card_of_80_GB_on_8_ranks_under_any_stage),
        cmocka_unit_test(seventy_four_billion_on_tp_4_pp_2_dp_16_with_zero_1_take_43_9_GB_of_states),
        cmocka_unit_test(memory_follows_schedule_recomputation_and_logits),
        cmocka_unit_test(gradients_that_a_step_makes_anew_are_not_there_at_its_loss),
        cmocka_unit_test(autocast_keeps_sums_in_32_bits_an_input_for_each_product_and_gates),
        cmocka_unit_test(an_estimate_counts_the_flops_of_the_program),
        cmocka_unit_test(full_recomputation_costs_a_forward_and_keeps_inputs_only),
        cmocka_unit_test(seventy_billion_on_64_devices_runs_at_several_hundred_tokens_a_second_and_below_the_peak),
        cmocka_unit_test(a_prediction_reads_nothing_that_was_measured),
        cmocka_unit_test(the_errors_beside_estimates_are_those_of_the_newest_report),
        cmocka_unit_test(notes_of_a_case_change_nothing),
        cmocka_unit_test(a_case_without_a_figure_that_its_ranks_need_is_not_predicted),
        cmocka_unit_test(words_of_precision_that_are_not_priced_are_said_and_none_is_priced_as_bf16),
        cmocka_unit_test(a_measured_speed_above_the_peak_is_impossible_in_whatever_figure_it_is_given),
        cmocka_unit_test(a_case_that_is_absurd_or_contradicts_itself_is_refused_with_file_case_key_and_rule),
        cmocka_unit_test(accumulation_steps_say_what_micro_batch_and_global_batch_leave_out),
        cmocka_unit_test(recomputation_that_a_case_leaves_out_is_the_least_that_fits),
        cmocka_unit_test(scores_of_predictions_are_those_of_their_definitions),
        cmocka_unit_test(what_cannot_be_predicted_is_listed_with_the_reason_and_a_bad_file_refused),
        cmocka_unit_test(the_published_runs_of_the_repository_are_predicted_within_the_errors_that_are_promised),
        cmocka_unit_test(hardware_flops_count_what_is_computed_again_attention_in_full),
        cmocka_unit_test(the_runs_of_the_repository_on_one_device_are_predicted_within_the_errors_that_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
