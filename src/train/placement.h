/* placement.h -- whether the ranks of a run lie on the hosts as the layout wants them: on real hosts of a run over MPI, on described ones of a plan. */
#ifndef ORTH_TRAIN_PLACEMENT_H
#define ORTH_TRAIN_PLACEMENT_H

#include "comm/comm.h"
#include "config/config.h"
#include "parallel/mesh.h"
#include "plan/hardware.h"

#define ORTH_HOST_NAME_BYTES 64

/* hosts [num_ranks of m]: the name of each rank's host.
 * ORTH_ERR_ARG: parallel.ranks_per_host is given, and the launcher has put ranks of one such block on two hosts. A
 * tensor-parallel group that lies across hosts is a warning: every layer of it waits for the network. */
orth_status orth_placement_check(orth_ctx *ctx, const orth_config *cfg, const orth_mesh *m, const char (*hosts)[ORTH_HOST_NAME_BYTES]);

/* The same for the hosts that the ranks of `all`, all ranks of the run, are on. Collective. Also ORTH_ERR_COMM, ORTH_ERR_NOMEM. */
orth_status orth_placement_check_ranks(orth_ctx *ctx, const orth_config *cfg, const orth_mesh *m, orth_comm *all);

/* The same warning for hosts that are described: the nodes of `h`, or, where h is NULL, blocks of parallel.ranks_per_host ranks. A context-parallel
 * group is named, too, where all of tp and cp would have room on one host. */
void orth_placement_warn_planned(orth_ctx *ctx, const orth_config *cfg, const orth_mesh *m, const orth_hardware *h);

#endif
