/* test_model.c -- presets, the rules between dimensions, the parameter registry. */
#include "test.h"

#include <math.h>

#include "model/config.h"
#include "train/setup.h"
#include "model/factors.h"

static orth_model_config preset(orth_ctx *ctx, const char *name)
{
    orth_model_config c = {0};
    CHECK_OK(ctx, orth_model_preset(ctx, name, &c));
    return c;
}

/* Totals as published, or as torch counts them in Transformers' own models (each tensor once). */
TEST(presets_have_the_known_parameter_counts)
{
    static const struct {
        const char *name;
        int64_t elems;
    } known[] = {
        {"gpt2-124m", 124439808},    {"gpt2-350m", 354823168},     {"gpt2-774m", 774030080},
        {"gpt2-1558m", 1557611200},  {"llama3-1b", 1235814400},    {"llama3-3b", 3212749824},
        {"llama2-7b", 6738415616},   {"llama2-13b", 13015864320},  {"llama2-70b", 68976648192},
        {"llama3-8b", 8030261248},   {"llama3-70b", 70553706496},  {"llama3-405b", 405853388800},
        {"qwen3-0.6b", 596049920},   {"qwen3-1.7b", 1720574976},   {"qwen3-4b", 4022468096},
        {"qwen3-8b", 8190735360},    {"qwen3-14b", 14768307200},   {"qwen3-32b", 32762123264},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(known); i++) {
        orth_model_config c = preset(ctx, known[i].name);
        if (orth_model_num_elems(&c) != known[i].elems)
            fail_msg("%s: %lld", known[i].name, (long long)orth_model_num_elems(&c));
    }
    test_ctx_free(ctx);
}

TEST(every_preset_passes_the_check_and_its_registry_adds_up)
{
    orth_ctx *ctx = test_ctx(1);
    int num = 0;
    for (const char *name; (name = orth_model_preset_name(num)) != NULL; num++) {
        orth_model_config c = preset(ctx, name);
        CHECK_OK(ctx, orth_model_config_check(ctx, &c));
        int64_t elems = 0, n = orth_model_num_params(&c);
        for (int64_t i = 0; i < n; i++) {
            orth_param p;
            CHECK_OK(ctx, orth_model_param(ctx, &c, i, &p));
            assert_int_equal(orth_model_param_find(&c, p.name), i);
            assert_int_equal(orth_model_param_index(&c, p.weight, p.layer), i);
            elems += orth_param_elems(&p);
        }
        assert_int_equal(elems, orth_model_num_elems(&c));
        orth_param p;
        CHECK_FAILS(ctx, ORTH_ERR_ARG, "is not one of the model's", orth_model_param(ctx, &c, n, &p));
    }
    assert_int_equal(num, 21);
    test_ctx_free(ctx);
}

TEST(the_registry_follows_the_order_of_its_header)
{
    static const char *const gpt2[] = {
        "embed.weight", "pos.weight", "layers.0.attn_norm.gain", "layers.0.attn_norm.shift",
        "layers.0.attn.qkv.weight", "layers.0.attn.qkv.bias", "layers.0.attn.out.weight",
        "layers.0.attn.out.bias", "layers.0.mlp_norm.gain", "layers.0.mlp_norm.shift",
        "layers.0.mlp.up.weight", "layers.0.mlp.up.bias", "layers.0.mlp.down.weight",
        "layers.0.mlp.down.bias", "final_norm.gain", "final_norm.shift"};
    static const char *const qwen3[] = {
        "embed.weight", "layers.0.attn_norm.gain", "layers.0.attn.qkv.weight",
        "layers.0.attn.q_norm.gain", "layers.0.attn.k_norm.gain", "layers.0.attn.out.weight",
        "layers.0.mlp_norm.gain", "layers.0.mlp.gate_up.weight", "layers.0.mlp.down.weight",
        "final_norm.gain", "head.weight"};
    static const struct {
        const char *preset;
        const char *const *names;
        int n;
    } cases[] = {{"gpt2-tiny", gpt2, ORTH_COUNT(gpt2)}, {"qwen3-tiny", qwen3, ORTH_COUNT(qwen3)}};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(cases); k++) {
        orth_model_config c = preset(ctx, cases[k].preset);
        c.layers = 1;
        c.tied = k == 0;
        assert_int_equal(orth_model_num_params(&c), cases[k].n);
        for (int i = 0; i < cases[k].n; i++) {
            orth_param p;
            CHECK_OK(ctx, orth_model_param(ctx, &c, i, &p));
            assert_string_equal(p.name, cases[k].names[i]);
        }
    }
    test_ctx_free(ctx);
}

