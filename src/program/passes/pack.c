/* pack.c -- see pack.h.
 *
 * A life touches its first and its last slice in part and covers the slices between them:
 *
 *     slices        0       1       2       3       4       5
 *     life              [-------------------------------]
 *                    partial        covered           partial
 *
 * The covered slices are O(log) nodes of the tree. Invariants, of the blocks placed so far:
 *  1. partial[s]: the blocks that begin or end in slice s, by offset, with their times;
 *  2. whole[v]: the union of those whose covered slices are made up of v and other nodes (not of nodes above v);
 *  3. any[v]: the union of those that touch a slice of v, but for those that cover v together with its parent.
 * What shares time with a life is then in partial[] of its two ends, in whole[] of the ends and the nodes above them,
 * and in any[] of the nodes that it covers.
 */
#include "program/passes/pack.h"

#include <string.h>

#define SLICE_INSTRS 128
#define MAX_LEVELS 32

/* Taken offsets, in ascending order. */
typedef struct {
    size_t begin, end;
} span;

typedef struct {
    span *v;
    int32_t num, cap;
} span_set;

typedef struct {
    size_t begin, end;
    int32_t first, last;
} placed;

typedef struct {
    placed *v;
    int32_t num, cap;
} placed_list;

typedef struct {
    orth_ctx *ctx;
    orth_arena arena;
    int32_t num_leaves;         /* a power of two; node v has the children 2v and 2v+1, leaf s is num_leaves + s */
    span_set *any, *whole;      /* [2*num_leaves] */
    placed_list *partial;       /* [num_leaves] */
} timeline;

/* ---- lists ---- */

static bool make_room(timeline *t, void **v, int32_t *cap, int32_t num, size_t size)
{
    if (num < *cap)
        return true;
    const int32_t more = *cap ? 2 * *cap : 4;
    void *fresh = orth_arena_alloc(t->ctx, &t->arena, (size_t)more * size);
    if (!fresh)
        return false;
    if (num > 0)
        memcpy(fresh, *v, (size_t)num * size);
    *v = fresh;
    *cap = more;
    return true;
}

