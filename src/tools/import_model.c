/* import_model.c -- the model that configurations of Megatron-LM and NeMo say, key by key: its kind of block, and the sizes that they leave to defaults. */
#include "tools/import_impl.h"

#include <inttypes.h>
#include <string.h>

#include "train/describe.h"

static const char *value_or(const orth_import_pair *p, const char *fallback)
{
    return p ? p->value : fallback;
}

/* Whether the feed-forward is gated: a flag of its own, or the name of an activation. */
static orth_status find_gated(orth_importer *x, bool *gated)
{
    static const char *const yes[] = {"swiglu", "fast-swiglu"}, *const no[] = {"gelu", "openai-gelu", "fast-gelu"};
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_activation);
    *gated = p ? orth_import_is_word(p, yes, ORTH_COUNT(yes)) : orth_import_is_true(orth_import_find(x, ORTH_PART_swiglu));
    if (p && !*gated && !orth_import_is_word(p, no, ORTH_COUNT(no)))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: there are GELU and SwiGLU", p->place, ORTH_SHOWN(p->value));
    return ORTH_OK;
}

/* The two kinds of block that there are. */
static orth_status set_family(orth_importer *x, bool gated)
{
    static const char *const rms[] = {"RMSNorm", "rmsnorm"}, *const layer[] = {"LayerNorm", "layernorm", "layernorm1p"};
    const orth_import_pair *norm = orth_import_find(x, ORTH_PART_norm), *positions = orth_import_find(x, ORTH_PART_positions);
    const orth_import_pair *flag = orth_import_find(x, ORTH_PART_rotary);
    const bool is_rms = norm && orth_import_is_word(norm, rms, ORTH_COUNT(rms)), is_layer = !norm || orth_import_is_word(norm, layer, ORTH_COUNT(layer));
    const char *pos = orth_import_is_true(flag) ? "rope" : value_or(positions, "learned_absolute");
    const bool rope = strcmp(pos, "rope") == 0, learned = strcmp(pos, "learned_absolute") == 0;
    if (gated && is_rms && rope)
        return orth_import_set(x, orth_import_place(x, "SwiGLU, RMSNorm, rope"), "model.family", "llama");
    if (!gated && is_layer && learned)
        return orth_import_set(x, orth_import_place(x, "GELU, LayerNorm, learned positions"), "model.family", "gpt2");
    return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: a block with %s, %s and positions '%s': there are SwiGLU, RMSNorm and rope (llama), and GELU, LayerNorm "
                     "and learned_absolute (gpt2)", x->name, gated ? "SwiGLU" : "GELU", value_or(norm, "LayerNorm"), ORTH_SHOWN(pos));
}

/* Its scaling has the numbers of Llama 3.1, but for the factor. */
static orth_status set_rope_scaling(orth_importer *x)
{
    static const struct {
        const char *key, *value;
    } fixed[] = {{"model.rope_low_freq", "1"}, {"model.rope_high_freq", "4"}, {"model.rope_original_seq", "8192"}};
    const orth_import_pair *flag = orth_import_find(x, ORTH_PART_rope_scaling), *factor = orth_import_find(x, ORTH_PART_rope_factor);
    if (!orth_import_is_true(flag) || x->cfg->model_family != ORTH_model_family_llama) {
        if (orth_import_is_true(flag))
            orth_import_unused(x, flag->place, "positions are not rotary");
        if (factor)
            orth_import_unused(x, factor->place, orth_import_is_true(flag) ? "positions are not rotary" : "use_rope_scaling is not given");
        return ORTH_OK;
    }
    for (int i = 0; i < ORTH_COUNT(fixed); i++)
        ORTH_TRY(orth_import_set(x, flag->place, fixed[i].key, fixed[i].value));
    return orth_import_set(x, factor ? factor->place : flag->place, "model.rope_factor", factor ? factor->value : "8");
}

static orth_status set_biases(orth_importer *x)
{
    const orth_import_pair *none = orth_import_find(x, ORTH_PART_no_bias), *bias = orth_import_find(x, ORTH_PART_bias);
    const orth_import_pair *qkv = orth_import_find(x, ORTH_PART_qkv_bias), *p = none ? none : bias;
    const char *all = orth_import_is_true(none) || (bias && !orth_import_is_true(bias)) ? "false" : "true";
    const char *place = p ? p->place : orth_import_place(x, "biases by default");
    ORTH_TRY(orth_import_set(x, orth_import_is_true(qkv) ? qkv->place : place, "model.qkv_bias", orth_import_is_true(qkv) ? "true" : all));
    ORTH_TRY(orth_import_set(x, place, "model.out_bias", all));
    return orth_import_set(x, place, "model.mlp_bias", all);
}

