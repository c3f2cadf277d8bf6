/* cases_check.c -- what a case may say. A value that cannot be is refused with the file, the case, the key and the rule; read without a word, it would
 * be predicted as something else than it says. */
#include <math.h>

#include "config/config.h"
#include "plan/cases_impl.h"

double case_number(const json_t *o, const char *key, double missing)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : missing;
}

const char *case_word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* ---- kinds of values ---- */

typedef enum {
    FIELD_COUNT,    /* a whole number */
    FIELD_NUMBER,
    FIELD_FLAG,     /* true or false */
    FIELD_TEXT,
    FIELD_WORD,     /* one of `words` */
    FIELD_PHRASE,   /* text with one of `words` in it */
    FIELD_VERSION,  /* true, false or one of `words` */
    FIELD_OBJECT,
    FIELD_NOTE,     /* describes the run to people: whatever it is, nothing reads it */
} field_kind;

typedef struct {
    const char *object, *key;   /* object "": of the case itself */
    field_kind kind;
    const char *words[8];
} field;

/* All that is read, and of model, hardware and layout what else there may be. Each may be null, which says that the source does not say, unless a
 * rule below wants it. */
static const field fields[] = {
    {"", "id", FIELD_TEXT},
    {"", "family", FIELD_TEXT},
    {"", "group", FIELD_TEXT},
    {"", "time_tier", FIELD_TEXT},
    {"", "memory_class", FIELD_TEXT},
    {"", "precision", FIELD_TEXT},
    {"", "source", FIELD_OBJECT},
    {"", "measured", FIELD_OBJECT},
    {"", "derived", FIELD_OBJECT},
    {"source", "name", FIELD_TEXT},
    {"model", "arch", FIELD_WORD, {"gpt", "llama", "moe"}},
    {"model", "layers", FIELD_COUNT},
    {"model", "hidden", FIELD_COUNT},
    {"model", "heads", FIELD_COUNT},
    {"model", "kv_heads", FIELD_COUNT},
    {"model", "head_dim", FIELD_COUNT},
    {"model", "ffn", FIELD_COUNT},
    {"model", "glu", FIELD_FLAG},
    {"model", "vocab", FIELD_COUNT},
    {"model", "tied_embeddings", FIELD_FLAG},
    {"model", "seq", FIELD_COUNT},
    {"model", "moe", FIELD_OBJECT},
    {"model", "mla", FIELD_NOTE}, /* not predicted, unless it is null */
    {"model", "name", FIELD_NOTE},
    {"model", "bias", FIELD_NOTE},
    {"model", "extra", FIELD_NOTE},
    {"model", "params_B", FIELD_NOTE},
    {"hardware", "gpu", FIELD_TEXT},
    {"hardware", "mem_GiB", FIELD_NUMBER},
    {"hardware", "peak_dense_bf16_TFLOPs", FIELD_NUMBER},
    {"hardware", "peak_dense_fp8_TFLOPs", FIELD_NUMBER},
    {"hardware", "hbm_GBps", FIELD_NUMBER},
    {"hardware", "per_node", FIELD_COUNT},
    {"hardware", "intranode_GBps_per_gpu_unidir", FIELD_NUMBER},
    {"hardware", "internode_GBps_per_gpu_unidir", FIELD_NUMBER},
    {"hardware", "count", FIELD_COUNT},
    {"hardware", "intranode", FIELD_NOTE},
    {"hardware", "net_note", FIELD_NOTE},
    {"layout", "tp", FIELD_COUNT},
    {"layout", "pp", FIELD_COUNT},
    {"layout", "vpp", FIELD_COUNT},
    {"layout", "dp", FIELD_COUNT},
    {"layout", "cp", FIELD_COUNT},
    {"layout", "ep", FIELD_COUNT},
    {"layout", "etp", FIELD_COUNT},
    {"layout", "notes", FIELD_NOTE},
    {"layout", "zero_stage", FIELD_COUNT},
    {"layout", "sequence_parallel", FIELD_FLAG},
    {"layout", "micro_batch", FIELD_COUNT},
    {"layout", "global_batch_seqs", FIELD_COUNT},
    {"layout", "grad_accum", FIELD_COUNT},
    {"layout", "recompute", FIELD_WORD, {"none", "full", "selective", "selective-op", "selective-block", "gelu"}},
    {"layout", "flash_attention", FIELD_VERSION, {"v1", "v2", "v3"}},
    {"layout", "schedule", FIELD_WORD, {"1f1b", "1f1b-interleaved", "interleaved", "zb-1p", "zb-2p"}},
    {"layout", "offload", FIELD_WORD, {"none", "optimizer"}},
    {"layout", "optimizer_state", FIELD_PHRASE, {"adam-mixed", "fp32 params", "bf16 adam"}},
    {"layout", "tp_overlap", FIELD_FLAG},
    {"layout", "hsdp", FIELD_FLAG},
    {"measured", "peak_mem_GiB", FIELD_NUMBER},
    {"measured", "oom", FIELD_FLAG},
    {"measured", "tokens_per_s_per_gpu", FIELD_NUMBER},
    {"measured", "step_s", FIELD_NUMBER},
    {"measured", "step_time_s", FIELD_NUMBER},
    {"measured", "tflops_per_gpu", FIELD_NUMBER},
    {"measured", "mfu", FIELD_NUMBER},
    {"measured", "hfu", FIELD_NUMBER},
    {"measured", "mfu_peak", FIELD_WORD, {"bf16", "fp8"}},
    {"derived", "tokens_per_s_per_gpu", FIELD_NUMBER},
    {"derived", "mfu_vs_bf16_peak_pct", FIELD_NUMBER},
};

