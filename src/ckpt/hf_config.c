/* hf_config.c -- config.json of Hugging Face to orth_model_config and back. See hf.h.
 *
 * A setting that changes what the model computes and that Orthant does not have is refused by name;
 * a setting that is absent has the default of Transformers' class.
 */
#include <inttypes.h>

#include "ckpt/hf.h"
#include "ckpt/json.h"

typedef struct {
    const char *model_type, *architecture;
} arch;

enum { ARCH_GPT2, ARCH_LLAMA, ARCH_MISTRAL, ARCH_QWEN2, ARCH_QWEN3, ARCH_OWN, NUM_ARCHS };

static const arch archs[NUM_ARCHS] = {
    [ARCH_GPT2] = {"gpt2", "GPT2LMHeadModel"},        [ARCH_LLAMA] = {"llama", "LlamaForCausalLM"},
    [ARCH_MISTRAL] = {"mistral", "MistralForCausalLM"}, [ARCH_QWEN2] = {"qwen2", "Qwen2ForCausalLM"},
    [ARCH_QWEN3] = {"qwen3", "Qwen3ForCausalLM"},     [ARCH_OWN] = {"orthant", "OrthantForCausalLM"},
};

/* What the readers of the keys share. */
typedef struct {
    orth_ctx *ctx;
    const json_t *root;
    const char *place;
    int arch;
} source;

static orth_status need_int(const source *s, const char *key, int64_t *out)
{
    ORTH_TRY(orth_json_require(s->ctx, s->root, s->place, key));
    return orth_json_get_int(s->ctx, s->root, s->place, key, out);
}

/* A count that may be absent, where 0 would stand for that here. */
static orth_status at_least_one(const source *s, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(s->root, key);
    ORTH_TRY(orth_json_get_int(s->ctx, s->root, s->place, key, out));
    if (v && json_is_integer(v) && *out < 1)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s=%" PRId64 " is not at least 1", s->place, key, *out);
    return ORTH_OK;
}

/* Refuses key=true (or whatever differs from `wanted`) when Orthant computes only `wanted`. */
static orth_status must_be(const source *s, const char *key, bool wanted, const char *rule)
{
    bool v = wanted;
    ORTH_TRY(orth_json_get_bool(s->ctx, s->root, s->place, key, &v));
    if (v != wanted)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s=%s: %s", s->place, key, v ? "true" : "false", rule);
    return ORTH_OK;
}

static orth_status one_of(const source *s, const char *key, const char *default_, const char *a,
                          const char *b)
{
    const char *v = default_;
    ORTH_TRY(orth_json_get_string(s->ctx, s->root, s->place, key, &v));
    if (strcmp(v, a) != 0 && strcmp(v, b) != 0)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA,
                         "%s: %s=\"%.60s\" is not %s or %s, which is what Orthant computes",
                         s->place, key, v, a, b);
    return ORTH_OK;
}

static orth_status read_arch(source *s)
{
    const char *type = NULL;
    ORTH_TRY(orth_json_require(s->ctx, s->root, s->place, "model_type"));
    ORTH_TRY(orth_json_get_string(s->ctx, s->root, s->place, "model_type", &type));
    for (s->arch = 0; s->arch < NUM_ARCHS; s->arch++)
        if (strcmp(archs[s->arch].model_type, type) == 0)
            break;
    if (s->arch == NUM_ARCHS)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA,
                         "%s: model_type=\"%.60s\" is not one of gpt2, llama, mistral, "
                         "qwen2, qwen3", s->place, type);
    if (json_is_object(json_object_get(s->root, "quantization_config")))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: quantization_config: quantised weights are not read",
                         s->place);
    return ORTH_OK;
}

/* Llama's kinds have attention's only; the other two are Orthant's additions there, absent for 0. */
static orth_status read_dropout(const source *s, const char *attention, orth_model_config *c)
{
    const char *const keys[] = {"resid_pdrop", "embd_pdrop", attention};
    double *const rates[] = {&c->dropout, &c->embed_dropout, &c->attn_dropout};
    for (int i = 0; i < ORTH_COUNT(keys); i++) {
        ORTH_TRY(orth_json_get_real(s->ctx, s->root, s->place, keys[i], rates[i]));
        if (!(*rates[i] >= 0 && *rates[i] < 1))
            return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s=%g is not in [0, 1)", s->place, keys[i], *rates[i]);
    }
    return ORTH_OK;
}

