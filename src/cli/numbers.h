/* numbers.h -- flags that are numbers. */
#ifndef ORTH_CLI_NUMBERS_H
#define ORTH_CLI_NUMBERS_H

#include "cli/cmd.h"

/* *io is left alone when the flag is not given. ORTH_ERR_ARG: `--name=x is not a number in [low, high]`. */
orth_status orth_cmd_flag_int(orth_ctx *ctx, const orth_cmd *cmd, const char *name, int64_t low, int64_t high,
                              int64_t *io);
orth_status orth_cmd_flag_real(orth_ctx *ctx, const orth_cmd *cmd, const char *name, double low, double high,
                               double *io);

#endif
