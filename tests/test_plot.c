/* test_plot.c -- metrics.jsonl read back: pictures in characters and SVG, tables in CSV. */
#include <math.h>

#include "report/plot.h"
#include "run_case.h"

static const char metrics[] =
    "{\"step\": 1, \"loss\": 4.0, \"lr\": 0.5, \"skipped\": false, \"comm_bytes\": {\"dp\": {\"all_reduce\": 12}}, \"samples\": [0, 8]}\n"
    "{\"step\": 2, \"loss\": null, \"lr\": 0.25, \"skipped\": true}\n"
    "{\"step\": 2, \"eval_loss\": 3.5, \"note\": \"a \\\"b\\\", c\", \"time\": 1795565191.922}\n"
    "{\"step\": 3, \"loss\": 2.0, \"lr\": 0.125, \"skipped\": false}\n"
    "{\"step\": 4, \"lo"; /* being written */

static void write_metrics(run_case *r, const char *text)
{
    run_write(r, "m.jsonl", text, strlen(text));
}

TEST(a_series_has_the_steps_that_have_the_number)
{
    run_case *r = run_begin();
    char path[256];
    orth_series s;
    write_metrics(r, metrics);
    snprintf(path, sizeof path, "%s/m.jsonl", r->dir);
    CHECK_OK(r->ctx, orth_history_series(r->ctx, &s, path, "loss"));
    assert_int_equal(s.num_points, 2);
    assert_true(s.points[0].step == 1 && s.points[0].value == 4 && s.points[1].step == 3 && s.points[1].value == 2);
    orth_series_release(r->ctx, &s);
    CHECK_OK(r->ctx, orth_history_series(r->ctx, &s, path, "nothing"));
    assert_int_equal(s.num_points, 0);
    orth_series_release(r->ctx, &s);
    run_end(r);
}

TEST(a_table_has_every_number_once)
{
    run_case *r = run_begin();
    write_metrics(r, metrics);
    RUN(r, 0, "run,step,loss,lr,skipped,comm_bytes.dp.all_reduce,eval_loss,note,time\n"
              "m.jsonl,1,4,0.5,false,12,,,\n"
              "m.jsonl,2,,0.25,true,,,,\n"
              "m.jsonl,2,,,,,3.5,\"a \"\"b\"\", c\",1795565191.922\n"
              "m.jsonl,3,2,0.125,false,,,,\n", "plot m.jsonl --csv=-");
    run_end(r);
}

TEST(a_column_of_the_picture_is_the_mean_of_its_steps)
{
    orth_ctx *ctx = test_ctx(1);
    orth_point points[40];
    for (int i = 0; i < 40; i++) /* a line with a zigzag that the means of two take away */
        points[i] = (orth_point){i + 1, (i / 2) + (i % 2 ? 100 : -100)};
    const orth_series s = {"run", points, 40};
    const orth_plot p = {.series = &s, .num_series = 1, .title = "loss"};
    orth_text t = {0};
    orth_plot_text(ctx, &t, &p, 20, 11);
    assert_false(t.failed);
    /* -100 .. 119: the means 0 .. 19 lie within one row of its middle. */
    int rows_with_points = 0, points_drawn = 0;
    for (char *save = NULL, *line = strtok_r(t.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *bar = strchr(line, '|');
        int n = 0;
        for (char *c = bar ? bar : ""; *c; c++)
            n += *c == '*';
        rows_with_points += n > 0;
        points_drawn += n;
    }
    assert_int_equal(points_drawn, 20);
    assert_true(rows_with_points <= 3);
    orth_mem_free(ctx, t.s);
    test_ctx_free(ctx);
}

TEST(a_run_is_drawn_with_its_evaluations_and_beside_another)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "train run.yaml train.eval_every=4 --quiet");
    RUN(r, 0, "", "train run.yaml checkpoint.dir='<b>' optimizer.lr=1e-4 --quiet");
    RUN(r, 0, "E evaluation", "plot a");
    assert_non_null(strstr(r->out, "* a\n"));
    assert_null(strstr(r->out, "+ <b>"));
    RUN(r, 0, "+ <b>", "plot a '<b>'");
    RUN(r, 0, "tokens_per_s\n", "plot a --metric=tokens_per_s --log");
    RUN(r, 0, "", "plot a '<b>' --svg=p.svg");
    char *svg = run_read(r, "p.svg", NULL);
    int lines = 0, circles = 0;
    for (char *at = svg; (at = strstr(at, "<polyline")) != NULL; at++)
        lines++;
    for (char *at = svg; (at = strstr(at, "<circle")) != NULL; at++)
        circles++;
    assert_int_equal(lines, 2);
    assert_int_equal(circles, 3); /* after steps 4 and 8, and the other run's at its end */
    assert_non_null(strstr(svg, "&#60;b&#62;"));
    assert_null(strstr(svg, "nan"));
    free(svg);
    run_end(r);
}

/* Values of a series, in order. */
static void check_series(const orth_series *s, int num, const orth_point *want)
{
    assert_int_equal(s->num_points, num);
    for (int i = 0; i < num; i++)
        assert_true(s->points[i].step == want[i].step && s->points[i].value == want[i].value);
}

