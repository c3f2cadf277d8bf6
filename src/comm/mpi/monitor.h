/* monitor.h -- a thread per process that keeps a world of processes together.
 *
 *   rank r > 0  --note: what it does, whom it waits for, how it ended-->  rank 0
 *   rank r > 0  <--note: the world's cause of abort, the verdict---------  rank 0
 *
 * several times a second, on a communicator of its own, whatever the ranks compute. Rank 0 looks for the
 * suspect of a wait that lasts too long (blame.c), and anyone who is not heard of is missing: its
 * process, its host or the network between. All ranks hear of an abort, and when all have ended rank 0 tells
 * them one verdict, so that all processes end with the same status.
 */
#ifndef ORTH_COMM_MPI_MONITOR_H
#define ORTH_COMM_MPI_MONITOR_H

#include "comm/comm_impl.h"

typedef struct comm_monitor comm_monitor;

/* Collective over all processes. s->ranks is there. ORTH_ERR_NOMEM, ORTH_ERR_COMM. */
orth_status comm_monitor_start(orth_ctx *ctx, comm_shared *s, int rank, comm_monitor **out);

/* This rank's function has returned `status`, its own error or (derived) the world's. Waits until all ranks have
 * ended, stay away after an abort, or are not heard of; releases the monitor and returns the verdict. */
orth_status comm_monitor_end(orth_ctx *ctx, comm_monitor *m, orth_status status, bool derived);

/* A collective of c has waited long for these members (positions); NULL: no longer. */
void comm_monitor_misses(orth_comm *c, const comm_set *positions);

#endif
