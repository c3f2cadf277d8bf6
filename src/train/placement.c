/* placement.c -- see placement.h. Ranks are compared by the names of their hosts, which launchers keep apart. */
#include "train/placement.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static orth_status check_blocks(orth_ctx *ctx, int64_t ranks_per_host, const orth_mesh *m, const char (*hosts)[ORTH_HOST_NAME_BYTES])
{
    for (int r = 0; ranks_per_host > 0 && r < m->num_ranks; r++) {
        const int first = (int)(r / ranks_per_host * ranks_per_host);
        if (strcmp(hosts[r], hosts[first]) != 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "parallel.ranks_per_host=%" PRId64 ", but rank %d is on host %s and rank %d on host %s: give "
                             "each host %" PRId64 " slots, in order (mpirun --map-by slot, a hostfile with slots=%" PRId64 ")", ranks_per_host,
                             first, hosts[first], r, hosts[r], ranks_per_host, ranks_per_host);
    }
    return ORTH_OK;
}

orth_status orth_placement_check(orth_ctx *ctx, const orth_config *cfg, const orth_mesh *m, const char (*hosts)[ORTH_HOST_NAME_BYTES])
{
    ORTH_TRY(check_blocks(ctx, cfg->parallel_ranks_per_host, m, hosts));
    for (int r = 0; r < m->num_ranks; r++) {
        const int first = orth_mesh_group_member(m, r, ORTH_AXES_TP, 0);
        if (strcmp(hosts[r], hosts[first]) == 0)
            continue;
        orth_log(ctx, ORTH_LOG_WARN, "placement", "parallel.tp=%" PRId64 " lies across hosts: ranks %d and %d, of one tensor-parallel group, are on %s "
                 "and %s, so that every layer waits for the network; parallel.order=%s and the launcher say which ranks are neighbours "
                 "(docs/mpi.md)", cfg->parallel_tp, first, r, hosts[first], hosts[r], cfg->parallel_order);
        return ORTH_OK;
    }
    return ORTH_OK;
}

orth_status orth_placement_check_ranks(orth_ctx *ctx, const orth_config *cfg, const orth_mesh *m, orth_comm *all)
{
    char mine[ORTH_HOST_NAME_BYTES] = "";
    char (*hosts)[ORTH_HOST_NAME_BYTES] = orth_mem_alloc(ctx, (size_t)m->num_ranks * sizeof *hosts);
    if (!hosts)
        return ORTH_ERR_NOMEM;
    gethostname(mine, sizeof mine - 1);
    orth_status s = orth_all_gather(ctx, all, hosts, mine, sizeof mine, NULL, ORTH_U8);
    if (s == ORTH_OK)
        s = orth_placement_check(ctx, cfg, m, (const char (*)[ORTH_HOST_NAME_BYTES])hosts);
    orth_mem_free(ctx, hosts);
    return s;
}
