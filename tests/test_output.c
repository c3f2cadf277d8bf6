/* test_output.c -- what a run says: the lines for people, metrics.jsonl, and event files for TensorBoard. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <pty.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "run_case.h"

static json_t *metrics_of(run_case *r, const char *name)
{
    char *text = run_read(r, name, NULL), *save = NULL;
    json_t *rows = json_array();
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        json_array_append_new(rows, row);
    }
    free(text);
    return rows;
}

static double number(json_t *row, const char *key)
{
    json_t *v = json_object_get(row, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

TEST(a_run_says_what_it_is_before_its_first_step_and_what_it_did_after_its_last)
{
    run_case *r = run_begin();
    RUN(r, 0, "model   gpt2, ", "train run.yaml train.steps=6 parallel.dp=2 train.micro_batch=1 train.log_every=3");
    static const char *const lines[] = {
        " heads, vocabulary 300\ndata    ", " a step (6 sequences of 32): steps 1 to 6 are ", " epochs\n",
        "ranks   2 (dp 2, tp 1, pp 1, cp 1; zero 0), 1 threads a rank; fp32, numerics reproducible\n", "plan    0.0", "folder  a\nstep      3/6",
        "rank 0 waited for communication in ", " targets)\ndone: step 6; 6 steps, 1152 tokens in 0:00:0", "; best evaluation: loss ", "\nnext: orthant generate a --prompt='...'\n"};
    for (int i = 0; i < ORTH_COUNT(lines); i++)
        if (!strstr(r->out, lines[i]))
            fail_msg("it did not say \"%s\":\n%s", lines[i], r->out);
    RUN(r, 0, "folder  a, continues after step 6 from a/checkpoints/step-00000006\n", "train run.yaml train.steps=7 --resume");
    RUN(r, 0, "folder  b, starts with the weights of a/checkpoints/step-00000007\n", "train run.yaml train.steps=1 checkpoint.dir=b --init=a");
    run_end(r);
}

TEST(a_line_shows_the_mean_loss_since_the_line_before_it)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "train run.yaml train.steps=7 train.log_every=3");
    json_t *rows = metrics_of(r, "a/metrics.jsonl");
    const char *at = r->out;
    for (int first = 0, end; first < 7; first = end) {
        double sum = 0;
        char line[64], wanted[64];
        end = ORTH_MIN(first + 3, 7); /* the last line is that of the last step */
        for (int i = first; i < end; i++)
            sum += number(json_array_get(rows, (size_t)i), "loss");
        snprintf(line, sizeof line, "step %6d/7", end);
        snprintf(wanted, sizeof wanted, "loss %8.4f ", sum / (end - first));
        at = strstr(at, line);
        assert_non_null(at);
        if (strncmp(strstr(at, "loss"), wanted, strlen(wanted)) != 0)
            fail_msg("wanted \"%s\": %.200s", wanted, at);
    }
    json_decref(rows);
    run_end(r);
}

/* On a terminal: the program writes on one of 120 columns, until the live line was there three times; then Ctrl-C. */
TEST(the_live_line_moves_between_the_lines_of_log_every)
{
    run_case *r = run_begin();
    const struct winsize size = {.ws_row = 40, .ws_col = 120};
    int terminal;
    const pid_t child = forkpty(&terminal, NULL, NULL, &size);
    assert_true(child >= 0);
    if (child == 0) {
        if (chdir(r->dir) == 0)
            execl(ORTH_BINARY, "orthant", "train", "run.yaml", "train.steps=100000000", "train.log_every=50000000", (char *)NULL);
        _exit(98);
    }
    size_t n = 0;
    int refreshed = 0, status;
    while (refreshed < 3 && n < sizeof r->out - 1) {
        const ssize_t k = read(terminal, r->out + n, sizeof r->out - 1 - n);
        if (k <= 0)
            break;
        n += (size_t)k;
        r->out[n] = '\0';
        refreshed = 0;
        for (const char *at = r->out; (at = strstr(at, " loss ")) != NULL; at++)
            refreshed++;
    }
    assert_int_equal(write(terminal, "\003", 1), 1);
    char rest[4096];
    while (read(terminal, rest, sizeof rest) > 0)
        ;
    assert_int_equal(waitpid(child, &status, 0), child);
    close(terminal);
    if (refreshed < 3 || !WIFEXITED(status) || WEXITSTATUS(status) != 130)
        fail_msg("%d refreshes, status %x:\n%s", refreshed, (unsigned)status, r->out);
    run_end(r);
}

