/* test_base.c -- ctx, heap, pool, files, canonical parts. */
#include <jansson.h>

#include "base/crew.h"
#include "base/index_set.h"
#include "base/json_out.h"
#include "base/radix.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <math.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/files.h"
#include "base/rng.h"
#include "tensor/parts.h"

TEST(the_first_error_wins)
{
    orth_ctx *ctx = test_ctx(1);
    ORTH_FAIL(ctx, ORTH_ERR_ARG, "tp=%d does not divide heads=%d", 3, 32);
    ORTH_FAIL(ctx, ORTH_ERR_IO, "second");
    assert_int_equal(ctx->error.code, ORTH_ERR_ARG);
    assert_string_equal(ctx->error.message, "tp=3 does not divide heads=32");
    test_ctx_free(ctx);
}

TEST(every_allocation_can_be_made_to_fail)
{
    orth_ctx *ctx = test_ctx(1);
    orth_faults faults = {.alloc = 2};
    ctx->faults = &faults;
    void *p = orth_mem_alloc(ctx, 10);
    assert_non_null(p);
    assert_null(orth_mem_alloc(ctx, 10));
    assert_int_equal(ctx->error.code, ORTH_ERR_NOMEM);
    orth_mem_free(ctx, p);
    ctx->faults = NULL;
    test_ctx_free(ctx);
}

/* z is the number below which a normal one falls with the probability that its word says, wherever it is cut. */
TEST(normal_numbers_are_words_of_the_generator_inverted)
{
    static float all[1000];
    const int64_t first = ((int64_t)1 << 34) - 512; /* the low half of the counter overflows on the way */
    orth_rand_normals(all, 1000, 7, ORTH_STREAM_TEST, 3, first);
    for (int64_t i = 0; i < 1000; i++) {
        orth_rand4 r = orth_philox(7, ORTH_STREAM_TEST, 3, (uint64_t)(first + i) / 4);
        double u = ((double)(r.v[i % 4] >> 8) + 0.5) * 0x1p-24;
        assert_true(fabs(0.5 * erfc(-(double)all[i] / sqrt(2.0)) - u) < 1e-6);
        float four[4];
        orth_rand_normals(four, 4, 7, ORTH_STREAM_TEST, 3, first + i / 4 * 4);
        assert_memory_equal(&four[i % 4], &all[i], sizeof(float));
    }
}

static void count_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    atomic_fetch_add((_Atomic int *)arg + i, 1);
}

TEST(the_pool_runs_every_task_once)
{
    for (int threads = 1; threads <= 7; threads++) {
        orth_ctx *ctx = test_ctx(threads);
        for (int64_t n = 0; n < 200; n += 13) {
            _Atomic int hits[200] = {0};
            for (int repeat = 0; repeat < 5; repeat++)
                orth_pool_run(ctx->pool, n, count_task, hits);
            for (int64_t i = 0; i < 200; i++)
                assert_int_equal(hits[i], i < n ? 5 : 0);
        }
        test_ctx_free(ctx);
    }
}

typedef struct {
    int64_t done[40];
    int64_t fails_from;
} crew_work;

/* Each piece has a ctx that it may allocate with and whose error is its own. */
static orth_status crew_piece(orth_ctx *ctx, void *arg, int64_t index)
{
    crew_work *w = arg;
    char *text = orth_mem_printf(ctx, "piece %d", (int)index);
    if (!text)
        return ORTH_ERR_NOMEM;
    w->done[index]++;
    const orth_status s = index < w->fails_from ? ORTH_OK : ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s fails", text);
    orth_mem_free(ctx, text);
    return s;
}

