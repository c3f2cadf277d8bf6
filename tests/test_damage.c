/* test_damage.c -- every kind of damage to the programs of a layout is refused, in words that name the ranks and
 * the instructions.
 */
#include "damage.h"

typedef enum {
    LAYOUT_PP = 0,   /* two stages, 1F1B, four micro-batches, tied embeddings */
    LAYOUT_PP4, LAYOUT_DP, LAYOUT_TPDP, LAYOUT_SP, LAYOUT_ZERO1, LAYOUT_ZERO1_4, LAYOUT_ZERO2, LAYOUT_ZERO3,
    LAYOUT_CP, LAYOUT_RING, LAYOUT_TRADE, LAYOUT_KV,
    LAYOUT_HYBRID1, LAYOUT_HYBRID2, LAYOUT_HYBRID3, /* two replicas of two shards */
    LAYOUT_BUCKETS, LAYOUT_BUCKETS_ZERO1, LAYOUT_BUCKETS_ZERO3,
    LAYOUT_BUCKETS_HYBRID1 /* the rest: one by one, blocking */
} layout_name;

static layout_case case_of(layout_name name)
{
    layout_case c = layout_base_case(5, name == LAYOUT_TPDP || name == LAYOUT_KV);
    c.comm = name >= LAYOUT_BUCKETS ? c.comm : (orth_comm_policy){.overlap = false};
    c.layout.global_batch = name == LAYOUT_PP ? 4 : 8;
    c.model.tied = name == LAYOUT_PP || name == LAYOUT_ZERO3;
    c.model.vocab = name == LAYOUT_ZERO3 ? 2048 : 131; /* the first: two ranks meet inside the embedding */
    switch (name) {
    case LAYOUT_PP: c.layout.pp = 2; break;
    case LAYOUT_PP4: c.layout.pp = 4; break;
    case LAYOUT_TPDP: c.layout.tp = 2; c.layout.dp = 2; break;
    case LAYOUT_SP: c.layout.tp = 2; c.layout.sequence_parallel = true; break;
    case LAYOUT_RING:
        c.layout.cp = 2;
        c.layout.cp_kind = ORTH_CP_RING;
        c.layout.seq_len = c.model.max_seq = 256;
        break;
    case LAYOUT_TRADE: c.layout.cp = 2; c.layout.cp_kind = ORTH_CP_ALL_TO_ALL; break;
    case LAYOUT_CP: c.layout.cp = 2; c.layout.cp_kind = ORTH_CP_ALL_GATHER; break;
    case LAYOUT_KV: c.layout.tp = 2; c.model.kv_heads = 1; break;
    case LAYOUT_ZERO1_4: c.layout.dp = 4; c.layout.zero = 1; break;
    case LAYOUT_BUCKETS_HYBRID1: c.layout.dp = 4; c.layout.shard_group = 2; c.layout.zero = 1; break;
    case LAYOUT_HYBRID1:
    case LAYOUT_HYBRID2:
    case LAYOUT_HYBRID3:
        c.layout.dp = 4;
        c.layout.shard_group = 2;
        c.layout.zero = name - LAYOUT_HYBRID1 + 1;
        break;
    default:
        c.layout.dp = 2;
        c.layout.zero = name == LAYOUT_DP || name == LAYOUT_BUCKETS ? 0 : name == LAYOUT_ZERO1 || name == LAYOUT_BUCKETS_ZERO1 ? 1
                        : name == LAYOUT_ZERO2 ? 2 : 3;
    }
    return c;
}

#define P(r) (&x->p[r])

/* ---- instruments for one damage each ---- */

static int32_t find_wait(const orth_program *p, int32_t ticket)
{
    int32_t i = 0;
    while (p->instrs[i].op != ORTH_OP_wait || p->instrs[i].attr.ticket != ticket)
        i++;
    return i;
}

static void drop_wait(orth_program *p, int32_t ticket)
{
    drop(p, find_wait(p, ticket));
}

/* The all_reduce of the gradient of this name. */
static int32_t find_grad(const orth_program *p, const char *name)
{
    int32_t i = 0;
    while (p->instrs[i].op != ORTH_OP_all_reduce || strcmp(p->buffers[p->instrs[i].in[0].buffer].name, name) != 0)
        i++;
    return i;
}

/* The all_reduce of the sums per sequence of a gain. */
static int32_t find_leaves(const orth_program *p)
{
    int32_t i = 0;
    while (p->instrs[i].op != ORTH_OP_all_reduce || p->instrs[i + 1].op != ORTH_OP_tree_acc)
        i++;
    return i;
}

/* One element of position `from` becomes one of `to`, in the first reduction from i on where it has some. */
static void shift_counts(orth_program *p, int32_t i, int from, int to)
{
    while (!p->instrs[i].counts || p->instrs[i].counts[from] == 0)
        i++;
    int64_t *counts = (int64_t *)p->instrs[i].counts;
    counts[from]--;
    counts[to]++;
}

/* The first reduce_scatter of which this rank keeps something. */
static int32_t first_own(const orth_program *p)
{
    int32_t i = 0;
    while (p->instrs[i].op != ORTH_OP_reduce_scatter || orth_operand_bytes(&p->instrs[i].out[0]) == 0)
        i++;
    return i;
}

/* The first of two reductions of micro-batch gradients, three instructions apart, that look alike. */
static int32_t find_pair(const orth_program *p)
{
    for (int32_t i = 0; i + 3 < p->num_instrs; i++) {
        const orth_instr *a = &p->instrs[i], *b = &p->instrs[i + 3];
        if (a->op == ORTH_OP_reduce_scatter && b->op == ORTH_OP_reduce_scatter && p->instrs[i + 2].op == ORTH_OP_tree_acc &&
            memcmp(a->counts, b->counts, 2 * sizeof *a->counts) == 0)
            return i;
    }
    fail_msg("no such pair");
    return -1;
}

