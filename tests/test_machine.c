/* test_machine.c -- what the machine is said to have, measured peaks, and growing text. */
#define _GNU_SOURCE /* sched_getcpu, pthread_setaffinity_np */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/text.h"
#include "plan/probe.h"

TEST(the_machine_has_cores_and_memory)
{
    orth_machine m;
    orth_machine_query(&m);
    assert_true(m.cores >= 1 && m.cores <= m.online_cpus);
    assert_true(m.memory_available > 0 && m.memory_available <= m.memory_total);
}

TEST(probes_measure_what_the_cpu_has_and_nothing_else)
{
    orth_ctx *ctx = test_ctx(2);
    for (int isa = 0; isa <= (int)orth_isa_detect(); isa++) {
        ctx->isa = (orth_isa)isa;
        for (int k = 0; k < ORTH_NUM_PROBES; k++) {
            double rate = -1;
            bool has = k == ORTH_PROBE_FP32 || k == ORTH_PROBE_COPY ||
                       (k == ORTH_PROBE_BF16 && isa >= ORTH_ISA_AVX512BF16) ||
                       (k == ORTH_PROBE_AMX && isa >= ORTH_ISA_AMX);
            CHECK_OK(ctx, orth_probe_measure(ctx, &rate, (orth_probe)k, 2, 0.005));
            assert_true(has ? rate > 1e6 : rate == 0);
        }
    }
    double rate;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "a probe on 3 threads of a pool of 2",
                orth_probe_measure(ctx, &rate, ORTH_PROBE_FP32, 3, 0.005));
    CHECK_OK(ctx, orth_probe_matmul_peak(ctx, &rate, true, 0.005));
    test_ctx_free(ctx);
}

/* Its buffers, which a long one wants beyond all caches, are filled before. */
TEST(a_short_probe_of_copies_fills_little_memory)
{
    static const struct { double seconds; int64_t least, most; } cases[] = {{0.001, 64 << 10, 6 << 20}, {0.05, 256 << 20, 257 << 20}};
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_ctx *ctx = test_ctx(2);
        double rate;
        CHECK_OK(ctx, orth_probe_measure(ctx, &rate, ORTH_PROBE_COPY, 2, cases[i].seconds));
        assert_in_range(ctx->heap_peak, cases[i].least, cases[i].most);
        assert_true(rate > 1e6);
        test_ctx_free(ctx);
    }
}

static void *compute(void *stop)
{
    while (!atomic_load((_Atomic bool *)stop))
        ;
    return NULL;
}

/* Two threads on one CPU: one of them waits at any moment. */
TEST(time_without_a_cpu_is_counted)
{
    cpu_set_t before, one;
    _Atomic bool stop = false;
    pthread_t other;
    if (orth_machine_starved_ns() < 0)
        skip();
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    assert_int_equal(pthread_create(&other, NULL, compute, &stop), 0);
    const int64_t starved = orth_machine_starved_ns(), end = orth_clock_ns() + 300000000;
    while (orth_clock_ns() < end)
        ;
    assert_true(orth_machine_starved_ns() - starved > 100000000);
    stop = true;
    pthread_join(other, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
}

TEST(the_rate_of_a_file_is_measured_where_there_is_little_room)
{
    orth_ctx *ctx = test_ctx(1);
    struct rlimit before, small = {.rlim_cur = 300000};
    orth_file_rates rates = {.read = 0}, nothing;
    const orth_file_probe probe = {.dir = ".", .io = ORTH_FILE_IO_AUTO, .bytes = ORTH_FILE_PROBE_QUICK_BYTES, .seconds = 0.2};
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    const orth_status little = orth_probe_file(ctx, &rates, &probe);
    small.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &small);
    const orth_status none = orth_probe_file(ctx, &nothing, &probe);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(little, ORTH_OK);
    assert_int_equal(none, ORTH_ERR_NOSPACE);
    assert_true(rates.read > 0 && rates.write > 0 && ctx->error.code == ORTH_ERR_NOSPACE);
    orth_ctx_clear_error(ctx);
    test_ctx_free(ctx);
}

TEST(text_is_wrapped_between_words)
{
    orth_ctx *ctx = test_ctx(1);
    orth_text t = {0};
    orth_text_wrap(ctx, &t, "one two  three extraordinarily four", 0, 2, 10);
    char *s = orth_text_take(ctx, &t);
    assert_string_equal(s, "one two\n  three\n  extraordinarily\n  four\n");
    orth_mem_free(ctx, s);
    test_ctx_free(ctx);
}

TEST(utf8_is_told_from_other_bytes)
{
    static const char *const good[] = {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                       "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82"};
    for (int i = 0; i < ORTH_COUNT(good); i++)
        assert_true(orth_utf8_valid(good[i]));
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        assert_false(orth_utf8_valid(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_has_cores_and_memory),
        cmocka_unit_test(time_without_a_cpu_is_counted),
        cmocka_unit_test(the_rate_of_a_file_is_measured_where_there_is_little_room),
        cmocka_unit_test(probes_measure_what_the_cpu_has_and_nothing_else),
        cmocka_unit_test(a_short_probe_of_copies_fills_little_memory),
        cmocka_unit_test(text_is_wrapped_between_words),
        cmocka_unit_test(utf8_is_told_from_other_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
