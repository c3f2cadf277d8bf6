/* test_faults.c -- a call of the system that fails, at any moment of a run, damages nothing and loses nothing.
 *
 * shim/fault.c is preloaded and lets the k-th call of a kind fail: malloc, write, fsync, rename, open, ... In every case the
 * program ends by itself with a documented exit code; no damaged checkpoint has a name; the checkpoint that was there is there
 * until a newer one is; and exit 0 means that all results are those of a run without faults, bit for bit.
 *
 * ORTH_FAULTS=N: N draws of k for each command and kind (malloc: four times as many); "all": every k (`make soak`). The draws
 * follow from a seed that is printed, ORTH_SEED=S repeats them. ORTH_FAULT_ONLY=COMMAND:KIND:K[:+|:ERRNO] runs one case,
 * ORTH_FAULT_COMMAND=COMMAND the draws of one command, ORTH_FAULT_KIND=KIND those of one kind.
 */
#include "run_case.h"

#include <time.h>

#include "ckpt/folder.h"
#include "tools/model_file.h"

#define STEPS_BEFORE 2
#define STEPS_AFTER 4
#define MAX_SECONDS 60      /* of a command that takes one: more is a hang */
#define FEW 50              /* calls of a kind */

typedef struct {
    const char *name, *args;
    const char *start;      /* folder that w begins as a copy of; "": w does not exist */
    int last_step;          /* that a train run ends with; 0: none */
    const char *result;     /* folder that is the same as after a run without faults; NULL: none */
    bool says_time;         /* what it prints differs from run to run */
    bool each;              /* every k of the kinds that it calls a few times only, in every run of this test */
} command;

static const command commands[] = {
    {"train", "train run.yaml checkpoint.dir=w train.steps=2 --quiet", "", STEPS_BEFORE, NULL, .each = true},
    {"resume", "train run.yaml checkpoint.dir=w train.steps=4 --quiet --resume", "seed", STEPS_AFTER, NULL},
    {"ranks", "train run.yaml checkpoint.dir=w train.steps=4 --quiet --resume parallel.dp=2", "seed", STEPS_AFTER, NULL},
    {"offload", "train run.yaml checkpoint.dir=w train.steps=4 --quiet --resume memory.offload_optimizer=file memory.offload_params=file "
     "memory.offload_gradients=file", "seed", STEPS_AFTER, NULL},
    {"eval", "eval w", "seed", 0, NULL},
    {"generate", "generate w --tokens=3 --temperature=0", "seed", 0, NULL},
    {"prepare", "data prepare --tokenizer=shards/tokenizer.json --valid-fraction=0.1 --out=w text.txt", "", 0, "w", true, .each = true},
    {"export", "ckpt export seed w", "", 0, "w"},
    {"import", "ckpt import hf w", "", 0, "w"},
    {"init", "init text.txt --out=w", "", 0, "w"},
    {"tokenizer", "tokenizer train --vocab-size=300 --out=w text.txt", "", 0, "w", true},
    {"page", "plan run.yaml --cluster=a100-80gb parallel.tp=2 --html=w", "", 0, "w"},
    {"timeline", "plan run.yaml --cluster=a100-80gb parallel.pp=1 --timeline=w", "", 0, "w"},
    {"written", "plan run.yaml --cluster=a100-80gb --as=megatron --out=w", "", 0, "w"},
    {"plot", "plot seed --svg=w", "", 0, "w"},
};

/* Of shim/fault.c. */
static const char *const kinds[] = {"malloc", "write",   "fsync", "rename", "open",  "close", "mmap",
                                    "fopen",  "fwrite", "opendir", "mkdir", "flock", "remove", "thread", "fclose", "pread", "pwrite",
                                    "open_direct", "uring_init", "uring", "uring_short", "uring_lost", "stat", "fdatasync"};
enum { NUM_KINDS = ORTH_COUNT(kinds) };

typedef struct {
    run_case *r;
    char label[96];         /* of the case: COMMAND:KIND:K */
    int code;
    char said[4096];        /* on standard error */
    bool failed;
} trial;

