/* test_train.c -- whole runs of `orthant train`: what must not change a bit, and what ends a run. */
#include "run_case.h"

#include <math.h>
#include <signal.h>
#include <time.h>

#define BF16X6 "precision.fp32_products=bf16x6"

/* What a run is made of; resuming must not show in any of them. */
static const char *const flavours[] = {
    "",
    "precision.compute=bf16 model.preset=llama-tiny",
    "model.dropout=0.1 data.doc_mask=true schedule.name=linear",
    "model.preset=qwen3-tiny model.vocab=300 optimizer.name=sgd optimizer.nesterov=true "
    "precision.compute=bf16 optimizer.lr_factors=layers.*.qkv.weight=0.5 optimizer.weight_decay_factors=*.gain=1",
    "optimizer.name=adam schedule.name=wsd train.micro_batch=3 numerics.parts=1 data.seq_len=29",
    BF16X6 " model.preset=llama-tiny data.doc_mask=true",
    "precision.loss_scale=dynamic precision.loss_scale_start=3000 precision.loss_scale_interval=3 precision.compute=bf16",
    "precision.compute=fp16 precision.loss_scale_start=16777216 precision.loss_scale_interval=2", /* overflows before and after step 5 */
    "precision.compute=bf16 precision.master=bf16 precision.moments=bf16",
    "precision.moments=bf16 precision.rounding=nearest optimizer.name=sgd",
    "optimizer.name=sgd optimizer.momentum=0 precision.compute=bf16",
    "precision.moments=8bit precision.compute=bf16 precision.master=bf16 optimizer.name=adam",
    "optimizer.freeze=[embed.*,layers.0.*]",
    "precision.compute=bf16 'optimizer.freeze=[\"*\",\"!layers.1.*\",layers.1.mlp.*]' checkpoint.async=true",
    "precision.products=fp8_delayed precision.amax_history_len=3",
    "precision.products=fp8_delayed precision.amax_compute_algo=most_recent parallel.tp=2 checkpoint.async=true",
};

/* The first run is cut off after its last step's checkpoint was lost: what metrics.jsonl says of the
 * steps after the older one must not stay. */
TEST(a_resumed_run_equals_one_that_never_stopped)
{
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(flavours); i++) {
        if (!run_can(flavours[i]))
            continue;
        RUN(r, 0, "saved", "train run.yaml checkpoint.dir=whole%d %s", i, flavours[i]);
        RUN(r, 0, "saved", "train run.yaml checkpoint.dir=parts%d checkpoint.every_steps=4 %s", i,
            flavours[i]);
        char last[64], whole[64], parts[64];
        snprintf(last, sizeof last, "parts%d/checkpoints/step-00000008", i);
        snprintf(whole, sizeof whole, "whole%d", i);
        snprintf(parts, sizeof parts, "parts%d", i);
        run_remove(r, last);
        RUN(r, 0, "step      5/8", "train run.yaml checkpoint.dir=parts%d --resume %s", i, flavours[i]);
        run_same(r, whole, parts, 8);
    }
    run_end(r);
}

TEST(a_longer_run_resumes_where_a_shorter_one_ended)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml schedule.decay_steps=9 train.steps=12 checkpoint.dir=whole");
    RUN(r, 0, "saved", "train run.yaml schedule.decay_steps=9 train.steps=5 checkpoint.dir=parts");
    RUN(r, 0, "saved",
        "train run.yaml schedule.decay_steps=9 train.steps=12 checkpoint.dir=parts --resume run.threads=2");
    run_same(r, "whole", "parts", 12);
    RUN(r, 2, "holds a run already", "train run.yaml checkpoint.dir=parts");
    run_end(r);
}

#define PLAIN_SGD "train run.yaml train.steps=3 train.global_batch=8 train.micro_batch=2 optimizer.name=sgd optimizer.momentum=0 "

/* What a rank updates, and so hands in, is not known by its moments where there are none. */
TEST(plain_sgd_writes_the_same_checkpoints_in_every_layout)
{
    static const char *const cases[][2] = {
        {"", "parallel.dp=2 parallel.zero=1"},
        {"precision.compute=bf16", "parallel.dp=2 parallel.zero=2"},
        {"'optimizer.freeze=[embed.*]'", "parallel.dp=2 parallel.zero=3"},
        {"precision.compute=bf16 precision.master=bf16", "parallel.tp=2 parallel.pp=2"},
        {"", "parallel.dp=4 parallel.zero=HYBRID_SHARD parallel.shard_group=2 train.micro_batch=1"},
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char alone[32], many[32];
        snprintf(alone, sizeof alone, "alone%d", i);
        snprintf(many, sizeof many, "many%d", i);
        RUN(r, 0, "saved", PLAIN_SGD "checkpoint.dir=%s %s", alone, cases[i][0]);
        RUN(r, 0, "saved", PLAIN_SGD "checkpoint.dir=%s %s %s", many, cases[i][0], cases[i][1]);
        run_same(r, alone, many, 3);
    }
    run_end(r);
}

