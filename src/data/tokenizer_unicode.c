/* tokenizer_unicode.c -- Unicode normal forms of the parts of a text that may not have them yet, and lower case.
 *
 * A text can be cut before every character that is not unsafe (NFC_UNSAFE; for the other forms FORM_UNSAFE too)
 * without changing its normal form. So only stretches of one safe character (or the start of the text) and the unsafe
 * ones behind it go to libunistring; in most texts there are few of them. */
#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <unictype.h>
#include <uninorm.h>

#include "data/tokenizer_impl.h"

typedef struct {
    const uint8_t *classes;
    int unsafe;                 /* classes of unsafe characters */
    uninorm_t form;
} normal_form;

static orth_status append_normal(orth_ctx *ctx, const normal_form *f, orth_bytes *out, const char *p, size_t num_bytes)
{
    uint8_t small[256];
    size_t length = sizeof small;
    uint8_t *normal = u8_normalize(f->form, (const uint8_t *)p, num_bytes, small, &length);
    if (!normal)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "tokenizer: no memory to normalize %zu bytes", num_bytes);
    orth_status status = orth_bytes_append(ctx, out, normal, length);
    if (normal != small)
        free(normal); /* libunistring's own allocation */
    return status;
}

/* Characters that Unicode got after the tables of Hugging Face's library were made stay as they are there, marks among
 * them, and so they are safe. They must stay here too: what follows them is normalized without them. */
static const char *after_unknown(const normal_form *f, const char *p)
{
    int n, tag;
    const uint32_t c = orth_utf8_at((const unsigned char *)p, &n);
    ucs4_t parts[UC_DECOMPOSITION_MAX_LENGTH];
    if ((orth_char_class(f->classes, c) & f->unsafe) || c < 0x80)
        return p;
    /* To NFC letters with a mark are safe: it leaves them whole. */
    const bool active = uc_combining_class(c) != 0 || (f->form != UNINORM_NFC && uc_decomposition(c, &tag, parts) >= 0);
    return active ? p + n : p;
}

/* From `from`, the next stretch that may change, or end. *out_stop is set to its end. */
static const char *next_stretch(const normal_form *f, const char *from, const char *end, const char **out_stop)
{
    const char *safe = from; /* the last place where the text can be cut */
    for (const char *p = from; p < end;) {
        if ((unsigned char)*p < 0x80) {
            safe = p++;
            continue;
        }
        int n;
        uint32_t c = orth_utf8_at((const unsigned char *)p, &n);
        if (!(orth_char_class(f->classes, c) & f->unsafe)) {
            safe = p;
            p += n;
            continue;
        }
        p += n;
        while (p < end) {
            c = orth_utf8_at((const unsigned char *)p, &n);
            if (!(orth_char_class(f->classes, c) & f->unsafe))
                break;
            p += n;
        }
        *out_stop = p;
        return after_unknown(f, safe);
    }
    *out_stop = end;
    return end;
}

static normal_form form_of(const uint8_t *classes, orth_normalizer_type form)
{
    normal_form f = {.classes = classes, .unsafe = ORTH_CHAR_NFC_UNSAFE | ORTH_CHAR_FORM_UNSAFE, .form = UNINORM_NFC};
    if (form == ORTH_NORMALIZE_NFC)
        f.unsafe = ORTH_CHAR_NFC_UNSAFE;
    else if (form == ORTH_NORMALIZE_NFD)
        f.form = UNINORM_NFD;
    else
        f.form = form == ORTH_NORMALIZE_NFKC ? UNINORM_NFKC : UNINORM_NFKD;
    return f;
}

orth_status orth_normal_form(orth_ctx *ctx, const uint8_t *classes, orth_normalizer_type form, orth_bytes *out,
                             bool *out_same, const char *text, size_t num_bytes)
{
    const normal_form f = form_of(classes, form);
    const char *end = text + num_bytes, *copied = text, *stop;
    const size_t before = out->num;
    bool same = true;
    for (const char *p = text; p < end; p = stop) {
        const char *start = next_stretch(&f, p, end, &stop);
        if (start == end)
            break;
        const size_t prefix = (size_t)(start - copied), mark = out->num;
        ORTH_TRY(orth_bytes_append(ctx, out, copied, prefix));
        ORTH_TRY(append_normal(ctx, &f, out, start, (size_t)(stop - start)));
        const size_t length = out->num - mark - prefix;
        if (length == (size_t)(stop - start) && memcmp(out->v + mark + prefix, start, length) == 0)
            out->num = mark; /* was normal: is copied with what comes next */
        else {
            same = false;
            copied = stop;
        }
    }
    if (same)
        out->num = before;
    else
        ORTH_TRY(orth_bytes_append(ctx, out, copied, (size_t)(end - copied)));
    *out_same = same;
    return ORTH_OK;
}

/* ---- lower case ---- */

/* Letters of Unicode 15 to 17, which an installed libunistring may not know. */
static uint32_t lower_of(uint32_t c)
{
    static const struct {
        uint32_t first, last, lower;
    } ranges[] = {
        {0x1C89, 0x1C89, 0x1C8A}, {0xA7CB, 0xA7CB, 0x0264}, {0xA7CC, 0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CE, 0xA7CF},
        {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5}, {0xA7DA, 0xA7DA, 0xA7DB}, {0xA7DC, 0xA7DC, 0x019B},
        {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB},
    };
    for (int i = 0; i < ORTH_COUNT(ranges); i++) {
        if (c >= ranges[i].first && c <= ranges[i].last)
            return ranges[i].lower + (c - ranges[i].first);
    }
    return uc_tolower(c);
}

static int put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

orth_status orth_lowercase(orth_ctx *ctx, orth_bytes *out, const char *text, size_t num_bytes)
{
    const char *end = text + num_bytes;
    ORTH_TRY(orth_bytes_reserve(ctx, out, 2 * num_bytes)); /* U+0130: two bytes become three; others one more at most */
    char *at = out->v + out->num;
    int n;
    for (const char *p = text; p < end; p += n) {
        const uint32_t c = orth_utf8_at((const unsigned char *)p, &n);
        if (c < 0x80)
            *at++ = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
        else
            at += put_utf8(at, c == 0x130 ? 'i' : lower_of(c));
        if (c == 0x130) /* the one letter that becomes two: i and a dot above */
            at += put_utf8(at, 0x307);
    }
    out->num = (size_t)(at - out->v);
    return ORTH_OK;
}