static void shell(run_case *r, const char *fmt, ...)
{
    char text[1024], command_line[1400], out[1024];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    snprintf(command_line, sizeof command_line, "cd %s && { %s; } 2>&1", r->dir, text);
    if (run_shell(command_line, out, sizeof out) != 0)
        fail_msg("%s: %s", text, out);
}

static void read_said(trial *t)
{
    char *text = run_read(t->r, "err.txt", NULL);
    snprintf(t->said, sizeof t->said, "%s", text);
    free(text);
}

/* Runs a command from its start, with these variables before it; what it prints is in out.txt. */
static void run_command(trial *t, const command *c, const char *variables)
{
    char line[1024];
    shell(t->r, "rm -rf w");
    if (*c->start)
        shell(t->r, "cp -r %s w", c->start);
    snprintf(line, sizeof line, "cd %s && timeout -s KILL %d env LD_PRELOAD=" ORTH_FAULT_SHIM " %s " ORTH_BINARY
             " %s >out.txt 2>err.txt", t->r->dir, MAX_SECONDS, variables, c->args);
    t->code = run_shell(line, line, sizeof line);
    read_said(t);
}

/* ---- what must hold ---- */

/* A sweep goes on after a failure, which is told at once and counts at the end. */
static void must(trial *t, bool condition, const char *what)
{
    if (condition)
        return;
    print_error("%s: exit %d: %s; it said:\n%s", t->label, t->code, what, t->said);
    t->failed = true;
}

/* how: after KIND:K. ":4" is EINTR: a call that a signal cut off is made again. */
static void check_end(trial *t, const char *kind, const char *how)
{
    const bool memory = strcmp(kind, "malloc") == 0 || strcmp(kind, "mmap") == 0 || strcmp(kind, "thread") == 0;
    must(t, t->code != 128 + 9 && t->code != 137, "it hung");
    must(t, t->code < 128, "it crashed");
    must(t, t->code == 0 || t->code == 3 || (t->code == 5 && !memory), "not an exit code of this fault");
    must(t, t->code == 0 || strcmp(how, ":4") != 0, "a call that a signal cut off was not made again");
    must(t, t->code == 0 || strstr(t->said, "orthant: "), "no message");
    must(t, !strstr(t->said, "passed over"), "a checkpoint that is whole was passed over");
}

/* All steps of w are valid, and none is older than `least`, if any was there. The newest. */
static int64_t check_checkpoints(trial *t, int64_t least)
{
    orth_ctx *ctx = t->r->ctx;
    char dir[256];
    int64_t *steps = NULL, n = 0, newest = 0;
    snprintf(dir, sizeof dir, "%s/w/checkpoints", t->r->dir);
    CHECK_OK(ctx, orth_checkpoint_list(ctx, dir, &steps, &n));
    for (int64_t i = 0; i < n; i++) {
        char *path = orth_checkpoint_step_path(ctx, dir, steps[i]);
        must(t, orth_checkpoint_verify(ctx, path) == ORTH_OK, "a damaged checkpoint has a name");
        orth_ctx_clear_error(ctx);
        orth_mem_free(ctx, path);
        newest = ORTH_MAX(newest, steps[i]);
    }
    orth_mem_free(ctx, steps);
    must(t, newest >= least, "the last good checkpoint is lost");
    return newest;
}

static bool same(const trial *t, const char *fmt, ...)
{
    char names[256], line[512], out[1024];
    va_list list;
    va_start(list, fmt);
    vsnprintf(names, sizeof names, fmt, list);
    va_end(list);
    snprintf(line, sizeof line, "cd %s && diff -r %s 2>&1", t->r->dir, names);
    return run_shell(line, out, sizeof out) == 0;
}

