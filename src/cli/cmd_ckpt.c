/* cmd_ckpt.c -- `orthant ckpt`: look into checkpoints, check them, exchange them with Hugging Face. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "ckpt/folder.h"
#include "cli/cmd.h"

/* ---- parameters in memory, for import and export ---- */

typedef struct {
    int64_t num;
    float **values;                       /* [num], in the order of the registry */
    orth_checkpoint_array *arrays;        /* the same, without moments */
    orth_arena arena;
} weights;

static orth_status weights_alloc(orth_ctx *ctx, weights *w, const orth_model_config *c)
{
    w->num = orth_model_num_params(c);
    w->values = ORTH_ARENA_ARRAY(ctx, &w->arena, float *, w->num);
    w->arrays = ORTH_ARENA_ARRAY(ctx, &w->arena, orth_checkpoint_array, w->num);
    if (!w->values || !w->arrays)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < w->num; i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        w->values[i] = ORTH_ARENA_ARRAY(ctx, &w->arena, float, orth_param_elems(&p));
        if (!w->values[i])
            return ORTH_ERR_NOMEM;
        w->arrays[i] = (orth_checkpoint_array){.index = i, .master = w->values[i]};
    }
    return ORTH_OK;
}

/* What stands beside the weights of a folder. */
typedef struct {
    orth_special_tokens special;
    char *tokenizer;                      /* NULL: none */
    size_t tokenizer_bytes;
    char *tokenizer_config;               /* NULL: none, or a tokenizer that Orthant does not read */
    bool other_pattern;                   /* the tokenizer does not cut words as Qwen's */
} beside;

/* A tokenizer that Orthant does not read is copied all the same. Then *out stays NULL, and names of tokens cannot be told. */
static orth_status try_tokenizer(orth_ctx *ctx, orth_tokenizer **out, const beside *b, const char *path)
{
    orth_status s = orth_tokenizer_parse(ctx, out, b->tokenizer, b->tokenizer_bytes, path);
    if (s != ORTH_ERR_DATA)
        return s;
    orth_log(ctx, ORTH_LOG_WARN, "tokenizer", "it is copied, but Orthant cannot use it, and no tokenizer_config.json is "
             "written: %.800s", ctx->error.message);
    orth_ctx_clear_error(ctx);
    return ORTH_OK;
}

static orth_status load_beside(orth_ctx *ctx, beside *b, const char *dir, orth_tokenizer **out)
{
    char *path = orth_path_join(ctx, dir, "tokenizer.json");
    orth_status s = path ? ORTH_OK : ORTH_ERR_NOMEM;
    if (path && orth_path_exists(path)) {
        s = orth_file_read(ctx, path, &b->tokenizer, &b->tokenizer_bytes);
        if (s == ORTH_OK)
            s = try_tokenizer(ctx, out, b, path);
    }
    orth_mem_free(ctx, path);
    return s;
}

/* known: the special tokens where they are known already, else those that the folder's files name are taken. */
static orth_status read_with(orth_ctx *ctx, beside *b, const char *dir, const orth_tokenizer *tok,
                             const orth_special_tokens *known, int64_t max_seq)
{
    if (known && known->num_eos > 0)
        b->special = *known;
    else
        ORTH_TRY(orth_special_tokens_read(ctx, &b->special, dir, tok));
    b->other_pattern = tok && strcmp(orth_tokenizer_kind_name(tok), "qwen") != 0;
    if (!tok)
        return ORTH_OK;
    json_t *chat = NULL;
    ORTH_TRY(orth_hf_chat_template(ctx, &chat, dir));
    b->tokenizer_config = orth_hf_tokenizer_text(ctx, tok, &b->special, max_seq, chat);
    json_decref(chat);
    return b->tokenizer_config ? ORTH_OK : ORTH_ERR_NOMEM;
}

static orth_status beside_read(orth_ctx *ctx, beside *b, const char *dir, const orth_special_tokens *known,
                               int64_t max_seq)
{
    orth_tokenizer *tok = NULL;
    ORTH_TRY(load_beside(ctx, b, dir, &tok));
    orth_status s = read_with(ctx, b, dir, tok, known, max_seq);
    orth_tokenizer_free(ctx, tok);
    return s;
}

static void beside_free(orth_ctx *ctx, beside *b)
{
    orth_mem_free(ctx, b->tokenizer);
    orth_mem_free(ctx, b->tokenizer_config);
}

/* ---- inspect ---- */

