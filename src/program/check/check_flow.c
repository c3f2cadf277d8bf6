/* check_flow.c -- see check_flow.h. */
#include "kernels/signature.h"
#include "program/check/check.h"
#include "program/check/check_flow_impl.h"

#include <inttypes.h>

static bool has_group(const flow *f, orth_group g)
{
    return f->g->size[g] > 1;
}

/* "dp", "tp+norm", for messages. */
static const char *names_of(parts_of s, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int g = 0; g < ORTH_NUM_GROUPS && at < size; g++)
        if (s & BIT(g))
            at +=
                (size_t)snprintf(out + at, size - at, "%s%s", at ? "+" : "", orth_group_name((orth_group)g));
    return out;
}

/* ---- states of buffers ---- */

static parts_of read_state(const flow *f, const orth_operand *o)
{
    const buffer_state *s = &f->state[o->buffer];
    size_t begin = o->byte_offset, end = begin + orth_operand_bytes(o);
    if (begin == end)
        return 0;
    if (begin >= s->begin && end <= s->end)
        return s->inside;
    bool apart = end <= s->begin || begin >= s->end;
    return apart ? s->outside : s->inside | s->outside;
}

static void write_state(flow *f, const orth_operand *o, parts_of now)
{
    buffer_state *s = &f->state[o->buffer];
    size_t begin = o->byte_offset, end = begin + orth_operand_bytes(o);
    if (begin == end)
        return;
    if (!s->known || (begin == 0 && end == f->p->buffers[o->buffer].bytes)) {
        *s = (buffer_state){.known = true, .outside = now};
    } else if (s->begin == s->end || (begin <= s->begin && end >= s->end)) {
        *s = (buffer_state){true, begin, end, now, s->outside};
        if (now == s->outside)
            s->begin = s->end = 0;
    } else if (now == s->inside && begin <= s->end && end >= s->begin) {
        s->begin = ORTH_MIN(begin, s->begin);
        s->end = ORTH_MAX(end, s->end);
        if (s->begin == 0 && s->end == f->p->buffers[o->buffer].bytes)
            *s = (buffer_state){.known = true, .outside = now};
    } else if (now != s->outside || (end > s->begin && begin < s->end)) { /* more than is told apart */
        s->inside |= now;
        s->begin = ORTH_MIN(begin, s->begin);
        s->end = ORTH_MAX(end, s->end);
    }
}

/* ---- where sums begin ---- */

static bool of_some_parts(const orth_attr *a)
{
    return a->split.kind != ORTH_SPLIT_TOKENS && a->split.of > a->split.parts;
}

static parts_of group_of(const flow *f, orth_group g)
{
    return has_group(f, g) ? BIT(g) : 0;
}

static parts_of over_dp(const flow *f)
{
    return group_of(f, ORTH_GROUP_DP) | group_of(f, ORTH_GROUP_SHARD) | group_of(f, ORTH_GROUP_REPLICATE);
}

/* begins_<name>, named by a row of ops.def: groups on which output k of a computing op is a part of a sum, for complete
 * inputs. */
static parts_of begins_whole(const flow *f, const orth_instr *n, int k)
{
    (void)f;
    (void)n;
    (void)k;
    return 0;
}

/* Every input is added to the result as it is. */
static parts_of begins_adds(const flow *f, const orth_instr *n, int k)
{
    return begins_whole(f, n, k);
}

/* The same, of which tokens are the innermost nodes. */
static parts_of begins_adds_losses(const flow *f, const orth_instr *n, int k)
{
    return begins_whole(f, n, k);
}

static parts_of begins_tokens(const flow *f, const orth_instr *n, int k)
{
    (void)n;
    (void)k;
    return over_dp(f) | group_of(f, ORTH_GROUP_CP);
}

/* Sums per sequence: over the ranks that have some of its tokens. */
static parts_of begins_leaves(const flow *f, const orth_instr *n, int k)
{
    (void)k;
    return over_dp(f) | (n->attr->sum_leaves & (group_of(f, ORTH_GROUP_TP) | group_of(f, ORTH_GROUP_CP)));
}

