/* test_hf_model.c -- models of runs from a config.json of Hugging Face without weights. */
#include "test.h"

#include <unistd.h>

#include "base/files.h"
#include "ckpt/hf.h"
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
               {"{\"model_type\": \"mixtral\"}", "model_type=\"mixtral\": a mixture of experts"},
               {"{\"model_type\": \"olmoe\"}", "model_type=\"olmoe\": a mixture of experts"},
               {"{\"model_type\": \"llama\", \"num_experts\": \"8\"}", "num_experts=\"8\" is not an integer"},
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

static void keep_line(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)level, (void)rank, (void)component;
    char *lines = user;
    snprintf(lines + strlen(lines), 4096 - strlen(lines), "%s\n", text);
}

TEST(each_key_is_listed_as_used_or_as_not_used)
{
#define GPT2 "{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_positions\": 32, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2"
#define LLAMA(type) "{\"model_type\": \"" type "\", \"vocab_size\": 300, \"max_position_embeddings\": 32, \"hidden_size\": 8, \"num_hidden_layers\": 1, " \
                    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 16"
    static const struct {
        const char *text, *has[4], *lacks;
    } cases[] = {
        {GPT2 "}", {"json: model_type is model.family=gpt2\n", "json: n_embd is model.hidden=8\n", "json: vocab_size is model.vocab=300\n"}, "not used"},
        {GPT2 ", \"use_cache\": true, \"n_inner\": null}", {"not used, since they change neither memory nor time: use_cache\n", "n_inner is model.ffn=32\n"}, "vocab_size,"},
        {GPT2 ", \"hidden_size\": 9, \"scale_attn_weights\": true}", {"what it changes is not in the plan: hidden_size\n",
         "there is one kind of it here: scale_attn_weights\n"},
         "hidden_size is"},
        {LLAMA("llama") ", \"attention_bias\": true, \"hidden_act\": \"silu\", \"rope_parameters\": {\"rope_theta\": 5000.0}}",
         {"attention_bias is model.qkv_bias=true\n", "attention_bias is model.out_bias=true\n", "rope_parameters is model.rope_theta=5000", "one kind of it here: hidden_act\n"}, "not used"},
        {LLAMA("mistral") ", \"sliding_window\": null, \"attention_bias\": true, \"architectures\": [\"MistralForCausalLM\"]}",
         {"neither memory nor time: attention_bias\n", "architectures=MistralForCausalLM is a language model"}, "attention_bias is"},
        {LLAMA("llama") ", \"use_cache\": true, \"attention_multiplier\": 2, \"pretraining_tp\": 1, "
                       "\"gradient_checkpointing\": true, \"decoder_start_token_id\": 0}",
         {"neither memory nor time: use_cache, pretraining_tp, decoder_start_token_id\n",
          "not used, as no such key is known here; what it changes is not in the plan: attention_multiplier, gradient_checkpointing\n"}, "time: attention"},
        {LLAMA("llama") ", \"architectures\": [\"LlamaForSequenceClassification\"]}",
         {"architectures=LlamaForSequenceClassification has another head: planned is a language model"}, "not used"},
    };
    orth_ctx *ctx = test_ctx(1);
    char path[128];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-used.json", (long)getpid());
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config cfg;
        char lines[4096] = "";
        ctx->log = (orth_log_sink){keep_line, lines, ORTH_LOG_INFO};
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_file_write(ctx, path, cases[i].text, strlen(cases[i].text)));
        CHECK_OK(ctx, orth_hf_model_set(ctx, &cfg, path));
        for (int k = 0; k < 4 && cases[i].has[k]; k++)
            if (!strstr(lines, cases[i].has[k]))
                fail_msg("%s: '%s' is not in\n%s", cases[i].text, cases[i].has[k], lines);
        if (strstr(lines, cases[i].lacks))
            fail_msg("%s: '%s' is in\n%s", cases[i].text, cases[i].lacks, lines);
        orth_config_release(ctx, &cfg);
    }
    ctx->log = (orth_log_sink){NULL, NULL, ORTH_LOG_ERROR};
    unlink(path);
    test_ctx_free(ctx);
}

