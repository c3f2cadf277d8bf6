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

/* ---- files ---- */

enum { FILE_BYTES = 9 * 1024 * 1024 + 123 };

/* Bytes [at, at + n): whole blocks of a large range, a few bytes anywhere, or ranges that end near the borders of blocks. */
static void draw_range(uint64_t seed, uint64_t i, size_t *at, size_t *n)
{
    static const int64_t most[] = {100, 3 * 4096, 1 << 20, FILE_BYTES};
    const int64_t length = test_rand_int(seed, 8 * i, 0, most[test_rand_int(seed, 8 * i + 1, 0, 3)]), kind = test_rand_int(seed, 8 * i + 2, 0, 2);
    const int64_t begin = test_rand_int(seed, 8 * i + 3, 0, FILE_BYTES - length);
    const int64_t off = test_rand_int(seed, 8 * i + 4, 0, 2) - 1, low = ORTH_MAX(begin / 4096 * 4096 + off, 0);
    *at = (size_t)(kind == 0 ? begin : low);
    *n = (size_t)(kind == 2 ? length / 4096 * 4096 : length);
}

/* The address in memory is any, too. */
static void write_and_read(orth_ctx *ctx, orth_region *r, char *want, char *memory, uint64_t seed, uint64_t i)
{
    size_t at, n;
    draw_range(seed, i, &at, &n);
    char *bytes = memory + test_rand_int(seed, 8 * i + 5, 0, 4096);
    if (test_rand_int(seed, 8 * i + 6, 0, 1)) {
        for (size_t k = 0; k < n; k++)
            bytes[k] = (char)(k * 31 + i);
        memcpy(want + at, bytes, n);
        CHECK_OK(ctx, r->ops->write(ctx, r, at, bytes, n));
    } else {
        memset(bytes, 1, n);
        CHECK_OK(ctx, r->ops->read(ctx, r, at, bytes, n));
        assert_memory_equal(want + at, bytes, n);
    }
}

TEST(a_file_has_the_bytes_that_were_last_written_wherever_a_range_begins_and_ends)
{
    const uint64_t seed = test_seed();
    orth_ctx *ctx = test_ctx(1);
    char *want = calloc(1, FILE_BYTES), *memory = malloc(FILE_BYTES + 8192), how[ORTH_SCRATCH_WORDS_MAX];
    for (int io = ORTH_FILE_IO_AUTO; io <= ORTH_FILE_IO_BUFFERED; io += ORTH_FILE_IO_BUFFERED) {
        const orth_space_setup setup = {.file_io = (orth_file_io)io};
        orth_region r = {0};
        ctx->spaces = &setup;
        memset(want, 0, FILE_BYTES);
        CHECK_OK(ctx, orth_region_map(ctx, &r, ORTH_SPACE_FILE, FILE_BYTES));
        orth_scratch_words(&r.file, how);
        print_message("files: %s\n", how);
        assert_int_equal(r.file.room_bytes, orth_scratch_room((orth_file_io)io));
        for (uint64_t i = 0; i < 200; i++)
            write_and_read(ctx, &r, want, memory, seed, i);
        CHECK_OK(ctx, r.ops->read(ctx, &r, 0, memory, FILE_BYTES));
        assert_memory_equal(want, memory, FILE_BYTES);
        assert_true(atomic_load(&r.file_read) >= FILE_BYTES);
        orth_region_unmap(&r);
    }
    free(want);
    free(memory);
    test_ctx_free(ctx);
}

typedef struct {
    orth_region *r;
    int which;
    uint64_t seed;
    bool failed;
} writer;

/* The ranges of two threads follow each other, and share the blocks in which one ends and the other begins. */
static void *write_every_other(void *arg)
{
    writer *w = arg;
    orth_ctx *ctx = test_ctx(1);
    char *bytes = malloc(1 << 20);
    memset(bytes, 'a' + w->which, 1 << 20);
    size_t at = 0;
    for (uint64_t i = 0; at < FILE_BYTES; i++) {
        const size_t n = ORTH_MIN((size_t)test_rand_int(w->seed, i, 1, 30000), FILE_BYTES - at);
        if ((int)(i % 2) == w->which)
            w->failed = w->failed || w->r->ops->write(ctx, w->r, at, bytes, n) != ORTH_OK;
        at += n;
    }
    free(bytes);
    test_ctx_free(ctx);
    return NULL;
}

TEST(threads_write_ranges_that_share_a_block)
{
    const uint64_t seed = test_seed();
    orth_ctx *ctx = test_ctx(1);
    orth_region r = {0};
    pthread_t other;
    char *bytes = malloc(FILE_BYTES);
    CHECK_OK(ctx, orth_region_map(ctx, &r, ORTH_SPACE_FILE, FILE_BYTES));
    writer w[2] = {{&r, 0, seed, false}, {&r, 1, seed, false}};
    assert_int_equal(pthread_create(&other, NULL, write_every_other, &w[1]), 0);
    write_every_other(&w[0]);
    pthread_join(other, NULL);
    assert_false(w[0].failed || w[1].failed);
    CHECK_OK(ctx, r.ops->read(ctx, &r, 0, bytes, FILE_BYTES));
    size_t at = 0;
    for (uint64_t i = 0; at < FILE_BYTES; i++) {
        const size_t n = ORTH_MIN((size_t)test_rand_int(seed, i, 1, 30000), FILE_BYTES - at);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(bytes[at + k], 'a' + (int)(i % 2));
        at += n;
    }
    orth_region_unmap(&r);
    free(bytes);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_moves_bytes_between_spaces),
        cmocka_unit_test(bytes_that_a_program_does_not_have_are_not_read),
        cmocka_unit_test(operands_of_one_instruction_lie_in_one_space),
        cmocka_unit_test(memory_of_the_device_is_out_of_reach_unless_an_instruction_is_under_way),
        cmocka_unit_test(a_file_has_the_bytes_that_were_last_written_wherever_a_range_begins_and_ends),
        cmocka_unit_test(threads_write_ranges_that_share_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
