/* test_offload.c -- optimizer state, weights, gradients and activations in the host's memory or in a file: the same numbers, the planned
 * bytes, and no trace of the file whatever happens to it. Every layout: tests/test_layouts.c, whose draws offload half of the time. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/scratch.h"
#include "run_case.h"

#define STATE "train run.yaml train.steps=4 checkpoint.every_steps=2 --quiet "

/* A run writes the same checkpoints with key=value (and what follows the value) as without. Into plain<i> and other<i>. */
static void check_pair(run_case *r, int i, const char *words, const char *key, const char *value)
{
    char plain[32], other[32];
    snprintf(plain, sizeof plain, "plain%d", i);
    snprintf(other, sizeof other, "other%d", i);
    RUN(r, 0, "", STATE "checkpoint.dir=%s %s", plain, words);
    RUN(r, 0, "", STATE "checkpoint.dir=%s %s %s=%s", other, words, key, value);
    run_same(r, plain, other, 2);
    run_same(r, plain, other, 4);
}

/* Each with what it changes of the run: a type with copies and without, moments in 16 bits, losses scaled so that the first steps are
 * left out, several ranks. */
TEST(a_run_with_offload_writes_the_checkpoints_of_one_without_byte_for_byte)
{
    static const char *const flavours[] = {
        "", "precision.compute=bf16 precision.moments=bf16 precision.rounding=stochastic",
        "precision.compute=fp16 precision.loss_scale=dynamic precision.loss_scale_start=1e30",
        "optimizer.name=sgd precision.compute=bf16", "precision.compute=bf16 parallel.dp=2 parallel.zero=2 train.global_batch=4",
        "train.eval_every=1 train.eval_batches=2 memory.recompute=full", "parallel.pp=2 parallel.pipeline=pipedream train.clip_norm=0 model.tied=false",
        "optimizer.name=sgd optimizer.momentum=0", "optimizer.name=sgd optimizer.momentum=0 precision.compute=bf16 parallel.dp=2 parallel.zero=1 train.global_batch=4",
        "precision.compute=bf16 train.eval_every=1 train.eval_batches=2", "precision.compute=bf16 parallel.dp=2 parallel.zero=2 parallel.pp=2 train.global_batch=4",
    };
    static const char *const tiers[] = {
        "host memory.offload_sub_group=1024 memory.offload_params=host memory.offload_gradients=host",
        "file memory.offload_sub_group=5000 memory.offload_gradients=file", "file memory.offload_params=file",
        "host memory.offload_params=file", "host memory.offload_gradients=host memory.offload_params=file",
        "host memory.offload_params=file memory.offload_gradients=file", "host memory.offload_gradients=host",
        "file", "file memory.offload_sub_group=1024 memory.offload_params=host",
        "host memory.offload_ratio=0.5 memory.offload_sub_group=1024", "file memory.offload_ratio=0.4"};
    _Static_assert(ORTH_COUNT(tiers) == ORTH_COUNT(flavours), "one for each");
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(flavours); i++)
        check_pair(r, i, flavours[i], "memory.offload_optimizer", tiers[i]);
    RUN(r, 0, "", STATE "checkpoint.dir=other0 train.steps=6 --resume memory.offload_optimizer=file memory.offload_params=host"); /* from either to the other */
    RUN(r, 0, "", STATE "checkpoint.dir=plain0 train.steps=6 --resume");
    run_same(r, "plain0", "other0", 6);
    run_end(r);
}

#define SMALL_PIECES " memory.offload_sub_group=1024"
#define EIGHT "precision.moments=8bit "

/* Pieces are whole rows, whose scales travel with them: with AdamW and Adam, in shards of unequal size, by every axis; begun with offload
 * and ended without, and the reverse. */
