/* setup.c -- see setup.h. */
#include "train/setup.h"

#include <inttypes.h>
#include <math.h>

#include "base/pool.h"
#include "program/check/check.h"

#define MIB ((int64_t)1 << 20)

#define TAKE(field) \
    if (ORTH_CONFIG_IS_SET(cfg, model, field)) c.field = cfg->model_##field

/* What a model takes as it is given, and what weights were trained with. */
#define WHAT_WEIGHTS_FIX(REAL, BOOL)                                                                                 \
    REAL(norm_eps); REAL(rope_theta); REAL(rope_factor);                                                              \
    BOOL(tied); BOOL(qkv_bias); BOOL(out_bias); BOOL(mlp_bias); BOOL(qk_norm); BOOL(gelu_erf)

/* Of a rope_factor that is not 1. */
#define ROPE_SCALING(INT, REAL) REAL(rope_low_freq); REAL(rope_high_freq); INT(rope_original_seq)

static orth_status require_sizes(orth_ctx *ctx, const orth_model_config *c)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"layers", c->layers}, {"hidden", c->hidden}, {"heads", c->heads}, {"vocab", c->vocab}};
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        if (sizes[i].value == 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "model.%s is not set: give it, or a model.preset", sizes[i].key);
    return ORTH_OK;
}

void orth_setup_dropout(const orth_config *cfg, orth_model_config *c)
{
    if (ORTH_CONFIG_IS_SET(cfg, model, dropout))
        c->dropout = c->embed_dropout = c->attn_dropout = cfg->model_dropout;
    if (ORTH_CONFIG_IS_SET(cfg, model, embed_dropout))
        c->embed_dropout = cfg->model_embed_dropout;
    if (ORTH_CONFIG_IS_SET(cfg, model, attn_dropout))
        c->attn_dropout = cfg->model_attn_dropout;
}

/* The rules of a model, which name its settings as kv_heads=3, with the place of the key in front; of a value that no key gave, that of the preset. */
static orth_status check_model(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *c)
{
    orth_ctx probe = {0};
    char key[64];
    if (orth_model_config_check(&probe, c) == ORTH_OK)
        return ORTH_OK;
    const char *message = probe.error.message;
    snprintf(key, sizeof key, "model.%.*s", (int)strcspn(message, "=*"), message);
    const int id = orth_option_find(key);
    const char *place = id >= 0 && cfg->place[id] ? cfg->place[id] : cfg->place[ORTH_OPT_model_preset];
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s%smodel.%.800s", place ? place : "", place ? ": " : "", message);
}

/* The option that a rule calls `name` (tp, numerics.parts); -1: none. */
static int option_of_name(const char *name, int length)
{
    static const char *const sections[] = {"", "parallel.", "train.", "data.", "model."};
    int id = -1;
    for (int i = 0; i < ORTH_COUNT(sections) && id < 0; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s%.*s", sections[i], length, name);
        id = orth_option_find(path);
    }
    return id;
}

orth_status orth_setup_say_place(orth_ctx *ctx, const orth_config *cfg, orth_status s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_.";
    char message[ORTH_MESSAGE_MAX];
    const int first = (int)strspn(ctx->error.message, letters), begins = option_of_name(ctx->error.message, first);
    const bool list = begins >= 0 && orth_option_get((orth_option_id)begins)->type == ORTH_TYPE_REALS && cfg->place[begins]; /* its value is not in a message */
    if (s != ORTH_ERR_ARG || (ctx->error.message[first] != '=' && !list))
        return s;
    snprintf(message, sizeof message, "%s", ctx->error.message);
    for (const char *at = message; (at += strcspn(at, letters))[0]; at += strspn(at, letters)) {
        const int length = (int)strspn(at, letters), id = list ? begins : at[length] == '=' ? option_of_name(at, length) : -1;
        if (id < 0 || !cfg->place[id])
            continue;
        orth_ctx_clear_error(ctx);
        return ORTH_FAIL(ctx, s, "%s: %s%.800s", cfg->place[id], begins < 0 ? "" : orth_option_get((orth_option_id)begins)->path, message + (begins < 0 ? 0 : first));
    }
    return s;
}

