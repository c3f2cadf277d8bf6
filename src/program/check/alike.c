/* alike.c -- see alike.h.
 *
 *   lists --number--> colours --what stands in the groups of each rank--> more colours ... no more --> communicators of colours
 *
 * Rounds number what they find by 64 bits of it. A last look compares everything; ranks that two equal hashes would have mixed
 * up are then all of different colours, which is slower and as right.
 */
#include "program/check/alike.h"

#include "base/hash.h"

typedef struct {
    uint64_t key;
    int32_t number;  /* from 1 */
} entry;

typedef struct {
    orth_ctx *ctx;
    const orth_instances *all;
    const orth_wait_list *const *lists;
    int num_ranks;
    int32_t num;
    int32_t *of;             /* [num_ranks] colours */
    int32_t *first;          /* [num_ranks] of each colour, the lowest rank */
    entry *table;            /* [mask + 1] */
    uint64_t mask;
    bool *calls, *messages;  /* [instances] of members: any, and messages */
    uint64_t *seen;          /* [instances] what stands in each */
    int32_t *stamp;          /* [num_ranks] the instance that a colour was last seen in */
} finder;

static orth_status open_finder(finder *x, orth_arena *arena)
{
    const int R = x->num_ranks, I = x->all->num;
    x->mask = 1;
    while (x->mask < 2 * (uint64_t)R)
        x->mask = 2 * x->mask + 1;
    x->of = ORTH_ARENA_ARRAY(x->ctx, arena, int32_t, R);
    x->first = ORTH_ARENA_ARRAY(x->ctx, arena, int32_t, R);
    x->stamp = ORTH_ARENA_ARRAY(x->ctx, arena, int32_t, R);
    x->table = ORTH_ARENA_ARRAY(x->ctx, arena, entry, (int64_t)x->mask + 1);
    x->calls = ORTH_ARENA_ARRAY(x->ctx, arena, bool, 2 * (int64_t)I + 1);
    x->seen = ORTH_ARENA_ARRAY(x->ctx, arena, uint64_t, I + 1);
    if (!x->of || !x->first || !x->stamp || !x->table || !x->calls || !x->seen)
        return ORTH_ERR_NOMEM;
    x->messages = x->calls + I;
    for (int32_t i = 0; i < I; i++)
        for (int32_t m = 0; m < x->all->list[i].n; m++) {
            const orth_wait_list *l = x->lists[x->all->list[i].ranks[m]];
            const orth_group g = x->all->list[i].group;
            x->messages[i] = x->messages[i] || l->sends[g] > 0;
            x->calls[i] = x->calls[i] || l->sends[g] > 0 || l->collectives[g] > 0;
        }
    return ORTH_OK;
}

/* What equal lists share. */
static const orth_wait_call *calls_of(const orth_wait_list *l)
{
    return l->tail ? l->tail : l->calls;
}

/* Numbers the keys in the order of their first ranks; how many there are. */
static void number(finder *x, const uint64_t *key)
{
    memset(x->table, 0, (x->mask + 1) * sizeof *x->table);
    x->num = 0;
    for (int r = 0; r < x->num_ranks; r++) {
        uint64_t at = key[r] & x->mask;
        while (x->table[at].number && x->table[at].key != key[r])
            at = (at + 1) & x->mask;
        if (!x->table[at].number) {
            x->first[x->num] = r;
            x->table[at] = (entry){key[r], ++x->num};
        }
        x->of[r] = x->table[at].number - 1;
    }
}

/* Of a set the sum, which has no order. */
static void look_at_groups(finder *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        x->stamp[r] = -1;
    for (int32_t i = 0; i < x->all->num; i++) {
        const orth_instance *in = &x->all->list[i];
        uint64_t h = in->group;
        for (int32_t m = 0; x->calls[i] && m < in->n; m++) {
            const int32_t colour = x->of[in->ranks[m]];
            if (x->messages[i])
                h = orth_hash_mix(h, (uint64_t)colour);
            else if (x->stamp[colour] != i)
                h += orth_hash_mix(in->group, (uint64_t)colour);
            x->stamp[colour] = i;
        }
        x->seen[i] = h;
    }
}

static void refine(finder *x, uint64_t *key)
{
    look_at_groups(x);
    for (int r = 0; r < x->num_ranks; r++) {
        key[r] = (uint64_t)x->of[r];
        for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
            const int32_t i = x->all->of[r][g];
            if (i >= 0 && x->calls[i])
                key[r] = orth_hash_mix(orth_hash_mix(key[r], x->seen[i]),
                                       x->messages[i] ? (uint64_t)x->all->pos[r][g] + 1 : 0);
        }
    }
    number(x, key);
}

