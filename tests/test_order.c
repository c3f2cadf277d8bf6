/* test_order.c -- events between queues: enough that whatever conflicts is ordered, and none too many. What is ordered is
 * found here by definition: every pair of instructions, and a walk over all paths. */
#include "damage.h"
#include "program/check/happens.h"
#include "program/passes/order.h"

/* ---- by definition ---- */

/* before[j * n + i]: instruction i is complete when j begins. */
static bool *find_before(const orth_program *p)
{
    const int32_t n = p->num_instrs;
    bool *before = calloc((size_t)n * (size_t)n + 1, sizeof *before);
    for (int32_t j = 0; j < n; j++) {
        for (int32_t i = 0, passed[ORTH_MAX_QUEUES] = {0}; i < j; i++) {
            const orth_instr *a = &p->instrs[i], *b = &p->instrs[j];
            passed[a->queue]++;
            bool direct = a->queue == b->queue;
            for (int k = 0; k < b->num_waits; k++)
                direct = direct || (a->queue == b->waits[k].queue && passed[a->queue] <= b->waits[k].count);
            for (int32_t m = 0; direct && m <= i; m++)
                before[j * n + m] |= m == i || before[i * n + m];
        }
    }
    return before;
}

static bool share_bytes(const orth_program *p, const orth_operand *a, const orth_operand *b)
{
    if (a->buffer < 0 || b->buffer < 0 || p->buffers[a->buffer].space != p->buffers[b->buffer].space)
        return false;
    const size_t x = orth_buffer_begin(p, &p->buffers[a->buffer]) + a->byte_offset, y = orth_buffer_begin(p, &p->buffers[b->buffer]) + b->byte_offset;
    const size_t n = orth_operand_bytes(a), m = orth_operand_bytes(b);
    return n > 0 && m > 0 && x < y + m && y < x + n;
}

static bool conflict(const orth_program *p, const orth_instr *a, const orth_instr *b)
{
    for (int k = 0; k < a->num_in + a->num_out; k++)
        for (int j = 0; j < b->num_in + b->num_out; j++)
            if ((k >= a->num_in || j >= b->num_in) && share_bytes(p, orth_instr_operand(a, k), orth_instr_operand(b, j)))
                return true;
    if (!orth_op_is_comm(a->op) || !orth_op_is_comm(b->op) || a->attr->group != b->attr->group)
        return false;
    return orth_op_is_message(a->op) ? a->op == b->op && a->attr->peer == b->attr->peer : !orth_op_is_message(b->op);
}

/* Whether all that conflicts is ordered. */
static bool is_ordered(const orth_program *p)
{
    bool *before = find_before(p), ordered = true;
    for (int32_t j = 0; j < p->num_instrs && ordered; j++)
        for (int32_t i = 0; i < j && ordered; i++)
            ordered = before[j * p->num_instrs + i] || !conflict(p, &p->instrs[i], &p->instrs[j]);
    free(before);
    return ordered;
}

/* ---- programs drawn from a seed ---- */

enum { NUM_BUFFERS = 12, BUFFER_FLOATS = 16 };

static orth_operand random_view(uint64_t seed, uint64_t *k)
{
    const int64_t first = test_rand_int(seed, (*k)++, 0, BUFFER_FLOATS - 1);
    const int64_t n = test_rand_int(seed, (*k)++, 0, 3) ? BUFFER_FLOATS - first : test_rand_int(seed, *k, 0, BUFFER_FLOATS - first);
    orth_operand o = orth_operand_of((int32_t)test_rand_int(seed, (*k)++, 0, NUM_BUFFERS - 1), ORTH_F32, 1, &n);
    o.byte_offset = (size_t)first * sizeof(float);
    return o;
}

