/* test_run_folder.c -- what a run leaves in its folder, and what it takes away: its own only, and never the last checkpoint of use. */
#include "run_case.h"

#include <signal.h>

/* Runs `orthant ARGS` in the folder, beside this process; for finish. What it says is in the file `log`. */
static pid_t __attribute__((format(printf, 3, 4))) start(run_case *r, const char *log, const char *fmt, ...)
{
    char args[1024], command[2048];
    va_list list;
    va_start(list, fmt);
    vsnprintf(args, sizeof args, fmt, list);
    va_end(list);
    snprintf(command, sizeof command, "cd %s && exec " ORTH_BINARY " %s >%s 2>&1", r->dir, args, log);
    const pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    return child;
}

/* The exit code of such a run; one that does not end is killed. What it said is in r->out. */
static int finish(run_case *r, const char *log, pid_t child)
{
    int status = 0, looks = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (++looks == 6000)
            kill(child, SIGKILL);
        usleep(10000);
    }
    char *text = run_read(r, log, NULL);
    snprintf(r->out, sizeof r->out, "%s", text);
    free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void await(run_case *r, const char *name)
{
    for (int looks = 0; looks < 6000 && !run_has(r, name); looks++)
        usleep(10000);
    assert_true(run_has(r, name));
}

/* The names in a folder, sorted, with a space after each. */
static void check_names(run_case *r, const char *folder, const char *want)
{
    char command[512], out[4096];
    snprintf(command, sizeof command, "cd %s && ls -A %s 2>&1 | tr '\\n' ' '", r->dir, folder);
    run_shell(command, out, sizeof out);
    if (strcmp(out, want) != 0)
        fail_msg("%s holds %s, wanted %s", folder, out, want);
}

/* ---- a folder that is another one by now ---- */

#define GONE "orthant: a: the run folder was removed or replaced while the run went on"

static void rename_folder(const run_case *r)
{
    char from[256], to[256];
    snprintf(from, sizeof from, "%s/a", r->dir);
    snprintf(to, sizeof to, "%s/moved", r->dir);
    assert_int_equal(rename(from, to), 0);
}

static void check_gone(run_case *r, pid_t child)
{
    const int code = finish(r, "log", child);
    if (code != 5 || !strstr(r->out, GONE))
        fail_msg("exit %d, it said: %.2000s", code, r->out);
}

TEST(a_run_whose_folder_was_replaced_leaves_the_other_run_alone)
{
    static const char *const layouts[] = {"", "checkpoint.async=false"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        run_remove(r, "a");
        run_remove(r, "moved");
        const pid_t old = start(r, "log", "train run.yaml --quiet train.steps=1000000 checkpoint.every_steps=20 checkpoint.keep=1 %s", layouts[i]);
        await(r, "a/checkpoints/step-00000020");
        rename_folder(r);
        RUN(r, 0, "done: step 4", "train run.yaml train.steps=4 checkpoint.every_steps=1 checkpoint.keep=2");
        check_gone(r, old);
        check_names(r, "a/checkpoints", "step-00000003 step-00000004 ");
        check_names(r, "a", "checkpoints complete.json memory.json metrics.jsonl plan.json run.yaml ");
    }
    run_end(r);
}

TEST(a_run_whose_folder_was_removed_says_so_and_does_not_make_it_again)
{
    run_case *r = run_begin();
    const pid_t child = start(r, "log", "train run.yaml --quiet train.steps=1000000 checkpoint.every_steps=20");
    await(r, "a/checkpoints/step-00000020");
    rename_folder(r);
    check_gone(r, child);
    assert_false(run_has(r, "a"));
    run_end(r);
}

/* ---- the last checkpoint of use ---- */

#define DIVERGES "train run.yaml --quiet optimizer.name=sgd optimizer.lr=1000 schedule.name=constant checkpoint.keep=1 "

