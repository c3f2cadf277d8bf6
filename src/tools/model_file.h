/* model_file.h -- a checkpoint or a Hugging Face folder, opened for use: generate and eval. */
#ifndef ORTH_TOOLS_MODEL_FILE_H
#define ORTH_TOOLS_MODEL_FILE_H

#include "config/config.h"
#include "ckpt/hf.h"
#include "data/tokenizer.h"
#include "run/executor.h"
#include "train/setup.h"

typedef struct {
    char *folder;                 /* the one that holds model.safetensors */
    orth_hf_source *source;
    orth_model_config model;      /* dropout 0 */
    orth_tokenizer *tokenizer;    /* NULL: none beside the weights */
    orth_config run;              /* of the run that made it; defaults for a Hugging Face folder */
    bool has_run;                 /* run is initialised */
    bool own;                     /* it is a checkpoint */
    bool has_lock;
    int lock;                     /* shared, on the folder: retention leaves a checkpoint that is in use */
} orth_model_file;

/* `path`: a run folder, its checkpoints, one checkpoint, or a Hugging Face folder. ORTH_ERR_DATA,
 * ORTH_ERR_IO, ORTH_ERR_NOMEM. On failure there is nothing to close. */
orth_status orth_model_file_open(orth_ctx *ctx, orth_model_file *f, const char *path);
/* What `given`, the options of a verb that uses the model, says instead of the options of the run; data.tokenizer, for
 * weights that have none beside them. ORTH_ERR_ARG, ORTH_ERR_DATA (another tokenizer than the one beside the weights). */
orth_status orth_model_file_use(orth_ctx *ctx, orth_model_file *f, const orth_config *given);
void orth_model_file_close(orth_ctx *ctx, orth_model_file *f);

/* Fills masters, and copies in the compute type, of the executor of `u`; either may be missing for a
 * parameter. And delayed scales, which only checkpoints have: else ORTH_ERR_DATA. */
orth_status orth_model_file_fill(orth_ctx *ctx, const orth_model_file *f, const orth_compiled *u, orth_executor *e);

#endif
