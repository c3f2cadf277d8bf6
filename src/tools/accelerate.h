/* accelerate.h -- a run from a configuration of Hugging Face Accelerate (accelerate config): the keys that have one here. */
#ifndef ORTH_TOOLS_ACCELERATE_H
#define ORTH_TOOLS_ACCELERATE_H

#include "config/config.h"

/* Sets keys of cfg to what the YAML file says: processes, precision, FSDP. What was used, and what was not and why, goes into the log, a line
 * each. ORTH_ERR_ARG with FILE:LINE:COLUMN for a file or a value that cannot be; ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_accelerate_set(orth_ctx *ctx, orth_config *cfg, const char *path);

#endif