static void print_model(const orth_model_config *c)
{
    printf("model        %s, %" PRId64 " parameters\n", orth_family_name(c->family), orth_model_num_elems(c));
    printf("sizes        layers %" PRId64 ", hidden %" PRId64 ", heads %" PRId64
           ", kv_heads %" PRId64 ", head_dim %" PRId64 ", ffn %" PRId64 ", vocab %" PRId64
           ", max_seq %" PRId64 "\n",
           c->layers, c->hidden, c->heads, c->kv_heads, c->head_dim, c->ffn, c->vocab, c->max_seq);
    printf("settings     %s head%s%s%s%s%s, norm_eps %g", c->tied ? "tied" : "own", c->gelu_erf ? ", gelu_erf" : "",
           c->qkv_bias ? ", qkv_bias" : "",
           c->out_bias ? ", out_bias" : "", c->mlp_bias ? ", mlp_bias" : "", c->qk_norm ? ", qk_norm" : "",
           c->norm_eps);
    if (c->family == ORTH_FAMILY_LLAMA)
        printf(", rope_theta %g, rope_factor %g", c->rope_theta, c->rope_factor);
    printf("\n");
}

static orth_status print_tensors(orth_ctx *ctx, const orth_model_config *c)
{
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        if (p.num_dims == 2)
            printf("%6" PRId64 "  %-40s [%" PRId64 ", %" PRId64 "]\n", i, p.name, p.dim[0], p.dim[1]);
        else
            printf("%6" PRId64 "  %-40s [%" PRId64 "]\n", i, p.name, p.dim[0]);
    }
    return ORTH_OK;
}

static void print_special(const orth_special_tokens *s)
{
    printf("tokens       end of text");
    for (int i = 0; i < s->num_eos; i++)
        printf("%s %" PRId32, i ? "," : "", s->eos[i]);
    if (s->num_eos == 0)
        printf(" unknown");
    if (s->bos >= 0)
        printf("; begin %" PRId32, s->bos);
    if (s->pad >= 0)
        printf("; pad %" PRId32, s->pad);
    printf("\n");
}

static void print_state(const orth_checkpoint *ck)
{
    const orth_checkpoint_state *s = orth_checkpoint_get_state(ck);
    const orth_checkpoint_manifest *m = orth_checkpoint_files(ck);
    printf("step         %" PRId64 " (%" PRId64 " skipped), next sequence %" PRId64 ", %" PRId64
           " tokens, seed %" PRId64 "\n", s->step, s->skipped, s->next_sequence, s->tokens, s->seed);
    if (s->tokenizer_fingerprint)
        printf("tokenizer    %016" PRIx64 "\n", s->tokenizer_fingerprint);
    print_special(&s->special);
    for (int i = 0; i < m->num_files; i++)
        printf("%s%-24s %14" PRIu64 " bytes  %016" PRIx64 "\n", i ? "             " : "files        ",
               ORTH_SHOWN(m->files[i].name), m->files[i].num_bytes, m->files[i].hash);
}

static orth_status inspect_foreign(orth_ctx *ctx, const char *dir, bool tensors)
{
    orth_hf_source *src = NULL;
    ORTH_TRY(orth_hf_open(ctx, &src, dir));
    const orth_model_config *c = orth_hf_source_config(src);
    printf("folder       %s (Hugging Face, %" PRId64 " file%s, %s)\n", ORTH_SHOWN(dir), orth_hf_source_num_files(src),
           orth_hf_source_num_files(src) == 1 ? "" : "s", orth_dtype_name(orth_hf_source_dtype(src, 0)));
    print_model(c);
    orth_status s = tensors ? print_tensors(ctx, c) : ORTH_OK;
    orth_hf_close(ctx, src);
    return s;
}

/* For orth_checkpoint_read_weights. */
static orth_status inspect_own(orth_ctx *ctx, void *with_tensors, const char *path, bool own)
{
    const bool tensors = *(bool *)with_tensors;
    orth_checkpoint *ck = NULL;
    if (!own)
        return inspect_foreign(ctx, path, tensors);
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, path));
    printf("checkpoint   %s (verified)\n", ORTH_SHOWN(path));
    print_model(orth_checkpoint_config(ck));
    print_state(ck);
    orth_status s = tensors ? print_tensors(ctx, orth_checkpoint_config(ck)) : ORTH_OK;
    orth_checkpoint_close(ctx, ck);
    return s;
}

