/* text.c -- see text.h. */
#include "base/text.h"

#include <string.h>

bool orth_text_reserve(orth_ctx *ctx, orth_text *t, size_t more)
{
    if (t->failed)
        return false;
    size_t need = t->num_bytes + more + 1;
    if (need <= t->capacity)
        return true;
    size_t capacity = ORTH_MAX(need, 2 * t->capacity + 256);
    char *s = orth_mem_realloc(ctx, t->s, capacity);
    if (!s) {
        orth_mem_free(ctx, t->s);
        *t = (orth_text){.failed = true};
        return false;
    }
    t->s = s;
    t->capacity = capacity;
    return true;
}

static void add_bytes(orth_ctx *ctx, orth_text *t, const char *s, size_t n)
{
    if (!orth_text_reserve(ctx, t, n))
        return;
    memcpy(t->s + t->num_bytes, s, n);
    t->num_bytes += n;
    t->s[t->num_bytes] = '\0';
}

void orth_text_add(orth_ctx *ctx, orth_text *t, const char *s)
{
    add_bytes(ctx, t, s, strlen(s));
}

void orth_text_addv(orth_ctx *ctx, orth_text *t, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    if (n >= 0 && orth_text_reserve(ctx, t, (size_t)n)) {
        vsnprintf(t->s + t->num_bytes, (size_t)n + 1, fmt, again);
        t->num_bytes += (size_t)n;
    }
    va_end(again);
}

void orth_text_addf(orth_ctx *ctx, orth_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    orth_text_addv(ctx, t, fmt, args);
    va_end(args);
}

void orth_text_wrap(orth_ctx *ctx, orth_text *t, const char *s, int column, int indent, int width)
{
    while (*s == ' ')
        s++;
    bool fresh = true; /* no word yet on this line */
    while (*s) {
        int n = (int)strcspn(s, " ");
        if (!fresh && column + 1 + n > width) {
            orth_text_addf(ctx, t, "\n%*s", indent, "");
            column = indent;
            fresh = true;
        }
        orth_text_addf(ctx, t, "%s%.*s", fresh ? "" : " ", n, s);
        column += n + !fresh;
        fresh = false;
        s += n;
        while (*s == ' ')
            s++;
    }
    orth_text_add(ctx, t, "\n");
}

void orth_text_quote(orth_ctx *ctx, orth_text *t, const char *s)
{
    orth_text_add(ctx, t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            orth_text_addf(ctx, t, "\\%c", c);
        else if (c == '\n')
            orth_text_add(ctx, t, "\\n");
        else if (c == '\t')
            orth_text_add(ctx, t, "\\t");
        else if (c < 0x20 || c == 0x7f)
            orth_text_addf(ctx, t, "\\u%04x", c);
        else
            add_bytes(ctx, t, s, 1);
    }
    orth_text_add(ctx, t, "\"");
}

void orth_text_clear(orth_text *t)
{
    t->num_bytes = 0;
    t->failed = false;
    if (t->s)
        t->s[0] = '\0';
}

char *orth_text_take(orth_ctx *ctx, orth_text *t)
{
    orth_text_reserve(ctx, t, 0); /* an empty text is "", not NULL */
    char *s = t->s;
    if (t->failed) { /* also of what was to be added, which its maker says */
        orth_mem_free(ctx, s);
        s = NULL;
    }
    *t = (orth_text){0};
    return s;
}

bool orth_utf8_valid(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        int more = *s < 0x80 ? 0 : *s >= 0xc2 && *s < 0xe0 ? 1 : *s >= 0xe0 && *s < 0xf0 ? 2
                   : *s >= 0xf0 && *s < 0xf5 ? 3 : -1;
        if (more < 0)
            return false;
        unsigned first = *s++;
        for (int i = 0; i < more; i++, s++) {
            unsigned lo = 0x80, hi = 0xbf; /* of the second byte: no overlong forms, no surrogates */
            if (i == 0) {
                lo = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : lo;
                hi = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : hi;
            }
            if (*s < lo || *s > hi)
                return false;
        }
    }
    return true;
}

#define NEAREST_MAX 63

/* Insertions, deletions, changes and swaps of neighbours that turn a into b. */
static int edit_distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b);
    if (na > NEAREST_MAX || nb > NEAREST_MAX)
        return NEAREST_MAX;
    int d[NEAREST_MAX + 1][NEAREST_MAX + 1];
    for (int i = 0; i <= na; i++)
        d[i][0] = i;
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        for (int j = 1; j <= nb; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = ORTH_MIN(best, d[i - 1][j] + 1);
            best = ORTH_MIN(best, d[i][j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = ORTH_MIN(best, d[i - 2][j - 2] + 1);
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

const char *orth_nearest(const char *word, const char *const *names, int num_names)
{
    int limit = ORTH_MIN(ORTH_MAX(1, (int)strlen(word) / 3), (int)strlen(word) - 1), best = limit + 1; /* one letter is like every other */
    const char *found = NULL;
    for (int i = 0; i < num_names; i++) {
        int d = edit_distance(word, names[i]);
        if (d < best) {
            best = d;
            found = names[i];
        }
    }
    return found;
}

void orth_text_escape(char *out, size_t size, const char *s)
{
    const bool utf8 = orth_utf8_valid(s);
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)s; *p && n + 9 <= size; p++) {
        const bool c1 = utf8 && *p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f; /* U+0080 to U+009F */
        if (*p >= 0x20 && *p != 0x7f && (*p < 0x80 || (utf8 && !c1))) {
            out[n++] = (char)*p;
            continue;
        }
        n += (size_t)snprintf(out + n, size - n, "\\x%02x", *p);
        if (c1)
            n += (size_t)snprintf(out + n, size - n, "\\x%02x", *++p);
    }
    out[n] = '\0';
}

const char *orth_text_shown(char *out, size_t size, const char *s)
{
    orth_text_escape(out, size, s);
    return out;
}
