/* folder.h -- checkpoints by step below one folder: DIR/step-NNNNNNNN (eight digits or more).
 *
 *   DIR/.tmp-step-N  --orth_checkpoint_write-->  complete  --rename-->  DIR/step-N  --keep-->  removed
 *
 * Invariants: 1. a name step-N never holds a part of a checkpoint that is being written; 2. an older
 * checkpoint is removed only after the new one has its name on the disk; 3. there is no pointer to
 * "the latest": it is the highest step that verifies, so nothing can point wrong.
 * One writer at a time per folder.
 */
#ifndef ORTH_CKPT_FOLDER_H
#define ORTH_CKPT_FOLDER_H

#include "ckpt/checkpoint.h"

/* Saves as DIR/step-<view->state.step>, replacing one of that step, then removes all but the `keep`
 * highest steps (0: removes none) and what killed runs left. *out_path (heap; NULL is fine) is the
 * new folder. If anything fails, the checkpoints there were are still there; a failure to remove old
 * ones is a warning. Errors as orth_checkpoint_write. */
orth_status orth_checkpoint_save(orth_ctx *ctx, const char *dir, const orth_checkpoint_view *view,
                                 int64_t keep, char **out_path);

/* The highest step that verifies, in heap memory; *out = NULL if there is none (a missing DIR is
 * none). Damaged ones that are passed over are reported as warnings. */
orth_status orth_checkpoint_newest(orth_ctx *ctx, const char *dir, char **out);

/* The steps below dir, valid or not, highest first, in heap memory; a missing DIR has none. */
orth_status orth_checkpoint_list(orth_ctx *ctx, const char *dir, int64_t **out, int64_t *out_num);
/* DIR/step-NNNNNNNN in heap memory; NULL with the error recorded. */
char *orth_checkpoint_step_path(orth_ctx *ctx, const char *dir, int64_t step);

/* What a user means by `path`: itself if it is a checkpoint, else the newest of PATH, of
 * PATH/checkpoints; heap memory. ORTH_ERR_DATA if there is none. */
orth_status orth_checkpoint_resolve(orth_ctx *ctx, const char *path, char **out);

/* The folder that holds the weights a user means by `path`: the above (*out_own), or PATH as a Hugging Face folder,
 * which has a config.json. ORTH_ERR_DATA if it is neither. */
orth_status orth_checkpoint_find_weights(orth_ctx *ctx, const char *path, char **out, bool *out_own);

#endif