TEST(a_crew_does_every_piece_once_and_tells_the_first_failure)
{
    orth_ctx *ctx = test_ctx(1);
    orth_faults faults = {.alloc = 0};
    for (int threads = 1; threads <= 5; threads++) {
        crew_work all = {.fails_from = 40}, some = {.fails_from = 0};
        CHECK_OK(ctx, orth_crew_run(ctx, threads, 40, crew_piece, &all));
        for (int i = 0; i < 40; i++)
            assert_int_equal(all.done[i], 1);
        CHECK_FAILS(ctx, ORTH_ERR_ARG, "fails", orth_crew_run(ctx, threads, 40, crew_piece, &some));
        int64_t begun = 0;
        for (int i = 0; i < 40; i++)
            begun += some.done[i];
        assert_in_range(begun, 1, threads); /* a thread that failed begins no other piece */
    }
    ctx->faults = &faults;
    for (int64_t k = 1, failures = 1; failures > 0; k++) { /* each allocation of threads, their ctx and the pieces */
        crew_work w = {.fails_from = 40};
        faults.alloc = k;
        failures = orth_crew_run(ctx, 3, 3, crew_piece, &w) != ORTH_OK;
        assert_true(failures == 0 || ctx->error.code == ORTH_ERR_NOMEM);
        orth_ctx_clear_error(ctx);
    }
    ctx->faults = NULL;
    test_ctx_free(ctx);
}

TEST(a_failed_write_leaves_the_old_file)
{
    orth_ctx *ctx = test_ctx(1);
    char path[] = "/tmp/orth_test_XXXXXX";
    close(mkstemp(path));
    CHECK_OK(ctx, orth_file_write(ctx, path, "old", 3));
    for (int n = 1; n <= 2; n++) { /* the write itself, then the sync */
        orth_faults faults = {.write = n};
        ctx->faults = &faults;
        assert_int_not_equal(orth_file_write(ctx, path, "newer", 5), ORTH_OK);
        orth_ctx_clear_error(ctx);
        ctx->faults = NULL;
        char *text;
        size_t size;
        CHECK_OK(ctx, orth_file_read(ctx, path, &text, &size));
        assert_string_equal(text, "old");
        orth_mem_free(ctx, text);
    }
    CHECK_OK(ctx, orth_path_remove(ctx, path));
    test_ctx_free(ctx);
}

/* As root, a rename would replace /dev/null itself. */
/* What was there before stays, whatever fails, and so does what somebody put into it. */
TEST(a_folder_for_results_goes_after_a_failure_if_it_was_made_for_them_and_is_empty)
{
    static const struct { const char *name; bool before, filled, stays; } cases[] = {
        {"a", false, false, false}, {"b/c", false, false, false}, {"d/", false, false, false}, {"e", true, false, true}, {"f", false, true, true}};
    orth_ctx *ctx = test_ctx(1);
    char dir[] = "/tmp/orthant-test-XXXXXX", path[64], file[80];
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_result_folder f;
        snprintf(path, sizeof path, "%s/%s", dir, cases[i].name);
        snprintf(file, sizeof file, "%s/file", path);
        if (cases[i].before)
            CHECK_OK(ctx, orth_path_make_dirs(ctx, path));
        CHECK_OK(ctx, orth_result_folder_begin(ctx, &f, path));
        if (cases[i].filled)
            CHECK_OK(ctx, orth_file_write(ctx, file, "x", 1));
        assert_int_equal(orth_result_folder_end(&f, ORTH_ERR_IO), ORTH_ERR_IO);
        assert_int_equal(orth_path_is_dir(path), cases[i].stays);
    }
    CHECK_OK(ctx, orth_path_remove(ctx, dir));
    test_ctx_free(ctx);
}