/* The run in w has the checkpoint of a run without faults, and said the same of each step. */
static void check_run(trial *t, const command *c)
{
    char whole[64];
    snprintf(whole, sizeof whole, "whole-%s", c->name);
    must(t, same(t, "-x state.json w/checkpoints/step-%08d %s/checkpoints/step-%08d", c->last_step, whole, c->last_step),
         "its last checkpoint is another one");
    char *is = run_metrics(t->r, "w"), *want = run_metrics(t->r, whole);
    must(t, strcmp(is, want) == 0, "metrics.jsonl tells of another run");
    free(is);
    free(want);
}

/* Exit 0: what there is, is what a run without faults made. */
static void check_results(trial *t, const command *c)
{
    if (c->last_step > 0)
        check_run(t, c);
    if (c->result)
        must(t, same(t, "%s whole-%s", c->result, c->name), "its result is another one");
    if (!c->says_time)
        must(t, same(t, "out.txt whole-%s.txt", c->name), "it printed something else");
}

/* After whatever happened the run goes on to the same bits. */
static void check_resumes(trial *t, const command *c)
{
    const char *resume = check_checkpoints(t, 0) > 0 ? "--resume" : "";
    RUN(t->r, 0, "", "train run.yaml checkpoint.dir=w train.steps=%d --quiet %s", c->last_step, resume);
    check_run(t, c);
}

static bool is_empty_folder(const run_case *r, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return orth_path_is_empty_dir(path);
}

static bool one_case(run_case *r, const command *c, const char *kind, long k, const char *how)
{
    trial t = {.r = r};
    char variables[128];
    snprintf(t.label, sizeof t.label, "%s:%s:%ld%s", c->name, kind, k, how);
    snprintf(variables, sizeof variables, "ORTH_FAULT=%s:%ld%s", kind, k, how);
    run_command(&t, c, variables);
    check_end(&t, kind, how);
    if (c->last_step > 0 || *c->start)
        check_checkpoints(&t, *c->start ? STEPS_BEFORE : 0);
    if (t.code == 0)
        check_results(&t, c);
    else if (c->last_step > 0 && (k % 4 == 0 || (strcmp(kind, "fwrite") == 0 && strcmp(how, ":+") != 0)))
        check_resumes(&t, c);
    else if (c->result && strcmp(how, ":+") != 0 && !strstr(t.said, "no memory to read or write JSON")) /* the program ends where it stands then */
        must(&t, !is_empty_folder(r, c->result), "an empty folder is left");
    return !t.failed;
}

/* ---- which k ---- */

/* A run without faults: its results, and how often it calls each kind. */
static void run_whole(run_case *r, const command *c, long counts[NUM_KINDS])
{
    trial t = {.r = r};
    snprintf(t.label, sizeof t.label, "%s without faults", c->name);
    run_command(&t, c, "ORTH_FAULT_COUNTS=counts.txt");
    must(&t, t.code == 0, "it failed");
    assert_false(t.failed);
    char *text = run_read(r, "counts.txt", NULL), name[32];
    long n;
    for (char *line = text; sscanf(line, "%31s %ld", name, &n) == 2; line = strchr(line, '\n') + 1)
        for (int i = 0; i < NUM_KINDS; i++)
            if (strcmp(kinds[i], name) == 0)
                counts[i] = n;
    free(text);
    shell(r, "rm -rf whole-%s; [ ! -e w ] || cp -r w whole-%s; cp out.txt whole-%s.txt", c->name, c->name, c->name);
}

/* Of some also what they fail with differs: EINTR, EIO. */
static const char *draw_how(const char *kind, uint64_t seed, uint64_t place)
{
    static const char *const how[] = {"", "", "", ":+", ":4", ":5"};
    const bool more = strcmp(kind, "open") == 0 || strcmp(kind, "fsync") == 0 || strcmp(kind, "pread") == 0 || strcmp(kind, "pwrite") == 0 ||
                      strcmp(kind, "uring") == 0;
    return how[test_rand_int(seed, place, 0, more ? 5 : 3)];
}

