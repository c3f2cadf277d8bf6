/* hf_write.c -- weights and folders in the form of Hugging Face. See hf.h. */
#include "ckpt/hf.h"

static int64_t count_tensors(orth_ctx *ctx, const orth_model_config *c, orth_status *status)
{
    int64_t total = 0;
    for (int64_t i = 0; i < orth_model_num_params(c) && *status == ORTH_OK; i++) {
        orth_hf_tensor t[ORTH_HF_MAX_PARTS];
        int n = 0;
        *status = orth_hf_map_param(ctx, c, i, t, &n);
        total += n;
    }
    return total;
}

/* All tensors in the order of the registry, and the specs of the file that point into them. */
static orth_status list_tensors(orth_ctx *ctx, orth_arena *arena, const orth_model_config *c,
                                orth_dtype dtype, orth_st_spec **out_specs, int64_t *out_num)
{
    orth_status s = ORTH_OK;
    const int64_t total = count_tensors(ctx, c, &s);
    if (s != ORTH_OK)
        return s;
    orth_st_spec *specs = ORTH_ARENA_ARRAY(ctx, arena, orth_st_spec, total);
    if (!specs)
        return ORTH_ERR_NOMEM;
    int64_t at = 0;
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        orth_hf_tensor t[ORTH_HF_MAX_PARTS];
        int n = 0;
        ORTH_TRY(orth_hf_map_param(ctx, c, i, t, &n));
        for (int k = 0; k < n; k++, at++) {
            specs[at] = (orth_st_spec){.dtype = dtype, .num_dims = t[k].num_dims};
            specs[at].dim[0] = t[k].dim[0];
            specs[at].dim[1] = t[k].dim[1];
            specs[at].name = orth_arena_printf(ctx, arena, "%s", t[k].name);
            if (!specs[at].name)
                return ORTH_ERR_NOMEM;
        }
    }
    *out_specs = specs;
    *out_num = total;
    return ORTH_OK;
}

static orth_status put_tensor(orth_ctx *ctx, orth_st_writer *w, const orth_hf_tensor *t, const float *ours,
                              orth_dtype dtype)
{
    const int64_t W = orth_hf_row_elems(t), block = orth_hf_block_rows(t);
    if (t->rows == ORTH_HF_ALL && !t->transposed)
        return orth_st_writer_put_f32(ctx, w, dtype, ours, t->dim[0] * W);
    float *rows = ORTH_NEW_ARRAY(ctx, float, block * W);
    if (!rows)
        return ORTH_ERR_NOMEM;
    orth_status s = ORTH_OK;
    for (int64_t i = 0; i < t->dim[0] && s == ORTH_OK; i += block) {
        int64_t n = ORTH_MIN(block, t->dim[0] - i);
        orth_hf_gather_rows(rows, t, ours, i, n);
        s = orth_st_writer_put_f32(ctx, w, dtype, rows, n * W);
    }
    orth_mem_free(ctx, rows);
    return s;
}

static orth_status put_params(orth_ctx *ctx, orth_st_writer *w, const orth_model_config *c,
                              const float *const *params, orth_hf_fetch fetch, void *user, orth_dtype dtype)
{
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        orth_hf_tensor t[ORTH_HF_MAX_PARTS];
        int n = 0;
        ORTH_TRY(orth_hf_map_param(ctx, c, i, t, &n));
        if (fetch)
            ORTH_TRY(fetch(ctx, user, i));
        for (int k = 0; k < n; k++)
            ORTH_TRY(put_tensor(ctx, w, &t[k], params[i], dtype));
    }
    return ORTH_OK;
}

orth_status orth_hf_write_weights(orth_ctx *ctx, const char *path, const orth_model_config *c,
                                  const float *const *params, orth_hf_fetch fetch, void *user, orth_dtype dtype,
                                  uint64_t *out_hash, uint64_t *out_bytes)
{
    /* Transformers refuses a file that does not say which framework it is for. */
    static const char *const metadata[] = {"format", "pt", NULL};
    if (dtype != ORTH_F32 && dtype != ORTH_BF16 && dtype != ORTH_F16)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: weights cannot be written as %s; use fp32, bf16 or fp16",
                         path, orth_dtype_name(dtype));
    orth_arena arena = {0};
    orth_st_spec *specs = NULL;
    int64_t num_specs = 0;
    orth_st_writer *w = NULL;
    orth_status s = list_tensors(ctx, &arena, c, dtype, &specs, &num_specs);
    if (s == ORTH_OK)
        s = orth_st_writer_open(ctx, &w, path, specs, num_specs, metadata);
    orth_arena_release(ctx, &arena);
    if (s != ORTH_OK)
        return s;
    s = put_params(ctx, w, c, params, fetch, user, dtype);
    if (s == ORTH_OK)
        return orth_st_writer_commit(ctx, w, out_hash, out_bytes);
    orth_st_writer_abort(ctx, w);
    return s;
}

/* `text` NULL: no memory, recorded. */
static orth_status write_in(orth_ctx *ctx, const char *dir, const char *name, const char *text,
                            size_t num_bytes)
{
    char *path = text ? orth_path_join(ctx, dir, name) : NULL;
    orth_status s = path ? orth_file_write(ctx, path, text, num_bytes) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    return s;
}

/* Takes the text. */
static orth_status write_own(orth_ctx *ctx, const char *dir, const char *name, char *text)
{
    orth_status s = write_in(ctx, dir, name, text, text ? strlen(text) : 0);
    orth_mem_free(ctx, text);
    return s;
}

static orth_status write_files(orth_ctx *ctx, const char *dir, const orth_model_config *c, const float *const *params, orth_dtype dtype,
                               const orth_hf_beside *b)
{
    char *path = orth_path_join(ctx, dir, "model.safetensors");
    if (!path)
        return ORTH_ERR_NOMEM;
    orth_status s = orth_hf_write_weights(ctx, path, c, params, NULL, NULL, dtype, NULL, NULL);
    orth_mem_free(ctx, path);
    ORTH_TRY(s);
    if (b->tokenizer)
        ORTH_TRY(write_in(ctx, dir, "tokenizer.json", b->tokenizer, b->tokenizer_bytes));
    if (b->tokenizer_config)
        ORTH_TRY(write_in(ctx, dir, "tokenizer_config.json", b->tokenizer_config, strlen(b->tokenizer_config)));
    ORTH_TRY(write_own(ctx, dir, "generation_config.json", orth_hf_generation_text(ctx, b->special)));
    return write_own(ctx, dir, "config.json", orth_hf_config_text(ctx, c, dtype, b->special));
}

orth_status orth_hf_write_folder(orth_ctx *ctx, const char *dir, const orth_model_config *c,
                                 const float *const *params, orth_dtype dtype, const orth_hf_beside *beside)
{
    static const orth_hf_beside nothing = {.special = NULL};
    orth_result_folder folder;
    ORTH_TRY(orth_result_folder_begin(ctx, &folder, dir));
    return orth_result_folder_end(&folder, write_files(ctx, dir, c, params, dtype, beside ? beside : &nothing));
}
