/* main.c -- the program: reads the command line, sets up the rank, runs the verb, prints its error. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/memory.h"
#include "cli/stop.h"
#include "cli/verbs.h"
#include "comm/comm.h"

static orth_status print_owned(orth_ctx *ctx, FILE *to, char *text)
{
    if (!text)
        return ORTH_ERR_NOMEM;
    fputs(text, to);
    orth_mem_free(ctx, text);
    return ORTH_OK;
}

/* A file must not get the number of a standard stream that was closed, or what is printed would end up in it.
 * Opened for reading, so that printing fails and is reported. */
static void occupy_standard_streams(void)
{
    int fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDONLY);
    if (fd >= 0)
        close(fd);
}

/* Files are read through mappings: a page behind the end of one that has become shorter is this signal. Nothing but
 * the end of the process is safe here; checkpoints are whole at any moment. */
static void end_on_a_cut_file(int signal)
{
    static const char text[] = "orthant: a file (token shards, text or weights) was cut short while it was being read\n";
    (void)signal;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(orth_status_exit_code(ORTH_ERR_DATA));
}

/* For jansson, whose lexer does not check what it is given: where it gets no memory, it drops characters or aborts (2.14). So it
 * is always given some, or the process ends; checkpoints are whole at any moment. */
static void *json_memory(size_t num_bytes)
{
    static const char text[] = "orthant: no memory to read or write JSON\n";
    void *p = orth_mem_system(num_bytes);
    if (p)
        return p;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(orth_status_exit_code(ORTH_ERR_NOMEM));
}

/* What was printed must have arrived. */
static orth_status check_output(orth_ctx *ctx)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return ORTH_OK;
    const ssize_t again = errno ? 0 : write(STDOUT_FILENO, "\n", 1); /* it failed earlier, where nobody looked: another try says why */
    (void)again;
    return ORTH_FAIL(ctx, errno == ENOSPC ? ORTH_ERR_NOSPACE : ORTH_ERR_IO, "standard output: cannot write%s%s",
                     errno ? ": " : "", errno ? strerror(errno) : "");
}

/* *ran: the command line is in order, the verb was called. */
static orth_status run(orth_ctx *ctx, orth_args *args, orth_stop *stop, int argc, char **argv, bool *ran)
{
    const char *first = argc > 1 ? argv[1] : "";
    if (strcmp(first, "--version") == 0) {
        printf("orthant %s\n", ORTH_VERSION);
        return ORTH_OK;
    }
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return print_owned(ctx, stdout, orth_help_usage(ctx));
    if (argc < 2)
        ORTH_TRY(print_owned(ctx, stderr, orth_help_usage(ctx)));
    ORTH_TRY(orth_args_parse(ctx, args, argc, argv));
    if (args->help)
        return print_owned(ctx, stdout, orth_help_verb(ctx, args->verb));
    ORTH_TRY(orth_cmd_check_out(ctx, &args->cmd));
    ORTH_TRY(orth_stop_on_signals(ctx, stop, &args->cmd));
    ORTH_TRY(orth_cmd_use_machine(ctx, &args->cmd.config));
    *ran = true;
    return args->verb->run(ctx, &args->cmd);
}

/* Is this one of several processes of mpirun or srun, and not the first? */
static bool is_later_process(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (int i = 0; i < ORTH_COUNT(names); i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i])) > 0;
    return false;
}

/* Processes of one run fail together and for one reason: one of them says it. The others wait a little before they
 * end, because the launcher ends all when the first is gone; and where each found the reason for itself (a
 * wrong command line), they say it if they are still there, for then the first did not find it. */
static void say_error(const orth_ctx *ctx, orth_status s, bool ran)
{
    if (ctx->error.printed_elsewhere) {
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        return;
    }
    if (!ran && is_later_process())
        sleep(2); /* mpirun gives it one */
    char shown[4 * ORTH_MESSAGE_MAX];
    orth_text_escape(shown, sizeof shown, ctx->error.message[0] ? ctx->error.message : orth_status_name(s));
    fprintf(stderr, "orthant: %s\n", shown);
}

int main(int argc, char **argv)
{
    orth_ctx ctx;
    orth_args args = {.verb = NULL};
    orth_stop stop;
    bool ran = false;
    occupy_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file over its limit is a failed write, with its message and exit code */
    signal(SIGBUS, end_on_a_cut_file);
    json_set_alloc_funcs(json_memory, free);
    orth_return_freed_memory();
    orth_status s = orth_ctx_init(&ctx, 1);
    if (s == ORTH_OK) {
        s = run(&ctx, &args, &stop, argc, argv, &ran);
        if (s == ORTH_OK)
            s = check_output(&ctx);
    }
    if (s == ORTH_OK)
        orth_comm_shutdown(); /* a launcher takes the end of a process that did not take leave for a failure */
    if (!ctx.error.left_behind)
        fflush(stdout);
    if (s != ORTH_OK)
        say_error(&ctx, s, ran);
    int code = orth_status_exit_code(s);
    /* The verb that was stopped by a signal names it in its message. SIGUSR1 is a launcher's SIGTERM, SIGHUP a closed terminal's. */
    if (s == ORTH_ERR_SIGNAL && !strstr(ctx.error.message, "SIGINT"))
        code = 143;
    if (ctx.error.left_behind)
        _exit(code);
    orth_args_release(&ctx, &args);
    if (ctx.pool)
        orth_ctx_destroy(&ctx);
    return code;
}