/* --resume with what would change the numbers is refused where it was set, with both values. */
TEST(resuming_refuses_what_changes_the_numbers_and_takes_what_does_not)
{
    static const struct { const char *word, *text; } refused[] = {
        {"train.seed=4", "command line: train.seed=4: "},
        {"train.global_batch=12", "trained with 6"},
        {"train.clip_norm=2", "train.clip_norm=2: "},
        {"model.hidden=128", "was trained with 64"},
        {"model.attention=full", "trained with blocked"},
        {"data.seq_len=16", "trained with 32"},
        {"data.doc_mask=true", "data.doc_mask=true: "},
        {"optimizer.lr=2e-3", "optimizer.lr=0.002: "},
        {"optimizer.name=sgd", "trained with adamw"},
        {"optimizer.lr_factors=embed.*=0.5", "command line: optimizer.lr_factors="},
        {"schedule.warmup_steps=4", "trained with 3"},
        {"precision.compute=bf16", "trained with fp32"},
        {"numerics.parts=4", "trained with 8"},
        {"data.path=others", "command line: data.path=others: its training tokens"},
    };
    run_case *r = run_begin();
    char path[256];
    RUN(r, 2, "optimizer.lr_factors: 'emb=1' matches no parameter of the model", "plan run.yaml optimizer.lr_factors=emb=1");
    RUN(r, 0, "saved", "train run.yaml train.steps=2 checkpoint.dir=a");
    snprintf(path, sizeof path, "%s/other.txt", r->dir);
    run_write_text(r->ctx, path, 120, 2);
    RUN(r, 0, "", "data prepare --tokenizer=shards --out=others --valid-fraction=0.1 other.txt");
    for (int i = 0; i < ORTH_COUNT(refused); i++)
        RUN(r, 2, refused[i].text, "train run.yaml train.steps=3 checkpoint.dir=a --resume %s", refused[i].word);
    char *yaml = run_read(r, "run.yaml", NULL);
    memcpy(strstr(yaml, "seed: 3"), "seed: 5", 7);
    run_write(r, "other.yaml", yaml, strlen(yaml));
    free(yaml);
    if (run_can(BF16X6))
        RUN(r, 2, "trained with auto", "train run.yaml train.steps=3 checkpoint.dir=a --resume " BF16X6);
    RUN(r, 2, ": train.seed=5: ", "train other.yaml train.steps=3 checkpoint.dir=a --resume");
    RUN(r, 2, "cannot be given with it", "train run.yaml checkpoint.dir=a --resume --init=a");
    RUN(r, 0, "", "help >/dev/null; cp -r shards moved");
    RUN(r, 0, "step      4/4", "train run.yaml train.steps=4 checkpoint.dir=a --resume data.path=moved run.threads=2 "
        "precision.fp32_products=fma memory.packed_weights=true "
        "train.micro_batch=3 train.log_every=1 train.eval_every=1 checkpoint.every_steps=1 parallel.pp=2");
    run_end(r);
}

TEST(threads_and_micro_batches_do_not_change_a_bit)
{
    static const char *const changes[] = {
        "run.threads=2", "run.threads=3", "run.threads=7", "train.micro_batch=1", "train.micro_batch=3",
        "train.micro_batch=6", "run.threads=3 train.micro_batch=1",
        "run.threads=3 train.micro_batch=3 memory.packed_weights=true",
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(flavours); i++) {
        char a[32];
        if ((i > 2 && !strstr(flavours[i], BF16X6)) || !run_can(flavours[i]))
            continue;
        snprintf(a, sizeof a, "a%d", i);
        RUN(r, 0, "saved", "train run.yaml train.steps=3 checkpoint.dir=%s %s", a, flavours[i]);
        for (int k = 0; k < ORTH_COUNT(changes); k++) {
            char b[32];
            snprintf(b, sizeof b, "b%d-%d", i, k);
            RUN(r, 0, "saved", "train run.yaml train.steps=3 checkpoint.dir=%s %s %s", b, flavours[i],
                changes[k]);
            run_same(r, a, b, 3);
        }
    }
    run_end(r);
}

#define SHORT "train run.yaml train.steps=2 train.global_batch=2 train.micro_batch=1 " /* plain kernels take their time */

/* The plain kernels and the fast ones, of any instruction set, are one in fp32. */
TEST(every_back_end_and_instruction_set_has_the_same_bits_in_fp32)
{
    static const char *const models[] = {"", "model.preset=llama-tiny data.doc_mask=true",
                                         "model.preset=qwen3-tiny model.dropout=0.1"};
    static const char *const changes[] = {"run.backend=ref", "run.isa=base", "run.isa=avx2",
                                          "run.isa=avx512"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(models); i++) {
        char a[32];
        snprintf(a, sizeof a, "a%d", i);
        RUN(r, 0, "saved", SHORT "checkpoint.dir=%s %s model.vocab=300", a, models[i]);
        for (int k = 0; k < ORTH_COUNT(changes); k++) {
            char b[32];
            snprintf(b, sizeof b, "b%d-%d", i, k);
            RUN(r, 0, "saved", SHORT "checkpoint.dir=%s %s model.vocab=300 %s", b, models[i], changes[k]);
            run_same(r, a, b, 2);
        }
    }
    run_end(r);
}

