/* test_classes.c -- ranks of one class (parallel/classes.h): every rank is compiled by itself and compared with the program of its
 * class, bound to its shards. ORTH_CLASSES: how many random layouts; ORTH_SEED: the first. */
#include <time.h>

#include "layouts.h"
#include "parallel/classes.h"
#include "plan/programs.h"
#include "plan/simulate.h"
#include "plan/traffic.h"
#include "program/compile.h"
#include "program/ir/cost.h"
#include "program/passes/order.h"
#include "program/passes/place.h"
#include "program/passes/views.h"

typedef struct {
    orth_chunk chunks[16];
    orth_model_blocks blocks;
    orth_program p;
} compiled;

static void compile(orth_ctx *ctx, const layout_case *c, const orth_partition *partition, int rank, orth_place_memory *places,
                    compiled *out)
{
    orth_model_shape shape = layout_shape(c);
    orth_partition_shape(partition, rank, &shape, out->chunks);
    CHECK_OK(ctx, orth_model_blocks_build(ctx, &c->model, &shape, &out->blocks));
    orth_program_init(ctx, &out->p);
    CHECK_OK(ctx, orth_compile(ctx, &out->blocks.spec, &out->p));
    CHECK_OK(ctx, orth_place(ctx, &out->p, 2, ctx->isa, places));
    CHECK_OK(ctx, orth_order(ctx, &out->p));
}

static void release(compiled *x)
{
    orth_program_release(&x->p);
    orth_model_blocks_release(&x->blocks);
}

/* What differs between two buffers, or NULL. */
static const char *buffer_difference(const orth_buffer *a, const orth_buffer *b)
{
    if (strcmp(a->name, b->name) != 0 || a->cls != b->cls || a->bind != b->bind || a->index != b->index)
        return "another buffer";
    if (a->bytes != b->bytes || a->first_elem != b->first_elem)
        return "another size";
    if (a->first != b->first || a->last != b->last || a->persistent != b->persistent)
        return "another life";
    if (a->offset != b->offset || a->alias != b->alias || a->prev != b->prev || a->next != b->next)
        return "another place";
    return NULL;
}

/* Squares go where this rank's are among the sums; a copied part of a layer's input lies where it is this rank's turn. */
static bool same_operand(orth_op op, bool written, const orth_operand *a, const orth_operand *b)
{
    const bool moved = (op == ORTH_OP_grad_square && written) || (op == ORTH_OP_copy && !written);
    return a->buffer == b->buffer && a->dtype == b->dtype && a->num_dims == b->num_dims &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0 && (moved || a->byte_offset == b->byte_offset);
}

/* Of the sums of the step, what all tensor-parallel ranks hold is counted by the first, and the loss given by one rank: the others
 * have the same instructions about nothing. */
static bool counts_nothing(const orth_instr *n)
{
    return (n->op == ORTH_OP_grad_square || n->op == ORTH_OP_zero) && orth_operand_elems(&n->out[0]) == 0;
}

static const char *instr_difference(const orth_instr *a, const orth_instr *b, int group_size)
{
    const orth_cost x = orth_instr_cost(a), y = orth_instr_cost(b);
    if (a->op != b->op || a->num_in != b->num_in || a->num_out != b->num_out)
        return "another instruction";
    if (a->layer != b->layer || a->micro_batch != b->micro_batch || a->action != b->action || a->phase != b->phase)
        return "another place in the step";
    const bool nothing = counts_nothing(a) || counts_nothing(b);
    for (int k = 0; k < a->num_in + a->num_out && !nothing; k++) {
        const bool written = k >= a->num_in;
        const int i = written ? k - a->num_in : k;
        if (!same_operand(a->op, written, written ? &a->out[i] : &a->in[i], written ? &b->out[i] : &b->in[i]))
            return "another operand";
    }
    if (a->queue != b->queue || a->until != b->until)
        return "another queue";
    if (a->num_waits != b->num_waits || (a->num_waits > 0 && memcmp(a->waits, b->waits, (size_t)a->num_waits * sizeof *a->waits) != 0))
        return "other events";
    if (a->attr->group != b->attr->group || a->attr->peer != b->attr->peer ||
        a->attr->num_addends != b->attr->num_addends || a->attr->place.first != b->attr->place.first || a->coalesced != b->coalesced || !a->counts != !b->counts)
        return "another call";
    const int rows = a->coalesced ? a->num_in + 1 : ORTH_MAX(a->num_in, a->num_out);
    if (a->counts && memcmp(a->counts, b->counts, (size_t)(rows * group_size) * sizeof *a->counts) != 0)
        return "other counts";
    if (nothing)
        return NULL;
    if (x.model_flops != y.model_flops || x.hardware_flops != y.hardware_flops || x.bytes != y.bytes)
        return "another cost";
    return NULL;
}

