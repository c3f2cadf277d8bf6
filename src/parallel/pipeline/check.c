/* check.c -- the five rules of schedule.h, in words. */
#include "parallel/pipeline/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "parallel/pipeline/emit.h"

#define NOWHERE (-1)
#define WORDS_MAX 96

typedef struct {
    orth_ctx *ctx;
    const orth_schedule *s;
    orth_status code;
    const char *place;
    /* [kind][chunk * m + micro-batch] position in the list of the chunk's rank; NOWHERE */
    int32_t *at[ORTH_NUM_ACTION_KINDS];
} checker;

#define BREAKS(k, fmt, ...) ORTH_FAIL((k)->ctx, (k)->code, "%s: " fmt, (k)->place, __VA_ARGS__)

/* "rank 1, action 3 (forward of micro-batch 2 on chunk 1)"; actions count from 0. */
static const char *words(char out[WORDS_MAX], int rank, int at, const orth_action *a)
{
    snprintf(out, WORDS_MAX, "rank %d, action %d (%s of micro-batch %d on chunk %d)", rank, at,
             orth_action_name(a->kind), (int)a->micro_batch, (int)a->chunk);
    return out;
}

static int64_t index_of(const orth_schedule *s, const orth_action *a)
{
    return (int64_t)a->chunk * s->num_micro_batches + a->micro_batch;
}

/* Sizes, and whether there can be an action for each pair at all: nothing is allocated before. */
static orth_status check_sizes(const checker *k)
{
    const orth_schedule *s = k->s;
    int64_t total = 0;
    if (s->num_ranks < 1 || s->num_chunks < 1 || s->num_micro_batches < 1)
        return BREAKS(k, "%d ranks, %d chunks, %d micro-batches: each must be at least 1", (int)s->num_ranks,
                      (int)s->num_chunks, (int)s->num_micro_batches);
    for (int c = 0; c < s->num_chunks; c++)
        if (s->chunk_rank[c] < 0 || s->chunk_rank[c] >= s->num_ranks)
            return BREAKS(k, "chunk %d is on rank %d, but ranks are 0 to %d", c, (int)s->chunk_rank[c],
                          (int)s->num_ranks - 1);
    for (int r = 0; r < s->num_ranks; r++)
        total += s->lists[r].num_actions;
    const int64_t need = (s->split ? 3 : 2) * (int64_t)s->num_chunks * s->num_micro_batches;
    if (total > INT32_MAX)
        return BREAKS(k, "%" PRId64 " actions are more than %d", total, INT32_MAX);
    if (2 * total < need) /* else each is missed by name */
        return BREAKS(k, "%" PRId64 " actions for %d chunks and %d micro-batches, which need %" PRId64, total,
                      (int)s->num_chunks, (int)s->num_micro_batches, need);
    return ORTH_OK;
}

/* Rule 1, and that nothing is there twice. */
static orth_status check_place(checker *k, int rank, int at)
{
    const orth_schedule *s = k->s;
    const orth_action *a = &s->lists[rank].actions[at];
    char w[WORDS_MAX];
    if (a->kind < 0 || a->kind >= ORTH_NUM_ACTION_KINDS)
        return BREAKS(k, "rank %d, action %d: unknown kind %d", rank, at, (int)a->kind);
    words(w, rank, at, a);
    if (a->chunk < 0 || a->chunk >= s->num_chunks)
        return BREAKS(k, "%s: chunks are 0 to %d", w, (int)s->num_chunks - 1);
    if (a->micro_batch < 0 || a->micro_batch >= s->num_micro_batches)
        return BREAKS(k, "%s: micro-batches are 0 to %d", w, (int)s->num_micro_batches - 1);
    if (s->chunk_rank[a->chunk] != rank)
        return BREAKS(k, "%s: that chunk is on rank %d", w, (int)s->chunk_rank[a->chunk]);
    if (a->kind != ORTH_ACTION_F && s->split == (a->kind == ORTH_ACTION_B))
        return BREAKS(k, "%s: a schedule has either backwards, or input and weight gradients", w);
    int32_t *slot = &k->at[a->kind][index_of(s, a)];
    if (*slot != NOWHERE)
        return BREAKS(k, "%s: it is there already, as action %d", w, (int)*slot);
    *slot = at;
    return ORTH_OK;
}