TEST(a_pipe_or_device_is_written_and_stays_one)
{
    orth_ctx *ctx = test_ctx(1);
    char dir[] = "/tmp/orth_test_XXXXXX", path[64], got[6] = "";
    struct stat st;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    const int reader = open(path, O_RDWR | O_NONBLOCK);
    assert_true(reader >= 0);
    CHECK_OK(ctx, orth_file_write(ctx, path, "bytes", 5));
    assert_int_equal(read(reader, got, 5), 5);
    assert_string_equal(got, "bytes");
    assert_true(stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    close(reader);
    CHECK_OK(ctx, orth_path_remove(ctx, dir));
    test_ctx_free(ctx);
}

TEST(fold_order_is_a_permutation_and_its_own_inverse_pair)
{
    for (int parts = 1; parts <= 16; parts *= 2) {
        for (int64_t T = 1; T < 70; T++) {
            char seen[70] = {0};
            for (int64_t row = 0; row < T; row++) {
                int64_t pos = orth_fold_pos(T, parts, row);
                assert_in_range(pos, 0, T - 1);
                assert_int_equal(seen[pos]++, 0);
                assert_int_equal(orth_fold_row(T, parts, pos), row);
            }
        }
    }
}

TEST(qkv_parts_cover_the_rows_and_start_with_k_and_v)
{
    /* 6 query heads of 4, 2 kv heads: per group k, v, then 3 queries = 5 heads of rows. */
    orth_split s = {ORTH_SPLIT_QKV, 4, 6, 4, 3};
    const int64_t want[] = {0, 12, 20, 32, 40}; /* query heads 0 | 1,2 | 3 | 4,5 */
    for (int i = 0; i <= 4; i++)
        assert_int_equal(orth_split_bound(&s, i), want[i]);
}

/* Beside an array of what is in it, over sets that are empty, sparse and full. */
TEST(a_set_of_indices_finds_its_neighbours)
{
    static const int sizes[] = {1, 63, 64, 65, 4096, 4097, 5000};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(sizes); k++) {
        const int n = sizes[k];
        orth_arena arena = {0};
        orth_index_set s;
        bool in[5000] = {false};
        CHECK_OK(ctx, orth_index_set_make(ctx, &arena, &s, n));
        for (int step = 0; step < 3000; step++) {
            const int i = (int)test_rand_int((uint64_t)k, (uint64_t)(2 * step), 0, n - 1);
            const int at = (int)test_rand_int((uint64_t)k, (uint64_t)(2 * step + 1), 0, n - 1);
            in[i] = step % 1000 < 20 || step % 3 != 0;
            if (in[i])
                orth_index_set_add(&s, i);
            else
                orth_index_set_remove(&s, i);
            int above = at, below = at;
            while (above < n && !in[above])
                above++;
            while (below >= 0 && !in[below])
                below--;
            assert_int_equal(orth_index_set_at_or_above(&s, at), above < n ? above : -1);
            assert_int_equal(orth_index_set_at_or_below(&s, at), below);
            assert_int_equal(orth_index_set_has(&s, at), in[at]);
        }
        orth_arena_release(ctx, &arena);
    }
    test_ctx_free(ctx);
}

static uint64_t random_key(uint64_t seed, uint64_t i)
{
    return (uint64_t)test_rand_int(seed, 2 * i, 0, UINT32_MAX) << 32 | (uint64_t)test_rand_int(seed, 2 * i + 1, 0, UINT32_MAX);
}

/* Few bits of a key, and so many equal ones, or all; none at all. */
TEST(sorted_by_digits_keys_ascend_and_equal_ones_keep_their_order)
{
    static const uint64_t masks[] = {0, 3, 0x7ff, 0x800, 0xfff000, 0xff00000000000001, UINT64_MAX};
    for (int m = 0; m < ORTH_COUNT(masks); m++)
        for (int32_t n = 0; n < 300; n += 1 + n / 3) {
            orth_keyed v[300], room[300];
            for (int32_t i = 0; i < n; i++)
                v[i] = (orth_keyed){random_key((uint64_t)m, (uint64_t)i) & masks[m], i};
            const orth_keyed *sorted = orth_radix_sort(v, room, n);
            bool seen[300] = {false};
            for (int32_t i = 0; i < n; i++) {
                assert_true(sorted[i].key == (random_key((uint64_t)m, (uint64_t)sorted[i].value) & masks[m]));
                assert_false(seen[sorted[i].value]);
                seen[sorted[i].value] = true;
                assert_true(i == 0 || sorted[i - 1].key < sorted[i].key ||
                            (sorted[i - 1].key == sorted[i].key && sorted[i - 1].value < sorted[i].value));
            }
        }
}