TEST(moments_in_8_bits_are_the_same_wherever_they_are)
{
    static const char *const cases[][2] = {
        {EIGHT "", "host" SMALL_PIECES},
        {EIGHT "optimizer.name=adam precision.compute=bf16 precision.master=bf16 precision.rounding=stochastic",
         "file memory.offload_params=file memory.offload_gradients=file" SMALL_PIECES},
        {EIGHT "precision.compute=bf16 precision.master=bf16 precision.rounding=stochastic parallel.dp=3 parallel.zero=1", "file memory.offload_gradients=host" SMALL_PIECES},
        {EIGHT "precision.compute=fp16 parallel.dp=3 parallel.zero=2", "host memory.offload_gradients=host" SMALL_PIECES},
        {EIGHT "precision.compute=bf16 parallel.dp=3 parallel.zero=3 parallel.shard_by=layer", "host memory.offload_params=host memory.offload_gradients=host" SMALL_PIECES},
        {EIGHT "parallel.dp=2 'parallel.dp_share=[2,1]' optimizer.name=adam", "file" SMALL_PIECES},
        {EIGHT "parallel.dp=2 parallel.tp=2 parallel.zero=3 train.global_batch=4", "host memory.offload_params=file" SMALL_PIECES},
        {EIGHT "parallel.pp=2 parallel.cp=2", "file memory.offload_gradients=file"},
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        check_pair(r, i, cases[i][0], "memory.offload_optimizer", cases[i][1]);
    RUN(r, 0, "", STATE "checkpoint.dir=other0 train.steps=6 --resume precision.moments=8bit");
    RUN(r, 0, "", STATE "checkpoint.dir=plain0 train.steps=6 --resume precision.moments=8bit parallel.dp=3 parallel.tp=2 parallel.zero=3 "
        "memory.offload_optimizer=file" SMALL_PIECES);
    run_same(r, "plain0", "other0", 6);
    run_end(r);
}

#define ACTIVATIONS "memory.offload_min_bytes=1KiB memory.offload_activations="

/* What leaves the device is whatever is kept: all that the backward reads, inputs of layers, values that wait in a pipeline. */
TEST(a_run_whose_activations_leave_the_device_writes_the_checkpoints_of_one_without)
{
    static const char *const flavours[][2] = {
        {"model.layers=6", "host"},
        {"model.layers=6 precision.compute=bf16", "file memory.recompute=full memory.offload_optimizer=host"},
        {"model.layers=4 train.global_batch=8 parallel.pp=2 parallel.pipeline=interleaved parallel.virtual_stages=2 model.dropout=0.1", "file"},
        {"model.layers=4 parallel.pp=2 parallel.pipeline=zb-h1", "host memory.recompute=selective memory.offload_optimizer=file"},
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(flavours); i++)
        check_pair(r, i, flavours[i][0], "memory.offload_min_bytes=1KiB memory.offload_activations", flavours[i][1]);
    run_end(r);
}

/* Both read the weights where they are, block by block. */
TEST(evaluation_and_text_of_a_run_with_offload_are_those_of_one_without)
{
    static const char *const tiers[] = {"", "memory.offload_optimizer=host memory.offload_params=host memory.offload_gradients=host",
                                        "memory.offload_optimizer=file memory.offload_params=file memory.offload_gradients=file"};
    run_case *r = run_begin();
    char *first[2] = {NULL, NULL};
    for (int i = 0; i < ORTH_COUNT(tiers); i++) {
        RUN(r, 0, "", STATE "checkpoint.dir=e%d train.eval_every=2 train.eval_batches=2 %s", i, tiers[i]);
        for (int k = 0; k < 2; k++) {
            RUN(r, 0, k == 0 ? "loss" : "the river", "%s e%d%s", k == 0 ? "eval" : "generate", i, k == 0 ? "" : " --prompt='the river' --tokens=8");
            if (i == 0)
                first[k] = strdup(r->out);
            else
                assert_string_equal(first[k], r->out);
        }
    }
    free(first[0]);
    free(first[1]);
    run_end(r);
}

/* The text of `key`: {...} behind `from`, or NULL. */
static const char *object_of(const char *from, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\": {", key);
    return from ? strstr(from, name) : NULL;
}

static long number_of(const char *object, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\": ", key);
    const char *at = object ? strstr(object, name) : NULL;
    return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

