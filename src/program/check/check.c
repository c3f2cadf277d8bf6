/* check.c -- see check.h. */
#include "program/check/check.h"

#include "base/index_set.h"
#include "base/radix.h"
#include "program/check/check_shapes.h"
#include "program/check/happens.h"

/* What is known of a buffer so far. */
typedef struct {
    int32_t written;    /* instruction of the first write, -1 */
    int32_t writes;     /* how often it was written */
    int32_t owner;      /* of the buffers that share bytes with this one: who wrote last */
    int32_t version;    /* 1 + the instruction that computed what is in it, which copies take along (lower/far.c) */
    int32_t latest;     /* the newest version of it and its copies */
    int32_t user;       /* last instruction that added what the buffer holds to a gradient, -1 */
    int32_t packed_by;  /* the linear_pack or linear_dx_pack that made it, */
    int32_t packed_at;  /* and `writes` of its weight at that time */
    int32_t master;     /* of a gradient: the buffer of the parameter, -1 */
    int32_t updates;    /* how often the parameter was updated, by its master, */
    int32_t pieces;     /* the pieces of an update that is not complete, */
    int64_t next_elem;  /* and where the next one begins */
    bool changed;       /* of a copy: what is in it has not gone back */
    bool measured;      /* a gradient whose squares were summed */
    bool applied;       /* a gradient that an optimizer read, and nobody wrote since */
} buffer_facts;

typedef struct {
    orth_ctx *ctx;
    const orth_program *p;
    const orth_signature *of; /* [ORTH_NUM_OPS] */
    const int32_t *master_of; /* [num_masters] by parameter: 1 + its buffer */
    int64_t num_masters;
    buffer_facts *facts;      /* [num_buffers] */
    int32_t *user_before, *seen; /* [num_instrs] the one before `user`, and `writes` at that time */
} checker;

static bool is_optimizer(orth_op op)
{
    return orth_op_family_of(op) == ORTH_OPS_OPTIMIZER;
}

static orth_status refuse(checker *c, int32_t i, const orth_operand *o, const char *rule)
{
    const orth_instr *n = &c->p->instrs[i];
    return ORTH_FAIL(c->ctx, ORTH_ERR_INTERNAL, "instruction %d (%s, layer %d, micro-batch %d), buffer '%s': %s",
                     i, orth_op_name(n->op), n->layer, n->micro_batch, c->p->buffers[o->buffer].name, rule);
}

static orth_status check_operand(checker *c, int32_t i, const orth_operand *o, bool writes)
{
    if (o->buffer == -1)
        return ORTH_OK;
    const orth_buffer *b = &c->p->buffers[o->buffer];
    buffer_facts *f = &c->facts[o->buffer], *root = &c->facts[orth_buffer_root(c->p, o->buffer)];
    if (c->p->placed && !b->persistent && (i < b->first || i > b->last))
        return refuse(c, i, o, "used outside of its life: its bytes may be another's");
    bool made_here = !b->persistent || b->cls == ORTH_CLASS_GRADS;
    if (!writes && made_here && f->written < 0)
        return refuse(c, i, o, "read before it is written");
    if (!writes && made_here && root->owner != o->buffer)
        return refuse(c, i, o, "its bytes were taken over by a result in place");
    if (!writes)
        return ORTH_OK;
    if (f->measured)
        return refuse(c, i, o, "gradient written after its norm was taken");
    if (b->bind == ORTH_BIND_GRAD && f->master >= 0 && c->facts[f->master].updates == c->p->num_updates)
        return refuse(c, i, o, "gradient written after its parameter was updated");
    f->writes++;
    f->written = f->written < 0 ? i : f->written;
    f->applied = false;
    root->owner = o->buffer;
    return ORTH_OK;
}

static bool same_operand(const orth_operand *a, const orth_operand *b)
{
    return a->buffer == b->buffer && a->byte_offset == b->byte_offset && a->num_dims == b->num_dims &&
           memcmp(a->dim, b->dim, (size_t)a->num_dims * sizeof *a->dim) == 0;
}

/* Same op on the same inputs, whatever it is added to, into the same buffer. */
static bool same_leaf(const orth_instr *a, const orth_instr *b)
{
    int num = a->num_in - a->attr->num_addends;
    if (a->op != b->op || b->num_in - b->attr->num_addends != num || a->out[0].buffer != b->out[0].buffer)
        return false;
    for (int k = 0; k < num; k++)
        if (!same_operand(&a->in[k], &b->in[k]))
            return false;
    return true;
}