static bool has_word(const field *f, const char *text)
{
    for (int i = 0; i < ORTH_COUNT(f->words) && text && f->words[i]; i++)
        if (f->kind == FIELD_PHRASE ? strstr(text, f->words[i]) != NULL : strcmp(text, f->words[i]) == 0)
            return true;
    return false;
}

static bool is_of_kind(const field *f, const json_t *v)
{
    switch (f->kind) {
    case FIELD_COUNT: return json_is_number(v) && json_number_value(v) == floor(json_number_value(v));
    case FIELD_NUMBER: return json_is_number(v);
    case FIELD_FLAG: return json_is_boolean(v);
    case FIELD_TEXT: return json_is_string(v);
    case FIELD_WORD:
    case FIELD_PHRASE: return has_word(f, json_string_value(v));
    case FIELD_VERSION: return json_is_boolean(v) || has_word(f, json_string_value(v));
    case FIELD_OBJECT: return json_is_object(v);
    case FIELD_NOTE: return true;
    }
    return false;
}

/* "must be ...", with the words that there are. */
static void describe_rule(const field *f, char *out, size_t size)
{
    static const char *const rules[] = {[FIELD_COUNT] = "a whole number", [FIELD_NUMBER] = "a number", [FIELD_FLAG] = "true or false", [FIELD_TEXT] = "text",
                                        [FIELD_WORD] = "one of ", [FIELD_PHRASE] = "text with one of ", [FIELD_VERSION] = "true, false or one of ",
                                        [FIELD_OBJECT] = "an object", [FIELD_NOTE] = "anything"};
    size_t at = (size_t)snprintf(out, size, "%s", rules[f->kind]);
    for (int i = 0; i < ORTH_COUNT(f->words) && f->words[i] && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i > 0 ? ", " : "", f->words[i]);
}

static void show_value(const json_t *v, char *out, size_t size)
{
    if (json_is_string(v))
        snprintf(out, size, "\"%.60s\"", ORTH_SHOWN(json_string_value(v)));
    else if (json_is_number(v))
        snprintf(out, size, "%.9g", json_number_value(v));
    else
        snprintf(out, size, "%s", json_is_boolean(v) ? json_is_true(v) ? "true" : "false" : json_is_array(v) ? "a list" : "an object");
}

/* A value of another kind, or a word that there is not, would be read as none. */
static orth_status check_kinds(orth_ctx *ctx, const char *path, const json_t *c)
{
    for (int i = 0; i < ORTH_COUNT(fields); i++) {
        const field *f = &fields[i];
        const json_t *v = json_object_get(*f->object ? json_object_get(c, f->object) : c, f->key);
        char rule[128], value[96];
        if (!v || json_is_null(v) || is_of_kind(f, v))
            continue;
        describe_rule(f, rule, sizeof rule);
        show_value(v, value, sizeof value);
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': %s%s%s=%s: must be %s", path, case_word(c, "id"), f->object, *f->object ? "." : "", f->key, value,
                         rule);
    }
    return ORTH_OK;
}

