/* stop.h -- signals that ask a verb to end: SIGINT, SIGTERM, SIGHUP (its terminal is gone; not under nohup), and SIGUSR1,
 * which launchers hand on (docs/mpi.md).
 *
 * They are blocked in all threads and asked for (ctx->stop) between steps and during long work: no handler, so no state
 * outside of the program's own. Verbs that neither save when they are stopped nor leave anything behind do not take part, and
 * just end.
 */
#ifndef ORTH_CLI_STOP_H
#define ORTH_CLI_STOP_H

#include <signal.h>

#include "cli/cmd.h"

typedef struct {
    sigset_t set;
    _Atomic int got; /* asking takes the signal, so it is kept */
} orth_stop;

/* If this command line is to be asked to end: blocks the signals (before there are threads, which inherit that) and sets
 * ctx->stop. *stop outlives what asks. */
void orth_stop_watch(orth_ctx *ctx, orth_stop *stop, const orth_cmd *cmd);

#endif
