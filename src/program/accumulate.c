/* accumulate.c -- gradient-making nodes become instructions that add as they store. */
#include "program/build.h"

/* Both uses of a tied parameter keep their own tree; which use this is. */
static orth_grad_use *use_of(orth_builder *b, int64_t index, bool second_use)
{
    return &b->uses[2 * index + second_use];
}

static int32_t slot_buffer(orth_builder *b, int64_t index, bool second_use, int32_t slot)
{
    orth_grad_use *use = use_of(b, index, second_use);
    const orth_param_desc *param = &b->spec->params[index];
    while (use->num_slots <= slot && !b->p->failed) {
        bool whole = use->num_slots == 0 && !second_use;
        size_t elems = (size_t)(param->dim[0] * (param->num_dims > 1 ? param->dim[1] : 1));
        orth_buffer buffer = {
            .name = orth_arena_printf(b->ctx, &b->p->arena, "grad.%s%s%s", param->name,
                                      second_use ? ".head" : "", whole || second_use ? "" : ".partial"),
            .bytes = elems * sizeof(float), .cls = ORTH_CLASS_GRADS, .persistent = true,
            .bind = whole ? ORTH_BIND_GRAD : ORTH_BIND_NONE, .index = index,
        };
        use->slot[use->num_slots++] = orth_program_add_buffer(b->p, &buffer);
    }
    return use->slot[slot];
}

static orth_operand slot_operand(orth_builder *b, int64_t index, bool second_use, int32_t slot)
{
    const orth_param_desc *param = &b->spec->params[index];
    return orth_operand_of(slot_buffer(b, index, second_use, slot), ORTH_F32, param->num_dims, param->dim);
}

void orth_build_gradient(orth_builder *b, int64_t index, const orth_node *node, const orth_operand *in,
                         const orth_leaf_range *leaves)
{
    orth_grad_use *use = use_of(b, index, leaves->second_use);
    const orth_grad_use *second = use_of(b, index, true);
    int64_t rows = node->leaves ? 1 : leaves->rows;
    for (int64_t begin = leaves->begin; begin < leaves->end && !b->p->failed;) {
        int64_t size = orth_gradtree_run(begin, leaves->end), at = (begin - leaves->begin) * rows;
        bool last = begin + size == leaves->total;
        int32_t addends[ORTH_GRADTREE_MAX_DEPTH], num_addends;
        int32_t slot = orth_gradtree_push(&use->tree, size, last, addends, &num_addends);

        orth_operand operand[ORTH_OP_MAX_IN];
        int num_in = 0;
        for (int i = 0; i < node->num_in; i++)
            operand[num_in++] = orth_operand_rows(in[i], at, at + size * rows);
        for (int i = 0; i < num_addends; i++)
            operand[num_in++] = slot_operand(b, index, leaves->second_use, addends[i]);
        bool join = last && !leaves->second_use && second->num_slots > 0;
        if (join) /* tied: what the head summed comes last, whatever the schedule did before */
            operand[num_in++] = slot_operand(b, index, true, 0);

        orth_attr attr = node->attr;
        attr.num_addends = num_addends + join;
        if (leaves->chunk)
            attr.split = (orth_split){ORTH_SPLIT_EVEN, (int32_t)size, size * rows, 1, 1};
        else
            attr.num_seqs = (int32_t)size;
        if (attr.split.kind == ORTH_SPLIT_TOKENS)
            attr.split.group = size;
        orth_operand out = slot_operand(b, index, leaves->second_use, slot);
        orth_build_emit(b, node->op, &attr, num_in, operand, 1, &out);
        begin += size;
    }
}