static void compare(const char *what, int rank, int like, const compiled *a, const compiled *b, const orth_rank_groups *g)
{
    const char *why = NULL;
    int32_t at = 0;
    if (a->p.num_instrs != b->p.num_instrs || a->p.num_buffers != b->p.num_buffers)
        fail_msg("%s: rank %d has %d instructions and %d buffers, rank %d of its class %d and %d", what, rank, (int)a->p.num_instrs,
                 (int)a->p.num_buffers, like, (int)b->p.num_instrs, (int)b->p.num_buffers);
    for (; at < a->p.num_buffers && !why; at++)
        why = buffer_difference(&a->p.buffers[at], &b->p.buffers[at]);
    if (why)
        fail_msg("%s: buffer '%s' of rank %d and of rank %d of its class: %s", what, a->p.buffers[at - 1].name, rank, like, why);
    for (at = 0; at < a->p.num_instrs && !why; at++)
        why = instr_difference(&a->p.instrs[at], &b->p.instrs[at], g->size[a->p.instrs[at].attr->group]);
    if (why)
        fail_msg("%s: instruction %d (%s) of rank %d and of rank %d of its class: %s", what, (int)at - 1,
                 orth_op_name(a->p.instrs[at - 1].op), rank, like, why);
    assert_int_equal(a->p.num_queues, b->p.num_queues);
    for (int32_t q = 0; q < a->p.num_queues; q++)
        assert_memory_equal(&a->p.queues[q], &b->p.queues[q], sizeof a->p.queues[q]);
    assert_memory_equal(a->p.class_bytes, b->p.class_bytes, sizeof a->p.class_bytes);
    assert_memory_equal(a->p.space_bytes, b->p.space_bytes, sizeof a->p.space_bytes);
    assert_int_equal(a->p.lower_bound, b->p.lower_bound);
    assert_memory_equal(a->p.transient_bytes, b->p.transient_bytes, sizeof a->p.transient_bytes);
}

/* Returns how many classes there are. */
static int check_case(orth_ctx *ctx, const layout_case *c)
{
    char what[256];
    orth_partition partition;
    orth_classes classes;
    orth_place_memory places = {0};
    const orth_model_shape shape = layout_shape(c);
    compiled one, like;
    int num = 0;
    layout_describe(c, what, sizeof what);
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c->layout, &c->model));
    CHECK_OK(ctx, orth_classes_make(ctx, &classes, &partition, &c->model, &shape));
    for (int r = 0; r < partition.mesh.num_ranks; r++) {
        const int of = orth_classes_of(&classes, r);
        assert_in_range(of, 0, r);
        assert_int_equal(orth_classes_of(&classes, of), of);
        num += of == r;
        if (of == r)
            continue;
        const orth_rank_groups groups = orth_partition_groups(&partition, r);
        compile(ctx, c, &partition, r, NULL, &one);
        compile(ctx, c, &partition, of, &places, &like);
        CHECK_OK(ctx, orth_program_bind(ctx, &like.p, like.blocks.spec.params, like.blocks.spec.num_params,
                                        orth_mesh_coord(&partition.mesh, r, ORTH_AXIS_SHARD)));
        compare(what, r, of, &one, &like, &groups);
        release(&one);
        release(&like);
    }
    orth_place_forget(ctx, &places);
    orth_classes_release(ctx, &classes);
    orth_partition_release(ctx, &partition);
    return num;
}

