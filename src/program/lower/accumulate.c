/* accumulate.c -- the trees on the routes of gradients: gradient-making nodes become instructions that add as they store.
 *
 * The first stage of a route is a tree whose leaves the backward pass makes, in ascending order. The instruction that makes
 * a run of them also adds the finished nodes that are merged with it. Later trees of the route add what other stages
 * complete, by tree_acc.
 */
#include <assert.h>

#include "kernels/gemm.h"
#include "program/lower/build.h"

#define MAX_NODE_OPERANDS 6 /* that a gradient-making node reads, before the addends */
_Static_assert(ORTH_GRADTREE_MAX_ADDENDS <= ORTH_GEMM_MAX_ADDENDS, "a product has room for all addends");
_Static_assert(MAX_NODE_OPERANDS + ORTH_GRADTREE_MAX_ADDENDS <= ORTH_OP_MAX_IN, "an instruction has room for all addends");

static const orth_param_desc *param_of(const orth_builder *b, int64_t use)
{
    return &b->spec->params[use / 2];
}

/* Buffer `slot` of the sum of a step, which lasts until the update. */
static int32_t add_persistent(orth_builder *b, int64_t use, int32_t slot, orth_zero_shard held)
{
    const bool second_use = use % 2 > 0, whole = slot == 0 && !second_use; /* else: name_gradients of update.c */
    orth_buffer buffer = {
        .name = orth_arena_printf(b->ctx, &b->p->arena, "grad.%s%s%s", param_of(b, use)->name, second_use ? ".head" : "",
                                  slot == 0 ? "" : ".partial"),
        .bytes = (size_t)held.count * sizeof(float), .cls = ORTH_CLASS_GRADS, .persistent = true,
        .bind = whole ? ORTH_BIND_GRAD : ORTH_BIND_NONE, .index = use / 2, .first_elem = held.first, .shard_elem = held.counts ? sizeof(float) : 0,
    };
    const int32_t added = orth_program_add_buffer(b->p, &buffer);
    orth_far_put(b, added, b->spec->offload.gradients);
    return added;
}

/* A partial sum that lives within the step is a gradient as well. */
static int32_t add_transient(orth_builder *b, int64_t use, orth_operand whole)
{
    int32_t buffer = orth_build_temp(b, "grad.part", whole).buffer;
    if (!b->p->failed) {
        b->p->buffers[buffer].cls = ORTH_CLASS_GRADS;
        b->p->buffers[buffer].index = use / 2; /* what ranks that reduce it must agree on */
    }
    return buffer;
}

orth_operand orth_build_part(orth_builder *b, int64_t use, orth_dtype dtype, int64_t elems)
{
    orth_operand whole = orth_build_vector(-1, dtype, 0, elems);
    whole.buffer = add_transient(b, use, whole);
    return whole;
}

static orth_operand slot_of(orth_builder *b, int64_t use, const orth_route_stage *s, int32_t slot)
{
    const orth_param_desc *param = param_of(b, use);
    const bool shard = s->extent == ORTH_EXTENT_SHARD;
    const orth_zero_shard held = shard ? b->shards[use / 2] : (orth_zero_shard){0, orth_param_elems_here(param), NULL};
    orth_grad_sum *sum = &b->uses[use].sum[s->when];
    orth_operand x = shard ? orth_build_vector(-1, ORTH_F32, 0, held.count)
                           : orth_operand_of(-1, ORTH_F32, param->num_dims, param->dim);
    while (sum->num_slots <= slot && !b->p->failed) {
        int32_t buffer = s->keep == ORTH_KEEP_PERSISTENT ? add_persistent(b, use, sum->num_slots, held) : add_transient(b, use, x);
        sum->slot[sum->num_slots++] = buffer;
    }
    if (shard && !b->p->failed)
        return orth_build_own_elems(b, sum->slot[slot], ORTH_F32, use / 2);
    x.buffer = sum->slot[slot];
    return x;
}

/* Where an instruction writes a sum: in the copy that it adds to, or in a new one. */
static orth_operand room_for(orth_builder *b, orth_operand sum, const orth_operand *added, int num_added)
{
    for (int k = 0; k < num_added && !b->p->failed; k++)
        if (added[k].buffer >= 0 && b->p->buffers[added[k].buffer].copy_of == sum.buffer + 1) {
            sum.buffer = added[k].buffer;
            return sum;
        }
    return orth_far_room(b, sum);
}

/* A sum that instructions add to. */
typedef struct {
    int64_t use;
    int32_t stage;
} sum_ref;

/* Pushes `size` leaves on the tree at this stage: appends what they are added to; returns the result. Sums that are elsewhere
 * (far.c) are brought; the result is a copy then, which the caller returns when it is written. */
