/* json_out.h -- JSON written piece by piece onto a text: for objects that are printed as they are found. Strings and keys are escaped;
 * commas are put where they belong. What is read, or built before it is written, is jansson's (ckpt/json.h).
 *
 *   orth_json_out j = {ctx, &text};
 *   orth_json_open(&j, NULL, '{');
 *   orth_json_print(&j, "bytes", "%zu", n);       {"bytes": 12, "names": ["a", "b"]}
 *   orth_json_open(&j, "names", '[');
 *   orth_json_string(&j, NULL, "a");
 *   orth_json_string(&j, NULL, "b");
 *   orth_json_close(&j, ']');
 *   orth_json_close(&j, '}');
 */
#ifndef ORTH_BASE_JSON_OUT_H
#define ORTH_BASE_JSON_OUT_H

#include "base/text.h"

/* Zero but for the first two: at the beginning. A failed allocation is noted in the text. */
typedef struct {
    orth_ctx *ctx;
    orth_text *text;
    bool behind;        /* a value: the next one has a comma before it */
} orth_json_out;

/* key: of the member; NULL in an array, and of the value that is not in anything. */
void orth_json_open(orth_json_out *j, const char *key, char bracket);
void orth_json_close(orth_json_out *j, char bracket);
void orth_json_string(orth_json_out *j, const char *key, const char *value);
void orth_json_bool(orth_json_out *j, const char *key, bool value);
/* A number, or any JSON, as printf makes it. */
void orth_json_print(orth_json_out *j, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