static orth_status read_gelu(const source *s, orth_model_config *c)
{
    const char *name = "gelu_new";
    ORTH_TRY(orth_json_get_string(s->ctx, s->root, s->place, "activation_function", &name));
    c->gelu_erf = strcmp(name, "gelu") == 0;
    if (c->gelu_erf || strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0)
        return ORTH_OK;
    return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: activation_function=\"%.60s\" is not gelu_new, gelu_pytorch_tanh or gelu, which "
                     "is what Orthant computes", s->place, name);
}

static orth_status read_gpt2(const source *s, orth_model_config *c)
{
    ORTH_TRY(need_int(s, "n_layer", &c->layers));
    ORTH_TRY(need_int(s, "n_embd", &c->hidden));
    ORTH_TRY(need_int(s, "n_head", &c->heads));
    ORTH_TRY(need_int(s, "vocab_size", &c->vocab));
    ORTH_TRY(need_int(s, "n_positions", &c->max_seq));
    ORTH_TRY(at_least_one(s, "n_inner", &c->ffn));
    ORTH_TRY(orth_json_get_real(s->ctx, s->root, s->place, "layer_norm_epsilon", &c->norm_eps));
    c->dropout = c->embed_dropout = c->attn_dropout = 0.1;
    ORTH_TRY(read_dropout(s, "attn_pdrop", c));
    ORTH_TRY(read_gelu(s, c));
    ORTH_TRY(must_be(s, "scale_attn_weights", true, "attention is scaled by 1/sqrt(head_dim) only"));
    ORTH_TRY(must_be(s, "scale_attn_by_inverse_layer_idx", false, "attention is scaled alike in all layers"));
    return must_be(s, "add_cross_attention", false, "there is no cross-attention");
}

/* ---- RoPE: "rope_theta" and "rope_scaling", or since Transformers 5 both in "rope_parameters" ---- */

static orth_status read_scaling(const source *s, const json_t *scaling, orth_model_config *c)
{
    const char *type = "default";
    ORTH_TRY(orth_json_get_string(s->ctx, scaling, s->place, "type", &type));
    ORTH_TRY(orth_json_get_string(s->ctx, scaling, s->place, "rope_type", &type));
    ORTH_TRY(orth_json_get_real(s->ctx, scaling, s->place, "rope_theta", &c->rope_theta));
    if (strcmp(type, "default") == 0)
        return ORTH_OK;
    if (strcmp(type, "llama3") != 0)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA,
                         "%s: rope_type=\"%.60s\" is not default or llama3, which is what "
                         "Orthant computes", s->place, type);
    static const char *const keys[] = {"factor", "low_freq_factor", "high_freq_factor"};
    double *const values[] = {&c->rope_factor, &c->rope_low_freq, &c->rope_high_freq};
    for (int i = 0; i < ORTH_COUNT(keys); i++) {
        ORTH_TRY(orth_json_require(s->ctx, scaling, s->place, keys[i]));
        ORTH_TRY(orth_json_get_real(s->ctx, scaling, s->place, keys[i], values[i]));
    }
    ORTH_TRY(orth_json_require(s->ctx, scaling, s->place, "original_max_position_embeddings"));
    return orth_json_get_int(s->ctx, scaling, s->place, "original_max_position_embeddings",
                             &c->rope_original_seq);
}

static orth_status read_rope(const source *s, orth_model_config *c)
{
    double partial = 1.0;
    c->rope_original_seq = c->max_seq;
    ORTH_TRY(orth_json_get_real(s->ctx, s->root, s->place, "rope_theta", &c->rope_theta));
    ORTH_TRY(orth_json_get_real(s->ctx, s->root, s->place, "partial_rotary_factor", &partial));
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    const json_t *scaling = json_object_get(s->root, keys[0]), *parameters = json_object_get(s->root, keys[1]);
    if (json_is_object(scaling) && json_is_object(parameters) && !json_equal(scaling, parameters))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: rope_scaling and rope_parameters are both there and differ: which one holds? Remove the other",
                         s->place);
    for (int i = 0; i < ORTH_COUNT(keys); i++) {
        const json_t *v = json_object_get(s->root, keys[i]);
        if (!v || json_is_null(v))
            continue;
        if (!json_is_object(v) || json_object_get(v, "full_attention"))
            return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s is not one set of settings for all layers",
                             s->place, keys[i]);
        ORTH_TRY(orth_json_get_real(s->ctx, v, s->place, "partial_rotary_factor", &partial));
        ORTH_TRY(read_scaling(s, v, c));
    }
    if (partial != 1.0)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: partial_rotary_factor=%g: RoPE turns whole heads here",
                         s->place, partial);
    return ORTH_OK;
}