/* ORTH_CLASSES random layouts, or `usual`; the sum of what `check` returns. */
static int check_random(uint64_t usual, int (*check)(orth_ctx *ctx, const layout_case *c))
{
    const char *count = getenv("ORTH_CLASSES");
    const uint64_t seed = test_seed();
    orth_ctx *ctx = test_ctx(1);
    int sum = 0;
    for (uint64_t i = 0; i < (count ? strtoull(count, NULL, 10) : usual); i++) {
        const layout_case c = layout_random_case(seed + i, i % 4 == 3 ? LAYOUT_FAST : LAYOUT_ANY);
        sum += check(ctx, &c);
    }
    test_ctx_free(ctx);
    return sum;
}

TEST(the_program_of_a_class_bound_to_a_rank_is_that_of_the_rank)
{
    check_random(40, check_case);
}

/* Shards of gradients that are reduced in int8 have other blocks on each rank. */
TEST(blocks_of_int8_are_those_of_the_rank)
{
    orth_ctx *ctx = test_ctx(1);
    for (int zero = 1; zero <= 3; zero++) {
        layout_case c = layout_base_case(7, zero);
        c.layout.dp = 4;
        c.layout.zero = zero;
        c.layout.reproducible = false;
        c.layout.parts = orth_layout_fast_parts(&c.layout);
        c.comm.reduce = ORTH_Q8;
        assert_int_equal(check_case(ctx, &c), 1);
    }
    test_ctx_free(ctx);
}

/* Pieces of some weights are whole rows, and those of their scales have other columns (lower/offload.c). */
TEST(pieces_of_moments_in_8_bits_are_those_of_the_rank)
{
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(7, k);
        c.layout.dp = 4;
        c.layout.zero = 1 + k % 3;
        c.layout.tp = 1 + k / 3 % 2;
        c.compute = ORTH_BF16;
        c.types = (orth_state_types){.master = k % 2 ? ORTH_BF16 : ORTH_F32, .moments = ORTH_U8, .stochastic = k % 2};
        c.offload = (orth_offload){.optimizer = k / 6 ? ORTH_TIER_FILE : ORTH_TIER_HOST, .sub_group = 200};
        assert_true(check_case(ctx, &c) < 4 * c.layout.tp);
    }
    test_ctx_free(ctx);
}

/* ---- damage to what binding makes ---- */

typedef struct {
    orth_rank_source source;
    int rank;                 /* whose program is harmed */
    int how;
    size_t wrong, *field;     /* what a harmed field held, until the next program is asked for */
} harmed;

static int same_as_of(void *user, int rank) { harmed *x = user; return x->source.same_as(x->source.user, rank); }
static int twin_of_of(void *user, int rank) { harmed *x = user; return x->source.twin_of(x->source.user, rank); }
static int group_of_of(void *user, int rank, orth_group g, int *ranks) { harmed *x = user; return x->source.group(x->source.user, rank, g, ranks); }

static void harm(harmed *x, size_t *field, size_t value)
{
    x->field = field;
    x->wrong = *field;
    *field = value;
}

/* The program of the rank, with an operand, or a buffer, where it must not be. */
static orth_status program_of_harmed(orth_ctx *ctx, void *user, int rank, orth_rank_program *out)
{
    harmed *x = user;
    if (x->field)
        *x->field = x->wrong;
    x->field = NULL;
    ORTH_TRY(x->source.program(ctx, x->source.user, rank, out));
    orth_program *p = (orth_program *)out->program;
    if (rank != x->rank)
        return ORTH_OK;
    for (int32_t k = p->num_own - 1; x->how == 0 && !x->field && k >= 0; k--)
        for (int i = 0; i < orth_instr_num_operands(&p->instrs[p->own[k]]) && !x->field; i++) {
            orth_operand *o = (orth_operand *)orth_instr_operand(&p->instrs[p->own[k]], i);
            if (o->view == ORTH_VIEW_SHARD && o->buffer >= 0)
                harm(x, &o->byte_offset, p->buffers[o->buffer].bytes);
        }
    orth_buffer *last = &p->buffers[p->persistent[p->num_persistent - 1]];
    if (x->how == 1)
        harm(x, &last->offset, 0);
    if (x->how == 2)
        harm(x, &last->bytes, last->bytes + ((size_t)1 << 30));
    return ORTH_OK;
}

