/* touched.c -- see touched.h.
 *
 * The line of addresses is cut into segments of equal history. Cuts are made only where an access begins or ends, so a
 * segment is known by the number of its first address among all of those, sorted. A write makes one segment of what it
 * covers: there are never many more segments than accesses of the buffers that are live.
 */
#include "program/ir/touched.h"

/* An access before its addresses are numbered. */
typedef struct {
    uint64_t address;
    int32_t access;
    bool ends;
} mark;

typedef struct {
    const orth_program *p;
    uint64_t *base;         /* [num_buffers] */
    uint64_t calls;         /* addresses of communicators */
    int32_t num_peers;
    mark *marks, *spare;
    int64_t num_marks;
    orth_touched *out;
    int32_t num;
} lister;

/* Its size is the rank's own. */
static bool is_own(const orth_buffer *b)
{
    return b->shard_elem > 0 || b->staging;
}

/* The arenas lie one behind the other, then the buffers of other programs, each by itself. So do shards, of one address each:
 * ranks that share a program (lower/views.h) have the same conflicts, whatever the sizes of their shards. */
static void find_bases(lister *l)
{
    uint64_t at = 0, arena[ORTH_NUM_SPACES];
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        arena[s] = at;
        at += l->p->space_bytes[s];
    }
    for (int32_t b = 0; b < l->p->num_buffers; b++) {
        const orth_buffer *buf = &l->p->buffers[b];
        const bool apart = buf->external || is_own(buf);
        l->base[b] = apart ? at : arena[buf->space] + buf->offset;
        at += is_own(buf) ? 1 : buf->external ? buf->bytes : 0;
    }
    l->calls = at;
}

static void add(lister *l, int32_t instr, int32_t operand, bool writes, uint64_t begin, uint64_t end)
{
    l->out->accesses[l->num] = (orth_access){.instr = instr, .operand = operand, .writes = writes};
    l->marks[l->num_marks++] = (mark){begin, l->num, false};
    l->marks[l->num_marks++] = (mark){end, l->num++, true};
}

/* The address of its communicator or, for a message, of the pair and the direction. */
static void add_call(lister *l, int32_t i)
{
    const orth_instr *n = &l->p->instrs[i];
    const uint64_t pairs = l->calls + ORTH_NUM_GROUPS;
    const uint64_t pair = 2 * ((uint64_t)n->attr.group * (uint64_t)l->num_peers + (uint64_t)n->attr.peer);
    const uint64_t at = orth_op_is_message(n->op) ? pairs + pair + (n->op == ORTH_OP_send) : l->calls + n->attr.group;
    add(l, i, -1, true, at, at + 1);
}

static void list(lister *l)
{
    for (int32_t i = 0; i < l->p->num_instrs; i++) {
        const orth_instr *n = &l->p->instrs[i];
        l->out->first[i] = l->num;
        for (int32_t k = 0; k < n->num_in + n->num_out; k++) {
            const orth_operand *o = orth_instr_operand(n, k);
            const orth_buffer *buf = o->buffer >= 0 ? &l->p->buffers[o->buffer] : NULL;
            const bool whole = buf && (o->view != ORTH_VIEW_SAME || is_own(buf));
            const size_t bytes = !whole ? orth_operand_bytes(o) : is_own(buf) ? 1 : buf->bytes;
            const uint64_t begin = bytes > 0 ? l->base[o->buffer] + (whole ? 0 : o->byte_offset) : 0;
            if (bytes > 0)
                add(l, i, k, k >= n->num_in, begin, begin + bytes);
        }
        if (orth_op_is_comm(n->op))
            add_call(l, i);
    }
    l->out->first[l->p->num_instrs] = l->num;
}

/* Sorts marks by DIGIT bits of their addresses, from bit `shift` on; those with equal bits keep their order. */
enum { DIGIT = 11 };
static void sort_by_digit(const mark *from, mark *to, int64_t n, int shift)
{
    int64_t first[(1 << DIGIT) + 1] = {0};
    const uint64_t mask = (1 << DIGIT) - 1;
    for (int64_t k = 0; k < n; k++)
        first[(from[k].address >> shift & mask) + 1]++;
    for (int d = 0; d < 1 << DIGIT; d++)
        first[d + 1] += first[d];
    for (int64_t k = 0; k < n; k++)
        to[first[from[k].address >> shift & mask]++] = from[k];
}

/* By address, digit by digit from the lowest: a sort that compares would be a third of a plan's time. */
static void sort(lister *l)
{
    uint64_t highest = 0;
    for (int64_t k = 0; k < l->num_marks; k++)
        highest = ORTH_MAX(highest, l->marks[k].address);
    for (int shift = 0; shift < 64 && highest >> shift > 0; shift += DIGIT) {
        sort_by_digit(l->marks, l->spare, l->num_marks, shift);
        mark *sorted = l->spare;
        l->spare = l->marks;
        l->marks = sorted;
    }
}