static orth_operand push(orth_builder *b, sum_ref at, int64_t size, orth_operand *in, int *num_in, int32_t *num_addends,
                         bool *complete)
{
    const orth_route *r = &b->uses[at.use].route;
    const orth_route_stage *s = &r->stage[at.stage];
    orth_grad_sum *sum = &b->uses[at.use].sum[s->when];
    int32_t addends[ORTH_GRADTREE_MAX_DEPTH], n;
    *complete = sum->tree.next + size == s->leaves;
    const int32_t slot = s->running ? orth_gradtree_push_running(&sum->tree, size, addends, &n)
                                    : orth_gradtree_push(&sum->tree, size, *complete, addends, &n);
    const orth_operand *added = in + *num_in;
    for (int i = 0; i < n; i++)
        in[(*num_in)++] = orth_far_bring(b, slot_of(b, at.use, s, addends[i]));
    *num_addends = n;
    const bool joins = *complete && at.stage + 1 < r->num && s[1].op == ORTH_ROUTE_JOIN && s[1].when == s->when;
    orth_operand out = orth_operand_absent;
    if (joins) { /* tied: what the head summed comes last */
        out = orth_far_bring(b, slot_of(b, at.use + 1, s, 0));
        in[(*num_in)++] = out;
        (*num_addends)++;
    }
    if (!joins || sum->num_slots > 0) /* else all in one run: no buffer of its own */
        out = room_for(b, slot_of(b, at.use, s, slot), added, *num_addends);
    if (*complete)
        sum->tree = (orth_gradtree){.next = 0};
    if (*complete && s->keep == ORTH_KEEP_TRANSIENT)
        sum->num_slots = 0;
    return out;
}

bool orth_build_add_leaf(orth_builder *b, int64_t use, int32_t stage, orth_operand *value)
{
    orth_operand in[ORTH_OP_MAX_IN] = {*value};
    in[0].num_dims = 2;
    in[0].dim[0] = 1;
    in[0].dim[1] = value->dim[0];
    int num_in = 1;
    bool complete;
    orth_attr acc = {.num_addends = 0};
    *value = push(b, (sum_ref){use, stage}, 1, in, &num_in, &acc.num_addends, &complete);
    orth_build_emit(b, ORTH_OP_tree_acc, &acc, num_in, in, 1, value);
    if (!complete)
        orth_far_return(b, *value);
    return complete;
}

static orth_attr run_attr(const orth_node *node, const orth_leaves *leaves, int64_t size, int64_t rows)
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

/* What an operand has of leaves [begin, end) of num: rows, or their scales. */
static orth_operand leaves_of(orth_operand x, int64_t num, int64_t begin, int64_t end)
{
    const int64_t rows = x.dim[0] / num;
    return orth_operand_rows(x, begin * rows, end * rows);
}

/* Leaves of the next run of a tree, at most `max`: it ends where the node of the stage is complete. */
static int64_t run_of(const orth_builder *b, int64_t use, int64_t max)
{
    const orth_route_stage *s = &b->uses[use].route.stage[0];
    const int64_t next = b->uses[use].sum[s->when].tree.next;
    return orth_gradtree_run(next, s->leaves > 0 ? ORTH_MIN(next + max, s->leaves) : next + max);
}

void orth_build_gradient(orth_builder *b, int64_t index, const orth_node *node, const orth_operand *in,
                         const orth_leaves *leaves)
{
    const int64_t rows = node->leaves ? 1 : leaves->rows, use = 2 * index + leaves->second_use;
    const orth_block_kind block = b->block;
    const int32_t number = b->node;
    orth_build_from_node(b, ORTH_BLOCK_NONE, -1); /* copies of sums are of no node, and sums over ranks may be of other nodes, too */
    for (int64_t begin = 0; begin < leaves->num && !b->p->failed;) {
        const int64_t size = run_of(b, use, leaves->num - begin);
        orth_operand operand[ORTH_OP_MAX_IN];
        int num_in = 0;
        bool complete;
        assert(node->num_in <= MAX_NODE_OPERANDS);
        for (int i = 0; i < node->num_in; i++)
            operand[num_in++] = leaves_of(in[i], leaves->num, begin, begin + size);
        orth_attr attr = run_attr(node, leaves, size, rows);
        orth_operand out = push(b, (sum_ref){use, 0}, size, operand, &num_in, &attr.num_addends, &complete);
        orth_build_from_node(b, block, number);
        orth_build_emit(b, node->op, &attr, num_in, operand, 1, &out);
        orth_build_from_node(b, ORTH_BLOCK_NONE, -1);
        begin += size;
        if (complete)
            orth_build_follow(b, use, 1, out);
        else
            orth_far_return(b, out);
    }
}

int32_t orth_build_grad_buffer(const orth_builder *b, int64_t index)
{
    const orth_grad_sum *first = &b->uses[2 * index].sum[ORTH_MOMENT_STEP], *second = &b->uses[2 * index + 1].sum[ORTH_MOMENT_STEP];
    return first->num_slots > 0 ? first->slot[0] : second->slot[0];
}