static parts_of begins_leaves_from_1(const flow *f, const orth_instr *n, int k)
{
    return k > 0 ? begins_leaves(f, n, k) : 0;
}

/* One gain for all heads, of which a rank has some. */
static parts_of begins_head_leaves(const flow *f, const orth_instr *n, int k)
{
    return k > 0 ? begins_leaves(f, n, k) | (n->attr->partial ? group_of(f, ORTH_GROUP_TP) : 0) : 0;
}

/* Of numbers of which other ranks have some: a maximum is completed as a sum is. */
static parts_of begins_largest(const flow *f, const orth_instr *n, int k)
{
    (void)k;
    return n->attr->sum_leaves & (group_of(f, ORTH_GROUP_TP) | group_of(f, ORTH_GROUP_CP));
}

/* The same of all sequences. */
static parts_of begins_largest_of_all_from_2(const flow *f, const orth_instr *n, int k)
{
    return k > 1 ? begins_tokens(f, n, k) | group_of(f, ORTH_GROUP_TP) | group_of(f, ORTH_GROUP_NORM) : 0;
}

static parts_of begins_contraction(const flow *f, const orth_instr *n, int k)
{
    (void)k;
    return of_some_parts(n->attr) ? group_of(f, ORTH_GROUP_TP) : 0;
}

static parts_of begins_vocab(const flow *f, const orth_instr *n, int k)
{
    (void)n;
    (void)k;
    return group_of(f, ORTH_GROUP_TP);
}

/* Of all queries that see the keys. */
static parts_of begins_keys_from_1(const flow *f, const orth_instr *n, int k)
{
    return k > 0 ? group_of(f, ORTH_GROUP_KV) | group_of(f, n->attr->group) : 0;
}

static parts_of begins_loss(const flow *f, const orth_instr *n, int k)
{
    return begins_tokens(f, n, k) | group_of(f, ORTH_GROUP_NORM);
}

static parts_of begins_squares(const flow *f, const orth_instr *n, int k)
{
    (void)n;
    (void)k;
    return group_of(f, ORTH_GROUP_NORM);
}

/* fp64: the turn of another rank to give a sum. */
static parts_of begins_zero(const flow *f, const orth_instr *n, int k)
{
    return n->out[0].dtype == ORTH_F64 ? begins_squares(f, n, k) : 0;
}

typedef parts_of (*begins_fn)(const flow *f, const orth_instr *n, int k);

static const begins_fn sums[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, vjp, flops, sum, ...) [ORTH_OP_##name] = begins_##sum,
#include "kernels/ops.def"
#undef OP
};

/* First input that is added to the result as it is. */
static int first_added(const orth_instr *n)
{
    const bool all = sums[n->op] == begins_adds || sums[n->op] == begins_adds_losses;
    return all ? 0 : n->num_in - n->attr->num_addends;
}

static orth_status check_complete_over(flow *f, int32_t i, const orth_operand *o, parts_of groups)
{
    parts_of now = read_state(f, o) & groups;
    char names[64];
    if (!now)
        return ORTH_OK;
    bool grad = f->p->buffers[o->buffer].cls == ORTH_CLASS_GRADS;
    return flow_refuse(f, i, o, "%s is read here, but is never reduced over %s before",
                  grad ? "the gradient" : "a sum", names_of(now, names, sizeof names));
}

static orth_status check_complete(flow *f, int32_t i, const orth_operand *o)
{
    return check_complete_over(f, i, o, ~STALE);
}

/* ---- the optimizer ---- */

/* The elements that an operand shows: of the parameter that the buffer is of, or of what was copied into a staging buffer. */
static orth_updated elems_of(const flow *f, const orth_operand *o)
{
    const orth_buffer *b = &f->p->buffers[o->buffer];
    const buffer_state *s = &f->state[o->buffer];
    const int64_t count = orth_operand_elems(o);
    if (b->staging)
        return (orth_updated){s->param, s->first, s->count == count ? count : -1};
    return (orth_updated){b->index, b->first_elem + (int64_t)(o->byte_offset / orth_dtype_bytes(o->dtype)), count};
}