/* Half of it computes, the rest are calls, most of them started; buffers lie across each other. */
static void random_program(uint64_t seed, orth_ctx *ctx, orth_program *p)
{
    static const orth_op ops[] = {ORTH_OP_all_reduce, ORTH_OP_reduce_scatter, ORTH_OP_send, ORTH_OP_recv};
    static const orth_group groups[] = {ORTH_GROUP_DP, ORTH_GROUP_TP, ORTH_GROUP_PP};
    uint64_t k = 0;
    orth_program_init(ctx, p);
    for (int b = 0; b < NUM_BUFFERS; b++)
        orth_program_add_buffer(p, &(orth_buffer){.name = "b", .bytes = BUFFER_FLOATS * sizeof(float), .persistent = true,
                                                  .offset = (size_t)test_rand_int(seed, k++, 0, 300)});
    p->space_bytes[ORTH_SPACE_HOST] = 1000;
    const int num = (int)test_rand_int(seed, k++, 2, 60);
    for (int i = 0; i < num; i++) {
        const bool calls = test_rand_int(seed, k++, 0, 1) > 0;
        const orth_op op = calls ? ops[test_rand_int(seed, k++, 0, 3)] : ORTH_OP_add;
        const orth_operand in[] = {random_view(seed, &k), random_view(seed, &k)}, out = random_view(seed, &k);
        orth_attr attr = {.group = groups[test_rand_int(seed, k++, 0, 2)]};
        attr.peer = calls ? (int32_t)test_rand_int(seed, k++, 0, 2) : 0;
        const bool beside = calls && test_rand_int(seed, k++, 0, 3);
        orth_instr *n =
            orth_program_add_instr(p, op, &attr, op == ORTH_OP_recv ? 0 : op == ORTH_OP_add ? 2 : 1, in, op != ORTH_OP_send, &out);
        n->until = beside ? i + 1 : 0;
    }
    CHECK_OK(ctx, orth_program_done(p));
}

/* Takes away each event in turn: the program must be refused. Returns how many there are. */
static int take_away_each(orth_ctx *ctx, orth_program *p, bool (*refused)(orth_ctx *, const orth_program *))
{
    int num = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_wait *all = p->instrs[i].waits;
        const int32_t n = p->instrs[i].num_waits;
        for (int32_t k = 0; k < n; k++) {
            orth_wait others[ORTH_MAX_QUEUES];
            memcpy(others, all, (size_t)k * sizeof *all);
            memcpy(others + k, all + k + 1, (size_t)(n - k - 1) * sizeof *all);
            p->instrs[i].waits = others;
            p->instrs[i].num_waits = n - 1;
            if (!refused(ctx, p))
                fail_msg("instruction %d need not wait for %d of queue %d", (int)i, (int)all[k].count, (int)all[k].queue);
            num++;
        }
        p->instrs[i].waits = all;
        p->instrs[i].num_waits = n;
    }
    return num;
}

static bool refused_by_definition(orth_ctx *ctx, const orth_program *p)
{
    (void)ctx;
    return !is_ordered(p);
}

static bool refused_by_the_checker(orth_ctx *ctx, const orth_program *p)
{
    const orth_status s = orth_check_happens(ctx, p);
    const bool named = s != ORTH_OK && strstr(ctx->error.message, "no event");
    orth_ctx_clear_error(ctx);
    return named;
}

TEST(events_order_what_conflicts_and_none_can_be_left_out)
{
    orth_ctx *ctx = test_ctx(1);
    int events = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        orth_program p;
        random_program(seed, ctx, &p);
        CHECK_OK(ctx, orth_order(ctx, &p));
        if (!is_ordered(&p))
            fail_msg("seed %d: what conflicts is not ordered", (int)seed);
        CHECK_OK(ctx, orth_check_happens(ctx, &p));
        events += take_away_each(ctx, &p, refused_by_definition);
        assert_true(take_away_each(ctx, &p, refused_by_the_checker) >= 0);
        orth_program_release(&p);
    }
    print_message("%d events of random programs: each is needed\n", events);
    assert_true(events > 1000);
    test_ctx_free(ctx);
}

