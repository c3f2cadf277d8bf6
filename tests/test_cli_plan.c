/* test_cli_plan.c -- what `plan` says: text, JSON, warnings, refusals. */
#include "cli_case.h"

#include <jansson.h>
#include <unistd.h>

#include "base/files.h"
#include "base/machine.h"

#define SIXTEEN_HEADS "plan model.family=llama model.layers=2 model.hidden=256 model.heads=16 model.vocab=256 model.max_seq=32 data.seq_len=32 precision.compute=bf16 numerics.mode=fast "

TEST(a_plan_warns_where_ranks_that_wait_for_each_other_in_every_layer_lie_on_different_hosts)
{
    static const struct { const char *args, *message; } cases[] = {
        {SIXTEEN_HEADS "--cluster=h100-16 parallel.tp=16",
         "placement: parallel.tp=16 lies across hosts: ranks 0 and 8, of one group, are on hosts 0 and 1, so that every layer waits for the network; "
         "a host has 8 ranks, and a tp of at most that stays inside"},
        {SIXTEEN_HEADS "--cluster=h100-16 parallel.tp=2 parallel.dp=8 train.global_batch=8 parallel.order=dp,tp",
         "parallel.tp=2 lies across hosts: ranks 0 and 8, of one group, are on hosts 0 and 1, so that every layer waits for the network; parallel.order=tp,cp,dp,pp"},
        {SIXTEEN_HEADS "--cluster=h100-16 parallel.cp=2 parallel.dp=8 train.global_batch=8 parallel.order=dp,cp", "parallel.cp=2 lies across hosts: ranks 0 and 8"},
        {SIXTEEN_HEADS "--cluster=h100-a100 parallel.tp=16 parallel.dp=2 train.global_batch=2", "parallel.tp=16 lies across hosts: ranks 0 and 8"},
        {SIXTEEN_HEADS "parallel.tp=4 parallel.ranks_per_host=2", "parallel.tp=4 lies across hosts: ranks 0 and 2"},
    };
    static const char *const inside[] = {"--cluster=h100-16 parallel.tp=8 parallel.dp=2 train.global_batch=2", "--cluster=h100-8 parallel.tp=4 parallel.dp=2 train.global_batch=2 parallel.order=dp,tp",
                                         "--cluster=h100-16 parallel.cp=16", "parallel.tp=4 parallel.ranks_per_host=4", "parallel.tp=4"};
    static char out[1 << 18];
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        expect(cases[i].args, 0, cases[i].message);
    for (int i = 0; i < ORTH_COUNT(inside); i++) {
        char args[512];
        snprintf(args, sizeof args, SIXTEEN_HEADS "%s", inside[i]);
        if (run("", args, out, sizeof out) != 0 || strstr(out, "lies across hosts"))
            fail_msg("orthant %s said:\n%.2000s", args, out);
    }
}