static bool has_scales(const flow *f, const orth_operand *o)
{
    const orth_buffer *b = &f->p->buffers[o->buffer];
    return b->staging ? f->state[o->buffer].scales : b->bind == ORTH_BIND_SCALES;
}

static void hold_elems(flow *f, const orth_operand *o, const orth_updated *e, bool scales)
{
    buffer_state *s = &f->state[o->buffer];
    s->scales = scales;
    s->param = e->index;
    s->first = e->first;
    s->count = e->count;
}

/* `of` (NULL: o is none of it): the weight that o is the gradient or state of. Scales are of its rows: they stand for the elements that
 * have them. */
static orth_status check_same_elems(flow *f, int32_t i, const orth_operand *o, const orth_operand *of, const orth_updated *want,
                                    const char *name)
{
    orth_updated e = elems_of(f, o);
    if (of && has_scales(f, o)) {
        e.first = e.first / o->dim[1] * of->dim[1];
        e.count = e.count / o->dim[1] * of->dim[1];
    }
    if (e.count == want->count && (e.count == 0 || (e.first == want->first && e.index == want->index)))
        return ORTH_OK;
    return flow_refuse(f, i, o, "elements [%" PRId64 ", %" PRId64 ") for an update of [%" PRId64 ", %" PRId64 ") of '%s'", e.first,
                       e.first + e.count, want->first, want->first + want->count, name);
}

/* Elements of a parameter are new, those of other ranks old. The first piece is the beginning of an update. */
static void renew(flow *f, const orth_operand *o)
{
    buffer_state *s = &f->state[o->buffer];
    const orth_bind bind = f->p->buffers[o->buffer].bind;
    if (bind != ORTH_BIND_MASTER && bind != ORTH_BIND_COPY)
        return;
    if (!s->known || o->part == 0)
        *s = (buffer_state){.known = true, .outside = STALE};
    write_state(f, o, 0);
}

static orth_status check_update(flow *f, int32_t i)
{
    const orth_instr *n = &f->p->instrs[i];
    const orth_updated u = orth_instr_updates(f->p, n);
    const char *name = f->p->buffers[n->out[0].buffer].name;
    const int copy = orth_op_output(n->op, "copy"); /* is only written */
    for (int k = -1; k < n->num_out; k++) {
        const orth_operand *o = k < 0 ? &n->in[0] : &n->out[k];
        if (o->buffer < 0)
            continue;
        if (k == copy && f->p->buffers[o->buffer].staging)
            hold_elems(f, o, &u, false);
        ORTH_TRY(check_same_elems(f, i, o, &n->out[0], &u, name));
    }
    for (int k = 0; k < n->num_out; k++)
        if (n->out[k].buffer >= 0)
            renew(f, &n->out[k]);
    return ORTH_OK;
}

/* Pieces of a parameter, its gradient or its state go to the optimizer and come back to where they are from. */
static orth_status check_staging(flow *f, int32_t i)
{
    const orth_operand *in = &f->p->instrs[i].in[0], *out = &f->p->instrs[i].out[0];
    const orth_buffer *to = &f->p->buffers[out->buffer];
    const orth_updated e = elems_of(f, in);
    if (to->staging) {
        write_state(f, out, 0);
        hold_elems(f, out, &e, has_scales(f, in));
        return ORTH_OK;
    }
    const orth_updated want = elems_of(f, out);
    ORTH_TRY(check_same_elems(f, i, in, NULL, &want, to->name));
    renew(f, out);
    return ORTH_OK;
}