/* Without the key Megatron-LM takes 4 times the width, with a gate two thirds of it, down to a multiple of 64. */
static orth_status set_ffn(orth_importer *x, bool gated)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_ffn);
    const int64_t wide = 4 * x->cfg->model_hidden;
    if (p)
        return orth_import_set(x, p->place, "model.ffn", p->value);
    if (wide == 0)
        return ORTH_OK; /* that the width is missing is said later */
    return orth_import_set_int(x, orth_import_place(x, "the feed-forward by default"), "model.ffn",
                               gated && x->tool == ORTH_TOOL_megatron ? wide * 2 / 3 / 64 * 64 : wide);
}

/* The switch of Megatron-LM alone asks for one group. NeMo has the number only. */
static orth_status set_query_groups(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_query_groups), *flag = orth_import_find(x, ORTH_PART_group_query);
    if (!p && orth_import_is_true(flag))
        return orth_import_set(x, orth_import_place(x, "num_query_groups by default"), "model.kv_heads", "1");
    if (!p)
        return ORTH_OK;
    if (orth_import_is_true(flag))
        return orth_import_set(x, p->place, "model.kv_heads", p->value);
    orth_import_unused(x, p->place, "group_query_attention is not given");
    return ORTH_OK;
}

/* A size of the vocabulary that follows from the tokenizer's name; 0: not known. */
static int64_t known_vocabulary(const orth_import_pair *p)
{
    static const struct {
        const char *name;
        int64_t tokens;
    } known[] = {{"GPT2BPETokenizer", 50257}, {"Llama2Tokenizer", 32000}};
    for (int i = 0; p && i < ORTH_COUNT(known); i++)
        if (strcmp(known[i].name, p->value) == 0)
            return known[i].tokens;
    return 0;
}

/* Data that the run file names may have a vocabulary of their own, which counts where the configuration says none. */
static void warn_of_vocabulary(const orth_importer *x)
{
    if (orth_describe_assumes_vocab(x->cfg))
        orth_log(x->ctx, ORTH_LOG_WARN, "import", "%s: the size of the vocabulary is missing: %d tokens are assumed; give model.vocab", ORTH_SHOWN(x->name),
                 ORTH_AUTO_VOCAB);
    else if (!ORTH_CONFIG_IS_SET(x->cfg, model, vocab))
        orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s: the size of the vocabulary is missing: it is that of the data or the preset", ORTH_SHOWN(x->name));
}

/* The vocabulary is filled up to a multiple of make_vocab_size_divisible_by * tp, unless its size after that is given. */
static orth_status set_vocabulary(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_vocab), *tokenizer = orth_import_find(x, ORTH_PART_tokenizer);
    const orth_import_pair *padded = orth_import_find(x, ORTH_PART_padded_vocab);
    int64_t tokens, multiple;
    if (padded && p)
        orth_import_unused(x, p->place, "padded_vocab_size is given");
    if (padded)
        return orth_import_set(x, padded->place, "model.vocab", padded->value);
    ORTH_TRY(orth_import_count(x, ORTH_PART_vocab, known_vocabulary(tokenizer), &tokens));
    ORTH_TRY(orth_import_count(x, ORTH_PART_vocab_multiple, 128, &multiple));
    if (tokens == 0) {
        warn_of_vocabulary(x);
        return ORTH_OK;
    }
    if (multiple > 1000000)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 ": must be at most 1000000", orth_import_find(x, ORTH_PART_vocab_multiple)->place, multiple);
    return orth_import_set_int(x, p ? p->place : tokenizer->place, "model.vocab", orth_round_up(tokens, multiple * x->cfg->parallel_tp));
}

orth_status orth_import_model(orth_importer *x)
{
    static const orth_import_part of_model[] = {
        ORTH_PART_swiglu, ORTH_PART_activation, ORTH_PART_norm, ORTH_PART_positions, ORTH_PART_rotary, ORTH_PART_rope_scaling, ORTH_PART_rope_factor,
        ORTH_PART_no_bias, ORTH_PART_bias, ORTH_PART_qkv_bias, ORTH_PART_ffn, ORTH_PART_group_query, ORTH_PART_query_groups, ORTH_PART_vocab,
        ORTH_PART_padded_vocab, ORTH_PART_tokenizer, ORTH_PART_vocab_multiple};
    bool gated;
    if (!orth_import_gives(x, "model.layers")) { /* the model comes from elsewhere */
        orth_import_unused_parts(x, of_model, ORTH_COUNT(of_model), "the number of layers is not given, so the model is not that of these keys");
        return ORTH_OK;
    }
    ORTH_TRY(find_gated(x, &gated));
    ORTH_TRY(set_family(x, gated));
    ORTH_TRY(set_rope_scaling(x));
    ORTH_TRY(set_biases(x));
    ORTH_TRY(set_ffn(x, gated));
    ORTH_TRY(set_query_groups(x));
    return set_vocabulary(x);
}
