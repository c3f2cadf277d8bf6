/* accumulate.c -- gradient-making nodes become instructions that add as they store.
 *
 * ZeRO 2 and 3: only shards pile up over the step. The gradient of a micro-batch is made in transient
 * buffers, reduced over the shard group at once, and this rank's shard joins the tree of micro-batches.
 * Context parallelism: ranks have parts of each sequence, the innermost nodes of the tree, so that a gradient is made
 * sequence by sequence in transient buffers, and reduced over CP before it joins whichever sum comes next, which is
 * left until the next gradient has been made. In fast mode tokens of all sequences pile up first.
 */
#include <assert.h>

#include "kernels/gemm.h"
#include "program/lower/build.h"

#define MAX_NODE_OPERANDS 4 /* that a gradient-making node reads, before the addends */
_Static_assert(ORTH_GRADTREE_MAX_ADDENDS <= ORTH_GEMM_MAX_ADDENDS, "a product has room for all addends");
_Static_assert(MAX_NODE_OPERANDS + ORTH_GRADTREE_MAX_ADDENDS <= ORTH_OP_MAX_IN, "an instruction has room for all addends");

/* Both uses of a tied parameter keep their own tree; which use this is. */
static orth_grad_use *use_of(orth_builder *b, int64_t index, bool second_use)
{
    return &b->uses[2 * index + second_use];
}

/* Slot of the sum over the step: persistent, a shard under ZeRO 2 and 3. */
static orth_operand step_slot(orth_builder *b, int64_t index, bool second_use, int32_t slot)
{
    orth_grad_sum *sum = &use_of(b, index, second_use)->step;
    const orth_param_desc *param = &b->spec->params[index];
    bool shard = orth_build_reduces_at_once(b);
    int64_t elems = shard ? b->shards[index].count : orth_build_elems(b, index);
    while (sum->num_slots <= slot && !b->p->failed) {
        bool whole = sum->num_slots == 0 && !second_use; /* else: name_gradients of update.c */
        orth_buffer buffer = {
            .name = orth_arena_printf(b->ctx, &b->p->arena, "grad.%s%s%s", param->name, second_use ? ".head" : "",
                                      sum->num_slots == 0 ? "" : ".partial"),
            .bytes = (size_t)elems * sizeof(float), .cls = ORTH_CLASS_GRADS, .persistent = true,
            .bind = whole ? ORTH_BIND_GRAD : ORTH_BIND_NONE, .index = index,
            .first_elem = shard ? b->shards[index].first : 0,
        };
        sum->slot[sum->num_slots++] = orth_program_add_buffer(b->p, &buffer);
    }
    return shard ? orth_build_vector(sum->slot[slot], ORTH_F32, 0, elems)
                 : orth_operand_of(sum->slot[slot], ORTH_F32, param->num_dims, param->dim);
}

/* Slot of a sum within a micro-batch or a sequence: transient. */
static orth_operand transient_slot(orth_builder *b, int64_t index, orth_grad_sum *sum, int32_t slot)
{
    const orth_param_desc *param = &b->spec->params[index];
    orth_operand whole = orth_operand_of(-1, ORTH_F32, param->num_dims, param->dim);
    while (sum->num_slots <= slot && !b->p->failed) {
        int32_t buffer = orth_build_temp(b, "grad.part", whole).buffer;
        if (!b->p->failed)
            b->p->buffers[buffer].index = index; /* what ranks that reduce it must agree on */
        sum->slot[sum->num_slots++] = buffer;
    }
    whole.buffer = sum->slot[slot];
    return whole;
}

/* Pushes `size` leaves on the sum over the step: appends what they are added to; returns the result. */
static orth_operand push_step(orth_builder *b, int64_t index, bool second_use, int64_t size, bool last,
                              orth_operand *in, int *num_in, int32_t *num_addends)
{
    orth_grad_sum *sum = &use_of(b, index, second_use)->step;
    const orth_grad_sum *second = &use_of(b, index, true)->step;
    int32_t addends[ORTH_GRADTREE_MAX_DEPTH], n;
    if (b->spec->shares && sum->num_slots == 0)
        sum->tree.next = orth_build_first_sequence(b) * orth_build_leaves_per_sequence(b, index, second_use);
    int32_t slot = orth_gradtree_push(&sum->tree, size, last, addends, &n);
    for (int i = 0; i < n; i++)
        in[(*num_in)++] = step_slot(b, index, second_use, addends[i]);
    *num_addends = n;
    /* Tied: what the head summed comes last. With data parallelism both sums go over the ranks first. */
    if (last && !second_use && second->num_slots > 0 && orth_build_size(b, ORTH_GROUP_DP) == 1) {
        const orth_operand heads = step_slot(b, index, true, 0);
        in[(*num_in)++] = heads;
        (*num_addends)++;
        if (sum->num_slots == 0) /* all in one run: no buffer of its own */
            return heads;
    }
    return step_slot(b, index, second_use, slot);
}

