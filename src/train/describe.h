/* describe.h -- the program of a run file without its data: for plan, explain and bench. */
#ifndef ORTH_TRAIN_DESCRIBE_H
#define ORTH_TRAIN_DESCRIBE_H

#include "train/setup.h"

/* Vocabulary that the model would have: model.vocab or the preset's, else that of the tokenizer or the
 * prepared data that the run file names, else what a tokenizer trained for it would have. */
#define ORTH_AUTO_VOCAB 4096
orth_status orth_describe_model(orth_ctx *ctx, const orth_config *cfg, orth_model_config *out);

/* Model and unit of one training step. */
orth_status orth_describe_step(orth_ctx *ctx, const orth_config *cfg, orth_model_config *model, orth_unit *unit);

#endif