/* Length of the dim that tensor parallelism splits, from the parts that it is split into. */
static int64_t length_of_parts(const orth_weight *w, int32_t parts)
{
    const orth_split s = {w->split.kind, parts, w->split.units, w->split.unit, w->split.group};
    return orth_split_bound(&s, parts);
}

static void check_row(const orth_model_config *c, const orth_weight *w)
{
    assert_true(w->shape.num_dims == 1 || w->shape.num_dims == 2);
    assert_true(w->shape.dim[0] > 0 && w->shape.dim[1] > 0 && (w->shape.num_dims == 2 || w->shape.dim[1] == 1));
    assert_true(w->section && w->type && w->init.kind && w->decay && w->split.cut && w->reduce && w->leaf);
    assert_int_equal(w->type == ORTH_WEIGHT_COMPUTE, w->shape.num_dims == 2);
    if (w->split.cut != ORTH_CUT_WHOLE)
        assert_int_equal(length_of_parts(w, 8), w->shape.dim[w->split.cut == ORTH_CUT_COLS]);
    if (!w->hf[c->family].part[0].name)
        fail_msg("%s of family %s has no name in Hugging Face's files", w->name, orth_family_name(c->family));
    for (int i = 0; i < ORTH_HF_MAX_PARTS && w->hf[c->family].part[i].name; i++)
        assert_true(w->hf[c->family].part[i].rows);
}

TEST(the_row_of_a_weight_states_every_fact_and_its_parts_are_its_shape)
{
    orth_ctx *ctx = test_ctx(1);
    bool seen[ORTH_NUM_WEIGHTS] = {false};
    for (int k = 0; k < 4; k++) {
        orth_model_config c = preset(ctx, k < 2 ? "gpt2-tiny" : "llama-tiny");
        c.tied = k % 2;
        if (k == 3)
            c.qkv_bias = c.out_bias = c.mlp_bias = c.qk_norm = true;
        assert_false(orth_weight_present(&c, ORTH_WEIGHT_NONE) || orth_weight_present(&c, ORTH_NUM_WEIGHTS));
        for (int id = 1; id < ORTH_NUM_WEIGHTS; id++) {
            if (!orth_weight_present(&c, (orth_weight_id)id))
                continue;
            const orth_weight w = orth_weight_get(&c, (orth_weight_id)id);
            check_row(&c, &w);
            seen[id] = true;
        }
    }
    for (int id = 1; id < ORTH_NUM_WEIGHTS; id++)
        assert_true(seen[id]);
    test_ctx_free(ctx);
}

TEST(names_that_are_almost_right_are_not_found)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config c = preset(ctx, "llama-tiny");
    static const char *const wrong[] = {"", "layers", "layers.", "layers.0", "layers.00.attn_norm.gain",
                                        "layers.2.attn_norm.gain", "layers.0.embed.weight", "pos.weight",
                                        "layers.99999999999999999999.attn_norm.gain", "layers.-1.attn_norm.gain"};
    for (int i = 0; i < ORTH_COUNT(wrong); i++)
        assert_int_equal(orth_model_param_find(&c, wrong[i]), -1);
    test_ctx_free(ctx);
}

static int64_t param_of(const orth_model_config *c, const char *name)
{
    const int64_t i = orth_model_param_find(c, name);
    if (i < 0)
        fail_msg("no %s", name);
    return i;
}