/* Each leaf of a gradient's tree joins it once. */
static orth_status check_leaf(checker *c, int32_t i)
{
    const orth_instr *n = &c->p->instrs[i];
    if (!c->of[n->op].addends)
        return ORTH_OK;
    int32_t b = n->in[orth_signature_leaf(&c->of[n->op])].buffer;
    c->seen[i] = c->facts[b].writes;
    for (int32_t k = c->facts[b].user; k >= 0 && c->seen[k] == c->seen[i]; k = c->user_before[k])
        if (same_leaf(&c->p->instrs[k], n)) {
            char rule[96];
            snprintf(rule, sizeof rule, "added twice: instruction %d did the same with the same values", k);
            return refuse(c, i, &n->out[0], rule);
        }
    c->user_before[i] = c->facts[b].user;
    c->facts[b].user = i;
    return ORTH_OK;
}

/* A packed weight is what its product would read, and the weight is still the same. */
static orth_status check_packed(checker *c, int32_t i)
{
    const orth_instr *n = &c->p->instrs[i];
    if (orth_op_family_of(n->op) == ORTH_OPS_PACK) {
        c->facts[n->out[0].buffer].packed_by = i;
        c->facts[n->out[0].buffer].packed_at = c->facts[n->in[0].buffer].writes;
    }
    if (!orth_instr_reads_packed(n))
        return ORTH_OK;
    const orth_operand *packed = &n->in[ORTH_IN_PACKED], *weight = &n->in[ORTH_IN_WEIGHT];
    const orth_instr *by = &c->p->instrs[c->facts[packed->buffer].packed_by];
    if (by->op != orth_op_packing(n->op) || !same_operand(&by->in[0], weight) ||
        by->attr->replica_rows != n->attr->replica_rows)
        return refuse(c, i, packed, "read as the packed weight of a product, which it is not");
    if (c->facts[packed->buffer].packed_at != c->facts[weight->buffer].writes)
        return refuse(c, i, packed, "packed before its weight changed");
    return ORTH_OK;
}

/* The parameters of the gradients. */
static orth_status find_masters(checker *c, orth_arena *arena)
{
    const orth_program *p = c->p;
    int64_t num = 0;
    for (int32_t b = 0; b < p->num_buffers; b++)
        num = p->buffers[b].bind == ORTH_BIND_MASTER ? ORTH_MAX(num, p->buffers[b].index + 1) : num;
    int32_t *of = ORTH_ARENA_ARRAY(c->ctx, arena, int32_t, num + 1); /* 1 + buffer, by parameter */
    if (!of)
        return ORTH_ERR_NOMEM;
    c->master_of = of;
    c->num_masters = num;
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (p->buffers[b].bind == ORTH_BIND_MASTER)
            of[p->buffers[b].index] = b + 1;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        c->facts[b].master = buf->bind == ORTH_BIND_GRAD && buf->index >= 0 && buf->index < num ? of[buf->index] - 1 : -1;
    }
    return ORTH_OK;
}

/* Pieces come in their order and one behind the other; the last makes the update complete. */
static orth_status check_piece(checker *c, int32_t i, int32_t master)
{
    const orth_instr *n = &c->p->instrs[i];
    const orth_updated u = orth_instr_updates(c->p, n);
    if (n->attr->piece != c->facts[master].pieces || (n->attr->piece > 0 && u.first != c->facts[master].next_elem))
        return refuse(c, i, &n->out[0], "a piece of a parameter is updated out of turn");
    c->facts[master].pieces = n->attr->piece + 1 < n->attr->num_pieces ? n->attr->piece + 1 : 0;
    c->facts[master].next_elem = u.first + u.count;
    return ORTH_OK;
}

static orth_status check_update(checker *c, int32_t i)
{
    const orth_instr *n = &c->p->instrs[i];
    const int64_t param = orth_instr_updates(c->p, n).index;
    const int32_t master = param >= 0 && param < c->num_masters ? c->master_of[param] - 1 : -1;
    if (master < 0)
        return refuse(c, i, &n->out[0], "updated, but no parameter");
    if (c->facts[master].updates == c->p->num_updates)
        return refuse(c, i, &n->out[0], c->p->num_updates == 1 ? "parameter updated twice"
                                                               : "parameter updated once too often");
    ORTH_TRY(check_piece(c, i, master));
    c->facts[master].updates += c->facts[master].pieces == 0;
    if (c->p->num_updates > 1 && n->attr->piece == 0 && n->in[0].buffer >= 0 && c->facts[n->in[0].buffer].applied)
        return refuse(c, i, &n->in[0], "gradient applied twice");
    if (n->in[0].buffer >= 0)
        c->facts[n->in[0].buffer].applied = true;
    return ORTH_OK;
}