static int sweep(run_case *r, const command *c, const char *draws, uint64_t seed, int *failed)
{
    const bool all = strcmp(draws, "all") == 0;
    const char *of = getenv("ORTH_FAULT_KIND");
    long counts[NUM_KINDS] = {0};
    int num = 0;
    run_whole(r, c, counts);
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        if (of && strcmp(of, kinds[kind]) != 0)
            continue;
        const bool each = all || (c->each && counts[kind] <= FEW);
        const long wanted = each ? counts[kind] : ORTH_MIN(counts[kind], atol(draws) * (kind == 0 ? 4 : 1));
        for (long i = 0; i < wanted; i++, num++) {
            const uint64_t place = (uint64_t)(c - commands) << 32 | (uint64_t)kind << 24 | (uint64_t)i;
            const long k = each ? i + 1 : (long)test_rand_int(seed, place, 1, counts[kind]);
            *failed += !one_case(r, c, kinds[kind], k, draw_how(kinds[kind], seed + 1, place));
        }
    }
    return num;
}

static void run_only(run_case *r, const char *only)
{
    char name[32], kind[32], how[8] = "";
    long k = 0, counts[NUM_KINDS];
    if (sscanf(only, "%31[^:]:%31[^:]:%ld%7s", name, kind, &k, how) < 3)
        fail_msg("ORTH_FAULT_ONLY=%s is not COMMAND:KIND:K", only);
    for (int i = 0; i < ORTH_COUNT(commands); i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        run_whole(r, &commands[i], counts);
        assert_true(one_case(r, &commands[i], kind, k, how));
    }
}

static run_case *begin(void)
{
    static const char yaml[] = "model: {preset: gpt2-tiny, vocab: 300, layers: 1, hidden: 16, heads: 2}\n"
                               "data: {path: shards, seq_len: 16}\n"
                               "train: {steps: 2, global_batch: 4, micro_batch: 2, seed: 3}\n"
                               "checkpoint: {dir: seed, every_steps: 1, keep: 1}\n"
                               RUN_SECTION;
    run_case *r = run_begin();
    run_write(r, "run.yaml", yaml, strlen(yaml));
    RUN(r, 0, "", "train run.yaml --quiet");
    RUN(r, 0, "", "ckpt export seed hf");
    return r;
}

TEST(a_call_that_fails_damages_and_loses_nothing)
{
    const char *draws = getenv("ORTH_FAULTS"), *only = getenv("ORTH_FAULT_ONLY");
    run_case *r = begin();
    if (only) {
        run_only(r, only);
    } else {
        int num = 0, failed = 0;
        const uint64_t seed = test_seed();
        const char *of = getenv("ORTH_FAULT_COMMAND");
        for (int i = 0; i < ORTH_COUNT(commands); i++)
            if (!of || strcmp(of, commands[i].name) == 0)
                num += sweep(r, &commands[i], draws ? draws : "1", seed, &failed);
        print_message("%d faults, %d failures\n", num, failed);
        assert_int_equal(failed, 0);
    }
    run_end(r);
}

/* ---- what is said, and who may go on ---- */

static long count_of(run_case *r, const char *line_begin)
{
    long n = -1;
    char *text = run_read(r, "counts.txt", NULL), *line = strstr(text, line_begin);
    assert_true(line && sscanf(line + strlen(line_begin), "%ld", &n) == 1);
    free(text);
    return n;
}

/* What the disk took for written is read back before it gets its name, and before the older checkpoint goes. */
TEST(a_save_that_reads_back_otherwise_is_not_published)
{
    run_case *r = begin();
    trial t = {.r = r, .label = "flip"};
    const command resume = {.name = "flip", .args = "train run.yaml checkpoint.dir=w train.steps=3 --quiet --resume", .start = "seed"};
    run_command(&t, &resume, "ORTH_FAULT_COUNTS=counts.txt");
    const long writes = count_of(r, "\nflip ");
    int refused = 0;
    for (long k = 1; k <= writes; k++) {
        char fault[64];
        snprintf(fault, sizeof fault, "ORTH_FAULT=flip:%ld", k);
        run_command(&t, &resume, fault);
        refused += t.code == 5;
        must(&t, check_checkpoints(&t, STEPS_BEFORE) == STEPS_BEFORE + (t.code == 0), "what is damaged was published"); /* 0: not in a checkpoint */
        must(&t, t.code == 0 || (t.code == 5 && strstr(t.said, "w/checkpoints/.tmp-step-00000003/")), "not the message of what reads back otherwise");
        must(&t, !run_has(r, "w/checkpoints/.tmp-step-00000003"), "a part of it is left");
    }
    assert_false(t.failed);
    assert_in_range(refused, 2, 20); /* weights, moments, tokenizer */
    run_end(r);
}

