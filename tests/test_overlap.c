/* test_overlap.c -- when communication happens: buckets, calls under way, gathers ahead, what is computed meanwhile. That
 * the numbers stay the same is the business of test_layouts.c; that nothing is touched too early, of test_damage_overlap.c. */
#include "damage.h"
#include "traffic_case.h"

static layout_case case_of(int zero, orth_comm_policy comm)
{
    layout_case c = layout_base_case(3, 0);
    c.layout.dp = 2;
    c.layout.zero = zero;
    c.layout.micro_batch = 2; /* two micro-batches a rank */
    c.comm = comm;
    return c;
}

static bool is_collective(const orth_instr *n, orth_op op)
{
    return n->op == op && n->attr->group == ORTH_GROUP_DP;
}

static orth_traffic traffic_of(const layout_case *c)
{
    patient *x = patient_new(c, false);
    orth_rank_groups groups = {{0}};
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        groups.size[g] = 1;
    groups.size[ORTH_GROUP_DP] = groups.size[ORTH_GROUP_SHARD] = ORTH_MAX(c->layout.dp, 1);
    groups.size[ORTH_GROUP_TP] = ORTH_MAX(c->layout.tp, 1);
    groups.size[ORTH_GROUP_CP] = ORTH_MAX(c->layout.cp, 1);
    groups.size[ORTH_GROUP_NORM] = 2;
    orth_traffic t = orth_traffic_planned(&x->p[0], &groups, (orth_comm_method){.shares_memory = true});
    patient_free(x);
    return t;
}

TEST(overlap_changes_no_call_and_no_byte)
{
    for (int zero = 0; zero <= 3; zero++) {
        layout_case with = case_of(zero, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = 2});
        layout_case without = case_of(zero, (orth_comm_policy){.bucket_bytes = 16384});
        orth_traffic a = traffic_of(&with), b = traffic_of(&without);
        char what[224];
        if (traffic_differs(&a, &b, 1, what, sizeof what))
            fail_msg("zero=%d: %s", zero, what);
    }
}

/* One rank of two over this axis. */
static layout_case split_case(int kind, orth_group axis, bool sequence_parallel, bool overlap)
{
    layout_case c = layout_base_case(3, kind);
    c.layout.tp = axis == ORTH_GROUP_TP ? 2 : 1;
    c.layout.cp = axis == ORTH_GROUP_CP ? 2 : 1;
    c.layout.sequence_parallel = sequence_parallel;
    c.comm.overlap = overlap;
    return c;
}

TEST(overlap_over_other_axes_changes_no_call_and_no_byte)
{
    for (int k = 0; k < 6; k++) {
        orth_group axis = k < 4 ? ORTH_GROUP_TP : ORTH_GROUP_CP;
        layout_case with = split_case(k, axis, k / 2 == 1, true), without = split_case(k, axis, k / 2 == 1, false);
        orth_traffic a = traffic_of(&with), b = traffic_of(&without);
        char what[224];
        if (traffic_differs(&a, &b, 1, what, sizeof what))
            fail_msg("case %d: %s", k, what);
        assert_true(traffic_bytes(&a) > 0);
    }
}

/* Instructions `op` that call i goes on beside; 0 if it blocks. */
static int num_beside(const orth_program *p, int32_t i, orth_op op)
{
    int num = 0;
    for (int32_t k = i + 1; k < p->instrs[i].until; k++)
        num += p->instrs[k].op == op;
    return num;
}

/* Calls `op` over `group` in the backward of layers, of at least that many elements: all, and those with a product
 * beside them. */
static void count_hidden(const layout_case *c, orth_op op, orth_group group, orth_op product, int64_t elems, int *all,
                         int *hidden)
{
    patient *x = patient_new(c, false);
    const orth_program *p = &x->p[0];
    *all = *hidden = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op != op || n->attr->group != group || n->phase != ORTH_PHASE_BACKWARD || n->layer < 0 ||
            n->layer >= (int32_t)c->model.layers)
            continue;
        int64_t sum = 0;
        for (int k = 0; k < n->num_out; k++)
            sum += (int64_t)orth_operand_bytes(&n->out[k]) / (int64_t)orth_dtype_bytes(n->out[k].dtype);
        *all += sum >= elems;
        *hidden += sum >= elems && num_beside(p, i, product) > 0;
    }
    patient_free(x);
}

