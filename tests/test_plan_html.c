/* test_plan_html.c -- `plan --html`: a page that is well formed, loads nothing, and shows the figures of the plan. */
#include "test.h"

#include "tools/plan_html.h"

/* Tags balance, attributes are quoted, text holds no bare `<` or `&`. */
static void check_well_formed(const char *s)
{
    char open[64][16];
    int depth = 0;
    assert_int_equal(strncmp(s, "<!DOCTYPE html>\n", 16), 0);
    for (s += 16; *s; s++) {
        if (*s == '&')
            assert_true(!strncmp(s, "&lt;", 4) || !strncmp(s, "&gt;", 4) || !strncmp(s, "&amp;", 5) || !strncmp(s, "&quot;", 6));
        if (*s != '<')
            continue;
        const char *end = s + 1, *name = s + 1 + (s[1] == '/');
        int quotes = 0;
        for (; *end && (*end != '>' || quotes % 2); end++) {
            quotes += *end == '"';
            assert_true(*end != '<' && (*end != '=' || quotes % 2 || end[1] == '"'));
        }
        assert_true(*end == '>' && quotes % 2 == 0);
        const int n = (int)strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
        assert_true(n > 0 && n < 16);
        if (s[1] == '/') {
            depth--;
            if (depth < 0 || (int)strlen(open[depth]) != n || strncmp(open[depth], name, (size_t)n) != 0)
                fail_msg("</%.*s> closes <%s>", n, name, depth < 0 ? "" : open[depth]);
        } else if (end[-1] != '/') {
            assert_true(depth < 64);
            snprintf(open[depth++], sizeof open[0], "%.*s", n, name);
        }
        s = end;
    }
    assert_int_equal(depth, 0);
}

static void check_loads_nothing(const char *html)
{
    static const char *const words[] = {"<script", "<link", "<img", "<iframe", "<object", "href", "src=", "url(", "@import", "javascript:"};
    for (int i = 0; i < ORTH_COUNT(words); i++)
        if (strstr(html, words[i]))
            fail_msg("the page holds %s", words[i]);
    for (const char *at = html; (at = strstr(at, "://")); at++) /* names of XML, which nobody loads */
        assert_true(strncmp(at - 4, "http://www.w3.org/2000/svg", 26) == 0);
}

static int count(const char *s, const char *word)
{
    int n = 0;
    for (; (s = strstr(s, word)); s++)
        n++;
    return n;
}

typedef struct {
    orth_ctx *ctx;
    orth_run_plan plan;
    orth_model_config model;
    orth_step_detail detail;
    char *html;
} page_case;

