/* cli_case.h -- the program as its user meets it: what it says on both streams, and its exit code. */
#ifndef ORTH_TESTS_CLI_CASE_H
#define ORTH_TESTS_CLI_CASE_H

#include "run_case.h"

/* Runs `env ORTH_BINARY args` through the shell; both streams into out. Returns the exit code. */
static inline int run(const char *env, const char *args, char *out, size_t size)
{
    char command[2048];
    snprintf(command, sizeof command, "%s %s %s 2>&1", env, ORTH_BINARY, args);
    return run_shell(command, out, size);
}

static inline void expect_with(const char *env, const char *args, int code, const char *text)
{
    static char out[1 << 18];
    int got = run(env, args, out, sizeof out);
    if (got != code || !strstr(out, text))
        fail_msg("orthant %s: exit %d, wanted %d and \"%s\"; it said:\n%.2000s", args, got, code, text, out);
}

static inline void expect(const char *args, int code, const char *text)
{
    expect_with("", args, code, text);
}

static inline void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#endif
