/* test_space.c -- memory spaces: what moves between them, and that nobody else reaches into a device's. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/check/check.h"
#include "program/passes/order.h"
#include "program/passes/place.h"
#include "run/executor.h"
#include "run/space/space.h"
#include "test.h"

enum { N = 1000 };

static int32_t add_buffer(orth_program *p, const char *name, orth_space space, orth_bind bind)
{
    const orth_buffer b = {.name = name, .bytes = N * sizeof(float), .cls = ORTH_CLASS_ACTIVATIONS, .persistent = bind != ORTH_BIND_NONE,
                           .bind = bind};
    p->space = space;
    return orth_program_add_buffer(p, &b);
}

static void add_copy(orth_program *p, int32_t from, int32_t to)
{
    const int64_t n = N;
    const orth_operand in = orth_operand_of(from, ORTH_F32, 1, &n), out = orth_operand_of(to, ORTH_F32, 1, &n);
    orth_program_add_instr(p, ORTH_OP_copy, &(orth_attr){0}, 1, &in, 1, &out);
}

/* From the host to the device, within it, and back. */
static void build(orth_ctx *ctx, orth_program *p)
{
    orth_program_init(ctx, p);
    const int32_t in = add_buffer(p, "in", ORTH_SPACE_HOST, ORTH_BIND_DATA), there = add_buffer(p, "there", ORTH_SPACE_DEVICE, ORTH_BIND_NONE);
    const int32_t moved = add_buffer(p, "moved", ORTH_SPACE_DEVICE, ORTH_BIND_NONE), out = add_buffer(p, "out", ORTH_SPACE_HOST, ORTH_BIND_NLL);
    add_copy(p, in, there);
    add_copy(p, there, moved);
    add_copy(p, moved, out);
    CHECK_OK(ctx, orth_place(ctx, p, 1, ctx->isa, NULL));
    CHECK_OK(ctx, orth_order(ctx, p));
}

TEST(copy_moves_bytes_between_spaces)
{
    orth_ctx *ctx = test_ctx(2);
    orth_program p;
    orth_executor *e;
    float from[N], to[N] = {0};
    const size_t bytes = sizeof from, aligned = orth_round_up(N * sizeof(float), ORTH_PLACE_ALIGN);
    build(ctx, &p);
    CHECK_OK(ctx, orth_check(ctx, &p));
    assert_int_equal(p.space_bytes[ORTH_SPACE_HOST], 2 * aligned);
    assert_int_equal(p.space_bytes[ORTH_SPACE_DEVICE], 2 * aligned);
    assert_int_equal(p.transient_bytes[ORTH_SPACE_HOST], 0);
    assert_int_equal(p.transient_bytes[ORTH_SPACE_DEVICE], 2 * aligned);
    CHECK_OK(ctx, orth_executor_create(ctx, &e, &p, orth_kernels_cpu(), NULL, false));
    for (int i = 0; i < N; i++)
        from[i] = test_rand(1, (uint64_t)i);
    CHECK_OK(ctx, orth_executor_write(ctx, e, (orth_ref){ORTH_BIND_DATA, 0, 0, bytes}, from));
    CHECK_OK(ctx, orth_executor_run(ctx, e));
    CHECK_OK(ctx, orth_executor_read(ctx, e, (orth_ref){ORTH_BIND_NLL, 0, 0, bytes}, to));
    assert_memory_equal(from, to, bytes);
    orth_executor_destroy(ctx, e);
    orth_program_release(&p);
    test_ctx_free(ctx);
}

TEST(bytes_that_a_program_does_not_have_are_not_read)
{
    orth_ctx *ctx = test_ctx(1);
    orth_program p;
    orth_executor *e;
    float v[2] = {0};
    build(ctx, &p);
    CHECK_OK(ctx, orth_executor_create(ctx, &e, &p, orth_kernels_cpu(), NULL, false));
    assert_int_equal(orth_executor_size(e, ORTH_BIND_GRAD, 0), 0);
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "has no buffer 3", orth_executor_read(ctx, e, (orth_ref){ORTH_BIND_GRAD, 3, 0, 8}, v));
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "bytes 3996 to 4004 of 'in', which has 4000",
                orth_executor_write(ctx, e, (orth_ref){ORTH_BIND_DATA, 0, 3996, 8}, v));
    orth_executor_destroy(ctx, e);
    orth_program_release(&p);
    test_ctx_free(ctx);
}

TEST(operands_of_one_instruction_lie_in_one_space)
{
    orth_ctx *ctx = test_ctx(1);
    orth_program p;
    build(ctx, &p);
    p.instrs[2].op = ORTH_OP_cast;
    p.instrs[2].out[0].dtype = ORTH_BF16;
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "'moved' is in device memory and 'out' in host memory: only copy moves", orth_check(ctx, &p));
    orth_program_release(&p);
    test_ctx_free(ctx);
}

/* Reads from the region in a process of its own; whether it lived to tell. */
static bool can_read(const orth_region *r)
{
    const pid_t child = fork();
    if (child == 0)
        signal(SIGSEGV, SIG_DFL); /* cmocka's goes on with the tests */
    if (child == 0)
        _exit(*(volatile const char *)r->base == 7 ? 0 : 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(memory_of_the_device_is_out_of_reach_unless_an_instruction_is_under_way)
{
    const orth_space_setup guarded = {.guards_device = true};
    orth_ctx *ctx = test_ctx(1);
    ctx->spaces = &guarded;
    orth_region r = {0};
    const char seven = 7;
    char got = 0;
    CHECK_OK(ctx, orth_region_map(ctx, &r, ORTH_SPACE_DEVICE, 10000));
    CHECK_OK(ctx, r.ops->write(ctx, &r, 0, &seven, 1));
    assert_false(can_read(&r));
    CHECK_OK(ctx, r.ops->enter(ctx, &r));
    CHECK_OK(ctx, r.ops->enter(ctx, &r)); /* of another queue */
    r.ops->leave(&r);
    assert_true(can_read(&r));
    r.ops->leave(&r);
    assert_false(can_read(&r));
    CHECK_OK(ctx, r.ops->read(ctx, &r, 0, &got, 1));
    assert_int_equal(got, 7);
    orth_region_unmap(&r);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_moves_bytes_between_spaces),
        cmocka_unit_test(bytes_that_a_program_does_not_have_are_not_read),
        cmocka_unit_test(operands_of_one_instruction_lie_in_one_space),
        cmocka_unit_test(memory_of_the_device_is_out_of_reach_unless_an_instruction_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
