/* test_restart.c -- runs that are cut off and started again by a script: the one of docs/mpi.md, as it stands there. */
#include "run_case.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#define PRELOAD "ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=" ORTH_SLOW_DISK " "

static void write_script(run_case *r, const char *name, const char *text)
{
    char path[256];
    run_write(r, name, text, strlen(text));
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    assert_int_equal(chmod(path, 0755), 0);
}

/* The first indented block of docs/mpi.md that begins with #!/bin/bash and holds #SBATCH. */
static void take_slurm_script(run_case *r)
{
    char *text, *out = calloc(1, 1 << 14);
    size_t size;
    CHECK_OK(r->ctx, orth_file_read(r->ctx, ORTH_TEST_DIR "/../docs/mpi.md", &text, &size));
    char *at = strstr(text, "    #!/bin/bash\n    #SBATCH");
    assert_non_null(at);
    while (strncmp(at, "    ", 4) == 0 && strlen(out) < (1 << 13)) {
        char *end = strchr(at, '\n');
        strncat(out, at + 4, (size_t)(end - at) - 3);
        at = end + 1;
    }
    orth_mem_free(r->ctx, text);
    write_script(r, "job.sh", out);
    free(out);
}

/* Slurm, as far as the script sees it: `srun` runs the program as one rank of the test's own, killed as `fate` says. */
static void fake_slurm(run_case *r)
{
    write_script(r, "bin/scontrol", "#!/bin/bash\necho \"$@\" >>requeued\n");
    write_script(r, "bin/srun",
                 "#!/bin/bash\n"
                 "args=()\n"
                 "for a; do case $a in\n"
                 "  --mpi=* | --kill-on-bad-exit=* | orthant | comm.backend=* | parallel.*) ;;\n"
                 "  *) args+=(\"$a\") ;;\n"
                 "esac; done\n"
                 "read -r before code <fate\n"
                 "echo 'none 0' >fate\n"
                 "case $before in\n"
                 "  none) exec \"$ORTHANT\" \"${args[@]}\" ;;\n"
                 "  kill) SLOW_DISK=hang:/.tmp-step-00000004/model:1 LD_PRELOAD=$SHIM \"$ORTHANT\" \"${args[@]}\" & pid=$!\n"
                 "    for i in {1..600}; do [ -e runs/big/checkpoints/.tmp-step-00000004 ] && break; sleep 0.1; done\n"
                 "    kill -9 $pid; wait $pid ;;\n"
                 "  wrong) exec \"$ORTHANT\" \"${args[@]}\" train.steps=x ;;\n"
                 "esac\n"
                 "exit $code\n");
}

/* Runs the job; `fate` is what happens to the processes: "kill CODE" before the first save ends, and srun returns CODE. */
static int run_job(run_case *r, const char *fate)
{
    char command[1024];
    run_write(r, "fate", fate, strlen(fate));
    snprintf(command, sizeof command, "cd %s && ASAN_OPTIONS=verify_asan_link_order=0 PATH=$PWD/bin:$PATH ORTHANT=%s SHIM=%s "
             "SLURM_CPUS_PER_TASK=1 SLURM_JOB_ID=17 bash job.sh 2>&1", r->dir, ORTH_BINARY, ORTH_SLOW_DISK);
    return run_shell(command, r->out, sizeof r->out);
}

static int num_requeued(run_case *r)
{
    int n = 0;
    if (!run_has(r, "requeued"))
        return 0;
    char *text = run_read(r, "requeued", NULL);
    for (const char *at = text; (at = strstr(at, "requeue 17\n")) != NULL; at++)
        n++;
    free(text);
    return n;
}

