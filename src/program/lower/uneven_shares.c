/* uneven_shares.c -- data-parallel ranks whose shares of the batch are no single nodes of the tree over sequences.
 *
 * A contiguous share is always a row of such nodes, largest in the middle:
 *
 *     sequences  0 1 2 | 3        dp_share = [3, 1]
 *     nodes      [0 1] [2] | [3]  rank 0 adds up two nodes, rank 1 one
 *     tree       (0 1) + (2 + 3)  = the tree of one rank
 *
 * In fast mode there is no tree: a rank's gradient is one sum, reduced as that of equal shares (route.c).
 * Each rank is to add a slice of every gradient (its shard under ZeRO 1, else an even part): it gets that slice of all
 * nodes of the others, adds them as the tree does, and what is added is gathered by all unless it is a shard.
 * Sent per rank with n nodes, of R: n (R-1)/R of the gradients to be added, and (R-1)/R gathered.
 */
#include "program/lower/build.h"

typedef struct {
    int32_t rank;
    int64_t size;        /* leaves */
    orth_operand place;  /* this rank's slice of it */
} node;

typedef struct {
    orth_grad_sum *sum;
    const int64_t *counts; /* [R] elements of the slices */
    node *nodes;           /* of all ranks, in order */
    int32_t num_nodes;
} job;

static int32_t me(const orth_builder *b)
{
    return b->spec->mesh.pos[ORTH_GROUP_DP];
}

/* The slice of rank r of a buffer that holds the whole. */
static orth_operand slice(const job *j, int32_t r, int32_t buffer)
{
    int64_t first = 0;
    for (int32_t k = 0; k < r; k++)
        first += j->counts[k];
    return orth_build_vector(buffer, ORTH_F32, first, j->counts[r]);
}

static const int64_t *count_slices(orth_builder *b, int64_t index, orth_extent extent)
{
    int32_t R = orth_build_size(b, ORTH_GROUP_DP);
    if (extent == ORTH_EXTENT_SHARD)
        return b->shards[index].counts;
    int64_t *counts = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, int64_t, R), n = orth_build_elems(b, index);
    b->p->failed = b->p->failed || !counts;
    for (int32_t r = 0; counts && r < R; r++)
        counts[r] = n * (r + 1) / R - n * r / R;
    return counts;
}

/* The nodes of all ranks; this rank's are in the slots of the sum. */
static void list_nodes(orth_builder *b, job *j, int64_t leaves_per_sequence)
{
    int32_t R = orth_build_size(b, ORTH_GROUP_DP), slot = 0;
    int64_t at = 0, end = 0;
    j->nodes = ORTH_ARENA_ARRAY(b->ctx, &b->p->arena, node, (int64_t)R * ORTH_GRADTREE_MAX_DEPTH);
    b->p->failed = b->p->failed || !j->nodes;
    for (int32_t r = 0; r < R && !b->p->failed; r++) {
        end += b->spec->shares[r] * leaves_per_sequence;
        for (int64_t size; at < end; at += size) {
            node *n = &j->nodes[j->num_nodes++];
            size = orth_gradtree_run(at, end);
            *n = (node){.rank = r, .size = size};
            if (r == me(b))
                n->place = slice(j, r, j->sum->slot[slot++]);
        }
    }
}

static node *first_of(const job *j, int32_t rank)
{
    int32_t i = 0;
    while (j->nodes[i].rank != rank)
        i++;
    return &j->nodes[i];
}

static bool is_of(const job *j, const node *n, int32_t rank)
{
    return n < j->nodes + j->num_nodes && n->rank == rank;
}

/* Slice `to` of this rank's nodes goes to rank `to`, this rank's slice of those of `from` comes from there: one of each at
 * a time. Sends go on beside: all ranks send before they receive. */
static void exchange(orth_builder *b, job *j, int32_t to, int32_t from)
{
    node *mine = first_of(j, me(b)), *theirs = first_of(j, from);
    for (int32_t slot = 0; is_of(j, mine, me(b)) || is_of(j, theirs, from); mine++, theirs++, slot++) {
        int32_t sent = -1;
        if (is_of(j, mine, me(b)) && j->counts[to] > 0) {
            const orth_operand out = slice(j, to, j->sum->slot[slot]);
            sent = orth_build_start(b, ORTH_OP_send, &(orth_attr){.group = ORTH_GROUP_DP, .peer = to}, 1, &out, 0, NULL);
        }
        if (is_of(j, theirs, from) && j->counts[me(b)] > 0) {
            theirs->place = orth_build_temp(b, "grad.node", slice(j, me(b), -1));
            const orth_attr received = {.group = ORTH_GROUP_DP, .peer = from};
            orth_build_emit(b, ORTH_OP_recv, &received, 0, NULL, 1, &theirs->place);
        }
        orth_build_until_here(b, sent);
    }
}