TEST(metrics_that_cannot_be_written_name_the_file_and_the_step_and_the_run_saves)
{
    run_case *r = begin();
    trial t = {.r = r, .label = "metrics"};
    const command resume = {.name = "metrics", .args = "train run.yaml checkpoint.dir=w train.steps=9 --quiet --resume",
                            .start = "seed"};
    run_command(&t, &resume, "ORTH_FAULT=fwrite:1:28");
    must(&t, t.code == 3, "not the exit code of a full disk");
    must(&t, strstr(t.said, "orthant: w/metrics.jsonl: cannot write: No space left on device (the line of step 3)"), "not said");
    must(&t, check_checkpoints(&t, STEPS_BEFORE) == STEPS_BEFORE + 2, "nothing was saved");
    assert_false(t.failed);
    run_end(r);
}

TEST(metrics_that_are_cut_on_resume_are_said)
{
    run_case *r = begin();
    shell(r, "cp -r seed w; printf '{\"step\": 7, \"loss\": 1}\\n{\"step\": 8, \"lo' >> w/metrics.jsonl");
    RUN(r, 0, "w/metrics.jsonl: lines dropped: 1 (15 bytes) that are cut short or damaged, from line 5 on",
        "train run.yaml checkpoint.dir=w train.steps=3 --quiet --resume");
    assert_non_null(strstr(r->out, "w/metrics.jsonl: lines dropped: 1 (23 bytes) of steps after 2"));
    run_end(r);
}

TEST(metrics_that_are_gone_on_resume_are_said)
{
    run_case *r = begin();
    shell(r, "cp -r seed w; rm w/metrics.jsonl");
    RUN(r, 0, "w/metrics.jsonl is gone: it begins anew after step 2", "train run.yaml checkpoint.dir=w train.steps=3 --quiet --resume");
    run_end(r);
}

TEST(missing_lines_of_metrics_are_said)
{
    static const struct {
        const char *delete, *want;
    } cases[] = {{"3,6d", "w/metrics.jsonl: lines of steps 3 to 6 are missing"}, {"8d", "w/metrics.jsonl: the line of step 8 is missing"},
                 {"1,2d;5d;7d", "w/metrics.jsonl: lines of steps 1 to 2 are missing, and of 2 later ones"}};
    run_case *r = begin();
    RUN(r, 0, "", "train run.yaml checkpoint.dir=eight train.steps=8 --quiet");
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        shell(r, "rm -rf w; cp -r eight w; sed -i '%s' w/metrics.jsonl", cases[i].delete);
        RUN(r, 0, cases[i].want, "train run.yaml checkpoint.dir=w train.steps=9 --quiet --resume");
    }
    shell(r, "rm -rf w; cp -r eight w");
    RUN(r, 0, "", "train run.yaml checkpoint.dir=w train.steps=9 --quiet --resume");
    assert_null(strstr(r->out, "missing"));
    run_end(r);
}

/* The machine may stop: what tells of the steps of a checkpoint is there if that is. */
TEST(metrics_are_on_the_disk_before_a_checkpoint_counts)
{
    run_case *r = begin();
    trial t = {.r = r, .label = "sync"};
    const command resume = {.name = "sync", .args = "train run.yaml checkpoint.dir=w train.steps=4 --quiet --resume", .start = "seed"};
    run_command(&t, &resume, "ORTH_FAULT_COUNTS=counts.txt");
    assert_int_equal(count_of(r, "\nfdatasync "), 3); /* one for each checkpoint, and one at the end */
    run_command(&t, &resume, "ORTH_FAULT=fdatasync:2");
    must(&t, t.code == 5 && strstr(t.said, "orthant: w/metrics.jsonl: cannot sync: "), "not said");
    must(&t, check_checkpoints(&t, STEPS_BEFORE) == STEPS_AFTER, "nothing was saved");
    assert_false(t.failed);
    run_end(r);
}