static int num_micro_batches(const layout_case *c)
{
    return (int)(c->layout.global_batch / c->layout.micro_batch);
}

/* The gradient of each column product's input is summed while its weight gradient is made: 2 in a layer. */
TEST(sums_of_tensor_parallelism_go_on_beside_weight_gradients)
{
    for (int kind = 0; kind < 2; kind++) {
        layout_case c = split_case(kind, ORTH_GROUP_TP, false, true);
        int64_t rows = c.layout.micro_batch * c.layout.seq_len;
        int all, hidden;
        count_hidden(&c, ORTH_OP_all_reduce, ORTH_GROUP_TP, ORTH_OP_linear_dw, rows * c.model.hidden, &all, &hidden);
        assert_int_equal(all, 2 * (int)c.model.layers * num_micro_batches(&c));
        assert_int_equal(hidden, all);
        c.comm.overlap = false;
        count_hidden(&c, ORTH_OP_all_reduce, ORTH_GROUP_TP, ORTH_OP_linear_dw, rows * c.model.hidden, &all, &hidden);
        assert_int_equal(hidden, 0);
    }
}

/* Of the reduce-scatters and all-gathers that take their place, each has a product of its own. */
TEST(calls_of_sequence_parallelism_share_the_weight_gradients)
{
    for (int kind = 0; kind < 2; kind++) {
        layout_case c = split_case(kind, ORTH_GROUP_TP, true, true);
        int64_t elems = c.layout.micro_batch * c.layout.seq_len * c.model.hidden / 2;
        const int per_axis = 2 * (int)c.model.layers * num_micro_batches(&c);
        int all, hidden;
        count_hidden(&c, ORTH_OP_reduce_scatter, ORTH_GROUP_TP, ORTH_OP_linear_dw, elems, &all, &hidden);
        assert_int_equal(all, per_axis);
        assert_int_equal(hidden, all);
        count_hidden(&c, ORTH_OP_all_gather, ORTH_GROUP_TP, ORTH_OP_linear_dw, elems, &all, &hidden);
        assert_int_equal(all, per_axis);
        assert_int_equal(hidden, all - num_micro_batches(&c)); /* the top layer's has no layer above it */
    }
}

/* The sum of one weight over the ranks of a sequence goes on while the next is made. */
TEST(weights_are_summed_over_context_ranks_beside_the_next)
{
    layout_case c = split_case(0, ORTH_GROUP_CP, false, true);
    int64_t smallest = c.model.hidden * c.model.hidden;
    int all, hidden;
    count_hidden(&c, ORTH_OP_all_reduce, ORTH_GROUP_CP, ORTH_OP_linear_dw, smallest, &all, &hidden);
    assert_int_equal(all, 4 * (int)c.model.layers * (int)c.layout.global_batch);
    assert_int_equal(hidden, all - num_micro_batches(&c)); /* the last has the embedding beside it */
    /* Keys and values are gathered beside the backward of the product that attention's output goes through. */
    count_hidden(&c, ORTH_OP_all_gather, ORTH_GROUP_CP, ORTH_OP_linear_dx, smallest, &all, &hidden);
    assert_int_equal(all, (int)c.model.layers * num_micro_batches(&c));
    assert_int_equal(hidden, all);
}

/* The last bucket of a step is on its way while the gradients before it are squared. */
/* What another stage waits for comes first: the sums of finished weight gradients would stand before the keys and values of the layers that are
 * left. The first stage sends nothing, and sums layer by layer. */
