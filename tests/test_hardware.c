/* test_hardware.c -- descriptions of clusters: what they say, and what is refused, with the place. */
#include "test.h"

#include "base/files.h"
#include "plan/hardware.h"

static orth_status parse(orth_ctx *ctx, orth_hardware *h, const char *text)
{
    return orth_hardware_parse(ctx, h, "mine.yaml", text, strlen(text));
}

#define DEVICE "device: {name: X, memory_GiB: 80, memory_GBps: 2000, bf16_tflops: 300}\n"

TEST(every_description_that_comes_with_the_program_is_read)
{
    orth_ctx *ctx = test_ctx(1);
    int n = 0;
    for (const orth_hardware_file *f = orth_hardware_files(); f->name; f++, n++) {
        orth_hardware h;
        CHECK_OK(ctx, orth_hardware_find(ctx, &h, f->name));
        assert_true(h.device_memory_GBps >= 900 && h.node_devices >= 8 && (h.mixed != NULL) == (h.num_devices > 0));
        orth_hardware_release(ctx, &h);
    }
    assert_true(n >= 16);
    test_ctx_free(ctx);
}

/* What an update on the host takes: the default is of no host that these files name. */
TEST(descriptions_whose_host_is_known_have_the_rate_of_its_memory)
{
    static const struct {
        const char *name;
        double GBps;
    } hosts[] = {{"a100-40gb", 51.2}, {"a100-80gb", 51.2}, {"h100", 70.4}, {"h200", 70.4}, {"b200", 70.4}, {"gb200", 256}, {"mi300x", 115.2}, {"v100", 17}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(hosts); i++) {
        orth_hardware h;
        CHECK_OK(ctx, orth_hardware_find(ctx, &h, hosts[i].name));
        if (h.node_memory_GBps != hosts[i].GBps)
            fail_msg("%s: node.memory_GBps=%g, wanted %g", hosts[i].name, h.node_memory_GBps, hosts[i].GBps);
        orth_hardware_release(ctx, &h);
    }
    test_ctx_free(ctx);
}

TEST(a_word_names_a_description_and_a_number_of_devices)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "h100-512"));
    assert_int_equal(h.num_devices, 512);
    assert_true(h.device_bf16_tflops == 989.5 && h.node_GBps == 450 && h.has_network);
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "rtx-4090-4"));
    assert_true(h.num_devices == 4 && h.device_bf16_tflops == 165.2 && h.topology == ORTH_TOPOLOGY_BUS && !h.has_network);
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "rtx-4090"));
    assert_int_equal(h.num_devices, 0);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "cluster 'h1000' is not known: name a .yaml file, or one of", orth_hardware_find(ctx, &h, "h1000"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "cluster 'h100-0': 0 devices", orth_hardware_find(ctx, &h, "h100-0"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "no-such.yaml", orth_hardware_find(ctx, &h, "no-such.yaml-64"));
    test_ctx_free(ctx);
}

TEST(a_description_has_what_it_leaves_out_from_the_one_that_it_is_like)
{
    static const char mine[] = "network: {kind: TCP, GBps: 12.5}\nlike: h100\nnode: {devices: 4}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h, like;
    CHECK_OK(ctx, orth_hardware_find(ctx, &like, "h100"));
    CHECK_OK(ctx, parse(ctx, &h, mine));
    assert_true(strcmp(h.network_kind, "TCP") == 0 && h.network_GBps == 12.5 && h.node_devices == 4 && h.has_network && h.has_on_demand);
    assert_string_equal(h.file, "mine.yaml");
    assert_true(like.network_GBps == 50 && like.node_devices == 8);
    /* all else is the same */
    memcpy(like.network_kind, h.network_kind, sizeof h.network_kind);
    memcpy(like.like, h.like, sizeof h.like);
    memcpy(like.file, h.file, sizeof h.file);
    like.network_GBps = 12.5;
    like.node_devices = 4;
    assert_memory_equal(&like, &h, offsetof(orth_hardware, file));
    CHECK_OK(ctx, parse(ctx, &h, "like: rtx-3090\nnetwork: {nics: 1, GBps: 3}\nnode: {devices: 2}\n"));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, 64));
    test_ctx_free(ctx);
}

