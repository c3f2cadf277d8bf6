/* test_program.c -- the gradient tree against its definition, and programs that are damaged by hand:
 * check.c must refuse each by name. */
#include "kernels/gemm.h"
#include "model/blocks.h"
#include "program/check/check.h"
#include "program/compile.h"
#include "program/lower/gradtree.h"
#include "program/passes/order.h"
#include "program/passes/place.h"
#include "test.h"

/* ---- the tree ---- */

/* An addition that notices order and grouping. */
static uint64_t join(uint64_t left, uint64_t right)
{
    uint64_t mixed = left * UINT64_C(0x9E3779B97F4A7C15) ^ (right >> 7 | right << 57);
    return mixed * UINT64_C(0xD6E8FEB86659FD93) + 1;
}

static uint64_t leaf(int64_t i)
{
    return join((uint64_t)i + 1, 77);
}

/* The definition (tensor/parts.h): a node covers [k*2^l, (k+1)*2^l) as far as there are leaves; a node
 * whose right half has none is its left half. */
static uint64_t tree(int64_t begin, int64_t size, int64_t n)
{
    if (size == 1)
        return leaf(begin);
    uint64_t left = tree(begin, size / 2, n);
    return begin + size / 2 < n ? join(left, tree(begin + size / 2, size / 2, n)) : left;
}

