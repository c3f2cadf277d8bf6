/* groups.h -- a rank's communicators: one for each group of more than one rank that it belongs to. */
#ifndef ORTH_TRAIN_GROUPS_H
#define ORTH_TRAIN_GROUPS_H

#include "config/config.h"
#include "comm/comm.h"
#include "parallel/partition.h"

/* How the communicators of a run move data. */
orth_comm_method orth_groups_method(const orth_config *cfg);

/* What the run file says of communication between `num_ranks` ranks that share `threads` threads. */
orth_world_options orth_groups_options(const orth_config *cfg, int threads, int num_ranks);

/* Collective over all ranks of the world. Fills comms, NULL where the rank is alone; on failure those made
 * so far are there for orth_groups_destroy. ORTH_ERR_NOMEM, ORTH_ERR_COMM. */
orth_status orth_groups_create(orth_ctx *ctx, orth_world *world, const orth_partition *partition, int rank,
                               orth_comm *comms[ORTH_NUM_GROUPS]);
void orth_groups_destroy(orth_ctx *ctx, orth_comm *comms[ORTH_NUM_GROUPS]);

#endif
