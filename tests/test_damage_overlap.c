/* test_damage_overlap.c -- damage (test_damage.c) to collectives under way: buckets, gathers ahead, coalesced
 * tensors. */
#include "damage.h"

/* The nth started call on dp. */
static int32_t find_started(const orth_program *p, orth_op op, int nth)
{
    for (int32_t i = 0; i < p->num_instrs; i++)
        if (p->instrs[i].op == op && p->instrs[i].attr->group == ORTH_GROUP_DP && p->instrs[i].until > 0 && nth-- == 0)
            return i;
    fail_msg("no such %s is started", orth_op_name(op));
    return -1;
}

/* The first started call of several tensors. */
static const orth_instr *find_coalesced(const orth_program *p, orth_op op)
{
    int nth = 0;
    while (!p->instrs[find_started(p, op, nth)].coalesced)
        nth++;
    return &p->instrs[find_started(p, op, nth)];
}

static void bucket_used_before_it_is_reduced(patient *x)
{
    drop_event(x, 0, ORTH_QUEUE_COLLECTIVE, ORTH_GROUP_DP);
}

static void event_of_a_bucket_too_early(patient *x)
{
    find_event(x, 0, ORTH_QUEUE_COLLECTIVE, ORTH_GROUP_DP)->count--;
}

static void bucket_reduced_before_it_is_filled(patient *x)
{
    x->events_harmed = true;
    P(1)->instrs[find_started(P(1), ORTH_OP_all_reduce, 0)].num_waits = 0;
}

static void squares_before_the_bucket_is_reduced(patient *x)
{
    move(P(0), find_started(P(0), ORTH_OP_all_reduce, 0), find_last(P(0), ORTH_OP_grad_square, 0));
}

static void gathered_parameters_used_before_they_arrived(patient *x)
{
    x->events_harmed = true;
    P(1)->instrs[P(1)->instrs[find_started(P(1), ORTH_OP_all_gather, 0)].until].num_waits = 0;
}

static void shard_written_while_it_is_gathered(patient *x)
{
    int32_t i = find_started(P(0), ORTH_OP_all_gather, 0), k = 0;
    while (orth_operand_bytes(&P(0)->instrs[i].in[k]) == 0)
        k++;
    insert_zero_unseen(x, 0, i + 1, P(0)->instrs[i].in[k]);
}

static void gradient_written_while_it_is_reduced(patient *x)
{
    int32_t i = find_started(P(0), ORTH_OP_reduce_scatter, 0);
    insert_zero_unseen(x, 0, i + 1, P(0)->instrs[i].in[0]);
}

static void bucket_in_the_queue_of_another_group(patient *x)
{
    x->events_harmed = true;
    P(0)->queues[P(0)->instrs[find_started(P(0), ORTH_OP_reduce_scatter, 0)].queue].group = ORTH_GROUP_NORM;
}

static void buckets_started_in_another_order(patient *x)
{
    move(P(1), find_started(P(1), ORTH_OP_all_reduce, 0), find_started(P(1), ORTH_OP_all_reduce, 1));
}

static void gather_started_in_another_order(patient *x)
{
    move(P(1), find_started(P(1), ORTH_OP_all_gather, 0), find_started(P(1), ORTH_OP_all_gather, 1));
}

static void gathered_buffer_dies_with_its_call(patient *x)
{
    int32_t i = find_started(P(1), ORTH_OP_all_gather, 0);
    P(1)->buffers[P(1)->instrs[i].out[0].buffer].last = i;
}

static void coalesced_gradients_apart(patient *x)
{
    P(0)->buffers[find_coalesced(P(0), ORTH_OP_all_reduce)->in[0].buffer].next = -1;
}

static void coalesced_gradients_placed_apart(patient *x)
{
    P(0)->buffers[find_coalesced(P(0), ORTH_OP_all_reduce)->in[1].buffer].offset -= 4;
}

static void coalesced_gradient_left_out(patient *x)
{
    orth_instr *n = (orth_instr *)find_coalesced(P(1), ORTH_OP_all_reduce);
    n->num_in = --n->num_out;
}