/* The kinds of model whose classes this one has. A Mistral without its window is a Llama. */
static const char *const *kinds_of(const orth_model_config *m, const char **what)
{
    static const char *const gpt2[] = {"gpt2", NULL}, *const llama[] = {"llama", "mistral", NULL}, *const biased[] = {"llama", NULL};
    static const char *const qwen2[] = {"qwen2", NULL}, *const qwen3[] = {"qwen3", NULL};
    *what = m->qk_norm ? " with model.qk_norm" : "";
    if (m->family == ORTH_FAMILY_GPT2)
        return gpt2;
    if (m->qk_norm)
        return qwen3;
    if (!m->qkv_bias && !m->out_bias && !m->mlp_bias)
        return llama;
    *what = m->out_bias ? " with biases" : " with model.qkv_bias alone";
    return m->qkv_bias && !m->out_bias && !m->mlp_bias ? qwen2 : biased;
}

/* Classes of layers that stand for parallel.gather_unit are ones that the model has. */
static orth_status check_class(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *m)
{
    const char *key = orth_option_get(ORTH_OPT_parallel_gather_unit)->path, *what;
    const char *const *kinds = kinds_of(m, &what);
    char known[ORTH_VALUE_NAMES_MAX], name[64];
    for (const char *word = cfg->wrapped_classes ? cfg->wrapped_classes : cfg->gather_unit_given; word && *word;) {
        const size_t n = strcspn(word, ",");
        snprintf(name, sizeof name, "%.*s", (int)ORTH_MIN(n, sizeof name), word);
        if (!orth_option_value_is_of(key, name, kinds)) {
            orth_option_value_names(key, kinds, known);
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: models of the family %s%s have no such layers; their classes are %s",
                             cfg->place[ORTH_OPT_parallel_gather_unit], key, ORTH_SHOWN(name), orth_family_name(m->family), what, known);
        }
        word += n + (word[n] == ',');
    }
    return ORTH_OK;
}

orth_status orth_setup_model(orth_ctx *ctx, const orth_config *cfg, int64_t tokenizer_vocab,
                             orth_model_config *out)
{
    orth_model_config c;
    bool preset = cfg->model_preset[0] != '\0';
    orth_model_config_defaults(cfg->model_family == ORTH_model_family_llama ? ORTH_FAMILY_LLAMA : ORTH_FAMILY_GPT2, &c);
    if (preset) {
        ORTH_TRY(orth_model_preset(ctx, cfg->model_preset, &c));
        if (cfg->model_family != ORTH_model_family_auto && (cfg->model_family == ORTH_model_family_llama) != (c.family == ORTH_FAMILY_LLAMA))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "model.family=%s is not the family of model.preset=%s",
                             orth_option_choice(ORTH_OPT_model_family, (int)cfg->model_family), cfg->model_preset);
    }
    const int64_t heads = c.heads, hidden = c.hidden;
    TAKE(layers);
    TAKE(hidden);
    TAKE(heads);
    const bool other_heads = c.heads != heads, other_width = c.hidden != hidden;
    c.kv_heads = other_heads ? 0 : c.kv_heads; /* 0: orth_model_config_complete says */
    c.head_dim = other_heads || other_width ? 0 : c.head_dim;
    c.ffn = other_width ? 0 : c.ffn;
    TAKE(kv_heads);
    TAKE(head_dim);
    TAKE(ffn);
    orth_model_config_complete(&c);
    if (ORTH_CONFIG_IS_SET(cfg, model, vocab))
        c.vocab = cfg->model_vocab;
    else if (!preset)
        c.vocab = tokenizer_vocab;
    if (ORTH_CONFIG_IS_SET(cfg, model, max_seq))
        c.max_seq = cfg->model_max_seq;
    else if (!preset)
        c.max_seq = cfg->data_seq_len;
    WHAT_WEIGHTS_FIX(TAKE, TAKE);
    ROPE_SCALING(TAKE, TAKE);
    TAKE(init_std);
    orth_setup_dropout(cfg, &c);
    ORTH_TRY(require_sizes(ctx, &c));
    ORTH_TRY(check_model(ctx, cfg, &c));
    ORTH_TRY(check_class(ctx, cfg, &c));
    if (cfg->memory_recompute_layers > c.layers)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: memory.recompute_layers=%" PRId64 ": the model has %" PRId64 " layers",
                         cfg->place[ORTH_OPT_memory_recompute_layers], cfg->memory_recompute_layers, c.layers);
    *out = c;
    return ORTH_OK;
}