TEST(sums_over_context_ranks_come_behind_what_another_stage_waits_for)
{
    layout_case c = layout_base_case(3, 1);
    c.layout.cp = c.layout.pp = 2;
    c.layout.reproducible = false;
    c.layout.parts = orth_layout_fast_parts(&c.layout);
    patient *x = patient_new(&c, false);
    for (int r = 0; r < x->num_ranks; r++) {
        const orth_program *p = &x->p[r];
        bool sends = false;
        int32_t kv = -1, first = INT32_MAX, sums = 0;
        for (int32_t i = 0; i < p->num_instrs; i++) {
            const orth_instr *n = &p->instrs[i];
            sends = sends || (n->op == ORTH_OP_send && n->attr->group == ORTH_GROUP_PP_BACK);
            if (n->op == ORTH_OP_all_gather && n->attr->group == ORTH_GROUP_CP && n->phase == ORTH_PHASE_BACKWARD)
                kv = i;
            if (n->op == ORTH_OP_all_reduce && n->attr->group == ORTH_GROUP_CP && orth_operand_bytes(&n->out[0]) > 4 * (size_t)c.model.hidden) {
                first = ORTH_MIN(first, i);
                sums++;
            }
        }
        assert_true(sums > 0 && kv >= 0);
        assert_true(sends ? first > kv : first < kv);
    }
    patient_free(x);
}

TEST(the_last_bucket_is_reduced_beside_the_squares_of_the_others)
{
    for (int zero = 0; zero <= 3; zero++) {
        layout_case c = case_of(zero, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = 1});
        c.model.layers = 4;
        patient *x = patient_new(&c, false);
        const orth_program *p = &x->p[0];
        int32_t last = find_last(p, zero ? ORTH_OP_reduce_scatter : ORTH_OP_all_reduce, ORTH_GROUP_DP);
        while (p->instrs[last].attr->group != ORTH_GROUP_DP || p->instrs[last].in[0].dtype != ORTH_F32)
            last--;
        assert_true(num_beside(p, last, ORTH_OP_grad_square) > (int)c.model.layers);
        patient_free(x);
    }
}

TEST(buckets_make_fewer_calls_of_the_same_bytes)
{
    for (int zero = 0; zero <= 3; zero++) {
        layout_case one = case_of(zero, (orth_comm_policy){.overlap = true});
        layout_case many = case_of(zero, (orth_comm_policy){.overlap = true, .bucket_bytes = 1 << 20});
        orth_traffic a = traffic_of(&one), b = traffic_of(&many);
        orth_comm_kind kind = zero ? ORTH_COMM_REDUCE_SCATTER : ORTH_COMM_ALL_REDUCE;
        int64_t params = a.calls[ORTH_GROUP_DP][kind], buckets = b.calls[ORTH_GROUP_DP][kind];
        assert_true(buckets * (zero == 3 ? 5 : 10) < params); /* of ZeRO 3 each layer has its own */
        assert_int_equal(traffic_bytes(&a), traffic_bytes(&b));
    }
}

/* Nothing is sent before the last micro-batch, and then while gradients are still being made. */
TEST(buckets_are_reduced_while_the_last_backward_goes_on)
{
    layout_case c = case_of(0, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384});
    patient *x = patient_new(&c, false);
    const orth_program *p = &x->p[0];
    int32_t last_product = find_last(p, ORTH_OP_linear_dw, 0);
    int before = 0;
    for (int32_t i = 0; i < last_product; i++) {
        if (!is_collective(&p->instrs[i], ORTH_OP_all_reduce))
            continue;
        assert_int_equal(p->instrs[i].micro_batch, 1);
        assert_true(p->instrs[i].until > last_product);
        before++;
    }
    assert_true(before > 3);
    patient_free(x);
}

/* The most elements of whole parameters that are gathered, or being gathered, for blocks after the one at work, and the most
 * such blocks. */
