/* again_sets.c -- see again_sets.h. */
#include "plan/again_sets.h"

#include <stdlib.h>

/* Subsets of so many nodes are looked at; further nodes, which keep less, are always kept. */
#define MAX_FREE 16

int orth_again_compare(orth_again_cost a, orth_again_cost b)
{
    if (a.flops != b.flops)
        return a.flops < b.flops ? -1 : 1;
    return (a.moved > b.moved) - (a.moved < b.moved);
}

/* ---- one layer ---- */

/* Node n, which is marked, is needed: so are the marked ones among those whose values it reads. */
static void need(const orth_graph *g, const bool *again, int32_t n, uint64_t *made)
{
    if (*made >> n & 1)
        return;
    *made |= (uint64_t)1 << n;
    for (int k = 0; k < g->nodes[n].num_in; k++) {
        const orth_value v = g->nodes[n].in[k];
        if (v != ORTH_NO_VALUE && g->values[v].producer >= 0 && again[g->values[v].producer])
            need(g, again, g->values[v].producer, made);
    }
}

/* Those of the marked nodes that the backward, or the next layer of a group, has use for. */
static uint64_t made_again(const orth_graph *g, const bool *again, bool joined)
{
    uint64_t made = 0;
    for (int32_t i = g->num_forward; i < g->num_nodes; i++)
        for (int k = 0; k < g->nodes[i].num_in; k++) {
            const orth_value v = g->nodes[i].in[k];
            const int32_t p = v == ORTH_NO_VALUE ? -1 : g->values[v].producer;
            if (p >= 0 && p < g->num_forward && again[p])
                need(g, again, p, &made);
        }
    const int32_t last = g->values[g->output].producer;
    if (joined && last >= 0 && again[last])
        need(g, again, last, &made);
    return made;
}

/* The node whose bytes hold value v; -1: none of the layer. What is in place has no bytes of its own. */
static int32_t owner_of(const orth_saved *saved, const orth_graph *g, orth_value v)
{
    int32_t p = v == ORTH_NO_VALUE ? -1 : g->values[v].producer;
    while (p >= 0 && saved->bytes[p] == 0 && g->nodes[p].num_in > 0)
        p = g->values[g->nodes[p].in[0]].producer;
    return p;
}

/* Of the nodes that a plain run does not keep, those that are read by what is made again and not made again themselves. */
static uint64_t held_for(const orth_saved *saved, const orth_graph *g, uint64_t made)
{
    uint64_t held = 0;
    for (int32_t n = 0; n < g->num_forward && n < ORTH_RECOMPUTE_NODES; n++)
        for (int k = 0; made >> n & 1 && k < g->nodes[n].num_in; k++) {
            const int32_t p = owner_of(saved, g, g->nodes[n].in[k]);
            if (p >= 0 && p < ORTH_RECOMPUTE_NODES && saved->kept[p] == 0 && !(made >> p & 1))
                held |= (uint64_t)1 << p;
        }
    return held;
}

orth_again_set orth_again_set_of(const orth_saved *saved, const orth_graph *g, const bool *again, bool joined)
{
    const uint64_t made = made_again(g, again, joined);
    orth_again_set set = {.marks = made, .held = held_for(saved, g, made)};
    for (int32_t n = 0; n < g->num_forward && n < ORTH_RECOMPUTE_NODES; n++) {
        set.spared -= set.held >> n & 1 ? saved->bytes[n] : 0;
        if (!(made >> n & 1))
            continue;
        set.cost.flops += saved->cost[n].flops;
        set.cost.moved += saved->cost[n].moved;
        set.spared += saved->kept[n];
    }
    return set;
}

static int by_cost(const void *a, const void *b)
{
    const orth_again_set *x = a, *y = b;
    const int c = orth_again_compare(x->cost, y->cost);
    return c ? c : (x->spared < y->spared) - (x->spared > y->spared);
}

/* Of sets in the order of by_cost those that spare more than all before. */
static int32_t keep_worthy(orth_again_set *s, int32_t n)
{
    int32_t num = 0;
    for (int32_t i = 0; i < n; i++)
        if (num == 0 || s[i].spared > s[num - 1].spared)
            s[num++] = s[i];
    return num;
}

/* Nodes that a set can have or not, those with the most bytes first: made again; behind them held, or made again with what reads them. */
typedef struct {
    int32_t node[MAX_FREE], num_free, num;
} free_nodes;