TEST(fast_mode_takes_bf16x6_where_there_is_amx)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=3 checkpoint.dir=auto numerics.mode=fast");
    RUN(r, 0, "saved", "train run.yaml train.steps=3 checkpoint.dir=fma numerics.mode=fast precision.fp32_products=fma");
    if (run_can(BF16X6)) {
        RUN(r, 0, "saved", "train run.yaml train.steps=3 checkpoint.dir=bf16x6 numerics.mode=fast " BF16X6);
        run_same(r, "auto", "bf16x6", 3);
        RUN(r, 0, "saved", "train run.yaml train.steps=3 checkpoint.dir=avx numerics.mode=fast run.isa=avx512");
        run_same(r, "avx", "fma", 3);
        char *x = run_metrics(r, "auto"), *y = run_metrics(r, "fma");
        assert_string_not_equal(x, y);
        free(x);
        free(y);
    } else {
        run_same(r, "auto", "fma", 3);
    }
    run_end(r);
}

TEST(loss_falls_in_both_modes_and_types)
{
    static const char *const modes[] = {"", "numerics.mode=fast", "precision.compute=bf16",
                                        "numerics.mode=fast precision.compute=bf16 model.attention=full"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(modes); i++) {
        RUN(r, 0, "eval     40", "train run.yaml train.steps=40 optimizer.lr=5e-3 checkpoint.dir=a%d %s", i,
            modes[i]);
        char *first = strstr(r->out, "step      1/40  loss"), *last = strstr(r->out, "step     40/40  loss");
        assert_non_null(first);
        assert_non_null(last);
        double from = atof(first + 21), to = atof(last + 21);
        if (!(from > 5.0 && from < 6.0 && to < from - 2.0))
            fail_msg("%s: loss %.4f after step 1, %.4f after step 40", modes[i], from, to);
    }
    run_end(r);
}

/* ---- signals ---- */

/* How often `word` is in a file of the folder, which need not exist. */
static int occurrences(run_case *r, const char *name, const char *word)
{
    char path[256], line[1024];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    FILE *f = fopen(path, "r");
    int n = 0;
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, word) != NULL;
    if (f)
        fclose(f);
    return n;
}

/* Starts `orthant ARGS`; child.log has what it prints. */
static pid_t start(run_case *r, const char *args)
{
    char command[2048];
    run_remove(r, "child.log"); /* nobody must take the one before for this one's */
    snprintf(command, sizeof command, "cd %s && exec %s %s >child.log 2>&1", r->dir, ORTH_BINARY, args);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    return child;
}