TEST(each_space_has_the_planned_bytes_and_what_is_offloaded_is_not_on_the_device)
{
    run_case *r = run_begin();
    for (int k = 0; k < 4; k++) {
        const int file = k % 2;
        const char *tier = file ? "file" : "host";
        RUN(r, 0, "", "train run.yaml checkpoint.dir=m%d train.steps=2 precision.compute=bf16 memory.offload_optimizer=%s memory.offload_params=%s "
            "memory.offload_gradients=%s comm.prefetch=0 train.eval_batches=1 --quiet %s", k, tier, tier, tier,
            k < 2 ? "" : "precision.moments=8bit" SMALL_PIECES);
        char name[64];
        snprintf(name, sizeof name, "m%d/memory.json", k);
        char *text = run_read(r, name, NULL);
        const char *planned = object_of(text, "planned"), *counted = object_of(text, "memory");
        const char *spaces[] = {"host", "device", "file"};
        for (int s = 0; s < 2 + file; s++) {
            const char *a = object_of(object_of(planned, "spaces"), spaces[s]), *b = object_of(object_of(counted, "spaces"), spaces[s]);
            static const char *const keys[] = {"params", "grads", "optimizer", "activations", "comm", "workspace", "total"};
            for (int j = 0; j < ORTH_COUNT(keys); j++) {
                assert_true(number_of(a, keys[j]) >= 0);
                assert_int_equal(number_of(a, keys[j]), number_of(b, keys[j]));
            }
        }
        const char *on = object_of(counted, "spaces");
        assert_int_equal(number_of(object_of(on, "device"), "optimizer"), 0);
        assert_true(number_of(object_of(on, tier), "optimizer") > number_of(object_of(on, tier), "params"));
        assert_true(number_of(object_of(on, tier), "params") > 2 * number_of(object_of(on, "device"), "params")); /* of a block or two */
        assert_true(number_of(object_of(on, tier), "grads") > 2 * number_of(object_of(on, "device"), "grads"));
        free(text);
    }
    run_end(r);
}

/* All of a space is counted from addresses: docs/memory.md. */
TEST(activations_are_planned_and_counted_in_the_space_that_they_are_in)
{
    static const char *const tiers[] = {"none", "host", "file"};
    long on_device[3];
    run_case *r = run_begin();
    for (int k = 0; k < 3; k++) {
        RUN(r, 0, "", "train run.yaml checkpoint.dir=m%d train.steps=2 model.layers=8 " ACTIVATIONS "%s --quiet", k, tiers[k]);
        char name[64];
        snprintf(name, sizeof name, "m%d/memory.json", k);
        char *text = run_read(r, name, NULL);
        const char *planned = object_of(object_of(text, "planned"), "spaces"), *counted = object_of(object_of(text, "memory"), "spaces");
        static const char *const spaces[] = {"host", "device", "file"};
        for (int s = 0; s < (k == 0 ? 1 : k == 1 ? 2 : 3); s++) {
            assert_true(number_of(object_of(counted, spaces[s]), "activations") > 0);
            assert_int_equal(number_of(object_of(planned, spaces[s]), "activations"), number_of(object_of(counted, spaces[s]), "activations"));
            assert_int_equal(number_of(object_of(planned, spaces[s]), "total"), number_of(object_of(counted, spaces[s]), "total"));
        }
        on_device[k] = number_of(object_of(counted, k == 0 ? "host" : "device"), "activations");
        free(text);
    }
    for (int k = 1; k < 3; k++)
        assert_true(on_device[k] < on_device[0] / 2);
    run_end(r);
}

