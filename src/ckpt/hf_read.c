/* hf_read.c -- a folder in the form of Hugging Face, opened and read parameter by parameter. See hf.h. */
#include <inttypes.h>

#include <string.h>

#include "ckpt/hf.h"
#include "ckpt/json.h"

#define MAX_JSON_BYTES ((size_t)64 << 20)
#define MAX_SHARDS 4096

struct orth_hf_source {
    orth_model_config config;
    orth_safetensors *files;
    int64_t num_files;
    orth_arena arena;
};

/* Found in any file, with the prefix or without. */
static const orth_st_tensor *find(const orth_hf_source *src, const orth_hf_tensor *t,
                                  const orth_safetensors **out_file)
{
    for (int64_t i = 0; i < src->num_files; i++) {
        const orth_st_tensor *found = orth_safetensors_find(&src->files[i], t->name);
        if (!found)
            found = orth_safetensors_find(&src->files[i], t->name + t->prefix_chars);
        if (found) {
            *out_file = &src->files[i];
            return found;
        }
    }
    return NULL;
}

static orth_status check_tensor(orth_ctx *ctx, const orth_hf_source *src, const orth_hf_tensor *want)
{
    const orth_safetensors *file = NULL;
    const orth_st_tensor *t = find(src, want, &file);
    if (!t)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s' is missing", src->files[0].path, want->name);
    if (t->dtype != ORTH_F32 && t->dtype != ORTH_BF16 && t->dtype != ORTH_F16)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: tensor '%s' has dtype %s; weights are read as F32, BF16 or F16",
                         file->path, t->name, t->dtype_name);
    bool same = t->num_dims == want->num_dims;
    for (int i = 0; i < want->num_dims && same; i++)
        same = t->dim[i] == want->dim[i];
    if (same)
        return ORTH_OK;
    char shape[96] = "";
    for (int i = 0, at = 0; i < t->num_dims && at < 80; i++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, i ? ", %" PRId64 : "%" PRId64, t->dim[i]);
    if (want->num_dims == 1)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: tensor '%s' has shape [%s]; config.json makes it [%" PRId64 "]",
                         file->path, t->name, shape, want->dim[0]);
    return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                     "%s: tensor '%s' has shape [%s]; config.json makes it [%" PRId64 ", %" PRId64
                     "]", file->path, t->name, shape, want->dim[0], want->dim[1]);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* Masks and tables that old versions stored, and a head that the config ties to the embedding, which check_tied_head looks at. */
