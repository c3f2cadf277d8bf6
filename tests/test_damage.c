/* test_damage.c -- every kind of damage to the programs of a layout is refused, in words that name the ranks and the
 * instructions: here what ranks say to each other, in which order, and where in memory it lies. Sums, updates and shards
 * are in test_damage_sums.c, collectives under way in test_damage_overlap.c.
 */
#include "damage.h"

/* The all_reduce of the gradient of this name. */
static int32_t find_grad(const orth_program *p, const char *name)
{
    int32_t i = 0;
    while (p->instrs[i].op != ORTH_OP_all_reduce || strcmp(p->buffers[p->instrs[i].in[0].buffer].name, name) != 0)
        i++;
    return i;
}

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
    drop(P(0), find_last(P(0), ORTH_OP_send, ORTH_GROUP_PP));
}

static void sends_in_another_order(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0), j = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 1);
    P(0)->instrs[i].micro_batch = 1;
    P(0)->instrs[j].micro_batch = 0;
}

static void wrong_peer(patient *x)
{
    attr_of(P(0), &P(0)->instrs[find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0)])->peer = 2;
}

static void peer_is_itself(patient *x)
{
    attr_of(P(0), &P(0)->instrs[find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0)])->peer = 0;
}

static void peer_outside_of_the_group(patient *x)
{
    attr_of(P(1), &P(1)->instrs[find_op(P(1), ORTH_OP_recv, ORTH_GROUP_PP, 0)])->peer = 5;
}

static void activations_on_the_channel_of_gradients(patient *x)
{
    attr_of(P(0), &P(0)->instrs[find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0)])->group = ORTH_GROUP_PP_BACK;
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

static void event_of_a_send_missing(patient *x)
{
    drop_event(x, 0, ORTH_QUEUE_SEND, ORTH_GROUP_CP);
}

static void event_of_a_send_too_early(patient *x)
{
    find_event(x, 0, ORTH_QUEUE_SEND, ORTH_GROUP_CP)->count--;
}

static void event_of_no_queue(patient *x)
{
    find_event(x, 1, ORTH_QUEUE_SEND, ORTH_GROUP_CP)->queue = P(1)->num_queues;
}

static void send_in_the_queue_of_another_peer(patient *x)
{
    x->events_harmed = true;
    P(1)->queues[P(1)->instrs[find_op(P(1), ORTH_OP_send, ORTH_GROUP_PP, 0)].queue].peer = 0;
}

static void write_while_a_send_is_under_way(patient *x)
{
    int32_t i = find_op(P(0), ORTH_OP_send, ORTH_GROUP_PP, 0);
    insert_zero_unseen(x, 0, i + 1, P(0)->instrs[i].in[0]);
}

static void sends_that_block(patient *x)
{
    for (int r = 0; r < 2; r++)
        for (int32_t i = 0; i < P(r)->num_instrs; i++)
            P(r)->instrs[i].until = 0;
}

static void collectives_of_two_groups_crossed(patient *x)
{
    for (int r = 0; r < 4; r += 3) {
        int32_t from = find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_DP, 0), to = from;
        while (P(r)->instrs[to].op != ORTH_OP_all_reduce || P(r)->instrs[to].attr->group != ORTH_GROUP_TP)
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
    attr_of(P(1), &P(1)->instrs[find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 2)])->group = ORTH_GROUP_TP;
}

static void wrong_group(patient *x)
{
    attr_of(P(1), &P(1)->instrs[find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_TP, 2)])->group = ORTH_GROUP_DP;
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
    attr_of(P(1), &P(1)->instrs[find_op(P(1), ORTH_OP_all_reduce, ORTH_GROUP_DP, 1)])->maximum = true;
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
    orth_buffer *b = &P(0)->buffers[P(0)->instrs[find_op(P(0), ORTH_OP_attention, 0, 0)].out[0].buffer];
    b->offset = P(0)->space_bytes[b->space];
}

static void keys_used_before_they_arrived(patient *x)
{
    drop_event(x, 1, ORTH_QUEUE_RECV, ORTH_GROUP_CP);
}

static void keys_not_sent(patient *x)
{
    drop(P(0), find_op(P(0), ORTH_OP_send, ORTH_GROUP_CP, 0));
}

/* The two blocks of a rank have one size. */
static void other_keys_sent(patient *x)
{
    orth_instr *front = &P(1)->instrs[find_op(P(1), ORTH_OP_send, ORTH_GROUP_CP, 0)],
               *back = &P(1)->instrs[find_op(P(1), ORTH_OP_send, ORTH_GROUP_CP, 1)];
    const int32_t first = front->attr->key_begin;
    attr_of(P(1), front)->key_begin = back->attr->key_begin;
    attr_of(P(1), back)->key_begin = first;
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

static void keys_not_gathered(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_gather, ORTH_GROUP_CP, 0));
}

static const damage damages[] = {
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
    {"event of a send missing", LAYOUT_RING, true, event_of_a_send_missing,
     {"rank 0, instruction", "in queue compute", "no event says that instruction", "(send, in queue cp to 1) is complete"}},
    {"event of a send too early", LAYOUT_RING, true, event_of_a_send_too_early,
     {"rank 0, instruction", "in queue compute", "no event says that instruction", "(send, in queue cp to 1) is complete"}},
    {"event of no queue", LAYOUT_RING, true, event_of_no_queue,
     {"rank 1, instruction", "waits for a queue that is its own or not there"}},
    {"send in the queue of another peer", LAYOUT_PP4, true, send_in_the_queue_of_another_peer,
     {"rank 1, instruction", "send", "does not belong into that queue"}},
    {"write while a send is under way", LAYOUT_PP, true, write_while_a_send_is_under_way,
     {"rank 0, instruction", "zero, in queue compute", "writes '", "(send, in queue pp to 1) is complete"}},
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
    {"keys used before they arrived", LAYOUT_RING, true, keys_used_before_they_arrived,
     {"rank 1, instruction", "attention_block", "reads 'kv.block'", "(recv, in queue cp from 0) is complete"}},
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
};

TEST(damage_to_messages_collectives_and_memory_is_refused_in_words)
{
    damage_check_all(damages, ORTH_COUNT(damages));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_to_messages_collectives_and_memory_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