/* The JSON behind what is on the other stream. */
static json_t *json_of(const char *args)
{
    static char out[1 << 20];
    assert_int_equal(run("", args, out, sizeof out), 0);
    json_t *root = json_loads(strchr(out, '{'), JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(root);
    return root;
}

static double sum_of(const json_t *numbers)
{
    const char *key;
    json_t *value;
    double sum = 0;
    json_object_foreach((json_t *)numbers, key, value)
        sum += json_number_value(value);
    return sum;
}

static double seconds(const json_t *time, const char *key)
{
    const json_t *v = json_object_get(time, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

/* What the text says of a step: its parts, for whose calls it waits, and what was warned of, however quiet the log is. */
TEST(a_plan_as_JSON_has_the_parts_of_the_step_and_the_warnings)
{
    json_t *root = json_of(SIXTEEN_HEADS "--cluster=h100-16 parallel.tp=2 parallel.dp=8 train.global_batch=8 parallel.order=dp,tp --json");
    const json_t *time = json_object_get(root, "time"), *by_axis = json_object_get(time, "exposed_comm_by_axis_s"), *warnings = json_object_get(root, "warnings");
    const double step = seconds(time, "step_s"), parts = seconds(time, "compute_s") + seconds(time, "exposed_comm_s") + seconds(time, "wait_s");
    assert_true(step > 0 && parts > 0.999999 * step && parts < 1.000001 * step);
    assert_true(seconds(time, "update_s") > 0 && seconds(time, "update_s") < seconds(time, "compute_s"));
    assert_true(seconds(by_axis, "tp") > 0 && seconds(by_axis, "dp") > 0);
    assert_true(sum_of(by_axis) > 0.999999 * seconds(time, "exposed_comm_s") && sum_of(by_axis) < 1.000001 * seconds(time, "exposed_comm_s"));
    assert_int_equal(json_array_size(warnings), 1);
    assert_non_null(strstr(json_string_value(json_array_get(warnings, 0)), "parallel.tp=2 lies across hosts"));
    json_decref(root);
    root = json_of(SIXTEEN_HEADS "--cluster=h100-16 parallel.tp=8 parallel.dp=2 train.global_batch=2 --json");
    assert_true(json_is_array(json_object_get(root, "warnings")) && json_array_size(json_object_get(root, "warnings")) == 0);
    json_decref(root);
}

#define SMALL "model.preset=gpt2-124m data.seq_len=1024 train.steps=1000 precision.compute=bf16 "

#define TOO_LARGE "plan model.preset=gpt2-1558m data.seq_len=1024 train.global_batch=4 precision.compute=bf16 parallel.dp=2 --cluster=rtx-3090-2 "

/* Devices have a memory each, a node's host has one for all of its devices. */
TEST(a_vocabulary_that_is_assumed_is_said)
{
    expect("plan model.layers=1 model.hidden=64 model.heads=1 data.path=nowhere", 0, "nowhere: no such file or folder (data.path): a vocabulary of 4096 is assumed, which model.vocab would say");
    expect("plan model.layers=1 model.hidden=64 model.heads=1 data.path=nowhere model.vocab=300 2>&1 >/dev/null | grep -c assumed", 1, "0\n");
}

TEST(limits_of_devices_and_hosts_hold_on_a_cluster)
{
#define ON_CLUSTER "plan model.preset=gpt2-tiny data.seq_len=64 train.global_batch=8 --cluster=rtx-4090-8 parallel.dp=8 memory.offload_optimizer=host "
    expect(ON_CLUSTER "--require-fit", 0, "GiB in the memory of the host of a node, of 384 GiB"); /* twice eight times 24 */
    expect(ON_CLUSTER "--require-fit memory.limit_host=8MB", 3, "GiB in the memory of the host of a node, which is too much, of ");
    expect(ON_CLUSTER "--require-fit memory.limit_host=8MB", 3, "planned in the host's memory of a node exceed the limit of ");
    expect(ON_CLUSTER "--json memory.limit_host=8MB", 0, "\"host_of_a_node\": {\"bytes\": 10601472, \"limit\": 8000000}");
    expect(ON_CLUSTER "--require-fit memory.limit_device=1MB", 3, "planned on the rank that needs the most exceed the limit of ");
    expect(ON_CLUSTER "--ladder --json memory.limit_device=1MB", 0, "\"limit_of\": \"memory.limit_device\"");
    expect(ON_CLUSTER "--compare memory.limit_host=[8MB,80MB]", 0, "no");
}

TEST(prepared_data_with_more_tokens_than_the_model_has_are_refused_as_train_refuses_them)
{
#define SMALL_VOCAB " model.preset=gpt2-tiny model.vocab=200 data.path=prepared data.seq_len=16 train.global_batch=8 "
#define TOO_MANY "the tokenizer has 257 tokens, the model's vocabulary only 200: a new model has room for them with model.vocab=257"
    char out[4096];
    assert_int_equal(run_shell("rm -rf prepared; printf 'some text, and more of it, for a data set' > text.txt && " ORTH_BINARY " data prepare --tokenizer=bytes --out=prepared text.txt", out, sizeof out), 0);
    expect("plan" SMALL_VOCAB, 2, TOO_MANY);
    expect("search" SMALL_VOCAB "--cluster=h100-1", 2, TOO_MANY);
    expect("train" SMALL_VOCAB "checkpoint.dir=none", 2, TOO_MANY);
    expect("plan" SMALL_VOCAB "model.vocab=257", 0, "fits");
}

/* A limit of memory that the winner does not use is no key of its run file, and on groups the shares of the winner are planned without it. */
TEST(the_winner_of_a_search_under_limits_is_a_run_file_that_is_accepted)
{
#define UNDER_LIMITS "search model.preset=gpt2-tiny data.seq_len=64 train.global_batch=64 parallel.tp=1 parallel.pp=1 parallel.cp=1 memory.offload_activations=none "
#define OUT "--out=best.yaml 2>&1 && " ORTH_BINARY " plan best.yaml --require-fit --cluster=h100-8 "
    expect(UNDER_LIMITS "--cluster=h100-8 memory.offload_optimizer=none memory.limit_host=40MB memory.limit_file=1MB " OUT, 0, "fits ");
    expect(UNDER_LIMITS "--cluster=h100-8 memory.offload_optimizer=none memory.limit_host=40MB memory.limit_file=1MB " OUT, 0, "best.yaml: memory.limit_host is left out: the winner has nothing there");
    expect(UNDER_LIMITS "--cluster=h100-8 memory.limit_host=40MB memory.offload_optimizer=host " OUT "&& grep limit_ best.yaml", 0, "limit_host: 40000000");
    expect(UNDER_LIMITS "--cluster=h100-8 memory.limit_file=90MB memory.offload_optimizer=file " OUT "&& grep limit_ best.yaml", 0, "limit_file: 90000000");
    expect(UNDER_LIMITS "--cluster=h100-a100 memory.limit_host=40MB memory.limit_file=1MB", 0, "shares of the batch");
}

/* Nothing of the disk of this machine is in a plan for another. */
TEST(limits_of_files_hold_on_a_cluster)
{
#define IN_FILES "plan model.preset=gpt2-tiny data.seq_len=64 train.global_batch=8 parallel.dp=8 memory.offload_optimizer=file "
#define PLAIN "--cluster=rtx-4090-8 "
    expect(IN_FILES PLAIN "--require-fit", 0, "files          0.01 GiB on the disks of a node; what they hold is not known (node.file_GiB)\n");
    expect(IN_FILES PLAIN "--json", 0, "\"files_of_a_node\": {\"bytes\": 8503296, \"limit\": 0}");
    expect(IN_FILES PLAIN "--json", 0, "\"file\": {\"bytes\": 8503296, \"limit\": 0,");
    expect(IN_FILES PLAIN "--require-fit memory.limit_file=3MB", 3, "files          0.01 GiB on the disks of a node, which is too much, of 0.00279397 GiB\n");
    expect(IN_FILES PLAIN "--require-fit memory.limit_file=3MB", 3, "8.11 MiB planned on the disks of a node exceed the limit of 2.86 MiB");
    expect(IN_FILES PLAIN "--json memory.limit_file=3MB", 0, "\"limit_of\": \"memory.limit_file\"");
    expect(IN_FILES "--cluster=h100-8 --require-fit", 0, "files          0.01 GiB on the disks of a node, of 28610 GiB\n");
}

/* A rank has a device of its own: a limit of one machine's memory is said to be none, and the device's holds without offload, too. */
TEST(on_a_cluster_a_limit_of_one_machine_is_refused_and_one_of_devices_is_kept)
{
#define KEEPS "model.preset=gpt2-tiny data.seq_len=64 train.global_batch=8 --cluster=rtx-4090-8 parallel.dp=8 "
#define SEARCHED KEEPS "parallel.tp=1 parallel.pp=1 parallel.cp=1 memory.offload_activations=none "
    expect("plan " KEEPS "memory.limit=1MB", 2, "command line: memory.limit is one of all ranks together on one machine");
    expect("search " SEARCHED "memory.limit=1MB", 2, "memory.limit_device limits each rank's memory there");
    expect("plan " KEEPS "--compare memory.limit=[1MB,2MB]", 2, "memory.limit_device limits each rank");
    expect("plan " KEEPS "memory.limit=auto --require-fit", 0, "fits");
    expect("plan " KEEPS "--require-fit memory.limit_device=1MB", 3, "planned on the rank that needs the most exceed the limit of ");
    expect("plan " KEEPS "--require-fit memory.limit_device=1GB", 0, "of 0.93 GiB");
    expect("search " SEARCHED "memory.limit_device=12MB --json", 0, "\"offload_optimizer\": \"none\"");
    expect("search " SEARCHED "memory.limit_device=1KB", 0, "winner         none fits");
    /* A run file is one for the machine that trains, too. */
    write_file("cli_limit.yaml", "memory: {limit: 1MB}\n");
    expect("plan cli_limit.yaml --require-fit " KEEPS, 0, "cli_limit.yaml:1:17: memory.limit limits nothing with --cluster");
    write_file("cli_limit.yaml", "memory: {limit_device: 1MB}\n");
    expect("plan cli_limit.yaml --require-fit " KEEPS, 3, "exceed the limit of ");
    expect("plan cli_limit.yaml --json " KEEPS "--out=cli_limit_out.yaml memory.limit_device=1GB", 0, "memory.limit_device is left out");
    expect("plan cli_limit_out.yaml", 0, "fits");
    unlink("cli_limit.yaml");
    unlink("cli_limit_out.yaml");
}

TEST(a_plan_that_does_not_fit_names_the_nearest_changes_with_which_it_does)
{
    static char out[1 << 18], args[1024];
    assert_int_equal(run("", TOO_LARGE, out, sizeof out), 0);
    const char *title = strstr(out, "what would make it fit\n"), *change = title ? strstr(strstr(title, "  change\n"), ".zero=") : NULL;
    if (!strstr(out, "does not fit: ") || !change)
        fail_msg("%.4000s", out);
    snprintf(args, sizeof args, TOO_LARGE "parallel%.7s --require-fit", change);
    expect(TOO_LARGE "--require-fit", 3, "does not fit");
    expect(args, 0, "fits  ");
    FILE *f = fopen("cli_tiny.yaml", "w");
    assert_non_null(f);
    fputs("device: {name: X, memory_GiB: 1, reserved_GiB: 0.99, memory_GBps: 10, bf16_tflops: 1}\nnode: {devices: 1}\n", f);
    fclose(f);
    expect("plan " SMALL "model.layers=2 --cluster=cli_tiny.yaml-1", 0, "no combination that was tried of recomputation, micro-batch, ZeRO and offload makes it fit");
    expect("plan " SMALL "model.layers=2 --cluster=cli_tiny.yaml-1 --json", 0, "\"changes\": {\"bytes\": ");
    expect("plan " SMALL "train.global_batch=128 --cluster=cli_tiny.yaml-1", 0, "what would make it fit is not listed here, since dozens of changes have to be planned");
    expect("plan " SMALL "train.global_batch=128 --cluster=cli_tiny.yaml-1 --json", 0, "\"changes\": {\"not_listed\": \"what would make it fit is not listed");
    remove("cli_tiny.yaml");
    expect("plan " SMALL "train.global_batch=2 parallel.dp=2 --cluster=h100-2", 0, "fits  ");
}

/* Sums over ranks say little of one, least of all where they are meant for devices of their own. */
TEST(a_plan_of_several_ranks_names_the_one_that_needs_the_most)
{
    static char out[1 << 18];
    const char *tiny = "plan model.preset=gpt2-tiny model.layers=4 model.vocab=5000 data.seq_len=256 train.global_batch=4 "
                       "train.micro_batch=4 run.probe_s=0.003 ";
    char args[512];
    snprintf(args, sizeof args, "%sparallel.pp=4 --json", tiny);
    assert_int_equal(run("", args, out, sizeof out), 0);
    json_t *root = json_loads(out, 0, NULL), *rank;
    int64_t most = 0, which = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "ranks"), i, rank) {
        const int64_t bytes = json_integer_value(json_object_get(json_object_get(rank, "memory"), "total"));
        which = bytes > most ? (int64_t)i : which;
        most = ORTH_MAX(bytes, most);
    }
    json_decref(root);
    assert_true(most > 0 && which > 0);
    snprintf(args, sizeof args, "%sparallel.pp=4", tiny);
    assert_int_equal(run("", args, out, sizeof out), 0);
    long long told = 0, rank_told = -1;
    const char *at = strstr(out, "largest rank ");
    assert_true(at && sscanf(at, "largest rank %lld B %*f GiB: rank %lld (", &told, &rank_told) == 2);
    assert_true(told == most && rank_told == which);
    assert_int_equal(strstr(out, "for ranks with a device each: --cluster=NAME") != NULL, 4 > orth_machine_cores());
    assert_int_equal(run("", tiny, out, sizeof out), 0);
    assert_null(strstr(out, "largest rank"));
}

TEST(scaling_is_a_table_of_plans_with_more_and_fewer_ranks)
{
    static char out[1 << 18];
    double alone, four;
    expect("plan " SMALL "train.global_batch=16 parallel.dp=4 --cluster=h100-4 --scaling", 0, "strong  ranks     dp  global batch");
    assert_int_equal(run("", "plan " SMALL "train.global_batch=16 parallel.dp=4 --cluster=h100-4 --scaling --json", out, sizeof out), 0);
    json_t *root = json_loads(out, 0, NULL), *weak = json_object_get(root, "weak"), *strong = json_object_get(root, "strong");
    assert_true(json_array_size(weak) == 5 && json_array_size(strong) == 5);
    const json_t *first = json_array_get(weak, 0), *third = json_array_get(weak, 2);
    assert_true(json_integer_value(json_object_get(first, "dp")) == 1 && json_integer_value(json_object_get(first, "global_batch")) == 4);
    assert_true(json_integer_value(json_object_get(third, "ranks")) == 4 && json_integer_value(json_object_get(third, "global_batch")) == 16);
    alone = json_number_value(json_object_get(first, "tokens_per_s"));
    four = json_number_value(json_object_get(third, "tokens_per_s"));
    const double efficiency = json_number_value(json_object_get(third, "efficiency"));
    assert_true(efficiency > 0.999999 * (four / 4 / alone) && efficiency < 1.000001 * (four / 4 / alone) && efficiency <= 1);
    assert_true(json_number_value(json_object_get(json_array_get(strong, 2), "step_s")) == json_number_value(json_object_get(third, "step_s")));
    json_decref(root);
    /* a quarter of one rank is no run */
    assert_int_equal(run("", "plan " SMALL "train.global_batch=24 --cluster=h100 --scaling --json", out, sizeof out), 0);
    root = json_loads(out, 0, NULL);
    assert_true(json_array_size(json_object_get(root, "weak")) == 3 && json_array_size(json_object_get(root, "strong")) == 3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json_object_get(root, "strong"), 0), "dp")), 1);
    json_decref(root);
    assert_int_equal(run("", "plan " SMALL "train.global_batch=24 --cluster=h100 --scaling", out, sizeof out), 0);
    assert_null(strstr(out, "refused"));
    expect("plan " SMALL "train.global_batch=16 parallel.dp=4 --cluster=h100-8 --scaling", 2, "the layout has 4 ranks (parallel.dp * tp * pp * cp), --cluster has 8 devices");
    expect("plan " SMALL "parallel.tp=5 --cluster=h100-5 --scaling", 2, "tp=5 does not divide");
    expect("plan " SMALL "--scaling --ladder", 2, "plan: --scaling and --ladder: one at a time");
}