TEST(the_slurm_script_of_the_manual_recovers_from_a_kill_before_the_first_save)
{
    run_case *r = run_begin();
    char path[256];
    snprintf(path, sizeof path, "%s/bin", r->dir);
    CHECK_OK(r->ctx, orth_path_make_dirs(r->ctx, path));
    snprintf(path, sizeof path, "%s/runs", r->dir);
    CHECK_OK(r->ctx, orth_path_make_dirs(r->ctx, path));
    take_slurm_script(r);
    fake_slurm(r);
    RUN(r, 0, "saved", "train run.yaml run.threads=1 checkpoint.dir=whole train.steps=4");
    char text[] = "model: {preset: gpt2-tiny, vocab: 300}\ndata: {path: shards, seq_len: 32}\n"
                  "train: {steps: 4, global_batch: 6, micro_batch: 2, seed: 3}\noptimizer: {lr: 1.0e-3}\n"
                  "schedule: {warmup_steps: 3}\n" RUN_SECTION;
    run_write(r, "run.yaml", text, strlen(text));
    /* Killed in its first save: 137 of srun or mpirun, or 0 where mpirun leaves recovery to its processes. */
    static const char *const fates[] = {"kill 137\n", "kill 0\n", "kill 143\n", "kill 4\n"};
    for (int i = 0; i < ORTH_COUNT(fates); i++) {
        assert_int_equal(run_job(r, fates[i]), 0);
        assert_int_equal(num_requeued(r), i + 1);
        assert_true(run_has(r, "runs/big/checkpoints"));
        assert_false(run_has(r, "runs/big/complete.json"));
    }
    /* Options that are wrong do not get better. */
    assert_int_equal(run_job(r, "wrong 0\n"), 2);
    assert_int_equal(num_requeued(r), ORTH_COUNT(fates));
    assert_int_equal(run_job(r, "none 0\n"), 0);
    assert_int_equal(num_requeued(r), ORTH_COUNT(fates));
    char *complete = run_read(r, "runs/big/complete.json", NULL);
    assert_string_equal(complete, "{\"step\": 4}\n");
    free(complete);
    run_same(r, "whole", "runs/big", 4);
    run_end(r);
}

/* The name that `orthant init` gives a run file is that of a run's own. */
TEST(what_no_run_wrote_is_not_overwritten)
{
    run_case *r = run_begin();
    size_t n;
    char *before = run_read(r, "run.yaml", &n);
    RUN(r, 2, "./run.yaml: was written by no run, and would be overwritten: give another checkpoint.dir", "train run.yaml checkpoint.dir=.");
    char *after = run_read(r, "run.yaml", &n);
    assert_string_equal(before, after);
    free(before);
    free(after);
    RUN(r, 2, "mine/metrics.jsonl: was written by no run", "help >/dev/null; mkdir mine; echo mine >mine/metrics.jsonl; %s train run.yaml checkpoint.dir=mine",
        ORTH_BINARY);
    /* A run that was killed before its first save begins anew. */
    RUN(r, 0, "step      2/2", "train run.yaml train.steps=2 checkpoint.dir=c");
    RUN(r, 0, "step      2/2", "help >/dev/null; rm -r c/checkpoints; %s train run.yaml train.steps=2 checkpoint.dir=c", ORTH_BINARY);
    static const char *const outputs[] = {"plot c --csv=c/metrics.jsonl", "plot c/metrics.jsonl --svg=c/metrics.jsonl", "plan run.yaml --html=c/run.yaml",
                                          "plot c --svg=c/checkpoints/step-00000002/model.safetensors",
                                          "tokenizer train --vocab-size=260 --out=c/plan.json c/plan.json"};
    for (int i = 0; i < ORTH_COUNT(outputs); i++)
        RUN(r, 2, "and would be overwritten", "%s", outputs[i]);
    RUN(r, 0, "", "plot c --csv=c/mine.csv");
    RUN(r, 0, "", "plot c --csv=c/mine.csv");
    run_end(r);
}