static orth_again_set subset_of(const orth_saved *saved, const orth_graph *g, bool sequence_parallel, const free_nodes *f, uint32_t subset)
{
    bool again[ORTH_RECOMPUTE_NODES];
    uint64_t marks = 0, holds = 0;
    for (int32_t i = 0; i < f->num; i++)
        *(i < f->num_free ? &marks : &holds) |= (uint64_t)(subset >> i & 1) << f->node[i];
    const orth_recompute r = {.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = &marks, .holds = holds};
    orth_recompute_mark(&r, 0, g, sequence_parallel, again);
    return orth_again_set_of(saved, g, again, false);
}

/* Whether a node can be made again: not one in place, which goes with what it takes over. One that is not kept, because weights are frozen
 * whose gradient would read it, counts: made again or kept, it is there for what is made of it again. */
static bool is_free(const orth_saved *saved, const orth_graph *g, bool sequence_parallel, int32_t n)
{
    const free_nodes one = {.node = {n}, .num_free = 1, .num = 1};
    return saved->kept[n] > 0 || subset_of(saved, g, sequence_parallel, &one, 1).marks >> n & 1;
}

/* Whether a node that a plain run does not keep can be held in place of what is made of it: it has bytes of its own, and to make it again computes. */
static bool can_be_held(const orth_saved *saved, int32_t n)
{
    return saved->kept[n] == 0 && saved->bytes[n] > 0 && saved->cost[n].flops > 0;
}

/* Behind those from `first` on that have more bytes, as far as there is room. */
static void insert(free_nodes *f, int32_t first, int32_t n, const int64_t *bytes)
{
    int32_t at = f->num < MAX_FREE ? f->num++ : MAX_FREE;
    for (; at > first && bytes[f->node[at - 1]] < bytes[n]; at--)
        if (at < MAX_FREE)
            f->node[at] = f->node[at - 1];
    if (at < MAX_FREE)
        f->node[at] = n;
}

static free_nodes list_free(const orth_saved *saved, const orth_graph *g, bool sequence_parallel)
{
    free_nodes f = {.num = 0};
    for (int32_t n = 0; n < g->num_forward && n < ORTH_RECOMPUTE_NODES; n++)
        if (is_free(saved, g, sequence_parallel, n))
            insert(&f, 0, n, saved->kept);
    f.num_free = f.num;
    for (int32_t n = 0; n < g->num_forward && n < ORTH_RECOMPUTE_NODES; n++)
        if (!is_free(saved, g, sequence_parallel, n) && can_be_held(saved, n))
            insert(&f, f.num_free, n, saved->bytes);
    return f;
}

/* Leaves out the set that spares the least more than the one before it. */
static int32_t drop_least(orth_again_set *s, int32_t n)
{
    int32_t least = 1;
    for (int32_t i = 2; i + 1 < n; i++)
        if (s[i].spared - s[i - 1].spared < s[least].spared - s[least - 1].spared)
            least = i;
    memmove(s + least, s + least + 1, (size_t)(n - least - 1) * sizeof *s);
    return n - 1;
}

int32_t orth_again_all_sets(const orth_saved *saved, const orth_graph *g, bool sequence_parallel, int32_t most, orth_again_set *out)
{
    const free_nodes f = list_free(saved, g, sequence_parallel);
    int32_t n = 0;
    for (uint32_t subset = 0; subset < (uint32_t)1 << f.num; subset++) {
        const orth_again_set set = subset_of(saved, g, sequence_parallel, &f, subset);
        int32_t same = 0;
        while (same < n && out[same].marks != set.marks)
            same++;
        if (same == n && n == most)
            return 0;
        out[same] = set;
        n += same == n;
    }
    return n;
}

/* Worthy sets pile up in a buffer, which is thinned when it is full. */
int32_t orth_again_sets(const orth_saved *saved, const orth_graph *g, bool sequence_parallel, orth_again_set *out)
{
    const free_nodes f = list_free(saved, g, sequence_parallel);
    orth_again_set piled[512] = {{0}};
    int32_t n = 0;
    for (uint32_t subset = 0; subset < (uint32_t)1 << f.num; subset++) {
        piled[n++] = subset_of(saved, g, sequence_parallel, &f, subset);
        if (n < ORTH_COUNT(piled) && subset + 1 < (uint32_t)1 << f.num)
            continue;
        qsort(piled, (size_t)n, sizeof *piled, by_cost);
        n = keep_worthy(piled, n);
        while (n > ORTH_COUNT(piled) / 2)
            n = drop_least(piled, n);
    }
    while (n > ORTH_AGAIN_SETS)
        n = drop_least(piled, n);
    memcpy(out, piled, (size_t)n * sizeof *out);
    return n;
}

