/* test_hf.c -- Hugging Face's forms: config.json both ways, tensor layouts, foreign and broken folders. */
#include "ckpt_case.h"

#include <math.h>

#include "ckpt/hf.h"

/* The models of each family that exercise the map: grouped queries, biases, QK-norm, tied or not. */
static orth_model_config variant(orth_ctx *ctx, int i)
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "llama-tiny", "llama-tiny",
                                          "qwen3-tiny", "qwen3-tiny", "llama-tiny", "gpt2-tiny"};
    orth_model_config c = case_config(ctx, presets[i]);
    if (i == 2) /* Llama 3: scaling, tied, all biases */
        c.tied = c.qkv_bias = c.out_bias = c.mlp_bias = true, c.rope_factor = 32, c.rope_original_seq = 8;
    if (i == 3) /* Qwen2 */
        c.qkv_bias = true, c.norm_eps = 1e-6, c.rope_theta = 1e6, c.dropout = 0.1, c.embed_dropout = 0.2, c.attn_dropout = 0.3;
    if (i == 5)
        c.tied = false, c.qkv_bias = c.out_bias = true, c.init_std = 0.017;
    if (i == 6) /* no class of Hugging Face */
        c.out_bias = c.qk_norm = true, c.head_dim = 6;
    if (i == 7)
        c.ffn = 96, c.dropout = 0.1, c.embed_dropout = 0.25, c.attn_dropout = 0, c.tied = false, c.gelu_erf = true;
    return c;
}
#define NUM_VARIANTS 8

TEST(a_config_comes_back_as_it_was)
{
    static const char *const types[NUM_VARIANTS] = {"gpt2", "llama", "llama", "qwen2", "qwen3", "qwen3",
                                                    "orthant", "gpt2"};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        orth_model_config c = variant(ctx, i), back;
        char *text = orth_hf_config_text(ctx, &c, ORTH_F32, NULL), want[64];
        assert_non_null(text);
        assert_non_null(strstr(text, AT(want, "\"model_type\": \"%s\"", types[i])));
        assert_string_equal(text + strlen(text) - 3, "\n}\n");
        CHECK_OK(ctx, orth_hf_config_parse(ctx, &back, "config.json", text, strlen(text)));
        if (c.family == ORTH_FAMILY_GPT2)
            back.rope_original_seq = c.rope_original_seq; /* not a setting of GPT-2 */
        assert_memory_equal(&back, &c, sizeof c);
        orth_mem_free(ctx, text);
    }
    for (int i = 0; orth_model_preset_name(i); i++) {
        orth_model_config c, back;
        CHECK_OK(ctx, orth_model_preset(ctx, orth_model_preset_name(i), &c));
        char *text = orth_hf_config_text(ctx, &c, ORTH_BF16, NULL);
        CHECK_OK(ctx, orth_hf_config_parse(ctx, &back, "config.json", text, strlen(text)));
        assert_memory_equal(&back, &c, sizeof c);
        orth_mem_free(ctx, text);
    }
    test_ctx_free(ctx);
}

/* LlamaConfig of Transformers refuses such heads. */
TEST(heads_that_do_not_divide_the_width_are_of_a_class_that_takes_them)
{
    static const struct {
        bool qkv, out, mlp;
        const char *type;
    } cases[] = {{false, false, false, "mistral"}, {true, false, false, "qwen2"}, {true, true, false, "orthant"}, {false, false, true, "orthant"}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_model_config c = variant(ctx, 1), back;
        c.heads = 5, c.kv_heads = 1, c.head_dim = 8, c.max_seq = c.rope_original_seq = 8192;
        c.qkv_bias = cases[i].qkv, c.out_bias = cases[i].out, c.mlp_bias = cases[i].mlp;
        assert_true(c.hidden % c.heads != 0);
        char *text = orth_hf_config_text(ctx, &c, ORTH_F32, NULL), want[64];
        assert_non_null(strstr(text, AT(want, "\"model_type\": \"%s\"", cases[i].type)));
        CHECK_OK(ctx, orth_hf_config_parse(ctx, &back, "config.json", text, strlen(text)));
        assert_memory_equal(&back, &c, sizeof c);
        orth_mem_free(ctx, text);
    }
    test_ctx_free(ctx);
}