/* The first span that ends behind `at`, or at it. */
static int32_t first_ending(const span_set *s, size_t at)
{
    int32_t low = 0, high = s->num;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (s->v[mid].end < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Adds [begin, end) to the union; touching spans become one. *known: it was there before. */
static bool add_span(timeline *t, span_set *s, size_t begin, size_t end, bool *known)
{
    const int32_t i = first_ending(s, begin);
    int32_t k = i;
    *known = i < s->num && s->v[i].begin <= begin && s->v[i].end >= end;
    if (*known)
        return true;
    while (k < s->num && s->v[k].begin <= end)
        k++;
    if (k == i && !make_room(t, (void **)&s->v, &s->cap, s->num, sizeof *s->v))
        return false;
    const span joined = {k > i ? ORTH_MIN(begin, s->v[i].begin) : begin, k > i ? ORTH_MAX(end, s->v[k - 1].end) : end};
    memmove(s->v + i + 1, s->v + k, (size_t)(s->num - k) * sizeof *s->v);
    s->v[i] = joined;
    s->num += 1 - (k - i);
    return true;
}

static bool add_placed(timeline *t, placed_list *l, const orth_pack_block *b)
{
    if (!make_room(t, (void **)&l->v, &l->cap, l->num, sizeof *l->v))
        return false;
    int32_t low = 0, high = l->num++;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (l->v[mid].begin < b->offset)
            low = mid + 1;
        else
            high = mid;
    }
    memmove(l->v + low + 1, l->v + low, (size_t)(l->num - 1 - low) * sizeof *l->v);
    l->v[low] = (placed){b->offset, b->offset + b->bytes, b->first, b->last};
    return true;
}

/* ---- the tree ---- */

/* The nodes that the slices between a and b, both excluded, are made up of. */
static int covered_nodes(const timeline *t, int32_t a, int32_t b, int32_t out[2 * MAX_LEVELS])
{
    int n = 0;
    for (int32_t l = t->num_leaves + a + 1, r = t->num_leaves + b; l < r; l /= 2, r /= 2) {
        if (l % 2)
            out[n++] = l++;
        if (r % 2)
            out[n++] = --r;
    }
    return n;
}

/* The union of slice s and of all above it; what knows the span, its parents know, too. */
static bool add_upwards(timeline *t, int32_t s, const orth_pack_block *b)
{
    bool known = false;
    for (int32_t v = t->num_leaves + s; v > 0 && !known; v /= 2)
        if (!add_span(t, &t->any[v], b->offset, b->offset + b->bytes, &known))
            return false;
    return true;
}

static bool enter(timeline *t, const orth_pack_block *b)
{
    const int32_t first = b->first / SLICE_INSTRS, last = b->last / SLICE_INSTRS;
    int32_t nodes[2 * MAX_LEVELS];
    const int n = covered_nodes(t, first, last, nodes);
    bool known, good = add_upwards(t, first, b) && add_placed(t, &t->partial[first], b);
    if (last != first)
        good = good && add_upwards(t, last, b) && add_placed(t, &t->partial[last], b);
    for (int i = 0; i < n && good; i++)
        good = add_span(t, &t->any[nodes[i]], b->offset, b->offset + b->bytes, &known) &&
               add_span(t, &t->whole[nodes[i]], b->offset, b->offset + b->bytes, &known);
    return good;
}

/* ---- the search ---- */

typedef struct {
    const span *v;
    int32_t left;
} cursor;

typedef struct {
    cursor spans[6 * MAX_LEVELS];
    int num;
    const placed *ends[2], *ends_of[2]; /* what begins or ends in the first and last slice: the next one, and behind the last */
} search;

static void look_at(search *q, const span_set *s)
{
    if (s->num > 0)
        q->spans[q->num++] = (cursor){s->v, s->num};
}

static search search_begin(const timeline *t, int32_t first, int32_t last)
{
    search q;
    int32_t nodes[2 * MAX_LEVELS];
    const int n = covered_nodes(t, first, last, nodes);
    q.num = 0;
    for (int i = 0; i < n; i++)
        look_at(&q, &t->any[nodes[i]]);
    for (int32_t v = t->num_leaves + first, w = t->num_leaves + last; v > 0; v /= 2, w /= 2) {
        look_at(&q, &t->whole[v]);
        if (w != v)
            look_at(&q, &t->whole[w]);
    }
    for (int i = 0; i < 2; i++) {
        const placed_list *l = &t->partial[i ? last : first];
        q.ends[i] = l->v;
        q.ends_of[i] = l->num && (i == 0 || last != first) ? l->v + l->num : l->v;
    }
    return q;
}

/* Lifts `at` over the spans that begin below at + bytes. Ends ascend as begins do: of those, only the last one counts, and it is found by doubling
 * steps. */
static size_t lift(cursor *c, size_t at, size_t bytes)
{
    while (c->left > 0 && c->v->begin < at + bytes) {
        int32_t low = 0, high = 1; /* v[low] begins below the limit */
        while (high < c->left && c->v[high].begin < at + bytes) {
            low = high;
            high = high > c->left / 2 ? c->left : 2 * high;
        }
        while (high - low > 1) {
            const int32_t mid = low + (high - low) / 2;
            if (c->v[mid].begin < at + bytes)
                low = mid;
            else
                high = mid;
        }
        at = ORTH_MAX(at, c->v[low].end);
        c->v += low + 1;
        c->left -= low + 1;
    }
    return at;
}

/* Every list in turn lifts `at` over what is in the way there, until none does: no lower offset is free, since what is in
 * the way at one offset is so up to its end. */
static size_t lowest_gap(const timeline *t, const orth_pack_block *b)
{
    search q = search_begin(t, b->first / SLICE_INSTRS, b->last / SLICE_INSTRS);
    size_t at = 0, before;
    do {
        before = at;
        for (int i = 0; i < q.num; i++)
            at = lift(&q.spans[i], at, b->bytes);
        for (int i = 0; i < 2; i++)
            for (; q.ends[i] < q.ends_of[i] && q.ends[i]->begin < at + b->bytes; q.ends[i]++)
                if (q.ends[i]->last >= b->first && q.ends[i]->first <= b->last)
                    at = ORTH_MAX(at, q.ends[i]->end);
    } while (at != before);
    return at;
}

orth_status orth_pack(orth_ctx *ctx, orth_pack_block *blocks, int32_t n, int32_t num_instrs, size_t limit, size_t *height)
{
    timeline t = {.ctx = ctx, .num_leaves = 1};
    while (t.num_leaves <= num_instrs / SLICE_INSTRS)
        t.num_leaves *= 2;
    t.any = ORTH_ARENA_ARRAY(ctx, &t.arena, span_set, 2 * (int64_t)t.num_leaves);
    t.whole = ORTH_ARENA_ARRAY(ctx, &t.arena, span_set, 2 * (int64_t)t.num_leaves);
    t.partial = ORTH_ARENA_ARRAY(ctx, &t.arena, placed_list, t.num_leaves);
    bool good = t.any && t.whole && t.partial;
    *height = 0;
    for (int32_t i = 0; i < n && good && *height < limit; i++) {
        orth_pack_block *b = &blocks[i];
        b->offset = b->bytes > 0 ? lowest_gap(&t, b) : 0;
        *height = ORTH_MAX(*height, b->offset + b->bytes);
        good = b->bytes == 0 || enter(&t, b);
    }
    orth_arena_release(ctx, &t.arena);
    return good ? ORTH_OK : ORTH_ERR_NOMEM;
}
