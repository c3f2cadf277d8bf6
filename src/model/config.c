/* config.c -- presets, defaults and the rules between the dimensions of a model. See config.h. */
#include "model/config.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"

/* Limits that keep every product of sizes within int64_t: 7 * 2^24 * 2^24 elements a layer, 2^12 layers. */
#define MAX_LAYERS ((int64_t)1 << 12)
#define MAX_WIDTH ((int64_t)1 << 24)
#define MAX_POSITIONS ((int64_t)1 << 31)

#define GPT2_SETTINGS                                                                              \
    .family = ORTH_FAMILY_GPT2, .norm_eps = 1e-5, .rope_theta = 10000.0, .rope_factor = 1.0,       \
    .rope_low_freq = 1.0, .rope_high_freq = 4.0, .rope_original_seq = 8192, .tied = true,          \
    .qkv_bias = true, .out_bias = true, .mlp_bias = true, .init_std = 0.02

typedef struct {
    const char *name;
    orth_model_config config;
} preset;

static const preset presets[] = {
#define GPT2(name_, layers_, hidden_, heads_, vocab_, max_seq_)                                    \
    {name_, {GPT2_SETTINGS, .layers = layers_, .hidden = hidden_, .heads = heads_,                 \
             .kv_heads = heads_, .head_dim = hidden_ / heads_, .ffn = 4 * hidden_,                 \
             .vocab = vocab_, .max_seq = max_seq_}},
#define LLAMA(name_, layers_, hidden_, heads_, kv_, head_dim_, ffn_, vocab_, max_seq_, eps_,       \
              theta_, factor_, original_, tied_, qk_norm_)                                         \
    {name_, {.family = ORTH_FAMILY_LLAMA, .layers = layers_, .hidden = hidden_, .heads = heads_,   \
             .kv_heads = kv_, .head_dim = head_dim_, .ffn = ffn_, .vocab = vocab_,                 \
             .max_seq = max_seq_, .norm_eps = eps_, .rope_theta = theta_, .rope_factor = factor_,  \
             .rope_low_freq = 1.0, .rope_high_freq = 4.0, .rope_original_seq = original_,          \
             .tied = tied_, .qk_norm = qk_norm_, .init_std = 0.02}},
#include "model/presets.def"
#undef GPT2
#undef LLAMA
};

static const char *const family_names[] = {[ORTH_FAMILY_GPT2] = "gpt2", [ORTH_FAMILY_LLAMA] = "llama"};

const char *orth_family_name(orth_family family)
{
    return family_names[family];
}

void orth_model_config_defaults(orth_family family, orth_model_config *out)
{
    *out = (orth_model_config){GPT2_SETTINGS};
    out->family = family;
    if (family == ORTH_FAMILY_LLAMA)
        out->tied = out->qkv_bias = out->out_bias = out->mlp_bias = false;
}

void orth_model_config_complete(orth_model_config *c)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->heads > 0 && c->hidden % c->heads == 0)
        c->head_dim = c->hidden / c->heads;
    if (c->ffn == 0 && c->hidden > 0 && c->hidden <= MAX_WIDTH)
        c->ffn = c->family == ORTH_FAMILY_GPT2 ? 4 * c->hidden
                                               : orth_round_up(orth_div_up(8 * c->hidden, 3), 256);
}

const char *orth_model_preset_name(int index)
{
    return index >= 0 && index < ORTH_COUNT(presets) ? presets[index].name : NULL;
}

orth_status orth_model_preset(orth_ctx *ctx, const char *name, orth_model_config *out)
{
    const char *names[ORTH_COUNT(presets)];
    for (int i = 0; i < ORTH_COUNT(presets); i++) {
        names[i] = presets[i].name;
        if (strcmp(name, names[i]) == 0) {
            *out = presets[i].config;
            return ORTH_OK;
        }
    }
    char list[ORTH_MESSAGE_MAX];
    size_t at = 0;
    for (int i = 0; i < ORTH_COUNT(names); i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    const char *near = orth_nearest(name, names, ORTH_COUNT(names));
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "model.preset=%s is unknown; %s%s%sthere are %s", name, near ? "did you mean " : "",
                     near ? near : "", near ? "? " : "", list);
}

/* ---- rules ---- */

static orth_status check_range(orth_ctx *ctx, const char *name, int64_t value, int64_t max)
{
    if (value < 1 || value > max)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s=%" PRId64 " is not between 1 and %" PRId64, name, value, max);
    return ORTH_OK;
}