/* A key that nothing reads would be predicted as if it were not there. */
static orth_status check_known(orth_ctx *ctx, const char *path, const json_t *c, const char *object)
{
    const char *names[ORTH_COUNT(fields)] = {NULL}, *key, *near;
    json_t *v;
    int n = 0;
    for (int i = 0; i < ORTH_COUNT(fields); i++)
        if (strcmp(fields[i].object, object) == 0)
            names[n++] = fields[i].key;
    json_object_foreach(json_object_get(c, object), key, v) {
        int i = 0;
        while (i < n && strcmp(names[i], key) != 0)
            i++;
        if (i < n)
            continue;
        near = orth_nearest(key, names, n);
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': %s.%s: there is no such key%s%s%s", path, case_word(c, "id"), object, ORTH_SHOWN(key),
                         near ? "; was '" : "", near ? near : "", near ? "' meant?" : "");
    }
    return ORTH_OK;
}

/* Experts of a model that has none. */
static orth_status check_experts(orth_ctx *ctx, const char *path, const json_t *c)
{
    static const char *const keys[] = {"ep", "etp"};
    const json_t *m = json_object_get(c, "model"), *l = json_object_get(c, "layout");
    if (strcmp(case_word(m, "arch"), "moe") == 0)
        return ORTH_OK;
    for (int i = 0; i < ORTH_COUNT(keys); i++)
        if (case_number(l, keys[i], 1) > 1)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.%s=%.9g: must be 1 where model.arch is not moe: there are no experts", path,
                             case_word(c, "id"), keys[i], case_number(l, keys[i], 1));
    if (json_is_object(json_object_get(m, "moe")))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': model.moe: must be null where model.arch is not moe", path, case_word(c, "id"));
    return ORTH_OK;
}

/* ---- numbers ---- */

#define MOST 1e9           /* of any number */
#define MOST_SEQUENCES 1e6 /* of a batch */
#define MOST_PASSES 1e7    /* micro-batches times chunks of the model: an estimate goes through them one by one, and keeps about 80 bytes of each */

/* What sizes may be at most: as much as the key of a run file that means the same, but for the batch. */
static double most_of(const char *object, const char *key)
{
    static const struct {
        const char *object, *key;
        orth_option_id option;
    } sizes[] = {{"model", "layers", ORTH_OPT_model_layers}, {"model", "hidden", ORTH_OPT_model_hidden}, {"model", "heads", ORTH_OPT_model_heads},
                 {"model", "kv_heads", ORTH_OPT_model_kv_heads}, {"model", "head_dim", ORTH_OPT_model_head_dim}, {"model", "ffn", ORTH_OPT_model_ffn},
                 {"model", "vocab", ORTH_OPT_model_vocab}, {"model", "seq", ORTH_OPT_data_seq_len}, {"layout", "tp", ORTH_OPT_parallel_tp},
                 {"layout", "pp", ORTH_OPT_parallel_pp}, {"layout", "vpp", ORTH_OPT_parallel_virtual_stages}, {"layout", "dp", ORTH_OPT_parallel_dp},
                 {"layout", "cp", ORTH_OPT_parallel_cp}, {"layout", "micro_batch", ORTH_OPT_train_micro_batch}};
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        if (strcmp(sizes[i].object, object) == 0 && strcmp(sizes[i].key, key) == 0)
            return orth_option_get(sizes[i].option)->max;
    return strcmp(key, "global_batch_seqs") == 0 || strcmp(key, "grad_accum") == 0 ? MOST_SEQUENCES : MOST;
}

static orth_status check_numbers(orth_ctx *ctx, const char *path, const json_t *c, const char *object)
{
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(c, object), key, v) {
        /* Without fp8 or sharding; a model without heads and the like is listed as impossible. */
        const bool zero = strcmp(key, "zero_stage") == 0 || strcmp(key, "peak_dense_fp8_TFLOPs") == 0 || strcmp(object, "model") == 0;
        const double x = json_number_value(v), most = most_of(object, key);
        if (json_is_number(v) && !(x <= most && (zero ? x >= 0 : x > 0)))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': %s.%s=%.9g: must be %s, and at most %.9g", path, case_word(c, "id"), object, key, x,
                             zero ? "0 or more" : "more than 0", most);
    }
    return ORTH_OK;
}