/* The buffer that this one is a copy of (lower/far.c), or itself; and where in it the operand begins. */
static int32_t original_of(const checker *c, int32_t buffer)
{
    const int32_t of = c->p->buffers[buffer].copy_of;
    return of > 0 ? of - 1 : buffer;
}

static int64_t original_at(const checker *c, const orth_operand *o)
{
    return c->p->buffers[o->buffer].copy_at + (int64_t)o->byte_offset;
}

/* A copy goes from the same elements to the same elements. */
static orth_status check_carried(checker *c, int32_t i)
{
    const orth_operand *from = &c->p->instrs[i].in[0], *to = &c->p->instrs[i].out[0];
    const int32_t of = original_of(c, from->buffer);
    const bool empty = orth_operand_bytes(to) == 0; /* of another's shard, from wherever */
    if (of != original_of(c, to->buffer) || (!empty && original_at(c, from) != original_at(c, to)))
        return refuse(c, i, to, "a copy of other elements than those that are copied");
    c->facts[to->buffer].version = c->facts[from->buffer].version;
    c->facts[to->buffer].changed = c->facts[from->buffer].changed && to->buffer != of;
    c->facts[from->buffer].changed = false;
    return ORTH_OK;
}

/* Behind instruction i, of which all operands were looked at: what it reads is the newest there is. */
static orth_status check_copies(checker *c, int32_t i)
{
    const orth_instr *n = &c->p->instrs[i];
    const orth_buffer *from, *to;
    if (orth_instr_copies(c->p, n, &from, &to) && (from->copy_of > 0 || to->copy_of > 0))
        return check_carried(c, i);
    for (int k = 0; k < n->num_in; k++) {
        const int32_t b = n->in[k].buffer;
        if (b >= 0 && c->facts[b].version != c->facts[original_of(c, b)].latest)
            return refuse(c, i, &n->in[k], "read, but a copy of it, or what it is a copy of, is newer");
    }
    for (int k = 0; k < n->num_out; k++) {
        const int32_t b = n->out[k].buffer;
        if (b < 0)
            continue;
        c->facts[b].version = c->facts[original_of(c, b)].latest = i + 1;
        c->facts[b].changed = c->p->buffers[b].copy_of > 0;
    }
    return ORTH_OK;
}

/* What was changed in a copy has gone back. */
static orth_status check_returned(checker *c)
{
    for (int32_t b = 0; b < c->p->num_buffers; b++)
        if (c->facts[b].changed)
            return ORTH_FAIL(c->ctx, ORTH_ERR_INTERNAL, "what was written to '%s' never goes back to '%s', of which it is a copy",
                             c->p->buffers[b].name, c->p->buffers[original_of(c, b)].name);
    return ORTH_OK;
}

static orth_status check_instrs(checker *c)
{
    for (int32_t i = 0; i < c->p->num_instrs; i++) {
        const orth_instr *n = &c->p->instrs[i];
        for (int k = 0; k < n->num_in; k++)
            ORTH_TRY(check_operand(c, i, &n->in[k], false));
        ORTH_TRY(check_leaf(c, i));
        ORTH_TRY(check_packed(c, i));
        for (int k = 0; k < n->num_out; k++)
            ORTH_TRY(check_operand(c, i, &n->out[k], true));
        ORTH_TRY(check_copies(c, i));
        if (n->op == ORTH_OP_grad_square)
            c->facts[n->in[0].buffer].measured = true;
        if (is_optimizer(n->op))
            ORTH_TRY(check_update(c, i));
    }
    return ORTH_OK;
}

