/* hf_model.c -- see hf_model.h. */
#include "tools/hf_model.h"

#include <inttypes.h>

#include "base/files.h"
#include "base/text.h"
#include "ckpt/hf.h"
#include "ckpt/json.h"

#define MAX_BYTES ((size_t)1 << 20)

/* Keys that decide what is computed. `here`: the keys that they become; NULL: there is one kind here, and the reader refuses others. `types`: the
 * model_type that has the key; NULL: any of the family. */
static const struct {
    orth_family family;
    const char *key, *here, *types;
} used[] = {
    {ORTH_FAMILY_GPT2, "model_type", "model.family"},
    {ORTH_FAMILY_GPT2, "n_layer", "model.layers"},
    {ORTH_FAMILY_GPT2, "n_embd", "model.hidden"},
    {ORTH_FAMILY_GPT2, "n_head", "model.heads"},
    {ORTH_FAMILY_GPT2, "n_inner", "model.ffn"},
    {ORTH_FAMILY_GPT2, "n_positions", "model.max_seq"},
    {ORTH_FAMILY_GPT2, "vocab_size", "model.vocab"},
    {ORTH_FAMILY_GPT2, "layer_norm_epsilon", "model.norm_eps"},
    {ORTH_FAMILY_GPT2, "activation_function", "model.gelu_erf"},
    {ORTH_FAMILY_GPT2, "resid_pdrop", "model.dropout"},
    {ORTH_FAMILY_GPT2, "embd_pdrop", "model.embed_dropout"},
    {ORTH_FAMILY_GPT2, "attn_pdrop", "model.attn_dropout"},
    {ORTH_FAMILY_GPT2, "tie_word_embeddings", "model.tied"},
    {ORTH_FAMILY_GPT2, "initializer_range", "model.init_std"},
    {ORTH_FAMILY_GPT2, "scale_attn_weights", NULL},
    {ORTH_FAMILY_GPT2, "scale_attn_by_inverse_layer_idx", NULL},
    {ORTH_FAMILY_GPT2, "add_cross_attention", NULL},
    {ORTH_FAMILY_LLAMA, "model_type", "model.family"},
    {ORTH_FAMILY_LLAMA, "num_hidden_layers", "model.layers"},
    {ORTH_FAMILY_LLAMA, "hidden_size", "model.hidden"},
    {ORTH_FAMILY_LLAMA, "num_attention_heads", "model.heads"},
    {ORTH_FAMILY_LLAMA, "num_key_value_heads", "model.kv_heads"},
    {ORTH_FAMILY_LLAMA, "head_dim", "model.head_dim"},
    {ORTH_FAMILY_LLAMA, "intermediate_size", "model.ffn"},
    {ORTH_FAMILY_LLAMA, "max_position_embeddings", "model.max_seq"},
    {ORTH_FAMILY_LLAMA, "vocab_size", "model.vocab"},
    {ORTH_FAMILY_LLAMA, "rms_norm_eps", "model.norm_eps"},
    {ORTH_FAMILY_LLAMA, "rope_theta", "model.rope_theta"},
    {ORTH_FAMILY_LLAMA, "rope_scaling", "model.rope_factor"},
    {ORTH_FAMILY_LLAMA, "rope_parameters", "model.rope_theta model.rope_factor"},
    {ORTH_FAMILY_LLAMA, "tie_word_embeddings", "model.tied"},
    {ORTH_FAMILY_LLAMA, "attention_bias", "model.qkv_bias model.out_bias", "llama qwen3"},
    {ORTH_FAMILY_LLAMA, "qkv_bias", "model.qkv_bias", "orthant"},
    {ORTH_FAMILY_LLAMA, "out_bias", "model.out_bias", "orthant"},
    {ORTH_FAMILY_LLAMA, "mlp_bias", "model.mlp_bias", "llama orthant"},
    {ORTH_FAMILY_LLAMA, "qk_norm", "model.qk_norm", "orthant"},
    {ORTH_FAMILY_LLAMA, "resid_pdrop", "model.dropout"},
    {ORTH_FAMILY_LLAMA, "embd_pdrop", "model.embed_dropout"},
    {ORTH_FAMILY_LLAMA, "attention_dropout", "model.attn_dropout"},
    {ORTH_FAMILY_LLAMA, "initializer_range", "model.init_std"},
    {ORTH_FAMILY_LLAMA, "hidden_act", NULL},
    {ORTH_FAMILY_LLAMA, "partial_rotary_factor", NULL},
    {ORTH_FAMILY_LLAMA, "sliding_window", NULL},
    {ORTH_FAMILY_LLAMA, "use_sliding_window", NULL},
    {ORTH_FAMILY_LLAMA, "layer_types", NULL},
    {ORTH_FAMILY_LLAMA, "max_window_layers", NULL},
};