/* The keys of the files that Hugging Face has of these models, but for the dimensions. */
TEST(no_key_of_a_common_configuration_is_unknown)
{
    static const char *const texts[] = {
        "{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_positions\": 32, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, \"n_ctx\": 32, "
        "\"activation_function\": \"gelu_new\", "
        "\"architectures\": [\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.1, \"bos_token_id\": 1, \"embd_pdrop\": 0.1, \"eos_token_id\": 1, "
        "\"initializer_range\": 0.02, "
        "\"layer_norm_epsilon\": 1e-05, \"resid_pdrop\": 0.1, \"summary_activation\": null, \"summary_first_dropout\": 0.1, \"summary_proj_to_labels\": true, "
        "\"summary_type\": \"cls_index\", \"summary_use_proj\": true, \"task_specific_params\": {\"text-generation\": {\"do_sample\": true}}}",
        LLAMA("llama") ", \"_name_or_path\": \"x\", \"attention_bias\": false, \"attention_dropout\": 0.0, \"bos_token_id\": 1, "
        "\"eos_token_id\": [1, 2], \"hidden_act\": \"silu\", "
        "\"initializer_range\": 0.02, \"max_length\": 32, \"mlp_bias\": false, \"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, "
        "\"rope_scaling\": null, \"rope_theta\": 5e5, "
        "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.40\", \"use_cache\": true, \"pad_token_id\": 0}",
        LLAMA("mistral") ", \"attention_dropout\": 0.0, \"bos_token_id\": 1, \"hidden_act\": \"silu\", \"initializer_range\": 0.02, "
        "\"rms_norm_eps\": 1e-05, \"rope_theta\": 1e4, "
        "\"sliding_window\": null, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"use_cache\": true}",
        LLAMA("qwen2") ", \"hidden_act\": \"silu\", \"max_window_layers\": 28, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1e6, "
        "\"sliding_window\": 32, \"use_sliding_window\": false, "
        "\"use_mrope\": false, \"attention_dropout\": 0.0, \"bos_token_id\": 1, \"tie_word_embeddings\": true, \"use_cache\": true}",
        LLAMA("qwen3") ", \"head_dim\": 4, \"attention_bias\": false, \"hidden_act\": \"silu\", \"max_window_layers\": 28, \"rms_norm_eps\": 1e-06, "
        "\"rope_scaling\": null, "
        "\"rope_theta\": 1e6, \"sliding_window\": null, \"use_sliding_window\": false, \"tie_word_embeddings\": true, "
        "\"layer_types\": [\"full_attention\"], \"dtype\": \"bfloat16\"}",
    };
    orth_ctx *ctx = test_ctx(1);
    char path[128];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-common.json", (long)getpid());
    for (int i = 0; i < ORTH_COUNT(texts); i++) {
        orth_config cfg;
        char lines[4096] = "";
        ctx->log = (orth_log_sink){keep_line, lines, ORTH_LOG_INFO};
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_file_write(ctx, path, texts[i], strlen(texts[i])));
        CHECK_OK(ctx, orth_hf_model_set(ctx, &cfg, path));
        if (strstr(lines, "no such key is known"))
            fail_msg("%s", lines);
        orth_config_release(ctx, &cfg);
    }
    ctx->log = (orth_log_sink){NULL, NULL, ORTH_LOG_ERROR};
    unlink(path);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_from_a_config_json_make_the_model_that_its_weights_are_read_into),
        cmocka_unit_test(no_key_of_a_common_configuration_is_unknown),
        cmocka_unit_test(each_key_is_listed_as_used_or_as_not_used),
        cmocka_unit_test(a_mixture_of_experts_and_an_unknown_kind_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
