/* documents.c -- see documents.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "data/documents.h"

#include <string.h>

orth_status orth_separator_read(orth_ctx *ctx, char **out, const char *separator)
{
    static const char letters[] = "ntr\\", meant[] = "\n\t\r\\";
    char *text = orth_mem_strdup(ctx, separator ? separator : "");
    if (!text)
        return ORTH_ERR_NOMEM;
    const char *p = text, *which;
    char *end = text;
    for (; *p; p++) {
        if (*p != '\\') {
            *end++ = *p;
            continue;
        }
        which = p[1] ? strchr(letters, *++p) : NULL;
        if (!which) {
            orth_mem_free(ctx, text);
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "separator '%s': behind a backslash stands n, t, r or another backslash", separator);
        }
        *end++ = meant[which - letters];
    }
    *end = '\0';
    *out = text;
    return ORTH_OK;
}

orth_documents orth_documents_begin(bool jsonl, const char *separator)
{
    orth_documents d = {.kind = ORTH_DOCS_TEXT, .separator = separator, .line_number = 1};
    if (jsonl)
        d.kind = ORTH_DOCS_JSONL;
    else if (!separator || !separator[0] || strcmp(separator, "file") == 0)
        d.kind = ORTH_DOCS_FILE;
    else if (strcmp(separator, "blank-line") == 0)
        d.kind = ORTH_DOCS_BLANK_LINE;
    else if (strcmp(separator, "line") == 0)
        d.kind = ORTH_DOCS_LINE;
    return d;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool orth_text_is_blank(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && is_space(p[i]))
        i++;
    return i == n;
}

/* Behind the newline that ends the line at p; the end of all; or NULL: it lies behind the window. */
static const char *line_end(const orth_documents *d, const char *p)
{
    const char *newline = memchr(p, '\n', (size_t)(d->end - p));
    return newline ? newline + 1 : d->final ? d->end : NULL;
}

static const char *without_line_end(const char *begin, const char *stop)
{
    stop -= stop > begin && stop[-1] == '\n';
    stop -= stop > begin && stop[-1] == '\r';
    return stop;
}

/* The functions below: behind the last byte of the piece at p, separator not included; *next: behind the separator.
 * NULL: it does not end in this window. */

static const char *line_piece(const orth_documents *d, const char **next)
{
    *next = line_end(d, d->p);
    return *next ? without_line_end(d->p, *next) : NULL;
}

static const char *text_piece(const orth_documents *d, const char **next)
{
    const size_t n = strlen(d->separator);
    const char *found = memmem(d->p, (size_t)(d->end - d->p), d->separator, n);
    *next = found ? found + n : d->end;
    return found ? found : d->final ? d->end : NULL;
}

static const char *paragraph_piece(const orth_documents *d, const char **next)
{
    const char *stop = d->p;
    while (stop < d->end) {
        const char *after = line_end(d, stop);
        if (!after)
            return NULL;
        if (stop > d->p && orth_text_is_blank(stop, (size_t)(after - stop)))
            break;
        stop = after;
    }
    if (stop == d->end && !d->final)
        return NULL;
    *next = stop;
    return without_line_end(d->p, stop);
}

/* What stands around a place to cut at. */
typedef bool (*place_fn)(const uint8_t *classes, const char *p);

/* A letter or a digit of ASCII (tokenizer_count.c cuts likewise). */
static bool behind_ascii_word(const uint8_t *classes, const char *p)
{
    (void)classes;
    const char before = (char)(p[-1] | 0x20);
    return (before >= 'a' && before <= 'z') || (p[-1] >= '0' && p[-1] <= '9');
}

/* Class of the character before p, of which there are four bytes or more; that of a sign if it is not UTF-8. */
static int class_before(const uint8_t *classes, const char *p)
{
    int n;
    const uint32_t c = orth_utf8_last(p - 4, 4, &n);
    return n > 0 ? orth_char_class(classes, c) : 0;
}

static bool behind_letter(const uint8_t *classes, const char *p)
{
    return (p[-1] & 0x80) && (class_before(classes, p) & ORTH_CHAR_LETTER);
}

/* A byte follows the space: the text is longer than the piece. */
static bool between_signs(const uint8_t *classes, const char *p)
{
    return !is_space(p[1]) && !(class_before(classes, p) & ORTH_CHAR_SPACE);
}

/* In front of the first `c` between a and b that stands at such a place. */
static const char *cut_before(const uint8_t *classes, const char *a, const char *b, char c, place_fn is_place)
{
    for (const char *p = a; (p = memchr(p, c, (size_t)(b - p))) != NULL; p++)
        if (is_place(classes, p))
            return p;
    return NULL;
}

/* Where to cut between a and b: see documents.h. */
static const char *cut_between(const uint8_t *classes, const char *a, const char *b)
{
    static const struct {
        char c;
        place_fn is_place;
    } places[] = {{'\n', behind_ascii_word}, {' ', behind_ascii_word}, {'\n', behind_letter}, {' ', behind_letter}, {' ', between_signs}};
    const char *cut = NULL;
    for (int i = 0; i < ORTH_COUNT(places) && !cut; i++)
        cut = cut_before(classes, a, b, places[i].c, places[i].is_place);
    if (cut)
        return cut;
    if ((cut = memchr(a, '\n', (size_t)(b - a))) != NULL)
        return cut + 1;
    while (b > a && ((unsigned char)*b & 0xC0) == 0x80) /* not inside a character */
        b--;
    return b;
}

static const char *file_piece(const orth_documents *d, const char **next)
{
    const size_t left = (size_t)(d->end - d->p);
    *next = d->end;
    if (left > 2 * d->unit)
        *next = cut_between(d->classes, d->p + d->unit, d->p + 2 * d->unit);
    else if (!d->final)
        return NULL;
    return *next;
}

static const char *find_piece(const orth_documents *d, const char **next)
{
    switch (d->kind) {
    case ORTH_DOCS_FILE: return file_piece(d, next);
    case ORTH_DOCS_BLANK_LINE: return paragraph_piece(d, next);
    case ORTH_DOCS_TEXT: return text_piece(d, next);
    case ORTH_DOCS_LINE:
    case ORTH_DOCS_JSONL: break;
    }
    return line_piece(d, next);
}

bool orth_documents_next(orth_documents *d, orth_document *out)
{
    while (d->p < d->end) {
        const char *next = NULL;
        if (d->kind == ORTH_DOCS_BLANK_LINE) {
            next = line_end(d, d->p);
            if (!next)
                return false;
            if (orth_text_is_blank(d->p, (size_t)(next - d->p))) {
                d->p = next;
                continue;
            }
        }
        const char *begin = d->p, *stop = find_piece(d, &next);
        if (!stop)
            return false;
        const int64_t line_number = d->line_number++;
        d->p = next;
        d->found = d->found || (d->kind == ORTH_DOCS_TEXT && next > stop);
        *out = (orth_document){.text = begin, .num_bytes = (size_t)(stop - begin), .line_number = line_number};
        if (d->kind == ORTH_DOCS_FILE) {
            out->continues = d->continues;
            out->num_after = (size_t)(d->end - next);
            out->goes_on = d->continues = next < d->end;
        }
        if (d->kind == ORTH_DOCS_FILE || !orth_text_is_blank(begin, (size_t)(stop - begin)))
            return true;
    }
    return false;
}