static bool is_harmless(const orth_hf_source *src, const char *name)
{
    const bool gpt2 = src->config.family == ORTH_FAMILY_GPT2;
    return (gpt2 && (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"))) ||
           ends_with(name, ".rotary_emb.inv_freq") ||
           (src->config.tied && strcmp(name, "lm_head.weight") == 0);
}

/* A tensor that no parameter asks for means that the config describes another model. Which one it is
 * is found by counting first, and searching only when the count is off. */
static orth_status fail_unused(orth_ctx *ctx, const orth_hf_source *src, const orth_safetensors *file,
                               const orth_st_tensor *t)
{
    for (int64_t i = 0; i < orth_model_num_params(&src->config); i++) {
        orth_hf_tensor parts[ORTH_HF_MAX_PARTS];
        int n = 0;
        ORTH_TRY(orth_hf_map_param(ctx, &src->config, i, parts, &n));
        for (int k = 0; k < n; k++)
            if (strcmp(parts[k].name, t->name) == 0 ||
                strcmp(parts[k].name + parts[k].prefix_chars, t->name) == 0)
                return ORTH_OK;
    }
    return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                     "%s: tensor '%s' is not part of the model that config.json describes",
                     file->path, t->name);
}

static orth_status check_all(orth_ctx *ctx, const orth_hf_source *src)
{
    int64_t wanted = 0, there = 0;
    for (int64_t i = 0; i < orth_model_num_params(&src->config); i++) {
        orth_hf_tensor parts[ORTH_HF_MAX_PARTS];
        int n = 0;
        ORTH_TRY(orth_hf_map_param(ctx, &src->config, i, parts, &n));
        for (int k = 0; k < n; k++)
            ORTH_TRY(check_tensor(ctx, src, &parts[k]));
        wanted += n;
    }
    for (int64_t f = 0; f < src->num_files; f++)
        for (int64_t i = 0; i < src->files[f].num_tensors; i++)
            there += !is_harmless(src, src->files[f].tensors[i].name);
    if (there == wanted)
        return ORTH_OK;
    for (int64_t f = 0; f < src->num_files; f++) {
        for (int64_t i = 0; i < src->files[f].num_tensors; i++) {
            const orth_st_tensor *t = &src->files[f].tensors[i];
            if (!is_harmless(src, t->name))
                ORTH_TRY(fail_unused(ctx, src, &src->files[f], t));
        }
    }
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: some tensors are there twice", src->files[0].path);
}

/* Whether both have the same shape and values. */
static orth_status same_values(orth_ctx *ctx, const orth_st_tensor *a, const orth_st_tensor *b, bool *out)
{
    enum { BLOCK = 1 << 16 };
    *out = a->num_dims == b->num_dims && memcmp(a->dim, b->dim, (size_t)a->num_dims * sizeof *a->dim) == 0;
    if (!*out || (a->dtype == b->dtype && memcmp(a->data, b->data, a->num_bytes) == 0))
        return ORTH_OK;
    *out = a->dtype == ORTH_F32 || a->dtype == ORTH_BF16 || a->dtype == ORTH_F16;
    float *values = ORTH_NEW_ARRAY(ctx, float, 2 * BLOCK);
    if (!values)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < a->elems && *out; i += BLOCK) {
        const int64_t n = ORTH_MIN(a->elems - i, BLOCK);
        orth_st_load_f32(values, a, i, n);
        orth_st_load_f32(values + BLOCK, b, i, n);
        for (int64_t k = 0; k < n && *out; k++)
            *out = values[k] == values[BLOCK + k];
    }
    orth_mem_free(ctx, values);
    return ORTH_OK;
}

/* What a message says of a config that ties. */
static orth_status say_tied(orth_ctx *ctx, const char *dir, const char **out)
{
    json_t *root = NULL;
    char *path = orth_path_join(ctx, dir, "config.json");
    const orth_status s = path ? orth_json_read(ctx, &root, path, MAX_JSON_BYTES) : ORTH_ERR_NOMEM;
    const json_t *tied = json_object_get(root, "tie_word_embeddings");
    *out = tied && !json_is_null(tied) ? "true" : "absent, which means true";
    json_decref(root);
    orth_mem_free(ctx, path);
    return s;
}

/* Transformers does not tie a head that differs, whatever the config says; so it is not dropped here. */
static orth_status check_tied_head(orth_ctx *ctx, const orth_hf_source *src, const char *dir)
{
    const orth_safetensors *file;
    const orth_hf_tensor head = {.name = "lm_head.weight"};
    const orth_st_tensor *t = src->config.tied ? find(src, &head, &file) : NULL;
    orth_hf_tensor embed[ORTH_HF_MAX_PARTS];
    int n = 0;
    bool same = true;
    if (!t)
        return ORTH_OK;
    ORTH_TRY(orth_hf_map_param(ctx, &src->config, orth_model_param_find(&src->config, "embed.weight"), embed, &n));
    const orth_safetensors *other;
    ORTH_TRY(same_values(ctx, t, find(src, &embed[0], &other), &same));
    if (same)
        return ORTH_OK;
    const char *said;
    ORTH_TRY(say_tied(ctx, dir, &said));
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: lm_head.weight differs from the embedding, but tie_word_embeddings is %s (config.json): set it to false if the "
                     "head is its own", file->path, said);
}