TEST(weights_come_back_bit_for_bit_for_every_family)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        char *dir = scratch_dir();
        orth_model_config c = variant(ctx, i);
        model_case m = case_make(ctx, &c, 31 + (uint64_t)i), back = case_make(ctx, &c, 0);
        CHECK_OK(ctx, orth_hf_write_folder(ctx, dir, &c, (const float *const *)m.p, ORTH_F32, NULL));
        orth_hf_source *src;
        CHECK_OK(ctx, orth_hf_open(ctx, &src, dir));
        for (int64_t k = 0; k < back.num_params; k++) {
            CHECK_OK(ctx, orth_hf_read_param(ctx, src, k, back.p[k]));
            assert_int_equal(orth_hf_source_dtype(src, k), ORTH_F32);
        }
        case_check_equal(ctx, &m, &back, false);
        orth_hf_close(ctx, src);
        case_free(&m);
        case_free(&back);
        scratch_free(ctx, dir);
    }
    test_ctx_free(ctx);
}

static const float *stored(const orth_safetensors *st, const char *name, int64_t dim0, int64_t dim1)
{
    const orth_st_tensor *t = orth_safetensors_find(st, name);
    if (!t)
        fail_msg("no tensor %s", name);
    assert_int_equal(t->dim[0], dim0);
    if (dim1)
        assert_int_equal(t->dim[1], dim1);
    return (const float *)t->data;
}

/* Written out by hand from the models: H=4 heads in KV=2 groups of D=16, hidden 64, ffn 192. Our fused
 * rows are k0 v0 q0 q1 k1 v1 q2 q3. */
TEST(llama_tensors_hold_the_rows_that_transformers_expects)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256];
    orth_model_config c = variant(ctx, 2);
    model_case m = case_make(ctx, &c, 77);
    CHECK_OK(ctx, orth_hf_write_folder(ctx, dir, &c, (const float *const *)m.p, ORTH_F32, NULL));
    orth_safetensors st = {0};
    CHECK_OK(ctx, orth_safetensors_open(ctx, &st, AT(path, "%s/model.safetensors", dir)));
    const float *qkv = m.p[orth_model_param_find(&c, "layers.1.attn.qkv.weight")];
    const float *bias = m.p[orth_model_param_find(&c, "layers.1.attn.qkv.bias")];
    static const int q_at[] = {2, 3, 6, 7}, k_at[] = {0, 4}, v_at[] = {1, 5};
    const float *q = stored(&st, "model.layers.1.self_attn.q_proj.weight", 64, 64);
    const float *k = stored(&st, "model.layers.1.self_attn.k_proj.weight", 32, 64);
    const float *v = stored(&st, "model.layers.1.self_attn.v_proj.weight", 32, 64);
    const float *vb = stored(&st, "model.layers.1.self_attn.v_proj.bias", 32, 0);
    for (int h = 0; h < 4; h++)
        assert_memory_equal(q + h * 16 * 64, qkv + q_at[h] * 16 * 64, 16 * 64 * 4);
    for (int g = 0; g < 2; g++) {
        assert_memory_equal(k + g * 16 * 64, qkv + k_at[g] * 16 * 64, 16 * 64 * 4);
        assert_memory_equal(v + g * 16 * 64, qkv + v_at[g] * 16 * 64, 16 * 64 * 4);
        assert_memory_equal(vb + g * 16, bias + v_at[g] * 16, 16 * 4);
    }
    const float *fused = m.p[orth_model_param_find(&c, "layers.0.mlp.gate_up.weight")];
    const float *gate = stored(&st, "model.layers.0.mlp.gate_proj.weight", 192, 64);
    const float *up = stored(&st, "model.layers.0.mlp.up_proj.weight", 192, 64);
    for (int f = 0; f < 192; f++) {
        assert_memory_equal(gate + f * 64, fused + 2 * f * 64, 64 * 4);
        assert_memory_equal(up + f * 64, fused + (2 * f + 1) * 64, 64 * 4);
    }
    assert_null(orth_safetensors_find(&st, "lm_head.weight"));
    orth_safetensors_close(ctx, &st);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* GPT-2 stores [in, out]; c_attn has all queries, then keys, then values. Ours: k0 v0 q0 k1 v1 q1 ... */
