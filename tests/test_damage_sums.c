/* test_damage_sums.c -- damage (test_damage.c) to what is summed over whom, updated and shared out: gradients, norms,
 * losses, shards, replicas, uneven shares.
 */
#include "damage.h"
#include "tensor/q8.h"

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

static void largest_magnitude_not_told(patient *x)
{
    int32_t i = find_op(P(1), ORTH_OP_delayed_scales, ORTH_GROUP_DP, 0);
    while (!P(1)->instrs[i].attr->maximum)
        i--;
    drop(P(1), i);
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
    P(0)->buffers[P(0)->instrs[i].out[2].buffer].first_elem++;
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
    P(1)->buffers[P(1)->instrs[i].out[0].buffer].bytes += 4;
    P(1)->instrs[i].out[0].byte_offset += 4;
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

/* The last addition of nodes of uneven shares. */
static orth_instr *find_last_nodes(orth_program *p)
{
    int32_t i = p->num_instrs - 1;
    while (p->instrs[i].op != ORTH_OP_tree_acc || p->instrs[i].attr->group != ORTH_GROUP_DP)
        i--;
    return &p->instrs[i];
}

static void node_of_uneven_shares_added_twice(patient *x)
{
    orth_instr *n = find_last_nodes(P(0));
    n->in[1] = n->in[0];
    n->in[1].num_dims = 1;
    n->in[1].dim[0] = n->in[0].dim[1];
}

static void node_of_uneven_shares_forgotten(patient *x)
{
    orth_instr *n = find_last_nodes(P(1));
    n->num_in--;
    attr_of(P(1), n)->num_addends--;
}

static void node_of_uneven_shares_not_sent(patient *x)
{
    drop(P(0), find_op(P(0), ORTH_OP_send, ORTH_GROUP_DP, 1));
}

static void shared_keys_not_summed(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        drop(P(r), find_op(P(r), ORTH_OP_all_reduce, ORTH_GROUP_KV, 0));
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
        attr_of(P(r), &P(r)->instrs[find_op(P(r), ORTH_OP_all_gather, ORTH_GROUP_SHARD, 1)])->group = ORTH_GROUP_REPLICATE;
}

static void micro_batch_reduced_over_replicas(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++)
        attr_of(P(r), &P(r)->instrs[find_op(P(r), ORTH_OP_reduce_scatter, ORTH_GROUP_SHARD, 0)])->group = ORTH_GROUP_REPLICATE;
}