/* Two descriptions that differ in the price only. */
TEST(a_price_of_0_is_a_price_and_none_is_not_known)
{
    static const char *const prices[] = {"price: {on_demand: 0}\n", ""};
    for (int free_of_charge = 1; free_of_charge >= 0; free_of_charge--) {
        static char out[1 << 16];
        char path[64], text[512], args[256];
        snprintf(path, sizeof path, "/tmp/orthant-test-%ld-price.yaml", (long)getpid());
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        snprintf(text, sizeof text, "device: {name: X, memory_GiB: 80, memory_GBps: 2000, bf16_tflops: 300, fp32_tflops: 20}\nnode: {devices: 8, GBps: 300}\n%s",
                 prices[!free_of_charge]);
        assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
        snprintf(args, sizeof args, "plan " SMALL "train.global_batch=8 train.steps=10 --cluster=%s", path);
        expect(args, 0, free_of_charge ? ", 0 USD at 0.00 USD a device and hour\n" : "; the description has no price\n");
        strncat(args, " --json", sizeof args - strlen(args) - 1);
        assert_int_equal(run("", args, out, sizeof out), 0);
        json_t *root = json_loads(out, 0, NULL), *usd = json_object_get(json_object_get(root, "cost"), "on_demand_usd");
        assert_true(free_of_charge ? json_is_number(usd) && json_number_value(usd) == 0 : json_is_null(usd));
        json_decref(root);
        snprintf(args, sizeof args, "search " SMALL "train.global_batch=4 --cluster=%s-2 --goal=cost parallel.cp=1 parallel.pp=1", path);
        expect(args, 0, free_of_charge ? "      0.00  dp 1" : "         -  dp 1");
        unlink(path);
    }
}

