/* factors.h -- rules about single parameters, by patterns of their names: factors of learning rate and weight decay, freezing.
 *
 * A word of a factor is PATTERN=FACTOR, a word of a freezing PATTERN or !PATTERN. It is about each parameter whose name in the
 * registry (registry.h) the whole pattern matches; a pattern that matches none of these is compared with Hugging Face's names, with
 * the prefix ("model.", "transformer.") and without. Of several words about a parameter the last one counts. In a pattern `*` stands
 * for any characters, `?` for one. Where embedding and head are one weight, the head's names are also its names.
 * Several of Hugging Face's tensors may make up one parameter (q_proj, k_proj and v_proj): the words must then say the same of all.
 */
#ifndef ORTH_MODEL_FACTORS_H
#define ORTH_MODEL_FACTORS_H

#include "model/registry.h"

#define ORTH_FACTOR_MAX 1000.0

typedef struct {
    const char *key;              /* of the run file, for messages */
    int32_t num;
    const char *const *word;      /* [num] */
} orth_factors;

/* NULL where `word` is PATTERN=FACTOR with a factor in [0, ORTH_FACTOR_MAX]; else why not. */
const char *orth_factor_word_check(const char *word);
/* factor [num_params]: of the parameters that some word is about. ORTH_ERR_ARG for a word that is not well-formed or about no
 * parameter of the model, and for words that differ about the parts of a parameter; ORTH_ERR_NOMEM. */
orth_status orth_factors_resolve(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c, float *factor);
/* about [f->num]: whether the word is about any parameter that is not frozen. Of words that orth_factors_resolve takes. ORTH_ERR_NOMEM. */
orth_status orth_factors_about_trained(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c, const bool *frozen, bool *about);
/* frozen [num_params]: whether the last word about the parameter has no '!'; false where there is none. Errors as above, and
 * ORTH_ERR_ARG where no parameter is left to be trained. */
orth_status orth_freeze_resolve(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c, bool *frozen);

#endif
