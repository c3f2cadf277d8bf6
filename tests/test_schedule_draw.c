/* test_schedule_draw.c -- schedules as drawings and traces; allocations that fail on the way there. */
#include "schedule_case.h"
#include "schedule_text.h"

#include <jansson.h>

#include "base/files.h"
#include "base/trace.h"
#include "parallel/pipeline/balance.h"
#include "parallel/pipeline/draw.h"
#include "report/schedule_svg.h"

TEST(drawings_show_ranks_and_time)
{
    pipe_case k = begin();
    orth_text t = {0};
    const orth_schedule s = make(&k, "1f1b", 2, 1, 3), v = make(&k, "zb-v", 2, 2, 2);
    const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0), sim_v = simulate(&k, &v, 1, 1, 1, 0);
    orth_schedule_draw(k.ctx, &t, &s, &sim, 0, 0);
    assert_string_equal(t.s, "rank 0 |F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2\n"
                             "rank 1 |.  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .\n");
    t.num_bytes = 0;
    orth_schedule_draw(k.ctx, &t, &s, &sim, 0, 3);
    assert_string_equal(t.s, "rank 0 |F0 F1 . ...\nrank 1 |.  F0 B0 ...\n");
    t.num_bytes = 0;
    orth_schedule_draw(k.ctx, &t, &v, &sim_v, 0, 0);
    assert_string_equal(t.s, "rank 0 |F0a F1a .   F0b I0b F1b I1b I0a W0b I1a W1b W0a W1a\n"
                             "rank 1 |.   F0a F0b F1a F1b I0b I0a I1b I1a W0b W0a W1b W1a\n");
    t.num_bytes = 0;
    orth_schedule_report(k.ctx, &t, &s, &sim);
    assert_non_null(strstr(t.s, "time 12, bubble 3; ranks idle 25.0% of it on average"));
    for (const char *line = t.s; *line; line = strchr(line, '\n') + 1)
        assert_true(strcspn(line, "\n") <= 60);
    orth_mem_free(k.ctx, t.s);
    end(&k);
}

/* As wide as asked for and no wider; one column is always shown. */
TEST(drawings_are_cut_to_a_width)
{
    pipe_case k = begin();
    const orth_schedule s = make(&k, "interleaved", 4, 2, 16);
    const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0);
    for (int width = 20; width < 300; width += 7) {
        orth_text t = {0};
        size_t longest = 0;
        orth_schedule_draw(k.ctx, &t, &s, &sim, 0, orth_schedule_columns(&s, width));
        for (const char *line = t.s; *line; line += strcspn(line, "\n") + 1)
            longest = ORTH_MAX(longest, strcspn(line, "\n"));
        assert_true(longest <= (size_t)width && (longest + 12 > (size_t)width || !strstr(t.s, "...")));
        orth_mem_free(k.ctx, t.s);
    }
    assert_int_equal(orth_schedule_columns(&s, 3), 1);
    end(&k);
}

/* A box for each action, whose sides are its times on the axis. */
TEST(pictures_of_schedules_have_a_box_for_each_action)
{
    pipe_case k = begin();
    const orth_schedule s = make(&k, "zb-h1", 3, 1, 4);
    const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0);
    const orth_span *spans[3];
    orth_text t = {0};
    int boxes = 0, actions = 0;
    for (int r = 0; r < 3; r++) {
        spans[r] = sim.ranks[r].spans;
        actions += s.lists[r].num_actions;
    }
    orth_schedule_svg(k.ctx, &t, &s, spans, sim.makespan, "units");
    for (const char *at = t.s; (at = strstr(at, "<title>")); at++) {
        double begin_x, width, from, to;
        const char *rect = at;
        while (strncmp(rect, "<rect", 5) != 0)
            rect--;
        assert_int_equal(sscanf(rect, "<rect x=\"%lf\" y=\"%*d\" width=\"%lf\"", &begin_x, &width), 2);
        assert_int_equal(sscanf(strstr(at, ": ") + 2, "%lf to %lf", &from, &to), 2);
        assert_true(width * sim.makespan / (to - from) > 880 && width * sim.makespan / (to - from) < 888);
        boxes++;
    }
    assert_int_equal(boxes, actions);
    assert_true(strstr(t.s, "</svg>\n") == t.s + t.num_bytes - 7 && !strstr(t.s, "href"));
    orth_mem_free(k.ctx, t.s);
    end(&k);
}

