/* jsonl.h -- the text of one line of JSON: a string member of the object that the line holds.
 *
 * A scanner of its own because strings may hold bytes that are not UTF-8 (they are text all the same, and
 * JSON libraries refuse them), and because a line is read once and only one member of it is wanted.
 * Otherwise strict RFC 8259. The last of several members of one name counts. Escapes become UTF-8; half a
 * surrogate pair becomes U+FFFD.
 */
#ifndef ORTH_DATA_JSONL_H
#define ORTH_DATA_JSONL_H

#include "data/tokenizer.h"

#define ORTH_JSONL_MAX_DEPTH 64

/* Replaces *out by the value of `field`. `path` and `line_number` are for messages, which add the column in
 * bytes. ORTH_ERR_DATA: not JSON, not an object, no such member, not a string; ORTH_ERR_NOMEM. */
orth_status orth_jsonl_text(orth_ctx *ctx, orth_bytes *out, const char *line, size_t num_bytes,
                            const char *field, const char *path, int64_t line_number);

/* Bytes up to the end of the JSON object that the text begins with, on one line or several; 0: with none, or it is cut off. */
size_t orth_jsonl_object_bytes(orth_ctx *ctx, const char *text, size_t num_bytes);

#endif
