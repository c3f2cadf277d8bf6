/* test_damage_shapes.c -- instructions whose operands do not fit the signature of their op (kernels/ops.def), and nodes of
 * block graphs that do not: refused in words that name the op, the operand, the letter and both values.
 */
#include "damage.h"
#include "kernels/signature.h"

/* The nth instruction of rank 0 with this op. */
static orth_instr *the(patient *x, orth_op op, int nth)
{
    return &P(0)->instrs[find_op(P(0), op, 0, nth)];
}

static void swap_operands(orth_operand *a, orth_operand *b)
{
    orth_operand t = *a;
    *a = *b;
    *b = t;
}

/* The first instruction of rank 0 with this op and addends. */
static orth_instr *with_addends(patient *x, orth_op op)
{
    int nth = 0;
    while (the(x, op, nth)->attr->num_addends == 0)
        nth++;
    return the(x, op, nth);
}

static void another_contraction(patient *x)
{
    the(x, ORTH_OP_linear, 1)->in[0].dim[1]--;
}

static void parts_of_another_contraction(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_linear, 1))->split.units++;
}

static void swapped_operands(patient *x)
{
    orth_instr *n = the(x, ORTH_OP_linear, 0);
    swap_operands(&n->in[0], &n->in[1]);
}

static void transposed_weight(patient *x)
{
    orth_operand *w = &the(x, ORTH_OP_linear, 0)->in[1];
    const int64_t rows = w->dim[0];
    w->dim[0] = w->dim[1];
    w->dim[1] = rows;
}

static void flat_weight(patient *x)
{
    orth_operand *w = &the(x, ORTH_OP_linear, 0)->in[1];
    w->num_dims = 1;
    w->dim[0] *= w->dim[1];
    w->dim[1] = 1;
}

static void activation_of_another_type(patient *x)
{
    the(x, ORTH_OP_linear, 0)->in[1].dtype = ORTH_BF16;
}

static void tokens_as_numbers(patient *x)
{
    the(x, ORTH_OP_embed, 0)->in[0].dtype = ORTH_F32;
}

static void statistics_in_half(patient *x)
{
    orth_instr *n = the(x, ORTH_OP_norm, 0);
    n->out[2].dtype = ORTH_BF16;
}

static void missing_gain(patient *x)
{
    the(x, ORTH_OP_norm, 0)->in[2] = orth_operand_absent;
}

static void missing_output(patient *x)
{
    the(x, ORTH_OP_attention, 0)->num_out = 1;
}

static void extra_input(patient *x)
{
    orth_instr *n = the(x, ORTH_OP_bias_bwd, 0);
    orth_operand *in = ORTH_ARENA_ARRAY(x->ctx, &P(0)->arena, orth_operand, 2);
    in[0] = in[1] = n->in[0];
    n->in = in;
    n->num_in = 2;
}

static void extra_output(patient *x)
{
    orth_instr *n = the(x, ORTH_OP_bias_bwd, 0);
    orth_operand *out = ORTH_ARENA_ARRAY(x->ctx, &P(0)->arena, orth_operand, 2);
    out[0] = out[1] = n->out[0];
    n->out = out;
    n->num_out = 2;
}

static void fewer_heads(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_attention, 0))->heads--;
}

static void fewer_key_heads(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_attention_bwd, 0))->kv_heads--;
}

static void other_head_size(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_rope, 0))->head_dim = 4;
}

static void rows_of_other_sequences(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_norm_bwd, 0))->seq_len /= 2;
}

static void one_leaf_too_few(patient *x)
{
    the(x, ORTH_OP_bias_bwd, 0)->out[0].dim[0]--;
}

static void ungated(patient *x)
{
    the(x, ORTH_OP_swiglu, 0)->in[0].dim[1]--;
}

static void addend_of_another_size(patient *x)
{
    orth_instr *n = with_addends(x, ORTH_OP_linear_dw);
    n->in[2].dim[0]--;
}

static void addend_that_is_not_there(patient *x)
{
    attr_of(P(0), with_addends(x, ORTH_OP_linear_dw))->num_addends++;
}

static void addend_not_counted(patient *x)
{
    attr_of(P(0), with_addends(x, ORTH_OP_linear_dw))->num_addends--;
}

static void gradient_of_other_rows(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_linear_dw, 0))->split.units /= 2;
}

static void step_values_cut_short(patient *x)
{
    the(x, ORTH_OP_adamw, 0)->in[1].dim[0] -= 8;
}

