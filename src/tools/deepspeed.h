/* deepspeed.h -- a run from a DeepSpeed configuration (ds_config.json): the keys that have one here. */
#ifndef ORTH_TOOLS_DEEPSPEED_H
#define ORTH_TOOLS_DEEPSPEED_H

#include "config/config.h"

/* Sets keys of cfg to what the file says: batches, ZeRO, buckets, precision, optimizer, clipping. What was used, and what was not and why, goes
 * into the log, a line each. Data parallelism follows from the batches where the file has all of them. ORTH_ERR_DATA for a file that is no
 * such configuration or contradicts itself, ORTH_ERR_ARG for a value that a key here cannot have; ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_deepspeed_set(orth_ctx *ctx, orth_config *cfg, const char *path);

#endif