TEST(limits_of_the_spaces_are_kept_apart)
{
    run_case *r = run_begin();
    RUN(r, 0, "device memory of a rank: ", "plan run.yaml memory.offload_optimizer=host");
    RUN(r, 3, " B planned in files exceed the limit of 1000 B (memory.limit_file)", "train run.yaml memory.offload_optimizer=file memory.limit_file=1KB");
    RUN(r, 3, ", limit 1000 B (memory.limit); nothing was allocated", "train run.yaml memory.limit=1KB");
    RUN(r, 0, " B planned exceed the limit of 1000 B", "plan run.yaml memory.limit=1KB");
    RUN(r, 3, "exceed the limit of 102400 B (memory.limit_device); nothing was allocated",
        "train run.yaml memory.offload_optimizer=host memory.limit_device=100KiB");
    RUN(r, 3, "planned in files exceed the limit of 10240 B (memory.limit_file)",
        "train run.yaml memory.offload_optimizer=file memory.limit_file=10KiB");
    RUN(r, 3, "exceed the limit of 102400 B (memory.limit_device); nothing was allocated",
        "train run.yaml memory.offload_activations=host memory.limit_device=100KiB");
    RUN(r, 3, "planned in files exceed the limit of 10240 B (memory.limit_file)",
        "train run.yaml model.layers=6 " ACTIVATIONS "file memory.limit_file=10KiB");
    RUN(r, 2, "memory.limit_device needs memory.offload_optimizer or memory.offload_activations", "plan run.yaml memory.limit_device=1GiB");
    RUN(r, 3, "planned in the host's memory exceed the limit of 102400 B (memory.limit_host); nothing was allocated",
        "train run.yaml memory.offload_optimizer=host memory.limit_host=100KiB");
    RUN(r, 2, "memory.limit_host needs memory.offload_optimizer or memory.offload_activations", "plan run.yaml memory.limit_host=1GiB");
    RUN(r, 2, "memory.limit_file needs memory.offload_optimizer=file, or another of memory.offload_*",
        "plan run.yaml memory.offload_optimizer=host memory.offload_activations=host memory.limit_file=1GiB");
    RUN(r, 2, "memory.offload_params=host needs memory.offload_optimizer=host or file, not none", "plan run.yaml memory.offload_params=host");
    RUN(r, 2, "memory.offload_gradients=file needs memory.offload_optimizer=host or file, not none",
        "plan run.yaml memory.offload_gradients=file");
    RUN(r, 2, "memory.offload_ratio=0.5 needs memory.offload_params=none and memory.offload_gradients=none",
        "plan run.yaml memory.offload_optimizer=host memory.offload_gradients=host memory.offload_ratio=0.5");
    RUN(r, 0, "memory.offload_ratio=0.5 has no effect: memory.offload_optimizer=none", "plan run.yaml memory.offload_ratio=0.5");
    RUN(r, 0, "  memory.offload_ratio=1\n", "plan run.yaml memory.offload_optimizer=host memory.offload_ratio=0.5 memory.limit_device=100KiB --ladder");
    RUN(r, 0, "  memory.offload_optimizer=host memory.offload_ratio=0.5\n", "plan run.yaml --cluster=a100-80gb-1 --ladder --limit=100KiB");
    assert_non_null(strstr(r->out, "  memory.offload_optimizer=host memory.offload_gradients=host memory.offload_params=host\n"));
    assert_null(strstr(r->out, "ratio=0.5 memory.offload_gradients"));
    RUN(r, 0, "one change", "plan run.yaml --ladder --limit=100KiB memory.offload_optimizer=host");
    assert_null(strstr(r->out, "memory.offload_ratio"));
    RUN(r, 0, " memory.offload_gradients=host memory.offload_ratio=1\n",
        "plan run.yaml memory.offload_optimizer=host memory.offload_ratio=0.5 memory.limit_device=100KiB --ladder");
    RUN(r, 2, "memory.offload_params=host does not go with parallel.pipeline=pipedream",
        "plan run.yaml memory.offload_optimizer=host memory.offload_params=host parallel.pp=2 parallel.pipeline=pipedream");
    run_end(r);
}

