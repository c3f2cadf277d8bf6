/* groups.c -- see groups.h. */
#include "train/groups.h"

orth_comm_method orth_groups_method(const orth_config *cfg)
{
    static const orth_comm_algo algos[] = {
        [ORTH_comm_algorithm_auto] = ORTH_ALGO_AUTO, [ORTH_comm_algorithm_direct] = ORTH_ALGO_DIRECT,
        [ORTH_comm_algorithm_tree] = ORTH_ALGO_TREE, [ORTH_comm_algorithm_ring] = ORTH_ALGO_RING,
    };
    return (orth_comm_method){algos[cfg->comm_algorithm], .shares_memory = cfg->comm_backend == ORTH_comm_backend_thread};
}

orth_world_options orth_groups_options(const orth_config *cfg, int threads, int num_ranks)
{
    bool fast = cfg->numerics_mode == ORTH_numerics_mode_fast;
    return (orth_world_options){.threads_per_rank = ORTH_MAX(1, threads / num_ranks), .pin = cfg->run_pin && num_ranks > 1,
                                .order = fast ? ORTH_ORDER_FREE : ORTH_ORDER_CANONICAL,
                                .algo = orth_groups_method(cfg).algo, .timeout_s = cfg->comm_timeout_s,
                                .busy_timeout_s = cfg->comm_busy_timeout_s};
}

orth_status orth_groups_create(orth_ctx *ctx, orth_world *world, const orth_partition *partition, int rank,
                               orth_comm *comms[ORTH_NUM_GROUPS])
{
    int *ranks = ORTH_NEW_ARRAY(ctx, int, orth_world_size(world));
    orth_status status = ranks ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int g = 0; g < ORTH_NUM_GROUPS && status == ORTH_OK; g++) {
        int members = orth_partition_group(partition, rank, (orth_group)g, ranks);
        if (members > 1)
            status = orth_comm_create(ctx, world, &comms[g], orth_group_name((orth_group)g), members, ranks);
    }
    orth_mem_free(ctx, ranks);
    return status;
}

void orth_groups_destroy(orth_ctx *ctx, orth_comm *comms[ORTH_NUM_GROUPS])
{
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        orth_comm_destroy(ctx, comms[g]);
}