TEST(control_characters_of_names_are_not_printed)
{
    run_case *r = begin();
    RUN(r, 5, "orthant: no\\x1b[31m\\x0a\\xc2\\x9b\xc3\xa9: ", "eval \"$(printf 'no\\033[31m\\n\\302\\233\\303\\251')\"");
    shell(r, "n=$(printf 'a\\033[31mb'); cp -r seed \"$n\"; cp -r shards \"$n-data\"");
    static const char *const args[] = {
        "ckpt verify \"$n\"", "ckpt inspect \"$n\"", "ckpt export \"$n\" \"$n-hf\"", "ckpt inspect \"$n-hf\"", "plot \"$n\"",
        "ckpt verify \"$n-hf\"", "data inspect \"$n-data\"", "data verify \"$n-data\"",
        "data prepare --tokenizer=shards/tokenizer.json --out=\"$n-out\" text.txt",
        "tokenizer train --vocab-size=280 --out=\"$n.json\" text.txt", "tokenizer inspect \"$n.json\"",
        "ckpt import \"$n-hf\" \"$n-own\"",
    };
    for (int i = 0; i < ORTH_COUNT(args); i++) {
        char line[1024];
        snprintf(line, sizeof line, "cd %s && n=$(printf 'a\\033[31mb') && " ORTH_BINARY " %s 2>&1", r->dir, args[i]);
        if (run_shell(line, r->out, sizeof r->out) != 0 || !strstr(r->out, "a\\x1b[31mb") || strchr(r->out, '\033'))
            fail_msg("%s: it said:\n%s", args[i], r->out);
    }
    run_end(r);
}

TEST(an_import_tells_of_links_to_nothing)
{
    static const char *const names[] = {"tokenizer.json", "generation_config.json", "tokenizer_config.json", "config.json", "model.safetensors"};
    run_case *r = begin();
    for (int i = 0; i < ORTH_COUNT(names); i++) {
        char want[96];
        shell(r, "rm -rf bad w; cp -r hf bad; ln -sf nowhere bad/%s", names[i]);
        snprintf(want, sizeof want, "orthant: bad/%s: cannot open: No such file or directory", names[i]);
        RUN(r, 5, want, "ckpt import bad w");
        assert_false(run_has(r, "w"));
    }
    run_end(r);
}

static long folder_fsyncs(run_case *r, const char *dir)
{
    trial t = {.r = r, .label = "folders"};
    char args[128];
    snprintf(args, sizeof args, "train run.yaml checkpoint.dir=%s train.steps=1 --quiet", dir);
    const command c = {.name = "folders", .args = args, .start = ""};
    run_command(&t, &c, "ORTH_FAULT_COUNTS=counts.txt");
    must(&t, t.code == 0, "it failed");
    assert_false(t.failed);
    return count_of(r, "\nfolder_fsync ");
}

/* A folder that was made is there after the machine stops only if the folder that has its name was flushed. */
TEST(parents_of_new_folders_are_flushed)
{
    run_case *r = begin();
    const long one = folder_fsyncs(r, "w");
    assert_true(one >= 4); /* ., w, w/checkpoints; the rename of step-1 */
    assert_int_equal(folder_fsyncs(r, "x/y/w"), one + 2);
    run_end(r);
}

/* The copy that measures bandwidth wants 256 MiB. */
TEST(little_memory_shrinks_what_measures_and_not_the_run)
{
    run_case *r = begin();
    shell(r, "ulimit -v 250000; " ORTH_BINARY " train run.yaml checkpoint.dir=w run.probe_s=0.15 --quiet");
    run_end(r);
}

/* Every step saves, and only the newest checkpoint stays: each would be gone soon after it was found, were it not being read.
 * A failure ends the trainer as well, by its time. */
