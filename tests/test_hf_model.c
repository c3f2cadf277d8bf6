/* test_hf_model.c -- runs from files of other programs: config.json of Hugging Face without weights, ds_config.json of DeepSpeed,
 * YAML files of Accelerate. */
#include "test.h"

#include <unistd.h>

#include "base/files.h"
#include "ckpt/hf.h"
#include "tools/accelerate.h"
#include "tools/deepspeed.h"
#include "tools/hf_model.h"
#include "train/describe.h"

static void read_by_keys(orth_ctx *ctx, const char *path, orth_model_config *out)
{
    orth_config cfg;
    CHECK_OK(ctx, orth_config_init(ctx, &cfg));
    CHECK_OK(ctx, orth_hf_model_set(ctx, &cfg, path));
    CHECK_OK(ctx, orth_describe_model(ctx, &cfg, out));
    orth_config_release(ctx, &cfg);
}

TEST(keys_from_a_config_json_make_the_model_that_its_weights_are_read_into)
{
    static const char *const models[] = {"gpt2", "gpt2_erf", "llama", "llama_tied", "mistral", "qwen2", "qwen3"};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(models); i++) {
        orth_model_config a, b;
        char path[512], *text;
        size_t bytes;
        snprintf(path, sizeof path, ORTH_TEST_DIR "/fixtures/models/%s/config.json", models[i]);
        CHECK_OK(ctx, orth_file_read(ctx, path, &text, &bytes));
        CHECK_OK(ctx, orth_hf_config_parse(ctx, &a, path, text, bytes));
        read_by_keys(ctx, path, &b);
        assert_true(a.family == b.family && a.layers == b.layers && a.hidden == b.hidden && a.heads == b.heads && a.kv_heads == b.kv_heads);
        assert_true(a.head_dim == b.head_dim && a.ffn == b.ffn && a.vocab == b.vocab && a.max_seq == b.max_seq && a.tied == b.tied);
        assert_true(a.norm_eps == b.norm_eps && a.qkv_bias == b.qkv_bias && a.out_bias == b.out_bias && a.mlp_bias == b.mlp_bias);
        assert_true(a.qk_norm == b.qk_norm && a.gelu_erf == b.gelu_erf && a.dropout == b.dropout && a.attn_dropout == b.attn_dropout);
        assert_true(a.family == ORTH_FAMILY_GPT2 || (a.rope_theta == b.rope_theta && a.rope_factor == b.rope_factor));
        assert_true(a.family == ORTH_FAMILY_GPT2 || a.rope_factor == 1 ||
                    (a.rope_low_freq == b.rope_low_freq && a.rope_high_freq == b.rope_high_freq && a.rope_original_seq == b.rope_original_seq));
        orth_mem_free(ctx, text);
    }
    test_ctx_free(ctx);
}

TEST(a_mixture_of_experts_and_an_unknown_kind_are_refused_by_name)
{
    static const struct {
        const char *text, *message;
    } bad[] = {{"{\"model_type\": \"mixtral\", \"num_local_experts\": 8}", "num_local_experts=8: a mixture of experts"},
               {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 128}", "num_experts=128: a mixture of experts"},
               {"{\"model_type\": \"mamba\"}", "model_type=\"mamba\" is not one of gpt2, llama"},
               {"{\"model_type\": \"llama\"}", "num_hidden_layers"},
               {"[1]", "config"}};
    orth_ctx *ctx = test_ctx(1);
    char path[128];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-config.json", (long)getpid());
    for (int i = 0; i < ORTH_COUNT(bad); i++) {
        orth_config cfg;
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_file_write(ctx, path, bad[i].text, strlen(bad[i].text)));
        CHECK_FAILS(ctx, ORTH_ERR_DATA, bad[i].message, orth_hf_model_set(ctx, &cfg, path));
        orth_config_release(ctx, &cfg);
    }
    unlink(path);
    test_ctx_free(ctx);
}

/* ---- DeepSpeed ---- */