void orth_setup_say_derived(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *m)
{
    orth_model_config p;
    if (cfg->model_preset[0] == '\0' || orth_model_preset(ctx, cfg->model_preset, &p) != ORTH_OK)
        return;
    const struct { const char *key; int64_t now, preset; bool set; } sizes[] = {
        {"kv_heads", m->kv_heads, p.kv_heads, ORTH_CONFIG_IS_SET(cfg, model, kv_heads)},
        {"head_dim", m->head_dim, p.head_dim, ORTH_CONFIG_IS_SET(cfg, model, head_dim)},
        {"ffn", m->ffn, p.ffn, ORTH_CONFIG_IS_SET(cfg, model, ffn)}};
    char text[160] = "";
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        if (!sizes[i].set && sizes[i].now != sizes[i].preset)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s model.%s=%" PRId64 " (not %" PRId64 ")", *text ? "," : "",
                     sizes[i].key, sizes[i].now, sizes[i].preset);
    if (*text)
        orth_log(ctx, ORTH_LOG_INFO, "model", "hidden=%" PRId64 " and heads=%" PRId64 " are not those of model.preset=%s, so from them follow%s",
                 m->hidden, m->heads, cfg->model_preset, text);
}

/* One key of the run file against the weights. */
#define MATCH(field, format, print) \
    if (ORTH_CONFIG_IS_SET(cfg, model, field) && cfg->model_##field != m->field) \
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: model." #field "=" format ": the weights in %s have " format, \
                         cfg->place[ORTH_OPT_model_##field], print(cfg->model_##field), dir, print(m->field))
#define AS_IT_IS(x) (x)
#define IN_WORDS(x) ((x) ? "true" : "false")
#define MATCH_INT(field) MATCH(field, "%" PRId64, AS_IT_IS)
#define MATCH_REAL(field) MATCH(field, "%.9g", AS_IT_IS)
#define MATCH_BOOL(field) MATCH(field, "%s", IN_WORDS)

/* What the preset and the keys beside it say. The vocabulary and the longest sequence are the weights', as dropout is the run's. */
#define MATCH_PRESET(field, format, print)                                                                                              \
    if (p.field != m->field)                                                                                                            \
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: model.preset=%s and the keys beside it make " #field "=" format ": the weights in %s have " \
                         format ": give that, or no preset", cfg->place[ORTH_OPT_model_preset], cfg->model_preset, print(p.field), dir, print(m->field))
#define PRESET_INT(field) MATCH_PRESET(field, "%" PRId64, AS_IT_IS)
#define PRESET_REAL(field) MATCH_PRESET(field, "%.9g", AS_IT_IS)
#define PRESET_BOOL(field) MATCH_PRESET(field, "%s", IN_WORDS)

static orth_status match_preset(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *m, const char *dir)
{
    orth_model_config p;
    ORTH_TRY(orth_setup_model(ctx, cfg, m->vocab, &p));
    MATCH_PRESET(family, "%s", orth_family_name);
    PRESET_INT(layers);
    PRESET_INT(hidden);
    PRESET_INT(heads);
    PRESET_INT(kv_heads);
    PRESET_INT(head_dim);
    PRESET_INT(ffn);
    WHAT_WEIGHTS_FIX(PRESET_REAL, PRESET_BOOL);
    if (m->rope_factor != 1) {
        ROPE_SCALING(PRESET_INT, PRESET_REAL);
    }
    return ORTH_OK;
}

orth_status orth_setup_match_weights(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *m, const char *dir)
{
    if (cfg->model_family != ORTH_model_family_auto &&
        (cfg->model_family == ORTH_model_family_llama) != (m->family == ORTH_FAMILY_LLAMA))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: model.family=%s: the weights in %s are %s", cfg->place[ORTH_OPT_model_family],
                         orth_option_choice(ORTH_OPT_model_family, (int)cfg->model_family), dir, orth_family_name(m->family));
    ORTH_TRY(check_class(ctx, cfg, m));
    MATCH_INT(layers);
    MATCH_INT(hidden);
    MATCH_INT(heads);
    MATCH_INT(kv_heads);
    MATCH_INT(head_dim);
    MATCH_INT(ffn);
    MATCH_INT(vocab);
    MATCH_INT(max_seq);
    WHAT_WEIGHTS_FIX(MATCH_REAL, MATCH_BOOL);
    if (m->rope_factor != 1) {
        ROPE_SCALING(MATCH_INT, MATCH_REAL);
    }
    return cfg->model_preset[0] ? match_preset(ctx, cfg, m, dir) : ORTH_OK;
}