TEST(gpt2_tensors_are_transposed_and_unfused)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256];
    orth_model_config c = variant(ctx, 7);
    model_case m = case_make(ctx, &c, 78);
    CHECK_OK(ctx, orth_hf_write_folder(ctx, dir, &c, (const float *const *)m.p, ORTH_F32, NULL));
    orth_safetensors st = {0};
    CHECK_OK(ctx, orth_safetensors_open(ctx, &st, AT(path, "%s/model.safetensors", dir)));
    const float *qkv = m.p[orth_model_param_find(&c, "layers.0.attn.qkv.weight")];
    const float *w = stored(&st, "transformer.h.0.attn.c_attn.weight", 64, 192);
    const float *up = m.p[orth_model_param_find(&c, "layers.0.mlp.up.weight")];
    const float *fc = stored(&st, "transformer.h.0.mlp.c_fc.weight", 64, 96);
    stored(&st, "lm_head.weight", 48, 64);
    stored(&st, "transformer.wpe.weight", 16, 64);
    for (int in = 0; in < 64; in++) {
        for (int o = 0; o < 96; o++)
            assert_true(fc[in * 96 + o] == up[o * 64 + in]);
        for (int which = 0; which < 3; which++) { /* q, k, v */
            static const int slot[] = {2, 0, 1};
            for (int h = 0; h < 4; h++)
                for (int d = 0; d < 16; d++)
                    assert_true(w[in * 192 + which * 64 + h * 16 + d] ==
                                qkv[((3 * h + slot[which]) * 16 + d) * 64 + in]);
        }
    }
    orth_safetensors_close(ctx, &st);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* ---- foreign folders: every tensor renamed, spread over shards, in half precision ---- */

typedef struct {
    orth_dtype dtype;
    bool strip;                   /* names without prefix */
    int num_shards;               /* 0: model.safetensors */
    const char *extra;            /* one more tensor, [1, 1] */
    enum { HEAD_NONE, HEAD_SAME, HEAD_BF16, HEAD_OTHER, HEAD_SHORT } head; /* lm_head.weight of a tied model */
} foreign;