static int64_t power_above(int64_t n)
{
    int64_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* What the program does with a step of n leaves that come in micro-batches of the given sizes. */
static uint64_t accumulate(int64_t n, const int64_t *sizes, int *slots)
{
    orth_gradtree t = {0};
    uint64_t slot[ORTH_GRADTREE_MAX_DEPTH] = {0}, result = 0;
    for (int64_t begin = 0, m = 0; begin < n; m++) {
        for (int64_t end = begin + sizes[m]; begin < end;) {
            int64_t size = orth_gradtree_run(begin, end);
            assert_true(size >= 1 && (size & (size - 1)) == 0 && begin % size == 0 && begin + size <= end);
            int32_t addends[ORTH_GRADTREE_MAX_DEPTH], num;
            int32_t out = orth_gradtree_push(&t, size, begin + size == n, addends, &num);
            uint64_t value = tree(begin, size, begin + size);
            for (int i = 0; i < num; i++)
                value = join(slot[addends[i]], value);
            if (num > 0)
                assert_int_equal(out, addends[num - 1]);
            slot[out] = result = value;
            *slots = ORTH_MAX(*slots, out + 1);
            begin += size;
        }
    }
    assert_int_equal(t.depth, 1);
    return result;
}

/* Leaves [first, end) without a last run: what is left are the largest nodes of the tree that they contain. */
TEST(a_part_of_the_leaves_piles_up_to_the_nodes_that_it_contains)
{
    for (int64_t first = 0; first < 20; first++)
        for (int64_t end = first + 1; end <= 40; end++) {
            orth_gradtree t = {.next = first};
            for (int64_t begin = first, k = 0, size; begin < end; begin += size) {
                int64_t any = test_rand_int((uint64_t)(first * 41 + end), (uint64_t)k++, 1, 5), stop = ORTH_MIN(end, begin + any);
                int32_t addends[ORTH_GRADTREE_MAX_DEPTH], num;
                size = orth_gradtree_run(begin, stop);
                orth_gradtree_push(&t, size, false, addends, &num);
            }
            int32_t n = 0;
            for (int64_t at = first; at < end; at += t.size[n++]) {
                assert_true(n < t.depth);
                assert_int_equal(t.size[n], orth_gradtree_run(at, end));
            }
            assert_int_equal(n, t.depth);
        }
}

/* As many leaves as the rules allow, from several beginnings: arrays of these sizes hold addends and slots. */
TEST(addends_and_slots_of_the_longest_step_fit_their_arrays)
{
    static const int64_t firsts[] = {0, 1, 5, 12345};
    for (int f = 0; f < ORTH_COUNT(firsts); f++) {
        const int64_t end = firsts[f] + ORTH_GRADTREE_MAX_LEAVES - 1;
        orth_gradtree t = {.next = firsts[f]};
        int32_t addends[ORTH_GRADTREE_MAX_DEPTH], num, most = 0, deepest = 0;
        for (int64_t begin = firsts[f]; begin < end; begin++) {
            orth_gradtree_push(&t, 1, f == 0 && begin == end - 1, addends, &num);
            most = ORTH_MAX(most, num);
            deepest = ORTH_MAX(deepest, t.depth);
        }
        assert_true(most >= ORTH_GRADTREE_MAX_LOG2 - 2 && most <= ORTH_GRADTREE_MAX_ADDENDS - 1);
        assert_true(deepest <= ORTH_GRADTREE_MAX_DEPTH);
    }
}

TEST(gradients_pile_up_in_the_aligned_tree_however_they_are_split)
{
    for (int64_t n = 1; n <= 70; n++) {
        uint64_t want = tree(0, power_above(n), n), k = 0;
        for (int round = 0; round < 40; round++) {
            int64_t sizes[70], count = 0;
            int slots = 0;
            for (int64_t left = n; left > 0; left -= sizes[count++]) {
                int64_t most = round < 20 ? 4 : 40;
                int64_t any = test_rand_int((uint64_t)n, k++, 1, ORTH_MIN(left, most));
                sizes[count] = round == 0 ? 1 : round == 1 ? left : any;
            }
            if (accumulate(n, sizes, &slots) != want)
                fail_msg("%d leaves, split %d: another tree", (int)n, round);
            int64_t depth = 1;
            while ((1 << depth) <= n)
                depth++;
            assert_true(slots <= depth);
        }
    }
}

/* ---- check.c ---- */

typedef struct {
    orth_ctx *ctx;
    orth_model_blocks blocks;
    orth_program p;
} step;

static step *step_open_with(bool placed, bool dropout, bool keep_packed)
{
    step *s = calloc(1, sizeof *s);
    orth_model_config c;
    s->ctx = test_ctx(1);
    s->ctx->isa = ORTH_ISA_BASE; /* the same programs on every machine */
    CHECK_OK(s->ctx, orth_model_preset(s->ctx, "llama-tiny", &c));
    c.dropout = c.embed_dropout = c.attn_dropout = dropout ? 0.1 : 0;
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = 2, .seq_len = keep_packed ? 64 : 16, .num_micro_batches = 2,
                              .parts = 2, .compute = ORTH_BF16, .optimizer = ORTH_OP_adamw,
                              .keep_packed = keep_packed};
    CHECK_OK(s->ctx, orth_model_blocks_build(s->ctx, &c, &shape, &s->blocks));
    orth_program_init(s->ctx, &s->p);
    CHECK_OK(s->ctx, orth_compile(s->ctx, &s->blocks.spec, &s->p));
    if (placed) {
        CHECK_OK(s->ctx, orth_place(s->ctx, &s->p, 2, ORTH_ISA_BASE, NULL));
        CHECK_OK(s->ctx, orth_order(s->ctx, &s->p));
    }
    CHECK_OK(s->ctx, orth_check(s->ctx, &s->p));
    return s;
}

static step *step_open(bool placed, bool dropout)
{
    return step_open_with(placed, dropout, false);
}

/* Compiled only, with this many sequences a step on this rank. */
static step *long_step(int32_t num_seqs, int32_t num_micro_batches, orth_place_in_mesh mesh)
{
    step *s = calloc(1, sizeof *s);
    orth_model_config c;
    s->ctx = test_ctx(1);
    CHECK_OK(s->ctx, orth_model_preset(s->ctx, "llama-tiny", &c));
    c.layers = 1;
    const orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = num_seqs, .seq_len = 16, .parts = 8,
                                    .num_micro_batches = num_micro_batches, .optimizer = ORTH_OP_adamw, .mesh = mesh};
    CHECK_OK(s->ctx, orth_model_blocks_build(s->ctx, &c, &shape, &s->blocks));
    orth_program_init(s->ctx, &s->p);
    CHECK_OK(s->ctx, orth_compile(s->ctx, &s->blocks.spec, &s->p));
    return s;
}