TEST(a_bad_description_is_refused_with_place_key_value_and_rule)
{
    static const struct { const char *text, *message; } cases[] = {
        {DEVICE "nodes: {devices: 8}", "mine.yaml:2:1: unknown key 'nodes' of hardware"},
        {DEVICE "node: {device: 8}", "mine.yaml:2:8: unknown key 'node.device' of hardware; did you mean 'node.devices'?"},
        {DEVICE "node: {devices: 8}", "mine.yaml: node.GBps is missing: the 8 devices of a node (node.devices) are linked"},
        {DEVICE, "mine.yaml: node.devices is missing"},
        {DEVICE "node: {devices: 1}\nnetwork: {nics: 1}", "mine.yaml: network.GBps is missing"},
        {DEVICE "node: {devices: many, GBps: 1}", "mine.yaml:2:17: node.devices=many: is not a number"},
        {DEVICE "node: {devices: 1.5, GBps: 1}", "mine.yaml:2:17: node.devices=1.5: must be a whole number"},
        {DEVICE "node: {devices: 8, GBps: 1e9}", "mine.yaml:2:26: node.GBps=1e9: must be between 0.1 and 100000 GB/s"},
        {DEVICE "node: {devices: 8, GBps: nan}", "node.GBps=nan: is not a number"},
        {DEVICE "node: {devices: 8, GBps: [1]}", "node.GBps takes one value, not a list"},
        {DEVICE "node: {devices: 8, GBps: 1, topology: star}", "mine.yaml:2:39: node.topology=star: must be switch, mesh, torus or bus"},
        {DEVICE "node: {devices: 8, GBps: 1, share: 1.1}", "node.share=1.1: must be between 0.05 and 1"},
        {"device: {name: X, memory_GiB: 80, memory_GBps: 2000}\nnode: {devices: 1}", "device.bf16_tflops is missing"},
        {"device: {name: X, memory_GiB: 1, reserved_GiB: 2, memory_GBps: 2000, bf16_tflops: 1}\nnode: {devices: 1}",
         "mine.yaml:1:48: device.reserved_GiB=2: must be less than device.memory_GiB=1"},
        {"device: {name: X, memory_GiB: 1, memory_GBps: 2000, bf16_tflops: 1}\nnode: {devices: 1}",
         "mine.yaml: device.reserved_GiB=1.5: must be less than device.memory_GiB=1"},
        {DEVICE "node: {devices: 1}\nprice: {on_demand: 2, spot_share: 0.5}", "price.spot_share=0.5: price.spot is missing: some nodes are then bought at each"},
        {DEVICE "node: {devices: 1}\nprice: {on_demand: 2, spot: 1, spot_share: 1.5}", "price.spot_share=1.5: must be between 0 and 1"},
        {DEVICE "node: {devices: 1}\nprice: {on_demand: 2, spot: 2.5}", "mine.yaml:3:29: price.spot=2.5: must be at most price.on_demand=2"},
        {"- 1", "mine.yaml:1:1: a description of hardware is a mapping, as in `node: {devices: 8}`"},
        {DEVICE DEVICE, "mine.yaml:2:1: duplicate key 'device', first given in line 1"},
        {"like: h1000\nnode: {devices: 1}", "mine.yaml:1:7: like=h1000: is no description: name a .yaml file of one kind of devices, or one of a100"},
        {"like: h100-64", "mine.yaml:1:7: like=h100-64: is no description"},
        {"like: h100-a100", "mine.yaml:1:7: like=h100-a100: has groups"},
        {"like: h100-roce", "mine.yaml:1:7: like=h100-roce: is like another one itself"},
        {"like: no-such.yaml", "mine.yaml:1:7: like=no-such.yaml: no-such.yaml: cannot"},
        {"like: [h100]", "mine.yaml:1:7: like takes one value, not a list"},
        {"like: {h100: 1}", "mine.yaml:1:7: like takes a value, not a mapping"},
        {"like: h100\nnode: {GBps: 1e9}", "mine.yaml:2:14: node.GBps=1e9: must be between"},
        {"like: rtx-3090\nnetwork: {nics: 1}", "mine.yaml: network.GBps is missing"},
        {"like: h100\ndevice: {reserved_GiB: 80}", "mine.yaml:2:24: device.reserved_GiB=80: must be less than device.memory_GiB=79.6"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_hardware h;
        CHECK_FAILS(ctx, ORTH_ERR_ARG, cases[i].message, parse(ctx, &h, cases[i].text));
    }
    test_ctx_free(ctx);
}

TEST(a_layout_must_have_as_many_ranks_as_the_cluster_has_devices_and_links_between_them)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    double flops;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "h100-64"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "the layout has 32 ranks (parallel.dp * tp * pp * cp), --cluster has 64 devices", orth_hardware_use(ctx, &h, 32));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, 64));
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "rtx-3090"));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, 8));
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "rtx-3090"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "configs/hardware/rtx-3090.yaml: 16 devices are more than one node of 8 (node.devices)", orth_hardware_use(ctx, &h, 16));
    CHECK_OK(ctx, orth_hardware_peak(ctx, &h, ORTH_BF16, &flops));
    assert_true(flops == 71e12);
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, "v100"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "configs/hardware/v100.yaml: the description has no device.bf16_tflops", orth_hardware_peak(ctx, &h, ORTH_BF16, &flops));
    test_ctx_free(ctx);
}