static void write_shard(orth_ctx *ctx, const char *dir, const model_case *m, const foreign *f, int shard,
                        FILE *index)
{
    char path[256], file[64];
    static char names[256][128];
    orth_st_spec specs[256];
    float *data[256];
    int n = 0, at = 0;
    AT(file, f->num_shards ? "model-%05d-of-%05d.safetensors" : "model.safetensors", shard + 1,
       f->num_shards);
    for (int64_t i = 0; i < m->num_params; i++) {
        orth_hf_tensor t[ORTH_HF_MAX_PARTS];
        int parts;
        CHECK_OK(ctx, orth_hf_map_param(ctx, &m->config, i, t, &parts));
        for (int k = 0; k < parts; k++, at++) {
            if (f->num_shards && at % f->num_shards != shard)
                continue;
            AT(names[n], "%.95s", t[k].name + (f->strip ? t[k].prefix_chars : 0));
            specs[n] = (orth_st_spec){names[n], f->dtype, t[k].num_dims, {t[k].dim[0], t[k].dim[1]}};
            data[n] = calloc((size_t)(t[k].dim[0] * t[k].dim[1]), 4);
            orth_hf_gather_rows(data[n], &t[k], m->p[i], 0, t[k].dim[0]);
            if (index)
                fprintf(index, "%s\"%s\": \"%s\"", at < f->num_shards && shard == 0 ? "" : ",\n", names[n],
                        file);
            n++;
        }
    }
    if (f->head && shard == 0) {
        const orth_model_config *c = &m->config;
        const int64_t elems = c->vocab * c->hidden;
        data[n] = calloc((size_t)elems, 4);
        memcpy(data[n], m->p[orth_model_param_find(c, "embed.weight")], (size_t)elems * 4);
        if (f->head == HEAD_OTHER)
            data[n][elems - 1] += 1;
        specs[n++] = (orth_st_spec){"lm_head.weight", f->head == HEAD_BF16 ? ORTH_BF16 : f->dtype, 2, {c->vocab - (f->head == HEAD_SHORT), c->hidden}};
    }
    if (f->extra && shard == 0) {
        specs[n] = (orth_st_spec){f->extra, f->dtype, 2, {1, 1}};
        data[n++] = calloc(1, 4);
    }
    orth_st_writer *w;
    CHECK_OK(ctx, orth_st_writer_open(ctx, &w, AT(path, "%s/%s", dir, file), specs, n, NULL));
    for (int i = 0; i < n; i++) {
        int64_t elems = specs[i].dim[0] * (specs[i].num_dims == 2 ? specs[i].dim[1] : 1);
        CHECK_OK(ctx, orth_st_writer_put_f32(ctx, w, specs[i].dtype, data[i], elems));
        free(data[i]);
    }
    CHECK_OK(ctx, orth_st_writer_commit(ctx, w, NULL, NULL));
}

static void write_foreign(orth_ctx *ctx, const char *dir, const model_case *m, const foreign *f)
{
    char path[256];
    char *text = orth_hf_config_text(ctx, &m->config, f->dtype, NULL);
    write_text(ctx, AT(path, "%s/config.json", dir), text);
    orth_mem_free(ctx, text);
    FILE *index = f->num_shards ? fopen(AT(path, "%s/model.safetensors.index.json", dir), "w") : NULL;
    if (index)
        fprintf(index, "{\"metadata\": {}, \"weight_map\": {");
    for (int s = 0; s < ORTH_MAX(f->num_shards, 1); s++)
        write_shard(ctx, dir, m, f, s, index);
    if (index) {
        fprintf(index, "}}\n");
        fclose(index);
    }
}

