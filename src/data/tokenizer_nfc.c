/* tokenizer_nfc.c -- Unicode normalization form C, of the parts of a text that may not have it yet.
 *
 * A text can be cut before every character that is not NFC_UNSAFE without changing its normal form. So
 * only stretches of one safe character (or the start of the text) and the unsafe ones behind it go to
 * libunistring; in most texts there are few of them.
 */
#include <stdlib.h>
#include <string.h>
#include <unictype.h>
#include <uninorm.h>

#include "data/tokenizer_impl.h"

static orth_status append_normal(orth_ctx *ctx, orth_bytes *out, const char *p, size_t num_bytes)
{
    uint8_t small[256];
    size_t length = sizeof small;
    uint8_t *normal = u8_normalize(UNINORM_NFC, (const uint8_t *)p, num_bytes, small, &length);
    if (!normal)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "tokenizer: no memory to normalize %zu bytes", num_bytes);
    orth_status status = orth_bytes_append(ctx, out, normal, length);
    if (normal != small)
        free(normal); /* libunistring's own allocation */
    return status;
}

/* Marks that Unicode got after the tables of Hugging Face's library were made are plain characters there, and
 * so safe. They must be so here too: what follows them is normalized without them. */
static const char *after_unknown_mark(const uint8_t *classes, const char *p)
{
    int n;
    const uint32_t c = orth_utf8_at((const unsigned char *)p, &n);
    const bool safe = !(orth_char_class(classes, c) & ORTH_CHAR_NFC_UNSAFE);
    return safe && c >= 0x80 && uc_combining_class(c) != 0 ? p + n : p;
}

/* From `from`, the next stretch that may change, or end. *out_stop is set to its end. */
static const char *next_stretch(const uint8_t *classes, const char *from, const char *end,
                                const char **out_stop)
{
    const char *safe = from; /* the last place where the text can be cut */
    for (const char *p = from; p < end;) {
        if ((unsigned char)*p < 0x80) {
            safe = p++;
            continue;
        }
        int n;
        uint32_t c = orth_utf8_at((const unsigned char *)p, &n);
        if (!(orth_char_class(classes, c) & ORTH_CHAR_NFC_UNSAFE)) {
            safe = p;
            p += n;
            continue;
        }
        p += n;
        while (p < end) {
            c = orth_utf8_at((const unsigned char *)p, &n);
            if (!(orth_char_class(classes, c) & ORTH_CHAR_NFC_UNSAFE))
                break;
            p += n;
        }
        *out_stop = p;
        return after_unknown_mark(classes, safe);
    }
    *out_stop = end;
    return end;
}

orth_status orth_nfc(orth_ctx *ctx, const uint8_t *classes, orth_bytes *out, bool *out_same, const char *text,
                     size_t num_bytes)
{
    const char *end = text + num_bytes, *copied = text, *stop;
    const size_t before = out->num;
    bool same = true;
    for (const char *p = text; p < end; p = stop) {
        const char *start = next_stretch(classes, p, end, &stop);
        if (start == end)
            break;
        const size_t prefix = (size_t)(start - copied), mark = out->num;
        ORTH_TRY(orth_bytes_append(ctx, out, copied, prefix));
        ORTH_TRY(append_normal(ctx, out, start, (size_t)(stop - start)));
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