static orth_operand push_transient(orth_builder *b, int64_t index, orth_grad_sum *sum, int64_t size, bool last,
                                   orth_operand *in, int *num_in, int32_t *num_addends)
{
    int32_t addends[ORTH_GRADTREE_MAX_DEPTH];
    int32_t slot = orth_gradtree_push(&sum->tree, size, last, addends, num_addends);
    for (int i = 0; i < *num_addends; i++)
        in[(*num_in)++] = transient_slot(b, index, sum, addends[i]);
    return transient_slot(b, index, sum, slot);
}

static orth_operand push_micro(orth_builder *b, int64_t index, bool second_use, int64_t size, bool last,
                               orth_operand *in, int *num_in, int32_t *num_addends)
{
    return push_transient(b, index, &use_of(b, index, second_use)->micro, size, last, in, num_in, num_addends);
}

static orth_operand push_sequence(orth_builder *b, int64_t index, bool second_use, int64_t size, bool last,
                                  orth_operand *in, int *num_in, int32_t *num_addends)
{
    return push_transient(b, index, &use_of(b, index, second_use)->sequence, size, last, in, num_in, num_addends);
}

typedef orth_operand push_fn(orth_builder *b, int64_t index, bool second_use, int64_t size, bool last,
                             orth_operand *in, int *num_in, int32_t *num_addends);

/* A finished vector joins a sum as one leaf. Returns the result. */
static orth_operand join(orth_builder *b, int64_t index, push_fn *push, bool second_use, bool last, orth_operand leaf)
{
    orth_operand in[ORTH_OP_MAX_IN] = {leaf};
    in[0].num_dims = 2;
    in[0].dim[0] = 1;
    in[0].dim[1] = leaf.dim[0];
    int num_in = 1;
    orth_attr acc = {.num_addends = 0};
    orth_operand out = push(b, index, second_use, 1, last, in, &num_in, &acc.num_addends);
    orth_build_emit(b, ORTH_OP_tree_acc, &acc, num_in, in, 1, &out);
    return out;
}

void orth_build_join(orth_builder *b, int64_t index, bool second_use, bool last, orth_operand leaf)
{
    join(b, index, push_step, second_use, last, leaf);
}

/* `whole` is all that this rank has to add to the gradient: in this micro-batch, where only shards pile up over the
 * step (their leaves are micro-batches: those of all ranks together are neighbours there); else in the step. */
static void finish(orth_builder *b, int64_t index, const orth_leaf_range *leaves, orth_operand whole)
{
    if (orth_build_size(b, ORTH_GROUP_DP) > 1)
        orth_build_reduce(b, index, leaves->second_use, whole.buffer, leaves->micro_end == leaves->total);
    use_of(b, index, leaves->second_use)->micro = (orth_grad_sum){.num_slots = 0};
}

static orth_operand sum_over_cp(orth_builder *b, int64_t index, orth_operand part)
{
    orth_operand flat = orth_build_vector(part.buffer, ORTH_F32, 0, orth_build_elems(b, index));
    orth_build_emit(b, ORTH_OP_all_reduce, &(orth_attr){.group = ORTH_GROUP_CP}, 1, &flat, 1, &flat);
    return flat;
}

void orth_build_join_sequence(orth_builder *b)
{
    const orth_sequence_grad g = b->sequence_grad;
    if (g.sum.buffer < 0 || b->p->failed)
        return;
    bool at_once = orth_build_reduces_at_once(b);
    b->sequence_grad.sum.buffer = -1;
    orth_operand out = join(b, g.index, at_once ? push_micro : push_step, g.leaves.second_use, g.last, g.sum);
    if (g.last)
        finish(b, g.index, &g.leaves, out);
}

/* Context parallelism: the gradient of this rank's tokens of a sequence, whose last leaf is end - 1, becomes that
 * of the sequence, and joins the tree over sequences: where communication overlaps, when the next one is made. */