/* Whether some layer of the model slides where a window is in use. */
static orth_status read_slides(const source *s, int64_t layers, bool *out)
{
    int64_t full_layers = 28;
    const json_t *types = json_object_get(s->root, "layer_types"), *type;
    size_t i;
    *out = s->arch == ARCH_MISTRAL;
    if (*out) /* its class does not look at layer_types */
        return ORTH_OK;
    ORTH_TRY(orth_json_get_int(s->ctx, s->root, s->place, "max_window_layers", &full_layers));
    *out = layers > full_layers;
    if (!types || json_is_null(types))
        return ORTH_OK;
    if (!json_is_array(types))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: layer_types is not a list", s->place);
    *out = false;
    json_array_foreach(types, i, type)
        *out = *out || (json_is_string(type) && strcmp(json_string_value(type), "sliding_attention") == 0);
    return ORTH_OK;
}

/* Within the window full attention is the same, so positions end there. */
static orth_status read_window(const source *s, orth_model_config *c)
{
    bool used = s->arch == ARCH_MISTRAL, slides = false;
    int64_t window = 4096;
    if (s->arch == ARCH_QWEN2 || s->arch == ARCH_QWEN3)
        ORTH_TRY(orth_json_get_bool(s->ctx, s->root, s->place, "use_sliding_window", &used));
    if (!used || json_is_null(json_object_get(s->root, "sliding_window")))
        return ORTH_OK;
    ORTH_TRY(orth_json_get_int(s->ctx, s->root, s->place, "sliding_window", &window));
    ORTH_TRY(read_slides(s, c->layers, &slides));
    if (!slides || window >= c->max_seq)
        return ORTH_OK;
    if (window < 1)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: sliding_window=%" PRId64 " is not at least 1", s->place,
                         window);
    orth_log(s->ctx, ORTH_LOG_WARN, "import",
             "%s: sliding_window=%" PRId64 " is not computed; max_seq becomes %"
             PRId64 " (was %" PRId64 "), where it makes no difference", s->place, window, window, c->max_seq);
    c->max_seq = window;
    return ORTH_OK;
}

static orth_status read_biases(const source *s, orth_model_config *c)
{
    if (s->arch == ARCH_QWEN2)
        c->qkv_bias = true;
    if (s->arch == ARCH_QWEN3)
        c->qk_norm = true;
    if (s->arch == ARCH_LLAMA || s->arch == ARCH_QWEN3) {
        ORTH_TRY(orth_json_get_bool(s->ctx, s->root, s->place, "attention_bias", &c->qkv_bias));
        c->out_bias = c->qkv_bias;
    }
    if (s->arch == ARCH_LLAMA)
        ORTH_TRY(orth_json_get_bool(s->ctx, s->root, s->place, "mlp_bias", &c->mlp_bias));
    if (s->arch != ARCH_OWN)
        return ORTH_OK;
    ORTH_TRY(orth_json_get_bool(s->ctx, s->root, s->place, "qkv_bias", &c->qkv_bias));
    ORTH_TRY(orth_json_get_bool(s->ctx, s->root, s->place, "out_bias", &c->out_bias));
    ORTH_TRY(orth_json_get_bool(s->ctx, s->root, s->place, "mlp_bias", &c->mlp_bias));
    return orth_json_get_bool(s->ctx, s->root, s->place, "qk_norm", &c->qk_norm);
}