TEST(shards_half_precision_and_bare_names_are_read)
{
    static const foreign forms[] = {
        {ORTH_F32, true, 0, NULL}, {ORTH_BF16, false, 3, NULL}, {ORTH_F16, true, 2, NULL},
        {ORTH_F32, false, 1, "model.layers.0.self_attn.rotary_emb.inv_freq"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < NUM_VARIANTS; i++) {
        for (int k = 0; k < ORTH_COUNT(forms); k++) {
            char *dir = scratch_dir();
            orth_model_config c = variant(ctx, i);
            c.layers = 1;
            model_case m = case_make(ctx, &c, 5), back = case_make(ctx, &c, 0);
            write_foreign(ctx, dir, &m, &forms[k]);
            orth_hf_source *src;
            CHECK_OK(ctx, orth_hf_open(ctx, &src, dir));
            assert_int_equal(orth_hf_source_num_files(src), ORTH_MAX(forms[k].num_shards, 1));
            for (int64_t p = 0; p < m.num_params; p++) {
                CHECK_OK(ctx, orth_hf_read_param(ctx, src, p, back.p[p]));
                assert_int_equal(orth_hf_source_dtype(src, p), forms[k].dtype);
                float tolerance = forms[k].dtype == ORTH_F32 ? 0 : forms[k].dtype == ORTH_F16 ? 0x1p-11f : 0x1p-8f;
                for (int64_t e = 0; e < case_elems(ctx, &m, p); e++)
                    assert_true(fabsf(back.p[p][e] - m.p[p][e]) <= tolerance * fabsf(m.p[p][e]) + 0x1p-24f * (tolerance > 0));
            }
            orth_hf_close(ctx, src);
            case_free(&m);
            case_free(&back);
            scratch_free(ctx, dir);
        }
    }
    test_ctx_free(ctx);
}

#define REFUSED(text_, call)                                                  \
    do {                                                                      \
        orth_hf_source *src_ = NULL;                                          \
        call;                                                                 \
        CHECK_FAILS(ctx, ORTH_ERR_DATA, text_, orth_hf_open(ctx, &src_, dir)); \
    } while (0)

TEST(folders_that_do_not_hold_the_model_are_refused_by_name)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256], *text;
    orth_model_config c = variant(ctx, 1), other = c;
    model_case m = case_make(ctx, &c, 5);
    orth_hf_source *src = NULL;
    CHECK_FAILS(ctx, ORTH_ERR_IO, "config.json: cannot open", orth_hf_open(ctx, &src, dir));
    text = orth_hf_config_text(ctx, &c, ORTH_F32, NULL);
    REFUSED("holds neither model.safetensors nor", write_text(ctx, AT(path, "%s/config.json", dir), text));
    orth_mem_free(ctx, text);
    write_text(ctx, AT(path, "%s/model.safetensors.index.json", dir), "{}");
    REFUSED("weight_map is missing", (void)0);
    write_text(ctx, path, "{\"weight_map\": {\"a\": \"../x\"}}");
    REFUSED("the file of 'a' is not a name in this folder", (void)0);
    write_text(ctx, path, "{\"weight_map\": {}}");
    REFUSED("weight_map names no file", (void)0);
    foreign f = {.dtype = ORTH_F32, .num_shards = 2};
    write_foreign(ctx, dir, &m, &f);
    CHECK_OK(ctx, orth_hf_open(ctx, &src, dir));
    orth_hf_close(ctx, src);
    write_text(ctx, path, "{\"weight_map\": {\"lost\": \"model-00002-of-00002.safetensors\"}}");
    REFUSED("tensor 'lost' is not in model-00002-of-00002.safetensors", (void)0);
    f = (foreign){.dtype = ORTH_F32, .extra = "model.layers.0.self_attn.q_proj.bias"};
    REFUSED("tensor 'model.layers.0.self_attn.q_proj.bias' is not part of the model that config.json describes",
            write_foreign(ctx, dir, &m, &f));
    f = (foreign){.dtype = ORTH_I32};
    other.ffn = 128;
    text = orth_hf_config_text(ctx, &other, ORTH_F32, NULL);
    f = (foreign){.dtype = ORTH_F32};
    write_foreign(ctx, dir, &m, &f);
    REFUSED("tensor 'model.layers.0.mlp.gate_proj.weight' has shape [192, 64]; config.json makes it [128, 64]",
            write_text(ctx, AT(path, "%s/config.json", dir), text));
    orth_mem_free(ctx, text);
    other = c;
    other.layers = 3;
    text = orth_hf_config_text(ctx, &other, ORTH_F32, NULL);
    REFUSED("tensor 'model.layers.2.input_layernorm.weight' is missing",
            write_text(ctx, AT(path, "%s/config.json", dir), text));
    orth_mem_free(ctx, text);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

#define LLAMA "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"  \
              "\"intermediate_size\":96,\"vocab_size\":48,\"max_position_embeddings\":4096"
#define GPT "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"vocab_size\":48,\"n_positions\":32"

static orth_model_config parse_ok(orth_ctx *ctx, const char *text)
{
    orth_model_config c = {0};
    CHECK_OK(ctx, orth_hf_config_parse(ctx, &c, "c.json", text, strlen(text)));
    return c;
}

