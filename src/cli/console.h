/* console.h -- what a long verb prints while it works, without ever waiting for who reads it.
 *
 *   rank 0, any thread --write--> ring (64 KiB) --a thread of its own--> standard output
 *   ctx->log           --write--> ring          --another-------------> standard error
 *
 * A terminal that was stopped (Ctrl-S), a pager, a pipe or a remote shell may read nothing for hours, and a rank that
 * waited for it would keep all others waiting. Lines of progress that find the ring half full are dropped, others when it
 * is full; a line tells how many were dropped when there is room again. What is in the ring is delivered when the reader
 * comes back, at the latest before the program ends (orth_console_close waits).
 */
#ifndef ORTH_CLI_CONSOLE_H
#define ORTH_CLI_CONSOLE_H

#include "train/metrics.h"

typedef struct orth_console orth_console;

/* From now on ctx->log goes through it. Signals that the program waits for are blocked by now. ORTH_ERR_NOMEM. */
orth_status orth_console_open(orth_ctx *ctx, orth_console **out);
/* For progress and events on standard output. */
orth_print_sink orth_console_sink(orth_console *c);
/* Waits until everything is written. ORTH_ERR_IO, ORTH_ERR_NOSPACE if standard output refused something. */
orth_status orth_console_close(orth_ctx *ctx, orth_console *c);

#endif