/* ---- the last layer ---- */

static int64_t waiting_at(const orth_saved *saved, int32_t moment, uint64_t marks)
{
    const int64_t *waiting = saved->waiting + ((int64_t)moment * saved->num_layers + saved->num_layers - 1) * saved->num_nodes;
    int64_t bytes = 0;
    for (int32_t n = 0; n < saved->num_nodes; n++)
        bytes += marks >> n & 1 ? waiting[n] : 0;
    return bytes;
}

/* Of equal sets the first is as good as the others. */
static bool is_as_good(const orth_saved *saved, const orth_again_set *a, const orth_again_set *b)
{
    if (orth_again_compare(a->cost, b->cost) > 0 || a->spared < b->spared || a->held & ~b->held)
        return false; /* what is held lives at moments that are not known here */
    for (int32_t t = 0; t < saved->num_moments; t++)
        if (waiting_at(saved, t, a->marks & ~b->marks) < waiting_at(saved, t, b->marks & ~a->marks))
            return false;
    return true;
}

int32_t orth_again_sets_of_last(const orth_saved *saved, orth_again_set *sets, int32_t num)
{
    int32_t n = 0;
    qsort(sets, (size_t)num, sizeof *sets, by_cost);
    for (int32_t i = 0; i < num; i++) {
        bool worthy = true;
        for (int32_t k = 0; k < n && worthy; k++)
            worthy = !is_as_good(saved, &sets[k], &sets[i]);
        if (worthy)
            sets[n++] = sets[i];
    }
    return n;
}

/* ---- several layers ---- */

static int by_mixture_cost(const void *a, const void *b)
{
    const orth_again_mixture *x = a, *y = b;
    const int c = orth_again_compare(x->cost, y->cost);
    if (c || x->spared != y->spared)
        return c ? c : (x->spared < y->spared) - (x->spared > y->spared);
    return memcmp(x->layers, y->layers, sizeof x->layers);
}

/* Too many: every so many are left out, and both ends kept. */
static int32_t thin(orth_again_mixture *m, int32_t n)
{
    if (n <= ORTH_AGAIN_MIXTURES)
        return n;
    for (int64_t i = 0; i < ORTH_AGAIN_MIXTURES; i++)
        m[i] = m[i * (n - 1) / (ORTH_AGAIN_MIXTURES - 1)];
    return ORTH_AGAIN_MIXTURES;
}

static int32_t keep_worthy_mixtures(orth_again_mixture *m, int32_t n)
{
    int32_t num = 0;
    qsort(m, (size_t)n, sizeof *m, by_mixture_cost);
    for (int32_t i = 0; i < n; i++)
        if (num == 0 || m[i].spared > m[num - 1].spared)
            m[num++] = m[i];
    return thin(m, num);
}

orth_status orth_again_mixtures(orth_ctx *ctx, orth_arena *arena, const orth_again_set *sets, int32_t num_sets, int32_t num_layers,
                                orth_again_mixture **out, int32_t *num)
{
    orth_again_mixture *now = ORTH_ARENA_ARRAY(ctx, arena, orth_again_mixture, ORTH_AGAIN_MIXTURES);
    orth_again_mixture *next = ORTH_NEW_ARRAY(ctx, orth_again_mixture, (int64_t)ORTH_AGAIN_MIXTURES * num_sets);
    int32_t n = 1;
    for (int32_t l = 0; now && next && l < num_layers; l++) {
        for (int32_t i = 0; i < n * num_sets; i++) {
            const orth_again_set *s = &sets[i % num_sets];
            next[i] = now[i / num_sets];
            next[i].cost.flops += s->cost.flops;
            next[i].cost.moved += s->cost.moved;
            next[i].spared += s->spared;
            next[i].layers[i % num_sets]++;
        }
        n = keep_worthy_mixtures(next, n * num_sets);
        memcpy(now, next, (size_t)n * sizeof *now);
    }
    orth_mem_free(ctx, next);
    *out = now;
    *num = n;
    return now && next ? ORTH_OK : ORTH_ERR_NOMEM;
}