TEST(resume_or_start_does_what_there_is_to_do)
{
    run_case *r = run_begin();
    RUN(r, 5, "no valid checkpoint to resume from", "train run.yaml --resume");
    RUN(r, 2, "give one of them", "train run.yaml --resume --resume-or-start");
    assert_false(run_has(r, "a"));
    RUN(r, 0, "step      1/3", "train run.yaml --resume-or-start train.steps=3");
    assert_true(run_has(r, "a/complete.json"));
    RUN(r, 2, "holds a run already", "train run.yaml");
    RUN(r, 0, "step      4/8", "train run.yaml --resume-or-start");
    assert_null(strstr(r->out, "step      1/8"));
    RUN(r, 0, "step      8/8", "train run.yaml checkpoint.dir=b");
    run_same(r, "a", "b", 8);
    /* Weights to start from count at the start only. */
    RUN(r, 0, "step      1/2", "train run.yaml checkpoint.dir=c --init=a --resume-or-start train.steps=2 schedule.warmup_steps=1");
    RUN(r, 0, "step      3/3", "train run.yaml checkpoint.dir=c --init=a --resume-or-start train.steps=3 schedule.warmup_steps=1");
    /* The tokenizer of these weights is not one that is trained on this text. */
    RUN(r, 0, "step      1/1", "train run.yaml checkpoint.dir=e data.path=text.txt data.tokenizer=bytes train.steps=1 schedule.warmup_steps=1");
    for (int steps = 2; steps <= 3; steps++)
        RUN(r, 0, "", "train run.yaml checkpoint.dir=d data.path=text.txt --init=e --resume-or-start train.steps=%d schedule.warmup_steps=1", steps);
    assert_non_null(strstr(r->out, "step      3/3"));
    assert_null(strstr(r->out, "training a tokenizer"));
    /* A run that can be saved by nobody but a person is not overwritten. */
    run_write(r, "b/checkpoints/step-00000008/model.safetensors", "x", 1);
    RUN(r, 5, "checkpoints are all damaged", "train run.yaml checkpoint.dir=b --resume-or-start");
    run_end(r);
}

/* A run that is complete, then goes on and is cut off, is not complete. */
TEST(complete_json_says_that_all_steps_are_done)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=2");
    assert_true(run_has(r, "a/complete.json"));
    RUN(r, 0, "", "train run.yaml train.steps=2 --resume");
    assert_true(run_has(r, "a/complete.json"));
    RUN(r, 2, "--timeline=1: the run goes on after step 2", "train run.yaml train.steps=2 --resume --timeline=1");
    assert_true(run_has(r, "a/complete.json"));
    /* With an older checkpoint there are steps to do again. */
    RUN(r, 0, "saved", "train run.yaml train.steps=2 checkpoint.every_steps=1 checkpoint.dir=b");
    run_remove(r, "b/checkpoints/step-00000002");
    RUN(r, 5, "metrics.jsonl", "help >/dev/null; mv b/metrics.jsonl m; mkdir b/metrics.jsonl; %s train run.yaml train.steps=2 checkpoint.dir=b --resume", ORTH_BINARY);
    assert_false(run_has(r, "b/complete.json"));
    RUN(r, 0, "saved", "train run.yaml train.steps=2 checkpoint.dir=c");
    RUN(r, 5, "metrics.jsonl", "help >/dev/null; rm -r c/checkpoints c/metrics.jsonl; mkdir c/metrics.jsonl; %s train run.yaml train.steps=2 checkpoint.dir=c", ORTH_BINARY);
    assert_false(run_has(r, "c/complete.json"));
    RUN(r, 5, "metrics.jsonl", "help >/dev/null; mv a/metrics.jsonl m; mkdir a/metrics.jsonl; %s train run.yaml --resume", ORTH_BINARY);
    assert_false(run_has(r, "a/complete.json"));
    run_end(r);
}

static int num_evaluations(run_case *r)
{
    char *all = run_read(r, "a/metrics.jsonl", NULL);
    int n = 0;
    for (const char *at = all; (at = strstr(at, "\"eval_loss\"")) != NULL; at++)
        n++;
    free(all);
    return n;
}

/* A loop that starts a job again and again would make the file longer each time. */
TEST(a_complete_run_is_evaluated_once)
{
    for (int dp = 1; dp <= 2; dp++) {
        run_case *r = run_begin();
        RUN(r, 0, "saved", "train run.yaml train.steps=2 train.global_batch=4 parallel.dp=%d", dp);
        assert_int_equal(num_evaluations(r), 1);
        for (int i = 0; i < 2; i++) {
            RUN(r, 0, "the run was complete already", "train run.yaml train.steps=2 train.global_batch=4 parallel.dp=%d --resume", dp);
            assert_int_equal(num_evaluations(r), 1);
            assert_true(run_has(r, "a/complete.json"));
        }
        RUN(r, 0, "step      3/3", "train run.yaml train.steps=3 train.global_batch=4 parallel.dp=%d --resume", dp);
        assert_int_equal(num_evaluations(r), 2);
        /* Cut off while it was evaluated. */
        run_remove(r, "a/complete.json");
        RUN(r, 0, "eval      3", "train run.yaml train.steps=3 train.global_batch=4 parallel.dp=%d --resume", dp);
        run_end(r);
    }
}