static void moment_cut_short(patient *x)
{
    the(x, ORTH_OP_adamw, 0)->out[1].dim[0]--;
}

static void squares_in_other_blocks(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_grad_square, 0))->block_rows = 1;
}

static void keys_of_shorter_sequences(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_attention_part, 0))->full_len--;
}

static void keys_of_a_smaller_block(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_attention_block_bwd, 0))->num_keys /= 2;
}

static void slots_of_shared_keys(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_attention_part_bwd, 0))->shares_kv = false;
}

static void heads_for_no_number_of_ranks(patient *x)
{
    the(x, ORTH_OP_heads_split, 0)->in[0].dim[1]--;
}

static void replicas_counted(patient *x)
{
    attr_of(P(0), the(x, ORTH_OP_linear_dx, 1))->replica_rows = 1;
}

static void endless_view(patient *x)
{
    orth_operand *o = &the(x, ORTH_OP_linear, 0)->in[0];
    o->dim[0] = o->dim[1] = INT64_C(1) << 33;
}

static void negative_view(patient *x)
{
    the(x, ORTH_OP_linear, 0)->in[0].dim[0] = -1;
}

static void view_before_its_buffer(patient *x)
{
    the(x, ORTH_OP_linear, 0)->in[0].byte_offset = (size_t)-4;
}

static void view_between_elements(patient *x)
{
    orth_operand *o = &the(x, ORTH_OP_linear, 0)->in[0];
    o->byte_offset += 2;
    o->dim[0]--;
}

static orth_instr *the_sum(patient *x)
{
    return &P(0)->instrs[find_op(P(0), ORTH_OP_all_reduce, ORTH_GROUP_DP, 0)];
}

static void sum_of_another_type(patient *x)
{
    the_sum(x)->out[0].dtype = ORTH_I32;
}

static void sum_cut_short(patient *x)
{
    the_sum(x)->out[0].dim[0]--;
}

static void sum_of_more_inputs(patient *x)
{
    the_sum(x)->num_out--;
}

