/* leftovers.h -- what killed processes left in a run folder beside checkpoints (orth_checkpoint_tidy has those). */
#ifndef ORTH_TRAIN_LEFTOVERS_H
#define ORTH_TRAIN_LEFTOVERS_H

#include "base/ctx.h"

/* For who has the lock of the folder. Removes from `run` and `data`, the folder of what runs prepare, the files and folders that were being
 * written under the name of one of theirs with the number of a process, if there is no such process any more, and nobody has locked what is a
 * folder: `eval` prepares there without the lock of the run, maybe on another host. A failure is a warning. */
void orth_leftovers_remove(orth_ctx *ctx, const char *run, const char *data);

#endif