/* Figures that were measured, or derived from such. Of other keys, which nothing reads, no rule is known. */
static orth_status check_figures(orth_ctx *ctx, const char *path, const json_t *c)
{
    for (int i = 0; i < ORTH_COUNT(fields); i++) {
        const field *f = &fields[i];
        const bool figure = f->kind == FIELD_NUMBER && (strcmp(f->object, "measured") == 0 || strcmp(f->object, "derived") == 0);
        const double x = figure ? case_number(json_object_get(c, f->object), f->key, 1) : 1;
        if (!(x > 0 && x <= MOST))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': %s.%s=%.9g: must be more than 0, and at most %.9g", path, case_word(c, "id"), f->object, f->key, x,
                             MOST);
    }
    return ORTH_OK;
}

static orth_status check_layout(orth_ctx *ctx, const char *path, const json_t *c)
{
    const json_t *l = json_object_get(c, "layout");
    if (case_number(l, "zero_stage", 0) > 3)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.zero_stage=%.9g: must be 0, 1, 2 or 3", path, case_word(c, "id"), case_number(l, "zero_stage", 0));
    if (case_number(l, "vpp", 1) > 1 && case_number(l, "pp", 1) == 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.vpp=%.9g needs layout.pp above 1", path, case_word(c, "id"), case_number(l, "vpp", 1));
    return ORTH_OK;
}

/* global_batch_seqs = micro_batch * dp * grad_accum: any of the three may be left out. */
static orth_status check_batch(orth_ctx *ctx, const char *path, const json_t *c)
{
    const json_t *l = json_object_get(c, "layout");
    const double micro = case_number(l, "micro_batch", 0), accum = case_number(l, "grad_accum", 0), batch = case_number(l, "global_batch_seqs", 0);
    const double each = case_number(l, "dp", 1) * fmax(micro, 1) * fmax(accum, 1);
    if (micro > 0 && accum > 0 && batch > 0 && batch != each)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.grad_accum=%.9g: micro_batch * dp * grad_accum is %.9g, and must be global_batch_seqs=%.9g", path,
                         case_word(c, "id"), accum, each, batch);
    if (fmod(batch, each) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.global_batch_seqs=%.9g: must be a multiple of %s * dp = %.9g", path, case_word(c, "id"), batch,
                         accum > 0 ? "grad_accum" : "micro_batch", each);
    const double chunks = case_number(l, "pp", 1) * case_number(l, "vpp", 1), num = accum > 0 ? accum : fmax(1, batch / each);
    if (num * chunks > MOST_PASSES)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.%s=%.9g: %.9g micro-batches of a rank, times pp * vpp = %.9g, must be at most %.9g", path,
                         case_word(c, "id"), accum > 0 ? "grad_accum" : "global_batch_seqs", accum > 0 ? accum : batch, num, chunks, MOST_PASSES);
    return ORTH_OK;
}

/* What contradicts itself would be predicted as something else than it says. */
orth_status case_check(orth_ctx *ctx, const char *path, const json_t *c)
{
    static const char *const objects[] = {"model", "layout", "hardware"};
    for (int i = 0; i < ORTH_COUNT(objects); i++)
        if (!json_is_object(json_object_get(c, objects[i])))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': %s is missing: model, hardware and layout must be objects", path, case_word(c, "id"), objects[i]);
    for (int i = 0; i < ORTH_COUNT(objects); i++)
        ORTH_TRY(check_known(ctx, path, c, objects[i]));
    ORTH_TRY(check_kinds(ctx, path, c));
    ORTH_TRY(check_experts(ctx, path, c));
    for (int i = 0; i < ORTH_COUNT(objects); i++)
        ORTH_TRY(check_numbers(ctx, path, c, objects[i]));
    ORTH_TRY(check_figures(ctx, path, c));
    ORTH_TRY(check_layout(ctx, path, c));
    const json_t *l = json_object_get(c, "layout"), *h = json_object_get(c, "hardware");
    const double ranks = case_number(l, "dp", 1) * case_number(l, "tp", 1) * case_number(l, "pp", 1) * case_number(l, "cp", 1);
    const double count = case_number(h, "count", ranks);
    if (!json_is_number(json_object_get(h, "peak_dense_bf16_TFLOPs")))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': hardware.peak_dense_bf16_TFLOPs is missing: no time follows without the peak of the device", path,
                         case_word(c, "id"));
    if (count != ranks)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': hardware.count=%.9g: must be the %.9g ranks of the layout (dp * tp * pp * cp)", path,
                         case_word(c, "id"), count, ranks);
    return check_batch(ctx, path, c);
}
