/* process.h -- one process of a run over MPI (comm.backend=mpi): a rank, and its own view of the run. */
#ifndef ORTH_TRAIN_PROCESS_H
#define ORTH_TRAIN_PROCESS_H

#include "train/run.h"

/* The orth_rank_fn of a process; options: orth_run_options. Rank 0 opens the run first, because it prepares data
 * and writes the run folder, which all processes must see; then the others open it, and all make sure that they
 * mean the same run. Cores of a host are shared out among its ranks (run.threads=0). */
orth_status process_main(orth_ctx *ctx, orth_world *world, void *options);

/* Rate of this machine's matrix products, for the MFU; over MPI (`all`: all ranks) of the machines together. */
orth_status process_peak(orth_ctx *ctx, orth_run *r, orth_comm *all);

#endif