/* Whether `dir` is a folder of Hugging Face's: a config without our state beside it. */
static orth_status is_foreign(orth_ctx *ctx, const char *dir, bool *out)
{
    bool config = false, state = false;
    ORTH_TRY(orth_path_holds(ctx, dir, "config.json", &config));
    ORTH_TRY(orth_path_holds(ctx, dir, "state.json", &state));
    *out = config && !state;
    return ORTH_OK;
}

static orth_status inspect(orth_ctx *ctx, const orth_cmd *cmd)
{
    bool tensors = orth_cmd_flag(cmd, "tensors") != NULL;
    return orth_checkpoint_read_weights(ctx, cmd->words[1], inspect_own, &tensors);
}

/* ---- verify ---- */

static orth_status verify_own(orth_ctx *ctx, const char *path)
{
    ORTH_TRY(orth_checkpoint_verify(ctx, path));
    printf("%s: valid\n", ORTH_SHOWN(path));
    return ORTH_OK;
}

/* Reads parameter i of a folder of Hugging Face. Weights that are not finite would end the first run that uses them. */
static orth_status read_finite(orth_ctx *ctx, const orth_hf_source *src, int64_t i, const char *dir, float *values)
{
    orth_param p;
    ORTH_TRY(orth_model_param(ctx, orth_hf_source_config(src), i, &p));
    ORTH_TRY(orth_hf_read_param(ctx, src, i, values));
    const int64_t n = orth_param_elems(&p);
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(values[k]))
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: a weight of %s is %s: weights must be finite", dir, p.name,
                             isnan(values[k]) ? "NaN" : "infinite");
    return ORTH_OK;
}

static orth_status read_all_finite(orth_ctx *ctx, const orth_hf_source *src, const char *dir)
{
    const orth_model_config *c = orth_hf_source_config(src);
    orth_status s = ORTH_OK;
    for (int64_t i = 0; i < orth_model_num_params(c) && s == ORTH_OK; i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        float *values = ORTH_NEW_ARRAY(ctx, float, orth_param_elems(&p));
        s = values ? read_finite(ctx, src, i, dir, values) : ORTH_ERR_NOMEM;
        orth_mem_free(ctx, values);
    }
    return s;
}

static orth_status verify_foreign(orth_ctx *ctx, const char *path)
{
    orth_hf_source *src = NULL;
    ORTH_TRY(orth_hf_open(ctx, &src, path));
    const orth_status s = read_all_finite(ctx, src, path);
    orth_hf_close(ctx, src);
    if (s != ORTH_OK)
        return s;
    printf("%s: valid (no checksums in this form)\n", ORTH_SHOWN(path));
    return ORTH_OK;
}

/* All of them are looked at; the first damage decides the exit code. A run may go on beside this and remove some. */
static orth_status verify_steps(orth_ctx *ctx, const char *dir, int64_t *out_num)
{
    int64_t *steps = NULL;
    ORTH_TRY(orth_checkpoint_list(ctx, dir, &steps, out_num));
    orth_status first = ORTH_OK;
    orth_error error = {0};
    for (int64_t i = 0; i < *out_num; i++) {
        char *path = orth_checkpoint_step_path(ctx, dir, steps[i]);
        orth_status s = path ? verify_own(ctx, path) : ORTH_ERR_NOMEM;
        if (s != ORTH_OK && path && !orth_path_exists(path)) {
            printf("%s: was removed by its run\n", ORTH_SHOWN(path));
            orth_ctx_clear_error(ctx);
        } else if (s != ORTH_OK) {
            printf("%s: %s: %s\n", ORTH_SHOWN(path ? path : dir), s == ORTH_ERR_DATA ? "DAMAGED" : "NOT VERIFIED",
                   ORTH_SHOWN(ctx->error.message));
            if (first == ORTH_OK) {
                first = s;
                error = ctx->error;
            }
            orth_ctx_clear_error(ctx);
        }
        orth_mem_free(ctx, path);
    }
    orth_mem_free(ctx, steps);
    if (first != ORTH_OK)
        ctx->error = error;
    return first;
}

static orth_status verify(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *dir = cmd->words[1];
    int64_t n = 0;
    ORTH_TRY(verify_steps(ctx, dir, &n));
    if (n > 0)
        return ORTH_OK;
    char *below = orth_path_join(ctx, dir, "checkpoints");
    orth_status s = below ? verify_steps(ctx, below, &n) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, below);
    if (s != ORTH_OK || n > 0)
        return s;
    bool foreign = false, optimizer = false;
    ORTH_TRY(is_foreign(ctx, dir, &foreign));
    ORTH_TRY(orth_path_holds(ctx, dir, "optimizer.safetensors", &optimizer)); /* only we write one: ours, though its state may be lost */
    if (optimizer)
        return verify_own(ctx, dir);
    if (foreign)
        return verify_foreign(ctx, dir);
    char *path = NULL;
    s = orth_checkpoint_resolve(ctx, dir, &path);
    if (s == ORTH_OK)
        s = verify_own(ctx, path);
    orth_mem_free(ctx, path);
    return s;
}