/* A parameter of which ranks 0 and 1 both update a piece. */
static int64_t split_param(const patient *x)
{
    for (int64_t i = 0; i < x->blocks[0].spec.num_params; i++) {
        int32_t a = orth_program_find(&x->p[0], ORTH_BIND_M, i), b = orth_program_find(&x->p[1], ORTH_BIND_M, i);
        if (x->p[0].buffers[a].bytes > 0 && x->p[1].buffers[b].bytes > 0)
            return i;
    }
    fail_msg("no parameter is on both ranks");
    return -1;
}

/* ---- damages ---- */

static void dropped_receive(patient *x)
{
    drop(P(1), find_op(P(1), ORTH_OP_recv, ORTH_GROUP_PP, 0));
}

static void receive_replaced_by_zeros(patient *x)
{
    int32_t i = find_op(P(1), ORTH_OP_recv, ORTH_GROUP_PP, 0);
    insert_zero(P(1), i, P(1)->instrs[i].out[0]);
    drop(P(1), i + 1);
}

static void last_receive_replaced_by_zeros(patient *x)
{
    int32_t i = find_last(P(1), ORTH_OP_recv, ORTH_GROUP_PP);
    insert_zero(P(1), i, P(1)->instrs[i].out[0]);
    drop(P(1), i + 1);
}

static void dropped_send(patient *x)
{
    int32_t i = find_last(P(0), ORTH_OP_send, ORTH_GROUP_PP);
    drop_wait(P(0), P(0)->instrs[i].attr.ticket);
    drop(P(0), i);
}

static void sends_in_another_order(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0), j = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 1);
    P(0)->instrs[i].micro_batch = 1;
    P(0)->instrs[j].micro_batch = 0;
}

static void wrong_peer(patient *x)
{
    P(0)->instrs[find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0)].attr.peer = 2;
}

static void peer_is_itself(patient *x)
{
    P(0)->instrs[find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0)].attr.peer = 0;
}

static void peer_outside_of_the_group(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_recv, ORTH_GROUP_PP, 0)].attr.peer = 5;
}

static void activations_on_the_channel_of_gradients(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0);
    int32_t t = P(0)->instrs[i].attr.ticket;
    P(0)->instrs[i].attr.group = ORTH_GROUP_PP_BACK;
    P(0)->instrs[find_wait(P(0), t)].attr.group = ORTH_GROUP_PP_BACK;
}

static void message_of_another_length(patient *x)
{
    orth_operand *o = P(1)->instrs[find_op(P(1), ORTH_OP_recv, ORTH_GROUP_PP, 0)].out;
    o->dim[0]--;
}

static void message_of_another_type(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_recv, ORTH_GROUP_PP, 0)].out[0].dtype = ORTH_I32;
}

static void missing_wait(patient *x)
{
    int32_t i = find_last(P(0), ORTH_OP_wait, ORTH_GROUP_PP);
    drop(P(0), i);
}

static void double_wait(patient *x)
{
    duplicate(P(0), find_op(P(0), ORTH_OP_wait, ORTH_GROUP_PP, 0));
}

static void wait_before_the_start(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0);
    move(P(0), find_wait(P(0), P(0)->instrs[i].attr.ticket), i);
}

static void wait_on_another_group(patient *x)
{
    P(0)->instrs[find_op(P(0), ORTH_OP_wait, ORTH_GROUP_PP, 0)].attr.group = ORTH_GROUP_PP_BACK;
}

static void wait_that_lets_its_buffer_die(patient *x)
{
    P(0)->instrs[find_op(P(0), ORTH_OP_wait, ORTH_GROUP_PP, 0)].num_in = 0;
}

static void ticket_given_out_twice(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0), j = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 1);
    P(0)->instrs[j].attr.ticket = P(0)->instrs[i].attr.ticket;
}

static void write_while_a_send_is_under_way(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0);
    insert_zero(P(0), i + 1, P(0)->instrs[i].in[0]);
}

static void sends_that_block(patient *x)
{
    for (int r = 0; r < 2; r++)
        for (int32_t i = P(r)->num_instrs - 1; i >= 0; i--) {
            P(r)->instrs[i].attr.ticket = 0;
            if (P(r)->instrs[i].op == ORTH_OP_wait)
                drop(P(r), i);
        }
}

static void collectives_of_two_groups_crossed(patient *x)
{
    for (int r = 0; r < 4; r += 3) {
        int32_t from = find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_DP, 0), to = from;
        while (P(r)->instrs[to].op != ORTH_OP_all_reduce || P(r)->instrs[to].attr.group != ORTH_GROUP_TP)
            to++;
        move(P(r), from, to);
    }
}

static void tied_gradient_not_summed(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_EMBED, 0));
}

static void tied_gradient_summed_twice(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        duplicate(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_EMBED, 0));
}

static void group_in_another_order(patient *x)
{
    x->swapped_group = ORTH_GROUP_PP;
}

static void collectives_swapped_on_one_rank(patient *x)
{
    move(P(1), find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 3), find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 4));
}

static void equal_collectives_swapped_on_one_rank(patient *x)
{
    move(P(1), find_grad(P(1), "grad.layers.0.attn_norm.gain"), find_grad(P(1), "grad.layers.0.attn_norm.shift"));
}

static void group_without_peers(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 2)].attr.group = ORTH_GROUP_TP;
}

static void wrong_group(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_TP, 2)].attr.group = ORTH_GROUP_DP;
}

static void collective_of_another_count(patient *x)
{
    orth_instr *n = &P(1)->instrs[find_last(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP)];
    n->in[0].dim[0] = n->out[0].dim[0] = 0;
}

static void collective_of_another_type(patient *x)
{
    orth_instr *n = &P(1)->instrs[find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 1)];
    n->in[0].dtype = n->out[0].dtype = ORTH_I32;
}

static void sum_that_is_a_maximum_on_one_rank(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 1)].attr.maximum = true;
}