/* Read back by jansson: names with quotes, control bytes and bytes that are no UTF-8 (as printf would show them). */
TEST(json_that_is_written_piece_by_piece_reads_back)
{
    orth_ctx *ctx = test_ctx(1);
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    orth_json_open(&j, NULL, '{');
    orth_json_string(&j, "a \"key\"\\", "line\none\ttab \x01 \"q\" \\");
    orth_json_open(&j, "list", '[');
    orth_json_string(&j, NULL, "bad \xff byte");
    orth_json_print(&j, NULL, "%.3g", 0.25);
    orth_json_open(&j, NULL, '{');
    orth_json_close(&j, '}');
    orth_json_bool(&j, NULL, true);
    orth_json_close(&j, ']');
    orth_json_print(&j, "n", "%d", 7);
    orth_json_close(&j, '}');
    json_t *read = json_loads(text.s, 0, NULL), *list;
    assert_non_null(read);
    assert_string_equal(json_string_value(json_object_get(read, "a \"key\"\\")), "line\none\ttab \x01 \"q\" \\");
    list = json_object_get(read, "list");
    assert_int_equal(json_array_size(list), 4);
    assert_string_equal(json_string_value(json_array_get(list, 0)), "bad \\xff byte");
    assert_true(json_real_value(json_array_get(list, 1)) == 0.25 && json_is_true(json_array_get(list, 3)));
    assert_int_equal(json_object_size(json_array_get(list, 2)), 0);
    assert_int_equal(json_integer_value(json_object_get(read, "n")), 7);
    json_decref(read);
    orth_mem_free(ctx, text.s);
    test_ctx_free(ctx);
}

/* Two levels on lines of their own, what is deeper or empty on one; what JSON cannot say is null. */
TEST(json_stands_on_lines_where_asked)
{
    orth_ctx *ctx = test_ctx(1);
    orth_text text = {0};
    orth_json_out j = {ctx, &text, .lines = 2};
    orth_json_open(&j, NULL, '{');
    orth_json_number(&j, "a", (double)INFINITY);
    orth_json_open(&j, "none", '[');
    orth_json_close(&j, ']');
    orth_json_open(&j, "list", '[');
    for (int i = 0; i < 2; i++) {
        orth_json_open(&j, NULL, '{');
        orth_json_number(&j, "x", i + 0.5);
        orth_json_hex(&j, "bits", i + 0.5);
        orth_json_close(&j, '}');
    }
    orth_json_close(&j, ']');
    orth_json_close(&j, '}');
    assert_string_equal(text.s, "{\n  \"a\": null,\n  \"none\": [],\n  \"list\": [\n    {\"x\": 0.5, \"bits\": \"0x1p-1\"},\n"
                                "    {\"x\": 1.5, \"bits\": \"0x1.8p+0\"}\n  ]\n}");
    orth_text_clear(&text);
    assert_string_equal(text.s, "");
    orth_mem_free(ctx, text.s);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(a_set_of_indices_finds_its_neighbours),
        cmocka_unit_test(sorted_by_digits_keys_ascend_and_equal_ones_keep_their_order),
        cmocka_unit_test(every_allocation_can_be_made_to_fail),
        cmocka_unit_test(normal_numbers_are_words_of_the_generator_inverted),
        cmocka_unit_test(the_pool_runs_every_task_once),
        cmocka_unit_test(a_crew_does_every_piece_once_and_tells_the_first_failure),
        cmocka_unit_test(a_failed_write_leaves_the_old_file),
        cmocka_unit_test(a_folder_for_results_goes_after_a_failure_if_it_was_made_for_them_and_is_empty),
        cmocka_unit_test(a_pipe_or_device_is_written_and_stays_one),
        cmocka_unit_test(fold_order_is_a_permutation_and_its_own_inverse_pair),
        cmocka_unit_test(qkv_parts_cover_the_rows_and_start_with_k_and_v),
        cmocka_unit_test(json_that_is_written_piece_by_piece_reads_back),
        cmocka_unit_test(json_stands_on_lines_where_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