/* With offload and without; on this machine the one memory is the host's. */
TEST(the_memory_of_devices_is_called_device_in_the_plan_of_a_cluster)
{
    static const struct {
        const char *words;
        bool device, host;
    } plans[] = {{"--cluster=h100-2", true, false}, {"--cluster=h100-2 memory.offload_optimizer=host", true, true}, {"", false, true}};
    static char out[1 << 18];
    for (int i = 0; i < ORTH_COUNT(plans); i++) {
        char args[256];
        snprintf(args, sizeof args, "plan " SMALL "train.global_batch=8 parallel.dp=2 --json %s", plans[i].words);
        assert_int_equal(run("", args, out, sizeof out), 0);
        json_t *root = json_loads(out, 0, NULL), *rank = json_array_get(json_object_get(root, "ranks"), 0);
        const json_t *of[] = {json_object_get(json_object_get(rank, "memory"), "spaces"), json_object_get(rank, "arenas")};
        for (int k = 0; k < ORTH_COUNT(of); k++)
            assert_true(!json_object_get(of[k], "device") == !plans[i].device && !json_object_get(of[k], "host") == !plans[i].host);
        const json_t *peak = json_array_get(json_object_get(root, "live_at_peak"), plans[i].device && plans[i].host ? 1 : 0);
        assert_string_equal(json_string_value(json_object_get(peak, "space")), plans[i].device ? "device" : "host");
        json_decref(root);
    }
}