static void gradient_reduced_twice(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        duplicate(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_DP, 1));
}

static void gradient_never_reduced(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_DP, 1));
}

static void gradient_not_reduced_on_one_rank(patient *x)
{
    drop(P(1), find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 1));
}

static void gradient_reduced_after_its_norm(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        move(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_DP, 1), find_last(P(r), ORTH_OP_grad_square, 0));
}

static void gradient_written_after_its_norm(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_grad_square, 0, 0);
    insert_zero(P(0), i + 1, P(0)->instrs[i].in[0]);
}

static void gradient_added_twice(patient *x)
{
    duplicate(P(0), find_last(P(0), ORTH_OP_linear_dw, ORTH_GROUP_DP));
}

static void gain_added_twice(patient *x)
{
    duplicate(P(1), find_op(P(1), ORTH_OP_tree_acc, ORTH_GROUP_DP, 3));
}

static void embedding_added_twice_later(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_embed_bwd, ORTH_GROUP_DP, 0);
    move(P(0), append_copy(P(0), i), i + 4);
}

static void missed_update(patient *x)
{
    drop(P(1), find_op(P(1), ORTH_OP_adamw, 0, 2));
}

static void double_update(patient *x)
{
    duplicate(P(1), find_op(P(1), ORTH_OP_adamw, 0, 2));
}

static void update_with_another_gradient(patient *x)
{
    int32_t i = find_op(P(1), ORTH_OP_adamw, 0, 2);
    P(1)->instrs[i].in[0].buffer = P(1)->instrs[i + 1].in[0].buffer;
    P(1)->instrs[i].in[0].dim[0] = P(1)->instrs[i].out[0].dim[0];
}

static void update_with_another_moment(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_adamw, 0, 1);
    P(0)->instrs[i].out[2].dim[0]--;
}

static void read_before_write(patient *x)
{
    drop(P(0), find_op(P(0), ORTH_OP_attention, 0, 0));
}

static void operand_past_the_end(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_linear, 0, 0)].out[0].dim[0]++;
}

static void buffer_that_is_not_there(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_linear, 0, 0)].out[0].buffer = 1 << 20;
}

static void use_after_free(patient *x)
{
    int32_t i = find_op(P(1), ORTH_OP_linear_dw, 0, 0);
    P(1)->buffers[P(1)->instrs[i].in[1].buffer].last = i - 1;
}

static void buffers_that_overlap(patient *x)
{
    const orth_instr *n = &P(1)->instrs[find_op(P(1), ORTH_OP_linear, 0, 1)];
    P(1)->buffers[n->out[0].buffer].offset = P(1)->buffers[n->in[0].buffer].offset;
}

static void buffer_outside_of_the_arena(patient *x)
{
    P(0)->buffers[P(0)->instrs[find_op(P(0), ORTH_OP_attention, 0, 0)].out[0].buffer].offset = P(0)->space_bytes[0];
}

static void missing_gather_after_the_update(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_gather, ORTH_GROUP_DP, 3));
}

static void gather_before_the_update(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        move(P(r), find_op(P(r), ORTH_OP_all_gather, ORTH_GROUP_DP, 0), find_op(P(r), ORTH_OP_adamw, 0, 0));
}

static void keys_used_before_they_arrived(patient *x)
{
    drop_wait(P(1), P(1)->instrs[find_op(P(1), ORTH_OP_recv, ORTH_GROUP_CP, 0)].attr.ticket);
}

static void keys_not_sent(patient *x)
{
    const int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_CP, 0), ticket = P(0)->instrs[i].attr.ticket;
    drop_wait(P(0), ticket);
    drop(P(0), i);
}

/* The two blocks of a rank have one size. */
static void other_keys_sent(patient *x)
{
    orth_instr *front = &P(1)->instrs[find_op(P(1), ORTH_OP_send, ORTH_GROUP_CP, 0)],
               *back = &P(1)->instrs[find_op(P(1), ORTH_OP_send, ORTH_GROUP_CP, 1)];
    const orth_attr first = front->attr;
    front->attr.key_begin = back->attr.key_begin;
    back->attr.key_begin = first.key_begin;
}

static void half_a_block_of_keys(patient *x)
{
    P(1)->instrs[find_op(P(1), ORTH_OP_recv, ORTH_GROUP_CP, 0)].out[0].dim[0] /= 2;
}

static void gradient_of_keys_to_another_rank(patient *x)
{
    int64_t *counts = (int64_t *)P(0)->instrs[find_op(P(0), ORTH_OP_reduce_scatter, ORTH_GROUP_CP, 0)].counts;
    counts[1] = counts[0];
    counts[0] = 0;
}

static void heads_not_traded_back(patient *x)
{
    for (int r = 0; r < 2; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_to_all, ORTH_GROUP_CP, 1));
}

static void heads_traded_on_one_rank(patient *x)
{
    append_copy(P(0), find_last(P(0), ORTH_OP_all_to_all, ORTH_GROUP_CP));
}

static void fewer_heads_traded(patient *x)
{
    orth_instr *n = &P(1)->instrs[find_op(P(1), ORTH_OP_all_to_all, ORTH_GROUP_CP, 0)];
    n->in[0].dim[0] /= 2;
    n->out[0].dim[0] /= 2;
}

static void counts_of_other_blocks(patient *x)
{
    shift_counts(P(1), find_op(P(1), ORTH_OP_reduce_scatter, ORTH_GROUP_DP, 0), 1, 0);
}

static void blocks_cut_differently_on_one_rank(patient *x)
{
    shift_counts(P(0), find_op(P(0), ORTH_OP_reduce_scatter, ORTH_GROUP_DP, 0), 1, 2);
}

static void block_at_the_wrong_place(patient *x)
{
    int32_t i = first_own(P(1));
    P(1)->instrs[i].out[0].byte_offset -= 4;
}

