/* text.h -- text that grows: for dumps, help and reports; well-formed UTF-8; the nearest of several names. */
#ifndef ORTH_BASE_TEXT_H
#define ORTH_BASE_TEXT_H

#include <stdarg.h>

#include "base/ctx.h"

/* Zero-initialised: empty and ready. After a failed allocation `failed` is set, the error is in ctx
 * and further additions do nothing: check once, at the end. Who could not make what was to be added sets it, too. */
typedef struct {
    char *s;            /* heap; zero-terminated; NULL while empty */
    size_t num_bytes, capacity;
    bool failed;
} orth_text;

void orth_text_add(orth_ctx *ctx, orth_text *t, const char *s);
void orth_text_addf(orth_ctx *ctx, orth_text *t, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void orth_text_addv(orth_ctx *ctx, orth_text *t, const char *fmt, va_list args) __attribute__((format(printf, 3, 0)));
/* Words of `s` in lines of at most `width` columns, each line after `indent` spaces; the first one
 * goes on from column `column` of the present line. Ends with a newline. */
void orth_text_wrap(orth_ctx *ctx, orth_text *t, const char *s, int column, int indent, int width);
/* `s` between double quotes, escaped so that both YAML and JSON read it back. */
void orth_text_quote(orth_ctx *ctx, orth_text *t, const char *s);

/* Memory for so many bytes more, so that adding them cannot fail. False: there is none, and `failed` is set. */
bool orth_text_reserve(orth_ctx *ctx, orth_text *t, size_t more);

/* Empty again; its memory stays for what is added next. */
void orth_text_clear(orth_text *t);

/* The text, owned by the caller from now on (orth_mem_free); NULL when an addition failed. */
char *orth_text_take(orth_ctx *ctx, orth_text *t);

/* A message as it may be printed, cut to fit: control characters, which names of files may hold and terminals obey, and bytes
 * that are not UTF-8 become \xNN. */
void orth_text_escape(char *out, size_t size, const char *s);
/* The same as an argument of printf: the text lives until the end of the block. */
#define ORTH_SHOWN(s) orth_text_shown((char[ORTH_SHOWN_BYTES]){0}, ORTH_SHOWN_BYTES, s)
#define ORTH_SHOWN_BYTES 1024
const char *orth_text_shown(char *out, size_t size, const char *s);

/* Whether `s` is well-formed UTF-8. */
bool orth_utf8_valid(const char *s);

/* The nearest of `names` to `word` by edit distance, for "did you mean"; NULL if none is near. */
const char *orth_nearest(const char *word, const char *const *names, int num_names);

#endif