/* Rule 2. */
static orth_status check_complete(const checker *k)
{
    const orth_schedule *s = k->s;
    for (int kind = 0; kind < ORTH_NUM_ACTION_KINDS; kind++) {
        if (kind != ORTH_ACTION_F && s->split == (kind == ORTH_ACTION_B))
            continue;
        for (int c = 0; c < s->num_chunks; c++)
            for (int i = 0; i < s->num_micro_batches; i++)
                if (k->at[kind][(int64_t)c * s->num_micro_batches + i] == NOWHERE)
                    return BREAKS(k, "rank %d has no %s of micro-batch %d on chunk %d", (int)s->chunk_rank[c],
                                  orth_action_name((orth_action_kind)kind), i, c);
    }
    return ORTH_OK;
}

/* What `a` needs to have happened. The own forward or input gradient comes first. */
static int needs(const orth_schedule *s, const orth_action *a, orth_action out[2])
{
    const orth_action_kind back = s->split ? ORTH_ACTION_BI : ORTH_ACTION_B;
    int n = 0;
    if (a->kind == ORTH_ACTION_F) {
        if (a->chunk > 0)
            out[n++] = (orth_action){ORTH_ACTION_F, a->chunk - 1, a->micro_batch, 0};
    } else if (a->kind == ORTH_ACTION_W) {
        out[n++] = (orth_action){ORTH_ACTION_BI, a->chunk, a->micro_batch, 0};
    } else {
        out[n++] = (orth_action){ORTH_ACTION_F, a->chunk, a->micro_batch, 0};
        if (a->chunk + 1 < s->num_chunks)
            out[n++] = (orth_action){back, a->chunk + 1, a->micro_batch, 0};
    }
    return n;
}

/* Rule 3: what an action needs from its own rank stands before it. */
static orth_status check_local_order(const checker *k, int rank, int at)
{
    const orth_schedule *s = k->s;
    const orth_action *a = &s->lists[rank].actions[at];
    orth_action need[2];
    const int n = needs(s, a, need);
    for (int i = 0; i < n; i++) {
        const int32_t before = k->at[need[i].kind][index_of(s, &need[i])];
        char w[WORDS_MAX];
        if (s->chunk_rank[need[i].chunk] == rank && before > at)
            return BREAKS(k, "%s: it stands before the %s on chunk %d, which it needs and which is action %d",
                          words(w, rank, at, a), orth_action_name(need[i].kind), (int)need[i].chunk,
                          (int)before);
    }
    return ORTH_OK;
}

/* The need of the action at `at` of `rank` that is not met while each rank q has done done[q] actions;
 * false if all are. */
static bool unmet(const checker *k, const int32_t *done, int rank, int at, orth_action *out)
{
    const orth_schedule *s = k->s;
    orth_action need[2];
    const int n = needs(s, &s->lists[rank].actions[at], need);
    for (int i = 0; i < n; i++) {
        if (k->at[need[i].kind][index_of(s, &need[i])] >= done[s->chunk_rank[need[i].chunk]]) {
            *out = need[i];
            return true;
        }
    }
    return false;
}

