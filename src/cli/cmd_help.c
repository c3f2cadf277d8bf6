/* cmd_help.c -- `orthant help`. */
#include <string.h>

#include "cli/verbs.h"

static char *help_text(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *shell = orth_cmd_flag(cmd, "completion");
    const char *word = cmd->num_words > 0 ? cmd->words[0] : NULL;
    if (orth_cmd_flag(cmd, "man"))
        return orth_help_man(ctx);
    if (shell)
        return orth_help_completion(ctx, shell);
    if (!word)
        return orth_help_usage(ctx);
    if (strcmp(word, "options") == 0)
        return cmd->num_words > 1 ? orth_help_topic(ctx, cmd->words[1]) : orth_help_options(ctx);
    const orth_verb *verb = orth_verb_find(word);
    return verb ? orth_help_verb(ctx, verb) : orth_help_topic(ctx, word);
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