/* Starts `orthant ARGS`, and sends it `sig` once the shell says yes to `ready`, in which PID stands for the process. */
static int stopped_when(run_case *r, int sig, const char *ready, const char *args)
{
    const pid_t child = start(r, args);
    char command[2048];
    bool seen = false;
    snprintf(command, sizeof command, "cd %s && PID=%d && %s >/dev/null 2>&1", r->dir, (int)child, ready);
    for (int tries = 0; tries < 3000 && !seen; tries++) {
        nanosleep(&(struct timespec){0, 2500000}, NULL);
        seen = system(command) == 0;
    }
    kill(child, sig);
    int status;
    waitpid(child, &status, 0);
    assert_true(seen);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Starts `orthant train run.yaml ARGS`, and sends it `sig` once `word` is on `times` lines of file `name`. */
static int stopped_by(run_case *r, int sig, const char *name, const char *word, int times, const char *args)
{
    char command[1024];
    snprintf(command, sizeof command, "train run.yaml %s", args);
    const pid_t child = start(r, command);
    bool seen = false;
    for (int tries = 0; tries < 6000 && !seen; tries++) {
        nanosleep(&(struct timespec){0, 2500000}, NULL);
        seen = occurrences(r, name, word) >= times;
    }
    kill(child, sig);
    int status;
    waitpid(child, &status, 0);
    assert_true(seen);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(a_signal_ends_a_run_in_a_checkpoint_that_resumes_exactly)
{
    run_case *r = run_begin();
    static const struct { int sig, code; const char *text; } cases[] = {
        {SIGINT, 130, "SIGINT"}, {SIGTERM, 143, "SIGTERM"}, {SIGHUP, 143, "SIGHUP"}};
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char dir[32], whole[32], args[128], lines[64];
        snprintf(dir, sizeof dir, "cut%d", i);
        snprintf(lines, sizeof lines, "%s/metrics.jsonl", dir);
        snprintf(args, sizeof args, "train.steps=1000000 schedule.name=constant checkpoint.dir=%s", dir);
        snprintf(whole, sizeof whole, "whole%d", i);
        assert_int_equal(stopped_by(r, cases[i].sig, lines, "\"step\"", 3, args), cases[i].code);
        char *log = run_read(r, "child.log", NULL), *said = strstr(log, "stopped by");
        int step = 0;
        char name[16];
        assert_non_null(said);
        assert_int_equal(sscanf(said, "stopped by %15s after step %d;", name, &step), 2);
        assert_string_equal(name, cases[i].text);
        free(log);
        RUN(r, 0, "valid", "ckpt verify %s", dir);
        RUN(r, 0, "saved", "train run.yaml train.steps=%d schedule.name=constant checkpoint.dir=%s --resume",
            step + 3, dir);
        RUN(r, 0, "saved", "train run.yaml train.steps=%d schedule.name=constant checkpoint.dir=%s",
            step + 3, whole);
        run_same(r, whole, dir, step + 3);
    }
    run_end(r);
}

/* While a tokenizer is trained, text prepared, or weights drawn: the run ends, and the next one finds nothing
 * that is in its way. (The weights may have been drawn when the signal comes: the run then makes a step.) */
TEST(a_signal_before_the_first_step_leaves_nothing_half_written)
{
    static const struct { const char *name, *word, *args; bool certain; } stages[] = {
        {"child.log", "training a tokenizer", "data.path=long.txt model.vocab=400 checkpoint.dir=early", true},
        {"child.log", "preparing", "data.path=long.txt data.tokenizer=shards checkpoint.dir=early", true},
        {"early/plan.json", "ranks", "model.hidden=1024 model.layers=6 model.heads=16 checkpoint.dir=early", false},
        {"early/plan.json", "ranks", "model.hidden=512 model.layers=6 parallel.tp=2 checkpoint.dir=early", false},
    };
    run_case *r = run_begin();
    char path[256], args[512];
    snprintf(path, sizeof path, "%s/long.txt", r->dir);
    run_write_text(r->ctx, path, 60000, 4);
    for (int i = 0; i < ORTH_COUNT(stages); i++) {
        snprintf(args, sizeof args, "train.steps=1000000 %s", stages[i].args);
        assert_int_equal(stopped_by(r, i % 2 ? SIGTERM : SIGINT, stages[i].name, stages[i].word, 1, args), i % 2 ? 143 : 130);
        char *log = run_read(r, "child.log", NULL);
        if (!strstr(log, "nothing of it is kept") && (stages[i].certain || !strstr(log, "after step 1;")))
            fail_msg("stage %d: %s", i, log);
        free(log);
        RUN(r, 0, "none left", "help >/dev/null; find early -name '*tmp*' | grep . || echo none left");
        run_remove(r, "early");
    }
    run_end(r);
}

/* The evaluation of all that is held out, after the last step, would take long; the checkpoint is there by then. */
TEST(a_signal_ends_the_evaluation_at_the_end_of_a_run)
{
    static const char *const layouts[] = {"", "parallel.tp=2 comm.backend=thread"};
    run_case *r = run_begin();
    char path[256], args[512];
    snprintf(path, sizeof path, "%s/long.txt", r->dir);
    run_write_text(r->ctx, path, 60000, 4);
    RUN(r, 0, "", "data prepare --tokenizer=shards --out=held --valid-fraction=0.9 long.txt");
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        snprintf(args, sizeof args, "train run.yaml train.steps=2 train.eval_every=0 data.path=held checkpoint.dir=e%d %s", i,
                 layouts[i]);
        assert_int_equal(stopped_when(r, i ? SIGUSR1 : SIGINT, "grep -q saved child.log", args), i ? 143 : 130);
        char *log = run_read(r, "child.log", NULL);
        if (!strstr(log, i ? "stopped by SIGUSR1 after step 2; the checkpoint" : "stopped by SIGINT after step 2; the checkpoint") ||
            strstr(log, "eval "))
            fail_msg("%s", log);
        free(log);
        RUN(r, 0, "valid", "ckpt verify e%d", i);
    }
    run_end(r);
}

/* Two different values: that of step 1, of one global batch, and that of the end, of all that is held out. */
TEST(evaluations_score_the_same_text_whatever_the_micro_batch)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "data prepare --tokenizer=shards --out=held --valid-fraction=0.9 text.txt");
    for (int micro = 1; micro <= 3; micro++)
        RUN(r, 0, "saved", "train run.yaml data.path=held checkpoint.dir=m%d train.micro_batch=%d train.steps=2 train.eval_every=1 train.eval_batches=1", micro, micro);
    RUN(r, 0, "2 evaluations", "help >/dev/null; echo $(grep -ho '\"eval_loss_hex\": [^,]*' m1/metrics.jsonl m2/metrics.jsonl m3/metrics.jsonl | sort -u | "
        "wc -l) evaluations");
    run_end(r);
}