/* The system keeps a file in memory, or does not: no number knows. What a step moves is planned, and counted where it moves. */
TEST(bytes_to_and_from_files_are_planned_and_counted_and_the_way_changes_no_bit)
{
    static const char *const what[] = {"memory.offload_optimizer=file memory.offload_params=file memory.offload_gradients=file train.micro_batch=1",
                                       "precision.compute=bf16 memory.offload_optimizer=file parallel.dp=2 parallel.zero=1 train.global_batch=4", ACTIVATIONS "file model.layers=6",
                                       "precision.moments=8bit memory.offload_optimizer=file parallel.dp=2 parallel.zero=1 train.global_batch=4" SMALL_PIECES};
    static const char *const ways[] = {"auto", "buffered"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(what); i++) {
        for (int way = 0; way < 2; way++) {
            long moved[2][2];
            char name[64];
            for (int steps = 0; steps < 2; steps++) {
                RUN(r, 0, "", "train run.yaml train.steps=%d checkpoint.dir=%s%d%d %s memory.offload_io=%s", 2 + 2 * steps, ways[way], i, steps, what[i], ways[way]);
                assert_non_null(strstr(r->out, way == 0 ? "the file in . is read and written " : "written through the page cache (memory.offload_io=buffered)"));
                snprintf(name, sizeof name, "%s%d%d/memory.json", ways[way], i, steps);
                char *text = run_read(r, name, NULL);
                const char *buffers = object_of(text, "file_buffers"), *counted = object_of(text, "file_moved");
                assert_int_equal(number_of(buffers, "planned"), number_of(buffers, "counted"));
                assert_int_equal(number_of(buffers, "counted"), (long)orth_scratch_room(way == 0 ? ORTH_FILE_IO_AUTO : ORTH_FILE_IO_BUFFERED));
                moved[steps][0] = number_of(counted, "read");
                moved[steps][1] = number_of(counted, "written");
                free(text);
            }
            snprintf(name, sizeof name, "%s%d1/plan.json", ways[way], i);
            char *plan = run_read(r, name, NULL);
            const char *planned = object_of(plan, "file_a_step");
            assert_true(number_of(planned, "read") > 0);
            assert_int_equal(moved[1][0] - moved[0][0], 2 * number_of(planned, "read"));
            assert_int_equal(moved[1][1] - moved[0][1], 2 * number_of(planned, "written"));
            free(plan);
        }
        char a[32], b[32];
        snprintf(a, sizeof a, "auto%d1", i);
        snprintf(b, sizeof b, "buffered%d1", i);
        run_same(r, a, b, 4);
    }
    run_end(r);
}

static double real_of(const char *object, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\": ", key);
    const char *at = object ? strstr(object, name) : NULL;
    if (!at)
        fail_msg("there is no \"%s\"", key);
    return strtod(at + strlen(name), NULL);
}

#define MACHINE(more) \
    "device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1" more "}\nhost: {cores: 2, isa: base}\n" \
    "fp32_one: {linear: [1000, 0, 0, 0, 0, 0.05]}\n"
#define DEVICE(more) "device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 2, GBps: 10" more "}\n" \
    "network: {nics: 1, GBps: 1}\n"
#define SLOW ", file_GBps: 0.002, file_write_GBps: 0.001"

/* At these rates a step is nothing but its files. Ranks of a machine, or of a node, share them. */
TEST(a_step_takes_at_least_what_its_files_take_at_the_rates_of_the_node)
{
    static const struct {
        const char *file, *where, *says;
        int ranks, sharers;
        double read, write;
    } cases[] = {
        {MACHINE(SLOW), "run.hardware=m.yaml", "node.file_GBps of the description", 1, 1, 2e6, 1e6},
        {MACHINE(SLOW), "run.hardware=m.yaml", "node.file_GBps of the description", 2, 2, 2e6, 1e6},
        {MACHINE(""), "run.hardware=m.yaml", "assumed: the description of the hardware has no node.file_GBps", 2, 2, 3e9, 3e9},
        {DEVICE(SLOW), "--cluster=m.yaml", "node.file_GBps of the description", 1, 1, 2e6, 1e6},
        {DEVICE(SLOW), "--cluster=m.yaml", "node.file_GBps of the description", 4, 2, 2e6, 1e6},
        {DEVICE(""), "--cluster=m.yaml", "assumed: the description of the hardware has no node.file_GBps", 4, 2, 6e9, 6e9},
    };
    run_case *r = run_begin();
    RUN(r, 0, "GB/s written (measured)", "plan run.yaml memory.offload_optimizer=file");
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        run_write(r, "m.yaml", cases[i].file, strlen(cases[i].file));
        RUN(r, 0, cases[i].says, "plan run.yaml train.global_batch=4 train.micro_batch=1 parallel.dp=%d memory.offload_optimizer=file %s", cases[i].ranks,
            cases[i].where);
        RUN(r, 0, "", "plan run.yaml train.global_batch=4 train.micro_batch=1 parallel.dp=%d memory.offload_optimizer=file %s --json", cases[i].ranks,
            cases[i].where);
        const char *file = object_of(r->out, "file"), *rank = object_of(r->out, "file_a_step");
        const double read = real_of(rank, "read") * cases[i].sharers, written = real_of(rank, "written") * cases[i].sharers;
        const double floor = read / cases[i].read + written / cases[i].write;
        assert_true(read > 0 && written > 0);
        assert_true(fabs(real_of(file, "floor_s") / floor - 1) < 1e-6);
        assert_true(real_of(r->out, "step_s") > 0.999999 * floor);
        assert_true(cases[i].read > 1e7 || real_of(r->out, "step_s") < 1.3 * floor);
    }
    run_end(r);
}

