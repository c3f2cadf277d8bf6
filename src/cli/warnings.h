/* warnings.h -- what the log is warned of while an answer is made, kept for the JSON of the answer. */
#ifndef ORTH_CLI_WARNINGS_H
#define ORTH_CLI_WARNINGS_H

#include "base/json_out.h"

typedef struct {
    orth_log_sink before;
    orth_text text;          /* a JSON array */
    orth_json_out out;
    bool keeps;
} orth_warnings;

/* From here on each warning of ctx is kept, whatever the level of its log, and goes where it went before. One thread. *w outlives the log's use. */
void orth_warnings_keep(orth_ctx *ctx, orth_warnings *w);
/* Ends that. The array, "[]" without warnings, lives until the release; NULL: none were to be kept, or there was no memory. */
const char *orth_warnings_stop(orth_ctx *ctx, orth_warnings *w);
/* Ends that, too. Of zero: nothing. */
void orth_warnings_release(orth_ctx *ctx, orth_warnings *w);

#endif
