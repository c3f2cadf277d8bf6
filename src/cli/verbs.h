/* verbs.h -- the tables of the command line: verbs.def, flags.def and about.def as data. */
#ifndef ORTH_CLI_VERBS_H
#define ORTH_CLI_VERBS_H

#include "base/text.h"
#include "cli/cmd.h"

#ifndef ORTH_VERSION
#define ORTH_VERSION "unknown"
#endif

typedef struct {
    const char *name, *words, *summary;
    orth_cmd_fn run;
} orth_verb;

typedef struct {
    const char *verb;
    const char *sections;   /* of options that it reads, separated by spaces */
    const char *text, *examples;
} orth_about;

typedef struct {
    const char *verb, *name, *metavar, *help;
} orth_flag;

int orth_verb_count(void);
const orth_verb *orth_verb_get(int i);
const orth_verb *orth_verb_find(const char *name);      /* NULL: none */
const orth_about *orth_about_find(const char *verb);    /* NULL: none */
bool orth_about_reads(const orth_about *a, const char *section);
int orth_flag_count(void);
const orth_flag *orth_flag_get(int i);
const orth_flag *orth_flag_find(const char *verb, const char *name);

/* A parsed command line. `cmd` points into the other members and into argv. */
#define ORTH_FLAGS_MAX 32
typedef struct {
    orth_cmd cmd;
    const orth_verb *verb;
    bool help;              /* --help was given: nothing else was looked at */
    int num_flags;
    struct { const char *name, *value; } flag[ORTH_FLAGS_MAX];
    const char **words;     /* heap, as many as there are; orth_args_release */
    int num_settings;       /* key=value words */
    const char **settings;  /* in the same memory */
} orth_args;

/* Sorts argv into verb, run file, key=value, flags and words, and loads the configuration in the
 * order defaults, run file, environment (ORTHANT_THREADS, ORTHANT_ISA), key=value. ORTH_ERR_ARG,
 * ORTH_ERR_NOMEM. To be released whatever happens. */
orth_status orth_args_parse(orth_ctx *ctx, orth_args *args, int argc, char **argv);
void orth_args_release(orth_ctx *ctx, orth_args *args);

/* Help as text in heap memory; NULL with the error recorded. */
char *orth_help_usage(orth_ctx *ctx);
char *orth_help_verb(orth_ctx *ctx, const orth_verb *verb);
char *orth_help_options(orth_ctx *ctx);
/* A section of options, or one option. ORTH_ERR_ARG: neither. */
char *orth_help_topic(orth_ctx *ctx, const char *name);
/* The names that a key takes, if it takes names: choices, presets, schedules. */
void orth_help_names(orth_ctx *ctx, orth_text *t, orth_option_id id, const char *between);
char *orth_help_man(orth_ctx *ctx);
/* `shell`: bash, zsh or fish. ORTH_ERR_ARG: another. */
char *orth_help_completion(orth_ctx *ctx, const char *shell);

#endif
