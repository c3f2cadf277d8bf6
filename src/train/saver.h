/* saver.h -- the checkpoints of a run, written by its rank 0, if asked for beside the steps that follow.
 *
 *   between two steps: orth_saver_write -> a thread writes the folder
 *   between later ones: orth_saver_outcome, until it tells of it
 *
 * checkpoint.async with checkpoint.every_steps writes in the background, from a copy, so that the steps that follow do
 * not show in it. Where the steps wait, each array is copied into room for the largest one, from which it is written at once.
 * Several ranks hand in what they hold, array by array. This memory is mapped before the first step and is
 * in the plan (orth_saver_bytes).
 *
 * checkpoint.keep of the checkpoints stay, and the newest that is proven, if it is none of these: a step after it had a finite loss
 * and finite gradients. Weights may be finite and of no use, which the next step shows: with keep=1 the last useful ones would be
 * gone by then. A run that goes on from a checkpoint knows nothing of the older ones: until it has proven one, all that were there
 * stay, beside `keep` of its own; but that checkpoint goes where its first step has no finite loss (orth_saver_retreat). One write goes on at a time: the next save waits for it. A write that fails ends the run
 * as one between two steps does; the older checkpoints stay valid.
 */
#ifndef ORTH_TRAIN_SAVER_H
#define ORTH_TRAIN_SAVER_H

#include "config/config.h"
#include "ckpt/folder.h"
#include "data/tokenizer.h"
#include "run/executor.h"

/* Memory of this kind, in workspace of rank 0; 0: none. */
orth_status orth_saver_bytes(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, int num_ranks, size_t *out);

/* The arrays of each parameter, as the optimizer keeps them: *out[the result]. All ranks go through them in this order,
 * each over all parameters, when a checkpoint is gathered. */
int orth_saver_binds(const orth_config *cfg, const orth_bind **out);
/* Whether a parameter has such an array; where it has none, nothing is handed in. */
bool orth_saver_keeps(const orth_config *cfg, const orth_model_config *model, const orth_param *p, bool frozen, orth_bind bind);

/* Where the arrays of several ranks come from: called on rank 0 by orth_saver_write with rank 0's ctx. chunk: see
 * orth_gather_one. */
typedef struct {
    orth_status (*fetch)(orth_ctx *ctx, void *user, orth_bind bind, int64_t index, float *chunk, float *whole);
    void *user;
} orth_saver_source;

typedef struct orth_saver orth_saver;

/* dir: of all checkpoints, in the folder `run`, which may have gone or be another run's by the time of a save: then nothing is written or
 * removed there, and the run ends. They, cfg and model outlive *out. alone: the executor of a rank that holds all; NULL: ranks
 * hand in what they hold, by way of `source`. ORTH_ERR_NOMEM. */
orth_status orth_saver_create(orth_ctx *ctx, orth_saver **out, const orth_config *cfg, const orth_model_config *model,
                              const orth_executor *alone, const orth_saver_source *source, const orth_folder_claim *run, const char *dir);
/* Waits for a write under way. NULL is fine. */
void orth_saver_destroy(orth_ctx *ctx, orth_saver *s);

/* Gathers all arrays and writes them with what the caller, `mine`, has of delayed scaling, and with these counters; both texts about the
 * tokenizer outlive the write. In the background it returns before that is done. The outcome of the write before was told.
 * ORTH_ERR_NOMEM, ORTH_ERR_COMM; in the foreground errors of the write are told by the outcome, too. */
orth_status orth_saver_write(orth_ctx *ctx, orth_saver *s, const orth_executor *mine, const orth_checkpoint_state *state,
                             const orth_bytes *tokenizer, const char *tokenizer_config);

/* Lines that tell of the steps, in an open file, which stays open until no write is under way: before a checkpoint gets its name they are on
 * the disk. Where they cannot be, the checkpoint is saved, and that is the outcome of the write. */
void orth_saver_has_lines(orth_saver *s, int fd, const char *path);

/* The checkpoint that the run goes on from. */
void orth_saver_goes_on(orth_saver *s, int64_t step);
/* A step was done whose loss and gradients are finite: the newest checkpoint, even one that is being written, is proven. */
void orth_saver_proves(orth_saver *s);
/* The run ends, and the held-out loss of its last weights is finite: what it has saved last counts as proven. ORTH_ERR_IO: its folder is not there. */
orth_status orth_saver_settle(orth_ctx *ctx, const orth_saver *s);
/* It ends with a loss that is not finite: the newest checkpoint, if it is not proven, gives way to an older one. Waits for a write
 * under way. */
void orth_saver_retreat(orth_ctx *ctx, orth_saver *s);

/* Bytes of orth_saver_bytes that were used so far: all of them after the first save. */
size_t orth_saver_counted(const orth_saver *s);

typedef struct {
    int64_t step;          /* 0: nothing to tell */
    double seconds;        /* from orth_saver_write on */
    double blocked_s;      /* of these, in which no step could run */
} orth_saved;

/* Tells once how the last write ended; `wait`: after waiting for it. ORTH_ERR_IO, ORTH_ERR_NOSPACE and what else it
 * failed with. */
orth_status orth_saver_outcome(orth_ctx *ctx, orth_saver *s, bool wait, orth_saved *out);

#endif
