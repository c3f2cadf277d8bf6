/* text_inputs.h -- the text that a verb is given: files, folders, standard input, lists of files, and how it is read. */
#ifndef ORTH_CLI_TEXT_INPUTS_H
#define ORTH_CLI_TEXT_INPUTS_H

#include "cli/cmd.h"
#include "data/inputs.h"
#include "data/reader.h"

/* data.format, --document-separator or data.separator, --field or data.jsonl_field; the keys are those of cfg. */
orth_text_options orth_cmd_text_options(const orth_cmd *cmd, const orth_config *cfg);

/* The words of the command line from words[first] on, then what --files-from names, folders replaced by their files;
 * without either, data.path. ORTH_ERR_ARG if there is none, or standard input twice; and as orth_inputs_add.
 * *out is to be released whatever happens. */
orth_status orth_cmd_text_inputs(orth_ctx *ctx, const orth_cmd *cmd, int first, orth_inputs *out);

#endif
