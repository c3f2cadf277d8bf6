/* resume.h -- what a resumed run must have in common with the run it continues, so that resuming does not
 * show in a bit. What may differ (steps, layout, machine, intervals, folders) is what no numbers follow from:
 * options.def says which keys do (NUMBERS); of layouts, asynchronous schedules and the parts of fast mode with moments in 8 bits.
 */
#ifndef ORTH_TRAIN_RESUME_H
#define ORTH_TRAIN_RESUME_H

#include "config/config.h"
#include "data/data.h"

/* Compares the run file with the options recorded in checkpoint folder `dir`. ORTH_ERR_ARG naming the first
 * key that differs, its place and both values. Cheap: comes before the data are prepared. `override`: the learning rate and its
 * schedule (optimizer.lr, lr_scaling, lr_base_batch, schedule.*) may differ if a step is left; run.yaml and the checkpoints to come record them. */
orth_status orth_resume_check_options(orth_ctx *ctx, const orth_config *cfg, const char *dir, bool override);

/* The same for what the options led to: training tokens (ORTH_ERR_ARG), tokenizer (ORTH_ERR_DATA), and the
 * place in the data, which must be that of the step. */
orth_status orth_resume_check_data(orth_ctx *ctx, const orth_config *cfg, const orth_data *data, const char *dir);

/* Steps that the run of the checkpoint in `dir` has done. ORTH_ERR_DATA, ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_resume_step(orth_ctx *ctx, const char *dir, int64_t *out);

/* Logs a warning if the learning rate goes on otherwise than the checkpoint's run would have: train.steps moves the end of a
 * schedule, `override` its values. Nothing if no step is left. After train.epochs has become train.steps. */
orth_status orth_resume_tell_lr(orth_ctx *ctx, const orth_config *cfg, const char *dir);

/* Calls tell for each key that `override` changes, with its values then and now; an error of tell ends it. */
typedef orth_status (*orth_override_fn)(orth_ctx *ctx, void *user, const char *key, const char *was, const char *now);
orth_status orth_resume_overrides(orth_ctx *ctx, const orth_config *cfg, const char *dir, orth_override_fn tell, void *user);

#endif