TEST(readers_beside_a_trainer_find_a_checkpoint)
{
    run_case *r = begin();
    shell(r, "timeout -s KILL 300 sh -c 'echo $$ >pid.txt; exec " ORTH_BINARY " train run.yaml checkpoint.dir=w train.steps=1000000 "
          "--quiet' >log.txt 2>&1 & true");
    shell(r, "for i in $(seq 600); do ls w/checkpoints/step-* >out.txt 2>&1 && exit 0; sleep 0.1; done; exit 1");
    for (int i = 0; i < 20; i++) {
        RUN(r, 0, "loss", "eval w");
        RUN(r, 0, "", "generate w --tokens=2");
        RUN(r, 0, "", "ckpt verify w");
        RUN(r, 2, "another process is training in this run folder", "train run.yaml checkpoint.dir=w --resume");
    }
    shell(r, "kill -9 $(cat pid.txt); while kill -0 $(cat pid.txt) 2>err.txt; do sleep 0.1; done");
    RUN(r, 0, "valid", "ckpt verify w");
    run_end(r);
}

/* Also after its weights were read: eval looks at tokenizer.json once more when it opens the data. */
TEST(a_checkpoint_in_use_stays_until_it_is_closed)
{
    run_case *r = begin();
    orth_model_file f;
    char path[256];
    snprintf(path, sizeof path, "%s/seed", r->dir);
    CHECK_OK(r->ctx, orth_model_file_open(r->ctx, &f, path));
    RUN(r, 0, "", "train run.yaml train.steps=3 --resume --quiet");
    assert_true(run_has(r, "seed/checkpoints/step-00000002/tokenizer.json") && run_has(r, "seed/checkpoints/step-00000003"));
    orth_model_file_close(r->ctx, &f);
    RUN(r, 0, "", "train run.yaml train.steps=4 --resume --quiet");
    assert_false(run_has(r, "seed/checkpoints/step-00000002") || run_has(r, "seed/checkpoints/step-00000003"));
    run_end(r);
}

/* A run whose ranks nobody watches could hang without a word. */
TEST(a_refused_watchdog_ends_the_run)
{
    run_case *r = begin();
    trial t = {.r = r, .label = "watchdog"};
    const command ranks = {.name = "watchdog", .args = "train run.yaml checkpoint.dir=w --quiet parallel.dp=2", .start = ""};
    run_command(&t, &ranks, "ORTH_FAULT_COUNTS=counts.txt");
    const long threads = count_of(r, "\nthread ");
    int said = 0;
    for (long k = 1; k <= threads; k++) {
        char fault[64];
        snprintf(fault, sizeof fault, "ORTH_FAULT=thread:%ld", k);
        run_command(&t, &ranks, fault);
        said += t.code == 3 && strstr(t.said, "orthant: the system refused the thread that watches the ranks");
    }
    assert_int_equal(said, 2); /* while the run is opened, and while it goes on */
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_fails_damages_and_loses_nothing),
        cmocka_unit_test(a_save_that_reads_back_otherwise_is_not_published),
        cmocka_unit_test(metrics_that_cannot_be_written_name_the_file_and_the_step_and_the_run_saves),
        cmocka_unit_test(metrics_that_are_cut_on_resume_are_said),
        cmocka_unit_test(metrics_that_are_gone_on_resume_are_said),
        cmocka_unit_test(missing_lines_of_metrics_are_said),
        cmocka_unit_test(metrics_are_on_the_disk_before_a_checkpoint_counts),
        cmocka_unit_test(control_characters_of_names_are_not_printed),
        cmocka_unit_test(an_import_tells_of_links_to_nothing),
        cmocka_unit_test(parents_of_new_folders_are_flushed),
        cmocka_unit_test(little_memory_shrinks_what_measures_and_not_the_run),
        cmocka_unit_test(a_refused_watchdog_ends_the_run),
        cmocka_unit_test(a_checkpoint_in_use_stays_until_it_is_closed),
        cmocka_unit_test(readers_beside_a_trainer_find_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