/* Keys that change neither memory nor time, of the classes that are read here; a pattern that begins or ends in * stands for all that end or begin so. */
static const char *const harmless[] = {
    "*_token_id", "*_token_ids", "_*", "architectures", "attn_implementation", "auto_map", "chunk_size_feed_forward", "finetuning_task", "id2label", "label2id",
    "is_decoder", "is_encoder_decoder", "max_length", "min_length", "n_ctx", "output_*", "prefix", "pretraining_tp", "problem_type",
    "reorder_and_upcast_attn", "return_dict*", "summary_*", "task_specific_params", "tokenizer_class", "transformers_version", "transformers.js_config",
    "use_cache", "use_mrope",
};

static bool is_harmless(const char *key)
{
    const size_t n = strlen(key);
    for (int i = 0; i < ORTH_COUNT(harmless); i++) {
        const char *p = harmless[i];
        const size_t m = strlen(p) - 1;
        const bool ends = p[0] == '*' && n >= m && strcmp(key + n - m, p + 1) == 0;
        if (ends || (p[m] == '*' && strncmp(key, p, m) == 0) || strcmp(key, p) == 0)
            return true;
    }
    return false;
}

/* The row of a key; -1: it is not used. */
static int find_used(const char *key, orth_family family, const char *type)
{
    for (int i = 0; i < ORTH_COUNT(used); i++)
        if (used[i].family == family && strcmp(used[i].key, key) == 0 && (!used[i].types || strstr(used[i].types, type)))
            return i;
    return -1;
}

/* Whether other classes of the family look at the key, and this one does not. */
static bool is_passed_over(const char *key, orth_family family)
{
    for (int i = 0; i < ORTH_COUNT(used); i++)
        if (used[i].family == family && strcmp(used[i].key, key) == 0)
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

/* "hidden_size is model.hidden=4096", a line for each key there and here. */
static orth_status say_here(orth_ctx *ctx, const orth_config *cfg, const char *path, const char *key, const char *here)
{
    for (const char *word = here; *word;) {
        char name[64];
        const size_t n = strcspn(word, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, word);
        char *value = orth_option_text(ctx, cfg, (orth_option_id)orth_option_find(name));
        if (!value)
            return ORTH_ERR_NOMEM;
        orth_log(ctx, ORTH_LOG_INFO, "import", "%s: %s is %s=%s", path, key, name, ORTH_SHOWN(value));
        orth_mem_free(ctx, value);
        word += n + strspn(word + n, " ");
    }
    return ORTH_OK;
}

/* Says what became of each key: in a line together those that became nothing, and in another those that no list here has. */
static orth_status say_keys(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *m, json_t *root, const char *path)
{
    orth_text same = {0}, none = {0}, unknown = {0};
    orth_status s = ORTH_OK;
    const char *key, *type = json_string_value(json_object_get(root, "model_type"));
    json_t *value;
    json_object_foreach(root, key, value) {
        const int row = find_used(key, m->family, type);
        const bool of_weights = strcmp(key, "torch_dtype") == 0 || strcmp(key, "dtype") == 0, others = strcmp(key, "architectures") == 0;
        if (row >= 0 && used[row].here && s == ORTH_OK)
            s = say_here(ctx, cfg, path, key, used[row].here);
        else if (row >= 0 && !used[row].here)
            orth_text_addf(ctx, &same, "%s%s", same.s ? ", " : "", key);
        else if (row < 0 && !of_weights && !others) {
            orth_text *list = is_harmless(key) || is_passed_over(key, m->family) ? &none : &unknown;
            orth_text_addf(ctx, list, "%s%s", list->s ? ", " : "", ORTH_SHOWN(key));
        }
    }
    char *read = orth_text_take(ctx, &same), *unused = orth_text_take(ctx, &none), *strange = orth_text_take(ctx, &unknown);
    if (read && *read)
        orth_log(ctx, ORTH_LOG_INFO, "import", "%s: read, and as there is one kind of it here: %s", path, read);
    if (unused && *unused)
        orth_log(ctx, ORTH_LOG_INFO, "import", "%s: not used, since they change neither memory nor time: %s", path, unused);
    if (strange && *strange)
        orth_log(ctx, ORTH_LOG_INFO, "import", "%s: not used, as no such key is known here; what it changes is not in the plan: %s", path, strange);
    orth_mem_free(ctx, read);
    orth_mem_free(ctx, unused);
    orth_mem_free(ctx, strange);
    return s;
}

/* A class with another head than that of a language model has other parameters at its end. */
static void say_class(orth_ctx *ctx, json_t *root, const char *path)
{
    const char *name = json_string_value(json_array_get(json_object_get(root, "architectures"), 0));
    if (name && !strstr(name, "ForCausalLM") && !strstr(name, "LMHeadModel"))
        orth_log(ctx, ORTH_LOG_WARN, "import", "%s: architectures=%s has another head: planned is a language model, whose head has vocab_size rows", path,
                 ORTH_SHOWN(name));
    else if (name)
        orth_log(ctx, ORTH_LOG_INFO, "import", "%s: architectures=%s is a language model, as all are here", path, ORTH_SHOWN(name));
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
        s = say_keys(ctx, cfg, &model, root, path);
    if (s == ORTH_OK) {
        say_class(ctx, root, path);
        say_type(ctx, root, path);
    }
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