/* The factor that a word alone gives a parameter of a model; -1: none. */
static float factor(orth_ctx *ctx, const orth_model_config *c, const char *word, const char *name)
{
    const orth_factors f = {"key", 1, &word};
    float all[256];
    for (int i = 0; i < ORTH_COUNT(all); i++)
        all[i] = -1;
    assert_true(orth_model_num_params(c) <= ORTH_COUNT(all));
    CHECK_OK(ctx, orth_factors_resolve(ctx, &f, c, all));
    return all[param_of(c, name)];
}

TEST(factors_hold_for_the_whole_names_that_their_patterns_match)
{
    static const struct {
        const char *word, *name;
        bool matches;
    } cases[] = {
        {"embed.weight=2", "embed.weight", true}, {"*=2", "embed.weight", true}, {"*.weight=2", "embed.weight", true},
        {"*.bias=2", "embed.weight", false}, {"*.bias=2", "layers.0.attn_norm.shift", false}, {"layers.?.*=2", "layers.1.mlp.up.weight", true},
        {"*.mlp.*.bias=2", "layers.1.mlp.up.bias", true}, {"**w**t*=2", "pos.weight", true}, {"?*=2", "pos.weight", true},
        {"e*d.weight=2", "embed.weight", true},
        /* by Hugging Face's names, which only a pattern that matches none of ours is compared with */
        {"wte.weight=2", "embed.weight", true}, {"transformer.wte.weight=2", "embed.weight", true}, {"lm_head.weight=2", "embed.weight", true},
        {"head.weight=2", "embed.weight", true}, {"h.0.*=2", "layers.0.mlp_norm.shift", true}, {"h.0.*=2", "layers.1.mlp_norm.shift", false},
        {"*.ln_1.bias=2", "layers.1.attn_norm.shift", true}, {"transformer.h.*.c_attn.weight=2", "layers.1.attn.qkv.weight", true},
    };
    orth_ctx *ctx = test_ctx(1);
    const orth_model_config gpt2 = preset(ctx, "gpt2-tiny"), llama = preset(ctx, "llama-tiny");
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        if (factor(ctx, &gpt2, cases[i].word, cases[i].name) != (cases[i].matches ? 2.0f : -1.0f))
            fail_msg("%s, %s", cases[i].word, cases[i].name);
    static const char *const misses[] = {"embed=2", "weight=2", "*up*up*=2", "head.weight?=2", "layers.?=2"};
    float all[256];
    for (int i = 0; i < ORTH_COUNT(misses); i++)
        CHECK_FAILS(ctx, ORTH_ERR_ARG, "matches no parameter of the model", orth_factors_resolve(ctx, &(orth_factors){"key", 1, &misses[i]}, &gpt2, all));
    const char *const words[] = {"*=1", "*.bias=0.5", "layers.0.*=0"}, *const bad = "embed";
    const orth_factors f = {"key", 3, words};
    CHECK_OK(ctx, orth_factors_resolve(ctx, &f, &gpt2, all));
    assert_true(all[param_of(&gpt2, "layers.0.attn.qkv.bias")] == 0 && all[param_of(&gpt2, "layers.1.attn.qkv.bias")] == 0.5f &&
                all[param_of(&gpt2, "embed.weight")] == 1);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "key: '*.bias=0.5' matches no parameter of the model", orth_factors_resolve(ctx, &f, &llama, all));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "key: 'embed' is not PATTERN=FACTOR", orth_factors_resolve(ctx, &(orth_factors){"key", 1, &bad}, &llama, all));
    test_ctx_free(ctx);
}

TEST(words_are_about_all_parts_of_a_parameter)
{
    static const char *const one[] = {"*.q_proj.weight=2"}, *const three[] = {"*.q_proj.weight=2", "*.k_proj.weight=3", "*.?_proj.weight=4"};
    orth_ctx *ctx = test_ctx(1);
    const orth_model_config c = preset(ctx, "llama-tiny");
    float all[256] = {0};
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "key: differs between model.layers.0.self_attn.q_proj.weight and model.layers.0.self_attn.k_proj.weight, "
                "which are parts of one parameter here, 'layers.0.attn.qkv.weight'", orth_factors_resolve(ctx, &(orth_factors){"key", 1, one}, &c, all));
    CHECK_OK(ctx, orth_factors_resolve(ctx, &(orth_factors){"key", 3, three}, &c, all));
    assert_true(all[param_of(&c, "layers.1.attn.qkv.weight")] == 4 && all[param_of(&c, "layers.1.mlp.down.weight")] == 0);
    test_ctx_free(ctx);
}