TEST(the_plan_of_different_devices_as_JSON_has_the_shares_of_the_batch)
{
    static char out[1 << 20];
    const char *args = "plan " SMALL "train.global_batch=64 parallel.dp=32 --cluster=h100-a100 --json";
    assert_int_equal(run("", args, out, sizeof out), 0);
    json_t *root = json_loads(out, 0, NULL), *shares = json_object_get(root, "shares_of_the_batch");
    const double step = json_number_value(json_object_get(json_object_get(shares, "equal"), "step_s"));
    const double proposed = json_number_value(json_object_get(json_object_get(shares, "proposed"), "step_s"));
    assert_true(step == json_number_value(json_object_get(json_object_get(root, "time"), "step_s")) && proposed > 0 && proposed <= step);
    assert_int_equal(json_array_size(json_object_get(shares, "alone")), 2);
    const json_t *groups = json_object_get(root, "groups"), *fast = json_array_get(groups, 0), *slow = json_array_get(groups, 1);
    assert_int_equal(json_array_size(groups), 2);
    assert_string_equal(json_string_value(json_object_get(slow, "name")), "slow");
    assert_true(json_integer_value(json_object_get(fast, "devices")) == 16 && json_integer_value(json_object_get(fast, "bytes")) > 0);
    assert_true(json_number_value(json_object_get(fast, "compute_s")) < json_number_value(json_object_get(slow, "compute_s")));
    assert_true(json_number_value(json_object_get(fast, "wait_s")) > json_number_value(json_object_get(slow, "wait_s")));
    assert_true(json_number_value(json_object_get(fast, "usd")) > json_number_value(json_object_get(slow, "usd")));
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "terms"), "time")), "estimated");
    json_decref(root);
}