static void piece_updated_without_its_last_element(patient *x)
{
    orth_instr *n = &P(1)->instrs[find_last(P(1), ORTH_OP_adamw, 0)];
    n->in[0].dim[0]--;
    for (int k = 0; k < 3; k++)
        n->out[k].dim[0]--;
}

static void gap_between_shards(patient *x)
{
    shift_piece(P(1), split_param(x), 1);
}

static void overlap_of_shards(patient *x)
{
    shift_piece(P(1), split_param(x), -1);
}

static void dropped_gather_of_a_block(patient *x)
{
    drop(P(1), find_op(P(1), ORTH_OP_all_gather, ORTH_GROUP_DP, 1));
}

static void micro_batch_not_reduced(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_reduce_scatter, ORTH_GROUP_DP, 0));
}

static void equal_micro_gradients_reduced_in_another_order(patient *x)
{
    int32_t i = find_pair(P(1));
    for (int k = 0; k < 3; k++)
        move(P(1), i - 1, i + 4);
}

static void norm_not_summed(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_NORM, 0));
}

static void norm_summed_twice(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        duplicate(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_NORM, 0));
}

static void product_not_summed_over_tensor_parallel_ranks(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_TP, 1));
}

static void gain_not_summed_over_sequence_parallel_ranks(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_leaves(P(r)));
}

static void rows_not_gathered(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_gather, ORTH_GROUP_TP, 0));
}

static void parts_of_another_rank(patient *x)
{
    orth_param_desc *d = (orth_param_desc *)&x->blocks[1].spec.params[0];
    d->first_part = 0;
}

static void gradient_of_tokens_not_summed(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_CP, 0));
}

static void loss_of_tokens_not_summed(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_last(P(r), ORTH_OP_all_reduce, ORTH_GROUP_CP));
}

static void shared_keys_not_summed(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_KV, 0));
}

static void keys_not_gathered(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_gather, ORTH_GROUP_CP, 0));
}

/* ---- of collectives under way ---- */

/* The nth started call on dp. */
static int32_t find_started(const orth_program *p, orth_op op, int nth)
{
    for (int32_t i = 0; i < p->num_instrs; i++)
        if (p->instrs[i].op == op && p->instrs[i].attr.group == ORTH_GROUP_DP && p->instrs[i].attr.ticket > 0 && nth-- == 0)
            return i;
    fail_msg("no such %s is started", orth_op_name(op));
    return -1;
}

/* The first started call of several tensors. */
static const orth_instr *find_joined(const orth_program *p, orth_op op)
{
    int nth = 0;
    while (!p->instrs[find_started(p, op, nth)].joined)
        nth++;
    return &p->instrs[find_started(p, op, nth)];
}

/* The wait for instruction i. */
static int32_t wait_of(const orth_program *p, int32_t i)
{
    int32_t at = i;
    while (p->instrs[at].op != ORTH_OP_wait || p->instrs[at].attr.ticket != p->instrs[i].attr.ticket)
        at++;
    return at;
}

static void bucket_never_waited_for(patient *x)
{
    drop(P(0), wait_of(P(0), find_started(P(0), ORTH_OP_all_reduce, 0)));
}

static void last_gather_never_waited_for(patient *x)
{
    drop(P(1), find_last(P(1), ORTH_OP_wait, ORTH_GROUP_DP));
}

static void bucket_waited_for_twice(patient *x)
{
    duplicate(P(1), wait_of(P(1), find_started(P(1), ORTH_OP_all_reduce, 0)));
}

static void norm_before_the_wait(patient *x)
{
    int32_t i = wait_of(P(0), find_started(P(0), ORTH_OP_all_reduce, 0));
    move(P(0), i, find_last(P(0), ORTH_OP_grad_square, 0));
}

static void gathered_parameters_used_before_the_wait(patient *x)
{
    int32_t i = wait_of(P(1), find_started(P(1), ORTH_OP_all_gather, 0));
    move(P(1), i, i + 1);
}

static void shard_written_while_it_is_gathered(patient *x)
{
    int32_t i = find_started(P(0), ORTH_OP_all_gather, 0), k = 0;
    while (orth_operand_bytes(&P(0)->instrs[i].in[k]) == 0)
        k++;
    insert_zero(P(0), i + 1, P(0)->instrs[i].in[k]);
}

static void gradient_written_while_it_is_reduced(patient *x)
{
    int32_t i = find_started(P(0), ORTH_OP_reduce_scatter, 0);
    insert_zero(P(0), i + 1, P(0)->instrs[i].in[0]);
}

static void wait_that_lets_an_operand_die(patient *x)
{
    P(0)->instrs[wait_of(P(0), find_started(P(0), ORTH_OP_all_gather, 0))].num_in--;
}

static void wait_of_a_bucket_on_another_group(patient *x)
{
    P(0)->instrs[wait_of(P(0), find_started(P(0), ORTH_OP_reduce_scatter, 0))].attr.group = ORTH_GROUP_NORM;
}

static void two_buckets_with_one_ticket(patient *x)
{
    int32_t i = find_started(P(0), ORTH_OP_all_reduce, 0), j = find_started(P(0), ORTH_OP_all_reduce, 1);
    P(0)->instrs[wait_of(P(0), j)].attr.ticket = P(0)->instrs[j].attr.ticket = P(0)->instrs[i].attr.ticket;
}

static void buckets_started_in_another_order(patient *x)
{
    move(P(1), find_started(P(1), ORTH_OP_all_reduce, 0), find_started(P(1), ORTH_OP_all_reduce, 1));
}

static void gather_started_in_another_order(patient *x)
{
    move(P(1), find_started(P(1), ORTH_OP_all_gather, 0), find_started(P(1), ORTH_OP_all_gather, 1));
}