/* Any events, needed or not: the checker judges as the definition does. */
TEST(the_checker_accepts_what_is_ordered_and_nothing_else)
{
    orth_ctx *ctx = test_ctx(1);
    int ordered = 0, others = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        orth_program p;
        random_program(seed, ctx, &p);
        CHECK_OK(ctx, orth_order(ctx, &p));
        uint64_t k = 1 << 20;
        orth_wait waits[64][1];
        int32_t passed[ORTH_MAX_QUEUES] = {0};
        for (int32_t i = 0; i < p.num_instrs; passed[p.instrs[i++].queue]++) { /* one wait in some places is another */
            const int32_t q = (int32_t)test_rand_int(seed, k++, 0, p.num_queues - 1);
            if (test_rand_int(seed, k++, 0, 9) || q == p.instrs[i].queue || passed[q] == 0)
                continue;
            waits[i][0] = (orth_wait){q, (int32_t)test_rand_int(seed, k++, 1, passed[q])};
            p.instrs[i].waits = waits[i];
            p.instrs[i].num_waits = 1;
        }
        const bool right = is_ordered(&p), said = orth_check_happens(ctx, &p) == ORTH_OK;
        orth_ctx_clear_error(ctx);
        if (right != said)
            fail_msg("seed %d: it is %s ordered", (int)seed, right ? "" : "not");
        ordered += right;
        others += !right;
        orth_program_release(&p);
    }
    assert_true(ordered > 20 && others > 20);
    test_ctx_free(ctx);
}

TEST(damaged_events_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_program p;
    random_program(7, ctx, &p);
    CHECK_OK(ctx, orth_order(ctx, &p));
    int32_t i = 0;
    while (p.instrs[i].num_waits == 0)
        i++;
    orth_wait w = p.instrs[i].waits[0];
    p.instrs[i].waits = &w;
    p.instrs[i].num_waits = 1;
    const orth_wait right = w;
    w.count = p.queues[w.queue].num_instrs + 1;
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "waits for more instructions of another queue", orth_check_happens(ctx, &p));
    w = (orth_wait){p.instrs[i].queue, 1};
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "waits for a queue that is its own", orth_check_happens(ctx, &p));
    w = (orth_wait){right.queue, 0};
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "waits for more instructions", orth_check_happens(ctx, &p));
    w = right;
    int32_t call = 0;
    while (p.instrs[call].queue == 0)
        call++;
    orth_program_own_attr(&p, &p.instrs[call])->group = ORTH_GROUP_EMBED;
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "does not belong into that queue", orth_check_happens(ctx, &p));
    orth_program_release(&p);
    test_ctx_free(ctx);
}

/* ---- compiled programs ---- */

TEST(every_event_of_compiled_layouts_is_needed)
{
    const char *more = getenv("ORTH_ORDERED"), *first = getenv("ORTH_FIRST_SEED");
    const int want = more ? atoi(more) : 20;
    uint64_t seed = first ? strtoull(first, NULL, 10) : 0;
    int layouts = 0, events = 0, queues = 0;
    for (; layouts < want; seed++) {
        const layout_case c = layout_random_case(seed, LAYOUT_ANY);
        if (orth_layout_ranks(&c.layout) > MAX_RANKS || !c.comm.overlap)
            continue;
        patient *x = patient_new(&c, true);
        const orth_mesh *mesh = &x->partition.mesh;
        int num = 0;
        for (int stage = 0; stage < mesh->size[ORTH_AXIS_PP]; stage++) { /* a rank of each */
            orth_program *p = P(orth_mesh_moved(mesh, (int)(seed % (uint64_t)x->num_ranks), ORTH_AXIS_PP, stage));
            num += take_away_each(x->ctx, p, refused_by_the_checker);
            queues = ORTH_MAX(queues, p->num_queues);
            if (p->num_instrs < 1500)
                assert_true(is_ordered(p));
        }
        events += num;
        layouts += num > 0;
        patient_free(x);
    }
    print_message("%d layouts, seeds up to %d: each of %d events is needed; up to %d queues\n", layouts, (int)seed - 1, events, queues);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_order_what_conflicts_and_none_can_be_left_out),
        cmocka_unit_test(the_checker_accepts_what_is_ordered_and_nothing_else),
        cmocka_unit_test(damaged_events_are_refused),
        cmocka_unit_test(every_event_of_compiled_layouts_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
