/* test_offload.c -- optimizer state, weights, gradients and activations in the host's memory or in a file: the same numbers, the planned
 * bytes, and no trace of the file whatever happens to it. Every layout: tests/test_layouts.c, whose draws offload half of the time. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/scratch.h"
#include "program/check/check.h"
#include "program/check/check_flow.h"
#include "program/compile.h"
#include "plan/programs.h"
#include "run_case.h"

#define STATE "train run.yaml train.steps=4 checkpoint.every_steps=2 --quiet "

/* Each with what it changes of the run: a type with copies and without, moments in 16 bits, losses scaled so that the first steps are
 * left out, several ranks. */
TEST(a_run_with_offload_writes_the_checkpoints_of_one_without_byte_for_byte)
{
    static const char *const flavours[] = {
        "", "precision.compute=bf16 precision.moments=bf16 precision.rounding=stochastic",
        "precision.compute=fp16 precision.loss_scale=dynamic precision.loss_scale_start=1e30",
        "optimizer.name=sgd precision.compute=bf16", "precision.compute=bf16 parallel.dp=2 parallel.zero=2 train.global_batch=4",
        "train.eval_every=1 train.eval_batches=2 memory.recompute=full", "parallel.pp=2 parallel.pipeline=pipedream train.clip_norm=0 model.tied=false",
    };
    static const char *const tiers[] = {
        "host memory.offload_sub_group=1024 memory.offload_params=host memory.offload_gradients=host",
        "file memory.offload_sub_group=5000 memory.offload_gradients=file", "file memory.offload_params=file",
        "host memory.offload_params=file", "host memory.offload_gradients=host memory.offload_params=file",
        "host memory.offload_params=file memory.offload_gradients=file", "host memory.offload_gradients=host"};
    _Static_assert(ORTH_COUNT(tiers) == ORTH_COUNT(flavours), "one for each");
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(flavours); i++) {
        RUN(r, 0, "", STATE "checkpoint.dir=plain%d %s", i, flavours[i]);
        char plain[32], other[32];
        snprintf(plain, sizeof plain, "plain%d", i);
        snprintf(other, sizeof other, "other%d", i);
        RUN(r, 0, "", STATE "checkpoint.dir=%s %s memory.offload_optimizer=%s", other, flavours[i], tiers[i]);
        run_same(r, plain, other, 2);
        run_same(r, plain, other, 4);
    }
    RUN(r, 0, "", STATE "checkpoint.dir=other0 train.steps=6 --resume memory.offload_optimizer=file memory.offload_params=host"); /* from either to the other */
    RUN(r, 0, "", STATE "checkpoint.dir=plain0 train.steps=6 --resume");
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
    for (int i = 0; i < ORTH_COUNT(flavours); i++) {
        char plain[32], other[32];
        snprintf(plain, sizeof plain, "plain%d", i);
        snprintf(other, sizeof other, "other%d", i);
        RUN(r, 0, "", STATE "checkpoint.dir=%s %s", plain, flavours[i][0]);
        RUN(r, 0, "", STATE "checkpoint.dir=%s %s " ACTIVATIONS "%s", other, flavours[i][0], flavours[i][1]);
        run_same(r, plain, other, 4);
    }
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
    for (int file = 0; file < 2; file++) {
        const char *tier = file ? "file" : "host";
        RUN(r, 0, "", "train run.yaml checkpoint.dir=m%d train.steps=2 precision.compute=bf16 memory.offload_optimizer=%s memory.offload_params=%s "
            "memory.offload_gradients=%s comm.prefetch=0 train.eval_batches=1 --quiet", file, tier, tier, tier);
        char name[64];
        snprintf(name, sizeof name, "m%d/memory.json", file);
        char *text = run_read(r, name, NULL);
        const char *planned = object_of(text, "planned"), *counted = object_of(text, "memory");
        const char *spaces[] = {"host", "device", "file"};
        for (int s = 0; s < 2 + file; s++) {
            const char *a = object_of(object_of(planned, "spaces"), spaces[s]), *b = object_of(object_of(counted, "spaces"), spaces[s]);
            static const char *const keys[] = {"params", "grads", "optimizer", "activations", "comm", "workspace", "total"};
            for (int k = 0; k < ORTH_COUNT(keys); k++) {
                assert_true(number_of(a, keys[k]) >= 0);
                assert_int_equal(number_of(a, keys[k]), number_of(b, keys[k]));
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
    RUN(r, 3, "exceed the limit of 0.10 MiB (memory.limit_device); nothing was allocated",
        "train run.yaml memory.offload_optimizer=host memory.limit_device=100KiB");
    RUN(r, 3, "planned in files exceed the limit of 0.01 MiB (memory.limit_file)",
        "train run.yaml memory.offload_optimizer=file memory.limit_file=10KiB");
    RUN(r, 3, "exceed the limit of 0.10 MiB (memory.limit_device); nothing was allocated",
        "train run.yaml memory.offload_activations=host memory.limit_device=100KiB");
    RUN(r, 3, "planned in files exceed the limit of 0.01 MiB (memory.limit_file)",
        "train run.yaml model.layers=6 " ACTIVATIONS "file memory.limit_file=10KiB");
    RUN(r, 2, "memory.limit_device needs memory.offload_optimizer or memory.offload_activations", "plan run.yaml memory.limit_device=1GiB");
    RUN(r, 3, "planned in the host's memory exceed the limit of 0.10 MiB (memory.limit_host); nothing was allocated",
        "train run.yaml memory.offload_optimizer=host memory.limit_host=100KiB");
    RUN(r, 2, "memory.limit_host needs memory.offload_optimizer or memory.offload_activations", "plan run.yaml memory.limit_host=1GiB");
    RUN(r, 2, "memory.limit_file needs memory.offload_optimizer=file, or another of memory.offload_*",
        "plan run.yaml memory.offload_optimizer=host memory.offload_activations=host memory.limit_file=1GiB");
    RUN(r, 2, "memory.offload_params=host needs memory.offload_optimizer=host or file, not none", "plan run.yaml memory.offload_params=host");
    RUN(r, 2, "memory.offload_gradients=file needs memory.offload_optimizer=host or file, not none",
        "plan run.yaml memory.offload_gradients=file");
    RUN(r, 2, "memory.offload_params=host does not go with parallel.pipeline=pipedream",
        "plan run.yaml memory.offload_optimizer=host memory.offload_params=host parallel.pp=2 parallel.pipeline=pipedream");
    run_end(r);
}

/* The system keeps a file in memory, or does not: no number knows. What a step moves is planned, and counted where it moves. */
TEST(bytes_to_and_from_files_are_planned_and_counted_and_the_way_changes_no_bit)
{
    static const char *const what[] = {"memory.offload_optimizer=file memory.offload_params=file memory.offload_gradients=file train.micro_batch=1",
                                       "precision.compute=bf16 memory.offload_optimizer=file parallel.dp=2 parallel.zero=1 train.global_batch=4", ACTIVATIONS "file model.layers=6"};
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
        if (code != cases[i].code || !strstr(r->out, cases[i].says) || !strstr(r->out, "offloaded state"))
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
        const char *fault, *says;
    } cases[] = {
        {"open_direct:1", "the file in . is read and written through the page cache (O_DIRECT: Invalid argument)"},
        {"uring_init:1:1", "the file in . is read and written through the page cache (io_uring: Operation not permitted)"},
        {"uring_init:1:38", "the file in . is read and written through the page cache (io_uring: Function not implemented)"},
        {"uring:1:22", "the file in . is read and written through the page cache (O_DIRECT through io_uring: Invalid argument)"},
        {"uring_short:1:+", "the file in . is read and written past the page cache (io_uring, O_DIRECT)"},
        {"uring:3:11", "the file in . is read and written past the page cache (io_uring, O_DIRECT)"}};
    run_case *r = run_begin();
    RUN(r, 0, "", STATE "checkpoint.dir=plain");
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char command[1024];
        run_remove(r, "w");
        snprintf(command, sizeof command, "cd %s && env ORTH_FAULT=%s LD_PRELOAD=" ORTH_FAULT_SHIM " " ORTH_BINARY " train run.yaml train.steps=4 "
                 "checkpoint.every_steps=2 checkpoint.dir=w run.hardware=m.yaml memory.offload_optimizer=file memory.offload_params=file 2>&1", r->dir, cases[i].fault);
        run_write(r, "m.yaml", MACHINE(SLOW), strlen(MACHINE(SLOW))); /* as above */
        const int code = run_shell(command, r->out, sizeof r->out);
        const char *said = strstr(r->out, cases[i].says);
        if (code != 0 || !said || strstr(said + strlen(cases[i].says), "page cache"))
            fail_msg("%s: exit %d, it said:\n%s", cases[i].fault, code, r->out);
        run_same(r, "plain", "w", 4);
    }
    run_end(r);
}
#endif