/* ---- opening ---- */

/* Shards may not lead out of the folder. */
static orth_status check_shard_name(orth_ctx *ctx, const char *index_path, const char *tensor,
                                    const char *file)
{
    if (!file || file[0] == '\0' || file[0] == '.' || strchr(file, '/') || strlen(file) > 200)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: weight_map: the file of '%.100s' is not a name in this folder",
                         index_path, tensor);
    return ORTH_OK;
}

/* The distinct file names of an index, as long-lived strings. */
static orth_status list_shards(orth_ctx *ctx, orth_hf_source *src, const char *index_path, const json_t *map,
                               const char **names, int64_t *out_num)
{
    const char *tensor;
    json_t *value;
    int64_t n = 0;
    json_object_foreach((json_t *)map, tensor, value) {
        const char *file = json_string_value(value);
        ORTH_TRY(check_shard_name(ctx, index_path, tensor, file));
        int64_t i = 0;
        while (i < n && strcmp(names[i], file) != 0)
            i++;
        if (i < n)
            continue;
        if (n == MAX_SHARDS)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: weight_map names more than %d files", index_path,
                             MAX_SHARDS);
        names[n] = orth_arena_printf(ctx, &src->arena, "%s", file);
        if (!names[n++])
            return ORTH_ERR_NOMEM;
    }
    if (n == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: weight_map names no file", index_path);
    *out_num = n;
    return ORTH_OK;
}

/* Each name of the index must be in the file that the index says. */
static orth_status check_index(orth_ctx *ctx, const orth_hf_source *src, const char *index_path,
                               const json_t *map, const char *const *names)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map, tensor, value) {
        int64_t i = 0;
        while (i + 1 < src->num_files && strcmp(names[i], json_string_value(value)) != 0)
            i++;
        if (!orth_safetensors_find(&src->files[i], tensor))
            return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                             "%s: tensor '%.200s' is not in %s, where weight_map says it is",
                             index_path, tensor, names[i]);
    }
    return ORTH_OK;
}

static orth_status open_files(orth_ctx *ctx, orth_hf_source *src, const char *dir, const char *const *names,
                              int64_t n)
{
    src->files = ORTH_ARENA_ARRAY(ctx, &src->arena, orth_safetensors, n);
    if (!src->files)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        char *path = orth_path_join(ctx, dir, names[i]);
        if (!path)
            return ORTH_ERR_NOMEM;
        orth_status s = orth_safetensors_open(ctx, &src->files[i], path);
        orth_mem_free(ctx, path);
        ORTH_TRY(s);
        src->num_files = i + 1;
    }
    return ORTH_OK;
}

static orth_status open_sharded(orth_ctx *ctx, orth_hf_source *src, const char *dir, const char *index_path)
{
    json_t *root = NULL;
    ORTH_TRY(orth_json_read(ctx, &root, index_path, MAX_JSON_BYTES));
    const json_t *map = json_object_get(root, "weight_map");
    int64_t n = 0;
    const char **names = ORTH_ARENA_ARRAY(ctx, &src->arena, const char *, MAX_SHARDS);
    orth_status s = !names ? ORTH_ERR_NOMEM
                    : !json_is_object(map) ? ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: weight_map is missing",
                                                       index_path)
                                           : list_shards(ctx, src, index_path, map, names, &n);
    if (s == ORTH_OK)
        s = open_files(ctx, src, dir, names, n);
    if (s == ORTH_OK)
        s = check_index(ctx, src, index_path, map, names);
    json_decref(root);
    return s;
}