TEST(a_series_is_averaged_over_the_steps_before_and_less_another_at_the_same_steps)
{
    orth_point a[] = {{1, 4}, {2, 2}, {4, 6}, {5, 8}}, b[] = {{2, 1}, {3, 100}, {4, 2}, {5, 3}, {6, 9}};
    orth_series s = {"a", a, 4};
    const orth_series base = {"b", b, 5};
    orth_series_average(&s, 1);
    check_series(&s, 4, (orth_point[]){{1, 4}, {2, 2}, {4, 6}, {5, 8}});
    orth_series_subtract(&s, &base);
    check_series(&s, 3, (orth_point[]){{2, 1}, {4, 4}, {5, 5}});
    orth_series_average(&s, 2);
    check_series(&s, 2, (orth_point[]){{4, 2.5}, {5, 4.5}});
    orth_series_average(&s, 3);
    assert_int_equal(s.num_points, 0);
    orth_point spike[] = {{1, 2}, {2, 1e20}, {3, 2}, {4, 3}, {5, 4}};
    s = (orth_series){"spike", spike, 5};
    orth_series_average(&s, 2);
    check_series(&s, 4, (orth_point[]){{2, 5e19}, {3, 5e19}, {4, 2.5}, {5, 3.5}});
}

TEST(runs_are_drawn_as_differences_to_one_with_means_and_a_caption)
{
    static const char other[] = "{\"step\": 1, \"loss\": 4.25}\n{\"step\": 2, \"loss\": 3.75}\n{\"step\": 3, \"eval_loss\": 2}\n";
    run_case *r = run_begin();
    write_metrics(r, "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3}\n{\"step\": 3, \"loss\": 2}\n{\"step\": 3, \"eval_loss\": 2.5}\n");
    run_write(r, "n.jsonl", other, strlen(other));
    RUN(r, 0, "loss less that of m.jsonl, means of 2 steps\nseed 1 <&>\n", "plot n.jsonl --minus=m.jsonl --mean=2 --caption='seed 1 <&>'");
    assert_non_null(strstr(r->out, "\n        0.5 |")); /* (0.25 + 0.75) / 2, and the evaluation's -0.5 */
    assert_non_null(strstr(r->out, "\n       -0.5 |"));
    RUN(r, 0, "", "plot n.jsonl --minus=m.jsonl --caption='seed 1 <&>' --svg=d.svg");
    char *svg = run_read(r, "d.svg", NULL);
    assert_non_null(strstr(svg, ">seed 1 &#60;&#38;&#62;<"));
    assert_non_null(strstr(svg, ">loss less that of m.jsonl<"));
    assert_non_null(strstr(svg, "text-anchor=\"start\" fill=\"#0072b2\">n.jsonl<")); /* it rises: names stand on the left */
    free(svg);
    RUN(r, 2, "plot: --minus and --log: one at a time", "plot n.jsonl --minus=m.jsonl --log");
    RUN(r, 2, "plot: --mean=3: n.jsonl have fewer steps with 'loss'", "plot n.jsonl --mean=3");
    RUN(r, 2, "has a number 'lr' at a step of m.jsonl", "plot n.jsonl --minus=m.jsonl --metric=lr");
    RUN(r, 2, "--mean=0", "plot n.jsonl --mean=0");
    RUN(r, 2, "nowhere: there is no such file", "plot n.jsonl --minus=nowhere");
    run_end(r);
}

TEST(what_cannot_be_drawn_is_named)
{
    run_case *r = run_begin();
    RUN(r, 2, "plot: which run?", "plot");
    RUN(r, 2, "nowhere: there is no such file: give a run folder or a metrics.jsonl", "plot nowhere");
    RUN(r, 2, "shards/metrics.jsonl: there is no such file", "plot shards");
    RUN(r, 2, "9 runs; at most 8 can be told apart", "plot a a a a a a a a a");
    RUN(r, 2, "--csv and --svg: one at a time", "plot a --csv=x --svg=y");
    write_metrics(r, metrics);
    RUN(r, 2, "no line of m.jsonl has a number 'mfu'", "plot m.jsonl --metric=mfu");
    write_metrics(r, "{\"step\": 1, \"loss\": 1}\nnot json\n");
    RUN(r, 5, "m.jsonl: line 2", "plot m.jsonl");
    write_metrics(r, "{\"step\": 1, \"loss\": 1e308}\n{\"step\": 1, \"loss\": -1e308}\n{\"step\": 7, \"loss\": 0}\n");
    RUN(r, 0, "m.jsonl", "plot m.jsonl --svg=q.svg && echo m.jsonl");
    char *svg = run_read(r, "q.svg", NULL); /* what no axis could hold is left out */
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    free(svg);
    RUN(r, 0, "m.jsonl", "plot m.jsonl --log"); /* nothing but one is positive */
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_series_has_the_steps_that_have_the_number),
        cmocka_unit_test(a_table_has_every_number_once),
        cmocka_unit_test(a_column_of_the_picture_is_the_mean_of_its_steps),
        cmocka_unit_test(a_run_is_drawn_with_its_evaluations_and_beside_another),
        cmocka_unit_test(a_series_is_averaged_over_the_steps_before_and_less_another_at_the_same_steps),
        cmocka_unit_test(runs_are_drawn_as_differences_to_one_with_means_and_a_caption),
        cmocka_unit_test(what_cannot_be_drawn_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