/* Ranks wait for each other in a circle: follow it from `rank`, and tell it. */
static orth_status tell_deadlock(const checker *k, const int32_t *done, int rank)
{
    const orth_schedule *s = k->s;
    orth_action need = {0};
    char text[ORTH_MESSAGE_MAX - 200], w[WORDS_MAX];
    size_t used = 0;
    int told = 0;
    for (int i = 0; i < s->num_ranks; i++) { /* after so many steps we are on the circle itself */
        unmet(k, done, rank, done[rank], &need);
        rank = s->chunk_rank[need.chunk];
    }
    const int first = rank;
    do {
        unmet(k, done, rank, done[rank], &need);
        if (told++ < 4 && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%s%s waits for the %s of micro-batch %d on "
                                     "chunk %d",
                                     used ? "; " : "",
                                     words(w, rank, (int)done[rank], &s->lists[rank].actions[done[rank]]),
                                     orth_action_name(need.kind), (int)need.micro_batch, (int)need.chunk);
        rank = s->chunk_rank[need.chunk];
    } while (rank != first);
    return BREAKS(k, "deadlock of %d ranks: %s%s", told, text, told > 4 ? "; and so on" : "");
}

/* Rule 4: let every rank go as far as it can, until nothing moves. */
static orth_status check_progress(const checker *k)
{
    const orth_schedule *s = k->s;
    int32_t *done = ORTH_NEW_ARRAY(k->ctx, int32_t, s->num_ranks);
    if (!done)
        return ORTH_ERR_NOMEM;
    bool moved = true;
    orth_action need;
    while (moved) {
        moved = false;
        for (int r = 0; r < s->num_ranks; r++) {
            for (; done[r] < s->lists[r].num_actions && !unmet(k, done, r, done[r], &need); done[r]++)
                moved = true;
        }
    }
    orth_status status = ORTH_OK;
    for (int r = 0; r < s->num_ranks && status == ORTH_OK; r++)
        if (done[r] < s->lists[r].num_actions)
            status = tell_deadlock(k, done, r);
    orth_mem_free(k->ctx, done);
    return status;
}

/* Rule 5, for the list of one rank; updates [num_chunks] starts at 0. Sets the versions where lists is
 * given, checks them where not. */
static orth_status walk_versions(const checker *k, int rank, int32_t *updates, int32_t *used,
                                 orth_action *const *lists)
{
    const orth_schedule *s = k->s;
    for (int i = 0; i < s->lists[rank].num_actions; i++) {
        const orth_action *a = &s->lists[rank].actions[i];
        int32_t *mine = &used[index_of(s, a)];
        if (a->kind == ORTH_ACTION_F)
            *mine = s->async ? updates[a->chunk] : 0;
        char w[WORDS_MAX];
        if (lists)
            lists[rank][i].version = *mine;
        else if (a->version != *mine)
            return BREAKS(k, "%s: weights of version %d, but it is version %d that %s", words(w, rank, i, a),
                          (int)a->version, (int)*mine,
                          a->kind == ORTH_ACTION_F ? "is the newest then" : "its forward used");
        updates[a->chunk] += a->kind == ORTH_ACTION_B || a->kind == ORTH_ACTION_W;
    }
    return ORTH_OK;
}

static orth_status all_versions(const checker *k, orth_action *const *lists)
{
    const orth_schedule *s = k->s;
    const int64_t pairs = (int64_t)s->num_chunks * s->num_micro_batches;
    int32_t *updates = ORTH_NEW_ARRAY(k->ctx, int32_t, s->num_chunks);
    int32_t *used = updates ? ORTH_NEW_ARRAY(k->ctx, int32_t, pairs) : NULL;
    orth_status status = used ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int r = 0; r < s->num_ranks && status == ORTH_OK; r++)
        status = walk_versions(k, r, updates, used, lists);
    orth_mem_free(k->ctx, used);
    orth_mem_free(k->ctx, updates);
    return status;
}

/* Fills k->at while checking rules 1 and 2. */
static orth_status index_actions(checker *k)
{
    const orth_schedule *s = k->s;
    const int64_t pairs = (int64_t)s->num_chunks * s->num_micro_batches;
    int32_t *all = ORTH_NEW_ARRAY(k->ctx, int32_t, ORTH_NUM_ACTION_KINDS * pairs);
    if (!all)
        return ORTH_ERR_NOMEM;
    memset(all, 0xff, (size_t)(ORTH_NUM_ACTION_KINDS * pairs) * sizeof *all); /* NOWHERE */
    for (int kind = 0; kind < ORTH_NUM_ACTION_KINDS; kind++)
        k->at[kind] = all + kind * pairs;
    for (int r = 0; r < s->num_ranks; r++)
        for (int i = 0; i < s->lists[r].num_actions; i++)
            ORTH_TRY(check_place(k, r, i));
    return check_complete(k);
}