/* A signal or a kill may come between a step's checkpoint and its evaluation. */
TEST(an_evaluation_that_was_cut_off_is_made_up_for_and_the_best_one_is_remembered)
{
    for (int dp = 1; dp <= 2; dp++) {
        run_case *r = run_begin();
        char options[128];
        snprintf(options, sizeof options, "train.steps=4 train.eval_every=2 checkpoint.every_steps=2 train.global_batch=4 parallel.dp=%d", dp);
        RUN(r, 0, "saved", "train run.yaml %s", options);
        assert_int_equal(num_evaluations(r), 2);
        run_remove(r, "a/checkpoints/step-00000004");
        RUN(r, 0, "eval      2", "help >/dev/null; sed -i '/eval_loss/d' a/metrics.jsonl; %s train run.yaml %s --resume", ORTH_BINARY, options);
        assert_int_equal(num_evaluations(r), 2);
        run_remove(r, "a/checkpoints/step-00000004");
        RUN(r, 0, "best evaluation: loss 0.5000 after step 2", "help >/dev/null; sed -i 's/\"eval_loss\": [0-9.]*/\"eval_loss\": 0.5/' a/metrics.jsonl; %s train run.yaml %s --resume",
            ORTH_BINARY, options);
        assert_int_equal(num_evaluations(r), 2);
        assert_null(strstr(r->out, "eval      2"));
        run_end(r);
    }
}

/* At the end all is scored, here an easier text; that is no better evaluation. Nor is it after a resumption. */
TEST(evaluations_of_other_targets_are_not_the_best)
{
    run_case *r = run_begin();
    static const char options[] = "train.eval_every=2 train.eval_batches=1 checkpoint.every_steps=2 train.global_batch=1 train.micro_batch=1 "
                                  "optimizer.lr=1e-9 schedule.warmup_steps=0";
    RUN(r, 0, "best evaluation: loss ", "train run.yaml train.steps=4 %s", options);
    assert_int_equal(num_evaluations(r), 2);
    assert_null(strstr(r->out, "after step 4"));
    RUN(r, 0, "best evaluation: loss 9.5000 after step 2",
        "help >/dev/null; sed -i '/\"step\": 2,/s/\"eval_loss\": [0-9.]*/\"eval_loss\": 9.5/' a/metrics.jsonl; "
        "%s train run.yaml train.steps=5 %s --resume", ORTH_BINARY, options);
    /* A run that scored all at its end, and fewer from then on. */
    RUN(r, 0, "after step 2\n", "train run.yaml train.steps=2 train.global_batch=1 train.micro_batch=1 checkpoint.dir=b");
    RUN(r, 0, "best evaluation: loss ", "train run.yaml train.steps=5 train.global_batch=1 train.micro_batch=1 train.eval_every=2 train.eval_batches=1 --resume checkpoint.dir=b");
    assert_non_null(strstr(r->out, "after step 4 (of those over "));
    run_end(r);
}

/* ---- signals ---- */