static void look_ahead(const orth_program *p, int *blocks, int64_t *elems)
{
    int64_t *ending = calloc((size_t)p->num_instrs + 1, sizeof *ending), now = 0; /* elements by the end of their calls */
    int *calls = calloc((size_t)p->num_instrs + 1, sizeof *calls), num = 0;
    *blocks = 0;
    *elems = 0;
    for (int32_t i = 0; i < p->num_instrs && p->instrs[i].phase != ORTH_PHASE_UPDATE; i++) {
        const orth_instr *n = &p->instrs[i];
        now -= ending[i];
        num -= calls[i];
        if (is_collective(n, ORTH_OP_all_gather) && n->until > 0) {
            ending[n->until] += orth_instr_output_elems(n);
            now += orth_instr_output_elems(n);
            calls[n->until]++;
            num++;
        }
        if (n->op == ORTH_OP_linear || n->op == ORTH_OP_linear_dx) { /* a block is at work */
            *blocks = ORTH_MAX(*blocks, num);
            *elems = ORTH_MAX(*elems, now);
        }
    }
    free(ending);
    free(calls);
}

TEST(gathers_run_as_far_ahead_as_they_may)
{
    for (int prefetch = 0; prefetch <= 3; prefetch++) {
        layout_case c = case_of(3, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = prefetch});
        patient *x = patient_new(&c, false);
        int blocks;
        int64_t elems;
        look_ahead(&x->p[0], &blocks, &elems);
        assert_int_equal(blocks, prefetch);
        patient_free(x);
    }
}

TEST(gathers_stay_within_their_limit)
{
    const int64_t limit = 10000; /* a layer has about 7500 */
    layout_case c = case_of(3, (orth_comm_policy){.overlap = true, .prefetch = 4, .prefetch_elems = limit});
    patient *x = patient_new(&c, false);
    int blocks;
    int64_t elems;
    look_ahead(&x->p[0], &blocks, &elems);
    assert_true(blocks >= 1 && blocks < 4);
    assert_true(elems > 0 && elems <= limit);
    patient_free(x);
}

/* The most elements of gathered parameters at a time, from where their gathers begin to their last use, and of one block. */
static void most_live(const orth_program *p, int64_t *most, int64_t *block)
{
    int64_t *ending = calloc((size_t)p->num_instrs + 1, sizeof *ending), now = 0, beside = 0;
    *most = *block = 0;
    for (int32_t i = 0; i < p->num_instrs && p->instrs[i].phase != ORTH_PHASE_UPDATE; i++) {
        const orth_instr *n = &p->instrs[i];
        const bool gathers = orth_instr_gathers_params(p, n);
        beside = gathers ? beside + orth_instr_output_elems(n) : 0;
        *block = ORTH_MAX(*block, beside);
        for (int k = 0; gathers && k < n->num_out; k++) {
            int32_t last = i;
            for (int32_t j = i; j < p->num_instrs; j++)
                for (int o = 0; o < orth_instr_num_operands(&p->instrs[j]); o++)
                    last = orth_instr_operand(&p->instrs[j], o)->buffer == n->out[k].buffer ? j : last;
            ending[last] += orth_operand_elems(&n->out[k]);
            now += orth_operand_elems(&n->out[k]);
        }
        *most = ORTH_MAX(*most, now);
        now -= ending[i];
    }
    free(ending);
}

/* DeepSpeed's limit of live parameters stops what is gathered ahead, and what stays whole for the backward; a block at work is there in any case. */
TEST(live_parameters_stay_within_their_limit)
{
    static const int64_t limits[] = {1, 8000, 16000, 24000, 32000, 1 << 20};
    int64_t before[2] = {0};
    for (int i = 0; i < 2 * ORTH_COUNT(limits); i++) {
        layout_case c = case_of(3, (orth_comm_policy){.overlap = true, .live_elems = limits[i / 2], .reuse_elems = i % 2 ? INT64_C(1) << 40 : 0});
        int64_t most, block, alone, none;
        patient *none_ahead = patient_new(&c, false);
        c.comm.prefetch = 4;
        patient *x = patient_new(&c, false);
        most_live(&none_ahead->p[0], &alone, &block);
        most_live(&x->p[0], &most, &none);
        if (most > ORTH_MAX(limits[i / 2], alone) || most < before[i % 2] || alone > block + (i % 2 ? limits[i / 2] : 0))
            fail_msg("limit %lld: %lld live, %lld without prefetch, %lld at a lower limit; a block has %lld", (long long)limits[i / 2], (long long)most,
                     (long long)alone, (long long)before[i % 2], (long long)block);
        before[i % 2] = most;
        patient_free(none_ahead);
        patient_free(x);
    }
    assert_true(before[0] > 24000 && before[1] >= before[0]);
}

