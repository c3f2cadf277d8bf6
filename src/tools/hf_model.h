/* hf_model.h -- the model of a run from a config.json of Hugging Face, without weights: for plan and search. */
#ifndef ORTH_TOOLS_HF_MODEL_H
#define ORTH_TOOLS_HF_MODEL_H

#include "config/config.h"
#include "model/config.h"

/* Sets the model.* keys of cfg to what `path`, a config.json or a folder that holds one, says: GPT-2, Llama, Mistral, Qwen2, Qwen3. What
 * became of each key of the file, or that it is not used, is listed in the log. ORTH_ERR_DATA naming the key and the rule, for a mixture of experts and other
 * kinds too; ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_hf_model_set(orth_ctx *ctx, orth_config *cfg, const char *path);
/* Sets them to the dimensions of m; `place` is where these come from. ORTH_ERR_NOMEM. */
orth_status orth_hf_model_keys(orth_ctx *ctx, orth_config *cfg, const char *place, const orth_model_config *m);

#endif