/* The program of a class is checked whole on its first rank; what another rank is bound to is checked on that rank. */
TEST(damage_to_what_another_rank_is_bound_to_is_refused_on_that_rank)
{
    static const char *const says[] = {"rank 3, instruction", "begins inside of another", "behind where the others begin"};
    orth_ctx *ctx = test_ctx(1);
    layout_case c = layout_base_case(1, 0);
    c.layout.dp = 4;
    c.layout.zero = 1;
    c.layout.global_batch = 8;
    orth_partition partition;
    orth_programs programs;
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c.layout, &c.model));
    const orth_programs_spec spec = {.partition = &partition, .model = &c.model, .step = layout_shape(&c), .num_threads = 1};
    CHECK_OK(ctx, orth_programs_make(ctx, &programs, &spec));
    for (int how = -1; how < ORTH_COUNT(says); how++) {
        harmed x = {.source = orth_programs_source(&programs), .rank = how < 0 ? -1 : 3, .how = how};
        const orth_rank_source source = {.num_ranks = x.source.num_ranks, .user = &x, .same_as = same_as_of, .twin_of = twin_of_of,
                                         .program = program_of_harmed, .group = group_of_of, .checked = true};
        if (how < 0)
            CHECK_OK(ctx, orth_check_ranks(ctx, &source));
        else
            CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, says[how], orth_check_ranks(ctx, &source));
        if (x.field)
            *x.field = x.wrong;
    }
    orth_programs_release(ctx, &programs);
    orth_partition_release(ctx, &partition);
    test_ctx_free(ctx);
}

/* ---- what ranks run ---- */

static bool equal_splits(const orth_split *a, const orth_split *b)
{
    return a->kind == b->kind && a->parts == b->parts && a->of == b->of && a->unit == b->unit && a->group == b->group;
}

/* All that depends on where a rank stands. */
static bool equal_numbers(const orth_attr *a, const orth_attr *b)
{
    return equal_splits(&a->split, &b->split) && equal_splits(&a->split_out, &b->split_out) && a->replica_rows == b->replica_rows &&
           a->sum_leaves == b->sum_leaves && a->partial == b->partial && a->first_head == b->first_head && a->heads == b->heads &&
           a->slot_begin == b->slot_begin && a->slot_count == b->slot_count && a->key_begin == b->key_begin &&
           a->num_keys == b->num_keys && a->site == b->site && a->first_row == b->first_row && a->first_part == b->first_part &&
           a->nodes == b->nodes && a->place.param == b->place.param && a->place.row == b->place.row && a->place.col == b->place.col &&
           a->piece == b->piece && a->peer == b->peer && a->use == b->use && a->first_col == b->first_col;
}

static bool equal_operands(const orth_operand *a, const orth_operand *b)
{
    return same_operand(ORTH_OP_add, false, a, b) && a->view == b->view && a->part == b->part;
}

static void compare_runnable(const char *what, int rank, const orth_compiled *shared, const orth_compiled *own, const orth_rank_groups *g)
{
    const compiled a = {.p = own->program}, b = {.p = shared->program};
    compare(what, rank, rank, &a, &b, g);
    for (int32_t i = 0; i < a.p.num_instrs; i++) {
        const orth_instr *x = &a.p.instrs[i], *y = &b.p.instrs[i];
        bool equal = equal_numbers(x->attr, y->attr) && x->block == y->block && x->node == y->node;
        for (int k = 0; k < orth_instr_num_operands(x); k++)
            equal = equal && equal_operands(orth_instr_operand(x, k), orth_instr_operand(y, k));
        if (!equal)
            fail_msg("%s: instruction %d (%s) of rank %d is another than that of the program it shares", what, (int)i,
                     orth_op_name(x->op), rank);
    }
    const orth_place_in_mesh *m = &own->blocks.spec.mesh, *n = &shared->blocks.spec.mesh;
    assert_memory_equal(m->pos, n->pos, sizeof m->pos);
    assert_memory_equal(m->size, n->size, sizeof m->size);
}

