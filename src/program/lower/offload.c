/* offload.c -- updates whose optimizer state is in the host's memory, or in a file (memory.offload_optimizer).
 *
 *     copy out   g 0 | g 1          | g 2          |            g: the gradient comes down
 *     file       s 0 | s 1          | s 2   s 0    |            s: the state comes up, and goes back (file only)
 *     host           | update 0     | update 1     | ...
 *     copy in                       | w 0          | w 1        w: the weight that kernels read goes back
 *     compute      updates of what stays on the device (memory.offload_ratio)
 *
 * The optimizer works on buffers of the host's memory, piece by piece: DeepSpeed's sub-groups. Where elements of a row share a scale
 * (moments in 8 bits), a piece is whole rows with their scales. What a piece needs is copied while the piece before it is updated. The host
 * updates in a queue of its own, so the device goes on with what it has to do meanwhile.
 * Every operand that is elsewhere has two staging buffers, which pieces take by turns; who waits for whom follows from them
 * (passes/order.h). A master that kernels read, too, stays with the other weights, and is copied down with its gradient.
 *
 * Source: Ren et al., "ZeRO-Offload", arXiv:2101.06840; Rajbhandari et al., "ZeRO-Infinity", arXiv:2104.07857. A part that stays on the device:
 * "ZeRO-Offload++: Twin-Flow" of DeepSpeed, 2023.
 */
#include "kernels/signature.h"
#include "program/lower/build.h"

static int64_t largest_shard(const orth_builder *b, int64_t index)
{
    const orth_zero_shard own = orth_build_own(b, index);
    int64_t most = own.count;
    for (int32_t r = 0; own.counts && r < orth_build_size(b, ORTH_GROUP_SHARD); r++)
        most = ORTH_MAX(most, own.counts[r]);
    return most;
}

/* Whole parameters: each leaves where that brings the share of those so far nearer to what is asked for. So the share is about the same in
 * any run of parameters, such as ZeRO deals out to a rank, if none of them is much of it. */
static void choose_leaving(orth_builder *b)
{
    const double share = 1 - b->spec->offload.stays;
    double seen = 0, left = 0;
    for (int64_t i = 0; i < b->spec->num_params; i++) {
        const double elems = orth_build_trains(b, i) ? (double)orth_build_elems(b, i) : 0;
        seen += elems;
        b->offload.leaves[i] = left + elems / 2 <= share * seen;
        left += b->offload.leaves[i] ? elems : 0;
    }
}

void orth_offload_begin(orth_builder *b)
{
    const orth_offload *o = &b->spec->offload;
    memset(&b->offload, 0, sizeof b->offload);
    memset(b->offload.room, -1, sizeof b->offload.room);
    if (o->optimizer == ORTH_TIER_NONE)
        return;
    b->offload.leaves = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, bool, b->spec->num_params);
    b->p->failed = b->p->failed || !b->offload.leaves;
    int64_t all = 0;
    bool rows = false;
    for (int64_t i = 0; i < b->spec->num_params; i++) {
        all += b->held[i] ? largest_shard(b, i) : 0;
        rows = rows || (b->held[i] && b->spec->params[i].moments_8bit);
    }
    if (!b->p->failed)
        choose_leaving(b);
    const int64_t least = orth_div_up(all, ORTH_MAX_PIECES - 1);
    b->p->piece_elems = ORTH_MAX(ORTH_MAX(o->sub_group, 1), rows ? 2 * least : least); /* the whole rows that fit are more than half */
}

bool orth_offload_leaves(const orth_builder *b, int64_t index)
{
    return b->offload.leaves && b->offload.leaves[index];
}

void orth_offload_put(orth_builder *b, int32_t buffer)
{
    if (!b->p->failed && orth_offload_leaves(b, b->p->buffers[buffer].index))
        b->p->buffers[buffer].space = orth_tier_space(b->spec->offload.optimizer);
}

static int32_t host_buffer(orth_builder *b, const char *name, orth_class cls, size_t bytes, bool staging)
{
    const orth_buffer buffer = {.name = name, .bytes = bytes, .cls = cls, .persistent = true, .staging = staging};
    const int32_t added = orth_program_add_buffer(b->p, &buffer);
    if (!b->p->failed)
        b->p->buffers[added].space = ORTH_SPACE_HOST;
    return added;
}

orth_operand orth_offload_step(orth_builder *b, orth_operand step)
{
    orth_operand here = step;
    if (b->offload.step == 0 && !b->p->failed)
        b->offload.step = 1 + host_buffer(b, "step.host", ORTH_CLASS_OPTIMIZER, orth_operand_bytes(&step), false);
    b->offload.leaving.num = 0;
    here.buffer = b->offload.step - 1;
    here.byte_offset = 0;
    orth_build_emit(b, ORTH_OP_copy, &(orth_attr){0}, 1, &step, 1, &here);
    return here;
}