/* Memory for traffic: whole parameters cross the wire once a step. */
TEST(parameters_that_stay_are_gathered_once)
{
    layout_case dropped = case_of(3, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = 1});
    layout_case kept = dropped;
    kept.comm.keep_gathered = true;
    orth_traffic t = traffic_of(&kept);
    patient *x = patient_new(&dropped, true), *y = patient_new(&kept, true);
    int64_t whole = 0;
    for (int64_t i = 0; i < x->blocks[0].spec.num_params; i++) {
        const orth_param_desc *d = &x->blocks[0].spec.params[i];
        whole += 4 * d->dim[0] * (d->num_dims > 1 ? d->dim[1] : 1);
    }
    int64_t other = 0; /* what rank 0 sends is what is not rank 1's */
    for (int64_t i = 0; i < x->blocks[0].spec.num_params; i++)
        other += (int64_t)x->p[1].buffers[orth_program_find(&x->p[1], ORTH_BIND_MASTER, i)].bytes;
    assert_int_equal(t.ideal[ORTH_GROUP_DP][ORTH_COMM_ALL_GATHER], whole - other);
    assert_true(y->p[0].transient_bytes[ORTH_SPACE_HOST] > x->p[0].transient_bytes[ORTH_SPACE_HOST]);
    patient_free(x);
    patient_free(y);
}

/* shard_by=layer: of each parameter one rank has all, of each layer the same one, and all have some. */
TEST(an_owner_has_whole_layers)
{
    for (int zero = 1; zero <= 3; zero++) {
        layout_case c = case_of(zero, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = 1});
        c.layout.whole_layers = true;
        patient *x = patient_new(&c, false);
        const orth_compile_spec *s = &x->blocks[0].spec;
        int owned[2] = {0};
        for (int32_t l = 0; l < s->num_layers; l++) {
            const int64_t *first = x->p[0].shard_counts[s->layers[l].param_index[0]];
            owned[first[0] == 0]++;
            for (int32_t i = 0; i < s->layers[l].graph->num_params; i++) {
                const int64_t *counts = x->p[0].shard_counts[s->layers[l].param_index[i]], all = counts[0] + counts[1];
                assert_true((counts[0] == 0) == (first[0] == 0) && (counts[0] == all || counts[1] == all));
            }
        }
        assert_true(owned[0] > 0 && owned[1] > 0);
        patient_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_changes_no_call_and_no_byte),
        cmocka_unit_test(overlap_over_other_axes_changes_no_call_and_no_byte),
        cmocka_unit_test(sums_of_tensor_parallelism_go_on_beside_weight_gradients),
        cmocka_unit_test(calls_of_sequence_parallelism_share_the_weight_gradients),
        cmocka_unit_test(weights_are_summed_over_context_ranks_beside_the_next),
        cmocka_unit_test(sums_over_context_ranks_come_behind_what_another_stage_waits_for),
        cmocka_unit_test(the_last_bucket_is_reduced_beside_the_squares_of_the_others),
        cmocka_unit_test(buckets_make_fewer_calls_of_the_same_bytes),
        cmocka_unit_test(buckets_are_reduced_while_the_last_backward_goes_on),
        cmocka_unit_test(gathers_run_as_far_ahead_as_they_may),
        cmocka_unit_test(gathers_stay_within_their_limit),
        cmocka_unit_test(live_parameters_stay_within_their_limit),
        cmocka_unit_test(parameters_that_stay_are_gathered_once),
        cmocka_unit_test(an_owner_has_whole_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