TEST(configs_of_others_are_understood)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config c = parse_ok(ctx, "{" LLAMA "}");
    assert_true(c.kv_heads == 4 && c.head_dim == 16 && c.norm_eps == 1e-6 && c.rope_theta == 1e4 && !c.tied);
    c = parse_ok(ctx,
                 "{" LLAMA ",\"rope_theta\":500000,\"rope_scaling\":{\"type\":\"llama3\",\"rope_type\":\"llama3\","
                 "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                 "\"original_max_position_embeddings\":8192},\"head_dim\":null}");
    assert_true(c.rope_theta == 5e5 && c.rope_factor == 8 && c.rope_original_seq == 8192 && c.head_dim == 16);
    c = parse_ok(ctx,
                 "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":1e6,\"factor\":32.0,"
                 "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":1024}}");
    assert_true(c.rope_theta == 1e6 && c.rope_factor == 32 && c.rope_original_seq == 1024);
    c = parse_ok(ctx, "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":20000}}");
    assert_true(c.rope_theta == 2e4 && c.rope_factor == 1);
    c = parse_ok(ctx, "{" GPT ",\"n_inner\":null}");
    assert_true(c.ffn == 256 && c.tied && c.max_seq == 32 && !c.gelu_erf);
    assert_true(c.dropout == 0.1 && c.embed_dropout == 0.1 && c.attn_dropout == 0.1); /* of the class */
    c = parse_ok(ctx, "{" GPT ",\"resid_pdrop\":0,\"attn_pdrop\":0.25,\"embd_pdrop\":0.5,\"activation_function\":\"gelu\"}");
    assert_true(c.dropout == 0 && c.embed_dropout == 0.5 && c.attn_dropout == 0.25 && c.gelu_erf);
    c = parse_ok(ctx, "{" LLAMA ",\"attention_dropout\":0.25}");
    assert_true(c.dropout == 0 && c.embed_dropout == 0 && c.attn_dropout == 0.25);
    char text[1024], warning[1024] = "";
    ctx->log.write = quiet, ctx->log.user = warning;
    AT(text, "{%s,\"sliding_window\":1024}", LLAMA);
    memcpy(strstr(text, "llama\""), "qwen2\"", 6);
    strcpy(strrchr(text, '}'), ",\"num_key_value_heads\":4}");
    assert_int_equal(parse_ok(ctx, text).max_seq, 4096); /* not in use */
    AT(text, "{%s,\"sliding_window\":1024,\"use_sliding_window\":true,\"max_window_layers\":0,\"num_key_value_heads\":4}", LLAMA);
    memcpy(strstr(text, "llama\""), "qwen2\"", 6);
    c = parse_ok(ctx, text);
    assert_true(c.max_seq == 1024 && c.qkv_bias && !c.out_bias);
    assert_non_null(strstr(warning, "sliding_window=1024 is not computed; max_seq becomes 1024"));
    test_ctx_free(ctx);
}

/* As Transformers' classes have it: which keys decide whether a layer slides, and what an absent key stands for. */
TEST(a_window_that_no_layer_uses_shortens_nothing)
{
    static const struct {
        const char *type, *keys;
        int64_t max_seq;
    } cases[] = {
        {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":1024,\"max_window_layers\":2", 8192},
        {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":1024,\"max_window_layers\":1", 1024},
        {"qwen3", "\"use_sliding_window\":true,\"sliding_window\":1024", 8192}, /* 28 layers are full */
        {"qwen3", "\"use_sliding_window\":true,\"max_window_layers\":0", 4096},
        {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":1024,\"max_window_layers\":0,"
                  "\"layer_types\":[\"full_attention\",\"full_attention\"]", 8192},
        {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":1024,\"layer_types\":[\"full_attention\",\"sliding_attention\"]", 1024},
        {"qwen2", "\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":0", 8192},
        {"qwen2", "\"use_sliding_window\":false,\"layer_types\":[\"sliding_attention\",\"sliding_attention\"]", 8192},
        {"mistral", "\"sliding_window\":null", 8192},
        {"mistral", "\"sliding_window\":2048", 2048},
        {"mistral", "\"tie_word_embeddings\":false", 4096}, /* the class has a window of 4096 */
    };
    orth_ctx *ctx = test_ctx(1);
    char text[1024], warning[1024] = "";
    ctx->log.write = quiet, ctx->log.user = warning;
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        AT(text, "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4,"
           "\"num_key_value_heads\":null,\"intermediate_size\":96,\"vocab_size\":48,\"max_position_embeddings\":8192,%s}",
           cases[i].type, cases[i].keys);
        const orth_model_config c = parse_ok(ctx, text);
        if (c.max_seq != cases[i].max_seq || c.kv_heads != 4)
            fail_msg("%s: max_seq %d, wanted %d; kv_heads %d", text, (int)c.max_seq, (int)cases[i].max_seq, (int)c.kv_heads);
    }
    test_ctx_free(ctx);
}

