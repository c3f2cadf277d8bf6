/* char_class.h -- what characters are (unicode_classes.def), and UTF-8 read character by character. */
#ifndef ORTH_DATA_CHAR_CLASS_H
#define ORTH_DATA_CHAR_CLASS_H

#include "base/arena.h"

enum {
    ORTH_CHAR_LETTER = 1,
    ORTH_CHAR_NUMBER = 2,
    ORTH_CHAR_SPACE = 4,
    ORTH_CHAR_WORD = 8,
    ORTH_CHAR_NFC_UNSAFE = 16,
    ORTH_CHAR_NUMERIC = 32,     /* a number to the pre-tokenizer Digits, whose Unicode is newer */
    ORTH_CHAR_FORM_UNSAFE = 64, /* NFD, NFKC or NFKD may change or move it */
};
/* Code points below this have their class in a table; none above has one but variation selectors. */
#define ORTH_CHAR_TABLE 0x40000

static inline int orth_char_class(const uint8_t *classes, uint32_t c)
{
    return c < ORTH_CHAR_TABLE ? classes[c] : c >= 0xE0100 && c <= 0xE01EF ? ORTH_CHAR_WORD : 0;
}

/* The character at p in well-formed UTF-8; *n is set to its bytes. */
static inline uint32_t orth_utf8_at(const unsigned char *p, int *n)
{
    if (p[0] < 0x80) {
        *n = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *n = 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    }
    if (p[0] < 0xF0) {
        *n = 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    }
    *n = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
           (p[3] & 0x3F);
}

/* Bytes of well-formed UTF-8 from p on; end - p if all of it is. */
size_t orth_utf8_valid_prefix(const unsigned char *p, const unsigned char *end);

/* The last character of p[num_bytes]; its bytes in *n, 0: it is none. */
static inline uint32_t orth_utf8_last(const char *p, size_t num_bytes, int *n)
{
    size_t k = 1;
    while (k < 4 && k < num_bytes && ((unsigned char)p[num_bytes - k] & 0xC0) == 0x80)
        k++;
    const unsigned char *at = (const unsigned char *)p + num_bytes - k;
    *n = num_bytes > 0 && orth_utf8_valid_prefix(at, at + k) == k ? (int)k : 0;
    return *n ? orth_utf8_at(at, n) : 0;
}

/* The table for orth_char_class: [ORTH_CHAR_TABLE] bytes of `arena`. ORTH_ERR_NOMEM. */
orth_status orth_char_classes_create(orth_ctx *ctx, orth_arena *arena, uint8_t **out);

#endif
