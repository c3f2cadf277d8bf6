/* cmd.h -- what a verb of the command line is given. One cmd_<verb>.c each; verbs.def lists them. */
#ifndef ORTH_CLI_CMD_H
#define ORTH_CLI_CMD_H

#include "config/config.h"

typedef struct {
    const char *verb;
    orth_config config;      /* defaults, run file, then key=value; checked one by one */
    const char *run_file;    /* NULL: none given */
    int num_words;           /* what is neither a flag, the run file nor key=value: sub-verbs, paths */
    const char *const *words;
    const void *flags;       /* see orth_cmd_flag */
} orth_cmd;

/* Value of --name as given ("" for a flag without value); NULL if it was not. The flags that a verb
 * takes are rows of flags.def: FLAG(verb, name, metavar or "", help). Unknown ones never get here. */
const char *orth_cmd_flag(const orth_cmd *cmd, const char *name);

/* ORTH_ERR_ARG if a file that the command writes (--out, --html, --timeline, --svg, --csv) is one that it reads (the run file, that of run.hardware, what a
 * word or another flag names), or one that a run keeps. main does it for all verbs. */
orth_status orth_cmd_check_out(orth_ctx *ctx, const orth_cmd *cmd);

/* The i-th word KEY=[A, B, ...] whose key takes one value: with --compare these are values to try one after the other, and the
 * configuration does not have them. NULL past the last. */
const char *orth_cmd_compared(const orth_cmd *cmd, int i);

/* Loads a run file (NULL: none) as the verb's own was: defaults, the file, the environment, the key=value
 * words. ORTH_ERR_ARG; `cfg` is to be released whatever happens. */
orth_status orth_cmd_load(orth_ctx *ctx, const orth_cmd *cmd, orth_config *cfg, const char *run_file);

/* Gives ctx the threads and the instruction set that cfg asks for. main does it for cmd->config. */
orth_status orth_cmd_use_machine(orth_ctx *ctx, const orth_config *cfg);

/* A verb: prints its results on standard output, returns errors through ctx; main prints those. */
typedef orth_status (*orth_cmd_fn)(orth_ctx *ctx, const orth_cmd *cmd);

#define VERB(name, words, summary) orth_status orth_cmd_##name(orth_ctx *ctx, const orth_cmd *cmd);
#include "cli/verbs.def"
#undef VERB

#endif