static bool has_year(const char *s)
{
    for (; *s; s++)
        if (strncmp(s, "20", 2) == 0 && strspn(s, "0123456789") == 4)
            return true;
    return false;
}

/* The line of a key with a number: its source is a document with its year, that of the line before, or an assumption that is called one. */
static void check_line(const char *file, const char *line, size_t n, bool *sourced)
{
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)n, line);
    const char *colon = strchr(text, ':'), *value = colon ? colon + 1 + strspn(colon + 1, " ") : "", *comment = strchr(text, '#');
    if (text[0] != ' ' || !(*value >= '0' && *value <= '9') || (comment && comment < value))
        return;
    const bool same = comment && strncmp(comment, "# the same", 10) == 0, assumed = comment && strncmp(comment, "# assumed", 9) == 0;
    if (!comment || !(same ? *sourced : assumed || has_year(comment)))
        fail_msg("configs/hardware/%s.yaml: no source with its year: %s", file, text);
    *sourced = *sourced || !assumed;
}

TEST(every_figure_of_a_description_has_its_source)
{
    for (const orth_hardware_file *f = orth_hardware_files(); f->name; f++) {
        bool sourced = false;
        for (const char *line = f->text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] != '\0'))
            check_line(f->name, line, strcspn(line, "\n"), &sourced);
    }
}

/* A default is a figure, too: its row says where it comes from, or that it is assumed. */
TEST(every_default_of_a_description_has_its_source)
{
    static const struct {
        const char *key;
        double value;
    } rows[] = {
#define HW_NUM(section, key, needed, default_, min, max, unit, help) {#section ", " #key ", ", default_},
#include "plan/hardware.def"
    };
    orth_ctx *ctx = test_ctx(1);
    char *text;
    size_t bytes;
    CHECK_OK(ctx, orth_file_read(ctx, ORTH_TEST_DIR "/../src/plan/hardware.def", &text, &bytes));
    for (int i = 0; i < ORTH_COUNT(rows); i++) {
        char begin[80];
        snprintf(begin, sizeof begin, "HW_NUM(%s", rows[i].key);
        const char *row = strstr(text, begin), *note = row ? strstr(row, ") /* ") : NULL;
        if (rows[i].value != 0 && (!note || note > row + strcspn(row, "\n")))
            fail_msg("hardware.def: %sthe default %g has no source", rows[i].key, rows[i].value);
    }
    orth_mem_free(ctx, text);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_description_that_comes_with_the_program_is_read),
        cmocka_unit_test(every_figure_of_a_description_has_its_source),
        cmocka_unit_test(descriptions_whose_host_is_known_have_the_rate_of_its_memory),
        cmocka_unit_test(a_word_names_a_description_and_a_number_of_devices),
        cmocka_unit_test(a_description_has_what_it_leaves_out_from_the_one_that_it_is_like),
        cmocka_unit_test(a_bad_description_is_refused_with_place_key_value_and_rule),
        cmocka_unit_test(a_layout_must_have_as_many_ranks_as_the_cluster_has_devices_and_links_between_them),
        cmocka_unit_test(every_default_of_a_description_has_its_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