static void shards_reduced_over_all_of_dp(patient *x)
{
    attr_of(P(2), &P(2)->instrs[find_op(P(2), ORTH_OP_reduce_scatter, ORTH_GROUP_SHARD, 0)])->group = ORTH_GROUP_DP;
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

/* The nth of the instructions of rank 0 that round the gradient of which two ranks have a shard. */
static int32_t find_rounding(const patient *x, int nth)
{
    const int64_t index = split_param(x);
    for (int32_t i = 0; i < P(0)->num_instrs; i++)
        if (P(0)->instrs[i].op == ORTH_OP_cast_int8 && P(0)->buffers[P(0)->instrs[i].out[0].buffer].index == index && nth-- == 0)
            return i;
    fail_msg("no shard is rounded");
    return -1;
}

static void shard_not_rounded(patient *x)
{
    drop(P(0), find_rounding(x, 0));
}

static void last_shard_not_rounded(patient *x)
{
    drop(P(0), find_rounding(x, 1));
}

static void shards_rounded_to_the_blocks_of_each_other(patient *x)
{
    orth_instr *a = &P(0)->instrs[find_rounding(x, 0)], *b = &P(0)->instrs[find_rounding(x, 1)];
    const orth_operand first = a->out[0];
    a->out[0] = b->out[0];
    b->out[0] = first;
}

/* The first shard without its last block, which the second has. */
static void shards_cut_elsewhere(patient *x)
{
    orth_instr *a = &P(0)->instrs[find_rounding(x, 0)], *b = &P(0)->instrs[find_rounding(x, 1)];
    a->in[0].dim[0] -= ORTH_Q8_NUM;
    a->out[0].dim[0]--;
    b->in[0].dim[0] += ORTH_Q8_NUM;
    b->in[0].byte_offset -= ORTH_Q8_NUM * sizeof(float);
    b->out[0].dim[0]++;
    b->out[0].byte_offset -= sizeof(orth_q8);
}

static void blocks_read_as_numbers_of_another_rank(patient *x)
{
    orth_instr *n = &P(0)->instrs[find_op(P(0), ORTH_OP_widen_int8, 0, 0)];
    n->in[0].dim[0]++;
}

static const damage damages[] = {
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
    {"node of uneven shares added twice", LAYOUT_UNEVEN, false, node_of_uneven_shares_added_twice,
     {"rank 0, instruction", "tree_acc", "added twice to a sum over dp"}},
    {"node of uneven shares forgotten", LAYOUT_UNEVEN, false, node_of_uneven_shares_forgotten,
     {"rank 1, instruction", "tree_acc", "completes a sum with 2 parts, but the ranks of dp have 3"}},
    {"node of uneven shares not sent", LAYOUT_UNEVEN, false, node_of_uneven_shares_not_sent,
     {"on dp", "rank 0", "rank 1"}},
    {"gradients of shared keys not summed", LAYOUT_KV, false, shared_keys_not_summed,
     {"rank 0, instruction", "kv_unpack_grad", "a sum is read here, but is never reduced over kv"}},
    {"shard not summed over replicas", LAYOUT_HYBRID2, false, shard_not_summed_over_replicas,
     {"rank 1, instruction", "the gradient is read here, but is never reduced over replicate"}},
    {"shard not summed over replicas on one rank", LAYOUT_HYBRID1, false, shard_not_summed_over_replicas_on_one_rank,
     {"rank 3, instruction", "never reduced over replicate"}},
    {"shard summed twice over replicas", LAYOUT_HYBRID3, false, shard_summed_twice_over_replicas,
     {"rank 0, instruction", "reduced over replicate, but it is no part of a sum over it"}},
    {"replicas summed before shards", LAYOUT_HYBRID1, false, replicas_summed_before_shards,
     {"rank 1, instruction", "reduced over replicate before it is over shard, which is further inside of the sum"}},
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
    {"shard not rounded", LAYOUT_INT8_ZERO1, false, shard_not_rounded,
     {"rank 0, instruction", "cast_int8", "blocks begin at byte", "but those of the elements before end at 0"}},
    {"last shard not rounded", LAYOUT_INT8_ZERO1, false, last_shard_not_rounded,
     {"rank 0, instruction", "reduce_scatter", "reduced in int8, but only", "bytes are written"}},
    {"shards rounded to the blocks of each other", LAYOUT_INT8_ZERO1, false, shards_rounded_to_the_blocks_of_each_other,
     {"rank 0, instruction", "cast_int8"}},
    {"shards cut elsewhere", LAYOUT_INT8_ZERO1, false, shards_cut_elsewhere,
     {"rank 0, instruction", "cast_int8", "are rounded together, but are no rank's shard"}},
    {"blocks read as numbers of another rank", LAYOUT_INT8_ZERO1, false, blocks_read_as_numbers_of_another_rank,
     {"instruction", "widen_int8", "operand 'src'"}},
    {"largest magnitude not told", LAYOUT_DELAYED, false, largest_magnitude_not_told,
     {"rank 1, instruction", "delayed_scales", "buffer 'fp8.amax': a sum is read here, but is never reduced over dp"}},
    {"parts of another rank", LAYOUT_TPDP, false, parts_of_another_rank,
     {"parameter 'embed.weight': rank 1 has parts [0, 4), but those of the tp ranks before end at 4"}},
};

TEST(damage_to_sums_updates_and_shards_is_refused_in_words)
{
    damage_check_all(damages, ORTH_COUNT(damages));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_to_sums_updates_and_shards_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