#endif

/* ---- the program ---- */

static void compile_with(orth_ctx *ctx, int layers, orth_recompute_kind recompute, orth_offload offload, orth_compiled *out)
{
    orth_model_config m;
    CHECK_OK(ctx, orth_model_preset(ctx, "gpt2-tiny", &m));
    m.vocab = 131;
    m.layers = layers > 0 ? layers : m.layers;
    const orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .seq_len = 16, .num_seqs = 1, .num_micro_batches = 2, .parts = 4,
                                    .compute = ORTH_BF16, .space = ORTH_SPACE_DEVICE, .offload = offload, .optimizer = ORTH_OP_adamw,
                                    .comm = {.prefetch = 1}, .recompute = {.kind = recompute, .layers = 1}};
    CHECK_OK(ctx, orth_compiled_build(ctx, &m, &shape, out));
}

static void compile(orth_ctx *ctx, orth_tier tier, orth_compiled *out)
{
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, (orth_offload){.optimizer = tier, .sub_group = 2000}, out);
}

static orth_status check_all(orth_ctx *ctx, const orth_program *p)
{
    orth_rank_groups alone;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        alone.size[g] = 1, alone.pos[g] = 0;
    ORTH_TRY(orth_check(ctx, p));
    return orth_check_flow(ctx, p, 0, &alone);
}

