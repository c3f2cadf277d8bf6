/* saver.h -- the checkpoints of a run, written by its rank 0, if asked for beside the steps that follow.
 *
 *   between two steps: orth_saver_arrays -> (filled) -> orth_saver_write -> a thread writes the folder
 *   between later ones: orth_saver_outcome, until it tells of it
 *
 * checkpoint.async with checkpoint.every_steps writes in the background, from a copy, so that the steps that follow do
 * not show in it. The copy of a rank alone is memory that the plan counts (orth_saver_bytes). Several ranks hand in
 * what they hold, into memory that is there until it is written. One write goes on at a time: the next save waits
 * for it. A write that fails ends the run as one between two steps does; the older checkpoints stay valid.
 */
#ifndef ORTH_TRAIN_SAVER_H
#define ORTH_TRAIN_SAVER_H

#include "base/config.h"
#include "ckpt/checkpoint.h"
#include "data/tokenizer.h"
#include "run/executor.h"

/* Memory for the copy, in workspace of rank 0; 0: none. */
size_t orth_saver_bytes(const orth_config *cfg, const orth_model_config *model, int num_ranks);

typedef struct orth_saver orth_saver;

/* dir: of all checkpoints. It, cfg and model outlive *out. alone: the executor of a rank that holds all; NULL: ranks
 * hand in what they hold. ORTH_ERR_NOMEM. */
orth_status orth_saver_create(orth_ctx *ctx, orth_saver **out, const orth_config *cfg, const orth_model_config *model,
                              const orth_executor *alone, const char *dir);
/* Waits for a write under way. NULL is fine. */
void orth_saver_destroy(orth_ctx *ctx, orth_saver *s);

/* Whole parameters [of the model]: of a rank alone filled, else to be filled. The outcome of the write before was
 * told. ORTH_ERR_NOMEM. */
orth_status orth_saver_arrays(orth_ctx *ctx, orth_saver *s, const orth_checkpoint_array **out);

/* Writes the arrays with these counters; the tokenizer text outlives the write. In the background it returns before
 * that is done. ORTH_ERR_NOMEM; in the foreground errors of the write are told by the outcome, too. */
orth_status orth_saver_write(orth_ctx *ctx, orth_saver *s, const orth_checkpoint_state *state,
                             const orth_bytes *tokenizer);

/* Bytes of orth_saver_bytes that were used so far: all of them after the first save. */
size_t orth_saver_counted(const orth_saver *s);

typedef struct {
    int64_t step;          /* 0: nothing to tell */
    double seconds;        /* from orth_saver_arrays on */
    double blocked_s;      /* of these, in which no step could run */
} orth_saved;

/* Tells once how the last write ended; `wait`: after waiting for it. ORTH_ERR_IO, ORTH_ERR_NOSPACE and what else it
 * failed with. */
orth_status orth_saver_outcome(orth_ctx *ctx, orth_saver *s, bool wait, orth_saved *out);

#endif