static void gathered_buffer_dies_before_the_wait(patient *x)
{
    int32_t i = find_started(P(1), ORTH_OP_all_gather, 0);
    P(1)->buffers[P(1)->instrs[i].out[0].buffer].last = wait_of(P(1), i) - 1;
}

static void joined_gradients_apart(patient *x)
{
    P(0)->buffers[find_joined(P(0), ORTH_OP_all_reduce)->in[0].buffer].next = -1;
}

static void joined_gradients_placed_apart(patient *x)
{
    P(0)->buffers[find_joined(P(0), ORTH_OP_all_reduce)->in[1].buffer].offset -= 4;
}

static void joined_gradient_left_out(patient *x)
{
    orth_instr *n = (orth_instr *)find_joined(P(1), ORTH_OP_all_reduce);
    n->num_in = --n->num_out;
}

static void sums_of_joined_counts_wrong(patient *x)
{
    const orth_instr *n = find_joined(P(0), ORTH_OP_reduce_scatter);
    ((int64_t *)n->counts)[2 * n->num_in]++;
}

/* The first operand that is all of position 0's becomes all of position 1's, after one that was, too: on both. */
static void joined_blocks_out_of_order(patient *x)
{
    for (int r = 0; r < 2; r++) {
        const orth_instr *n = find_joined(P(r), ORTH_OP_reduce_scatter);
        int64_t *counts = (int64_t *)n->counts;
        for (int c = 0; c < 2 * n->num_in; c += 2) {
            int to = c == 0, elems = (int)(counts[c] + counts[c + 1]);
            counts[c + to] = elems;
            counts[c + !to] = 0;
            n->out[c / 2] = n->in[c / 2];
            n->out[c / 2].dim[0] = r == to ? elems : 0;
        }
        for (int p = 0; p < 2; p++) {
            counts[2 * n->num_in + p] = 0;
            for (int k = 0; k < n->num_in; k++)
                counts[2 * n->num_in + p] += counts[2 * k + p];
        }
    }
}

static void shard_not_summed_over_replicas(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_REPLICATE, 1));
}

static void shard_not_summed_over_replicas_on_one_rank(patient *x)
{
    drop(P(3), find_op(P(3), ORTH_OP_all_reduce, ORTH_GROUP_REPLICATE, 1));
}

static void shard_summed_twice_over_replicas(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        duplicate(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_REPLICATE, 1));
}

static void replicas_summed_before_shards(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++) {
        int32_t i = find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_REPLICATE, 1);
        swap(P(r), i - 1, i);
    }
}

static void shards_gathered_over_replicas(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        P(r)->instrs[find_op(P(r), ORTH_OP_all_gather, ORTH_GROUP_SHARD, 1)].attr.group = ORTH_GROUP_REPLICATE;
}

static void micro_batch_reduced_over_replicas(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        P(r)->instrs[find_op(P(r), ORTH_OP_reduce_scatter, ORTH_GROUP_SHARD, 0)].attr.group = ORTH_GROUP_REPLICATE;
}

static void shards_reduced_over_all_of_dp(patient *x)
{
    P(2)->instrs[find_op(P(2), ORTH_OP_reduce_scatter, ORTH_GROUP_SHARD, 0)].attr.group = ORTH_GROUP_DP;
}

static void loss_not_summed_over_replicas(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_last(P(r), ORTH_OP_all_reduce, ORTH_GROUP_REPLICATE));
}

static void losses_of_micro_batches_not_summed(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_SHARD, 0));
}