/* Returns how many ranks have a program that another has, too. */
static int check_runnable(orth_ctx *ctx, const layout_case *c)
{
    char what[256];
    orth_partition partition;
    orth_programs programs;
    orth_chunk chunks[16], own_chunks[16];
    orth_rank_programs taken[64], own;
    layout_describe(c, what, sizeof what);
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c->layout, &c->model));
    orth_programs_spec spec = {.partition = &partition, .model = &c->model, .step = layout_shape(c), .evaluates = !c->offload.optimizer,
                               .num_threads = 2};
    spec.eval = spec.step;
    spec.eval.mode = ORTH_MODE_EVAL;
    spec.eval.num_seqs = (int32_t)c->layout.micro_batch;
    spec.eval.num_micro_batches = 1;
    CHECK_OK(ctx, orth_programs_make(ctx, &programs, &spec));
    int num = 0;
    const int R = partition.mesh.num_ranks;
    for (int r = R; r-- > 0;)
        CHECK_OK(ctx, orth_programs_take(ctx, &programs, r, chunks, &taken[r]));
    for (int r = 0; r < R; r++) {
        const orth_rank_groups groups = orth_partition_groups(&partition, r);
        CHECK_OK(ctx, orth_rank_programs_build(ctx, &spec, r, NULL, own_chunks, &own));
        compare_runnable(what, r, &taken[r].step, &own.step, &groups);
        if (spec.evaluates)
            compare_runnable(what, r, &taken[r].eval, &own.eval, &groups);
        num += orth_classes_program(&programs.classes, r) < r;
        orth_rank_programs_release(&own);
        orth_rank_programs_release(&taken[r]);
    }
    orth_programs_release(ctx, &programs);
    orth_partition_release(ctx, &partition);
    return num;
}

TEST(what_a_rank_runs_of_a_shared_program_is_what_it_would_have_compiled)
{
    assert_in_range(check_random(24, check_runnable), 1, 10000);
}

/* Equal slices: one class of each pipeline stage. */
TEST(ranks_of_equal_slices_make_few_classes)
{
    orth_ctx *ctx = test_ctx(1);
    layout_case c = layout_base_case(1, 1);
    c.model.heads = c.model.kv_heads = 8;
    c.model.vocab = 128;
    c.layout.tp = c.layout.dp = 4;
    c.layout.pp = 2;
    assert_int_equal(check_case(ctx, &c), 2);
    for (c.layout.zero = 1; c.layout.zero <= 3; c.layout.zero++)
        assert_int_equal(check_case(ctx, &c), 2);
    c.layout.shard_group = 2;
    for (c.layout.zero = 1; c.layout.zero <= 3; c.layout.zero++)
        assert_int_equal(check_case(ctx, &c), 2);
    test_ctx_free(ctx);
}

TEST(positions_in_groups_are_those_of_their_lists)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const layout_case c = layout_random_case(seed, seed % 4 == 3 ? LAYOUT_OWNER : LAYOUT_ANY);
        orth_partition partition;
        int ranks[64];
        CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c.layout, &c.model));
        for (int r = 0; r < partition.mesh.num_ranks; r++) {
            const orth_rank_groups g = orth_partition_groups(&partition, r);
            for (int k = 0; k < ORTH_NUM_GROUPS; k++) {
                assert_int_equal(orth_partition_group(&partition, r, (orth_group)k, ranks), g.size[k]);
                if (g.size[k] > 0)
                    assert_int_equal(ranks[g.pos[k]], r);
            }
        }
        orth_partition_release(ctx, &partition);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_of_a_class_bound_to_a_rank_is_that_of_the_rank),
        cmocka_unit_test(blocks_of_int8_are_those_of_the_rank),
        cmocka_unit_test(pieces_of_moments_in_8_bits_are_those_of_the_rank),
        cmocka_unit_test(what_a_rank_runs_of_a_shared_program_is_what_it_would_have_compiled),
        cmocka_unit_test(damage_to_what_another_rank_is_bound_to_is_refused_on_that_rank),
        cmocka_unit_test(ranks_of_equal_slices_make_few_classes),
        cmocka_unit_test(positions_in_groups_are_those_of_their_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
