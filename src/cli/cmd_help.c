/* cmd_help.c -- `orthant help`. */
#include <string.h>

#include "cli/verbs.h"

static char *help_text(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *shell = orth_cmd_flag(cmd, "completion");
    const char *word = cmd->num_words > 0 ? cmd->words[0] : NULL;
    if (orth_cmd_flag(cmd, "man"))
        return orth_help_man(ctx);
    if (shell && strcmp(shell, "bash") == 0)
        return orth_help_completion(ctx);
    if (shell) {
        ORTH_FAIL(ctx, ORTH_ERR_ARG, "help: --completion=%s: only bash is supported", shell);
        return NULL;
    }
    if (!word)
        return orth_help_usage(ctx);
    if (strcmp(word, "options") == 0)
        return orth_help_options(ctx, cmd->num_words > 1 ? cmd->words[1] : NULL);
    const orth_verb *verb = orth_verb_find(word);
    if (verb)
        return orth_help_verb(ctx, verb);
    ORTH_FAIL(ctx, ORTH_ERR_ARG, "help: unknown verb '%s'; `orthant help` lists the verbs", word);
    return NULL;
}

orth_status orth_cmd_help(orth_ctx *ctx, const orth_cmd *cmd)
{
    char *text = help_text(ctx, cmd);
    if (!text)
        return ctx->error.code;
    fputs(text, stdout);
    orth_mem_free(ctx, text);
    return ORTH_OK;
}
