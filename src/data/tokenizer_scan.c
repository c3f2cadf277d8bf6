/* tokenizer_scan.c -- the patterns of GPT-2, Llama 3 and Qwen 2/3 as scanners.
 *
 * Each function below follows its pattern alternative by alternative; the names (a), (b), ... mark them.
 * tests/test_tokenizer.c holds them against the same patterns in Oniguruma on random text. Every character is
 * matched by some alternative, so words follow each other without gaps.
 */
#include <string.h>

#include "data/tokenizer_impl.h"

/* (a) 's|'t|'re|'ve|'m|'ll|'d  (b)  ?\p{L}+  (c)  ?\p{N}+  (d)  ?[^\s\p{L}\p{N}]+  (e) \s+(?!\S)  (f) \s+ */
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* (a) (?i:'s|'t|...)  (b) [^\r\n\p{L}\p{N}]?\p{L}+  (c) \p{N}{1,3} or \p{N}
 * (d)  ?[^\s\p{L}\p{N}]+[\r\n]*  (e) \s*[\r\n]+  (f) \s+(?!\S)  (g) \s+ */
#define LLAMA3_PATTERN                                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN_PATTERN                                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"      \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { LNS = ORTH_CHAR_LETTER | ORTH_CHAR_NUMBER | ORTH_CHAR_SPACE };

typedef const unsigned char *text;

static inline int class_at(const uint8_t *classes, text p, int *n)
{
    if (*p < 0x80) {
        *n = 1;
        return classes[*p];
    }
    return orth_char_class(classes, orth_utf8_at(p, n));
}

/* End of the run of characters whose L, N, S classes are `wanted`. */
static inline text run_of(const uint8_t *classes, text p, text end, int wanted)
{
    while (p < end) {
        int n;
        if ((class_at(classes, p, &n) & LNS) != wanted)
            break;
        p += n;
    }
    return p;
}

/* Bytes of a contraction at p, which is an apostrophe; 0: none. `fold`: letters in either case. */
static inline int contraction(text p, text end, bool fold)
{
    const int64_t left = end - p;
    if (left < 2)
        return 0;
    const unsigned bit = fold ? 0x20 : 0;
    const unsigned a = p[1] | bit;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (left < 3)
        return 0;
    if (fold && p[1] == 0xC5 && p[2] == 0xBF) /* U+017F, long s, is an s in another case */
        return 3;
    const unsigned b = p[2] | bit;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* \s+(?!\S) or else \s+, where the run of white space that starts at p ends at `stop`: all of it at the end
 * of the text, otherwise all but its last character, which goes with what follows; a single one stays. */
static inline text space_word(text p, text stop, text end)
{
    if (stop == end)
        return stop;
    text last = stop - 1;
    while ((*last & 0xC0) == 0x80)
        last--;
    return last > p ? last : stop;
}

static inline text next_gpt2(const uint8_t *classes, text p, text end)
{
    if (*p == '\'') {
        int n = contraction(p, end, false);
        if (n)
            return p + n; /* (a) */
    }
    int n;
    text q = *p == ' ' && p + 1 < end ? p + 1 : p;
    const int c = class_at(classes, q, &n) & LNS;
    if (c != ORTH_CHAR_SPACE)
        return run_of(classes, q + n, end, c); /* (b) (c) (d) */
    return space_word(p, run_of(classes, q + n, end, ORTH_CHAR_SPACE), end); /* (e) (f) */
}

static inline text next_llama3(const uint8_t *classes, text p, text end, int max_digits)
{
    if (*p == '\'') {
        int n = contraction(p, end, true);
        if (n)
            return p + n; /* (a) */
    }
    int n, m = 0;
    const int c = class_at(classes, p, &n) & LNS;
    if (c == ORTH_CHAR_LETTER)
        return run_of(classes, p + n, end, c); /* (b) */
    const int d = p + n < end ? class_at(classes, p + n, &m) & LNS : ORTH_CHAR_SPACE;
    if (c == ORTH_CHAR_NUMBER) { /* (c) */
        text q = p + n;
        for (int i = 1; i < max_digits && q < end && (class_at(classes, q, &n) & LNS) == c; i++)
            q += n;
        return q;
    }
    if (d == ORTH_CHAR_LETTER && *p != '\r' && *p != '\n')
        return run_of(classes, p + n + m, end, d); /* (b) */
    if (c == 0 || (*p == ' ' && d == 0)) { /* (d) */
        text q = run_of(classes, p + n, end, 0);
        while (q < end && (*q == '\r' || *q == '\n'))
            q++;
        return q;
    }
    text after_newline = NULL, q = p;
    while (q < end && (class_at(classes, q, &n) & LNS) == ORTH_CHAR_SPACE) {
        if (*q == '\r' || *q == '\n')
            after_newline = q + 1;
        q += n;
    }
    return after_newline ? after_newline : space_word(p, q, end); /* (e), (f) (g) */
}

int orth_scan_words(orth_scan_kind kind, const uint8_t *classes, const char *start, const char *stop,
                    const char **out_ends, int max)
{
    text p = (text)start, end = (text)stop;
    int num = 0;
    if (kind == ORTH_SCAN_GPT2) {
        while (p < end && num < max) {
            p = next_gpt2(classes, p, end);
            out_ends[num++] = (const char *)p;
        }
    } else {
        const int max_digits = kind == ORTH_SCAN_LLAMA3 ? 3 : 1;
        while (p < end && num < max) {
            p = next_llama3(classes, p, end, max_digits);
            out_ends[num++] = (const char *)p;
        }
    }
    return num;
}

const char *orth_scan_pattern(orth_scan_kind kind)
{
    static const char *const patterns[] = {
        [ORTH_SCAN_NONE] = "",
        [ORTH_SCAN_GPT2] = GPT2_PATTERN,
        [ORTH_SCAN_LLAMA3] = LLAMA3_PATTERN,
        [ORTH_SCAN_QWEN] = QWEN_PATTERN,
    };
    return patterns[kind];
}

orth_scan_kind orth_scan_from_pattern(const char *pattern, size_t num_bytes)
{
    for (orth_scan_kind k = ORTH_SCAN_GPT2; k <= ORTH_SCAN_QWEN; k++) {
        if (strlen(orth_scan_pattern(k)) == num_bytes &&
            memcmp(orth_scan_pattern(k), pattern, num_bytes) == 0)
            return k;
    }
    return ORTH_SCAN_NONE;
}