/* Whether n carries a value to or from where it is for a while: it comes back as it was, a part of a sum, too. */
static bool carry(flow *f, const orth_instr *n)
{
    const orth_operand *in = &n->in[0], *out = &n->out[0];
    const orth_buffer *from, *to;
    if (!orth_instr_copies(f->p, n, &from, &to))
        return false;
    if (to->of > 0) {
        f->state[out->buffer] = f->state[in->buffer];
        return true;
    }
    if (from->copy_of == 0 && to->copy_of == 0)
        return false;
    write_state(f, out, read_state(f, in));
    f->state[out->buffer].nodes = f->state[in->buffer].nodes;
    return true;
}

/* ---- computing instructions ---- */

/* Nodes of all ranks of DP, uneven shares of a sum, are added here. */
static orth_status check_nodes(flow *f, int32_t i)
{
    const orth_instr *n = &f->p->instrs[i];
    int32_t nodes = 0;
    for (int k = 0; k < n->num_in; k++) {
        char names[64];
        parts_of now = read_state(f, &n->in[k]);
        if (now & SPENT)
            return flow_refuse(f, i, &n->in[k], "added twice to a sum over dp");
        if (now != BIT(ORTH_GROUP_DP))
            return flow_refuse(f, i, &n->in[k], "added as a part of a sum over dp, but still to be reduced over '%s'",
                          names_of(now, names, sizeof names));
        nodes += ORTH_MAX(f->state[n->in[k].buffer].nodes, 1);
        write_state(f, &n->in[k], SPENT);
    }
    if (n->attr->nodes && nodes != n->attr->nodes)
        return flow_refuse(f, i, &n->out[0], "completes a sum with %d parts, but the ranks of dp have %d", nodes,
                      n->attr->nodes);
    write_state(f, &n->out[0], n->attr->nodes ? 0 : BIT(ORTH_GROUP_DP));
    f->state[n->out[0].buffer].nodes = nodes;
    return ORTH_OK;
}

static orth_status check_compute(flow *f, int32_t i)
{
    const orth_instr *n = &f->p->instrs[i];
    parts_of added = 0;
    int from = first_added(n);
    const bool casts = n->op == ORTH_OP_cast_int8;
    bool any = false;
    const orth_buffer *source, *target;
    if (carry(f, n))
        return ORTH_OK;
    if (sums[n->op] == begins_adds && n->attr->group == ORTH_GROUP_DP)
        return check_nodes(f, i);
    if (casts)
        ORTH_TRY(flow_check_rounded(f, i));
    for (int k = 0; k < n->num_in; k++) {
        const orth_operand *o = &n->in[k];
        if (o->buffer < 0)
            continue;
        /* Leaves per token slot become leaves per sequence: still parts of the same sums. */
        bool slots = sums[n->op] == begins_leaves && (read_state(f, o) & ~STALE) == begins_leaves(f, n, 0);
        if (k < from) {
            if (!slots)
                ORTH_TRY(check_complete(f, i, o));
            continue;
        }
        if (sums[n->op] == begins_adds_losses)
            ORTH_TRY(check_complete_over(f, i, o, BIT(ORTH_GROUP_CP)));
        parts_of now = read_state(f, o);
        parts_of want = any ? added : from > 0 ? sums[n->op](f, n, 0) : now;
        char a[64], b[64];
        if (now != want && orth_operand_bytes(o) > 0)
            return flow_refuse(
                f, i, o,
                "sums are added of which one is still to be reduced over '%s' and the other over '%s'",
                names_of(now, a, sizeof a), names_of(want, b, sizeof b));
        added = want;
        any = true;
    }
    if (orth_op_family_of(n->op) == ORTH_OPS_OPTIMIZER)
        return check_update(f, i);
    if (orth_instr_copies(f->p, n, &source, &target) && (source->staging || target->staging))
        return check_staging(f, i);
    for (int k = 0; k < n->num_out; k++)
        if (n->out[k].buffer >= 0)
            write_state(f, &n->out[k], k == 0 && any ? added : sums[n->op](f, n, k));
    if (casts)
        f->state[n->out[0].buffer].rounded = n->out[0].byte_offset + orth_operand_bytes(&n->out[0]);
    return ORTH_OK;
}

/* ---- communication ---- */