/* cluster NULL: this machine, at rates that are made up. The page is well formed and loads nothing. */
static page_case *open_page(const char *run, const char *cluster)
{
    orth_config cfg;
    orth_hardware h;
    orth_cluster_plan c;
    orth_scaling scaling;
    orth_shares shares;
    const orth_rates rates = {1e9, 1e9};
    page_case *x = calloc(1, sizeof *x);
    orth_plan_page page = {.plan = &x->plan, .scaling = &scaling, .flops = 1e9, .bytes = 1e9};
    orth_ctx *ctx = x->ctx = test_ctx(1);
    CHECK_OK(ctx, orth_config_init(ctx, &cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", run, strlen(run)));
    CHECK_OK(ctx, orth_describe_model(ctx, &cfg, &x->model));
    CHECK_OK(ctx, orth_describe_plan(ctx, &x->plan, &cfg, &x->model, false));
    x->plan.detail = &x->detail;
    if (cluster) {
        CHECK_OK(ctx, orth_hardware_find(ctx, &h, cluster));
        CHECK_OK(ctx, orth_hardware_use(ctx, &h, x->plan.num_ranks));
        snprintf(h.device_name, sizeof h.device_name, "A<B> & \"C\"");
        CHECK_OK(ctx, orth_cluster_price(ctx, &x->plan, &h, ORTH_BF16, 1000, NULL, &c));
        page.hardware = &h;
        page.cluster = &c;
        CHECK_OK(ctx, orth_hardware_peak(ctx, &h, ORTH_BF16, &page.flops));
        page.bytes = 1e9 * h.device_memory_GBps;
    } else {
        CHECK_OK(ctx, orth_run_plan_price(ctx, &x->plan, &rates, NULL));
    }
    if (cluster && h.mixed) {
        orth_place_to_run where = {.described = true, .hardware = h};
        CHECK_OK(ctx, orth_shares_find(ctx, &cfg, &where, &shares));
        page.shares = &shares;
    }
    CHECK_OK(ctx, orth_scaling_find(ctx, &cfg, cluster, &scaling));
    x->html = orth_plan_html(ctx, &page);
    assert_non_null(x->html);
    check_well_formed(x->html);
    check_loads_nothing(x->html);
    if (cluster)
        orth_hardware_release(ctx, &h);
    orth_config_release(ctx, &cfg);
    return x;
}

static void close_page(page_case *x)
{
    orth_ctx *ctx = x->ctx;
    orth_mem_free(ctx, x->html);
    orth_run_plan_release(ctx, &x->plan);
    test_ctx_free(ctx);
    free(x);
}

/* A point for each op that computes, none above the roofs. */
static void check_roofline(const char *html)
{
    const char *at = strstr(html, "<h2>Roofline</h2>"), *end = at ? strstr(at, "<table>") : NULL;
    bool linear = false;
    int points = 0;
    double peak, copies;
    assert_non_null(end);
    assert_int_equal(sscanf(strstr(at, "Roofs: "), "Roofs: %lf GFLOP/s and %lf GB/s a rank.", &peak, &copies), 2);
    assert_true(strstr(at, "<polyline ") && strstr(at, "<polyline ") < end);
    while ((at = strstr(at, "<circle ")) && at < end) {
        char name[64];
        double flops_a_byte, gflops;
        at = strstr(at, "<title>") + 7;
        assert_int_equal(sscanf(at, "%63[^:]: %lf FLOPs a byte, %lf GFLOP/s", name, &flops_a_byte, &gflops), 3);
        assert_true(gflops > 0 && gflops <= peak * 1.001 && gflops <= copies * flops_a_byte * 1.001);
        linear = linear || strcmp(name, "linear") == 0;
        points++;
    }
    assert_true(linear && points >= 4);
}

TEST(a_page_is_well_formed_loads_nothing_and_has_the_figures_of_the_plan)
{
    static const char run[] = "model: {preset: llama-tiny, layers: 4}\ndata: {seq_len: 64}\ntrain: {global_batch: 16, micro_batch: 2, steps: 1000}\n"
                              "parallel: {dp: 2, tp: 2, pp: 2}\nprecision: {compute: bf16}\n";
    page_case *x = open_page(run, "h100");
    const char *html = x->html;
    char text[64];
    check_roofline(html);
    assert_non_null(strstr(html, "A&lt;B&gt; &amp; &quot;C&quot;"));
    assert_int_equal(count(html, "<span class=\"bar\">"), 8);
    for (int r = 0; r < 8; r++) {
        snprintf(text, sizeof text, "%.3f GiB</span>", (double)x->plan.ranks[r].total_bytes / 0x1p30);
        assert_non_null(strstr(html, text));
    }
    assert_int_equal(count(html, " of micro-batch "), 2 * 2 * 4); /* forward and backward, two stages, four micro-batches */
    for (int stage = 0; stage < 2; stage++)
        for (int a = 0; a < 8; a++) {
            const orth_span *s = &x->detail.spans[stage][a];
            assert_true(s->start >= 0 && s->end > s->start && s->end <= x->plan.total.time.step_s * (1 + 1e-9));
        }
    double seconds = 0;
    for (int op = 0; op < ORTH_FIRST_COMM_OP; op++)
        seconds += x->detail.op[op].seconds;
    assert_true(seconds > 0.99 * x->plan.ranks[0].time.compute_s && seconds < 1.01 * x->plan.ranks[0].time.compute_s);
    assert_int_equal(count(html, " ranks</td>"), 4 + 4); /* dp 1, 2, 4, 8: there is no half rank */
    assert_non_null(strstr(html, "on demand"));
    close_page(x);
}

/* Each space by itself: only what is on a device is held against what the device has. */
TEST(a_page_of_a_run_with_offload_has_bars_for_the_device_and_for_the_host)
{
    static const char run[] = "model: {preset: llama-tiny, layers: 4}\ndata: {seq_len: 64}\ntrain: {global_batch: 4, micro_batch: 2, steps: 1000}\n"
                              "parallel: {dp: 2, zero: 1}\nprecision: {compute: bf16}\nmemory: {offload_optimizer: host}\n";
    page_case *x = open_page(run, "h100");
    const char *html = x->html;
    char text[128];
    assert_int_equal(count(html, "<span class=\"bar\">"), 2 * 2);
    assert_int_equal(count(html, "<span class=\"limit\""), 2);
    const char *device = strstr(html, "<b>device</b>"), *host = strstr(html, "<b>host</b>");
    assert_true(device && host && device < host);
    for (int r = 0; r < 2; r++) {
        assert_true(x->plan.ranks[r].device_bytes < x->plan.ranks[r].total_bytes);
        snprintf(text, sizeof text, "rank %d</span>", r);
        const char *on_device = strstr(device, text), *on_host = strstr(host, text);
        assert_true(on_device && on_device < host && on_host);
        snprintf(text, sizeof text, "%.3f GiB</span>", (double)x->plan.ranks[r].device_bytes / 0x1p30);
        assert_true(strstr(on_device, text) && strstr(on_device, text) < host);
        snprintf(text, sizeof text, "%.3f GiB</span>", (double)orth_memory_of_space(&x->plan.ranks[r].memory, ORTH_SPACE_HOST) / 0x1p30);
        assert_non_null(strstr(on_host, text));
    }
    snprintf(text, sizeof text, "The ranks of a node have %.2f GiB", (double)x->plan.total.node_host.bytes / 0x1p30);
    assert_non_null(strstr(html, text));
    close_page(x);
}

TEST(a_page_of_a_mixed_cluster_has_its_groups_and_the_shares_of_the_batch)
{
    static const char run[] = "model: {preset: llama3-1b}\ndata: {seq_len: 8192}\ntrain: {global_batch: 64, micro_batch: 1, steps: 1000}\n"
                              "parallel: {dp: 4, tp: 8}\nprecision: {compute: bf16}\n";
    page_case *x = open_page(run, "h100-a100");
    const char *html = x->html;
    const char *groups = strstr(html, "<h2>Groups of devices</h2>");
    assert_non_null(groups);
    assert_non_null(strstr(groups, "<tr><td>fast</td><td>16 x "));
    assert_non_null(strstr(groups, "<tr><td>slow</td><td>16 x "));
    assert_non_null(strstr(groups, "<tr><td>equal</td>"));
    assert_non_null(strstr(groups, "<tr><td>proposed: parallel.dp_share=["));
    assert_non_null(strstr(groups, "<tr><td>fast alone, parallel.dp="));
    close_page(x);
}

TEST(a_page_of_this_machine_has_no_cost_and_says_so)
{
    static const char run[] = "model: {preset: gpt2-tiny}\ndata: {seq_len: 64}\ntrain: {global_batch: 4}\n";
    page_case *x = open_page(run, NULL);
    const char *html = x->html;
    assert_non_null(strstr(html, "Not known: this machine has no price."));
    close_page(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_well_formed_loads_nothing_and_has_the_figures_of_the_plan),
        cmocka_unit_test(a_page_of_a_run_with_offload_has_bars_for_the_device_and_for_the_host),
        cmocka_unit_test(a_page_of_a_mixed_cluster_has_its_groups_and_the_shares_of_the_batch),
        cmocka_unit_test(a_page_of_this_machine_has_no_cost_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