/* Numbers the addresses in their order; returns how many there are. */
static int32_t number(lister *l)
{
    int32_t num = 0;
    sort(l);
    for (int64_t k = 0; k < l->num_marks; k++) {
        const mark *m = &l->marks[k];
        num += k > 0 && m->address != l->marks[k - 1].address;
        if (m->ends)
            l->out->accesses[m->access].end = num;
        else
            l->out->accesses[m->access].begin = num;
    }
    return num + 1;
}

static orth_status prepare(orth_ctx *ctx, orth_arena *arena, lister *l)
{
    const orth_program *p = l->p;
    int64_t most = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        most += p->instrs[i].num_in + p->instrs[i].num_out + 1;
        l->num_peers = ORTH_MAX(l->num_peers, p->instrs[i].attr.peer + 1);
    }
    l->base = ORTH_NEW_ARRAY(ctx, uint64_t, p->num_buffers + 1);
    l->marks = ORTH_NEW_ARRAY(ctx, mark, 2 * most + 1);
    l->spare = ORTH_NEW_ARRAY(ctx, mark, 2 * most + 1);
    l->out->accesses = ORTH_ARENA_ARRAY(ctx, arena, orth_access, most + 1);
    l->out->first = ORTH_ARENA_ARRAY(ctx, arena, int32_t, p->num_instrs + 1);
    return l->base && l->marks && l->spare && l->out->accesses && l->out->first ? ORTH_OK : ORTH_ERR_NOMEM;
}

orth_status orth_touched_make(orth_ctx *ctx, orth_arena *arena, const orth_program *p, orth_touched *out)
{
    *out = (orth_touched){.p = p};
    lister l = {.p = p, .out = out};
    orth_status s = prepare(ctx, arena, &l);
    if (s == ORTH_OK) {
        find_bases(&l);
        list(&l);
        const int64_t num = number(&l);
        out->writer = ORTH_ARENA_ARRAY(ctx, arena, int32_t, num);
        out->readers = ORTH_ARENA_ARRAY(ctx, arena, int32_t, num * p->num_queues);
        s = out->writer && out->readers ? orth_index_set_make(ctx, arena, &out->begins, num) : ORTH_ERR_NOMEM;
    }
    if (s == ORTH_OK)
        orth_index_set_add(&out->begins, 0);
    orth_mem_free(ctx, l.base);
    orth_mem_free(ctx, l.marks);
    orth_mem_free(ctx, l.spare);
    return s;
}

static int32_t *readers_of(const orth_touched *t, int64_t at)
{
    return t->readers + at * t->p->num_queues;
}

/* The segment behind `at`, if it begins before `end`; else -1. */
static int64_t next(const orth_touched *t, int64_t at, int64_t end)
{
    const int64_t behind = at + 1 < end ? orth_index_set_at_or_above(&t->begins, at + 1) : -1;
    return behind < end ? behind : -1;
}

static orth_status visit_segment(const orth_touched *t, const orth_access *a, int64_t at, orth_conflict_fn fn, void *user)
{
    if (t->writer[at] > 0)
        ORTH_TRY(fn(user, a, t->writer[at] - 1));
    for (int q = 0; a->writes && q < t->p->num_queues; q++)
        if (readers_of(t, at)[q] > 0)
            ORTH_TRY(fn(user, a, readers_of(t, at)[q] - 1));
    return ORTH_OK;
}

orth_status orth_touched_visit(const orth_touched *t, int32_t i, orth_conflict_fn fn, void *user)
{
    for (int32_t k = t->first[i]; k < t->first[i + 1]; k++) {
        const orth_access *a = &t->accesses[k];
        for (int64_t at = orth_index_set_at_or_below(&t->begins, a->begin); at >= 0; at = next(t, at, a->end))
            ORTH_TRY(visit_segment(t, a, at, fn, user));
    }
    return ORTH_OK;
}

/* A segment begins at `at` from now on. */
static void cut(orth_touched *t, int64_t at)
{
    const int64_t before = orth_index_set_at_or_below(&t->begins, at);
    if (before == at)
        return;
    t->writer[at] = t->writer[before];
    memcpy(readers_of(t, at), readers_of(t, before), (size_t)t->p->num_queues * sizeof *t->readers);
    orth_index_set_add(&t->begins, at);
}

void orth_touched_note(orth_touched *t, int32_t i)
{
    const int32_t queue = t->p->instrs[i].queue;
    for (int32_t k = t->first[i]; k < t->first[i + 1]; k++) {
        const orth_access *a = &t->accesses[k];
        cut(t, a->begin);
        cut(t, a->end);
        if (!a->writes) {
            for (int64_t at = a->begin; at >= 0; at = next(t, at, a->end))
                readers_of(t, at)[queue] = i + 1;
            continue;
        }
        for (int64_t at = next(t, a->begin, a->end); at >= 0; at = next(t, a->begin, a->end))
            orth_index_set_remove(&t->begins, at);
        t->writer[a->begin] = i + 1;
        memset(readers_of(t, a->begin), 0, (size_t)t->p->num_queues * sizeof *t->readers);
    }
}