static void sums_of_coalesced_counts_wrong(patient *x)
{
    const orth_instr *n = find_coalesced(P(0), ORTH_OP_reduce_scatter);
    ((int64_t *)n->counts)[2 * n->num_in]++;
}

/* The first operand that is all of position 0's becomes all of position 1's, after one that was, too: on both. */
static void coalesced_blocks_out_of_order(patient *x)
{
    for (int r = 0; r < 2; r++) {
        const orth_instr *n = find_coalesced(P(r), ORTH_OP_reduce_scatter);
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

static const damage damages[] = {
    {"bucket used before it is reduced", LAYOUT_BUCKETS, true, bucket_used_before_it_is_reduced,
     {"rank 0, instruction", "grad_square", "reads 'grad.", "(all_reduce, in queue dp) is complete"}},
    {"event of a bucket too early", LAYOUT_BUCKETS, true, event_of_a_bucket_too_early,
     {"rank 0, instruction", "grad_square", "reads 'grad.", "(all_reduce, in queue dp) is complete"}},
    {"bucket reduced before it is filled", LAYOUT_BUCKETS, true, bucket_reduced_before_it_is_filled,
     {"rank 1, instruction", "all_reduce", "'grad.", "in queue compute) is complete"}},
    {"squares before the bucket is reduced", LAYOUT_BUCKETS, false, squares_before_the_bucket_is_reduced,
     {"rank 0, instruction", "all_reduce", "gradient written after its norm was taken"}},
    {"gathered parameters used before they arrived", LAYOUT_BUCKETS_ZERO3, true, gathered_parameters_used_before_they_arrived,
     {"rank 1, instruction", "reads 'gathered'", "(all_gather, in queue dp) is complete"}},
    {"shard written while it is gathered", LAYOUT_BUCKETS_ZERO3, true, shard_written_while_it_is_gathered,
     {"rank 0, instruction", "zero, in queue compute", "(all_gather, in queue dp) is complete"}},
    {"gradient written while it is reduced", LAYOUT_BUCKETS_ZERO1, true, gradient_written_while_it_is_reduced,
     {"rank 0, instruction", "writes 'grad.", "(reduce_scatter, in queue dp) is complete"}},
    {"bucket in the queue of another group", LAYOUT_BUCKETS_ZERO1, true, bucket_in_the_queue_of_another_group,
     {"rank 0, instruction", "reduce_scatter", "does not belong into that queue"}},
    {"buckets started in another order", LAYOUT_BUCKETS, false, buckets_started_in_another_order,
     {"as call 1 on dp", "rank 0, instruction", "rank 1, instruction"}},
    {"gather started in another order", LAYOUT_BUCKETS_ZERO3, false, gather_started_in_another_order,
     {"on dp", "rank 0, instruction", "rank 1, instruction"}},
    {"gathered buffer dies with its call", LAYOUT_BUCKETS_ZERO3, true, gathered_buffer_dies_with_its_call,
     {"rank 1, instruction", "used outside of its life"}},
    {"coalesced gradients apart", LAYOUT_BUCKETS, false, coalesced_gradients_apart,
     {"rank 0, instruction", "all_reduce", "coalesced with 'grad.", "does not follow it in memory"}},
    {"coalesced gradients placed apart", LAYOUT_BUCKETS, true, coalesced_gradients_placed_apart,
     {"rank 0, buffer 'grad.", "does not follow 'grad.", "in memory"}},
    {"coalesced gradient left out", LAYOUT_BUCKETS, false, coalesced_gradient_left_out,
     {"rank 1, instruction", "never reduced over dp"}},
    {"sums of coalesced counts wrong", LAYOUT_BUCKETS_ZERO1, false, sums_of_coalesced_counts_wrong,
     {"rank 0, instruction", "reduce_scatter", "the block of position 0 has"}},
    {"coalesced blocks out of order", LAYOUT_BUCKETS_ZERO1, false, coalesced_blocks_out_of_order,
     {"rank 0, instruction", "position 0 has elements of it, and position 1 of a coalesced operand before"}},
};

TEST(damage_to_collectives_under_way_is_refused_in_words)
{
    damage_check_all(damages, ORTH_COUNT(damages));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_to_collectives_under_way_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
