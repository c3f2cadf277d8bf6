/* folder.h -- checkpoints by step below one folder: DIR/step-NNNNNNNN (eight digits or more).
 *
 *   DIR/.tmp-step-N  --orth_checkpoint_write, verify-->  complete  --rename-->  DIR/step-N
 *   DIR/step-N  --keep-->  DIR/.del-step-N  -->  removed
 *   DIR/step-N  --saved again-->  DIR/.old-step-N  --new one has its name-->  DIR/.del-step-N  -->  removed
 *
 * Invariants: 1. a name step-N never holds a part of a checkpoint, neither of one that is being written nor of one that is
 * being removed; 2. a checkpoint gets its name only after all of it was read back and verified, and an older one is removed
 * only after that name is on the disk (train/saver.h: and after the newer one has proved itself); 3. there is no pointer to
 * "the latest": it is the highest step that verifies, so nothing can point wrong; 4. readers change nothing: step-N, or
 * .old-step-N where a kill left only that, is what they take; 5. a folder that is being read (a shared lock, flock) is not
 * removed by `keep`, but the next time that one is removed.
 * One writer at a time per folder, beside any number of readers.
 */
#ifndef ORTH_CKPT_FOLDER_H
#define ORTH_CKPT_FOLDER_H

#include "ckpt/checkpoint.h"
#include "ckpt/folder_lock.h"

/* Saves as DIR/step-<view->state.step>, replacing one of that step, and removes what killed runs left. *out_path (heap; NULL is
 * fine) is the new folder. If anything fails, the checkpoints there were are still there. Errors as orth_checkpoint_write;
 * ORTH_ERR_DATA if what was written reads back otherwise. */
orth_status orth_checkpoint_save(orth_ctx *ctx, const char *dir, const orth_checkpoint_view *view, char **out_path);
/* The same into a folder of a run, the one that holds DIR. Where that is not `run` any more, when it begins or before the new name is given,
 * this is ORTH_ERR_IO, and what is there now is left alone. The folder of the run is not made. */
orth_status orth_checkpoint_save_in_run(orth_ctx *ctx, const orth_folder_claim *run, const char *dir, const orth_checkpoint_view *view);

/* Of the steps above `after` (-1: of all) and up to `newest`, which was saved last, removes all but the `keep` highest and `spare` (-1: none).
 * What lies outside neither counts nor goes: above is what a run passed over that went back to an older step. A failure is a warning. */
void orth_checkpoint_retain(orth_ctx *ctx, const char *dir, int64_t keep, int64_t after, int64_t newest, int64_t spare);

/* Removes a step of which the run has found that its weights give a loss that is not finite, and says so; where no older one is valid,
 * or somebody reads it, it stays. A failure is a warning. */
void orth_checkpoint_withdraw(orth_ctx *ctx, const char *dir, int64_t step);

/* For the writer, before it reads: a checkpoint whose replacement was cut off gets its name back, and what killed runs left is
 * removed (a failure to do so is a warning). A save does it, too. ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_checkpoint_tidy(orth_ctx *ctx, const char *dir);

/* The highest step that is valid, in heap memory; *out = NULL if there is none (a missing DIR is none). Damaged ones that are
 * passed over are reported as warnings; one that the writer removes meanwhile is not missed: the folder is looked at again.
 * ORTH_ERR_IO, ORTH_ERR_NOMEM: a checkpoint could not be read; none is passed over for that. */
orth_status orth_checkpoint_newest(orth_ctx *ctx, const char *dir, char **out);

/* The steps below dir, valid or not, highest first, in heap memory; a missing DIR has none. */
orth_status orth_checkpoint_list(orth_ctx *ctx, const char *dir, int64_t **out, int64_t *out_num);
/* DIR/step-NNNNNNNN in heap memory; NULL with the error recorded. */
char *orth_checkpoint_step_path(orth_ctx *ctx, const char *dir, int64_t step);

/* What a user means by `path`: itself if it is a checkpoint, else the newest of PATH, of
 * PATH/checkpoints; heap memory. ORTH_ERR_DATA if there is none. */
orth_status orth_checkpoint_resolve(orth_ctx *ctx, const char *path, char **out);

/* Calls read(user, F) for the folder F of weights that a user means by `path`: the above (own), or PATH as a Hugging Face folder,
 * which has a config.json. A run that goes on does not remove F meanwhile; where it can (a file system without locks, a step that is
 * saved again), read is called again for the next, and begins anew.
 * ORTH_ERR_DATA if path is neither, else what read returns. */
typedef orth_status (*orth_checkpoint_reader)(orth_ctx *ctx, void *user, const char *folder, bool own);
orth_status orth_checkpoint_read_weights(orth_ctx *ctx, const char *path, orth_checkpoint_reader read, void *user);

#endif
