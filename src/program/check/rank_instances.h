/* rank_instances.h -- the communicators of all ranks of a layout, from what each rank says of its groups. */
#ifndef ORTH_PROGRAM_RANK_INSTANCES_H
#define ORTH_PROGRAM_RANK_INSTANCES_H

#include "program/check/check_ranks.h"

/* One communicator: the members of one group. */
typedef struct {
    orth_group group;
    int32_t n;
    const int32_t *ranks; /* [n] */
} orth_instance;

typedef struct {
    orth_instance *list;
    int32_t num;
    int32_t (*of)[ORTH_NUM_GROUPS];  /* [ranks] instance of each group; -1: the rank has no peers there */
    int32_t (*pos)[ORTH_NUM_GROUPS]; /* [ranks] position in it */
} orth_instances;

/* Lives in the arena. ORTH_ERR_INTERNAL where members of a group do not agree on who is in it, ORTH_ERR_NOMEM. */
orth_status orth_instances_find(orth_ctx *ctx, orth_arena *arena, const orth_rank_source *source, orth_instances *out);

#endif