static orth_status check_sizes(orth_ctx *ctx, const orth_model_config *c)
{
    ORTH_TRY(check_range(ctx, "layers", c->layers, MAX_LAYERS));
    ORTH_TRY(check_range(ctx, "hidden", c->hidden, MAX_WIDTH));
    ORTH_TRY(check_range(ctx, "heads", c->heads, MAX_WIDTH));
    ORTH_TRY(check_range(ctx, "kv_heads", c->kv_heads, MAX_WIDTH));
    if (c->head_dim == 0 && c->hidden % c->heads != 0) /* then nothing says how wide a head is */
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "heads=%" PRId64 " does not divide hidden=%" PRId64 ", and head_dim is not given", c->heads, c->hidden);
    ORTH_TRY(check_range(ctx, "head_dim", c->head_dim, MAX_WIDTH));
    ORTH_TRY(check_range(ctx, "ffn", c->ffn, MAX_WIDTH));
    ORTH_TRY(check_range(ctx, "vocab", c->vocab, MAX_WIDTH));
    ORTH_TRY(check_range(ctx, "max_seq", c->max_seq, MAX_POSITIONS));
    return check_range(ctx, "heads*head_dim", c->heads * c->head_dim, MAX_WIDTH);
}

/* `!(x > y)` instead of `x <= y`: a NaN breaks every rule. */
static orth_status check_scalars(orth_ctx *ctx, const orth_model_config *c)
{
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "norm_eps=%g is not between 0 and 1", c->norm_eps);
    if (!(c->init_std >= 0 && c->init_std <= 10))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "init_std=%g is not between 0 and 10", c->init_std);
    const char *const names[] = {"dropout", "embed_dropout", "attn_dropout"};
    const double rates[] = {c->dropout, c->embed_dropout, c->attn_dropout};
    for (int i = 0; i < ORTH_COUNT(rates); i++)
        if (!(rates[i] >= 0 && rates[i] < 1))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s=%g is not in [0, 1)", names[i], rates[i]);
    return ORTH_OK;
}

static orth_status check_gpt2(orth_ctx *ctx, const orth_model_config *c)
{
    if (c->kv_heads != c->heads)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "kv_heads=%" PRId64 " differs from heads=%" PRId64
                         "; family gpt2 has no grouped queries", c->kv_heads, c->heads);
    if (c->hidden % c->heads != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "heads=%" PRId64 " does not divide hidden=%" PRId64, c->heads,
                         c->hidden);
    if (c->head_dim != c->hidden / c->heads)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%" PRId64 " is not hidden/heads=%" PRId64
                         ", which family gpt2 needs", c->head_dim, c->hidden / c->heads);
    if (!c->qkv_bias || !c->out_bias || !c->mlp_bias)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s=false: family gpt2 has biases everywhere",
                         !c->qkv_bias ? "qkv_bias" : !c->out_bias ? "out_bias" : "mlp_bias");
    if (c->qk_norm)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "qk_norm=true: family gpt2 has no QK-norm");
    return ORTH_OK;
}

static orth_status check_llama(orth_ctx *ctx, const orth_model_config *c)
{
    if (c->gelu_erf)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "gelu_erf=true: family llama has SwiGLU, not GELU");
    if (c->head_dim % 2 != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "head_dim=%" PRId64 " is odd; RoPE turns pairs", c->head_dim);
    if (!(c->rope_theta > 1 && c->rope_theta <= 1e12))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "rope_theta=%g is not between 1 and 1e12", c->rope_theta);
    if (!(c->rope_factor >= 1 && c->rope_factor <= 1e6))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "rope_factor=%g is not between 1 and 1e6", c->rope_factor);
    if (c->rope_factor == 1)
        return ORTH_OK;
    if (!(c->rope_low_freq > 0 && c->rope_high_freq > c->rope_low_freq && c->rope_high_freq <= 1e6))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "rope_high_freq=%g is not above rope_low_freq=%g > 0",
                         c->rope_high_freq, c->rope_low_freq);
    return check_range(ctx, "rope_original_seq", c->rope_original_seq, MAX_POSITIONS);
}

orth_status orth_model_config_check(orth_ctx *ctx, const orth_model_config *c)
{
    if (c->family != ORTH_FAMILY_GPT2 && c->family != ORTH_FAMILY_LLAMA)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "family=%d is not one of gpt2, llama", (int)c->family);
    ORTH_TRY(check_sizes(ctx, c));
    if (c->heads % c->kv_heads != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "kv_heads=%" PRId64 " does not divide heads=%" PRId64,
                         c->kv_heads, c->heads);
    ORTH_TRY(check_scalars(ctx, c));
    return c->family == ORTH_FAMILY_GPT2 ? check_gpt2(ctx, c) : check_llama(ctx, c);
}
