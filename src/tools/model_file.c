/* model_file.c -- see model_file.h. */
#include "tools/model_file.h"

#include <inttypes.h>

#include "base/files.h"
#include "ckpt/folder.h"
#include "ckpt/folder_lock.h"
#include "data/data.h"
#include "train/weights.h"

static orth_status open_run_config(orth_ctx *ctx, orth_model_file *f, bool checkpoint)
{
    ORTH_TRY(orth_config_init(ctx, &f->run));
    f->has_run = true;
    if (!checkpoint)
        return ORTH_OK;
    orth_checkpoint *ck;
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, f->folder));
    const char *text = orth_checkpoint_run_config(ck);
    orth_status s = ORTH_OK;
    if (*text) /* imported weights come from no run */
        s = orth_config_parse(ctx, &f->run, "state.json: run options", text, strlen(text));
    orth_checkpoint_close(ctx, ck);
    return s;
}

/* For orth_checkpoint_read_weights. */
static orth_status open_folder(orth_ctx *ctx, void *user, const char *folder, bool own)
{
    orth_model_file *f = user;
    orth_model_file_close(ctx, f);
    f->own = own;
    f->folder = orth_mem_strdup(ctx, folder);
    char *tokenizer = f->folder ? orth_path_join(ctx, folder, "tokenizer.json") : NULL;
    if (!tokenizer)
        return ORTH_ERR_NOMEM;
    bool refused;
    f->lock = orth_folder_lock(folder, ORTH_LOCK_SHARED, &refused); /* its trainer leaves it here until it is closed */
    f->has_lock = f->lock >= 0;
    orth_status s = orth_hf_open(ctx, &f->source, folder);
    if (s == ORTH_OK) {
        f->model = *orth_hf_source_config(f->source);
        f->model.dropout = f->model.embed_dropout = f->model.attn_dropout = 0;
        s = open_run_config(ctx, f, own);
    }
    if (s == ORTH_OK && orth_path_exists(tokenizer))
        s = orth_tokenizer_load(ctx, &f->tokenizer, tokenizer);
    else if (s == ORTH_OK && !orth_path_exists(folder)) /* then there may have been one */
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: was removed while it was read", folder);
    orth_mem_free(ctx, tokenizer);
    return s;
}

orth_status orth_model_file_open(orth_ctx *ctx, orth_model_file *f, const char *path)
{
    *f = (orth_model_file){.folder = NULL};
    orth_status s = orth_checkpoint_read_weights(ctx, path, open_folder, f);
    if (s != ORTH_OK)
        orth_model_file_close(ctx, f);
    return s;
}

/* A tokenizer from elsewhere ends texts where the files beside the weights say so. */
static orth_status use_special(orth_ctx *ctx, orth_model_file *f)
{
    orth_special_tokens special;
    ORTH_TRY(orth_special_tokens_read(ctx, &special, f->folder, f->tokenizer));
    orth_tokenizer_set_special(f->tokenizer, &special);
    return ORTH_OK;
}

static orth_status use_tokenizer(orth_ctx *ctx, orth_model_file *f, const char *name)
{
    orth_tokenizer *t = NULL;
    ORTH_TRY(orth_tokenizer_load(ctx, &t, name));
    const uint64_t got = orth_tokenizer_fingerprint(t), own = f->tokenizer ? orth_tokenizer_fingerprint(f->tokenizer) : got;
    orth_tokenizer_free(ctx, f->tokenizer);
    f->tokenizer = t;
    ORTH_TRY(orth_tokenizer_require(ctx, name, got, f->folder, own));
    return use_special(ctx, f);
}

orth_status orth_model_file_use(orth_ctx *ctx, orth_model_file *f, const orth_config *given)
{
    ORTH_TRY(orth_config_override(ctx, &f->run, given));
    if (ORTH_CONFIG_IS_SET(given, data, path) && !ORTH_CONFIG_IS_SET(given, data, weights))
        f->run.data_weights.n = 0; /* they were of other paths */
    ORTH_TRY(orth_config_check(ctx, &f->run));
    ORTH_TRY(orth_setup_products(ctx, &f->run));
    if (ORTH_CONFIG_IS_SET(given, data, tokenizer) && !orth_data_tokenizer_is_auto(given->data_tokenizer))
        ORTH_TRY(use_tokenizer(ctx, f, given->data_tokenizer));
    return f->tokenizer ? orth_tokenizer_name_eos(ctx, f->tokenizer, given->data_eos_token.v, given->data_eos_token.n)
                        : ORTH_OK;
}

void orth_model_file_close(orth_ctx *ctx, orth_model_file *f)
{
    if (f->has_run)
        orth_config_release(ctx, &f->run);
    orth_tokenizer_free(ctx, f->tokenizer);
    orth_hf_close(ctx, f->source);
    if (f->has_lock)
        orth_folder_unlock(f->lock);
    orth_mem_free(ctx, f->folder);
    *f = (orth_model_file){.folder = NULL};
}

static orth_status read_param(orth_ctx *ctx, void *source, int64_t index, float *out)
{
    return orth_hf_read_param(ctx, source, index, out);
}

orth_status orth_model_file_fill(orth_ctx *ctx, const orth_model_file *f, const orth_compiled *u, orth_executor *e)
{
    ORTH_TRY(orth_weights_fill(ctx, &f->model, u, e, read_param, f->source));
    if (orth_executor_size(e, ORTH_BIND_DATA, ORTH_DATA_FP8_SCALES) == 0)
        return ORTH_OK;
    if (!f->own)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: is no checkpoint of Orthant: precision.products=fp8_delayed goes on with scales of earlier steps; "
                         "fp8_tensor needs none", f->folder);
    orth_checkpoint *ck;
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, f->folder));
    const orth_status s = orth_setup_load_delayed(ctx, &f->run, &f->model, ck, e);
    orth_checkpoint_close(ctx, ck);
    return s;
}