/* Starts a run, sends `first` once it has made the file `begun`, and after `pause_s` `second`, of which it is to end soon. Exit code. */
static int interrupted(run_case *r, const char *run, const char *begun, int first, double pause_s, int second)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s && rm -rf a && exec env %s >log 2>&1", r->dir, run);
    const pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    for (int i = 0; i < 3000 && !run_has(r, begun); i++)
        usleep(10000);
    usleep(100000);
    kill(child, first);
    int status = 0;
    usleep((useconds_t)(1e6 * pause_s));
    assert_int_equal(waitpid(child, &status, WNOHANG), 0); /* the first waits for the end of the step and its save */
    kill(child, second);
    for (int i = 0; i < 300 && waitpid(child, &status, WNOHANG) == 0; i++)
        usleep(10000);
    if (kill(child, 0) == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A run that hangs in the save of step `hang`. */
static int interrupted_in_a_save(run_case *r, int first, double pause_s, const char *hang)
{
    char run[512], begun[64];
    snprintf(run, sizeof run, "SLOW_DISK=hang:/.tmp-step-0000000%s/model:1 " PRELOAD "%s train run.yaml checkpoint.every_steps=1 "
             "checkpoint.async=false", hang, ORTH_BINARY);
    snprintf(begun, sizeof begun, "a/checkpoints/.tmp-step-0000000%s", hang);
    return interrupted(r, run, begun, first, pause_s, SIGTERM);
}

/* Of a step that takes a minute, if nothing ends it. */
TEST(a_second_signal_does_not_wait_for_the_end_of_a_step)
{
    run_case *r = run_begin();
    const int code = interrupted(r, ORTH_BINARY " train run.yaml train.global_batch=65536 train.micro_batch=512 data.valid_fraction=0",
                                 "a/metrics.jsonl", SIGINT, 1.2, SIGINT);
    char *log = run_read(r, "log", NULL), *metrics = run_read(r, "a/metrics.jsonl", NULL);
    if (code != 130 || !strstr(log, "orthant: ended at once by a second SIGINT; there is no checkpoint in a/checkpoints yet\n"))
        fail_msg("exit %d, wanted 130:\n%.2000s", code, log);
    assert_string_equal(metrics, ""); /* it was the first step */
    free(log);
    free(metrics);
    run_end(r);
}

TEST(a_second_signal_ends_at_once_and_says_what_is_saved)
{
    static const struct {
        int first;
        double pause_s;
        int code;
        const char *hang, *text;
    } cases[] = {
        {SIGINT, 1.2, 143, "2", "orthant: ended at once by a second SIGTERM; the newest checkpoint is a/checkpoints/step-00000001, "
                                "--resume continues from it\n"},
        {SIGUSR1, 1.2, 143, "1", "orthant: ended at once by a second SIGTERM; there is no checkpoint in a/checkpoints yet\n"},
        {SIGTERM, 0.2, 128 + SIGKILL, "2", "step "}, /* a launcher's and a terminal's are one */
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        const int code = interrupted_in_a_save(r, cases[i].first, cases[i].pause_s, cases[i].hang);
        char *log = run_read(r, "log", NULL);
        if (code != cases[i].code || !strstr(log, cases[i].text) || (i == 2 && strstr(log, "at once")))
            fail_msg("case %d: exit %d, wanted %d and \"%s\":\n%.2000s", i, code, cases[i].code, cases[i].text, log);
        free(log);
    }
    run_end(r);
}

/* ---- the learning rate of a resumed run ---- */

static double lr_of(run_case *r, const char *file, int step)
{
    char *text = run_read(r, file, NULL), key[64];
    snprintf(key, sizeof key, "{\"step\": %d, \"loss\"", step);
    const char *row = strstr(text, key);
    assert_non_null(row);
    const double lr = atof(strstr(row, "\"lr\": ") + 6);
    free(text);
    return lr;
}

TEST(a_resumed_run_tells_that_its_learning_rate_moves)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "train run.yaml train.steps=4 checkpoint.every_steps=2 --quiet");
    /* The cosine of 4 steps has ended; that of 8 is half way. */
    RUN(r, 0, "the learning rate of step 5 is 0.000", "train run.yaml train.steps=8 --resume --quiet");
    assert_non_null(strstr(r->out, ", where the run would have had 0.0001: its schedule (cosine) now ends at step 8, was to end at 4"));
    RUN(r, 0, "", "train run.yaml train.steps=8 checkpoint.dir=b checkpoint.every_steps=4 --quiet");
    run_remove(r, "b/checkpoints/step-00000008");
    RUN(r, 0, "", "train run.yaml train.steps=8 checkpoint.dir=b --resume --quiet");
    assert_null(strstr(r->out, "learning rate")); /* nothing moves */
    run_end(r);
}