TEST(freezing_needs_a_parameter_and_leaves_one)
{
    static const char *const all[] = {"*"}, *const but_one[] = {"*", "!final_norm.gain"}, *const typo[] = {"layers.0.atn.out.weight"};
    orth_ctx *ctx = test_ctx(1);
    const orth_model_config c = preset(ctx, "llama-tiny");
    bool frozen[256];
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "key: every parameter is frozen: there is nothing to train", orth_freeze_resolve(ctx, &(orth_factors){"key", 1, all}, &c, frozen));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "key: 'layers.0.atn.out.weight' matches no parameter of the model; did you mean 'layers.0.attn.out.weight'",
                orth_freeze_resolve(ctx, &(orth_factors){"key", 1, typo}, &c, frozen));
    CHECK_OK(ctx, orth_freeze_resolve(ctx, &(orth_factors){"key", 2, but_one}, &c, frozen));
    for (int64_t i = 0; i < orth_model_num_params(&c); i++)
        assert_true(frozen[i] == (i != param_of(&c, "final_norm.gain")));
    test_ctx_free(ctx);
}

TEST(an_unknown_preset_names_the_nearest)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config c;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "model.preset=gpt2-124M is unknown; did you mean gpt2-124m? there are gpt2-124m, gpt2-350m",
                orth_model_preset(ctx, "gpt2-124M", &c));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "did you mean qwen3-0.6b?", orth_model_preset(ctx, "qwen-0.6b", &c));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "is unknown",
                orth_model_preset(ctx, "a-name-that-is-longer-than-any-preset-could-be", &c));
    test_ctx_free(ctx);
}

TEST(a_family_and_its_sizes_are_completed_to_a_valid_model)
{
    orth_ctx *ctx = test_ctx(1);
    for (int f = ORTH_FAMILY_GPT2; f <= ORTH_FAMILY_LLAMA; f++) {
        orth_model_config c;
        orth_model_config_defaults((orth_family)f, &c);
        CHECK_FAILS(ctx, ORTH_ERR_ARG, "layers=0 is not between", orth_model_config_check(ctx, &c));
        c.layers = 2, c.hidden = 768, c.heads = 12, c.vocab = 300, c.max_seq = 64;
        orth_model_config_complete(&c);
        CHECK_OK(ctx, orth_model_config_check(ctx, &c));
        assert_int_equal(c.head_dim, 64);
        assert_int_equal(c.ffn, f == ORTH_FAMILY_GPT2 ? 3072 : 2048);
    }
    test_ctx_free(ctx);
}

/* Llama's own sizes, and a run file that leaves ffn out. */
TEST(a_run_file_and_a_checkpoint_complete_a_model_alike)
{
    static const int64_t widths[][2] = {{4096, 11008}, {5120, 13824}, {128, 512}, {1024, 2816}};
    orth_ctx *ctx = test_ctx(1);
    for (int w = 0; w < ORTH_COUNT(widths); w++) {
        char text[160];
        orth_config cfg;
        orth_model_config c, from_run;
        snprintf(text, sizeof text, "model: {family: llama, layers: 2, hidden: %d, heads: 16, vocab: 300}\ndata: {seq_len: 64}\n",
                 (int)widths[w][0]);
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", text, strlen(text)));
        CHECK_OK(ctx, orth_setup_model(ctx, &cfg, 300, &from_run));
        orth_model_config_defaults(ORTH_FAMILY_LLAMA, &c);
        c.layers = 2, c.hidden = widths[w][0], c.heads = 16, c.vocab = 300, c.max_seq = 64;
        orth_model_config_complete(&c);
        assert_int_equal(c.ffn, widths[w][1]);
        assert_memory_equal(&c, &from_run, sizeof c);
        orth_config_release(ctx, &cfg);
    }
    test_ctx_free(ctx);
}