static orth_status open_weights(orth_ctx *ctx, orth_hf_source *src, const char *dir)
{
    static const char *const single[] = {"model.safetensors"};
    char *path = orth_path_join(ctx, dir, single[0]);
    char *index = path ? orth_path_join(ctx, dir, "model.safetensors.index.json") : NULL;
    orth_status s = ORTH_ERR_NOMEM;
    if (index && orth_path_exists(path))
        s = open_files(ctx, src, dir, single, 1);
    else if (index && orth_path_exists(index))
        s = open_sharded(ctx, src, dir, index);
    else if (index)
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA,
                      "%s: holds neither model.safetensors nor model.safetensors.index.json "
                      "(other forms of weights are not read)", dir);
    orth_mem_free(ctx, path);
    orth_mem_free(ctx, index);
    return s;
}

static orth_status read_config(orth_ctx *ctx, orth_hf_source *src, const char *dir)
{
    char *path = orth_path_join(ctx, dir, "config.json"), *text = NULL;
    size_t n = 0;
    orth_status s = path ? orth_file_read(ctx, path, &text, &n) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_hf_config_parse(ctx, &src->config, path, text, n);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, path);
    return s;
}

orth_status orth_hf_open(orth_ctx *ctx, orth_hf_source **out, const char *dir)
{
    orth_hf_source *src = ORTH_NEW(ctx, orth_hf_source);
    if (!src)
        return ORTH_ERR_NOMEM;
    orth_status s = read_config(ctx, src, dir);
    if (s == ORTH_OK)
        s = open_weights(ctx, src, dir);
    if (s == ORTH_OK)
        s = check_all(ctx, src);
    if (s == ORTH_OK)
        s = check_tied_head(ctx, src, dir);
    if (s == ORTH_OK)
        *out = src;
    else
        orth_hf_close(ctx, src);
    return s;
}

void orth_hf_close(orth_ctx *ctx, orth_hf_source *src)
{
    if (!src)
        return;
    for (int64_t i = 0; i < src->num_files; i++)
        orth_safetensors_close(ctx, &src->files[i]);
    orth_arena_release(ctx, &src->arena);
    orth_mem_free(ctx, src);
}

/* ---- reading ---- */

const orth_model_config *orth_hf_source_config(const orth_hf_source *src)
{
    return &src->config;
}

int64_t orth_hf_source_num_files(const orth_hf_source *src)
{
    return src->num_files;
}

orth_dtype orth_hf_source_dtype(const orth_hf_source *src, int64_t index)
{
    orth_ctx probe = {0};
    orth_hf_tensor parts[ORTH_HF_MAX_PARTS];
    const orth_safetensors *file;
    int n = 0;
    if (orth_hf_map_param(&probe, &src->config, index, parts, &n) != ORTH_OK)
        return ORTH_F32;
    return find(src, &parts[0], &file)->dtype;
}

static orth_status read_part(orth_ctx *ctx, const orth_hf_source *src, const orth_hf_tensor *part, float *out)
{
    const orth_safetensors *file;
    const orth_st_tensor *t = find(src, part, &file);
    const int64_t W = orth_hf_row_elems(part), block = orth_hf_block_rows(part);
    if (part->rows == ORTH_HF_ALL && !part->transposed) {
        orth_st_load_f32(out, t, 0, t->elems);
        return ORTH_OK;
    }
    float *rows = ORTH_NEW_ARRAY(ctx, float, block * W);
    if (!rows)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < part->dim[0]; i += block) {
        int64_t n = ORTH_MIN(block, part->dim[0] - i);
        orth_st_load_f32(rows, t, i * W, n * W);
        orth_hf_scatter_rows(out, part, rows, i, n);
    }
    orth_mem_free(ctx, rows);
    return ORTH_OK;
}

orth_status orth_hf_read_param(orth_ctx *ctx, const orth_hf_source *src, int64_t index, float *out)
{
    orth_hf_tensor parts[ORTH_HF_MAX_PARTS];
    int n = 0;
    ORTH_TRY(orth_hf_map_param(ctx, &src->config, index, parts, &n));
    for (int k = 0; k < n; k++)
        ORTH_TRY(read_part(ctx, src, &parts[k], out));
    return ORTH_OK;
}