/* The n-th instruction of the kind: an update, or a copy that brings something near or takes it back. */
typedef enum { UPDATE, NEAR, BACK } part;
static orth_instr *find(orth_program *p, part kind, int n)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        orth_instr *x = &p->instrs[i];
        const bool copy = x->op == ORTH_OP_copy, near = copy && p->buffers[x->out[0].buffer].staging;
        const bool is = kind == UPDATE ? x->op == ORTH_OP_adamw : kind == NEAR ? near : copy && p->buffers[x->in[0].buffer].staging;
        if (is && n-- == 0)
            return x;
    }
    fail_msg("there is no such instruction");
    return NULL;
}

TEST(pieces_that_are_mixed_up_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile(ctx, (orth_tier)tier, &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        orth_instr *u = find(p, UPDATE, 1), before = *u; /* the second piece of the first weight */
        assert_true(u->attr->num_pieces > 2 && u->attr->piece == 1);
        orth_program_own_attr(p, u)->piece = 2;
        CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "updated out of turn", check_all(ctx, p));
        *u = before;
        orth_operand *from = &find(p, NEAR, 0)->in[0], was = *from; /* another piece of the gradient */
        from->byte_offset += 2000 * sizeof(float);
        CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "for an update of", check_all(ctx, p));
        *from = was;
        orth_operand *to = &find(p, BACK, 0)->out[0];
        was = *to;
        to->byte_offset += 2000 * orth_dtype_bytes(to->dtype);
        CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "for an update of", check_all(ctx, p));
        *to = was;
        CHECK_OK(ctx, check_all(ctx, p));
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* The gradient of piece k + 1 is on its way, in a queue of its own, when piece k is updated. */
TEST(the_next_piece_comes_beside_the_update_of_this_one)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile(ctx, (orth_tier)tier, &c);
        const orth_program *p = &c.program;
        int updates = 0, gradients = 0, total = 0;
        for (int32_t i = 0; i < p->num_instrs; i++)
            total += p->instrs[i].op == ORTH_OP_adamw;
        for (int32_t i = 0; i < p->num_instrs; i++) {
            const orth_instr *n = &p->instrs[i];
            updates += n->op == ORTH_OP_adamw;
            if (n->op == ORTH_OP_adamw)
                assert_int_equal(gradients, ORTH_MIN(updates + 1, total));
            if (n->op == ORTH_OP_copy && p->buffers[n->in[0].buffer].bind == ORTH_BIND_GRAD) {
                assert_int_equal(p->queues[n->queue].kind, ORTH_QUEUE_COPY_OUT);
                gradients++;
            }
        }
        assert_true(total > 10);
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* ---- activations in the program ---- */