static orth_status read_deepspeed(orth_ctx *ctx, orth_config *cfg, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-ds.json", (long)getpid());
    CHECK_OK(ctx, orth_config_init(ctx, cfg));
    CHECK_OK(ctx, orth_file_write(ctx, path, text, strlen(text)));
    const orth_status s = orth_deepspeed_set(ctx, cfg, path);
    unlink(path);
    return s;
}

TEST(a_deepspeed_configuration_becomes_the_keys_that_mean_the_same)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, read_deepspeed(ctx, &c, "{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 8, "
        "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 5e8, \"stage3_param_persistence_threshold\": 1000, \"overlap_comm\": false, "
        "\"offload_optimizer\": {\"device\": \"cpu\"}}, \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 0.5, \"optimizer\": {\"type\": \"AdamW\", "
        "\"params\": {\"lr\": 3e-4, \"betas\": [0.9, 0.95], \"weight_decay\": \"auto\"}}}"));
    assert_true(c.train_global_batch == 128 && c.train_micro_batch == 2 && c.parallel_dp == 8 && c.parallel_zero == ORTH_parallel_zero_3);
    assert_true(c.comm_bucket_mb == 1908 && !c.comm_overlap && c.parallel_keep_whole == 1000 && c.train_clip_norm == 0.5);
    assert_true(c.precision_compute == ORTH_precision_compute_bf16 && c.optimizer_lr == 3e-4 && c.optimizer_betas.v[1] == 0.95);
    assert_false(ORTH_CONFIG_IS_SET(&c, optimizer, weight_decay)); /* auto: the default stays */
    CHECK_OK(ctx, orth_config_check(ctx, &c));
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(a_deepspeed_configuration_that_contradicts_itself_is_refused)
{
    static const struct {
        const char *text, *message;
        orth_status code;
    } bad[] = {
        {"{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}", "bf16.enabled and fp16.enabled are both true", ORTH_ERR_DATA},
        {"{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1}", "is no multiple of", ORTH_ERR_DATA},
        {"{\"optimizer\": {\"type\": \"Lamb\"}}", "there are Adam, AdamW and SGD", ORTH_ERR_DATA},
        {"{\"zero_optimization\": {\"stage\": 7}}", "parallel.zero=7: must be one of", ORTH_ERR_ARG},
        {"{\"train_batch_size\": [1]}", "train.global_batch", ORTH_ERR_ARG},
        {"[]", "", ORTH_ERR_DATA},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(bad); i++) {
        orth_config c;
        CHECK_FAILS(ctx, bad[i].code, bad[i].message, read_deepspeed(ctx, &c, bad[i].text));
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(a_configuration_of_accelerate_becomes_the_keys_that_mean_the_same)
{
    static const char text[] = "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: 'no'\nfsdp_config:\n"
                               "  fsdp_activation_checkpointing: true\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                               "  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_offload_params: false\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
                               "machine_rank: 0\nmain_training_function: main\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 4\n"
                               "tpu_env: []\nuse_cpu: false\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    char path[128];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-acc.yaml", (long)getpid());
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_OK(ctx, orth_file_write(ctx, path, text, strlen(text)));
    CHECK_OK(ctx, orth_accelerate_set(ctx, &c, path));
    assert_true(c.parallel_dp == 4 && c.parallel_zero == ORTH_parallel_zero_2 && c.precision_compute == ORTH_precision_compute_bf16);
    assert_true(c.memory_recompute == ORTH_memory_recompute_full && c.comm_prefetch == 1);
    CHECK_OK(ctx, orth_file_write(ctx, path, "num_processes: many\n", 20));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "-acc.yaml:1:16: parallel.dp=many: must be a whole number", orth_accelerate_set(ctx, &c, path));
    orth_config_release(ctx, &c);
    unlink(path);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_from_a_config_json_make_the_model_that_its_weights_are_read_into),
        cmocka_unit_test(a_deepspeed_configuration_becomes_the_keys_that_mean_the_same),
        cmocka_unit_test(a_deepspeed_configuration_that_contradicts_itself_is_refused),
        cmocka_unit_test(a_configuration_of_accelerate_becomes_the_keys_that_mean_the_same),
        cmocka_unit_test(a_mixture_of_experts_and_an_unknown_kind_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