/* Nothing is there that could be taken for a result: the command can be given again. */
TEST(long_work_that_a_signal_ends_leaves_nothing)
{
    /* With the signals blocked, the program has begun to ask for them. */
    static const char began[] = "grep -q 'SigBlk:.*42.[23]$' /proc/$PID/status";
    static const struct { const char *ready, *args, *again; } cases[] = {
        {began, "data prepare --tokenizer=shards --out=left ", "documents"},
        {"ls left.tmp-*/*.orts*", "data prepare --tokenizer=shards --out=left ", "documents"},
        {began, "data prepare --train-tokenizer=400 --out=left ", "documents"},
        {began, "tokenizer train --vocab-size=400 --out=left ", "merges"},
        {began, "verify run.yaml other.yaml data.path=shards --scratch=. --steps=40", "are equal"},
        {"ls orthant-verify-*/gradients-2", "verify run.yaml other.yaml data.path=shards --scratch=. --steps=1000000", NULL},
        {"ls orthant-verify-*/gradients-2", "verify run.yaml other.yaml data.path=shards --scratch=. --steps=1000000 "
         "parallel.tp=2", NULL},
    };
    run_case *r = run_begin();
    char path[256];
    char args[512];
    snprintf(path, sizeof path, "%s/part.txt", r->dir);
    run_write_text(r->ctx, path, 60000, 4);
    RUN(r, 0, "", "help >/dev/null; sed 's/steps: 8/steps: 1000000/' run.yaml >r && mv r run.yaml && cp run.yaml other.yaml; "
        "cat part.txt part.txt part.txt part.txt part.txt part.txt part.txt part.txt >long.txt");
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        const bool term = i % 2, reads_text = strstr(cases[i].args, "--out");
        snprintf(args, sizeof args, "%s%s", cases[i].args, reads_text ? "long.txt" : "");
        const int code = stopped_when(r, term ? SIGTERM : SIGINT, cases[i].ready, args);
        char *log = run_read(r, "child.log", NULL);
        if (code != (term ? 143 : 130) || !strstr(log, term ? "stopped by SIGTERM" : "stopped by SIGINT") ||
            !strstr(log, "kept"))
            fail_msg("%s: exit %d: %s", cases[i].args, code, log);
        free(log);
        RUN(r, 0, "none left", "help >/dev/null; ls -d left* *tmp* orthant-verify-* 2>/dev/null | grep . || echo none left");
        if (cases[i].again)
            RUN(r, 0, cases[i].again, "%s%s", cases[i].args, reads_text ? "text.txt" : "");
        RUN(r, 0, "", "help >/dev/null; rm -rf left");
    }
    run_end(r);
}

/* ---- checkpoints beside the steps ---- */

/* The bytes are those of checkpoints written between two steps, and some step was done before the write of the one
 * before it was. */
TEST(checkpoints_written_beside_the_steps_have_the_bytes_of_those_between_them)
{
    static const char *const layouts[] = {"", "optimizer.name=sgd precision.compute=bf16", "parallel.tp=2"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        RUN(r, 0, "saved", "train run.yaml train.steps=10 checkpoint.every_steps=1 checkpoint.keep=20 checkpoint.dir=beside%d "
            "%s", i, layouts[i]);
        int late = 0;
        for (int step = 1; step < 10; step++) {
            char saved[64], next[32];
            snprintf(saved, sizeof saved, "saved beside%d/checkpoints/step-%08d", i, step);
            snprintf(next, sizeof next, "step %6d/10", step + 1);
            assert_non_null(strstr(r->out, saved));
            late += strstr(r->out, saved) > strstr(r->out, next);
        }
        assert_true(late > 0);
        RUN(r, 0, "saved", "train run.yaml train.steps=10 checkpoint.every_steps=1 checkpoint.keep=20 "
            "checkpoint.async=false checkpoint.dir=between%d %s", i, layouts[i]);
        for (int step = 1; step <= 10; step++) {
            char beside[32], between[32];
            snprintf(beside, sizeof beside, "beside%d", i);
            snprintf(between, sizeof between, "between%d", i);
            run_same(r, beside, between, step);
        }
    }
    run_end(r);
}

TEST(a_run_killed_while_it_writes_resumes_exactly)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml schedule.name=constant train.steps=60 checkpoint.dir=whole");
    for (int lines = 3; lines <= 40; lines += 6) {
        char args[256];
        snprintf(args, sizeof args, "train.steps=1000000 schedule.name=constant checkpoint.every_steps=1 "
                 "checkpoint.dir=killed %s", lines == 3 ? "" : "--resume");
        assert_int_equal(stopped_by(r, SIGKILL, "killed/metrics.jsonl", "\"step\"", lines, args), -SIGKILL);
    }
    RUN(r, 0, "saved", "train run.yaml schedule.name=constant train.steps=60 checkpoint.dir=killed --resume");
    run_same(r, "whole", "killed", 60);
    run_end(r);
}