static void compile_activations(orth_ctx *ctx, int layers, orth_recompute_kind recompute, orth_tier tier, orth_compiled *out)
{
    compile_with(ctx, layers, recompute, (orth_offload){.activations = tier, .min_bytes = 256}, out);
}

static size_t peak_of(orth_ctx *ctx, int layers, orth_recompute_kind recompute, orth_tier tier)
{
    orth_compiled c;
    compile_activations(ctx, layers, recompute, tier, &c);
    const size_t bytes = c.program.transient_bytes[ORTH_SPACE_DEVICE];
    orth_compiled_release(&c);
    return bytes;
}

/* However many layers: what stays are statistics of norms, which are small. */
TEST(the_device_has_the_activations_of_a_few_layers_at_a_time)
{
    static const orth_recompute_kind kinds[] = {ORTH_RECOMPUTE_NONE, ORTH_RECOMPUTE_SELECTIVE, ORTH_RECOMPUTE_FULL};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(kinds); k++)
        for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
            const size_t plain = peak_of(ctx, 24, kinds[k], ORTH_TIER_NONE) - peak_of(ctx, 12, kinds[k], ORTH_TIER_NONE);
            const size_t few = peak_of(ctx, 12, kinds[k], (orth_tier)tier), many = peak_of(ctx, 24, kinds[k], (orth_tier)tier);
            if (many > few + plain / 20)
                fail_msg("policy %d, tier %d: 12 layers need %zu bytes, 24 layers %zu; kept on the device 12 layers more need %zu more",
                         (int)kinds[k], tier, few, many, plain);
        }
    test_ctx_free(ctx);
}

/* Copies out stand before what computes; a copy in stands before its reader by no more than two layers' work, and never less than one
 * product. */
TEST(a_copy_travels_while_the_next_layer_computes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile_activations(ctx, 12, ORTH_RECOMPUTE_NONE, ORTH_TIER_HOST, &c);
    const orth_program *p = &c.program;
    int in = 0, out = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op != ORTH_OP_copy || n->queue == 0)
            continue;
        const bool leaves = p->queues[n->queue].kind == ORTH_QUEUE_COPY_OUT;
        assert_true(leaves || p->queues[n->queue].kind == ORTH_QUEUE_COPY_IN);
        int products = 0, copies = 0;
        for (int32_t k = i + 1; k < n->until; k++) {
            products += orth_op_family_of(p->instrs[k].op) == ORTH_OPS_PRODUCT;
            copies += p->instrs[k].op == ORTH_OP_copy && p->queues[p->instrs[k].queue].kind == p->queues[n->queue].kind;
        }
        assert_in_range(products, 1, 12); /* a layer has four forward, eight backward */
        assert_in_range(copies, 0, 24);
        *(leaves ? &out : &in) += 1;
    }
    assert_true(out > 12 * 5);
    assert_int_equal(in, out);
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

/* Every event that is left is the only path between two instructions that touch the same bytes. */
TEST(without_an_event_of_a_copy_the_program_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        int dropped = 0;
        compile_activations(ctx, 6, ORTH_RECOMPUTE_NONE, (orth_tier)tier, &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        for (int32_t i = 0; i < p->num_instrs; i++) {
            orth_instr *n = &p->instrs[i], was = *n;
            for (int k = 0; k < was.num_waits; k++) {
                orth_wait fewer[ORTH_MAX_QUEUES];
                n->num_waits = 0;
                n->waits = fewer;
                for (int w = 0; w < was.num_waits; w++)
                    if (w != k)
                        fewer[n->num_waits++] = was.waits[w];
                CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "no event says that", orth_check(ctx, p));
                *n = was;
                dropped++;
            }
        }
        assert_true(dropped > 100);
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* Before it is placed, so that nothing else of it changes. */
TEST(without_a_copy_or_with_another_value_the_program_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile_activations(ctx, 6, ORTH_RECOMPUTE_NONE, (orth_tier)tier, &c);
        orth_program p;
        orth_program_init(ctx, &p);
        CHECK_OK(ctx, orth_compile(ctx, &c.blocks.spec, &p));
        CHECK_OK(ctx, check_all(ctx, &p));
        int32_t before = -1, dropped = 0;
        for (int32_t i = 0; i < p.num_instrs; i++) {
            orth_instr n = p.instrs[i], *other = before >= 0 ? &p.instrs[before] : NULL;
            if (n.op != ORTH_OP_copy)
                continue;
            memmove(&p.instrs[i], &p.instrs[i + 1], (size_t)(--p.num_instrs - i) * sizeof n);
            CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "read before it is written", check_all(ctx, &p));
            memmove(&p.instrs[i + 1], &p.instrs[i], (size_t)(p.num_instrs++ - i) * sizeof n);
            p.instrs[i] = n;
            if (other && orth_operand_bytes(&other->in[0]) == orth_operand_bytes(&n.in[0]) && p.buffers[other->in[0].buffer].space == p.buffers[n.in[0].buffer].space) {
                p.instrs[i].in = other->in;
                CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "the value of another buffer", check_all(ctx, &p));
                p.instrs[i].in = n.in;
            }
            before = i;
            dropped++;
        }
        assert_true(dropped > 100);
        CHECK_OK(ctx, check_all(ctx, &p));
        orth_program_release(&p);
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* ---- weights and gradients in the program ---- */