TEST(absent_key_and_value_heads_are_those_of_the_class)
{
    static const struct {
        const char *type;
        int64_t kv_heads;
    } cases[] = {{"llama", 64}, {"mistral", 8}, {"qwen2", 32}, {"qwen3", 32}};
    orth_ctx *ctx = test_ctx(1);
    char text[1024];
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        AT(text, "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"hidden_size\":512,\"num_attention_heads\":64,"
           "\"intermediate_size\":96,\"vocab_size\":48,\"max_position_embeddings\":64}", cases[i].type);
        assert_int_equal(parse_ok(ctx, text).kv_heads, cases[i].kv_heads);
    }
    test_ctx_free(ctx);
}

/* Transformers compares them, and does not tie a head that differs. */
TEST(a_head_of_its_own_is_not_dropped_where_the_config_ties_it)
{
    static const struct {
        int variant, head;
        orth_dtype dtype;
        bool refused;
    } cases[] = {{0, HEAD_SAME, ORTH_F32, false}, {2, HEAD_SAME, ORTH_BF16, false}, {2, HEAD_BF16, ORTH_F32, true}, {0, HEAD_OTHER, ORTH_F32, true},
                 {2, HEAD_OTHER, ORTH_BF16, true}, {2, HEAD_SHORT, ORTH_F32, true}};
    static const char *const says[] = {"lm_head.weight differs from the embedding, but tie_word_embeddings is true (config.json): "
                                       "set it to false if the head is its own",
                                       "lm_head.weight differs from the embedding, but tie_word_embeddings is absent, which means true (config.json)"};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_model_config c = variant(ctx, cases[i].variant);
        model_case m = case_make(ctx, &c, 90);
        for (int absent = 0; absent < (c.family == ORTH_FAMILY_GPT2 ? 2 : 1); absent++) {
            char *dir = scratch_dir(), path[256], *text = NULL;
            size_t n;
            orth_hf_source *src = NULL;
            write_foreign(ctx, dir, &m, &(foreign){.dtype = cases[i].dtype, .num_shards = 0, .head = cases[i].head});
            CHECK_OK(ctx, orth_file_read(ctx, AT(path, "%s/config.json", dir), &text, &n));
            char *key = strstr(text, "tie_word_embeddings");
            assert_non_null(key);
            if (absent)
                key[0] = '_';
            write_text(ctx, path, text);
            orth_mem_free(ctx, text);
            if (cases[i].refused)
                CHECK_FAILS(ctx, ORTH_ERR_DATA, says[absent], orth_hf_open(ctx, &src, dir));
            else
                CHECK_OK(ctx, orth_hf_open(ctx, &src, dir));
            orth_hf_close(ctx, src);
            scratch_free(ctx, dir);
        }
        case_free(&m);
    }
    test_ctx_free(ctx);
}

