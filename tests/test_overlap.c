/* test_overlap.c -- when data-parallel communication happens: buckets, calls under way, gathers ahead. That the numbers stay
 * the same is the business of test_layouts.c; that nothing is touched too early, of test_damage_overlap.c. */
#include "damage.h"
#include "plan/traffic.h"

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
    return n->op == op && n->attr.group == ORTH_GROUP_DP;
}

static orth_traffic traffic_of(const layout_case *c)
{
    patient *x = patient_new(c, false);
    orth_rank_groups groups = {{0}};
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        groups.size[g] = 1;
    groups.size[ORTH_GROUP_DP] = groups.size[ORTH_GROUP_SHARD] = groups.size[ORTH_GROUP_NORM] = 2;
    orth_traffic t = orth_traffic_planned(&x->p[0], &groups);
    patient_free(x);
    return t;
}

TEST(overlap_changes_no_call_and_no_byte)
{
    for (int zero = 0; zero <= 3; zero++) {
        layout_case with = case_of(zero, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = 2});
        layout_case without = case_of(zero, (orth_comm_policy){.bucket_bytes = 16384});
        orth_traffic a = traffic_of(&with), b = traffic_of(&without);
        char what[192];
        if (orth_traffic_differs(&a, &b, what, sizeof what))
            fail_msg("zero=%d: %s", zero, what);
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
        assert_true(buckets * 10 < params);
        assert_int_equal(orth_traffic_bytes(&a), orth_traffic_bytes(&b));
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
        assert_true(p->instrs[i].attr.ticket > 0);
        before++;
    }
    assert_true(before > 3);
    for (int32_t i = 0; i < last_product; i++)
        assert_true(p->instrs[i].op != ORTH_OP_wait);
    patient_free(x);
}

/* The most bytes of whole parameters that are gathered, or being gathered, for blocks after the one at work, and the most
 * such blocks. */
static void look_ahead(const orth_program *p, int *blocks, int64_t *bytes)
{
    int64_t sizes[ORTH_MAX_TICKETS] = {0}, now = 0;
    int num = 0;
    *blocks = 0;
    *bytes = 0;
    for (int32_t i = 0; i < p->num_instrs && p->instrs[i].phase != ORTH_PHASE_UPDATE; i++) {
        const orth_instr *n = &p->instrs[i];
        if (is_collective(n, ORTH_OP_all_gather) && n->attr.ticket > 0) {
            for (int k = 0; k < n->num_out; k++)
                sizes[n->attr.ticket] += (int64_t)orth_operand_bytes(&n->out[k]);
            now += sizes[n->attr.ticket];
            num++;
        } else if (n->op == ORTH_OP_wait && sizes[n->attr.ticket] > 0) {
            now -= sizes[n->attr.ticket];
            sizes[n->attr.ticket] = 0;
            num--;
        }
        if (n->op == ORTH_OP_linear || n->op == ORTH_OP_linear_dx) { /* a block is at work */
            *blocks = ORTH_MAX(*blocks, num);
            *bytes = ORTH_MAX(*bytes, now);
        }
    }
}

TEST(gathers_run_as_far_ahead_as_they_may)
{
    for (int prefetch = 0; prefetch <= 3; prefetch++) {
        layout_case c = case_of(3, (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = prefetch});
        patient *x = patient_new(&c, false);
        int blocks;
        int64_t bytes;
        look_ahead(&x->p[0], &blocks, &bytes);
        assert_int_equal(blocks, prefetch);
        patient_free(x);
    }
}

TEST(gathers_stay_within_their_limit)
{
    const int64_t limit = 40000; /* a layer has about 30000 bytes */
    layout_case c = case_of(3, (orth_comm_policy){.overlap = true, .prefetch = 4, .prefetch_bytes = limit});
    patient *x = patient_new(&c, false);
    int blocks;
    int64_t bytes;
    look_ahead(&x->p[0], &blocks, &bytes);
    assert_true(blocks >= 1 && blocks < 4);
    assert_true(bytes > 0 && bytes <= limit);
    patient_free(x);
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
    assert_int_equal(t.bytes[ORTH_GROUP_DP][ORTH_COMM_ALL_GATHER], whole - other);
    assert_true(y->p[0].transient_bytes > x->p[0].transient_bytes);
    patient_free(x);
    patient_free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_changes_no_call_and_no_byte),
        cmocka_unit_test(buckets_make_fewer_calls_of_the_same_bytes),
        cmocka_unit_test(buckets_are_reduced_while_the_last_backward_goes_on),
        cmocka_unit_test(gathers_run_as_far_ahead_as_they_may),
        cmocka_unit_test(gathers_stay_within_their_limit),
        cmocka_unit_test(parameters_that_stay_are_gathered_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