static orth_status read_llama(const source *s, orth_model_config *c)
{
    ORTH_TRY(need_int(s, "num_hidden_layers", &c->layers));
    ORTH_TRY(need_int(s, "hidden_size", &c->hidden));
    ORTH_TRY(need_int(s, "num_attention_heads", &c->heads));
    ORTH_TRY(need_int(s, "intermediate_size", &c->ffn));
    ORTH_TRY(need_int(s, "vocab_size", &c->vocab));
    ORTH_TRY(need_int(s, "max_position_embeddings", &c->max_seq));
    if (!json_object_get(s->root, "num_key_value_heads"))
        c->kv_heads = s->arch == ARCH_MISTRAL ? 8 : s->arch == ARCH_QWEN2 || s->arch == ARCH_QWEN3 ? 32 : 0;
    ORTH_TRY(at_least_one(s, "num_key_value_heads", &c->kv_heads));
    c->head_dim = s->arch == ARCH_QWEN3 ? 128 : 0;
    ORTH_TRY(at_least_one(s, "head_dim", &c->head_dim));
    c->norm_eps = 1e-6;
    ORTH_TRY(orth_json_get_real(s->ctx, s->root, s->place, "rms_norm_eps", &c->norm_eps));
    ORTH_TRY(read_dropout(s, "attention_dropout", c));
    ORTH_TRY(one_of(s, "hidden_act", "silu", "silu", "swish"));
    ORTH_TRY(read_biases(s, c));
    ORTH_TRY(read_rope(s, c));
    return read_window(s, c);
}

static orth_status read_config(orth_ctx *ctx, orth_model_config *out, const char *place, const json_t *root)
{
    source s = {.ctx = ctx, .root = root, .place = place};
    orth_model_config c;
    ORTH_TRY(read_arch(&s));
    orth_model_config_defaults(s.arch == ARCH_GPT2 ? ORTH_FAMILY_GPT2 : ORTH_FAMILY_LLAMA, &c);
    ORTH_TRY(s.arch == ARCH_GPT2 ? read_gpt2(&s, &c) : read_llama(&s, &c));
    ORTH_TRY(orth_json_get_bool(ctx, root, place, "tie_word_embeddings", &c.tied));
    ORTH_TRY(orth_json_get_real(ctx, root, place, "initializer_range", &c.init_std));
    orth_model_config_complete(&c);
    /* The rules are those of a run file, but here a file broke them. Their message is put behind its path. */
    orth_ctx probe = {0};
    if (orth_model_config_check(&probe, &c) != ORTH_OK)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %.800s", place, probe.error.message);
    *out = c;
    return ORTH_OK;
}

orth_status orth_hf_config_parse(orth_ctx *ctx, orth_model_config *out, const char *place, const char *text,
                                 size_t num_bytes)
{
    json_t *root = NULL;
    ORTH_TRY(orth_json_parse(ctx, &root, place, text, num_bytes));
    orth_status s = read_config(ctx, out, place, root);
    json_decref(root);
    return s;
}

/* ---- writing ---- */

/* Transformers refuses a Llama whose heads do not divide its width, though head_dim says how wide they are; no other class does. */
static int choose_llama(const orth_model_config *c)
{
    if (c->qkv_bias != c->out_bias)
        return ARCH_OWN;
    if (c->hidden % c->heads == 0)
        return ARCH_LLAMA;
    return c->qkv_bias || c->mlp_bias ? ARCH_OWN : ARCH_MISTRAL;
}

static int choose_arch(const orth_model_config *c)
{
    if (c->family == ORTH_FAMILY_GPT2)
        return ARCH_GPT2;
    if (c->qk_norm)
        return c->qkv_bias == c->out_bias && !c->mlp_bias ? ARCH_QWEN3 : ARCH_OWN;
    if (c->qkv_bias && !c->out_bias && !c->mlp_bias)
        return ARCH_QWEN2;
    return choose_llama(c);
}

bool orth_hf_has_family(const orth_model_config *c)
{
    return choose_arch(c) != ARCH_OWN;
}

bool orth_hf_is_qwen2(const orth_model_config *c)
{
    return choose_arch(c) == ARCH_QWEN2;
}

typedef struct {
    const char *key;
    int64_t value;
} int_member;

typedef struct {
    const char *key;
    double value;
} real_member;

static void add_members(json_t **object, const int_member *ints, int num_ints, const real_member *reals, int num_reals)
{
    for (int i = 0; i < num_ints; i++)
        orth_json_add(object, ints[i].key, json_integer((json_int_t)ints[i].value));
    for (int i = 0; i < num_reals; i++)
        orth_json_add(object, reals[i].key, json_real(reals[i].value));
}

