/* mesh.h -- the ranks of a run as a grid with named axes.
 *
 * Two orders, kept apart on purpose:
 *  - placement: which global rank sits at which coordinates. Configurable; by default tp varies fastest,
 *    then cp, dp, pp, so that the most talkative axis has neighbouring ranks (one host).
 *  - canonical: the order of a group's members along one axis or a product of axes. Fixed: ascending
 *    coordinates, the axes in the order of orth_axis, the first varying fastest. Sums and the cut of a batch
 *    follow it, so that placement never changes a number.
 *
 * dp is a product: `replicate` x `shard`. shard_group ranks share one set of shards (0 or dp: all of dp);
 * dp coordinate = replicate * shard_size + shard.
 */
#ifndef ORTH_PARALLEL_MESH_H
#define ORTH_PARALLEL_MESH_H

#include "base/text.h"

typedef enum {
    ORTH_AXIS_TP = 0, ORTH_AXIS_CP, ORTH_AXIS_SHARD, ORTH_AXIS_REPLICATE, ORTH_AXIS_PP,
    ORTH_NUM_AXES
} orth_axis;

/* Sets of axes; ORTH_AXES_DP | ORTH_AXES_CP is the group that reduces gradients. */
typedef uint32_t orth_axes;
#define ORTH_AXES_TP (1u << ORTH_AXIS_TP)
#define ORTH_AXES_CP (1u << ORTH_AXIS_CP)
#define ORTH_AXES_SHARD (1u << ORTH_AXIS_SHARD)
#define ORTH_AXES_REPLICATE (1u << ORTH_AXIS_REPLICATE)
#define ORTH_AXES_PP (1u << ORTH_AXIS_PP)
#define ORTH_AXES_DP (ORTH_AXES_SHARD | ORTH_AXES_REPLICATE)
#define ORTH_AXES_ALL ((1u << ORTH_NUM_AXES) - 1)

typedef struct {
    int32_t size[ORTH_NUM_AXES];
    orth_axis order[ORTH_NUM_AXES];  /* placement, fastest first */
    int32_t stride[ORTH_NUM_AXES];   /* in global ranks */
    int32_t num_ranks;
} orth_mesh;

typedef struct {
    int64_t dp, tp, pp, cp;          /* >= 1 */
    int64_t shard_group;             /* 0: all of dp; else divides dp */
    const char *order;               /* "tp,cp,dp,pp", fastest first; NULL or "": that. Names of axes, dp
                                        for "shard,replicate"; axes left out follow in the default order */
} orth_mesh_options;

/* ORTH_ERR_ARG: unknown, repeated axis; shard_group does not divide dp; more than 2^31 - 1 ranks. */
orth_status orth_mesh_init(orth_ctx *ctx, orth_mesh *out, const orth_mesh_options *o);

/* Coordinate of a global rank along one axis; 0 <= rank < num_ranks. */
static inline int orth_mesh_coord(const orth_mesh *m, int rank, orth_axis axis)
{
    return rank / m->stride[axis] % m->size[axis];
}
/* The rank that differs from `rank` in this coordinate only. */
int orth_mesh_moved(const orth_mesh *m, int rank, orth_axis axis, int coord);

/* The group of `rank` along `axes`: the ranks that share its coordinates on all other axes. */
int orth_mesh_group_size(const orth_mesh *m, orth_axes axes);
int orth_mesh_group_pos(const orth_mesh *m, int rank, orth_axes axes);       /* canonical position */
int orth_mesh_group_member(const orth_mesh *m, int rank, orth_axes axes, int pos); /* global rank */
void orth_mesh_group(const orth_mesh *m, int rank, orth_axes axes, int *ranks); /* [group size] */

/* Hosts of `ranks_per_host` consecutive global ranks (0: one host). */
int orth_mesh_host(int rank, int ranks_per_host);
/* Whether every group along `axes` lies inside one host. */
bool orth_mesh_inside_host(const orth_mesh *m, orth_axes axes, int ranks_per_host);

/* Whether each host holds whole groups of the fastest axes and an equal part of those of the next one, so that the groups of all ranks lie alike. */
bool orth_mesh_hosts_are_alike(const orth_mesh *m, int ranks_per_host);

/* For `explain`: sizes, order, where each axis lies, and the coordinates of the ranks (at most max_ranks). */
void orth_mesh_print(orth_ctx *ctx, orth_text *out, const orth_mesh *m, int ranks_per_host, int max_ranks);

#endif