static const damage damages[] = {
    {"another contraction", LAYOUT_DP, false, another_contraction,
     {"rank 0, instruction", "linear: operand 'w' [", "K is 32 here, but 31 by operand 'x'"}},
    {"parts of another contraction", LAYOUT_DP, false, parts_of_another_contraction,
     {"linear: operand 'x'", "is not L, which is"}},
    {"swapped operands", LAYOUT_DP, false, swapped_operands, {"linear: operand ", "here, but", "by operand '"}},
    {"transposed weight", LAYOUT_DP, false, transposed_weight, {"linear: operand 'w'", "K is", "by operand 'x'"}},
    {"flat weight", LAYOUT_DP, false, flat_weight, {"linear: operand 'w'", "1 dims, but must have 2"}},
    {"activation of another type", LAYOUT_DP, false, activation_of_another_type,
     {"linear: operand 'w'", "type bf16, but must be c = fp32"}},
    {"tokens as numbers", LAYOUT_DP, false, tokens_as_numbers, {"embed: operand 'tok'", "type fp32, but must be i"}},
    {"statistics in half", LAYOUT_DP, false, statistics_in_half, {"norm: operand 'stats'", "type bf16, but must be f"}},
    {"missing gain", LAYOUT_DP, false, missing_gain, {"norm: operand 'gain': must not be absent"}},
    {"missing output", LAYOUT_DP, false, missing_output, {"attention: operand 'lse': must not be absent"}},
    {"extra input", LAYOUT_DP, false, extra_input, {"bias_bwd: 2 inputs, but takes 1 and 0 addends"}},
    {"extra output", LAYOUT_DP, false, extra_output, {"bias_bwd: 2 outputs, but makes 1"}},
    {"fewer heads", LAYOUT_DP, false, fewer_heads, {"attention: operand 'qkv'", "R is 96 here, but 88 by the attributes"}},
    {"fewer key heads", LAYOUT_DP, false, fewer_key_heads,
     {"attention_bwd: operand 'qkv'", "R is 96 here, but 80 by the attributes"}},
    {"other head size", LAYOUT_TPDP, false, other_head_size, {"rope: operand 'qkv'", "R is", "by the attributes"}},
    {"rows of other sequences", LAYOUT_DP, false, rows_of_other_sequences, {"norm_bwd: operand 'dy'", "is not B*T, which is"}},
    {"one leaf too few", LAYOUT_DP, false, one_leaf_too_few, {"bias_bwd: operand 'dbias'", "B is", "by the attributes"}},
    {"ungated", LAYOUT_TPDP, false, ungated, {"swiglu: operand 'h'", "is not 2*A, which is"}},
    {"addend of another size", LAYOUT_DP, false, addend_of_another_size, {"linear_dw: operand 'acc'", "elements of type fp32 for"}},
    {"addend that is not there", LAYOUT_DP, false, addend_that_is_not_there, {"linear_dw: 3 inputs, but takes 2 and 2 addends"}},
    {"addend not counted", LAYOUT_DP, false, addend_not_counted, {"linear_dw: 3 inputs, but takes 2 and 0 addends"}},
    {"gradient of other rows", LAYOUT_DP, false, gradient_of_other_rows, {"linear_dw: operand 'dy'", "is not L, which is"}},
    {"step values cut short", LAYOUT_DP, false, step_values_cut_short, {"adamw: operand 'step'", "bytes of step values"}},
    {"moment cut short", LAYOUT_DP, false, moment_cut_short, {"adamw: operand 'm'", "n is", "by operand 'g'"}},
    {"squares in other blocks", LAYOUT_DP, false, squares_in_other_blocks, {"grad_square: operand 'sums'", "is not J/U, which is"}},
    {"keys of shorter sequences", LAYOUT_CP, false, keys_of_shorter_sequences, {"attention_part: operand 'kv'", "is not B*F, which is"}},
    {"keys of a smaller block", LAYOUT_RING, false, keys_of_a_smaller_block, {"attention_block_bwd: operand 'kv'", "is not B*M, which is"}},
    {"slots of shared keys", LAYOUT_KV, false, slots_of_shared_keys, {"attention_part_bwd: operand 'dkv'", "is not Q*B*F*2*KV*D, which is"}},
    {"heads for no number of ranks", LAYOUT_TRADE, false, heads_for_no_number_of_ranks, {"heads_split: operand 'x'", "is not G*W"}},
    {"replicas counted", LAYOUT_DP, false, replicas_counted, {"linear_dx: operand 'dy'", "is not E+L, which is"}},
    {"endless view", LAYOUT_DP, false, endless_view, {"linear", "the operand reaches past the end"}},
    {"negative view", LAYOUT_DP, false, negative_view, {"linear", "the operand reaches past the end"}},
    {"view before its buffer", LAYOUT_DP, false, view_before_its_buffer, {"linear", "the operand reaches past the end"}},
    {"sum of another type", LAYOUT_DP, false, sum_of_another_type, {"all_reduce: operand 'y'", "type int32, but must be t = fp32"}},
    {"sum cut short", LAYOUT_DP, false, sum_cut_short, {"all_reduce: operand 'y'", "n is", "by operand 'x'"}},
    {"sum of more inputs", LAYOUT_DP, false, sum_of_more_inputs, {"all_reduce", "do not go together"}},
    {"view between elements", LAYOUT_DP, false, view_between_elements, {"linear", "within an element of 4 bytes"}},
};

TEST(damage_to_shapes_is_refused_in_words)
{
    damage_check_all(damages, ORTH_COUNT(damages));
}

typedef struct {
    int tried, refused;
} tally;

static void try_operand(const orth_signature *s, const orth_instr *n, orth_tensor *in, orth_tensor *out,
                        orth_tensor *t, const orth_tensor *as, tally *sum)
{
    char why[256];
    const orth_tensor good = *t;
    *t = *as;
    sum->tried++;
    sum->refused += !orth_signature_fits(s, n->attr, in, n->num_in, out, n->num_out, why, sizeof why);
    *t = good;
}

static void damage_operands(const orth_instr *n, tally *types, tally *absent)
{
    orth_signature s;
    orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    orth_signature_of(n->op, &s);
    for (int k = 0; k < n->num_in + n->num_out; k++) {
        const orth_operand *o = k < n->num_in ? &n->in[k] : &n->out[k - n->num_in];
        orth_tensor *t = k < n->num_in ? &in[k] : &out[k - n->num_in];
        *t = orth_operand_tensor(o);
        t->num_dims = o->buffer < 0 ? 0 : t->num_dims;
    }
    for (int k = 0; k < n->num_in + n->num_out; k++) {
        orth_tensor *t = k < n->num_in ? &in[k] : &out[k - n->num_in], bad = *t;
        if (t->num_dims == 0)
            continue;
        bad.dtype = ORTH_I64;
        if (n->op != ORTH_OP_zero) /* of anything */
            try_operand(&s, n, in, out, t, &bad, types);
        const bool optional = k >= s.num_in + (n->num_in > s.num_in ? n->num_in - s.num_in : 0)
                                  ? s.out[k - n->num_in].optional
                                  : k < s.num_in && s.in[k].optional;
        bad = *t;
        bad.num_dims = 0;
        if (!optional)
            try_operand(&s, n, in, out, t, &bad, absent);
    }
}