static orth_status check_updates(checker *c)
{
    bool trains = false;
    for (int32_t i = 0; i < c->p->num_instrs; i++)
        trains = trains || is_optimizer(c->p->instrs[i].op);
    for (int32_t b = 0; trains && b < c->p->num_buffers; b++) {
        const orth_buffer *buf = &c->p->buffers[b];
        if (buf->frozen && c->facts[b].updates > 0)
            return ORTH_FAIL(c->ctx, ORTH_ERR_INTERNAL, "parameter '%s' is frozen, and updated", buf->name);
        if (buf->bind == ORTH_BIND_MASTER && !buf->frozen && c->facts[b].updates == 0)
            return ORTH_FAIL(c->ctx, ORTH_ERR_INTERNAL, "parameter '%s' is never updated", buf->name);
        if (buf->bind == ORTH_BIND_MASTER && !buf->frozen && c->facts[b].updates != c->p->num_updates)
            return ORTH_FAIL(c->ctx, ORTH_ERR_INTERNAL, "parameter '%s' is updated %d times, not %d", buf->name,
                             (int)c->facts[b].updates, (int)c->p->num_updates);
        if (buf->bind == ORTH_BIND_GRAD && c->facts[b].written < 0)
            return ORTH_FAIL(c->ctx, ORTH_ERR_INTERNAL, "gradient '%s' is never made", buf->name);
    }
    return ORTH_OK;
}

/* ---- addresses ---- */

/* A buffer's bytes during its life. */
typedef struct {
    size_t begin, end;
    int32_t first, last, buffer;
    int32_t slot; /* which it is by address */
} extent;

static orth_status check_chains(orth_ctx *ctx, const orth_program *p)
{
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        const orth_buffer *next = buf->next < 0 || buf->external ? NULL : &p->buffers[buf->next];
        bool used = buf->persistent || buf->first >= 0;
        if (next && used && (next->space != buf->space || next->offset != buf->offset + buf->bytes))
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "buffer '%s' does not follow '%s' in memory", next->name, buf->name);
    }
    return ORTH_OK;
}

static int32_t list_extents(const orth_program *p, orth_space space, extent *e)
{
    int32_t n = 0;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        if (buf->space != space || buf->alias >= 0 || buf->bytes == 0 || buf->external || (!buf->persistent && buf->first < 0))
            continue;
        const size_t begin = orth_buffer_begin(p, buf);
        e[n++] = (extent){begin, begin + buf->bytes, buf->persistent ? 0 : buf->first, buf->persistent ? p->num_instrs : buf->last, b};
    }
    return n;
}

/* Extents by the times and addresses at which they begin and end. What is live does not overlap, so that a new one can
 * overlap with its neighbours by address only. */
typedef struct {
    extent *e;           /* [n] */
    int32_t *beginning;  /* [n] by beginning of life */
    int32_t *ending;     /* [n] by end of life */
    int32_t *at;         /* [n] by address */
    orth_index_set live; /* slots of `at` */
    int32_t n;
} extents;

static uint64_t first_of(const extent *e)
{
    return (uint64_t)e->first;
}

static uint64_t last_of(const extent *e)
{
    return (uint64_t)e->last;
}

static uint64_t begin_of(const extent *e)
{
    return e->begin;
}

static void sort_extents(const extents *x, uint64_t (*key)(const extent *), orth_keyed *room, int32_t *out)
{
    for (int32_t i = 0; i < x->n; i++)
        room[i] = (orth_keyed){key(&x->e[i]), i};
    const orth_keyed *sorted = orth_radix_sort(room, room + x->n, x->n);
    for (int32_t i = 0; i < x->n; i++)
        out[i] = sorted[i].value;
}

static orth_status extents_make(orth_ctx *ctx, orth_arena *arena, const orth_program *p, orth_space space, extents *x)
{
    *x = (extents){.e = ORTH_ARENA_ARRAY(ctx, arena, extent, p->num_buffers + 1)};
    if (!x->e)
        return ORTH_ERR_NOMEM;
    x->n = list_extents(p, space, x->e);
    orth_keyed *room = ORTH_ARENA_ARRAY(ctx, arena, orth_keyed, 2 * (int64_t)x->n + 1);
    x->beginning = ORTH_ARENA_ARRAY(ctx, arena, int32_t, 3 * (int64_t)x->n + 1);
    if (!room || !x->beginning)
        return ORTH_ERR_NOMEM;
    x->ending = x->beginning + x->n;
    x->at = x->ending + x->n;
    sort_extents(x, first_of, room, x->beginning);
    sort_extents(x, last_of, room, x->ending);
    sort_extents(x, begin_of, room, x->at);
    for (int32_t i = 0; i < x->n; i++)
        x->e[x->at[i]].slot = i;
    return orth_index_set_make(ctx, arena, &x->live, x->n + 1);
}

