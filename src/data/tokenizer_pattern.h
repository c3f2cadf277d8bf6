/* tokenizer_pattern.h -- patterns of tokenizers: regular expressions as Hugging Face `tokenizers` reads them
 * (Oniguruma, UTF-8, its own syntax), and plain strings.
 *
 * A compiled pattern is immutable and may be used by any number of threads, each with an orth_matcher of its own. */
#ifndef ORTH_DATA_TOKENIZER_PATTERN_H
#define ORTH_DATA_TOKENIZER_PATTERN_H

#include <oniguruma.h>

#include "base/arena.h"

typedef struct {
    const char *text;           /* as the file has it; num_bytes and a zero byte */
    size_t num_bytes;
    regex_t *code;              /* NULL: a plain string, or no pattern at all */
    OnigEncodingType encoding;  /* `code` points to it: a pattern does not move */
} orth_pattern;

/* Compiles pattern[num_bytes]; `literal`: it is a plain string. Text and encoding live in `arena`, the code is freed
 * with orth_pattern_free. ORTH_ERR_NOMEM; ORTH_ERR_DATA, with `name` and `place` in the message, for what is no
 * pattern, and for what other versions of Oniguruma than the one inside `tokenizers` would match otherwise. */
orth_status orth_pattern_compile(orth_ctx *ctx, orth_arena *arena, orth_pattern *out, const char *pattern,
                                 size_t num_bytes, bool literal, const char *name, const char *place);
void orth_pattern_free(orth_pattern *p);

/* What a thread needs to match; zero-initialised: ready. */
typedef struct {
    OnigRegion *region;
    OnigMatchParam *param;
} orth_matcher;
void orth_matcher_free(orth_matcher *m);

/* The matches of one pattern in one text, from left to right. */
typedef struct {
    const orth_pattern *pattern;
    const char *text;           /* well-formed UTF-8 */
    size_t num_bytes;
    size_t from;                /* where the next search begins */
    size_t start, stop;         /* the match found last */
    bool any;                   /* there was one */
    uint64_t retries;           /* that searches took so far */
} orth_matches;
/* Finds the next match: matches->start, stop. An empty match where the match before ended is none. *out_found: false
 * at the end. ORTH_ERR_DATA when the pattern takes too many steps, or matches what lies before the end of the match
 * before. */
orth_status orth_matches_next(orth_ctx *ctx, orth_matcher *m, orth_matches *matches, bool *out_found);

/* UTF-8 with the character sets of Hugging Face's Oniguruma (tokenizer_properties.c). */
void orth_pattern_encoding(OnigEncodingType *out);

#endif
