/* touched.c -- see touched.h.
 *
 * The line of addresses is cut into segments of equal history. Cuts are made only where an access begins or ends, so a
 * segment is known by the number of its first address among all of those, sorted. A write makes one segment of what it
 * covers: there are never many more segments than accesses of the buffers that are live.
 */
#include "program/ir/touched.h"

#include "base/radix.h"

typedef struct {
    orth_ctx *ctx;
    const orth_program *p;
    uint64_t *base;         /* [num_buffers] */
    int32_t *whole;         /* [num_buffers] 1 + the mark of its beginning, which that of its end follows; 0: there is none yet */
    uint64_t calls;         /* addresses of communicators */
    int32_t num_peers;
    orth_keyed *marks, *room; /* addresses at which something begins or ends, which the accesses name by their numbers meanwhile; most are of
                             * whole buffers, whose ends are marked once */
    int32_t *number_of;     /* [num_marks] in the order of addresses */
    int32_t num_marks, cap_marks;
    bool failed;            /* an allocation did */
    orth_touched *out;
    int32_t num;
} lister;

/* Its size is the rank's own. */
static bool is_own(const orth_buffer *b)
{
    return b->shard_elem > 0 || b->staging;
}

/* The arenas lie one behind the other, then the buffers of other programs, each by itself. So do shards, of one address each:
 * ranks that share a program (passes/views.h) have the same conflicts, whatever the sizes of their shards. */
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
        l->base[b] = apart ? at : arena[buf->space] + orth_buffer_begin(l->p, buf);
        at += is_own(buf) ? 1 : buf->external ? buf->bytes : 0;
    }
    l->calls = at;
}

/* The mark of `begin`, which that of `end` follows. */
static int32_t mark_range(lister *l, uint64_t begin, uint64_t end)
{
    l->failed = l->failed || !orth_mem_grow(l->ctx, (void **)&l->marks, &l->cap_marks, l->num_marks + 1, sizeof *l->marks);
    if (l->failed)
        return 0;
    for (int k = 0; k < 2; k++, l->num_marks++)
        l->marks[l->num_marks] = (orth_keyed){k ? end : begin, l->num_marks};
    return l->num_marks - 2;
}

static void add(lister *l, int32_t instr, int32_t operand, bool writes, int32_t begin)
{
    l->out->accesses[l->num++] = (orth_access){.instr = instr, .operand = operand, .writes = writes, .begin = begin, .end = begin + 1};
}

/* The address of its communicator or, for a message, of the pair and the direction. */
static void add_call(lister *l, int32_t i)
{
    const orth_instr *n = &l->p->instrs[i];
    const uint64_t pairs = l->calls + ORTH_NUM_GROUPS;
    const uint64_t pair = 2 * ((uint64_t)n->attr->group * (uint64_t)l->num_peers + (uint64_t)n->attr->peer);
    const uint64_t at = orth_op_is_message(n->op) ? pairs + pair + orth_op_sends(n->op) : l->calls + n->attr->group;
    add(l, i, -1, true, mark_range(l, at, at + 1));
}

static void add_operand(lister *l, int32_t i, int32_t k)
{
    const orth_instr *n = &l->p->instrs[i];
    const orth_operand *o = orth_instr_operand(n, k);
    const orth_buffer *b = o->buffer >= 0 ? &l->p->buffers[o->buffer] : NULL;
    const bool own = b && is_own(b);
    /* An operand with a view is another part of its buffer on other ranks: all of the buffer stands for it. */
    const size_t bytes = own ? 1 : !b ? 0 : o->view != ORTH_VIEW_SAME ? b->bytes : orth_operand_bytes(o);
    if (bytes == 0)
        return;
    if (!own && bytes != b->bytes) {
        const uint64_t begin = l->base[o->buffer] + o->byte_offset;
        add(l, i, k, k >= n->num_in, mark_range(l, begin, begin + bytes));
        return;
    }
    if (!l->whole[o->buffer])
        l->whole[o->buffer] = 1 + mark_range(l, l->base[o->buffer], l->base[o->buffer] + bytes);
    add(l, i, k, k >= n->num_in, l->whole[o->buffer] - 1);
}

static void list(lister *l)
{
    for (int32_t i = 0; i < l->p->num_instrs; i++) {
        const orth_instr *n = &l->p->instrs[i];
        l->out->first[i] = l->num;
        for (int32_t k = 0; k < n->num_in + n->num_out; k++)
            add_operand(l, i, k);
        if (orth_op_is_comm(n->op))
            add_call(l, i);
    }
    l->out->first[l->p->num_instrs] = l->num;
}

/* Numbers the addresses in their order; returns how many there are. */
static int32_t number(lister *l)
{
    l->room = ORTH_NEW_ARRAY(l->ctx, orth_keyed, l->num_marks + 1);
    l->number_of = ORTH_NEW_ARRAY(l->ctx, int32_t, l->num_marks + 1);
    l->failed = l->failed || !l->room || !l->number_of;
    if (l->failed)
        return 0;
    const orth_keyed *sorted = orth_radix_sort(l->marks, l->room, l->num_marks);
    int32_t num = 0;
    for (int32_t k = 0; k < l->num_marks; k++) {
        num += k > 0 && sorted[k].key != sorted[k - 1].key;
        l->number_of[sorted[k].value] = num;
    }
    for (int32_t k = 0; k < l->num; k++) {
        l->out->accesses[k].begin = l->number_of[l->out->accesses[k].begin];
        l->out->accesses[k].end = l->number_of[l->out->accesses[k].end];
    }
    return num + 1;
}