static const struct {
    const char *name;
    layout_name layout;
    bool placed;
    void (*harm)(patient *x);
    const char *says[4];
} damages[] = {
    {"dropped receive", LAYOUT_PP, false, dropped_receive,
     {"rank 1, instruction", "read before it is written"}},
    {"receive replaced by zeros", LAYOUT_PP, false, receive_replaced_by_zeros,
     {"different micro-batches", "rank 0, instruction", "rank 1, instruction"}},
    {"last receive replaced by zeros", LAYOUT_PP, false, last_receive_replaced_by_zeros,
     {"rank 0, instruction", "send of", "has no receive on rank 1, which makes only 3 there"}},
    {"dropped send", LAYOUT_PP, false, dropped_send,
     {"rank 1, instruction", "recv of", "has no send on rank 0"}},
    {"sends in another order", LAYOUT_PP, false, sends_in_another_order,
     {"different micro-batches as call 1 on pp", "rank 0, instruction", "rank 1, instruction"}},
    {"wrong peer", LAYOUT_PP4, false, wrong_peer,
     {"different micro-batches as call 1 on pp", "rank 0, instruction", "rank 1, instruction"}},
    {"peer is itself", LAYOUT_PP, false, peer_is_itself,
     {"rank 0, instruction", "peer 0: the rank is position 0 of 2 in group pp"}},
    {"peer outside of the group", LAYOUT_PP, false, peer_outside_of_the_group,
     {"rank 1, instruction", "peer 5"}},
    {"activations on the channel of gradients", LAYOUT_PP, false, activations_on_the_channel_of_gradients,
     {"different micro-batches as call 1 on pp", "rank 0, instruction", "rank 1, instruction"}},
    {"message of another length", LAYOUT_PP, false, message_of_another_length,
     {"different counts as call 1 on pp", "rank 0, instruction", "rank 1, instruction"}},
    {"message of another type", LAYOUT_PP, false, message_of_another_type,
     {"different types as call 1 on pp", "of 512 int32", "of 512 fp32"}},
    {"missing wait", LAYOUT_PP, false, missing_wait,
     {"rank 0, instruction", "send", "is never waited for"}},
    {"double wait", LAYOUT_PP, false, double_wait,
     {"rank 0, instruction", "wait", "never started, or waited for before"}},
    {"wait before the start", LAYOUT_PP, false, wait_before_the_start,
     {"rank 0, instruction", "waits for ticket 1, which no call under way has"}},
    {"wait on another group", LAYOUT_PP, false, wait_on_another_group,
     {"rank 0, instruction", "waits on pp_back for ticket 1, which instruction"}},
    {"wait that lets its buffer die", LAYOUT_PP, false, wait_that_lets_its_buffer_die,
     {"rank 0, instruction", "does not name it: it could die before instruction"}},
    {"ticket given out twice", LAYOUT_PP, false, ticket_given_out_twice,
     {"rank 0, instruction", "takes the place of ticket 1, which instruction"}},
    {"write while a send is under way", LAYOUT_PP, false, write_while_a_send_is_under_way,
     {"rank 0, instruction", "written while instruction", "(send, ticket 1) is under way"}},
    {"sends that block", LAYOUT_PP, false, sends_that_block,
     {"a cycle of waits of 2 ranks", "rank 0, instruction", "waits for rank 1; rank 1, instruction"}},
    {"collectives of two groups crossed", LAYOUT_TPDP, false, collectives_of_two_groups_crossed,
     {"a cycle of waits of 4 ranks", "rank 0, instruction", "waits for rank"}},
    {"tied gradient not summed", LAYOUT_PP, false, tied_gradient_not_summed,
     {"parameter 'embed.weight'", "summed 0 times over group embed on rank 0"}},
    {"tied gradient summed twice", LAYOUT_PP, false, tied_gradient_summed_twice,
     {"parameter 'embed.weight'", "summed 2 times over group embed"}},
    {"group in another order", LAYOUT_PP, false, group_in_another_order,
     {"group pp: rank 1 does not agree with rank 0"}},
    {"collectives swapped on one rank", LAYOUT_DP, false, collectives_swapped_on_one_rank,
     {"as call 4 on dp", "rank 0, instruction", "rank 1, instruction"}},
    {"equal collectives swapped on one rank", LAYOUT_DP, false, equal_collectives_swapped_on_one_rank,
     {"different things to work on as call", "'grad.layers.0.attn_norm.gain'", "'grad.layers.0.attn_norm.shift'"}},
    {"group without peers", LAYOUT_DP, false, group_without_peers,
     {"rank 1, instruction", "no peers in group tp"}},
    {"wrong group", LAYOUT_TPDP, false, wrong_group,
     {"rank 1, instruction", "reduced over dp, but it is no part of a sum over it"}},
    {"collective of another count", LAYOUT_TPDP, false, collective_of_another_count,
     {"different counts as call", "on dp: rank 1, instruction", "rank 3, instruction"}},
    {"collective of another type", LAYOUT_DP, false, collective_of_another_type,
     {"different types as call 2 on dp", "rank 0, instruction", "rank 1, instruction"}},
    {"sum that is a maximum on one rank", LAYOUT_DP, false, sum_that_is_a_maximum_on_one_rank,
     {"different reductions as call 2 on dp", "rank 0, instruction", "of the maximum"}},
    {"gradient reduced twice", LAYOUT_DP, false, gradient_reduced_twice,
     {"rank 0, instruction", "all_reduce", "buffer 'grad.", "reduced twice"}},
    {"gradient never reduced", LAYOUT_DP, false, gradient_never_reduced,
     {"rank 0, instruction", "grad_square", "the gradient is read here, but is never reduced over dp"}},
    {"gradient not reduced on one rank", LAYOUT_DP, false, gradient_not_reduced_on_one_rank,
     {"rank 1, instruction", "never reduced over dp"}},
    {"gradient reduced after its norm", LAYOUT_DP, false, gradient_reduced_after_its_norm,
     {"rank 0, instruction", "all_reduce", "gradient written after its norm was taken"}},
    {"gradient written after its norm", LAYOUT_DP, false, gradient_written_after_its_norm,
     {"rank 0, instruction", "gradient written after its norm was taken"}},
    {"gradient added twice", LAYOUT_DP, false, gradient_added_twice,
     {"rank 0, instruction", "linear_dw", "buffer 'grad.", "added twice: instruction"}},
    {"gain added twice", LAYOUT_ZERO2, false, gain_added_twice,
     {"rank 1, instruction", "tree_acc", "added twice: instruction"}},
    {"embedding added twice, later", LAYOUT_PP, false, embedding_added_twice_later,
     {"rank 0, instruction", "embed_bwd", "added twice: instruction"}},
    {"missed update", LAYOUT_DP, false, missed_update,
     {"rank 1, parameter 'layers.0.attn_norm.gain' is never updated"}},
    {"double update", LAYOUT_DP, false, double_update,
     {"rank 1, instruction", "parameter updated twice"}},
    {"update with another gradient", LAYOUT_DP, false, update_with_another_gradient,
     {"rank 1, instruction", "adamw", "for an update of"}},
    {"update with another moment", LAYOUT_DP, false, update_with_another_moment,
     {"rank 0, instruction", "adamw", "for an update of"}},
    {"read before write", LAYOUT_DP, false, read_before_write,
     {"rank 0, instruction", "read before it is written"}},
    {"operand past the end", LAYOUT_DP, false, operand_past_the_end,
     {"rank 1, instruction", "linear", "the operand reaches past the end"}},
    {"buffer that is not there", LAYOUT_DP, false, buffer_that_is_not_there,
     {"rank 1, instruction", "is not in [0,"}},
    {"use after free", LAYOUT_DP, true, use_after_free,
     {"rank 1, instruction", "linear_dw", "used outside of its life"}},
    {"buffers that overlap", LAYOUT_DP, true, buffers_that_overlap,
     {"rank 1, buffers '", "overlap while both are live"}},
    {"buffer outside of the arena", LAYOUT_DP, true, buffer_outside_of_the_arena,
     {"rank 0, buffer '", "past the end of the arena"}},
    {"missing gather after the update", LAYOUT_ZERO1, false, missing_gather_after_the_update,
     {"of parameter '", "are updated, and the others are never gathered"}},
    {"gather before the update", LAYOUT_ZERO1, false, gather_before_the_update,
     {"of parameter '", "are updated, and the others are never gathered"}},
    {"counts of other blocks", LAYOUT_ZERO1, false, counts_of_other_blocks,
     {"rank 1, instruction", "reduce_scatter", "elements, but the count of position 1 is"}},
    {"blocks cut differently on one rank", LAYOUT_ZERO1_4, false, blocks_cut_differently_on_one_rank,
     {"blocks cut differently as call", "rank 0, instruction", "rank 1, instruction"}},
    {"block at the wrong place", LAYOUT_ZERO1, false, block_at_the_wrong_place,
     {"rank 1, instruction", "begins at byte"}},
    {"piece updated without its last element", LAYOUT_ZERO1, false, piece_updated_without_its_last_element,
     {"parameter '", "are updated by no rank: the last piece is that of instruction", "of rank 1"}},
    {"gap between shards", LAYOUT_ZERO3, false, gap_between_shards,
     {"parameter '", "are updated by no rank: instruction", "of rank 0 ends there, instruction", "of rank 1 begins at"}},
    {"overlap of shards", LAYOUT_ZERO3, false, overlap_of_shards,
     {"parameter '", "are updated twice: by instruction", "of rank 0 and by instruction", "of rank 1"}},
    {"dropped gather of a block", LAYOUT_ZERO3, false, dropped_gather_of_a_block,
     {"rank 1, instruction", "'gathered'", "read before it is written"}},
    {"micro batch not reduced", LAYOUT_ZERO2, false, micro_batch_not_reduced,
     {"rank 1, instruction", "tree_acc", "sums are added of which one is still to be reduced over 'dp'"}},
    {"equal micro gradients reduced in another order", LAYOUT_ZERO2, false,
     equal_micro_gradients_reduced_in_another_order,
     {"different things to work on as call", "rank 0, instruction", "rank 1, instruction"}},
    {"norm not summed", LAYOUT_ZERO1, false, norm_not_summed,
     {"rank 0, instruction", "clip_scale", "never reduced over norm"}},
    {"norm summed twice", LAYOUT_ZERO1, false, norm_summed_twice,
     {"rank 0, instruction", "reduced over norm, but it is no part of a sum over it"}},
    {"product not summed over tensor parallel ranks", LAYOUT_TPDP, false, product_not_summed_over_tensor_parallel_ranks,
     {"rank 0, instruction", "a sum is read here, but is never reduced over tp"}},
    {"gain not summed over sequence parallel ranks", LAYOUT_SP, false, gain_not_summed_over_sequence_parallel_ranks,
     {"rank 0, instruction", "tree_acc", "still to be reduced over 'tp' and the other over ''"}},
    {"rows not gathered", LAYOUT_SP, false, rows_not_gathered,
     {"rank 0, instruction", "read before it is written"}},
    {"gradient of tokens not summed", LAYOUT_CP, false, gradient_of_tokens_not_summed,
     {"rank 0, instruction", "tree_acc", "still to be reduced over 'cp' and the other over ''"}},
    {"loss of tokens not summed", LAYOUT_CP, false, loss_of_tokens_not_summed,
     {"rank 0, instruction", "tree_acc_f64", "buffer 'seq_loss': a sum is read here, but is never reduced over cp"}},
    {"keys used before they arrived", LAYOUT_RING, false, keys_used_before_they_arrived,
     {"rank 1, instruction", "attention_block", "touched while instruction", "(recv, ticket"}},
    {"keys not sent", LAYOUT_RING, false, keys_not_sent,
     {"different keys as call 1 on cp", "rank 0, instruction", "rank 1, instruction"}},
    {"other keys sent", LAYOUT_RING, false, other_keys_sent,
     {"different keys as call 1 on cp", "rank 0, instruction", "rank 1, instruction"}},
    {"half a block of keys", LAYOUT_RING, false, half_a_block_of_keys,
     {"different counts as call 1 on cp", "rank 0, instruction", "rank 1, instruction"}},
    {"gradient of keys to another rank", LAYOUT_RING, false, gradient_of_keys_to_another_rank,
     {"rank 0, instruction", "reduce_scatter", "the count of position 0 is 0"}},
    {"heads not traded back", LAYOUT_TRADE, false, heads_not_traded_back,
     {"rank 0, instruction", "heads_join", "read before it is written"}},
    {"heads traded on one rank", LAYOUT_TRADE, false, heads_traded_on_one_rank,
     {"rank 0, instruction", "all_to_all", "no collective on rank 1, which makes only"}},
    {"fewer heads traded", LAYOUT_TRADE, false, fewer_heads_traded,
     {"different counts as call 1 on cp", "rank 0, instruction", "rank 1, instruction"}},
    {"keys not gathered", LAYOUT_CP, false, keys_not_gathered,
     {"rank 0, instruction", "attention_part", "read before it is written"}},
    {"bucket never waited for", LAYOUT_BUCKETS, false, bucket_never_waited_for,
     {"rank 0, instruction", "grad_square", "touched while instruction", "(all_reduce, ticket"}},
    {"last gather never waited for", LAYOUT_BUCKETS_ZERO1, false, last_gather_never_waited_for,
     {"rank 1, instruction", "all_gather", "is never waited for"}},
    {"bucket waited for twice", LAYOUT_BUCKETS, false, bucket_waited_for_twice,
     {"rank 1, instruction", "wait", "never started, or waited for before"}},
    {"norm before the wait", LAYOUT_BUCKETS, false, norm_before_the_wait,
     {"rank 0, instruction", "grad_square", "touched while instruction", "(all_reduce, ticket"}},
    {"gathered parameters used before the wait", LAYOUT_BUCKETS_ZERO3, false, gathered_parameters_used_before_the_wait,
     {"rank 1, instruction", "'gathered'", "touched while instruction", "(all_gather, ticket"}},
    {"shard written while it is gathered", LAYOUT_BUCKETS_ZERO3, false, shard_written_while_it_is_gathered,
     {"rank 0, instruction", "written while instruction", "(all_gather, ticket"}},
    {"gradient written while it is reduced", LAYOUT_BUCKETS_ZERO1, false, gradient_written_while_it_is_reduced,
     {"rank 0, instruction", "buffer 'grad.", "written while instruction", "(reduce_scatter, ticket"}},
    {"wait that lets an operand die", LAYOUT_BUCKETS_ZERO3, false, wait_that_lets_an_operand_die,
     {"rank 0, instruction", "does not name it: it could die before instruction"}},
    {"wait of a bucket on another group", LAYOUT_BUCKETS_ZERO1, false, wait_of_a_bucket_on_another_group,
     {"rank 0, instruction", "waits on norm for ticket", "started on dp"}},
    {"two buckets with one ticket", LAYOUT_BUCKETS, false, two_buckets_with_one_ticket,
     {"rank 0, instruction", "takes the place of ticket"}},
    {"buckets started in another order", LAYOUT_BUCKETS, false, buckets_started_in_another_order,
     {"as call 1 on dp", "rank 0, instruction", "rank 1, instruction"}},
    {"gather started in another order", LAYOUT_BUCKETS_ZERO3, false, gather_started_in_another_order,
     {"on dp", "rank 0, instruction", "rank 1, instruction"}},
    {"gathered buffer dies before the wait", LAYOUT_BUCKETS_ZERO3, true, gathered_buffer_dies_before_the_wait,
     {"rank 1, instruction", "wait", "used outside of its life"}},
    {"joined gradients apart", LAYOUT_BUCKETS, false, joined_gradients_apart,
     {"rank 0, instruction", "all_reduce", "joined to 'grad.", "does not follow it in memory"}},
    {"joined gradients placed apart", LAYOUT_BUCKETS, true, joined_gradients_placed_apart,
     {"rank 0, buffer 'grad.", "does not follow 'grad.", "in memory"}},
    {"joined gradient left out", LAYOUT_BUCKETS, false, joined_gradient_left_out,
     {"rank 1, instruction", "never reduced over dp"}},
    {"sums of joined counts wrong", LAYOUT_BUCKETS_ZERO1, false, sums_of_joined_counts_wrong,
     {"rank 0, instruction", "reduce_scatter", "the block of position 0 has"}},
    {"joined blocks out of order", LAYOUT_BUCKETS_ZERO1, false, joined_blocks_out_of_order,
     {"rank 0, instruction", "position 0 has elements of it, and position 1 of a joined operand before"}},
    {"gradients of shared keys not summed", LAYOUT_KV, false, shared_keys_not_summed,
     {"rank 0, instruction", "kv_unpack_grad", "a sum is read here, but is never reduced over kv"}},
    {"shard not summed over replicas", LAYOUT_HYBRID2, false, shard_not_summed_over_replicas,
     {"rank 0, instruction", "the gradient is read here, but is never reduced over replicate"}},
    {"shard not summed over replicas on one rank", LAYOUT_HYBRID1, false, shard_not_summed_over_replicas_on_one_rank,
     {"rank 3, instruction", "never reduced over replicate"}},
    {"shard summed twice over replicas", LAYOUT_HYBRID3, false, shard_summed_twice_over_replicas,
     {"rank 0, instruction", "reduced over replicate, but it is no part of a sum over it"}},
    {"replicas summed before shards", LAYOUT_HYBRID1, false, replicas_summed_before_shards,
     {"rank 0, instruction", "reduced over replicate before it is over shard, which is further inside of the sum"}},
    {"shards gathered over replicas", LAYOUT_HYBRID3, false, shards_gathered_over_replicas,
     {"rank 1, instruction", "all_gather", "elements, but the count of position 0 is"}},
    {"micro batch reduced over replicas", LAYOUT_HYBRID2, false, micro_batch_reduced_over_replicas,
     {"rank 0, instruction", "reduce_scatter", "reduced over replicate before it is over shard"}},
    {"shards reduced over all of dp", LAYOUT_HYBRID2, false, shards_reduced_over_all_of_dp,
     {"rank 2, instruction", "the rank has no peers in group dp"}},
    {"loss not summed over replicas", LAYOUT_HYBRID1, false, loss_not_summed_over_replicas,
     {"rank 0, instruction", "buffer 'loss': reduced over norm before it is over replicate"}},
    {"losses of micro batches not summed", LAYOUT_HYBRID2, false, losses_of_micro_batches_not_summed,
     {"rank 0, instruction", "buffer 'loss': reduced over replicate before it is over shard"}},
    {"parts of another rank", LAYOUT_TPDP, false, parts_of_another_rank,
     {"parameter 'embed.weight': rank 1 has parts [0, 4), but those of the tp ranks before end at 4"}},
};

/* False: it was accepted, or refused in other words. */
static bool refused(int i)
{
    layout_case c = case_of(damages[i].layout);
    patient *x = patient_new(&c, damages[i].placed);
    CHECK_OK(x->ctx, patient_check(x)); /* in health */
    damages[i].harm(x);
    bool right = patient_check(x) != ORTH_OK;
    const char *said = right ? x->ctx->error.message : "accepted";
    for (int k = 0; k < ORTH_COUNT(damages[i].says) && damages[i].says[k]; k++)
        right = right && strstr(said, damages[i].says[k]);
    if (!right || getenv("ORTH_SHOW_DAMAGE"))
        print_message("%s%s: %s\n", right ? "" : "WRONG: ", damages[i].name, said);
    patient_free(x);
    return right;
}

TEST(damage_is_refused_in_words)
{
    int wrong = 0;
    for (int i = 0; i < ORTH_COUNT(damages); i++)
        wrong += !refused(i);
    print_message("%d kinds of damage, %d refused as they should be\n", ORTH_COUNT(damages), ORTH_COUNT(damages) - wrong);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