/* ---- import and export ---- */

/* Weights written over others would be a mixture of files, or lose those. What a run keeps, and prepared data, are named. */
static orth_status require_new(orth_ctx *ctx, const char *out)
{
    static const char *const names[] = {"run.yaml", "checkpoints", "state.json", "dataset.json"};
    for (int i = 0; i < ORTH_COUNT(names); i++) {
        bool there;
        ORTH_TRY(orth_path_holds(ctx, out, names[i], &there));
        if (there)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: belongs to %s (it holds %s): give another folder", out,
                             strcmp(names[i], "dataset.json") == 0 ? "prepared data" : "a run", names[i]);
    }
    bool there;
    ORTH_TRY(orth_path_look(ctx, out, &there));
    if (there && !orth_path_is_empty_dir(out))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: exists already, and nothing in it is replaced: give another folder, or remove this one first", out);
    return ORTH_OK;
}

static orth_status save_import(orth_ctx *ctx, const orth_model_config *c, const weights *w, const beside *b,
                               const char *dir, const char *out)
{
    const orth_checkpoint_view view = {
        .config = *c, .state = {.loss_scale = 1.0, .special = b->special}, .weight_dtype = ORTH_F32,
        .arrays = w->arrays, .num_arrays = w->num, .tokenizer = b->tokenizer, .tokenizer_bytes = b->tokenizer_bytes,
        .tokenizer_config = b->tokenizer_config,
    };
    char *path = NULL;
    orth_result_folder folder;
    ORTH_TRY(orth_result_folder_begin(ctx, &folder, out));
    ORTH_TRY(orth_result_folder_end(&folder, orth_checkpoint_save(ctx, out, &view, &path)));
    printf("%s: %" PRId64 " parameters of %s%s\n", ORTH_SHOWN(path), orth_model_num_elems(c), ORTH_SHOWN(dir),
           b->tokenizer ? ", with its tokenizer" : "");
    orth_mem_free(ctx, path);
    return ORTH_OK;
}

static orth_status import_from(orth_ctx *ctx, const orth_hf_source *src, weights *w, const char *dir,
                               const char *out)
{
    const orth_model_config *c = orth_hf_source_config(src);
    beside b = {.special = ORTH_NO_SPECIAL_TOKENS};
    ORTH_TRY(weights_alloc(ctx, w, c));
    for (int64_t i = 0; i < w->num; i++)
        ORTH_TRY(read_finite(ctx, src, i, dir, w->values[i]));
    orth_status s = beside_read(ctx, &b, dir, NULL, c->max_seq);
    if (s == ORTH_OK)
        s = save_import(ctx, c, w, &b, dir, out);
    beside_free(ctx, &b);
    return s;
}

static orth_status import(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_hf_source *src = NULL;
    weights w = {0};
    ORTH_TRY(require_new(ctx, cmd->words[2]));
    ORTH_TRY(orth_hf_open(ctx, &src, cmd->words[1]));
    orth_status s = import_from(ctx, src, &w, cmd->words[1], cmd->words[2]);
    orth_arena_release(ctx, &w.arena);
    orth_hf_close(ctx, src);
    return s;
}

static orth_status parse_dtype(orth_ctx *ctx, const orth_cmd *cmd, orth_dtype *out)
{
    const char *name = orth_cmd_flag(cmd, "dtype");
    *out = ORTH_F32;
    if (!name)
        return ORTH_OK;
    for (orth_dtype t = ORTH_F32; t <= ORTH_F16; t++) {
        if (strcmp(name, orth_dtype_name(t)) == 0) {
            *out = t;
            return ORTH_OK;
        }
    }
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--dtype=%s is not one of fp32, bf16, fp16", name);
}