TEST(a_resumed_run_takes_another_learning_rate_when_it_is_told_to)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "train run.yaml train.steps=4 schedule.name=constant --quiet");
    RUN(r, 2, "--override lets it change the learning rate and its schedule", "train run.yaml schedule.name=constant optimizer.lr=5e-4 --resume");
    RUN(r, 2, "optimizer.weight_decay=0.5: a/checkpoints/step-00000004 was trained with 0.1",
        "train run.yaml schedule.name=constant optimizer.weight_decay=0.5 --resume --override");
    RUN(r, 2, "give --resume with it", "train run.yaml checkpoint.dir=c --override");
    RUN(r, 2, "optimizer.lr=0.0005: no step is left for it: a/checkpoints/step-00000004 has all train.steps=4, trained with 0.001",
        "train run.yaml train.steps=4 schedule.name=constant optimizer.lr=5e-4 --resume --override");
    RUN(r, 0, "", "help >/dev/null; sed 's/steps: 8, /epochs: 0.1, /' run.yaml >e.yaml; %s train e.yaml schedule.name=constant checkpoint.dir=e --quiet", ORTH_BINARY);
    RUN(r, 2, "optimizer.lr=0.0005: no step is left for it", "train e.yaml schedule.name=constant checkpoint.dir=e optimizer.lr=5e-4 --resume --override");
    RUN(r, 0, "the learning rate of step 5 is 0.0005, where the run would have had 0.001: optimizer.lr is 0.0005 now, was 0.001",
        "train run.yaml train.steps=6 schedule.name=constant optimizer.lr=5e-4 --resume --override --quiet");
    assert_true(lr_of(r, "a/metrics.jsonl", 4) > 0.00099 && lr_of(r, "a/metrics.jsonl", 5) < 0.00051);
    char *lines = run_read(r, "a/metrics.jsonl", NULL);
    assert_non_null(strstr(lines, "{\"step\": 4, \"override\": \"optimizer.lr\", \"was\": \"0.001\", \"now\": \"0.0005\", \"time\": "));
    free(lines);
    char *yaml = run_read(r, "a/run.yaml", NULL);
    assert_non_null(strstr(yaml, "lr: 0.0005"));
    free(yaml);
    /* From then on it is the run's own. */
    RUN(r, 0, "", "train run.yaml train.steps=7 schedule.name=constant optimizer.lr=5e-4 --resume --quiet");
    assert_null(strstr(r->out, "learning rate"));
    run_end(r);
}

TEST(a_folder_that_holds_a_run_hides_no_other_mistake)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "train run.yaml train.steps=1 --quiet");
    run_write(r, "empty.txt", "", 0);
    run_write(r, "a.png", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
    RUN(r, 2, "dp=4 does not divide", "train run.yaml parallel.dp=4");
    RUN(r, 2, "model.preset=x is unknown", "train run.yaml model.preset=x");
    RUN(r, 2, "1F1B", "train run.yaml parallel.pipeline=1F1B");
    RUN(r, 5, "nofile.txt: no such file", "train run.yaml data.path=nofile.txt");
    RUN(r, 5, "nofile: cannot open", "train run.yaml data.tokenizer=nofile");
    RUN(r, 5, "nowhere: there is no such folder", "train run.yaml --init=nowhere");
    RUN(r, 3, "the run does not fit", "train run.yaml memory.limit=100KB");
    RUN(r, 5, "a.png: is ", "train run.yaml data.path=a.png");
    RUN(r, 5, "empty.txt: the file is empty", "train run.yaml data.path=empty.txt");
    RUN(r, 2, "a tokenizer has at least 257 tokens", "train run.yaml data.path=text.txt model.vocab=20");
    RUN(r, 2, "is no token of the tokenizer", "train run.yaml data.tokenizer=bytes data.eos_token=nope");
    RUN(r, 2, "a holds a run already (a/checkpoints/step-00000001)", "train run.yaml");
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slurm_script_of_the_manual_recovers_from_a_kill_before_the_first_save),
        cmocka_unit_test(what_no_run_wrote_is_not_overwritten),
        cmocka_unit_test(resume_or_start_does_what_there_is_to_do),
        cmocka_unit_test(complete_json_says_that_all_steps_are_done),
        cmocka_unit_test(a_complete_run_is_evaluated_once),
        cmocka_unit_test(an_evaluation_that_was_cut_off_is_made_up_for_and_the_best_one_is_remembered),
        cmocka_unit_test(evaluations_of_other_targets_are_not_the_best),
        cmocka_unit_test(a_second_signal_does_not_wait_for_the_end_of_a_step),
        cmocka_unit_test(a_second_signal_ends_at_once_and_says_what_is_saved),
        cmocka_unit_test(a_resumed_run_tells_that_its_learning_rate_moves),
        cmocka_unit_test(a_resumed_run_takes_another_learning_rate_when_it_is_told_to),
        cmocka_unit_test(a_folder_that_holds_a_run_hides_no_other_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