static void step_close(step *s)
{
    orth_program_release(&s->p);
    orth_model_blocks_release(&s->blocks);
    test_ctx_free(s->ctx);
    free(s);
}

/* Number `nth` of the instructions of `op`; fails the test if there are fewer. */
static int32_t find_op(const step *s, orth_op op, int nth)
{
    for (int32_t i = 0; i < s->p.num_instrs; i++)
        if (s->p.instrs[i].op == op && nth-- == 0)
            return i;
    fail_msg("no instruction %s", orth_op_name(op));
    return -1;
}

static void swap(step *s, int32_t i, int32_t k)
{
    orth_instr t = s->p.instrs[i];
    s->p.instrs[i] = s->p.instrs[k];
    s->p.instrs[k] = t;
}

/* Takes instruction i out and puts it in again at `to` of what is left; to < 0: nowhere. */
static void move(step *s, int32_t i, int32_t to)
{
    orth_instr moved = s->p.instrs[i];
    memmove(&s->p.instrs[i], &s->p.instrs[i + 1], sizeof moved * (size_t)(s->p.num_instrs - i - 1));
    s->p.num_instrs--;
    if (to < 0)
        return;
    memmove(&s->p.instrs[to + 1], &s->p.instrs[to], sizeof moved * (size_t)(s->p.num_instrs - to));
    s->p.instrs[to] = moved;
    s->p.num_instrs++;
}

#define REFUSED(s, text)                                                                \
    do {                                                                                \
        CHECK_FAILS((s)->ctx, ORTH_ERR_INTERNAL, (text), orth_check((s)->ctx, &(s)->p)); \
        step_close(s);                                                                  \
    } while (0)

TEST(a_product_has_room_for_all_addends_of_a_long_step)
{
    step *s = long_step(1, 8192, (orth_place_in_mesh){.size = {0}});
    int32_t most = 0;
    for (int32_t i = 0; i < s->p.num_instrs; i++) {
        const orth_instr *n = &s->p.instrs[i];
        most = ORTH_MAX(most, n->op == ORTH_OP_linear_dw ? n->attr->num_addends : 0);
        assert_true(n->num_in <= ORTH_OP_MAX_IN);
    }
    assert_in_range(most, 13, ORTH_GEMM_MAX_ADDENDS);
    step_close(s);
}

/* Each sequence is an operand of the calls that exchange rows. */
TEST(a_micro_batch_has_any_number_of_sequences)
{
    const orth_group axes[] = {ORTH_GROUP_TP, ORTH_GROUP_CP};
    for (int a = 0; a < ORTH_COUNT(axes); a++) {
        orth_place_in_mesh mesh = {.size = {0}, .sequence_parallel = axes[a] == ORTH_GROUP_TP};
        mesh.size[axes[a]] = 2;
        step *s = long_step(3000, 1, mesh);
        const orth_instr *n = &s->p.instrs[find_op(s, ORTH_OP_all_gather, 0)];
        assert_int_equal(n->num_in, 3000);
        for (int32_t k = 1; k < n->num_in; k++)
            assert_int_equal(n->in[k].byte_offset, (size_t)k * n->in[1].byte_offset);
        step_close(s);
    }
}

TEST(what_is_read_was_written_before)
{
    step *s = step_open(false, false);
    swap(s, find_op(s, ORTH_OP_linear, 0), find_op(s, ORTH_OP_norm, 0));
    REFUSED(s, "read before it is written");
    s = step_open(false, false); /* a gradient that nobody makes */
    for (int32_t i = s->p.num_instrs - 1; i >= 0; i--)
        if (s->p.instrs[i].op == ORTH_OP_embed_bwd)
            move(s, i, -1);
    REFUSED(s, "'grad.embed.weight': read before it is written");
    s = step_open(false, false); /* no attention in layer 0: the message says who misses it */
    move(s, find_op(s, ORTH_OP_attention, 0), -1);
    REFUSED(s, "(linear, layer 0, micro-batch 0), buffer 'attention'");
}