/* Entries of a folder. */
static int num_entries(run_case *r, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    DIR *d = opendir(path);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

TEST(a_killed_run_leaves_no_file)
{
    run_case *r = run_begin();
    char command[1024], out[256], path[256];
    snprintf(path, sizeof path, "%s/there", r->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(command, sizeof command, "cd %s && { " ORTH_BINARY " train run.yaml train.steps=100000 memory.offload_optimizer=file "
             "memory.offload_dir=there --quiet & p=$!; while ! grep -q '\"step\": 3' a/metrics.jsonl 2>/dev/null && kill -0 $p 2>/dev/null; "
             "do sleep 0.02; done; ls -A there | wc -l; kill -KILL $p; wait $p; } 2>/dev/null", r->dir);
    run_shell(command, out, sizeof out);
    assert_int_equal(atoi(out), 0);
    assert_true(run_has(r, "a/metrics.jsonl"));
    assert_int_equal(num_entries(r, "there"), 0);
    run_end(r);
}

TEST(a_folder_that_cannot_have_the_file_is_named)
{
    run_case *r = run_begin();
    RUN(r, 5, "memory.offload_dir=no/such: cannot make", "train run.yaml memory.offload_optimizer=file memory.offload_dir=no/such");
    RUN(r, 5, "memory.offload_dir=/proc: cannot make", "train run.yaml memory.offload_optimizer=file memory.offload_dir=/proc memory.limit_file=1GiB");
    run_end(r);
}

/* A file system of its own for the folder, full or read-only: of a command's mount namespace, so that it goes with it. */
TEST(a_full_or_read_only_file_system_is_told_and_no_run_folder_begins)
{
    static const struct {
        const char *mount; /* on `there` */
        const char *words;
        int code;
        const char *says[2];
    } cases[] = {
        {"size=64k", "", 3, {"planned in files exceed the limit of 65536 B (free in memory.offload_dir)", "memory.offload_optimizer=none"}},
        {"size=64k", "memory.limit_file=1GiB", 3, {"exceed the limit of 65536 B (free in memory.offload_dir)", "memory.offload_optimizer=none"}},
        {"size=64k,ro", "", 3, {"free in memory.offload_dir", "they cannot be planned: memory.offload_dir=there: cannot make"}},
        {"size=1g,ro", "", 5, {"memory.offload_dir=there: cannot make", "Read-only file system"}},
        {"size=1g", "", 0, {"saved", ""}},
    };
    run_case *r = run_begin();
    char command[1024];
    snprintf(command, sizeof command, "cd %s && mkdir there && unshare -m mount -t tmpfs none there 2>&1", r->dir);
    if (run_shell(command, r->out, sizeof r->out) != 0) {
        print_message("no file system can be mounted here: %s", r->out);
        run_end(r);
        skip();
    }
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        snprintf(command, sizeof command, "cd %s && unshare -m sh -c 'mount -t tmpfs -o %s none there && exec " ORTH_BINARY
                 " train run.yaml train.steps=2 checkpoint.dir=w memory.offload_optimizer=file memory.offload_dir=there %s' 2>&1", r->dir,
                 cases[i].mount, cases[i].words);
        const int code = run_shell(command, r->out, sizeof r->out);
        if (code != cases[i].code || !strstr(r->out, cases[i].says[0]) || !strstr(r->out, cases[i].says[1]) || run_has(r, "w") != (code == 0))
            fail_msg("%s %s: exit %d, wanted %d; it said:\n%s", cases[i].mount, cases[i].words, code, cases[i].code, r->out);
    }
    run_end(r);
}

#ifdef ORTH_FAULT_SHIM
/* The k-th write of the file fails, whatever the reason. */
TEST(a_disk_that_fails_in_a_step_ends_the_run_and_the_last_checkpoint_is_whole)
{
    static const struct {
        const char *kind;
        int code;
        const char *says, *what;
    } cases[] = {
        {"pwrite:60:5", 5, "memory.offload_dir=.: cannot write ", "memory.offload_optimizer=file"},
        {"pwrite:60:28", 3, "No space left on device", "memory.offload_optimizer=file memory.offload_gradients=file"},
        {"pread:60:5", 5, ": cannot read ", "memory.offload_optimizer=file memory.offload_params=file"},
        {"pwrite:40:28", 3, "No space left on device", ACTIVATIONS "file"},
        {"pread:40:5", 5, ": cannot read ", ACTIVATIONS "file"},
#if ORTH_HAVE_URING
        {"uring:40:5", 5, ": cannot ", "run.hardware=m.yaml memory.offload_optimizer=file"},
        {"uring:41:28", 3, "No space left on device", "run.hardware=m.yaml memory.offload_optimizer=file memory.offload_gradients=file"},
        {"uring:20:+", 5, ": Input/output error", "run.hardware=m.yaml " ACTIVATIONS "file"},
        {"open_direct:1", 5, "past the page cache: O_DIRECT: Invalid argument", "run.hardware=m.yaml memory.offload_optimizer=file memory.offload_io=direct"},
#endif
    };
    run_case *r = run_begin();
    run_write(r, "m.yaml", MACHINE(SLOW), strlen(MACHINE(SLOW))); /* so that no plan measures a file, whose calls would be the first */
    RUN(r, 0, "", "train run.yaml model.layers=4 train.steps=2 checkpoint.dir=seed --quiet");
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char command[1024];
        run_remove(r, "w");
        snprintf(command, sizeof command, "cd %s && cp -r seed w && env ORTH_FAULT=%s LD_PRELOAD=" ORTH_FAULT_SHIM " " ORTH_BINARY
                 " train run.yaml model.layers=4 train.steps=9 checkpoint.dir=w --resume %s --quiet 2>&1", r->dir, cases[i].kind, cases[i].what);
        const int code = run_shell(command, r->out, sizeof r->out);
        if (code != cases[i].code || !strstr(r->out, cases[i].says) || !strstr(r->out, " file for offload"))
            fail_msg("%s: exit %d, wanted %d; it said:\n%s", cases[i].kind, code, cases[i].code, r->out);
        run_same_file(r, "seed/checkpoints/step-00000002/optimizer.safetensors", "w/checkpoints/step-00000002/optimizer.safetensors");
        RUN(r, 0, "", "train run.yaml model.layers=4 train.steps=3 checkpoint.dir=w --resume --quiet");
    }
    run_end(r);
}

