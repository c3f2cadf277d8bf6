/* rank_instances.c -- see rank_instances.h. */
#include "program/check/rank_instances.h"

/* The rank stands where it says in a group that an earlier member listed. */
static bool stands_in(const orth_instance *group, int rank, int n, int pos)
{
    return n == group->n && pos >= 0 && pos < n && group->ranks[pos] == rank;
}

/* The group's members, found at the first of them that is looked at; the others must say the same. */
static orth_status join_group(orth_ctx *ctx, orth_arena *arena, const orth_rank_source *source, int rank, orth_group g,
                              int *list, orth_instances *x)
{
    int n = source->group(source->user, rank, g, list), me = -1;
    int32_t of = x->of[rank][g];
    for (int i = 0; i < n; i++)
        me = list[i] == rank ? i : me;
    if (n <= 1 && of < 0)
        return ORTH_OK;
    bool same = of < 0 || x->list[of].n == n;
    for (int i = 0; same && of >= 0 && i < n; i++)
        same = x->list[of].ranks[i] == list[i];
    if (me < 0 || !same)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "group %s: rank %d does not agree with rank %d who is in it",
                         orth_group_name(g), rank, of < 0 ? rank : x->list[of].ranks[0]);
    x->pos[rank][g] = me;
    if (of >= 0)
        return ORTH_OK;
    int32_t *ranks = ORTH_ARENA_ARRAY(ctx, arena, int32_t, n);
    if (!ranks)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= source->num_ranks || x->of[list[i]][g] >= 0)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "group %s of rank %d: rank %d is in another one",
                             orth_group_name(g), rank, list[i]);
        ranks[i] = list[i];
    }
    for (int i = 0; i < n; i++)
        x->of[list[i]][g] = x->num;
    x->list[x->num++] = (orth_instance){g, n, ranks};
    return ORTH_OK;
}

orth_status orth_instances_find(orth_ctx *ctx, orth_arena *arena, const orth_rank_source *source, orth_instances *out)
{
    const int R = source->num_ranks;
    const bool groups = source->groups != NULL;
    int *list = ORTH_ARENA_ARRAY(ctx, arena, int, R);
    orth_instances x = {.list = ORTH_ARENA_ARRAY(ctx, arena, orth_instance, (int64_t)R * ORTH_NUM_GROUPS),
                        .of = orth_arena_alloc(ctx, arena, (size_t)R * sizeof *x.of),
                        .pos = orth_arena_alloc(ctx, arena, (size_t)R * sizeof *x.pos)};
    if (!list || !x.list || !x.of || !x.pos)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < R; r++)
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            x.of[r][g] = -1;
    for (int r = 0; r < R; r++) {
        const orth_rank_groups mine = groups ? source->groups(source->user, r) : (orth_rank_groups){{0}};
        for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
            if (groups && mine.size[g] <= 1 && x.of[r][g] < 0)
                continue;
            if (!groups || x.of[r][g] < 0 || !stands_in(&x.list[x.of[r][g]], r, mine.size[g], mine.pos[g]))
                ORTH_TRY(join_group(ctx, arena, source, r, (orth_group)g, list, &x));
            else
                x.pos[r][g] = mine.pos[g];
        }
    }
    *out = x;
    return ORTH_OK;
}