/* ---- communicators of colours ---- */

/* The communicator that instance i is one of. */
static orth_status add_instance(finder *x, orth_arena *arena, orth_alike *out, int32_t i)
{
    const orth_instance *in = &x->all->list[i];
    int32_t *ranks = ORTH_ARENA_ARRAY(x->ctx, arena, int32_t, in->n), n = 0;
    if (!ranks)
        return ORTH_ERR_NOMEM;
    for (int32_t m = 0; m < in->n; m++) {
        const int32_t colour = x->of[in->ranks[m]];
        if (!x->messages[i] && out->instances.of[colour][in->group] == out->instances.num)
            continue;
        out->instances.of[colour][in->group] = out->instances.num;
        out->instances.pos[colour][in->group] = n;
        ranks[n++] = colour;
    }
    out->instances.list[out->instances.num++] = (orth_instance){in->group, n, ranks};
    return ORTH_OK;
}

/* Whether the members of instance i are those of the communicator of their colours. */
static bool stands_for(const finder *x, const orth_alike *a, int32_t i)
{
    const orth_instance *in = &x->all->list[i];
    const int32_t to = a->instances.of[x->of[in->ranks[0]]][in->group];
    int32_t colours = 0;
    for (int32_t m = 0; m < in->n; m++) {
        const int32_t colour = x->of[in->ranks[m]];
        if (a->instances.of[colour][in->group] != to || (x->messages[i] && a->instances.pos[colour][in->group] != m))
            return false;
        colours += x->stamp[colour] != i;
        x->stamp[colour] = i;
    }
    return colours == a->instances.list[to].n;
}

static bool is_right(const finder *x, const orth_alike *a)
{
    for (int r = 0; r < x->num_ranks; r++) {
        x->stamp[r] = -1;
        if (calls_of(x->lists[r]) != calls_of(a->lists[x->of[r]]))
            return false;
    }
    for (int32_t i = 0; i < x->all->num; i++)
        if (x->calls[i] && !stands_for(x, a, i))
            return false;
    return true;
}

static orth_status make_instances(finder *x, orth_arena *arena, orth_alike *out)
{
    const int64_t num = x->num;
    out->lists = ORTH_ARENA_ARRAY(x->ctx, arena, const orth_wait_list *, num);
    out->instances = (orth_instances){.list = ORTH_ARENA_ARRAY(x->ctx, arena, orth_instance, num * ORTH_NUM_GROUPS),
                                      .of = orth_arena_alloc(x->ctx, arena, (size_t)num * sizeof *out->instances.of),
                                      .pos = orth_arena_alloc(x->ctx, arena, (size_t)num * sizeof *out->instances.pos)};
    if (!out->lists || !out->instances.list || !out->instances.of || !out->instances.pos)
        return ORTH_ERR_NOMEM;
    for (int32_t c = 0; c < num; c++) {
        out->lists[c] = x->lists[x->first[c]];
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            out->instances.of[c][g] = -1;
    }
    for (int32_t c = 0; c < num; c++)
        for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
            const int32_t i = x->all->of[x->first[c]][g];
            if (i >= 0 && x->calls[i] && out->instances.of[c][g] < 0)
                ORTH_TRY(add_instance(x, arena, out, i));
        }
    out->num = x->num;
    out->of = x->of;
    return ORTH_OK;
}

static orth_status find(finder *x, orth_arena *arena, orth_alike *out)
{
    uint64_t *key = ORTH_ARENA_ARRAY(x->ctx, arena, uint64_t, x->num_ranks);
    if (!key)
        return ORTH_ERR_NOMEM;
    for (int r = 0; r < x->num_ranks; r++)
        key[r] = orth_hash_mix(0, (uint64_t)(uintptr_t)calls_of(x->lists[r]));
    number(x, key);
    for (int32_t before = 0; x->num > before;) {
        before = x->num;
        refine(x, key);
    }
    ORTH_TRY(make_instances(x, arena, out));
    if (is_right(x, out))
        return ORTH_OK;
    for (int r = 0; r < x->num_ranks; r++) /* two hashes were equal by chance: every rank has a colour of its own */
        x->of[r] = x->first[r] = r;
    x->num = x->num_ranks;
    return make_instances(x, arena, out);
}

orth_status orth_alike_find(orth_ctx *ctx, orth_arena *arena, orth_alike *out, const orth_instances *instances, int num_ranks,
                            const orth_wait_list *const *lists)
{
    finder x = {.ctx = ctx, .all = instances, .lists = lists, .num_ranks = num_ranks};
    *out = (orth_alike){.num = 0};
    ORTH_TRY(open_finder(&x, arena));
    return find(&x, arena, out);
}