/* Room for the file is taken before the first step: on a full disk, one that can only be read, and one that cannot promise room. */
TEST(a_disk_without_room_for_the_file_is_told_before_the_first_step)
{
    static const struct {
        const char *fault;
        int code;
        const char *says, *why;
    } cases[] = {
        {"fallocate:1", 3, "memory.offload_dir=.: cannot take ", "No space left on device"},
        {"open_tmpfile:1", 5, "memory.offload_dir=.: cannot make ", "Read-only file system"},
        {"fallocate:1:95", 0, "saved", ""}, /* EOPNOTSUPP */
    };
    run_case *r = run_begin();
    run_write(r, "m.yaml", MACHINE(SLOW), strlen(MACHINE(SLOW)));
    RUN(r, 0, "", "train run.yaml train.steps=2 checkpoint.dir=seed --quiet");
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char command[1024];
        run_remove(r, "w");
        snprintf(command, sizeof command, "cd %s && cp -r seed w && env ORTH_FAULT=%s LD_PRELOAD=" ORTH_FAULT_SHIM " " ORTH_BINARY
                 " train run.yaml train.steps=3 checkpoint.dir=w --resume run.hardware=m.yaml memory.offload_optimizer=file 2>&1", r->dir, cases[i].fault);
        const int code = run_shell(command, r->out, sizeof r->out);
        if (code != cases[i].code || !strstr(r->out, cases[i].says) || !strstr(r->out, cases[i].why) || !strstr(r->out, "step 3") != (code != 0))
            fail_msg("%s: exit %d, wanted %d; it said:\n%s", cases[i].fault, code, cases[i].code, r->out);
        run_same_file(r, "seed/checkpoints/step-00000002/optimizer.safetensors", "w/checkpoints/step-00000002/optimizer.safetensors");
    }
    run_end(r);
}