/* For both micro-batches: the eight matrices of the layers, and the head's, for its chunks, too. */
TEST(a_weight_is_packed_once_a_step)
{
    step *s = step_open_with(true, false, true);
    int32_t packs[2] = {0, 0}, products[2] = {0, 0}, kept[2] = {0, 0};
    for (int32_t i = 0; i < s->p.num_instrs; i++) {
        const orth_instr *n = &s->p.instrs[i];
        packs[0] += n->op == ORTH_OP_linear_pack;
        packs[1] += n->op == ORTH_OP_linear_dx_pack;
        for (int k = 0; k < 2; k++) {
            products[k] += n->op == (k ? ORTH_OP_linear_dx : ORTH_OP_linear);
            kept[k] += n->op == (k ? ORTH_OP_linear_dx : ORTH_OP_linear) && orth_instr_reads_packed(n);
        }
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(kept[k], products[k]);
        assert_int_equal(packs[k], 9);
    }
    step_close(s);
}

TEST(a_packed_weight_is_that_of_its_product_and_of_this_step)
{
    step *s = step_open_with(false, false, true);
    orth_operand first = s->p.instrs[find_op(s, ORTH_OP_linear, 0)].in[3];
    s->p.instrs[find_op(s, ORTH_OP_linear, 1)].in[3] = first;
    REFUSED(s, "read as the packed weight of a product, which it is not");
    s = step_open_with(false, false, true);
    move(s, find_op(s, ORTH_OP_linear_dx_pack, 0), -1);
    REFUSED(s, "read before it is written");
    s = step_open_with(false, false, true); /* a weight that changes between the micro-batches */
    int32_t norm = find_op(s, ORTH_OP_norm, 0);
    while (s->p.instrs[norm].op != ORTH_OP_norm || s->p.instrs[norm].micro_batch == 0)
        norm++; /* of what the embedding gives: it writes no sum */
    assert_int_equal(s->p.instrs[norm].out[1].buffer, -1);
    s->p.instrs[norm].out[1] = s->p.instrs[find_op(s, ORTH_OP_linear, 0)].in[1];
    REFUSED(s, "packed before its weight changed");
}

TEST(operands_lie_inside_their_buffers)
{
    step *s = step_open(false, false);
    s->p.instrs[find_op(s, ORTH_OP_linear, 3)].in[0].byte_offset += 2;
    REFUSED(s, "the operand reaches past the end");
    s = step_open(false, false);
    s->p.instrs[find_op(s, ORTH_OP_norm, 1)].out[0].dim[0]++;
    REFUSED(s, "the operand reaches past the end");
    s = step_open(false, false);
    s->p.instrs[5].in[0].buffer = s->p.num_buffers;
    REFUSED(s, "is not in [0, ");
}

TEST(every_parameter_is_updated_once_after_its_gradient_is_whole)
{
    step *s = step_open(false, false);
    move(s, find_op(s, ORTH_OP_adamw, 4), -1);
    REFUSED(s, "is never updated");
    s = step_open(false, false);
    s->p.instrs[find_op(s, ORTH_OP_adamw, 4)] = s->p.instrs[find_op(s, ORTH_OP_adamw, 3)];
    REFUSED(s, "parameter updated twice");
    s = step_open(false, false); /* the last gradient of the embedding comes after the update */
    int32_t last = -1;
    for (int32_t i = 0; i < s->p.num_instrs; i++)
        if (s->p.instrs[i].op == ORTH_OP_embed_bwd)
            last = i;
    move(s, last, s->p.num_instrs - 1);
    REFUSED(s, "gradient written after");
    s = step_open(false, false); /* or between the norm of the gradient and the update */
    for (int32_t i = 0; i < s->p.num_instrs; i++)
        if (s->p.instrs[i].op == ORTH_OP_embed_bwd)
            last = i;
    move(s, last, find_op(s, ORTH_OP_clip_scale, 0));
    REFUSED(s, "gradient written after");
}