/* The page shows, for each schedule, what is drawn here; on a difference, paste what this prints. */
TEST(docs_show_what_is_drawn)
{
    pipe_case k = begin();
    char *page;
    size_t num_bytes;
    const orth_schedule_kind *kind;
    CHECK_OK(k.ctx, orth_file_read(k.ctx, ORTH_TEST_DIR "/../docs/pipeline.md", &page, &num_bytes));
    for (int i = 0; (kind = orth_schedule_kind_get(i)); i++) {
        const int v = virtual_of(kind), m = strcmp(kind->name, "naive") == 0 ? 2 : 4;
        const orth_schedule s = make(&k, kind->name, 4, v, m);
        const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0);
        orth_text t = {0};
        orth_schedule_draw(k.ctx, &t, &s, &sim, 0, 0);
        orth_schedule_report(k.ctx, &t, &s, &sim);
        if (!strstr(page, t.s))
            fail_msg("docs/pipeline.md: pipeline=%s draws as\n%s", kind->name, t.s);
        orth_mem_free(k.ctx, t.s);
    }
    orth_mem_free(k.ctx, page);
    end(&k);
}

TEST(traces_are_json)
{
    pipe_case k = begin();
    orth_trace trace = {0};
    orth_trace_group(k.ctx, &trace, 3, "rank 3");
    orth_trace_row(k.ctx, &trace, 3, 1, "compute");
    orth_trace_span(k.ctx, &trace, 3, 1, "a \"quoted\"\nname", "copy", 1234567890123456, 1234567890123457, NULL);
    char *text = orth_trace_take(k.ctx, &trace);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    const json_t *events = json_object_get(root, "traceEvents"), *span = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(json_string_value(json_object_get(span, "ph")), "X");
    assert_string_equal(json_string_value(json_object_get(span, "name")), "a \"quoted\"\nname");
    assert_non_null(strstr(text, "\"ts\": 1234567890123.456, \"dur\": 0.001"));
    json_decref(root);
    orth_mem_free(k.ctx, text);
    text = orth_trace_take(k.ctx, &trace); /* empty again */
    assert_string_equal(text, "{\"traceEvents\": []}\n");
    orth_mem_free(k.ctx, text);
    orth_trace_group(k.ctx, &trace, 0, "rank 0");
    orth_trace_release(k.ctx, &trace);
    end(&k);
}

/* ---- failing allocations ---- */

static orth_status all_of_it(orth_ctx *ctx, orth_arena *arena)
{
    orth_schedule s, back;
    orth_sim sim;
    const orth_chunk_times t[6] = {{{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0},
                                   {{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0}};
    const int64_t cost[6] = {1, 1, 1, 1, 1, 1};
    int32_t at[7];
    ORTH_TRY(orth_schedule_make(ctx, arena, &s, "zb-v", 3, 2, 4));
    ORTH_TRY(orth_schedule_check_in_order(ctx, &s));
    ORTH_TRY(orth_schedule_simulate(ctx, arena, &s, t, &sim));
    const char *text = schedule_text(ctx, arena, &s);
    if (!text)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_schedule_parse(ctx, arena, &back, "f", text, strlen(text), 3, 2, 4));
    ORTH_TRY(orth_balance_layers(ctx, cost, 6, 1, 1, 3, at));
    return ORTH_OK;
}

TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    orth_ctx *ctx = test_ctx(1);
    orth_faults faults = {0};
    int n = 1;
    for (orth_status status = ORTH_ERR_NOMEM; status != ORTH_OK; n++) {
        orth_arena arena = {0};
        faults.alloc = n;
        faults.sticky = n % 2;
        ctx->faults = &faults;
        status = all_of_it(ctx, &arena);
        ctx->faults = NULL;
        assert_true(status == ORTH_OK || (status == ORTH_ERR_NOMEM && ctx->error.code == ORTH_ERR_NOMEM));
        orth_arena_release(ctx, &arena);
        orth_ctx_clear_error(ctx);
        assert_in_range(n, 1, 1000);
    }
    assert_true(n > 10);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawings_show_ranks_and_time),
        cmocka_unit_test(drawings_are_cut_to_a_width),
        cmocka_unit_test(pictures_of_schedules_have_a_box_for_each_action),
        cmocka_unit_test(docs_show_what_is_drawn),
        cmocka_unit_test(traces_are_json),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