#if ORTH_HAVE_URING
/* The run says it once, and computes the same. */
TEST(where_a_file_cannot_pass_the_page_cache_by_the_run_says_why)
{
    static const struct {
        const char *fault, *refused; /* what; NULL: nothing */
        int error;
    } cases[] = {{"open_direct:1", "O_DIRECT", EINVAL}, {"uring_init:1:1", "io_uring", EPERM}, {"uring_init:1:38", "io_uring", ENOSYS},
                 {"uring:1:22", "O_DIRECT through io_uring", EINVAL},
                 {"uring_lost:1", "O_DIRECT through io_uring", ETIMEDOUT}, {"uring_short:1:+", NULL, 0}, {"uring:3:11", NULL, 0}};
    run_case *r = run_begin();
    RUN(r, 0, "", STATE "checkpoint.dir=plain");
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char command[1024];
        run_remove(r, "w");
        snprintf(command, sizeof command, "cd %s && env ORTH_FAULT=%s LD_PRELOAD=" ORTH_FAULT_SHIM " " ORTH_BINARY " train run.yaml train.steps=4 "
                 "checkpoint.every_steps=2 checkpoint.dir=w run.hardware=m.yaml memory.offload_optimizer=file memory.offload_params=file 2>&1", r->dir, cases[i].fault);
        run_write(r, "m.yaml", MACHINE(SLOW), strlen(MACHINE(SLOW))); /* as above */
        const int code = run_shell(command, r->out, sizeof r->out);
        char says[256] = "the file in . is read and written past the page cache (io_uring, O_DIRECT)";
        if (cases[i].refused)
            snprintf(says, sizeof says, "the file in . is read and written through the page cache (%s: %s)", cases[i].refused, strerror(cases[i].error));
        const char *said = strstr(r->out, says);
        if (code != 0 || !said || strstr(said + strlen(says), "page cache"))
            fail_msg("%s: exit %d, it said:\n%s", cases[i].fault, code, r->out);
        run_same(r, "plain", "w", 4);
    }
    run_end(r);
}
#endif

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_with_offload_writes_the_checkpoints_of_one_without_byte_for_byte),
        cmocka_unit_test(moments_in_8_bits_are_the_same_wherever_they_are),
        cmocka_unit_test(a_run_whose_activations_leave_the_device_writes_the_checkpoints_of_one_without),
        cmocka_unit_test(evaluation_and_text_of_a_run_with_offload_are_those_of_one_without),
        cmocka_unit_test(each_space_has_the_planned_bytes_and_what_is_offloaded_is_not_on_the_device),
        cmocka_unit_test(activations_are_planned_and_counted_in_the_space_that_they_are_in),
        cmocka_unit_test(limits_of_the_spaces_are_kept_apart),
        cmocka_unit_test(bytes_to_and_from_files_are_planned_and_counted_and_the_way_changes_no_bit),
        cmocka_unit_test(a_step_takes_at_least_what_its_files_take_at_the_rates_of_the_node),
        cmocka_unit_test(a_killed_run_leaves_no_file),
        cmocka_unit_test(a_folder_that_cannot_have_the_file_is_named),
        cmocka_unit_test(a_full_or_read_only_file_system_is_told_and_no_run_folder_begins),
#ifdef ORTH_FAULT_SHIM
        cmocka_unit_test(a_disk_without_room_for_the_file_is_told_before_the_first_step),
        cmocka_unit_test(a_disk_that_fails_in_a_step_ends_the_run_and_the_last_checkpoint_is_whole),
#if ORTH_HAVE_URING
        cmocka_unit_test(where_a_file_cannot_pass_the_page_cache_by_the_run_says_why),
#endif
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