static void add_gpt2(json_t **root, const orth_model_config *c)
{
    const int_member ints[] = {
        {"n_layer", c->layers}, {"n_embd", c->hidden},        {"n_head", c->heads},  {"n_inner", c->ffn},
        {"vocab_size", c->vocab}, {"n_positions", c->max_seq}, {"n_ctx", c->max_seq},
    };
    const real_member reals[] = {
        {"layer_norm_epsilon", c->norm_eps}, {"embd_pdrop", c->embed_dropout},
        {"attn_pdrop", c->attn_dropout},     {"resid_pdrop", c->dropout},
    };
    add_members(root, ints, ORTH_COUNT(ints), reals, ORTH_COUNT(reals));
    orth_json_add(root, "activation_function", json_string(c->gelu_erf ? "gelu" : "gelu_new"));
}

/* The form that every version of Transformers since 4.43 reads. */
static json_t *scaling_json(const orth_model_config *c)
{
    if (c->rope_factor == 1.0)
        return json_null();
    const int_member ints[] = {{"original_max_position_embeddings", c->rope_original_seq}};
    const real_member reals[] = {{"factor", c->rope_factor},
                                 {"low_freq_factor", c->rope_low_freq},
                                 {"high_freq_factor", c->rope_high_freq}};
    json_t *root = json_object();
    add_members(&root, ints, ORTH_COUNT(ints), reals, ORTH_COUNT(reals));
    orth_json_add(&root, "rope_type", json_string("llama3"));
    return root;
}

static void add_llama(json_t **root, const orth_model_config *c, int a)
{
    const int_member ints[] = {
        {"num_hidden_layers", c->layers},   {"hidden_size", c->hidden},
        {"num_attention_heads", c->heads},  {"num_key_value_heads", c->kv_heads},
        {"head_dim", c->head_dim},          {"intermediate_size", c->ffn},
        {"vocab_size", c->vocab},           {"max_position_embeddings", c->max_seq},
    };
    const real_member reals[] = {
        {"rms_norm_eps", c->norm_eps}, {"attention_dropout", c->attn_dropout}, {"rope_theta", c->rope_theta},
    };
    add_members(root, ints, ORTH_COUNT(ints), reals, ORTH_COUNT(reals));
    if (c->dropout > 0)
        orth_json_add(root, "resid_pdrop", json_real(c->dropout));
    if (c->embed_dropout > 0)
        orth_json_add(root, "embd_pdrop", json_real(c->embed_dropout));
    orth_json_add(root, "hidden_act", json_string("silu"));
    orth_json_add(root, "rope_scaling", scaling_json(c));
    if (a == ARCH_LLAMA || a == ARCH_QWEN3)
        orth_json_add(root, "attention_bias", json_boolean(c->qkv_bias));
    if (a == ARCH_LLAMA || a == ARCH_OWN)
        orth_json_add(root, "mlp_bias", json_boolean(c->mlp_bias));
    if (a == ARCH_QWEN2 || a == ARCH_QWEN3)
        orth_json_add(root, "use_sliding_window", json_false());
    if (a == ARCH_MISTRAL)
        orth_json_add(root, "sliding_window", json_null()); /* left out, it would be 4096 */
    if (a == ARCH_OWN) {
        orth_json_add(root, "qkv_bias", json_boolean(c->qkv_bias));
        orth_json_add(root, "out_bias", json_boolean(c->out_bias));
        orth_json_add(root, "qk_norm", json_boolean(c->qk_norm));
    }
}

char *orth_hf_config_text(orth_ctx *ctx, const orth_model_config *c, orth_dtype dtype,
                          const orth_special_tokens *special)
{
    const int a = choose_arch(c);
    const char *type = dtype == ORTH_BF16 ? "bfloat16" : dtype == ORTH_F16 ? "float16" : "float32";
    json_t *root = json_pack("{s:[s], s:s, s:s, s:b, s:f}", "architectures", archs[a].architecture,
                             "model_type",
                             archs[a].model_type, "torch_dtype", type, "tie_word_embeddings", (int)c->tied,
                             "initializer_range", c->init_std);
    if (a == ARCH_GPT2)
        add_gpt2(&root, c);
    else
        add_llama(&root, c, a);
    orth_hf_put_special(&root, special); /* left out, these would be 50256 for GPT-2: beyond a small vocabulary */
    char *text = orth_json_lines(ctx, root);
    json_decref(root);
    return text;
}