/* Compiles the step again with another value in the descriptor of one parameter. */
static void refused_row(const char *name, orth_leaf_rule leaf, orth_reduce_rule reduce, const char *why)
{
    step *s = step_open(false, false);
    orth_program p;
    for (int64_t i = 0; i < s->blocks.spec.num_params; i++) {
        orth_param_desc *d = (orth_param_desc *)&s->blocks.spec.params[i];
        if (strcmp(d->name, name) != 0)
            continue;
        d->leaf = leaf;
        d->reduce = reduce;
    }
    orth_program_init(s->ctx, &p);
    CHECK_FAILS(s->ctx, ORTH_ERR_INTERNAL, why, orth_compile(s->ctx, &s->blocks.spec, &p));
    orth_program_release(&p);
    step_close(s);
}

TEST(a_weight_says_of_its_gradient_what_the_derived_backward_makes)
{
    refused_row("layers.1.attn.qkv.weight", ORTH_LEAF_SEQUENCE, ORTH_REDUCE_DENSE,
                "the gradient of layers.1.attn.qkv.weight comes as a sum over tokens");
    refused_row("final_norm.gain", ORTH_LEAF_TOKENS, ORTH_REDUCE_DENSE,
                "the gradient of final_norm.gain comes as a vector for each sequence");
    refused_row("head.weight", ORTH_LEAF_TOKENS, (orth_reduce_rule)0, "the gradient of head.weight has no group");
}

TEST(buffers_that_live_together_do_not_overlap)
{
    step *s = step_open(true, false);
    int32_t linear = find_op(s, ORTH_OP_linear, 2);
    orth_buffer *in = &s->p.buffers[s->p.instrs[linear].in[0].buffer];
    s->p.buffers[s->p.instrs[linear].out[0].buffer].offset = in->offset;
    REFUSED(s, "overlap while both are live");
    s = step_open(true, false); /* a transient buffer over a parameter */
    s->p.buffers[s->p.instrs[linear].out[0].buffer].offset = 0 - s->p.transient_offset[ORTH_SPACE_HOST]; /* modulo the word */
    REFUSED(s, "overlap while both are live");
    s = step_open(true, false); /* persistent buffers among themselves */
    s->p.buffers[1].offset = s->p.buffers[0].offset + 64;
    REFUSED(s, "overlap while both are live");
    s = step_open(true, false); /* past the arena */
    s->p.buffers[s->p.instrs[linear].out[0].buffer].offset = s->p.space_bytes[ORTH_SPACE_HOST];
    REFUSED(s, "past the end of the arena");
}

/* Work in place is seen through: what an alias took over must not be read any more. */
TEST(bytes_that_were_taken_over_are_not_read)
{
    step *s = step_open(true, true);
    int32_t rope = find_op(s, ORTH_OP_rope, 0), in = s->p.instrs[rope].in[0].buffer;
    assert_int_equal(s->p.buffers[s->p.instrs[rope].out[0].buffer].alias, in);
    s->p.instrs[find_op(s, ORTH_OP_attention, 0)].in[0].buffer = in;
    REFUSED(s, "its bytes were taken over");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_of_the_leaves_piles_up_to_the_nodes_that_it_contains),
        cmocka_unit_test(gradients_pile_up_in_the_aligned_tree_however_they_are_split),
        cmocka_unit_test(addends_and_slots_of_the_longest_step_fit_their_arrays),
        cmocka_unit_test(a_product_has_room_for_all_addends_of_a_long_step),
        cmocka_unit_test(a_micro_batch_has_any_number_of_sequences),
        cmocka_unit_test(what_is_read_was_written_before),
        cmocka_unit_test(a_weight_is_packed_once_a_step),
        cmocka_unit_test(a_packed_weight_is_that_of_its_product_and_of_this_step),
        cmocka_unit_test(operands_lie_inside_their_buffers),
        cmocka_unit_test(every_parameter_is_updated_once_after_its_gradient_is_whole),
        cmocka_unit_test(a_weight_says_of_its_gradient_what_the_derived_backward_makes),
        cmocka_unit_test(buffers_that_live_together_do_not_overlap),
        cmocka_unit_test(bytes_that_were_taken_over_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
