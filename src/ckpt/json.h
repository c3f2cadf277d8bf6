/* json.h -- JSON objects from files that may be damaged or foreign, read key by key (jansson inside).
 *
 * Every message starts with `place` (the path of the file). Nesting is limited by jansson (2048), a
 * key given twice is refused, and so is anything but an object at the top.
 *
 * The lexer of jansson 2.14 drops characters, or aborts, where it gets no memory. cli/main.c therefore gives jansson an allocator
 * that ends the process instead; a program of another kind that may run out of memory has to do so as well.
 */
#ifndef ORTH_CKPT_JSON_H
#define ORTH_CKPT_JSON_H

#include <jansson.h>

#include "base/ctx.h"

/* ORTH_ERR_DATA with PLACE:LINE:COL. Release with json_decref. */
orth_status orth_json_parse(orth_ctx *ctx, json_t **out, const char *place, const char *text,
                            size_t num_bytes);
/* The same for a whole file of at most max_bytes. ORTH_ERR_IO, ORTH_ERR_DATA. */
orth_status orth_json_read(orth_ctx *ctx, json_t **out, const char *path, size_t max_bytes);

/* Getters: a key that is absent or null leaves *out alone; a value of another type is ORTH_ERR_DATA
 * with place, key and value. A real may be written as an integer; strings live as long as `object`. */
orth_status orth_json_get_int(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                              int64_t *out);
orth_status orth_json_get_real(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                               double *out);
orth_status orth_json_get_bool(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                               bool *out);
orth_status orth_json_get_string(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                                 const char **out);
/* ORTH_ERR_DATA unless the key is there with a value other than null. */
orth_status orth_json_require(orth_ctx *ctx, const json_t *object, const char *place, const char *key);

/* For objects that are built in many steps: sets the member, whose value it owns from now on. Without memory, or when the value
 * or the object is NULL, the object is released and *object is NULL: check once, at the end. */
void orth_json_add(json_t **object, const char *key, json_t *value);
void orth_json_append(json_t **array, json_t *value); /* the same for an array */

/* Text of `value`, NULL included, in heap memory; NULL with the error recorded. flags as for json_dumps. */
char *orth_json_text(orth_ctx *ctx, const json_t *value, size_t flags);
/* The same, indented, with a newline at its end: a whole file. */
char *orth_json_lines(orth_ctx *ctx, const json_t *value);

#endif