static orth_offload all_in(orth_tier tier)
{
    return (orth_offload){.optimizer = tier, .params = tier, .gradients = tier, .sub_group = 2000};
}

/* The program is as if the instruction had never been. */
static void cut(orth_program *p, int32_t skip)
{
    memmove(p->instrs + skip, p->instrs + skip + 1, (size_t)(p->num_instrs - skip - 1) * sizeof *p->instrs);
    p->num_instrs--;
}

/* Each copy between spaces that carries weights or gradients is left out, or goes elsewhere, once. Programs are checked as they are before
 * they are placed: their events would show it, too. */
TEST(a_copy_that_is_missing_or_goes_elsewhere_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    int damaged = 0;
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, all_in((orth_tier)tier), &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        p->placed = false;
        orth_instr *all = calloc((size_t)p->num_instrs, sizeof *all);
        const int32_t num = p->num_instrs;
        memcpy(all, p->instrs, (size_t)num * sizeof *all);
        for (int32_t i = 0; i < num; i++) {
            const bool carries = all[i].op == ORTH_OP_copy && (p->buffers[all[i].in[0].buffer].copy_of > 0 || p->buffers[all[i].out[0].buffer].copy_of > 0);
            if (!carries)
                continue;
            cut(p, i);
            if (check_all(ctx, p) == ORTH_OK)
                fail_msg("instruction %d, a copy of '%s', is missing, and nobody says so", (int)i, p->buffers[all[i].in[0].buffer].name);
            orth_ctx_clear_error(ctx);
            p->num_instrs = num;
            memcpy(p->instrs, all, (size_t)num * sizeof *all);
            const int32_t to = all[i].out[0].buffer;
            p->instrs[i].out[0].byte_offset += 4;
            if (check_all(ctx, p) == ORTH_OK)
                fail_msg("instruction %d, a copy to '%s', goes elsewhere, and nobody says so", (int)i, p->buffers[to].name);
            orth_ctx_clear_error(ctx);
            p->instrs[i].out[0].byte_offset -= 4;
            damaged++;
        }
        CHECK_OK(ctx, check_all(ctx, p));
        free(all);
        orth_compiled_release(&c);
    }
    assert_true(damaged > 300);
    test_ctx_free(ctx);
}

/* An event less, and two instructions are not ordered. */
TEST(an_event_of_a_copy_that_is_missing_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, all_in(ORTH_TIER_FILE), &c);
    orth_program *p = &c.program;
    int damaged = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        for (int32_t k = 0; k < p->instrs[i].num_waits; k++) {
            orth_instr *n = &p->instrs[i];
            const orth_instr was = *n;
            orth_wait *fewer = calloc((size_t)n->num_waits, sizeof *fewer);
            for (int32_t j = 0, at = 0; j < n->num_waits; j++)
                if (j != k)
                    fewer[at++] = n->waits[j];
            n->waits = fewer;
            n->num_waits--;
            CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "", check_all(ctx, p));
            *n = was;
            free(fewer);
            damaged++;
        }
    assert_true(damaged > 100);
    CHECK_OK(ctx, check_all(ctx, p));
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