static orth_status prepare(orth_ctx *ctx, orth_arena *arena, lister *l)
{
    const orth_program *p = l->p;
    int64_t most = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        most += p->instrs[i].num_in + p->instrs[i].num_out + 1;
        l->num_peers = ORTH_MAX(l->num_peers, p->instrs[i].attr->peer + 1);
    }
    l->base = ORTH_NEW_ARRAY(ctx, uint64_t, p->num_buffers + 1);
    l->whole = ORTH_NEW_ARRAY(ctx, int32_t, p->num_buffers + 1);
    l->out->accesses = ORTH_ARENA_ARRAY(ctx, arena, orth_access, most + 1);
    l->out->first = ORTH_ARENA_ARRAY(ctx, arena, int32_t, p->num_instrs + 1);
    return l->base && l->whole && l->out->accesses && l->out->first ? ORTH_OK : ORTH_ERR_NOMEM;
}

orth_status orth_touched_make(orth_ctx *ctx, orth_arena *arena, const orth_program *p, orth_touched *out)
{
    *out = (orth_touched){.p = p};
    lister l = {.ctx = ctx, .p = p, .out = out};
    orth_status s = prepare(ctx, arena, &l);
    if (s == ORTH_OK) {
        find_bases(&l);
        list(&l);
        const int64_t num = number(&l);
        out->last = l.failed ? NULL : ORTH_ARENA_ARRAY(ctx, arena, int32_t, num * ORTH_TOUCHED_ROW(p));
        s = out->last ? orth_index_set_make(ctx, arena, &out->begins, num) : ORTH_ERR_NOMEM;
    }
    if (s == ORTH_OK)
        orth_index_set_add(&out->begins, 0);
    orth_mem_free(ctx, l.base);
    orth_mem_free(ctx, l.whole);
    orth_mem_free(ctx, l.marks);
    orth_mem_free(ctx, l.room);
    orth_mem_free(ctx, l.number_of);
    return s;
}

/* Of the segment that begins at `at`. */
static int32_t *row_of(const orth_touched *t, int64_t at)
{
    return t->last + at * ORTH_TOUCHED_ROW(t->p);
}

/* The segment that `at` is in. */
static int64_t segment_of(const orth_touched *t, int64_t at)
{
    return orth_index_set_has(&t->begins, at) ? at : orth_index_set_at_or_below(&t->begins, at);
}

/* The segment behind `at`, if it begins before `end`; else -1. */
static int64_t next(const orth_touched *t, int64_t at, int64_t end)
{
    const int64_t behind = at + 1 < end ? orth_index_set_at_or_above(&t->begins, at + 1) : -1;
    return behind < end ? behind : -1;
}

static orth_status visit_segment(const orth_touched *t, const orth_access *a, int64_t at, orth_conflict_fn fn, void *user)
{
    const int32_t *row = row_of(t, at), queue = t->p->instrs[a->instr].queue;
    if (row[ORTH_TOUCHED_WRITER] > 0 && row[ORTH_TOUCHED_WRITER_QUEUE] != queue)
        ORTH_TRY(fn(user, a, row[ORTH_TOUCHED_WRITER] - 1));
    for (int q = 0; a->writes && q < t->p->num_queues; q++)
        if (row[ORTH_TOUCHED_READERS + q] > 0 && q != queue)
            ORTH_TRY(fn(user, a, row[ORTH_TOUCHED_READERS + q] - 1));
    return ORTH_OK;
}

orth_status orth_touched_visit(const orth_touched *t, int32_t i, orth_conflict_fn fn, void *user)
{
    for (int32_t k = t->first[i]; k < t->first[i + 1]; k++) {
        const orth_access *a = &t->accesses[k];
        for (int64_t at = segment_of(t, a->begin); at >= 0; at = next(t, at, a->end))
            ORTH_TRY(visit_segment(t, a, at, fn, user));
    }
    return ORTH_OK;
}

/* A segment begins at `at` from now on. */
static void cut(orth_touched *t, int64_t at)
{
    const int64_t before = segment_of(t, at);
    if (before == at)
        return;
    memcpy(row_of(t, at), row_of(t, before), (size_t)ORTH_TOUCHED_ROW(t->p) * sizeof *t->last);
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
                row_of(t, at)[ORTH_TOUCHED_READERS + queue] = i + 1;
            continue;
        }
        /* What touches this later conflicts with this write, which comes behind all that was here: the history may go. */
        for (int64_t at = next(t, a->begin, a->end); at >= 0; at = next(t, a->begin, a->end))
            orth_index_set_remove(&t->begins, at);
        int32_t *row = row_of(t, a->begin);
        memset(row, 0, (size_t)ORTH_TOUCHED_ROW(t->p) * sizeof *row);
        row[ORTH_TOUCHED_WRITER] = i + 1;
        row[ORTH_TOUCHED_WRITER_QUEUE] = queue;
    }
}