TEST(a_plan_of_a_cluster_says_when_memory_is_fullest_how_sure_its_figures_are_and_what_it_does_not_know)
{
    static char out[1 << 18];
    const char *args = "plan " SMALL "train.global_batch=8 parallel.dp=2 --cluster=h200-2 --json";
    char line[128];
    assert_int_equal(run("", args, out, sizeof out), 0);
    json_t *root = json_loads(out, 0, NULL), *rank = json_array_get(json_object_get(root, "ranks"), 0), *cost = json_object_get(root, "cost");
    json_t *peak = json_object_get(rank, "peak"), *live = json_array_get(json_object_get(root, "live_at_peak"), 0), *terms = json_object_get(root, "terms");
    static const char *const keys[] = {"op", "phase", "layer", "micro_batch"}, *const unknown[] = {"on_demand_usd", "spot_usd", "goodput", "spot_goodput"};
    static const char *const sure[][2] = {{"memory", "exact"}, {"comm", "exact"}, {"flops", "exact"}, {"time", "estimated"}, {"mfu", "estimated"},
                                          {"hfu", "estimated"}, {"tokens_per_s", "estimated"}, {"cost", "estimated"}};
    for (int i = 0; i < ORTH_COUNT(keys); i++)
        assert_true(json_equal(json_object_get(peak, keys[i]), json_object_get(live, keys[i])));
    for (int i = 0; i < ORTH_COUNT(unknown); i++)
        assert_true(json_is_null(json_object_get(cost, unknown[i])));
    for (int i = 0; i < ORTH_COUNT(sure); i++)
        assert_string_equal(json_string_value(json_object_get(terms, sure[i][0])), sure[i][1]);
    assert_int_equal(json_object_size(terms), ORTH_COUNT(sure));
    assert_true(json_number_value(json_object_get(json_object_get(root, "error"), "median_percent")) > 0);
    assert_true(json_is_true(json_object_get(rank, "fits")) && json_integer_value(json_object_get(rank, "memory_limit")) > 1 << 30);
    snprintf(line, sizeof line, "the most during %s (%s, layer %d", json_string_value(json_object_get(live, "op")), json_string_value(json_object_get(live, "phase")),
             (int)json_integer_value(json_object_get(live, "layer")));
    json_decref(root);
    expect("plan " SMALL "train.global_batch=8 parallel.dp=2 --cluster=h200-2", 0, line);
    expect("plan " SMALL "train.global_batch=8 parallel.dp=2 --cluster=h200-2 precision.products=nvfp4 --json", 0,
           "products: precision.products: nvfp4 is timed at the rate of fp8 on NVIDIA H200");
    expect("plan " SMALL "train.global_batch=8 --cluster=h200-1 --compare train.micro_batch=[1,2]", 0, "exact: GiB; estimates: step s and all that follows from it\nerror ");
    expect("search " SMALL "train.global_batch=4 --cluster=h200 --gpus=2 parallel.cp=1 parallel.pp=1 --goal=cost", 0, "        -  ");
    expect("search " SMALL "train.global_batch=4 --cluster=h200-2 parallel.cp=1 parallel.pp=1 --goal=memory", 0, " % memory, ");
}

TEST(recomputation_for_a_limit_is_listed_and_refused_where_none_fits)
{
    expect("plan model.preset=gpt2-tiny data.seq_len=32 --pareto", 0, "made again");
    expect("plan model.preset=gpt2-tiny data.seq_len=32 --pareto --json", 0, "\"added_flops\": 0, ");
    expect("plan model.preset=gpt2-tiny data.seq_len=32 memory.recompute=auto memory.recompute_limit=1KB --require-fit", 3,
           "bytes at least, with as little kept as possible; the limit of a rank is 1000 (memory.recompute_limit)");
    expect("explain model.preset=gpt2-tiny data.seq_len=32 memory.recompute=auto memory.recompute_limit=1KB", 3, "needs ");
    expect("plan model.preset=gpt2-1558m data.seq_len=128 train.global_batch=1 train.micro_batch=1 memory.recompute=auto --cluster=rtx-3090-1 --require-fit", 3,
           "the limit of a rank is 24159191040 (the memory of a device)");
}

