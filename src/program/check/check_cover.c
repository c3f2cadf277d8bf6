/* check_cover.c -- the parameters of all ranks together, but frozen ones: every element is updated, by one set of owners. */
#include <inttypes.h>

#include "program/check/check_ranks_impl.h"

/* Ranks of a group, or the rank alone. */
typedef struct {
    const int32_t *ranks;
    int32_t n;
} members;

static members members_of(const rank_check *k, const int32_t *rank, orth_group g)
{
    int32_t id = k->instances.of[*rank][g];
    return id < 0 ? (members){rank, 1} : (members){k->instances.list[id].ranks, k->instances.list[id].n};
}

static orth_status refuse(rank_check *k, int rank, int32_t index, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static orth_status refuse(rank_check *k, int rank, int32_t index, const char *fmt, ...)
{
    char name[128], why[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    rank_param_name(k, rank, index, name, sizeof name);
    orth_ctx_clear_error(k->ctx);
    return ORTH_FAIL(k->ctx, ORTH_ERR_INTERNAL, "parameter '%s': %s", name, why);
}

/* ---- data parallelism ---- */

/* The axis of shards is all of dp, or has replicas and a group of its own. */
static members shard_group(const rank_check *k, const int32_t *rank)
{
    return members_of(k, rank, k->instances.of[*rank][ORTH_GROUP_DP] >= 0 ? ORTH_GROUP_DP : ORTH_GROUP_SHARD);
}

/* Elements that the members update: all on each of them, or one piece after the other. */
static orth_status check_shards(rank_check *k, members m, int32_t index, int32_t near)
{
    const holding *first = rank_holding(k, m.ranks[0], index, near), *before = NULL;
    int32_t whole = 0, at_rank = -1;
    int64_t at = 0;
    for (int i = 0; i < m.n; i++) {
        const holding *h = rank_holding(k, m.ranks[i], index, near);
        if (!h || h->elems != first->elems)
            return refuse(k, m.ranks[0], index,
                          "rank %d has %" PRId64 " elements of it, rank %d %" PRId64
                          ", though both are in one shard group",
                          m.ranks[0], first->elems, m.ranks[i], h ? h->elems : 0);
        whole += h->first == 0 && h->count == h->elems;
    }
    for (int i = 0; whole < m.n && i < m.n; i++) {
        const holding *h = rank_holding(k, m.ranks[i], index, near);
        if (h->count == 0) /* ZeRO deals out neighbours: a rank may have nothing of this parameter */
            continue;
        if (h->first > at)
            return refuse(k, m.ranks[i], index,
                          "elements [%" PRId64 ", %" PRId64 ") are updated by no rank: instruction "
                          "%d of rank %d ends there, instruction %d of rank %d begins at %" PRId64,
                          at, h->first, before ? before->update : -1, at_rank, h->update, m.ranks[i],
                          h->first);
        if (h->first < at)
            return refuse(k, m.ranks[i], index,
                          "elements [%" PRId64 ", %" PRId64 ") are updated twice: by instruction %d "
                          "of rank %d and by instruction %d of rank %d",
                          h->first, at, before ? before->update : -1, at_rank, h->update, m.ranks[i]);
        at = h->first + h->count;
        at_rank = m.ranks[i];
        before = h;
    }
    if (whole < m.n && at != first->elems)
        return refuse(k, m.ranks[0], index,
                      "elements [%" PRId64 ", %" PRId64 ") are updated by no rank: the last piece is "
                      "that of instruction %d of rank %d",
                      at, first->elems, before ? before->update : -1, at_rank);
    return ORTH_OK;
}

/* ---- tensor parallelism ---- */

/* The rank's own slice of a parameter. `of`: parameters of some program. */
static const orth_param_desc *slice_of(const rank_check *k, int rank, const orth_param_desc *of, int32_t index)
{
    return &(k->source->params ? k->source->params(k->source->user, rank) : of)[index];
}

static orth_status check_parts(rank_check *k, members m, int32_t index, int32_t near)
{
    int32_t at = 0, all = 0;
    for (int i = 0; i < m.n; i++) {
        orth_rank_program r = {0};
        if (!rank_holding(k, m.ranks[i], index, near))
            return refuse(k, m.ranks[0], index, "rank %d has it, rank %d of its tp group does not",
                          m.ranks[0], m.ranks[i]);
        if (!k->source->params)
            ORTH_TRY(k->source->program(k->ctx, k->source->user, m.ranks[i], &r));
        const orth_param_desc *slice = slice_of(k, m.ranks[i], r.params, index);
        if (slice->split_dim < 0) /* not split: each has all of it */
            continue;
        if (slice->first_part != at)
            return refuse(k, m.ranks[0], index,
                          "rank %d has parts [%d, %d), but those of the tp ranks before end at %d",
                          m.ranks[i], slice->first_part, slice->first_part + slice->num_parts, at);
        at += slice->num_parts;
        all = slice->split.parts;
    }
    if (at != all)
        return refuse(k, m.ranks[0], index, "the tp group of rank %d has %d of its %d parts", m.ranks[0], at, all);
    return ORTH_OK;
}

/* ---- stages ---- */

/* Stages that hold the parameter. More than one: its gradient is summed over them, once. */
static orth_status check_stages(rank_check *k, members m, int32_t index)
{
    int32_t holders = 0, first = -1;
    for (int i = 0; i < m.n; i++) {
        if (!rank_holding(k, m.ranks[i], index, 0))
            continue;
        holders++;
        first = first < 0 ? m.ranks[i] : first;
    }
    if (holders == 0)
        return refuse(k, m.ranks[0], index, "no rank of the pipeline from rank %d to rank %d has it",
                      m.ranks[0], m.ranks[m.n - 1]);
    members sharing = members_of(k, &first, ORTH_GROUP_EMBED);
    for (int i = 0; i < m.n; i++) {
        const holding *h = rank_holding(k, m.ranks[i], index, 0);
        int32_t want = holders > 1;
        if (!h)
            continue;
        if (h->embed_sums != want)
            return refuse(k, first, index,
                          "its gradient is summed %d times over group embed on rank %d; %d of the ranks of "
                          "its pipeline have it, the first of them rank %d",
                          h->embed_sums, m.ranks[i], holders, first);
        if (want && sharing.n != holders)
            return refuse(k, first, index,
                          "%d ranks of the pipeline have it, but group embed of rank %d has %d members",
                          holders, first, sharing.n);
    }
    return ORTH_OK;
}

/* ---- all ---- */

static orth_status check_rank(rank_check *k, int32_t rank)
{
    members shards = shard_group(k, &rank), tp = members_of(k, &rank, ORTH_GROUP_TP);
    const digest *d = k->digests[rank];
    for (int32_t i = 0; i < d->num_holdings; i++) {
        /* Once a group: its first member looks. */
        if (shards.ranks[0] == rank)
            ORTH_TRY(check_shards(k, shards, d->holdings[i].index, i));
        if (tp.ranks[0] == rank)
            ORTH_TRY(check_parts(k, tp, d->holdings[i].index, i));
    }
    return ORTH_OK;
}

/* Context-parallel ranks, and replicas, have the same sums, and each updates the same elements. */
static orth_status check_replicas(rank_check *k, int32_t rank, orth_group g)
{
    members m = members_of(k, &rank, g);
    const digest *d = k->digests[rank];
    for (int32_t i = 0; d != k->digests[m.ranks[0]] && i < d->num_holdings; i++) {
        const holding *h = &d->holdings[i], *first = rank_holding(k, m.ranks[0], h->index, i);
        if (first && (h->first != first->first || h->count != first->count))
            return refuse(k, rank, h->index,
                          "instruction %d of rank %d updates elements [%" PRId64 ", %" PRId64
                          "), instruction %d of rank %d, in one %s group with it, [%" PRId64 ", %" PRId64 ")",
                          h->update, rank, h->first, h->first + h->count, first->update, m.ranks[0],
                          orth_group_name(g), first->first, first->first + first->count);
    }
    return ORTH_OK;
}

/* The members of a group hold the same parameters: none has one that the first has not. */
static orth_status check_alike(rank_check *k, int32_t rank, orth_group g)
{
    members m = members_of(k, &rank, g);
    const digest *d = k->digests[rank];
    /* The same events: one program, and so the same parameters. */
    for (int32_t i = 0; d->events != k->digests[m.ranks[0]]->events && i < d->num_holdings; i++)
        if (!rank_holding(k, m.ranks[0], d->holdings[i].index, i))
            return refuse(k, rank, d->holdings[i].index, "rank %d has it, rank %d of its %s group does not",
                          rank, m.ranks[0], orth_group_name(g));
    return ORTH_OK;
}

/* Pipelines that were looked at, by their first ranks. */
typedef struct {
    int32_t num, *first;
} seen;

/* Not so for a pipeline whose stages have the programs of another one's: what a stage holds is the same. */
static bool is_new(const rank_check *k, seen *s, int32_t rank)
{
    const int32_t id = k->instances.of[rank][ORTH_GROUP_PP];
    for (int32_t i = s->num - 1; id >= 0 && i >= 0; i--) {
        const int32_t of = k->instances.of[s->first[i]][ORTH_GROUP_PP];
        if (of >= 0 && rank_same_members(k, &k->instances.list[of], &k->instances.list[id]))
            return false;
    }
    s->first[s->num++] = rank;
    return true;
}

orth_status rank_check_cover(rank_check *k)
{
    static const orth_group alike[] = {ORTH_GROUP_TP, ORTH_GROUP_CP, ORTH_GROUP_DP, ORTH_GROUP_SHARD,
                                       ORTH_GROUP_REPLICATE};
    orth_rank_program r;
    seen pipelines = {0, ORTH_ARENA_ARRAY(k->ctx, &k->arena, int32_t, k->num_ranks)};
    if (!pipelines.first)
        return ORTH_ERR_NOMEM;
    /* The table of any rank has all parameters of the model, also those that the rank does not hold. */
    ORTH_TRY(k->source->program(k->ctx, k->source->user, 0, &r));
    for (int32_t rank = 0; rank < k->num_ranks; rank++) {
        if (!k->digests[rank]->trains)
            continue;
        for (int g = 0; g < ORTH_COUNT(alike); g++)
            ORTH_TRY(check_alike(k, rank, alike[g]));
        ORTH_TRY(check_replicas(k, rank, ORTH_GROUP_CP));
        ORTH_TRY(check_replicas(k, rank, ORTH_GROUP_REPLICATE));
        ORTH_TRY(check_rank(k, rank));
        members pp = members_of(k, &rank, ORTH_GROUP_PP);
        if (pp.ranks[0] == rank && is_new(k, &pipelines, rank))
            for (int32_t i = 0; i < r.num_params; i++)
                ORTH_TRY(r.params[i].frozen ? ORTH_OK : check_stages(k, pp, i));
    }
    return ORTH_OK;
}