static void reduce_sequence(orth_builder *b, int64_t index, const orth_leaf_range *leaves, int64_t end,
                            orth_operand part)
{
    orth_sequence_grad g = {.index = index, .leaves = *leaves, .sum = sum_over_cp(b, index, part)};
    g.last = end == (orth_build_reduces_at_once(b) ? leaves->micro_end : leaves->total);
    use_of(b, index, leaves->second_use)->sequence = (orth_grad_sum){.num_slots = 0};
    orth_build_join_sequence(b); /* the one before */
    b->sequence_grad = g;
    if (!b->spec->comm.overlap)
        orth_build_join_sequence(b);
}

static orth_attr run_attr(const orth_node *node, const orth_leaf_range *leaves, int64_t size, int64_t rows)
{
    orth_attr attr = node->attr;
    if (leaves->chunk)
        attr.split = (orth_split){ORTH_SPLIT_EVEN, (int32_t)size, size * rows, 1, 1};
    else
        attr.num_seqs = (int32_t)size;
    if (attr.split.kind == ORTH_SPLIT_TOKENS)
        attr.split.group = size;
    return attr;
}

/* Leaves [base, end) of the sum that a run from leaf `begin` on joins first: those of the step; of the micro-batch,
 * a node by itself where it is reduced at once; of the sequence, where each rank has a part of it. */
static void sum_around(const orth_leaf_range *leaves, int64_t begin, bool at_once, bool over_cp, int64_t *base,
                       int64_t *end)
{
    *base = over_cp ? begin - begin % leaves->per_sequence : at_once ? leaves->micro_begin : 0;
    *end = over_cp ? *base + leaves->per_sequence : at_once ? leaves->micro_end : leaves->total;
}

/* Whether the finished sum of a use waits to be added to the other one's (push_step), which then is the whole. */
static bool joins_first_use(const orth_builder *b, const orth_leaf_range *leaves)
{
    return leaves->second_use && !orth_build_reduces_at_once(b) && orth_build_size(b, ORTH_GROUP_DP) == 1 &&
           orth_build_size(b, ORTH_GROUP_EMBED) == 1;
}

void orth_build_gradient(orth_builder *b, int64_t index, const orth_node *node, const orth_operand *in,
                         const orth_leaf_range *leaves)
{
    int64_t rows = node->leaves ? 1 : leaves->rows;
    /* Gradients that come as leaves were summed over CP as such (vjp.c). */
    bool cp = !node->leaves && orth_build_size(b, ORTH_GROUP_CP) > 1, at_once = orth_build_reduces_at_once(b);
    bool over_cp = cp && !b->spec->mesh.cp_once, cp_last = cp && b->spec->mesh.cp_once && !joins_first_use(b, leaves);
    use_of(b, index, leaves->second_use)->step.of_tokens = cp_last && b->spec->shares;
    const orth_block_kind block = b->block;
    const int32_t number = b->node;
    push_fn *push = over_cp ? push_sequence : at_once ? push_micro : push_step;
    for (int64_t begin = leaves->begin; begin < leaves->end && !b->p->failed;) {
        int64_t base, end;
        sum_around(leaves, begin, at_once, over_cp, &base, &end);
        int64_t size = orth_gradtree_run(begin - base, ORTH_MIN(end, leaves->end) - base);
        int64_t at = (begin - leaves->begin) * rows;
        bool last = begin + size == end;
        orth_operand operand[ORTH_OP_MAX_IN];
        int num_in = 0;
        assert(node->num_in <= MAX_NODE_OPERANDS);
        for (int i = 0; i < node->num_in; i++)
            operand[num_in++] = orth_operand_rows(in[i], at, at + size * rows);
        orth_attr attr = run_attr(node, leaves, size, rows);
        orth_operand out = push(b, index, leaves->second_use, size, last, operand, &num_in, &attr.num_addends);
        orth_build_from_node(b, block, number);
        orth_build_emit(b, node->op, &attr, num_in, operand, 1, &out);
        orth_build_from_node(b, ORTH_BLOCK_NONE, -1); /* sums over ranks may be of other nodes, too */
        begin += size;
        if (cp_last && last)
            sum_over_cp(b, index, out);
        if (over_cp && last)
            reduce_sequence(b, index, leaves, begin, out);
        else if (last)
            finish(b, index, leaves, out);
    }
}

int32_t orth_build_grad_buffer(const orth_builder *b, int64_t index)
{
    const orth_grad_sum *first = &b->uses[2 * index].step, *second = &b->uses[2 * index + 1].step;
    return first->num_slots > 0 ? first->slot[0] : second->slot[0];
}