/* ---- numerics ---- */

/* Sets fp32 element `index` of the weights of checkpoint step 4 of run `dir`, and its hash. */
static void poison(run_case *r, const char *hf, const char *tensor)
{
    char name[128];
    size_t n;
    snprintf(name, sizeof name, "%s/model.safetensors", hf);
    char *bytes = run_read(r, name, &n), *at = NULL;
    uint64_t header;
    memcpy(&header, bytes, 8);
    char quoted[128];
    snprintf(quoted, sizeof quoted, "\"%s\"", tensor);
    for (char *p = bytes + 8; p + strlen(quoted) < bytes + 8 + header && !at; p++)
        if (memcmp(p, quoted, strlen(quoted)) == 0)
            at = p;
    assert_non_null(at);
    at = strstr(at, "data_offsets");
    long begin = strtol(strchr(at, '[') + 1, NULL, 10);
    const float nan = NAN;
    memcpy(bytes + 8 + header + begin, &nan, 4);
    run_write(r, name, bytes, n);
    free(bytes);
}

TEST(a_loss_that_is_not_finite_stops_or_is_skipped)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=2 model.preset=llama-tiny");
    RUN(r, 0, "parameters", "ckpt export a hf");
    poison(r, "hf", "model.layers.1.mlp.up_proj.weight");
    RUN(r, 6, "step 1: loss nan", "train run.yaml checkpoint.dir=b --init=hf model.preset=llama-tiny");
    if (!strstr(r->out, "layers.1.mlp.gate_up.weight") || !strstr(r->out, "layer 1"))
        fail_msg("the first bad tensor is not named: %s", r->out);
    RUN(r, 0, "skipped", "train run.yaml checkpoint.dir=c --init=hf model.preset=llama-tiny train.on_nonfinite=skip train.steps=2");
    assert_null(strstr(r->out, "best evaluation")); /* none was a number */
    char *metrics = run_read(r, "c/metrics.jsonl", NULL);
    assert_non_null(strstr(metrics, "\"loss\": null"));
    assert_non_null(strstr(metrics, "\"eval_loss\": null"));
    assert_non_null(strstr(metrics, "\"skipped\": true"));
    free(metrics);
    RUN(r, 0, "(2 skipped)", "ckpt inspect c");
    /* A run that blows up by itself; what was saved before stays. */
    RUN(r, 6, "train.on_nonfinite=stop", "train run.yaml checkpoint.dir=d optimizer.name=sgd optimizer.lr=1000 "
        "schedule.warmup_steps=0 train.steps=60 checkpoint.every_steps=1 train.clip_norm=0");
    RUN(r, 0, "valid", "ckpt verify d");
    run_end(r);
}

/* The weights of the newest checkpoint are finite, and the loss that they give is not. It goes, and the one before it, which
 * keep=1 would have removed, serves. */
TEST(a_run_that_diverges_leaves_a_checkpoint_of_use)
{
    static const char *const layouts[] = {"", "parallel.pp=2 checkpoint.async=false", "parallel.dp=2 train.micro_batch=1"};
    const char *base = "train run.yaml optimizer.name=sgd checkpoint.every_steps=1 train.steps=10 --quiet";
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        run_remove(r, "a");
        RUN(r, 6, "is removed, because its weights give a loss that is not finite; step-", "%s optimizer.lr=1000 checkpoint.keep=1 %s", base,
            layouts[i]);
        RUN(r, 0, "loss", "eval a");
        assert_null(strstr(r->out, "nan"));
        RUN(r, 0, "the learning rate of step", "%s optimizer.lr=1e-3 checkpoint.keep=1 %s --resume --override", base, layouts[i]);
        RUN(r, 0, "1 checkpoint", "help >/dev/null; echo $(ls a/checkpoints | wc -l) checkpoint");
        assert_true(run_has(r, "a/checkpoints/step-00000010"));
    }
    /* The one that the run went on from is not better than one that it wrote. */
    RUN(r, 0, "", "%s optimizer.lr=1000 checkpoint.keep=3 train.steps=2 schedule.name=constant checkpoint.dir=b", base);
    RUN(r, 6, "step-00000003 is removed", "%s optimizer.lr=1000 checkpoint.keep=3 schedule.name=constant checkpoint.dir=b --resume", base);
    /* Where steps without a finite loss are left out, the run ends well; it keeps the last checkpoint that was of use. */
    RUN(r, 0, "", "%s optimizer.lr=1000 checkpoint.keep=1 train.on_nonfinite=skip checkpoint.dir=c", base);
    RUN(r, 0, "2 checkpoints", "help >/dev/null; echo $(ls c/checkpoints | wc -l) checkpoints");
    RUN(r, 0, "loss", "eval $(ls -d c/checkpoints/* | head -1)");
    run_end(r);
}