/* The first run leaves step-2, whose weights are of use, and step-6, whose weights are not; the second one skips all of its steps. */
TEST(a_resumed_run_that_has_proven_nothing_removes_nothing_that_it_found)
{
    run_case *r = run_begin();
    const char *options = "checkpoint.every_steps=2 train.on_nonfinite=skip";
    RUN(r, 0, "", DIVERGES "%s train.steps=6", options);
    check_names(r, "a/checkpoints", "step-00000002 step-00000006 ");
    RUN(r, 0, "", DIVERGES "%s train.steps=12 --resume", options);
    check_names(r, "a/checkpoints", "step-00000002 step-00000006 step-00000012 ");
    RUN(r, 0, "loss", "eval a/checkpoints/step-00000002");
    assert_null(strstr(r->out, "nan"));
    /* Once one of its own is proven, what it found goes as ever. */
    run_remove(r, "a/checkpoints/step-00000012");
    run_remove(r, "a/checkpoints/step-00000006");
    RUN(r, 0, "", DIVERGES "checkpoint.every_steps=1 optimizer.lr=1e-3 train.steps=5 --resume --override");
    check_names(r, "a/checkpoints", "step-00000005 ");
    run_end(r);
}

/* The loss of the last step is that of the weights before its update: without held-out text nothing is known of what was saved last. */
TEST(a_run_without_held_out_text_keeps_a_checkpoint_of_use_beside_the_last)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "data prepare --tokenizer=shards/tokenizer.json --out=all --valid-fraction=0 text.txt");
    RUN(r, 0, "", DIVERGES "data.path=all checkpoint.every_steps=1 train.steps=3");
    check_names(r, "a/checkpoints", "step-00000002 step-00000003 ");
    RUN(r, 6, "step 4: loss nan", DIVERGES "data.path=all checkpoint.every_steps=1 train.steps=4 --resume");
    RUN(r, 0, "", "train run.yaml --quiet checkpoint.dir=b checkpoint.keep=1 checkpoint.every_steps=1 train.steps=4");
    check_names(r, "b/checkpoints", "step-00000004 "); /* an evaluation has looked at its weights */
    run_end(r);
}

/* ---- what was left ---- */

#define NOBODY "4194399" /* more than any process has */

static void __attribute__((format(printf, 2, 3))) leave(run_case *r, const char *fmt, ...)
{
    char name[256];
    va_list list;
    va_start(list, fmt);
    vsnprintf(name, sizeof name, fmt, list);
    va_end(list);
    run_write(r, name, "x", 1);
}

TEST(what_killed_processes_left_in_a_run_folder_goes_and_nothing_else)
{
    char want[512], path[512];
    run_case *r = run_begin();
    RUN(r, 0, "", "train run.yaml --quiet train.steps=1");
    snprintf(path, sizeof path, "%s/a/data/0123456789abcdef.tmp-" NOBODY, r->dir);
    CHECK_OK(r->ctx, orth_path_make_dirs(r->ctx, path));
    leave(r, "a/data/0123456789abcdef.tmp-" NOBODY "/train-00000.orts");
    leave(r, "a/data/0123456789abcdef.tmp-" NOBODY "-old");
    leave(r, "a/data/tokenizer-0123456789abcdef.json.tmp-" NOBODY);
    leave(r, "a/run.yaml.tmp-" NOBODY);
    leave(r, "a/memory.json.tmp-" NOBODY);
    leave(r, "a/data/0123456789abcdef.tmp-%d", (int)getpid()); /* being written */
    int lock; /* of a process elsewhere */
    snprintf(path, sizeof path, "%s/a/data/fedcba9876543210.tmp-" NOBODY, r->dir);
    CHECK_OK(r->ctx, orth_path_make_dirs(r->ctx, path));
    CHECK_OK(r->ctx, orth_path_lock(r->ctx, path, "", &lock));
    leave(r, "a/data/notes.tmp-" NOBODY);
    leave(r, "a/notes.tmp-" NOBODY);
    RUN(r, 0, "left by a process that was killed", "train run.yaml train.steps=2 --resume");
    snprintf(want, sizeof want, "0123456789abcdef.tmp-%d fedcba9876543210.tmp-" NOBODY " notes.tmp-" NOBODY " ", (int)getpid());
    check_names(r, "a/data", want);
    close(lock);
    check_names(r, "a", "checkpoints complete.json data memory.json metrics.jsonl notes.tmp-" NOBODY " plan.json run.yaml ");
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_whose_folder_was_replaced_leaves_the_other_run_alone),
        cmocka_unit_test(a_run_whose_folder_was_removed_says_so_and_does_not_make_it_again),
        cmocka_unit_test(a_resumed_run_that_has_proven_nothing_removes_nothing_that_it_found),
        cmocka_unit_test(a_run_without_held_out_text_keeps_a_checkpoint_of_use_beside_the_last),
        cmocka_unit_test(what_killed_processes_left_in_a_run_folder_goes_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
