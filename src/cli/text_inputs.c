/* text_inputs.c -- see text_inputs.h. */
#include "cli/text_inputs.h"

#include <string.h>

#include "train/setup.h"

orth_text_options orth_cmd_text_options(const orth_cmd *cmd, const orth_config *cfg)
{
    orth_text_options o = orth_setup_text(cfg);
    const char *separator = orth_cmd_flag(cmd, "document-separator"), *field = orth_cmd_flag(cmd, "field");
    o.separator = separator ? separator : o.separator;
    o.field = field ? field : o.field;
    return o;
}

static orth_status add_all(orth_ctx *ctx, const orth_cmd *cmd, int first, orth_inputs *out)
{
    const char *list = orth_cmd_flag(cmd, "files-from");
    for (int i = first; i < cmd->num_words; i++)
        ORTH_TRY(orth_inputs_add(ctx, out, cmd->words[i]));
    if (list)
        return orth_inputs_add_list(ctx, out, list);
    for (int i = 0; i < cmd->config.data_path.n && cmd->num_words <= first; i++)
        ORTH_TRY(orth_inputs_add(ctx, out, cmd->config.data_path.v[i]));
    return ORTH_OK;
}

orth_status orth_cmd_text_inputs(orth_ctx *ctx, const orth_cmd *cmd, int first, orth_inputs *out)
{
    const char *list = orth_cmd_flag(cmd, "files-from");
    int uses = list && strcmp(list, "-") == 0;
    *out = (orth_inputs){0};
    ORTH_TRY(add_all(ctx, cmd, first, out));
    if (out->num == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s %s: which text? Name files, folders, - for standard input, or "
                         "--files-from=LIST", cmd->verb, cmd->words[0]);
    for (int i = 0; i < out->num; i++)
        uses += strcmp(out->v[i], "-") == 0;
    if (uses > 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s %s: standard input (-) is named %d times: it can be read once", cmd->verb,
                         cmd->words[0], uses);
    return ORTH_OK;
}