/* The copies of block k + 1 are before the first instruction of block k. */
TEST(weights_of_the_next_block_come_while_this_one_computes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, all_in(ORTH_TIER_HOST), &c);
    const orth_program *p = &c.program;
    int found = 0, come = -1;
    for (int32_t i = 0; i < p->num_instrs && p->instrs[i].phase == ORTH_PHASE_FORWARD && p->instrs[i].micro_batch == 0; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op == ORTH_OP_copy) {
            assert_int_equal(p->queues[n->queue].kind, ORTH_QUEUE_COPY_IN);
            come = ORTH_MAX(come, n->layer);
        } else if (n->layer >= 0 && n->layer + 1 < c.blocks.spec.num_layers) {
            assert_true(come > n->layer);
            found++;
        }
    }
    assert_true(found > 0);
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

/* Between the copy that brings a partial sum and the product that adds to it another product computes; at most one sum waits so. */
TEST(the_next_partial_sum_comes_while_the_product_before_it_computes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    orth_offload offload = all_in(ORTH_TIER_HOST);
    offload.params = ORTH_TIER_NONE;
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, offload, &c);
    const orth_program *p = &c.program;
    int beside = 0, alone = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op != ORTH_OP_copy || n->phase != ORTH_PHASE_BACKWARD || n->micro_batch != 1 || p->buffers[n->in[0].buffer].space == p->space)
            continue;
        bool reads = false, computes = false;
        for (int32_t k = i + 1; !reads; k++) {
            for (int j = 0; j < p->instrs[k].num_in; j++)
                reads = reads || p->instrs[k].in[j].buffer == n->out[0].buffer;
            computes = computes || (!reads && orth_op_family_of(p->instrs[k].op) == ORTH_OPS_PRODUCT);
        }
        *(computes ? &beside : &alone) += 1;
    }
    if (beside <= 10 || alone >= beside / 2)
        fail_msg("%d partial sums come beside a product, %d do not", beside, alone);
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_with_offload_writes_the_checkpoints_of_one_without_byte_for_byte),
        cmocka_unit_test(a_run_whose_activations_leave_the_device_writes_the_checkpoints_of_one_without),
        cmocka_unit_test(evaluation_and_text_of_a_run_with_offload_are_those_of_one_without),
        cmocka_unit_test(each_space_has_the_planned_bytes_and_what_is_offloaded_is_not_on_the_device),
        cmocka_unit_test(activations_are_planned_and_counted_in_the_space_that_they_are_in),
        cmocka_unit_test(limits_of_the_spaces_are_kept_apart),
        cmocka_unit_test(bytes_to_and_from_files_are_planned_and_counted_and_the_way_changes_no_bit),
        cmocka_unit_test(a_step_takes_at_least_what_its_files_take_at_the_rates_of_the_node),
        cmocka_unit_test(a_killed_run_leaves_no_file),
        cmocka_unit_test(a_folder_that_cannot_have_the_file_is_named),
#ifdef ORTH_FAULT_SHIM
        cmocka_unit_test(a_disk_without_room_for_the_file_is_told_before_the_first_step),
        cmocka_unit_test(a_disk_that_fails_in_a_step_ends_the_run_and_the_last_checkpoint_is_whole),
#if ORTH_HAVE_URING
        cmocka_unit_test(where_a_file_cannot_pass_the_page_cache_by_the_run_says_why),
#endif
#endif
        cmocka_unit_test(pieces_that_are_mixed_up_are_refused),
        cmocka_unit_test(the_next_piece_comes_beside_the_update_of_this_one),
        cmocka_unit_test(the_device_has_the_activations_of_a_few_layers_at_a_time),
        cmocka_unit_test(a_copy_travels_while_the_next_layer_computes),
        cmocka_unit_test(without_an_event_of_a_copy_the_program_is_refused),
        cmocka_unit_test(without_a_copy_or_with_another_value_the_program_is_refused),
        cmocka_unit_test(a_copy_that_is_missing_or_goes_elsewhere_is_refused),
        cmocka_unit_test(an_event_of_a_copy_that_is_missing_is_refused),
        cmocka_unit_test(weights_of_the_next_block_come_while_this_one_computes),
        cmocka_unit_test(the_next_partial_sum_comes_while_the_product_before_it_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