/* Piece `part` of an operand, of so many rows; those of a vector are its elements. */
static orth_operand piece_of(orth_operand o, int32_t part, int64_t rows)
{
    if (o.buffer < 0)
        return o;
    o = orth_operand_rows(o, ORTH_MIN(part * rows, o.dim[0]), ORTH_MIN((part + 1) * rows, o.dim[0]));
    o.view = o.view == ORTH_VIEW_SHARD || o.view == ORTH_VIEW_SHARD_MATRIX ? ORTH_VIEW_PIECE : o.view;
    o.part = (uint16_t)part;
    return o;
}

/* Of sgd the copy is where others have v. */
#define COPY_ROOM 4

/* Where the optimizer works on operand k of the piece at hand. */
static orth_operand near_of(orth_builder *b, orth_operand far, int k)
{
    static const char *const names[ORTH_PIECE_OPERANDS][2] = {{"stage.g.0", "stage.g.1"}, {"stage.p.0", "stage.p.1"},
                                                              {"stage.m.0", "stage.m.1"}, {"stage.v.0", "stage.v.1"},
                                                              {"stage.copy.0", "stage.copy.1"}, {"stage.scales.0", "stage.scales.1"}};
    const int turn = b->offload.num % 2;
    if (b->p->failed || far.buffer < 0 || b->p->buffers[far.buffer].space == ORTH_SPACE_HOST)
        return far;
    if (b->offload.room[k][turn] < 0)
        b->offload.room[k][turn] = host_buffer(b, names[k][turn], ORTH_CLASS_WORKSPACE, 0, true);
    if (b->p->failed)
        return far;
    orth_operand near = far;
    near.buffer = b->offload.room[k][turn];
    near.byte_offset = 0;
    orth_buffer *room = &b->p->buffers[near.buffer];
    room->bytes = ORTH_MAX(room->bytes, orth_operand_bytes(&near));
    return near;
}

static int32_t start_copy(orth_builder *b, const orth_operand *from, const orth_operand *to)
{
    return orth_build_start(b, ORTH_OP_copy, &(orth_attr){0}, 1, from, 1, to);
}

static bool is_moved(const orth_piece *x, int k)
{
    return x->far[k].buffer != x->near[k].buffer;
}

/* What the optimizer reads comes near. The copy it only writes. */
static void bring(orth_builder *b, orth_piece *x)
{
    for (int k = 0; k < x->num; k++)
        x->call[k] = is_moved(x, k) && k != x->copy ? start_copy(b, &x->far[k], &x->near[k]) : -1;
}

void orth_offload_finish(orth_builder *b)
{
    orth_piece *x = &b->offload.waiting, *before = &b->offload.leaving;
    if (x->num == 0 || b->p->failed)
        return;
    const orth_operand in[] = {x->near[0], x->step};
    x->update = orth_build_start(b, x->op, &x->attr, 2, in, x->num - 1, x->near + 1);
    for (int k = 0; k < x->num; k++)
        orth_build_until_here(b, x->call[k]);
    for (int k = 0; k < before->num; k++)
        orth_build_until_here(b, before->call[k]);
    for (int k = 0; k < x->num; k++)
        x->call[k] = is_moved(x, k) && k > 0 ? start_copy(b, &x->near[k], &x->far[k]) : -1;
    for (int k = 0; k < x->num; k++)
        orth_build_until_here(b, x->call[k]);
    orth_build_until_here(b, x->update);
    *before = *x;
    x->num = 0;
}

void orth_offload_update(orth_builder *b, int64_t index, orth_op op, const orth_attr *attr, const orth_operand in[2], int num_out,
                         const orth_operand *out)
{
    const int64_t each = orth_param_piece_elems(&b->spec->params[index], b->p->piece_elems), cols = in[0].num_dims > 1 ? in[0].dim[1] : 1;
    const int32_t num = (int32_t)ORTH_MAX(orth_div_up(largest_shard(b, index), each), 1);
    for (int32_t part = 0; part < num && !b->p->failed; part++) {
        orth_piece x = {.op = op, .attr = *attr, .step = in[1], .num = num_out + 1, .copy = 1 + orth_op_output(op, "copy")};
        x.attr.piece = part;
        x.attr.num_pieces = num;
        x.attr.place.first += ORTH_MIN(part * each, in[0].dim[0] * cols);
        for (int k = 0; k < x.num; k++) {
            x.far[k] = piece_of(k == 0 ? in[0] : out[k - 1], part, each / cols);
            x.near[k] = near_of(b, x.far[k], k == x.copy ? COPY_ROOM : k);
        }
        bring(b, &x);
        orth_offload_finish(b);
        b->offload.waiting = x;
        b->offload.num++;
    }
}