/* in completes its sum over the group in out. */
static orth_status reduce(flow *f, int32_t i, const orth_operand *in, const orth_operand *out)
{
    orth_group g = f->p->instrs[i].attr->group;
    parts_of now = read_state(f, in);
    if (orth_operand_bytes(in) == 0)
        return ORTH_OK;
    if (!(now & BIT(g)))
        return flow_refuse(f, i, in,
                      "reduced over %s, but it is no part of a sum over it (not yet, or reduced twice)",
                      orth_group_name(g));
    char names[64];
    if (now & (BIT(g) - 1)) /* lower numbers are nested further inside (kernels/op.h) */
        return flow_refuse(f, i, in, "reduced over %s before it is over %s, which is further inside of the sum",
                      orth_group_name(g), names_of(now & (BIT(g) - 1), names, sizeof names));
    if (in->dtype == ORTH_Q8 && f->state[in->buffer].rounded != f->p->buffers[in->buffer].bytes)
        return flow_refuse(f, i, in, "reduced in int8, but only %zu of its %zu bytes are written", f->state[in->buffer].rounded,
                           f->p->buffers[in->buffer].bytes);
    write_state(f, out, now & ~BIT(g));
    return ORTH_OK;
}

/* Values; or the leaves of the loss, fp64: who has those of all ranks has the whole sum. */
static orth_status gather(flow *f, int32_t i, const orth_operand *in, const orth_operand *out)
{
    parts_of leaves = in->dtype == ORTH_F64 ? BIT(f->p->instrs[i].attr->group) | BIT(ORTH_GROUP_NORM) : 0;
    ORTH_TRY(check_complete_over(f, i, in, ~(STALE | leaves)));
    write_state(f, out, read_state(f, in) & leaves & BIT(ORTH_GROUP_NORM));
    return ORTH_OK;
}

/* ---- flow_<name> of each row that communicates: operand k of instruction i, `g` its group ---- */

static orth_status flow_all_reduce(flow *f, int32_t i, int k, orth_group g)
{
    const orth_operand *in = &f->p->instrs[i].in[k], *out = &f->p->instrs[i].out[k];
    if (in->buffer != out->buffer || in->byte_offset != out->byte_offset || orth_operand_elems(in) != orth_operand_elems(out))
        return flow_refuse(f, i, out, "an all_reduce works in place, but its input is elsewhere");
    return g == ORTH_GROUP_EMBED ? check_complete(f, i, in) : reduce(f, i, in, out);
}

static const int64_t *counts_of(const flow *f, const orth_instr *n, int k, orth_group g)
{
    return n->counts ? n->counts + (int64_t)k * f->g->size[g] : NULL;
}

static orth_status flow_reduce_scatter(flow *f, int32_t i, int k, orth_group g)
{
    const orth_instr *n = &f->p->instrs[i];
    ORTH_TRY(flow_check_blocks(f, i, &n->out[k], &n->in[k], counts_of(f, n, k, g)));
    return reduce(f, i, &n->in[k], &n->out[k]);
}

static orth_status flow_all_gather(flow *f, int32_t i, int k, orth_group g)
{
    const orth_instr *n = &f->p->instrs[i];
    ORTH_TRY(flow_check_blocks(f, i, &n->in[k], &n->out[k], counts_of(f, n, k, g)));
    return gather(f, i, &n->in[k], &n->out[k]);
}

static orth_status flow_all_to_all(flow *f, int32_t i, int k, orth_group g)
{
    const orth_operand *in = &f->p->instrs[i].in[k], *out = &f->p->instrs[i].out[k];
    if (orth_operand_elems(in) != orth_operand_elems(out) || in->dtype != out->dtype || orth_operand_elems(in) % f->g->size[g])
        return flow_refuse(f, i, out, "%" PRId64 " elements from %" PRId64 ": both must be a block for each of %d ranks",
                           orth_operand_elems(out), orth_operand_elems(in), f->g->size[g]);
    ORTH_TRY(check_complete(f, i, in));
    write_state(f, out, 0);
    return ORTH_OK;
}

