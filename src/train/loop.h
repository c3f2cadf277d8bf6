/* loop.h -- the training run: steps, evaluations, checkpoints, until done or told to stop. */
#ifndef ORTH_TRAIN_LOOP_H
#define ORTH_TRAIN_LOOP_H

#include "train/session.h"

/* Asked between steps: the number of a signal that arrived (the run then saves and ends with
 * ORTH_ERR_SIGNAL), 0 if none. */
typedef int (*orth_stop_fn)(void *user);

/* Trains from s->steps_done to train.steps. Errors of a step end the run as they are; the checkpoints
 * there were stay valid. */
orth_status orth_loop_run(orth_ctx *ctx, orth_session *s, orth_stop_fn stop, void *user);

#endif