TEST(a_held_out_loss_that_is_not_finite_ends_the_run)
{
    run_case *r = run_begin();
    const char *base = "train run.yaml optimizer.name=sgd optimizer.lr=1000 checkpoint.every_steps=1";
    RUN(r, 6, "orthant: evaluation after step 3: loss nan on the held-out text (train.on_nonfinite=stop)", "%s train.steps=3", base);
    assert_null(strstr(r->out, "best evaluation"));
    assert_false(run_has(r, "a/complete.json"));
    RUN(r, 0, "loss", "eval a"); /* step 2: what step 3 was saved with is gone */
    RUN(r, 6, "evaluation after step 3: loss nan", "%s train.steps=9 train.eval_every=3 parallel.tp=2 checkpoint.dir=b", base);
    RUN(r, 0, "eval      3  loss      nan", "%s train.steps=3 train.on_nonfinite=skip checkpoint.dir=c", base);
    run_end(r);
}

/* A step that is skipped leaves weights and moments alone: after it, all goes on. */
TEST(skipping_changes_no_weight)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=2 model.preset=llama-tiny");
    RUN(r, 0, "parameters", "ckpt export a hf");
    poison(r, "hf", "model.layers.0.mlp.up_proj.weight");
    RUN(r, 0, "skipped", "train run.yaml checkpoint.dir=c --init=hf model.preset=llama-tiny train.on_nonfinite=skip train.steps=3");
    RUN(r, 0, "parameters", "ckpt export c out");
    run_same_file(r, "hf/model.safetensors", "out/model.safetensors");
    run_end(r);
}

/* The value of the last `key` of metrics.jsonl, up to the comma. */
static void last_metric(run_case *r, const char *run, const char *key, char *out, size_t size)
{
    char name[64], *text, *at = NULL;
    snprintf(name, sizeof name, "%s/metrics.jsonl", run);
    text = run_read(r, name, NULL);
    for (char *p = text; (p = strstr(p, key)); p++)
        at = p;
    assert_non_null(at);
    snprintf(out, size, "%.*s", (int)strcspn(at, ","), at);
    free(text);
}

/* Shards with replicas, by FSDP's names: losses, norms, evaluations and checkpoints of one rank, also after going
 * on from what another stage has saved. */
TEST(hybrid_sharding_trains_saves_and_resumes_as_one_rank_does)
{
    static const char *const layouts[] = {"parallel.zero=HYBRID_SHARD parallel.keep_whole=100",
                                          "parallel.zero=_HYBRID_SHARD_ZERO2", "parallel.zero=1"};
    run_case *r = run_begin();
    char alone[64], eval[64], dir[8] = "h0";
    const char *base = "train run.yaml train.global_batch=8 train.micro_batch=1 precision.compute=bf16 "
                       "precision.master=bf16 precision.moments=bf16 schedule.decay_steps=5";
    RUN(r, 0, "saved", "%s checkpoint.dir=one", base);
    last_metric(r, "one", "\"eval_loss_hex\"", alone, sizeof alone);
    for (int i = 0; i < 3; i++) {
        dir[1] = (char)('0' + i);
        RUN(r, 0, "saved", "%s checkpoint.dir=%s train.steps=3 parallel.dp=4 "
            "parallel.shard_group=2 %s", base, dir, layouts[i]);
        RUN(r, 0, "saved", "%s checkpoint.dir=%s --resume schedule.decay_steps=5 parallel.dp=4 parallel.shard_group=2 %s", base,
            dir, layouts[(i + 1) % 3]);
        run_same(r, "one", dir, 8);
        last_metric(r, dir, "\"eval_loss_hex\"", eval, sizeof eval);
        assert_string_equal(eval, alone);
    }
    run_end(r);
}

/* Codes and scales of moments, too: a run that one layout began and another ends has the checkpoint of one rank. */
TEST(moments_in_8_bits_go_from_layout_to_layout)
{
    run_case *r = run_begin();
    const char *base = "train run.yaml train.global_batch=8 train.micro_batch=1 precision.moments=8bit schedule.decay_steps=5";
    RUN(r, 0, "saved", "%s checkpoint.dir=one", base);
    RUN(r, 0, "saved", "%s checkpoint.dir=two train.steps=3 parallel.dp=2 parallel.tp=2 parallel.zero=3", base);
    RUN(r, 0, "saved", "%s checkpoint.dir=two --resume parallel.pp=2 parallel.tp=2 checkpoint.every_steps=5", base);
    run_same(r, "one", "two", 8);
    run_end(r);
}

