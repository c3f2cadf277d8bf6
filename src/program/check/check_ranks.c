/* check_ranks.c -- see check_ranks.h. The order of the checks. */
#include "program/check/check_ranks_impl.h"

static orth_status read_programs(rank_check *k)
{
    const orth_rank_source *s = k->source;
    for (int r = 0; r < k->num_ranks; r++) {
        const int same = s->same_as ? s->same_as(s->user, r) : r, twin = s->twin_of ? s->twin_of(s->user, r) : same;
        if (twin < r) {
            k->digests[r] = k->digests[twin];
            continue;
        }
        k->digests[r] = ORTH_ARENA_ARRAY(k->ctx, &k->arena, digest, 1);
        if (!k->digests[r])
            return ORTH_ERR_NOMEM;
        ORTH_TRY(same < r ? rank_digest_views(k, r, k->digests[same], k->digests[r]) : rank_digest(k, r, k->digests[r]));
    }
    return ORTH_OK;
}

orth_status orth_check_ranks(orth_ctx *ctx, const orth_rank_source *source)
{
    const int R = source->num_ranks;
    rank_check k = {.ctx = ctx, .source = source, .num_ranks = R};
    for (int op = 0; op < ORTH_NUM_OPS; op++)
        orth_signature_of((orth_op)op, &k.of[op]);
    k.digests = ORTH_ARENA_ARRAY(ctx, &k.arena, digest *, R);
    orth_status s = k.digests ? orth_instances_find(ctx, &k.arena, source, &k.instances) : ORTH_ERR_NOMEM;
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
