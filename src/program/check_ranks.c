/* check_ranks.c -- see check_ranks.h. Groups, and the order of the checks. */
#include "program/check_ranks_impl.h"

/* The group's members, found at the first of them that is looked at; the others must say the same. */
static orth_status join_group(rank_check *k, int rank, orth_group g, int *list)
{
    int n = k->source->group(k->source->user, rank, g, list), me = -1;
    int32_t of = k->of[rank][g];
    for (int i = 0; i < n; i++)
        me = list[i] == rank ? i : me;
    if (n <= 1 && of < 0)
        return ORTH_OK;
    bool same = of < 0 || k->instances[of].n == n;
    for (int i = 0; same && of >= 0 && i < n; i++)
        same = k->instances[of].ranks[i] == list[i];
    if (me < 0 || !same)
        return ORTH_FAIL(k->ctx, ORTH_ERR_INTERNAL, "group %s: rank %d does not agree with rank %d who is in it",
                         orth_group_name(g), rank, of < 0 ? rank : k->instances[of].ranks[0]);
    k->pos[rank][g] = me;
    if (of >= 0)
        return ORTH_OK;
    int32_t *ranks = ORTH_ARENA_ARRAY(k->ctx, &k->arena, int32_t, n);
    if (!ranks)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= k->num_ranks || k->of[list[i]][g] >= 0)
            return ORTH_FAIL(k->ctx, ORTH_ERR_INTERNAL, "group %s of rank %d: rank %d is in another one", orth_group_name(g),
                             rank, list[i]);
        ranks[i] = list[i];
    }
    for (int i = 0; i < n; i++)
        k->of[list[i]][g] = k->num_instances;
    k->instances[k->num_instances++] = (instance){g, n, ranks};
    return ORTH_OK;
}

static orth_status find_groups(rank_check *k)
{
    int *list = ORTH_NEW_ARRAY(k->ctx, int, k->num_ranks);
    orth_status s = list ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int r = 0; r < k->num_ranks; r++)
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            k->of[r][g] = -1;
    for (int r = 0; r < k->num_ranks; r++)
        for (int g = 0; g < ORTH_NUM_GROUPS && s == ORTH_OK; g++)
            s = join_group(k, r, (orth_group)g, list);
    orth_mem_free(k->ctx, list);
    return s;
}

static orth_status read_programs(rank_check *k)
{
    for (int r = 0; r < k->num_ranks; r++) {
        int same = k->source->same_as ? k->source->same_as(k->source->user, r) : r;
        if (same < r) {
            k->digests[r] = k->digests[same];
            continue;
        }
        k->digests[r] = ORTH_ARENA_ARRAY(k->ctx, &k->arena, digest, 1);
        if (!k->digests[r])
            return ORTH_ERR_NOMEM;
        ORTH_TRY(rank_digest(k, r, k->digests[r]));
    }
    return ORTH_OK;
}

orth_status orth_check_ranks(orth_ctx *ctx, const orth_rank_source *source)
{
    const int R = source->num_ranks;
    rank_check k = {.ctx = ctx, .source = source, .num_ranks = R};
    k.digests = ORTH_ARENA_ARRAY(ctx, &k.arena, digest *, R);
    k.instances = ORTH_ARENA_ARRAY(ctx, &k.arena, instance, R * ORTH_NUM_GROUPS);
    k.of = orth_arena_alloc(ctx, &k.arena, (size_t)R * sizeof *k.of);
    k.pos = orth_arena_alloc(ctx, &k.arena, (size_t)R * sizeof *k.pos);
    orth_status s = k.digests && k.instances && k.of && k.pos ? find_groups(&k) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = read_programs(&k);
    if (s == ORTH_OK)
        s = rank_check_match(&k);
    if (s == ORTH_OK)
        s = rank_check_waits(&k);
    if (s == ORTH_OK)
        s = rank_check_cover(&k);
    orth_arena_release(ctx, &k.arena);
    return s;
}
