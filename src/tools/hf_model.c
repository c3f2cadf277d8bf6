/* hf_model.c -- see hf_model.h. */
#include "tools/hf_model.h"

#include <inttypes.h>

#include "base/files.h"
#include "base/text.h"
#include "ckpt/hf.h"
#include "ckpt/json.h"

#define MAX_BYTES ((size_t)1 << 20)

/* Keys that decide what is computed, of all kinds of models. */
static const char *const used[] = {
    "model_type", "n_layer", "n_embd", "n_head", "n_inner", "n_positions", "vocab_size", "layer_norm_epsilon", "activation_function",
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "intermediate_size", "max_position_embeddings", "rms_norm_eps", "hidden_act", "rope_theta", "rope_scaling", "rope_parameters",
    "tie_word_embeddings", "attention_bias", "mlp_bias", "attention_dropout", "initializer_range", "sliding_window", "use_sliding_window",
    "layer_types", "max_window_layers", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "add_cross_attention"};

static bool is_used(const char *key)
{
    for (int i = 0; i < ORTH_COUNT(used); i++)
        if (strcmp(used[i], key) == 0)
            return true;
    return false;
}

/* Names of kinds whose class has experts even if no key of the file says so; others have "moe" in their names. */
static bool has_experts(const char *model_type)
{
    static const char *const kinds[] = {"mixtral", "deepseek_v2", "deepseek_v3", "dbrx", "gpt_oss", "grok-1", "jamba", "llama4", "minimax", "arctic"};
    for (int i = 0; i < ORTH_COUNT(kinds); i++)
        if (strcmp(kinds[i], model_type) == 0)
            return true;
    return strstr(model_type, "moe") != NULL;
}

static orth_status refuse_experts(orth_ctx *ctx, const json_t *root, const char *path)
{
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "moe_intermediate_size"};
    const char *type = json_string_value(json_object_get(root, "model_type"));
    for (int i = 0; i < ORTH_COUNT(keys); i++) {
        int64_t n = 0;
        ORTH_TRY(orth_json_get_int(ctx, root, path, keys[i], &n));
        if (n > 1)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s=%" PRId64 ": a mixture of experts, which this version does not have", path, keys[i], n);
    }
    if (type && has_experts(type))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: model_type=\"%.60s\": a mixture of experts, which this version does not have", path, type);
    return ORTH_OK;
}

static orth_status set_int(orth_ctx *ctx, orth_config *cfg, const char *path, orth_option_id id, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return orth_config_set(ctx, cfg, path, orth_option_get(id)->path, text);
}

static orth_status set_real(orth_ctx *ctx, orth_config *cfg, const char *path, orth_option_id id, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return orth_config_set(ctx, cfg, path, orth_option_get(id)->path, text);
}

static orth_status set_bool(orth_ctx *ctx, orth_config *cfg, const char *path, orth_option_id id, bool value)
{
    return orth_config_set(ctx, cfg, path, orth_option_get(id)->path, value ? "true" : "false");
}

#define SET(kind, field) ORTH_TRY(set_##kind(ctx, cfg, path, ORTH_OPT_model_##field, m->field))

orth_status orth_hf_model_keys(orth_ctx *ctx, orth_config *cfg, const char *path, const orth_model_config *m)
{
    ORTH_TRY(orth_config_set(ctx, cfg, path, "model.family", orth_family_name(m->family)));
    SET(int, layers);
    SET(int, hidden);
    SET(int, heads);
    SET(int, kv_heads);
    SET(int, head_dim);
    SET(int, ffn);
    SET(int, vocab);
    SET(int, max_seq);
    SET(real, norm_eps);
    SET(bool, tied);
    SET(bool, qkv_bias);
    SET(bool, out_bias);
    SET(bool, mlp_bias);
    SET(bool, qk_norm);
    SET(real, init_std);
    SET(bool, gelu_erf);
    SET(real, dropout);
    SET(real, embed_dropout);
    SET(real, attn_dropout);
    if (m->family == ORTH_FAMILY_GPT2)
        return ORTH_OK;
    SET(real, rope_theta);
    if (m->rope_factor == 1)
        return ORTH_OK;
    SET(real, rope_factor);
    SET(real, rope_low_freq);
    SET(real, rope_high_freq);
    SET(int, rope_original_seq);
    return ORTH_OK;
}

static void say_unused(orth_ctx *ctx, json_t *root, const char *path)
{
    orth_text t = {0};
    const char *key, *between = "";
    json_t *value;
    json_object_foreach(root, key, value) {
        if (is_used(key) || strcmp(key, "torch_dtype") == 0 || strcmp(key, "dtype") == 0)
            continue;
        orth_text_addf(ctx, &t, "%s%s", between, ORTH_SHOWN(key));
        between = ", ";
    }
    char *keys = orth_text_take(ctx, &t);
    if (keys && *keys)
        orth_log(ctx, ORTH_LOG_INFO, "import", "%s: not used, since they change neither memory nor time: %s", path, keys);
    orth_mem_free(ctx, keys);
}

/* The type of the stored weights is not what a run computes in. */
static void say_type(orth_ctx *ctx, json_t *root, const char *path)
{
    const char *const keys[] = {"torch_dtype", "dtype"};
    for (int i = 0; i < ORTH_COUNT(keys); i++)
        if (json_is_string(json_object_get(root, keys[i])))
            orth_log(ctx, ORTH_LOG_INFO, "import", "%s: %s=%s is the type of stored weights; what a run computes in is precision.compute", path, keys[i],
                     ORTH_SHOWN(json_string_value(json_object_get(root, keys[i]))));
}

static orth_status set_from(orth_ctx *ctx, orth_config *cfg, const char *path, json_t *root)
{
    orth_model_config model;
    char *text = orth_json_text(ctx, root, 0);
    orth_status s = text ? refuse_experts(ctx, root, path) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_hf_config_parse(ctx, &model, path, text, strlen(text));
    if (s == ORTH_OK)
        s = orth_hf_model_keys(ctx, cfg, path, &model);
    orth_mem_free(ctx, text);
    if (s == ORTH_OK)
        say_unused(ctx, root, path);
    if (s == ORTH_OK)
        say_type(ctx, root, path);
    return s;
}

orth_status orth_hf_model_set(orth_ctx *ctx, orth_config *cfg, const char *path)
{
    json_t *root;
    char *file = orth_path_is_dir(path) ? orth_mem_printf(ctx, "%s/config.json", path) : orth_mem_printf(ctx, "%s", path);
    if (!file)
        return ORTH_ERR_NOMEM;
    orth_status s = orth_json_read(ctx, &root, file, MAX_BYTES);
    if (s == ORTH_OK) {
        s = set_from(ctx, cfg, file, root);
        json_decref(root);
    }
    orth_mem_free(ctx, file);
    return s;
}
