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

#include <stdio.h>

#include "base/text.h"

/* Zero but for the first two, and lines: at the beginning. A failed allocation is noted in the text. */
typedef struct {
    orth_ctx *ctx;
    orth_text *text;
    int lines;          /* members of the outermost so many levels stand on lines of their own; 0: all on one line */
    bool behind;        /* a value: the next one has a comma before it */
    int depth;
} orth_json_out;

/* key: of the member; NULL in an array, and of the value that is not in anything. */
void orth_json_open(orth_json_out *j, const char *key, char bracket);
void orth_json_close(orth_json_out *j, char bracket);
void orth_json_string(orth_json_out *j, const char *key, const char *value);
void orth_json_bool(orth_json_out *j, const char *key, bool value);
/* With 9 digits; null if x is not finite, which JSON cannot say. */
void orth_json_number(orth_json_out *j, const char *key, double x);
/* All bits of x, as "0x1.8p+1". */
void orth_json_hex(orth_json_out *j, const char *key, double x);
/* A number, or any JSON, as printf makes it. */
void orth_json_print(orth_json_out *j, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The whole text and a newline onto `file`, which the caller checks; the text is freed. ORTH_ERR_NOMEM: an addition had failed. */
orth_status orth_json_show(orth_json_out *j, FILE *file);

#endif