/* On a described device, whose times are the same everywhere. There a product made again takes less time than some of the small operations. */
TEST(no_row_of_memory_against_computing_loses_in_both)
{
    static char out[1 << 18];
    const char *args = "plan model.preset=gpt2-tiny model.vocab=512 data.seq_len=64 train.global_batch=4 train.micro_batch=2 --cluster=h100 --pareto --json";
    assert_int_equal(run("", args, out, sizeof out), 0);
    json_t *root = json_loads(out, 0, NULL), *rows = json_object_get(root, "pareto"), *row;
    double bytes = 1e30, step_s = 0;
    size_t i;
    assert_true(json_array_size(rows) >= 5);
    json_array_foreach(rows, i, row) {
        const double b = json_number_value(json_object_get(row, "rank_bytes")), t = json_number_value(json_object_get(row, "step_s"));
        assert_true(b < bytes && t > step_s);
        bytes = b;
        step_s = t;
    }
    json_decref(root);
}

/* The axis that is given first, of dp, tp, pp, cp. */
TEST(a_layout_that_a_cluster_does_not_have_is_refused_with_its_place_in_the_run_file)
{
    static const char text[] = "model: {preset: gpt2-tiny}\ndata: {seq_len: 32}\ntrain: {global_batch: 8}\nparallel:\n  pp: 2\n  tp: 2\n";
    orth_ctx *ctx = test_ctx(1);
    CHECK_OK(ctx, orth_file_write(ctx, "cli_layout.yaml", text, strlen(text)));
    expect("plan cli_layout.yaml --cluster=h100-8", 2,
           "orthant: cli_layout.yaml:6:7: the layout has 4 ranks (parallel.dp * tp * pp * cp), --cluster has 8 devices: they must be equal");
    expect("plan cli_layout.yaml --cluster=h100-a100", 2, "orthant: cli_layout.yaml:6:7: the layout has 4 ranks (parallel.dp * tp * pp * cp), the groups of");
    expect("plan cli_layout.yaml --cluster=h100-8 parallel.dp=4", 2, "orthant: command line: the layout has 16 ranks");
    expect("plan cli_layout.yaml --cluster=rtx-3090 parallel.dp=4", 2, "orthant: configs/hardware/rtx-3090.yaml: 16 devices are more than one node of 8");
    expect("plan model.preset=gpt2-tiny data.seq_len=32 --cluster=h100-8", 2, "orthant: the layout has 1 ranks");
    CHECK_OK(ctx, orth_path_remove(ctx, "cli_layout.yaml"));
    test_ctx_free(ctx);
}

TEST(hosts_of_other_sizes_than_the_nodes_of_a_cluster_are_refused)
{
    expect("plan " SMALL "train.global_batch=16 parallel.dp=16 parallel.ranks_per_host=4 --cluster=h100-16", 2,
           "orthant: command line: parallel.ranks_per_host=4: must be the devices of a node of --cluster, which has 8 (node.devices)");
    expect("plan " SMALL "train.global_batch=4 parallel.dp=4 parallel.ranks_per_host=2 --cluster=h100-4", 2, "parallel.ranks_per_host=2: must be the devices");
    expect("plan " SMALL "train.global_batch=32 parallel.dp=32 parallel.ranks_per_host=4 --cluster=h100-a100", 2,
           "parallel.ranks_per_host=4: must be the devices of a node (node.devices) in every group of --cluster");
    expect("plan " SMALL "train.global_batch=16 parallel.dp=16 parallel.ranks_per_host=8 --cluster=h100-16", 0, "fits  ");
    expect("plan " SMALL "train.global_batch=4 parallel.dp=4 parallel.ranks_per_host=4 --cluster=h100-4", 0, "fits  ");
}

/* A file of `doctor --calibrate` in small: what it leaves out takes its bytes. */
#define MACHINE "device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\nhost: {cores: 2, isa: base}\n" \
                "fp32_all: {linear: [1000, 0, 0, 0, 0, 0.05]}\n"

