/* factors.h -- learning rate and weight decay of single parameters: factors by patterns of their names.
 *
 * A word PATTERN=FACTOR holds for each parameter whose name in the registry (registry.h) the whole pattern matches; of
 * several that do, the last one holds. In a pattern `*` stands for any characters, `?` for one.
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
/* The factor of the parameter `name`; `otherwise` if no pattern matches. The words have passed orth_factor_word_check. */
float orth_factor_of(const orth_factors *f, const char *name, float otherwise);
/* ORTH_ERR_ARG for a word that is not well-formed, or whose pattern matches no parameter of the model. */
orth_status orth_factors_check(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c);

#endif