TEST(configs_that_orthant_does_not_compute_are_refused)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"model_type\":\"bert\"}", "c.json: model_type=\"bert\" is not one of gpt2, llama"},
        {"{}", "c.json: model_type is missing"},
        {"{\"model_type\":3}", "c.json: model_type=3 is not a string"},
        {"{" LLAMA ",\"hidden_act\":\"gelu\"}", "hidden_act=\"gelu\" is not silu"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\"}}",
         "rope_type=\"yarn\" is not default or llama3"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "c.json: factor is missing"},
        {"{" LLAMA ",\"rope_scaling\":[]}", "rope_scaling is not one set of settings"},
        {"{" LLAMA ",\"rope_parameters\":{\"full_attention\":{}}}", "rope_parameters is not one set"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\"},\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}}",
         "c.json: rope_scaling and rope_parameters are both there and differ"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor=0.5"},
        {"{" LLAMA ",\"num_key_value_heads\":3}", "c.json: kv_heads=3 does not divide heads=4"},
        {"{\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":5,\"num_key_value_heads\":5,"
         "\"intermediate_size\":96,\"vocab_size\":48,\"max_position_embeddings\":64}", "c.json: heads=5 does not divide hidden=64, and head_dim is not given"},
        {"{" LLAMA ",\"num_key_value_heads\":0}", "c.json: num_key_value_heads=0 is not at least 1"},
        {"{" LLAMA ",\"head_dim\":0}", "c.json: head_dim=0 is not at least 1"},
        {"{" LLAMA ",\"head_dim\":\"16\"}", "head_dim=\"16\" is not an integer"},
        {"{" LLAMA ",\"tie_word_embeddings\":1}", "tie_word_embeddings=1 is not true or false"},
        {"{" LLAMA ",\"quantization_config\":{}}", "quantised weights are not read"},
        {"{" LLAMA ",\"vocab_size\":1}", "duplicate object key"},
        {"{\"model_type\":\"llama\"}", "c.json: num_hidden_layers is missing"},
        {"{" GPT ",\"activation_function\":\"relu\"}", "activation_function=\"relu\" is not gelu_new"},
        {"{" GPT ",\"resid_pdrop\":1.0}", "c.json: resid_pdrop=1 is not in [0, 1)"},
        {"{" GPT ",\"scale_attn_weights\":false}", "scale_attn_weights=false: attention is scaled"},
        {"{" GPT ",\"scale_attn_by_inverse_layer_idx\":true}", "scaled alike in all layers"},
        {"{" GPT ",\"add_cross_attention\":true}", "there is no cross-attention"},
        {"{" GPT ",\"n_inner\":99999999999999}", "ffn=99999999999999 is not between"},
        {"{" GPT "", "c.json:1:"},
    };
    orth_ctx *ctx = test_ctx(1);
    orth_model_config c;
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        CHECK_FAILS(ctx, ORTH_ERR_DATA, cases[i].message,
                    orth_hf_config_parse(ctx, &c, "c.json", cases[i].text, strlen(cases[i].text)));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_comes_back_as_it_was),
        cmocka_unit_test(heads_that_do_not_divide_the_width_are_of_a_class_that_takes_them),
        cmocka_unit_test(weights_come_back_bit_for_bit_for_every_family),
        cmocka_unit_test(llama_tensors_hold_the_rows_that_transformers_expects),
        cmocka_unit_test(gpt2_tensors_are_transposed_and_unfused),
        cmocka_unit_test(shards_half_precision_and_bare_names_are_read),
        cmocka_unit_test(folders_that_do_not_hold_the_model_are_refused_by_name),
        cmocka_unit_test(configs_of_others_are_understood),
        cmocka_unit_test(a_window_that_no_layer_uses_shortens_nothing),
        cmocka_unit_test(absent_key_and_value_heads_are_those_of_the_class),
        cmocka_unit_test(a_head_of_its_own_is_not_dropped_where_the_config_ties_it),
        cmocka_unit_test(configs_that_orthant_does_not_compute_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