TEST(a_plan_by_a_measured_machine_has_the_same_bytes_each_time)
{
    static const char *const ways[] = {"--cluster=cli_machine.yaml", "run.hardware=cli_machine.yaml", "run.hardware=cli_machine.yaml --json"};
    static char first[1 << 18], second[1 << 18];
    FILE *f = fopen("cli_machine.yaml", "w");
    assert_non_null(f);
    fputs(MACHINE, f);
    fclose(f);
    for (int i = 0; i < ORTH_COUNT(ways); i++) {
        char args[256];
        snprintf(args, sizeof args, "plan %s model.preset=gpt2-tiny data.seq_len=32 parallel.dp=2 train.global_batch=8", ways[i]);
        assert_int_equal(run("", args, first, sizeof first), 0);
        assert_int_equal(run("ORTHANT_THREADS=2", args, second, sizeof second), 0);
        assert_string_equal(first, second);
        assert_non_null(strstr(first, i < 2 ? " s (estimate) by the times of X: computing" : "\"step_s\": "));
        assert_true(i < 2 || strstr(first, "\"time\": \"estimated\", \"mfu\": \"estimated\", \"hfu\": \"estimated\", \"tokens_per_s\": \"estimated\", \"times_of_ops\": \"measured\""));
    }
    assert_int_equal(run("", "search --cluster=cli_machine.yaml model.preset=gpt2-tiny data.seq_len=32 train.global_batch=4 parallel.cp=1", first, sizeof first), 0);
    assert_non_null(strstr(first, "popular choices against it"));
    expect("search --model=gpt2-124m --cluster=cli_machine.yaml --goal=cost", 2, "--cluster=cli_machine.yaml is a machine whose ranks share it");
    expect("plan --cluster=cli_machine.yaml-4 model.preset=gpt2-tiny data.seq_len=32", 2, "any number of ranks share a host: leave the number of devices out");
    expect("doctor --calibrate=cli_machine.yaml --json", 2, "doctor: --calibrate writes cli_machine.yaml and prints nothing else");
    remove("cli_machine.yaml");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LARGEST_S "600"
#else
#define LARGEST_S "60"
#endif

/* docs/parallel.md, "Limits". Each takes seconds here; far more is a plan that does not end in sight. */
/* --limit is what memory.recompute=auto chooses for. */
TEST(a_limit_of_fit_and_ladder_counts_for_what_auto_recomputes)
{
    static char out[2][1 << 16];
    char args[1024];
    for (int k = 0; k < 2; k++) {
        const char *const what = k ? "--ladder --limit=1.7MB model.layers=1" : "--fit=layers --limit=2.1MB";
        for (int i = 0; i < 2; i++) {
            snprintf(args, sizeof args, "plan --model=gpt2-tiny data.path=x data.seq_len=64 train.global_batch=1 memory.recompute=auto %s %s "
                     "--cluster=h100-1", what, i ? k ? "memory.recompute_limit=1700000" : "memory.recompute_limit=2100000" : "");
            assert_int_equal(run("", args, out[i], sizeof out[i]), 0);
        }
        assert_string_equal(out[0], out[1]);
    }
}

TEST(plans_of_the_largest_sizes_end)
{
    static const char *const sizes[] = {"model.layers=1000 train.global_batch=1 train.micro_batch=1",
                                        "model.layers=1 train.global_batch=16384 train.micro_batch=1",
                                        "parallel.dp=10000 train.global_batch=10000 train.micro_batch=1 numerics.mode=fast"};
    for (int i = 0; i < ORTH_COUNT(sizes); i++) {
        char args[256];
        snprintf(args, sizeof args, "plan model.preset=gpt2-tiny data.seq_len=8 run.probe_s=0.003 %s", sizes[i]);
        expect_with("timeout " LARGEST_S, args, 0, "memory of ");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_of_fit_and_ladder_counts_for_what_auto_recomputes),
        cmocka_unit_test(plans_of_the_largest_sizes_end),
        cmocka_unit_test(a_vocabulary_that_is_assumed_is_said),
        cmocka_unit_test(limits_of_devices_and_hosts_hold_on_a_cluster),
        cmocka_unit_test(prepared_data_with_more_tokens_than_the_model_has_are_refused_as_train_refuses_them),
        cmocka_unit_test(the_winner_of_a_search_under_limits_is_a_run_file_that_is_accepted),
        cmocka_unit_test(limits_of_files_hold_on_a_cluster),
        cmocka_unit_test(on_a_cluster_a_limit_of_one_machine_is_refused_and_one_of_devices_is_kept),
        cmocka_unit_test(a_plan_as_JSON_has_the_parts_of_the_step_and_the_warnings),
        cmocka_unit_test(a_plan_warns_where_ranks_that_wait_for_each_other_in_every_layer_lie_on_different_hosts),
        cmocka_unit_test(a_plan_that_does_not_fit_names_the_nearest_changes_with_which_it_does),
        cmocka_unit_test(a_plan_of_several_ranks_names_the_one_that_needs_the_most),
        cmocka_unit_test(scaling_is_a_table_of_plans_with_more_and_fewer_ranks),
        cmocka_unit_test(a_price_of_0_is_a_price_and_none_is_not_known),
        cmocka_unit_test(the_memory_of_devices_is_called_device_in_the_plan_of_a_cluster),
        cmocka_unit_test(the_plan_of_different_devices_as_JSON_has_the_shares_of_the_batch),
        cmocka_unit_test(a_plan_of_a_cluster_says_when_memory_is_fullest_how_sure_its_figures_are_and_what_it_does_not_know),
        cmocka_unit_test(no_row_of_memory_against_computing_loses_in_both),
        cmocka_unit_test(recomputation_for_a_limit_is_listed_and_refused_where_none_fits),
        cmocka_unit_test(a_layout_that_a_cluster_does_not_have_is_refused_with_its_place_in_the_run_file),
        cmocka_unit_test(hosts_of_other_sizes_than_the_nodes_of_a_cluster_are_refused),
        cmocka_unit_test(a_plan_by_a_measured_machine_has_the_same_bytes_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