static orth_status check_all(checker *k, orth_action *const *lists)
{
    const orth_schedule *s = k->s;
    ORTH_TRY(check_sizes(k));
    ORTH_TRY(index_actions(k));
    for (int r = 0; r < s->num_ranks; r++)
        for (int i = 0; i < s->lists[r].num_actions; i++)
            ORTH_TRY(check_local_order(k, r, i));
    ORTH_TRY(check_progress(k));
    return all_versions(k, lists);
}

orth_status orth_schedule_check_as(orth_ctx *ctx, const orth_schedule *s, orth_status code, const char *place,
                                   orth_action *const *lists)
{
    checker k = {.ctx = ctx, .s = s, .code = code, .place = place};
    const orth_status status = check_all(&k, lists);
    orth_mem_free(ctx, k.at[0]);
    return status;
}

orth_status orth_schedule_check(orth_ctx *ctx, const orth_schedule *s)
{
    char place[ORTH_SCHEDULE_PLACE_MAX];
    snprintf(place, sizeof place, "pipeline=%s", s->name);
    return orth_schedule_check_as(ctx, s, ORTH_ERR_ARG, place, NULL);
}

/* ---- order of messages ---- */

/* The message that `a` waits for from another rank; false if there is none. */
static bool message_to(const orth_schedule *s, const orth_action *a, orth_action *sent)
{
    orth_action need[2];
    const int n = needs(s, a, need);
    if (n == 0 || a->kind == ORTH_ACTION_W)
        return false;
    *sent = need[n - 1];
    return s->chunk_rank[sent->chunk] != s->chunk_rank[a->chunk];
}

/* last [num_ranks][2]: position, in the sender's list, of the last message consumed from each sender. */
static orth_status check_received(const checker *k, int rank, int32_t *last)
{
    const orth_schedule *s = k->s;
    memset(last, 0xff, 2 * (size_t)s->num_ranks * sizeof *last);
    for (int i = 0; i < s->lists[rank].num_actions; i++) {
        orth_action sent;
        if (!message_to(s, &s->lists[rank].actions[i], &sent))
            continue;
        const int sender = s->chunk_rank[sent.chunk];
        const int32_t at = k->at[sent.kind][index_of(s, &sent)];
        int32_t *before = &last[2 * sender + (sent.kind != ORTH_ACTION_F)];
        char mine[WORDS_MAX], theirs[WORDS_MAX];
        if (at < *before)
            return BREAKS(k, "%s takes what %s sent before a message that was taken already",
                          words(mine, rank, i, &s->lists[rank].actions[i]), words(theirs, sender, at, &sent));
        *before = at;
    }
    return ORTH_OK;
}

orth_status orth_schedule_check_in_order(orth_ctx *ctx, const orth_schedule *s)
{
    char place[ORTH_SCHEDULE_PLACE_MAX];
    snprintf(place, sizeof place, "pipeline=%s", s->name);
    checker k = {.ctx = ctx, .s = s, .code = ORTH_ERR_ARG, .place = place};
    orth_status status = index_actions(&k);
    int32_t *last = status == ORTH_OK ? ORTH_NEW_ARRAY(ctx, int32_t, 2 * s->num_ranks) : NULL;
    if (status == ORTH_OK && !last)
        status = ORTH_ERR_NOMEM;
    for (int r = 0; r < s->num_ranks && status == ORTH_OK; r++)
        status = check_received(&k, r, last);
    orth_mem_free(ctx, last);
    orth_mem_free(ctx, k.at[0]);
    return status;
}