/* Adds this rank's slice of all nodes, in place; the sum is in slot 0. */
static void add_nodes(orth_builder *b, job *j)
{
    orth_gradtree tree = {.next = 0};
    orth_operand top[ORTH_GRADTREE_MAX_DEPTH];
    for (int32_t i = 0; i < j->num_nodes && !b->p->failed; i++) {
        bool last = i == j->num_nodes - 1;
        int32_t addends[ORTH_GRADTREE_MAX_DEPTH], num;
        int32_t slot = orth_gradtree_push(&tree, j->nodes[i].size, last, addends, &num);
        orth_operand in[ORTH_OP_MAX_IN] = {j->nodes[i].place};
        if (num == 0) {
            top[slot] = in[0];
            continue;
        }
        in[0].num_dims = 2;
        in[0].dim[1] = in[0].dim[0];
        in[0].dim[0] = 1;
        for (int32_t k = 0; k < num; k++)
            in[1 + k] = top[addends[k]];
        orth_operand out = last ? slice(j, me(b), j->sum->slot[0]) : top[slot];
        const orth_attr attr = {.num_addends = num, .group = ORTH_GROUP_DP, .nodes = last ? j->num_nodes : 0};
        orth_build_emit(b, ORTH_OP_tree_acc, &attr, 1 + num, in, 1, &out);
        top[slot] = out;
    }
}

static void exchange_all(orth_builder *b, job *j, int64_t leaves_per_sequence)
{
    int32_t R = orth_build_size(b, ORTH_GROUP_DP);
    list_nodes(b, j, leaves_per_sequence);
    for (int32_t k = 1; k < R && !b->p->failed; k++) /* in each round every rank sends to one and receives from one */
        exchange(b, j, (me(b) + k) % R, (me(b) + R - k) % R);
    if (!b->p->failed && j->counts[me(b)] > 0)
        add_nodes(b, j);
}

static void gather(orth_builder *b, const job *j, int64_t index)
{
    orth_operand mine = slice(j, me(b), j->sum->slot[0]);
    orth_operand whole = orth_build_vector(j->sum->slot[0], ORTH_F32, 0, orth_build_elems(b, index));
    orth_instr *i = orth_build_emit(b, ORTH_OP_all_gather, &(orth_attr){.group = ORTH_GROUP_DP}, 1, &mine, 1, &whole);
    if (i)
        i->counts = j->counts;
}

static orth_operand whole_of(const orth_builder *b, int64_t use, int32_t buffer)
{
    return orth_build_vector(buffer, ORTH_F32, 0, orth_build_elems(b, use / 2));
}

/* The stages of this use behind the tree of the step. */
static void combine(orth_builder *b, int64_t use)
{
    const orth_route *r = &b->uses[use].route;
    const orth_route_stage *exchanged = orth_route_find(r, ORTH_ROUTE_EXCHANGE);
    job j = {.sum = &b->uses[use].sum[ORTH_MOMENT_STEP]};
    if (!exchanged || j.sum->num_slots == 0)
        return;
    int32_t far[ORTH_GRADTREE_MAX_DEPTH] = {0};
    for (int32_t i = 0; i < j.sum->num_slots; i++) {
        far[i] = j.sum->slot[i];
        j.sum->slot[i] = orth_far_bring(b, whole_of(b, use, far[i])).buffer;
    }
    j.counts = count_slices(b, use / 2, exchanged->extent);
    for (const orth_route_stage *s = r->stage; s < r->stage + r->num && !b->p->failed; s++) {
        if (s->op == ORTH_ROUTE_EXCHANGE)
            exchange_all(b, &j, orth_route_find(r, ORTH_ROUTE_TREE)->per_sequence);
        else if (s->op == ORTH_ROUTE_GATHER)
            gather(b, &j, use / 2);
    }
    for (int32_t i = 0; i < j.sum->num_slots; i++) {
        const bool gathered = i == 0 && orth_route_find(r, ORTH_ROUTE_GATHER);
        orth_far_return(b, gathered ? whole_of(b, use, j.sum->slot[i]) : slice(&j, me(b), j.sum->slot[i]));
        j.sum->slot[i] = far[i];
    }
}

void orth_build_combine(orth_builder *b)
{
    for (int64_t use = 0; use < 2 * b->spec->num_params && !b->p->failed; use++)
        combine(b, use);
}