TEST(a_row_has_the_time_and_what_does_not_change_stands_once)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "train run.yaml train.steps=5 parallel.dp=2 train.micro_batch=1 parallel.zero=1 train.eval_every=2 --quiet");
    json_t *rows = metrics_of(r, "a/metrics.jsonl"), *row;
    size_t i;
    double time = 1.7e9, elapsed = 0, resident = 0;
    int with_traffic = 0;
    json_array_foreach(rows, i, row) {
        assert_true(number(row, "time") >= time && number(row, "elapsed_s") >= elapsed);
        time = number(row, "time");
        elapsed = number(row, "elapsed_s");
        with_traffic += json_object_get(row, "comm_bytes") != NULL;
        const json_t *peak = json_object_get(row, "peak_bytes"); /* where it changes; it never falls */
        assert_true(!peak || json_number_value(peak) > resident);
        resident = peak ? json_number_value(peak) : resident;
    }
    assert_int_equal(with_traffic, 1);
    assert_non_null(json_object_get(json_array_get(rows, 0), "comm_bytes"));
    assert_true(elapsed < 600 && resident > 1 << 20);
    json_decref(rows);
    run_end(r);
}

/* Records of the only event file of the folder, whose lengths must be those of the file. */
static int count_events(run_case *r, const char *folder, int64_t *float_values)
{
    char dir[256], name[256] = "";
    snprintf(dir, sizeof dir, "%s/%s", r->dir, folder);
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0)
            snprintf(name, sizeof name, "%s/%.150s", folder, e->d_name);
    closedir(d);
    size_t n;
    char *bytes = run_read(r, name, &n);
    int records = 0;
    for (size_t at = 0; at < n; records++) {
        uint64_t length;
        assert_true(at + 16 <= n);
        memcpy(&length, bytes + at, 8);
        assert_true(at + 16 + length <= n);
        for (size_t k = at + 12; k + 4 < at + 12 + length; k++)
            *float_values += memcmp(bytes + k, "\x0a\x04loss", 6) == 0;
        at += 16 + length;
    }
    free(bytes);
    return records;
}

TEST(an_event_file_has_a_record_for_each_step_and_evaluation)
{
    run_case *r = run_begin();
    int64_t losses = 0;
    RUN(r, 0, "", "train run.yaml train.steps=5 train.eval_every=2 log.tensorboard=true --quiet");
    assert_int_equal(count_events(r, "a/tensorboard", &losses), 2 + 5 + 3); /* two that open it; evaluations after 2, 4 and at the end */
    assert_int_equal(losses, 5);
    RUN(r, 0, "", "train run.yaml train.steps=2 checkpoint.dir=b --quiet");
    assert_false(run_has(r, "b/tensorboard"));
    run_end(r);
}

/* Once for MFU, and a third as long each for the two rates of the planned time. */
TEST(the_peak_is_measured_for_as_long_as_is_asked)
{
    run_case *r = run_begin();
    const double start = orth_clock_s();
    RUN(r, 0, "", "train run.yaml train.steps=1 run.probe_s=0.9 --quiet");
    assert_true(orth_clock_s() - start >= 0.9 + 2 * 0.3);
    RUN(r, 2, "run.probe_s=0", "plan run.yaml run.probe_s=0");
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_says_what_it_is_before_its_first_step_and_what_it_did_after_its_last),
        cmocka_unit_test(a_line_shows_the_mean_loss_since_the_line_before_it),
        cmocka_unit_test(the_live_line_moves_between_the_lines_of_log_every),
        cmocka_unit_test(a_row_has_the_time_and_what_does_not_change_stands_once),
        cmocka_unit_test(an_event_file_has_a_record_for_each_step_and_evaluation),
        cmocka_unit_test(the_peak_is_measured_for_as_long_as_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