#define BROKEN(preset_, text, change)                                             \
    do {                                                                          \
        orth_model_config c = preset(ctx, preset_);                               \
        change;                                                                   \
        CHECK_FAILS(ctx, ORTH_ERR_ARG, text, orth_model_config_check(ctx, &c));   \
    } while (0)

TEST(broken_rules_are_named_with_their_values)
{
    orth_ctx *ctx = test_ctx(1);
    BROKEN("llama-tiny", "kv_heads=3 does not divide heads=8", (c.heads = 8, c.kv_heads = 3));
    BROKEN("llama-tiny", "heads=5 does not divide hidden=64, and head_dim is not given", (c.heads = c.kv_heads = 5, c.head_dim = 0, orth_model_config_complete(&c)));
    BROKEN("llama-tiny", "hidden=0 is not between 1 and 16777216", c.hidden = 0);
    BROKEN("llama-tiny", "layers=5000 is not between 1 and 4096", c.layers = 5000);
    BROKEN("llama-tiny", "vocab=-1 is not", c.vocab = -1);
    BROKEN("llama-tiny", "head_dim=15 is odd", c.head_dim = 15);
    BROKEN("llama-tiny", "rope_theta=0 is not", c.rope_theta = 0);
    BROKEN("llama-tiny", "rope_factor=0.5 is not", c.rope_factor = 0.5);
    BROKEN("llama3-1b", "rope_high_freq=1 is not above rope_low_freq=1", c.rope_high_freq = 1);
    BROKEN("llama3-1b", "rope_original_seq=0", c.rope_original_seq = 0);
    BROKEN("llama-tiny", "norm_eps=nan is not", c.norm_eps = (double)NAN);
    BROKEN("llama-tiny", "dropout=1 is not in [0, 1)", c.dropout = 1);
    BROKEN("gpt2-tiny", "attn_dropout=1 is not in [0, 1)", c.attn_dropout = 1);
    BROKEN("gpt2-tiny", "embed_dropout=-1 is not in [0, 1)", c.embed_dropout = -1);
    BROKEN("llama-tiny", "gelu_erf=true: family llama", c.gelu_erf = true);
    BROKEN("llama-tiny", "init_std=-1", c.init_std = -1);
    BROKEN("llama-tiny", "heads*head_dim=", (c.heads = 1 << 20, c.kv_heads = 1, c.head_dim = 32));
    BROKEN("gpt2-tiny", "kv_heads=2 differs from heads=4", c.kv_heads = 2);
    BROKEN("gpt2-tiny", "heads=5 does not divide hidden=64", (c.heads = 5, c.kv_heads = 5));
    BROKEN("gpt2-tiny", "head_dim=32 is not hidden/heads=16", c.head_dim = 32);
    BROKEN("gpt2-tiny", "out_bias=false: family gpt2", c.out_bias = false);
    BROKEN("gpt2-tiny", "qk_norm=true", c.qk_norm = true);
    BROKEN("gpt2-tiny", "family=7", c.family = (orth_family)7);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_known_parameter_counts),
        cmocka_unit_test(every_preset_passes_the_check_and_its_registry_adds_up),
        cmocka_unit_test(the_registry_follows_the_order_of_its_header),
        cmocka_unit_test(the_row_of_a_weight_states_every_fact_and_its_parts_are_its_shape),
        cmocka_unit_test(names_that_are_almost_right_are_not_found),
        cmocka_unit_test(factors_hold_for_the_whole_names_that_their_patterns_match),
        cmocka_unit_test(words_are_about_all_parts_of_a_parameter),
        cmocka_unit_test(freezing_needs_a_parameter_and_leaves_one),
        cmocka_unit_test(an_unknown_preset_names_the_nearest),
        cmocka_unit_test(a_family_and_its_sizes_are_completed_to_a_valid_model),
        cmocka_unit_test(a_run_file_and_a_checkpoint_complete_a_model_alike),
        cmocka_unit_test(broken_rules_are_named_with_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