/* A number that a narrow type turns into an infinity would end the first run that uses it. */
static orth_status require_fits(orth_ctx *ctx, const orth_model_config *c, const weights *w, orth_dtype dtype)
{
    for (int64_t i = 0; i < w->num && dtype != ORTH_F32; i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        const int64_t n = orth_param_elems(&p);
        for (int64_t k = 0; k < n; k++) {
            float narrow;
            orth_store_f32(&narrow, dtype, 0, w->values[i][k]);
            if (isfinite(w->values[i][k]) && !isfinite(orth_load_f32(&narrow, dtype, 0)))
                return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--dtype=%s: a weight of %s is %g, beyond the largest %s: %s", orth_dtype_name(dtype), p.name,
                                 w->values[i][k], orth_dtype_name(dtype), dtype == ORTH_F16 ? "bf16 and fp32 hold it" : "fp32 holds it");
        }
    }
    return ORTH_OK;
}

static orth_status export_weights(orth_ctx *ctx, const orth_checkpoint *ck, const weights *w, const char *path,
                                  const char *out, orth_dtype dtype)
{
    const orth_model_config *c = orth_checkpoint_config(ck);
    beside b = {.special = ORTH_NO_SPECIAL_TOKENS};
    orth_status s = beside_read(ctx, &b, path, &orth_checkpoint_get_state(ck)->special, c->max_seq);
    if (s == ORTH_OK && !b.tokenizer && orth_checkpoint_manifest_find(orth_checkpoint_files(ck), "tokenizer.json"))
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: was removed while it was read", path);
    const orth_hf_beside files = {&b.special, b.tokenizer, b.tokenizer_bytes, b.tokenizer_config};
    if (s == ORTH_OK)
        s = orth_hf_write_folder(ctx, out, c, (const float *const *)w->values, dtype, &files);
    if (s == ORTH_OK && b.other_pattern && orth_hf_is_qwen2(c))
        orth_log(ctx, ORTH_LOG_WARN, "export", "%s: Transformers takes it for Qwen2, whose AutoTokenizer cuts words its own way: "
                 "load this tokenizer by PreTrainedTokenizerFast.from_pretrained", out);
    beside_free(ctx, &b);
    return s;
}

typedef struct {
    const char *out;
    orth_dtype dtype;
} export_job;

/* For orth_checkpoint_read_weights. */
static orth_status export_from(orth_ctx *ctx, void *user, const char *path, bool own)
{
    const export_job *job = user;
    orth_checkpoint *ck = NULL;
    weights w = {0};
    if (!own)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: holds no valid checkpoint", path);
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, path));
    const orth_model_config *c = orth_checkpoint_config(ck);
    orth_status s = weights_alloc(ctx, &w, c);
    if (s == ORTH_OK)
        s = orth_checkpoint_load(ctx, ck, w.arrays, w.num);
    if (s == ORTH_OK)
        s = require_fits(ctx, c, &w, job->dtype);
    if (s == ORTH_OK)
        s = export_weights(ctx, ck, &w, path, job->out, job->dtype);
    if (s == ORTH_OK)
        printf("%s: %" PRId64 " parameters in %s, of %s%s\n", ORTH_SHOWN(job->out), orth_model_num_elems(c),
               orth_dtype_name(job->dtype), ORTH_SHOWN(path),
               orth_hf_has_family(c) ? "" : "; no family of Transformers has these biases and norms: only Orthant reads it");
    orth_arena_release(ctx, &w.arena);
    orth_checkpoint_close(ctx, ck);
    return s;
}

static orth_status export(orth_ctx *ctx, const orth_cmd *cmd)
{
    export_job job = {.out = cmd->words[2]};
    ORTH_TRY(parse_dtype(ctx, cmd, &job.dtype));
    ORTH_TRY(require_new(ctx, job.out));
    return orth_checkpoint_read_weights(ctx, cmd->words[1], export_from, &job);
}

orth_status orth_cmd_ckpt(orth_ctx *ctx, const orth_cmd *cmd)
{
    static const struct {
        const char *name, *usage;
        int num_words;
        orth_cmd_fn run;
    } verbs[] = {
        {"inspect", "DIR", 2, inspect},
        {"verify", "DIR", 2, verify},
        {"import", "HF_DIR OUT", 3, import},
        {"export", "CHECKPOINT OUT", 3, export},
    };
    const char *word = cmd->num_words > 0 ? cmd->words[0] : "";
    for (int i = 0; i < ORTH_COUNT(verbs); i++) {
        if (strcmp(word, verbs[i].name) != 0)
            continue;
        if (cmd->num_words != verbs[i].num_words)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "ckpt %s: %d words given; it takes: ckpt %s %s", word,
                             cmd->num_words - 1, word, verbs[i].usage);
        return verbs[i].run(ctx, cmd);
    }
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, *word ? "ckpt: '%s' is not one of inspect, verify, import, export"
                                               : "ckpt%s: say which: inspect, verify, import, export", word);
}
