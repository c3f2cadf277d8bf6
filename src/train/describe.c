/* describe.c -- see describe.h. */
#include "train/describe.h"

#include "data/corpus.h"
#include "data/tokenizer.h"

static orth_status data_vocab(orth_ctx *ctx, const orth_config *cfg, int64_t *out)
{
    *out = ORTH_AUTO_VOCAB;
    if (strcmp(cfg->data_tokenizer, "auto") != 0 && cfg->data_tokenizer[0]) {
        orth_tokenizer *t;
        ORTH_TRY(orth_tokenizer_load(ctx, &t, cfg->data_tokenizer));
        *out = orth_tokenizer_vocab_size(t);
        orth_tokenizer_free(ctx, t);
    } else if (cfg->data_path.n > 0 && orth_dataset_exists(ctx, cfg->data_path.v[0])) {
        orth_dataset *d;
        ORTH_TRY(orth_dataset_open(ctx, &d, cfg->data_path.v[0]));
        *out = d->vocab_size;
        orth_dataset_close(ctx, d);
    }
    return ORTH_OK;
}

orth_status orth_describe_model(orth_ctx *ctx, const orth_config *cfg, orth_model_config *out)
{
    int64_t vocab = 0;
    if (!ORTH_CONFIG_IS_SET(cfg, model, vocab) && !cfg->model_preset[0])
        ORTH_TRY(data_vocab(ctx, cfg, &vocab));
    return orth_setup_model(ctx, cfg, vocab, out);
}

orth_status orth_describe_step(orth_ctx *ctx, const orth_config *cfg, orth_model_config *model, orth_unit *unit)
{
    ORTH_TRY(orth_describe_model(ctx, cfg, model));
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    return orth_unit_build(ctx, model, &shape, unit);
}
