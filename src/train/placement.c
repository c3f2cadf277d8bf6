/* placement.c -- see placement.h. Ranks are compared by the names of their hosts, which launchers keep apart. */
#include "train/placement.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "plan/mixed.h"

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

/* ---- described hosts ---- */

static int host_of(const orth_config *cfg, const orth_hardware *h, int rank)
{
    return h ? orth_mixed_node_of(h, rank) : orth_mesh_host(rank, (int)cfg->parallel_ranks_per_host);
}

/* Ranks of the host with the most. */
static int64_t most_on_a_host(const orth_config *cfg, const orth_hardware *h)
{
    return h ? (int64_t)h->node_devices : cfg->parallel_ranks_per_host;
}

/* Two ranks of one group along `axes` on different hosts; false: there are none. */
static bool find_apart(const orth_config *cfg, const orth_mesh *m, const orth_hardware *h, orth_axes axes, int *first, int *other)
{
    for (int r = 0; r < m->num_ranks; r++) {
        *first = orth_mesh_group_member(m, r, axes, 0);
        *other = r;
        if (host_of(cfg, h, *first) != host_of(cfg, h, r))
            return true;
    }
    return false;
}

void orth_placement_warn_planned(orth_ctx *ctx, const orth_config *cfg, const orth_mesh *m, const orth_hardware *h)
{
    const int64_t room = most_on_a_host(cfg, h), tp = cfg->parallel_tp, cp = cfg->parallel_cp;
    char help[128];
    int first, other;
    if (room == 0)
        return;
    const bool of_tp = find_apart(cfg, m, h, ORTH_AXES_TP, &first, &other);
    if (!of_tp && (tp * cp > room || !find_apart(cfg, m, h, ORTH_AXES_CP, &first, &other)))
        return;
    if (of_tp && tp > room)
        snprintf(help, sizeof help, "a host has %" PRId64 " rank%s, and a tp of at most that stays inside", room, room == 1 ? "" : "s");
    else
        snprintf(help, sizeof help, "parallel.order=tp,cp,dp,pp and a tp * cp that divides the %" PRId64 " rank%s of a host keep it inside", room, room == 1 ? "" : "s");
    orth_log(ctx, ORTH_LOG_WARN, "placement", "parallel.%s=%" PRId64 " lies across hosts: ranks %d and %d, of one group, are on hosts %d and %d, so that every "
             "layer waits for the network; %s", of_tp ? "tp" : "cp", of_tp ? tp : cp, first, other, host_of(cfg, h, first), host_of(cfg, h, other), help);
}