/* Messages over DP are nodes of a sum. */
static orth_status flow_send(flow *f, int32_t i, int k, orth_group g)
{
    const orth_operand *in = &f->p->instrs[i].in[k];
    if (g == ORTH_GROUP_DP && read_state(f, in) != BIT(g))
        return flow_refuse(f, i, in, "sent as a part of a sum over dp, which it is not");
    return g == ORTH_GROUP_DP ? ORTH_OK : check_complete(f, i, in);
}

static orth_status flow_recv(flow *f, int32_t i, int k, orth_group g)
{
    write_state(f, &f->p->instrs[i].out[k], g == ORTH_GROUP_DP ? BIT(g) : 0);
    return ORTH_OK;
}

typedef orth_status (*flow_fn)(flow *f, int32_t i, int k, orth_group g);

static const flow_fn calls[ORTH_NUM_OPS] = {
#define OP(...)
#define COMM(name, ...) [ORTH_OP_##name] = flow_##name,
#include "kernels/ops.def"
#undef COMM
#undef OP
};

static orth_status check_comm(flow *f, int32_t i)
{
    const orth_instr *n = &f->p->instrs[i];
    orth_group g = n->attr->group;
    const orth_operand *o = n->num_in ? &n->in[0] : n->num_out ? &n->out[0] : NULL;
    if ((unsigned)g >= ORTH_NUM_GROUPS || !has_group(f, g))
        return flow_refuse(f, i, o, "the rank has no peers in group %s",
                      (unsigned)g < ORTH_NUM_GROUPS ? orth_group_name(g) : "?");
    if (!calls[n->op])
        return flow_refuse(f, i, o, "a node of a graph, which is no instruction");
    bool message = orth_op_is_message(n->op);
    if (message && (n->attr->peer < 0 || n->attr->peer >= f->g->size[g] || n->attr->peer == f->g->pos[g]))
        return flow_refuse(f, i, o, "peer %d: the rank is position %d of %d in group %s", n->attr->peer,
                      f->g->pos[g], f->g->size[g], orth_group_name(g));
    for (int k = 0; k < ORTH_MAX(n->num_in, n->num_out); k++)
        ORTH_TRY(calls[n->op](f, i, k, g));
    return n->coalesced ? flow_check_coalesced(f, i) : ORTH_OK;
}

/* ---- all ---- */

static orth_status check_instrs(flow *f)
{
    for (int32_t i = 0; i < f->p->num_instrs; i++)
        ORTH_TRY(orth_op_is_comm(f->p->instrs[i].op) ? check_comm(f, i) : check_compute(f, i));
    return ORTH_OK;
}

static orth_status check_gathered(flow *f)
{
    for (int32_t b = 0; b < f->p->num_buffers; b++) {
        const buffer_state *s = &f->state[b];
        const orth_buffer *buf = &f->p->buffers[b];
        if (s->known && buf->bytes > 0 && (buf->bind == ORTH_BIND_MASTER || buf->bind == ORTH_BIND_COPY) &&
            (s->outside & STALE))
            return ORTH_FAIL(f->ctx, ORTH_ERR_INTERNAL,
                             "rank %d: of parameter '%s' only bytes [%zu, %zu) of %zu are "
                             "updated, and the others are never gathered",
                             f->rank, buf->name, s->begin, s->end, buf->bytes);
    }
    return ORTH_OK;
}

orth_status orth_check_flow(orth_ctx *ctx, const orth_program *p, int rank, const orth_rank_groups *groups)
{
    flow *f = ORTH_NEW(ctx, flow);
    if (!f)
        return ORTH_ERR_NOMEM;
    *f = (flow){.ctx = ctx, .p = p, .rank = rank, .g = groups};
    f->state = ORTH_NEW_ARRAY(ctx, buffer_state, p->num_buffers + 1);
    orth_status s = f->state ? check_instrs(f) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = check_gathered(f);
    orth_mem_free(ctx, f->state);
    orth_mem_free(ctx, f);
    return s;
}