/* Rows of 384 are blocks of 256 and 128 on one rank, and twice 192 on two: as many scales, of other elements. */
TEST(moments_in_8_bits_of_fast_mode_go_on_with_the_same_parts_only)
{
    run_case *r = run_begin();
    const char *fast = "train run.yaml model.layers=1 model.hidden=384 model.heads=6 model.ffn=1536 train.global_batch=8 train.micro_batch=1 "
                       "precision.moments=8bit numerics.mode=fast";
    RUN(r, 0, "saved", "%s train.steps=1", fast);
    RUN(r, 2, "parallel.tp=2 and cp=1: with numerics.mode=fast blocks of precision.moments=8bit end where these cut weights, into 2 parts; "
        "a/checkpoints/step-00000001 was trained with tp=1 and cp=1, 1 parts", "%s train.steps=2 parallel.tp=2 --resume", fast);
    RUN(r, 0, "saved", "%s train.steps=2 parallel.dp=2 parallel.zero=3 --resume", fast);
    RUN(r, 0, "saved", "%s train.steps=3 numerics.parts=16 --resume", fast); /* which fast mode does not read */
    run_end(r);
}

/* A run that one layout began and another ends has the scales and the history of one rank, and `eval` takes them. */
TEST(delayed_scales_go_from_layout_to_layout_and_to_evaluations)
{
    run_case *r = run_begin();
    const char *base = "train run.yaml train.global_batch=8 train.micro_batch=1 precision.products=fp8_delayed precision.amax_history_len=4 "
                       "schedule.decay_steps=5 train.eval_every=2";
    char alone[64], eval[64];
    RUN(r, 0, "saved", "%s checkpoint.dir=one", base);
    RUN(r, 0, "saved", "%s checkpoint.dir=two train.steps=3 parallel.dp=2 parallel.tp=2 parallel.zero=3", base);
    RUN(r, 0, "saved", "%s checkpoint.dir=two --resume parallel.pp=2 parallel.tp=2 checkpoint.every_steps=5", base);
    run_same(r, "one", "two", 8);
    last_metric(r, "one", "\"eval_loss_hex\"", alone, sizeof alone);
    last_metric(r, "two", "\"eval_loss_hex\"", eval, sizeof eval);
    assert_string_equal(eval, alone);
    RUN(r, 0, strstr(alone, "loss_hex"), "eval two --json");
    RUN(r, 0, "parameters", "ckpt export one hf");
    RUN(r, 5, "hf: is no checkpoint of Orthant: precision.products=fp8_delayed goes on with scales of earlier steps",
        "eval hf --text=text.txt precision.products=fp8_delayed");
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=plain train.steps=1");
    RUN(r, 5, "has no tensor 'fp8.scales' of 24 F32", "eval plain precision.products=fp8_delayed");
    run_end(r);
}

/* What `search` writes is what `train` accepts; nothing of it is for the described devices only. */
TEST(the_winner_of_a_search_trains)
{
    run_case *r = run_begin();
    RUN(r, 0, "popular choices against it", "search run.yaml --cluster=h100-2 train.global_batch=4 train.micro_batch=1 parallel.cp=1 --plans=20 --out=best.yaml");
    RUN(r, 0, "done: step 1; 1 steps", "train best.yaml train.steps=1 checkpoint.dir=best");
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_equals_one_that_never_stopped),
        cmocka_unit_test(plain_sgd_writes_the_same_checkpoints_in_every_layout),
        cmocka_unit_test(a_longer_run_resumes_where_a_shorter_one_ended),
        cmocka_unit_test(resuming_refuses_what_changes_the_numbers_and_takes_what_does_not),
        cmocka_unit_test(threads_and_micro_batches_do_not_change_a_bit),
        cmocka_unit_test(every_back_end_and_instruction_set_has_the_same_bits_in_fp32),
        cmocka_unit_test(fast_mode_takes_bf16x6_where_there_is_amx),
        cmocka_unit_test(loss_falls_in_both_modes_and_types),
        cmocka_unit_test(hybrid_sharding_trains_saves_and_resumes_as_one_rank_does),
        cmocka_unit_test(moments_in_8_bits_go_from_layout_to_layout),
        cmocka_unit_test(moments_in_8_bits_of_fast_mode_go_on_with_the_same_parts_only),
        cmocka_unit_test(delayed_scales_go_from_layout_to_layout_and_to_evaluations),
        cmocka_unit_test(a_signal_ends_a_run_in_a_checkpoint_that_resumes_exactly),
        cmocka_unit_test(a_signal_before_the_first_step_leaves_nothing_half_written),
        cmocka_unit_test(a_signal_ends_the_evaluation_at_the_end_of_a_run),
        cmocka_unit_test(evaluations_score_the_same_text_whatever_the_micro_batch),
        cmocka_unit_test(long_work_that_a_signal_ends_leaves_nothing),
        cmocka_unit_test(checkpoints_written_beside_the_steps_have_the_bytes_of_those_between_them),
        cmocka_unit_test(a_run_killed_while_it_writes_resumes_exactly),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_or_is_skipped),
        cmocka_unit_test(a_run_that_diverges_leaves_a_checkpoint_of_use),
        cmocka_unit_test(a_held_out_loss_that_is_not_finite_ends_the_run),
        cmocka_unit_test(skipping_changes_no_weight),
        cmocka_unit_test(the_winner_of_a_search_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
