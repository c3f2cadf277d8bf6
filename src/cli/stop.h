/* stop.h -- signals that ask a verb to end: SIGINT, SIGTERM, SIGHUP (its terminal is gone; not under nohup), and SIGUSR1,
 * which launchers hand on (docs/mpi.md).
 *
 * They are blocked in all threads but one, which waits for them, and asked for (ctx->stop) between steps and during long
 * work: no handler, so no state outside of the program's own. A second SIGINT or SIGTERM, a second or more after the first
 * signal, ends the process at once, in the middle of a long step or save; checkpoints are whole at any moment. Verbs that
 * neither save when they are stopped nor leave anything behind do not take part, and just end.
 */
#ifndef ORTH_CLI_STOP_H
#define ORTH_CLI_STOP_H

#include <signal.h>

#include "cli/cmd.h"

typedef struct {
    sigset_t set;
    _Atomic int got;       /* the first signal; 0: none */
    const char *run_dir;   /* whose newest checkpoint is told; NULL: the verb keeps nothing when it is cut off */
} orth_stop;

/* If this command line is to be asked to end: blocks the signals (before there are threads, which inherit that) and sets
 * ctx->stop. *stop and cmd live to the end of the process. ORTH_ERR_NOMEM. */
orth_status orth_stop_on_signals(orth_ctx *ctx, orth_stop *stop, const orth_cmd *cmd);

#endif