TEST(no_operand_may_change_its_type_or_be_left_out)
{
    static const layout_name layouts[] = {LAYOUT_PP, LAYOUT_TPDP, LAYOUT_SP, LAYOUT_ZERO1, LAYOUT_CP, LAYOUT_RING, LAYOUT_TRADE, LAYOUT_KV};
    tally types = {0}, absent = {0};
    bool seen[ORTH_NUM_OPS] = {false};
    for (int l = 0; l < ORTH_COUNT(layouts); l++) {
        layout_case c = damage_case(layouts[l]);
        patient *x = patient_new(&c, false);
        for (int32_t i = 0; i < P(0)->num_instrs; i++) {
            const orth_instr *n = &P(0)->instrs[i];
            if (!orth_op_is_comm(n->op))
                damage_operands(n, &types, &absent);
            seen[n->op] = true;
        }
        patient_free(x);
    }
    int ops = 0;
    for (int op = 0; !orth_op_is_comm(op); op++)
        ops += seen[op];
    print_message("%d ops: %d of %d types refused, %d of %d absent operands\n", ops, types.refused, types.tried,
                  absent.refused, absent.tried);
    assert_true(ops >= 30);
    assert_int_equal(types.refused, types.tried);
    assert_int_equal(absent.refused, absent.tried);
}

TEST(every_signature_can_be_read)
{
    orth_signature s;
    for (int op = 0; op < ORTH_NUM_OPS; op++)
        orth_signature_of((orth_op)op, &s);
    orth_signature_of(ORTH_OP_linear_dw, &s);
    assert_true(s.addends && s.num_in == 2 && s.num_out == 1);
    orth_signature_of(ORTH_OP_linear, &s);
    assert_int_equal(orth_signature_input(&s, "packed"), 3);
    assert_int_equal(orth_signature_input(&s, "dy"), -1);
}

/* ---- block graphs ---- */

TEST(a_node_that_does_not_fit_fails_its_graph)
{
    orth_ctx *ctx = test_ctx(1);
    orth_graph g;
    orth_graph_init(ctx, &g);
    const int64_t dim[] = {4, 8};
    orth_value x = orth_graph_add_value(&g, ORTH_VALUE_INPUT, 0, ORTH_F32, "x", 2, dim);
    orth_value w = orth_graph_param(&g, 0, "w", ORTH_F32, 2, (const int64_t[]){6, 7}), y = orth_graph_temp(&g, "y", ORTH_F32, 4, 6);
    const orth_value in[] = {x, w, ORTH_NO_VALUE};
    const orth_attr attr = {.split = ORTH_SPLIT_WHOLE(8)};
    assert_null(orth_graph_add(&g, ORTH_OP_linear, &attr, 3, in, 1, &y));
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "node 0: linear: operand 'w' [6, 7]: K is 7 here, but 8 by operand 'x'",
                orth_graph_done(&g));
    orth_graph_release(&g);
    test_ctx_free(ctx);
}

TEST(data_has_one_shape_in_a_graph)
{
    orth_ctx *ctx = test_ctx(1);
    orth_graph g;
    orth_graph_init(ctx, &g);
    orth_graph_data(&g, ORTH_DATA_POSITIONS, ORTH_I32, 6, 0, 0);
    CHECK_OK(ctx, orth_graph_done(&g));
    orth_graph_data(&g, ORTH_DATA_POSITIONS, ORTH_I32, 3, 0, 0);
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "'positions' is used with two shapes", orth_graph_done(&g));
    orth_graph_release(&g);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_signature_can_be_read),
        cmocka_unit_test(damage_to_shapes_is_refused_in_words),
        cmocka_unit_test(no_operand_may_change_its_type_or_be_left_out),
        cmocka_unit_test(a_node_that_does_not_fit_fails_its_graph),
        cmocka_unit_test(data_has_one_shape_in_a_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