/* A live extent that shares bytes with e, or NULL. */
static const extent *overlapping(const extents *x, const extent *e)
{
    const int64_t below = orth_index_set_at_or_below(&x->live, e->slot), above = orth_index_set_at_or_above(&x->live, e->slot);
    if (below >= 0 && x->e[x->at[below]].end > e->begin)
        return &x->e[x->at[below]];
    return above >= 0 && x->e[x->at[above]].begin < e->end ? &x->e[x->at[above]] : NULL;
}

/* Through the time of the program: each buffer comes to live when those that died before have gone. */
static orth_status sweep(orth_ctx *ctx, const orth_program *p, orth_space space, extents *x)
{
    for (int32_t i = 0, gone = 0; i < x->n; i++) {
        const extent *e = &x->e[x->beginning[i]];
        if (e->end > p->space_bytes[space])
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "buffer '%s' reaches past the end of the arena", p->buffers[e->buffer].name);
        for (; x->e[x->ending[gone]].last < e->first; gone++)
            orth_index_set_remove(&x->live, x->e[x->ending[gone]].slot);
        const extent *other = overlapping(x, e);
        if (other)
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "buffers '%s' and '%s' overlap while both are live",
                             p->buffers[other->buffer].name, p->buffers[e->buffer].name);
        orth_index_set_add(&x->live, e->slot);
    }
    return ORTH_OK;
}

static orth_status check_overlaps(orth_ctx *ctx, const orth_program *p, orth_space space)
{
    orth_arena arena = {0};
    extents x;
    orth_status status = extents_make(ctx, &arena, p, space, &x);
    if (status == ORTH_OK)
        status = sweep(ctx, p, space, &x);
    orth_arena_release(ctx, &arena);
    return status;
}

orth_status orth_check(orth_ctx *ctx, const orth_program *p)
{
    checker c = {.ctx = ctx, .p = p};
    orth_arena arena = {0};
    orth_signature *of = ORTH_ARENA_ARRAY(ctx, &arena, orth_signature, ORTH_NUM_OPS);
    for (int op = 0; of && op < ORTH_NUM_OPS; op++)
        orth_signature_of((orth_op)op, &of[op]);
    c.of = of;
    c.facts = ORTH_ARENA_ARRAY(ctx, &arena, buffer_facts, p->num_buffers + 1);
    c.user_before = ORTH_ARENA_ARRAY(ctx, &arena, int32_t, p->num_instrs + 1);
    c.seen = ORTH_ARENA_ARRAY(ctx, &arena, int32_t, p->num_instrs + 1);
    orth_status status = of && c.facts && c.user_before && c.seen ? ORTH_OK : ORTH_ERR_NOMEM;
    if (status == ORTH_OK)
        status = orth_check_shapes(ctx, p, of);
    for (int32_t b = 0; status == ORTH_OK && b < p->num_buffers; b++)
        c.facts[b].written = c.facts[b].user = -1;
    if (status == ORTH_OK)
        status = find_masters(&c, &arena);
    if (status == ORTH_OK)
        status = check_instrs(&c);
    if (status == ORTH_OK)
        status = check_returned(&c);
    if (status == ORTH_OK)
        status = check_updates(&c);
    if (status == ORTH_OK && p->placed)
        status = check_chains(ctx, p);
    for (int s = 0; status == ORTH_OK && p->placed && s < ORTH_NUM_SPACES; s++)
        status = check_overlaps(ctx, p, (orth_space)s);
    orth_arena_release(ctx, &arena);
    return status == ORTH_OK ? orth_check_happens(ctx, p) : status;
}

/* ---- bound to another rank ---- */

/* Persistent buffers, in the order in which they were placed. */
static orth_status check_persistent(orth_ctx *ctx, const orth_program *p)
{
    size_t end[ORTH_NUM_SPACES] = {0};
    for (int32_t i = 0; i < p->num_persistent; i++)
        for (int32_t b = p->persistent[i]; b >= 0; b = p->buffers[b].next) {
            const orth_buffer *buf = &p->buffers[b];
            if (buf->offset < end[buf->space])
                return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "buffer '%s' begins inside of another", buf->name);
            end[buf->space] = buf->offset + buf->bytes;
        }
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        if (end[s] > p->transient_offset[s])
            return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "persistent buffers of space %d end at %zu, behind where the others begin, %zu", s, end[s],
                             p->transient_offset[s]);
    return ORTH_OK;
}

orth_status orth_check_views(orth_ctx *ctx, const orth_program *p, const orth_signature *of)
{
    ORTH_TRY(orth_check_own_shapes(ctx, p, of));
    return p->placed ? check_persistent(ctx, p) : ORTH_OK;
}