#define PUT(field)                        \
    cfg->model_##field = m->field;        \
    cfg->place[ORTH_OPT_model_##field] = place

void orth_setup_put_model(orth_config *cfg, const orth_model_config *m, const char *place)
{
    cfg->model_family = m->family == ORTH_FAMILY_LLAMA ? ORTH_model_family_llama : ORTH_model_family_gpt2;
    cfg->place[ORTH_OPT_model_family] = place;
    PUT(layers);
    PUT(hidden);
    PUT(heads);
    PUT(kv_heads);
    PUT(head_dim);
    PUT(ffn);
    PUT(vocab);
    PUT(max_seq);
    WHAT_WEIGHTS_FIX(PUT, PUT);
    if (m->rope_factor != 1) {
        ROPE_SCALING(PUT, PUT);
    }
    if (m->family != ORTH_FAMILY_LLAMA)
        cfg->place[ORTH_OPT_model_rope_theta] = cfg->place[ORTH_OPT_model_rope_factor] = NULL;
    PUT(dropout);
    PUT(embed_dropout);
    PUT(attn_dropout);
}

static orth_recompute setup_recompute(const orth_config *cfg)
{
    static const orth_recompute_kind kinds[] = {
        [ORTH_memory_recompute_none] = ORTH_RECOMPUTE_NONE, [ORTH_memory_recompute_selective] = ORTH_RECOMPUTE_SELECTIVE,
        [ORTH_memory_recompute_full] = ORTH_RECOMPUTE_FULL, [ORTH_memory_recompute_sqrt] = ORTH_RECOMPUTE_SQRT,
        [ORTH_memory_recompute_ops] = ORTH_RECOMPUTE_OPS,   [ORTH_memory_recompute_keep] = ORTH_RECOMPUTE_KEEP,
        [ORTH_memory_recompute_all] = ORTH_RECOMPUTE_ALL,   [ORTH_memory_recompute_auto] = ORTH_RECOMPUTE_AUTO,
    };
    return (orth_recompute){.kind = kinds[cfg->memory_recompute], .layers = (int32_t)cfg->memory_recompute_layers,
                            .split_input = cfg->memory_recompute_split,
                            .block = cfg->memory_recompute_method == ORTH_memory_recompute_method_block,
                            .ops = cfg->memory_recompute_ops.v, .num_ops = cfg->memory_recompute_ops.n};
}

#define TIERS(key)                                                                                                        \
    _Static_assert((int)ORTH_TIER_NONE == ORTH_memory_##key##_none && (int)ORTH_TIER_HOST == ORTH_memory_##key##_host && \
                   (int)ORTH_TIER_FILE == ORTH_memory_##key##_file, "choices in the order of orth_tier")
TIERS(offload_optimizer);
TIERS(offload_params);
TIERS(offload_gradients);
TIERS(offload_activations);
#undef TIERS

static orth_offload setup_offload(const orth_config *cfg)
{
    return (orth_offload){.optimizer = (orth_tier)cfg->memory_offload_optimizer, .stays = 1 - cfg->memory_offload_ratio, .params = (orth_tier)cfg->memory_offload_params,
                          .gradients = (orth_tier)cfg->memory_offload_gradients, .sub_group = cfg->memory_offload_sub_group,
                          .activations = (orth_tier)cfg->memory_offload_activations, .min_bytes = cfg->memory_offload_min_bytes};
}

static orth_factors setup_freeze(const orth_config *cfg)
{
    return (orth_factors){"optimizer.freeze", cfg->optimizer_freeze.n, cfg->optimizer_freeze.v};
}

orth_file_io orth_setup_file_io(const orth_config *cfg)
{
    static const orth_file_io io[] = {[ORTH_memory_offload_io_auto] = ORTH_FILE_IO_AUTO, [ORTH_memory_offload_io_direct] = ORTH_FILE_IO_DIRECT,
                                      [ORTH_memory_offload_io_buffered] = ORTH_FILE_IO_BUFFERED};
    return io[cfg->memory_offload_io];
}

orth_dtype orth_setup_compute(const orth_config *cfg)
{
    static const orth_dtype types[] = {
        [ORTH_precision_compute_fp32] = ORTH_F32, [ORTH_precision_compute_bf16] = ORTH_BF16, [ORTH_precision_compute_fp16] = ORTH_F16};
    return types[cfg->precision_compute];
}

static orth_recipe setup_recipe(const orth_config *cfg)
{
    static const orth_recipe recipes[] = {
        [ORTH_precision_products_same] = ORTH_RECIPE_none,
#define RECIPE(name, ...) [ORTH_precision_products_##name] = ORTH_RECIPE_##name,
#include "kernels/recipes.def"
#undef RECIPE
    };
    return recipes[cfg->precision_products];
}

/* ZeRO 3: what is gathered together. */
static void setup_gathers(const orth_config *cfg, orth_comm_policy *comm)
{
    static const orth_gather_unit units[] = {
        [ORTH_parallel_gather_unit_layer] = ORTH_UNIT_LAYER, [ORTH_parallel_gather_unit_half] = ORTH_UNIT_HALF,
        [ORTH_parallel_gather_unit_layers] = ORTH_UNIT_LAYERS, [ORTH_parallel_gather_unit_elements] = ORTH_UNIT_ELEMS,
        [ORTH_parallel_gather_unit_model] = ORTH_UNIT_LAYERS};
    comm->unit = units[cfg->parallel_gather_unit];
    comm->unit_size = cfg->parallel_gather_unit == ORTH_parallel_gather_unit_model ? INT64_MAX : cfg->parallel_gather_size;
    comm->reuse_elems = cfg->parallel_max_reuse_distance;
    comm->live_elems = cfg->parallel_max_live;
    comm->keep_gathered = !cfg->parallel_reshard_after_forward;
}

orth_model_shape orth_setup_shape(const orth_config *cfg, orth_mode mode)
{
    static const orth_op optimizers[] = {
        [ORTH_optimizer_name_adamw] = ORTH_OP_adamw,
        [ORTH_optimizer_name_adam] = ORTH_OP_adam,
        [ORTH_optimizer_name_sgd] = ORTH_OP_sgd,
    };
    bool fast = cfg->numerics_mode == ORTH_numerics_mode_fast;
    static const orth_dtype moments[] = {
        [ORTH_precision_moments_fp32] = ORTH_F32, [ORTH_precision_moments_bf16] = ORTH_BF16, [ORTH_precision_moments_8bit] = ORTH_U8};
    static const orth_dtype reduces[] = {
        [ORTH_precision_grad_reduce_fp32] = ORTH_F32, [ORTH_precision_grad_reduce_bf16] = ORTH_BF16, [ORTH_precision_grad_reduce_int8] = ORTH_Q8};
    const bool has_moments = !orth_config_keeps_no_moments(cfg);
    const bool narrow = cfg->precision_master != ORTH_precision_master_fp32 || (cfg->precision_moments == ORTH_precision_moments_bf16 && has_moments);
    orth_model_shape shape = {
        .mode = mode,
        .num_seqs = (int32_t)cfg->train_micro_batch,
        .seq_len = (int32_t)cfg->data_seq_len,
        .num_micro_batches = (int32_t)(cfg->train_global_batch / cfg->train_micro_batch),
        .parts = fast ? (int32_t)orth_setup_layout(cfg).parts : (int32_t)cfg->numerics_parts,
        .compute = orth_setup_compute(cfg),
        .products = setup_recipe(cfg),
        .space = orth_config_offloads(cfg) ? ORTH_SPACE_DEVICE : ORTH_SPACE_HOST,
        .offload = setup_offload(cfg),
        .types = {.master = cfg->precision_master == ORTH_precision_master_bf16 ? ORTH_BF16 : ORTH_F32,
                  .moments = moments[cfg->precision_moments],
                  .stochastic = narrow && cfg->precision_rounding == ORTH_precision_rounding_stochastic},
        .doc_mask = cfg->data_doc_mask,
        .attention_full = cfg->model_attention == ORTH_model_attention_full,
        .optimizer = optimizers[cfg->optimizer_name],
        .nesterov = cfg->optimizer_nesterov,
        .no_moments = !has_moments,
        .delayed = {.history = (int32_t)cfg->precision_amax_history_len, .margin = (int32_t)cfg->precision_fp8_margin,
                    .most_recent = cfg->precision_amax_compute_algo == ORTH_precision_amax_compute_algo_most_recent},
        .lr_factors = {"optimizer.lr_factors", cfg->optimizer_lr_factors.n, cfg->optimizer_lr_factors.v},
        .decay_factors = {"optimizer.weight_decay_factors", cfg->optimizer_weight_decay_factors.n,
                          cfg->optimizer_weight_decay_factors.v},
        .freeze = setup_freeze(cfg),
        .comm = {.overlap = cfg->comm_overlap, .bucket_bytes = cfg->comm_bucket_mb * MIB,
                 .prefetch = (int32_t)cfg->comm_prefetch, .prefetch_elems = cfg->comm_prefetch_elems,
                 .reduce = reduces[cfg->precision_grad_reduce]},
        .head_chunk_rows = (int32_t)cfg->memory_head_chunk_rows,
        .ffn_chunk_rows = (int32_t)cfg->memory_ffn_chunk_rows,
        .keep_packed = cfg->memory_packed_weights,
        .recompute = setup_recompute(cfg),
    };
    setup_gathers(cfg, &shape.comm);
    return shape;
}

orth_status orth_setup_frozen(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, bool *frozen)
{
    const orth_factors freeze = setup_freeze(cfg);
    return orth_freeze_resolve(ctx, &freeze, model, frozen);
}

int64_t orth_setup_scale_cols(const orth_config *cfg, const orth_model_config *model, orth_weight_id id)
{
    if (cfg->precision_moments != ORTH_precision_moments_8bit)
        return 0;
    const orth_model_shape whole = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    const orth_param_desc d = orth_weight_here(model, &whole, id);
    return d.moments_8bit ? orth_param_scales(&d).dim[1] : 0;
}

_Static_assert((int)ORTH_CP_ALL_GATHER == ORTH_parallel_cp_kind_all_gather &&
               (int)ORTH_CP_RING == ORTH_parallel_cp_kind_ring &&
               (int)ORTH_CP_ALL_TO_ALL == ORTH_parallel_cp_kind_all_to_all, "choices in the order of orth_cp_kind");

const orth_option_id orth_setup_text_keys[ORTH_NUM_TEXT_KEYS] = {ORTH_OPT_data_separator, ORTH_OPT_data_jsonl_field, ORTH_OPT_data_format,
                                                                 ORTH_OPT_data_valid_fraction};

orth_text_options orth_setup_text(const orth_config *cfg)
{
    static const orth_text_format formats[] = {
        [ORTH_data_format_auto] = ORTH_TEXT_AUTO,
        [ORTH_data_format_text] = ORTH_TEXT_TEXT,
        [ORTH_data_format_jsonl] = ORTH_TEXT_JSONL,
    };
    return (orth_text_options){formats[cfg->data_format], cfg->data_separator, cfg->data_jsonl_field};
}

int64_t orth_setup_epoch_steps(const orth_config *cfg, int64_t sequences)
{
    const double steps = cfg->train_epochs * (double)sequences / (double)cfg->train_global_batch;
    return ORTH_MAX(1, (int64_t)ceil(steps * (1 - 1e-12))); /* 0.1 of 30 is 3 */
}

orth_layout orth_setup_layout(const orth_config *cfg)
{
    orth_layout l = orth_layout_defaults;
    l.dp = cfg->parallel_dp;
    l.tp = cfg->parallel_tp;
    l.pp = cfg->parallel_pp;
    l.cp = cfg->parallel_cp;
    l.cp_kind = (orth_cp_kind)cfg->parallel_cp_kind;
    l.zero = orth_config_zero_stage(cfg);
    l.shard_group = cfg->parallel_shard_group;
    l.owner = cfg->parallel_data_parallel == ORTH_parallel_data_parallel_owner;
    l.stage_layers = cfg->parallel_stage_layers.n > 0 ? cfg->parallel_stage_layers.v : NULL;
    l.num_stage_layers = cfg->parallel_stage_layers.n;
    l.even_stages = cfg->parallel_stage_split == ORTH_parallel_stage_split_even;
    l.dp_share = cfg->parallel_dp_share.n > 0 ? cfg->parallel_dp_share.v : NULL;
    l.num_dp_share = cfg->parallel_dp_share.n;
    l.keep_whole = cfg->parallel_keep_whole;
    l.whole_layers = cfg->parallel_shard_by == ORTH_parallel_shard_by_layer;
    l.order = cfg->parallel_order;
    l.sequence_parallel = cfg->parallel_sequence_parallel;
    l.pipeline = cfg->parallel_pipeline;
    l.virtual_stages = cfg->parallel_virtual_stages;
    l.global_batch = cfg->train_global_batch;
    l.micro_batch = cfg->train_micro_batch;
    l.seq_len = cfg->data_seq_len;
    l.reproducible = cfg->numerics_mode == ORTH_numerics_mode_reproducible;
    l.parts = l.reproducible ? cfg->numerics_parts : orth_layout_fast_parts(&l);
    l.clips = cfg->train_clip_norm > 0;
    return l;
}

orth_sample_rows orth_setup_rows(const orth_model_shape *shape)
{
    int64_t T = shape->seq_len, cp = ORTH_MAX(shape->mesh.size[ORTH_GROUP_CP], 1), pos = shape->mesh.pos[ORTH_GROUP_CP];
    return (orth_sample_rows){.parts = shape->parts, .row_begin = T * pos / cp, .row_end = T * (pos + 1) / cp};
}

orth_status orth_setup_put(orth_ctx *ctx, orth_executor *e, orth_data_slot slot, const void *from, size_t bytes)
{
    if (orth_executor_size(e, ORTH_BIND_DATA, slot) == 0)
        return ORTH_OK;
    return orth_executor_write(ctx, e, (orth_ref){ORTH_BIND_DATA, slot, 0, bytes}, from);
}

orth_checkpoint_delayed orth_setup_delayed(const orth_config *cfg, const orth_model_config *model)
{
    return (orth_checkpoint_delayed){.layers = model->layers, .steps = orth_recipe_of(setup_recipe(cfg))->delayed ? cfg->precision_amax_history_len : 0};
}

orth_status orth_setup_load_delayed(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, const orth_checkpoint *ck,
                                    orth_executor *e)
{
    orth_checkpoint_delayed d = orth_setup_delayed(cfg, model);
    const int64_t rows = orth_checkpoint_delayed_rows(&d);
    const size_t bytes = (size_t)rows * sizeof(float), history = orth_executor_size(e, ORTH_BIND_DATA, ORTH_DATA_FP8_HISTORY);
    if (d.steps == 0)
        return ORTH_OK;
    d.scales = orth_mem_alloc(ctx, bytes + history);
    d.history = d.scales && history > 0 ? d.scales + rows : NULL;
    orth_status s = d.scales ? orth_checkpoint_load_delayed(ctx, ck, &d) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_setup_put(ctx, e, ORTH_DATA_FP8_SCALES, d.scales, bytes);
    if (s == ORTH_OK)
        s = orth_setup_put(ctx, e, ORTH_DATA_FP8_HISTORY, d.history, history);
    orth_mem_free(ctx, d.scales);
    return s;
}

orth_status orth_setup_rope_table(orth_ctx *ctx, orth_executor *e, const orth_model_config *model)
{
    const size_t bytes = orth_executor_size(e, ORTH_BIND_DATA, ORTH_DATA_ROPE_TABLE);
    if (bytes == 0)
        return ORTH_OK;
    float *table = orth_mem_alloc(ctx, bytes);
    if (!table)
        return ORTH_ERR_NOMEM;
    orth_model_rope_table(model, table, (int64_t)(bytes / sizeof *table) / model->head_dim);
    const orth_status s = orth_setup_put(ctx, e, ORTH_DATA_ROPE_TABLE, table, bytes);
    orth_mem_free(ctx, table);
    return s;
}

orth_status orth_setup_positions_sp(orth_ctx *ctx, const orth_compile_spec *spec, orth_executor *e, const int32_t *pos,
                                    int64_t num_seqs)
{
    const int64_t rows = spec->seq_len / ORTH_MAX(spec->mesh.size[ORTH_GROUP_TP], 1);
    const size_t bytes = (size_t)rows * sizeof *pos;
    if (orth_executor_size(e, ORTH_BIND_DATA, ORTH_DATA_POSITIONS_SP) == 0)
        return ORTH_OK;
    for (int64_t i = 0; i < num_seqs; i++)
        ORTH_TRY(orth_executor_write(ctx, e, (orth_ref){ORTH_BIND_DATA, ORTH_DATA_POSITIONS_SP, (size_t)i * bytes, bytes},
                                     pos + i * spec->seq_len + rows * spec->mesh.pos[ORTH_GROUP_TP]));
    return ORTH_OK;
}

orth_option_precision_fp32_products orth_setup_fp32_products(const orth_config *cfg)
{
    bool fast_fp32 = cfg->numerics_mode == ORTH_numerics_mode_fast && cfg->precision_compute == ORTH_precision_compute_fp32;
    return cfg->precision_fp32_products == ORTH_precision_fp32_products_auto && !fast_fp32
               ? ORTH_precision_fp32_products_fma
               : cfg->precision_fp32_products;
}

orth_status orth_setup_products(orth_ctx *ctx, const orth_config *cfg)
{
    orth_option_precision_fp32_products products = orth_setup_fp32_products(cfg);
    if (products == ORTH_precision_fp32_products_auto && ctx->isa < ORTH_ISA_AMX)
        products = ORTH_precision_fp32_products_fma;
    if (products == ORTH_precision_fp32_products_fma) {
        ctx->isa = ORTH_MIN(ctx->isa, ORTH_ISA_AMX);
        return ORTH_OK;
    }
    if (ctx->isa < ORTH_ISA_AMX)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "precision.fp32_products=bf16x6 needs AMX, run.isa is %s here: take fma",
                         orth_isa_name(ctx->isa));
    ctx->isa = ORTH_ISA_AMX_BF16X6;
    return ORTH_OK;
}

const orth_kernel_fn *orth_setup_kernels(const orth_config *cfg)
{
    switch (cfg->run_backend) {
    case ORTH_run_backend_cpu: return orth_kernels_cpu();
    case ORTH_run_backend_ref: return orth_kernels_ref();
    }
    return NULL;
}
