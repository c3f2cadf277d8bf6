/* documents.c -- see documents.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "data/documents.h"

#include <string.h>

static bool ends_with(const char *s, const char *suffix)
{
    const size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

orth_documents orth_documents_begin(const char *path, const char *separator, const char *text,
                                    size_t num_bytes)
{
    orth_documents d = {.separator = separator, .p = text, .end = num_bytes ? text + num_bytes : text,
                        .line_number = 1};
    if (ends_with(path, ".jsonl") || ends_with(path, ".ndjson"))
        d.kind = ORTH_DOCS_JSONL;
    else if (!separator || !separator[0] || strcmp(separator, "blank-line") == 0)
        d.kind = ORTH_DOCS_BLANK_LINE;
    else if (strcmp(separator, "line") == 0)
        d.kind = ORTH_DOCS_LINE;
    else if (strcmp(separator, "file") == 0)
        d.kind = ORTH_DOCS_FILE;
    else
        d.kind = ORTH_DOCS_TEXT;
    return d;
}

static bool is_blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p == end;
}

/* Behind the newline that ends the line at p, or the end. */
static const char *line_end(const orth_documents *d, const char *p)
{
    const char *newline = memchr(p, '\n', (size_t)(d->end - p));
    return newline ? newline + 1 : d->end;
}

/* Behind the last byte of the next piece, separator not included; d->p moves behind the separator. */
static const char *next_piece(orth_documents *d)
{
    const char *begin = d->p, *stop = d->end;
    if (d->kind == ORTH_DOCS_TEXT) {
        const size_t n = strlen(d->separator);
        const char *found = memmem(begin, (size_t)(d->end - begin), d->separator, n);
        d->p = found ? found + n : d->end;
        return found ? found : d->end;
    }
    if (d->kind == ORTH_DOCS_LINE || d->kind == ORTH_DOCS_JSONL) {
        stop = line_end(d, begin);
    } else if (d->kind == ORTH_DOCS_BLANK_LINE) {
        for (stop = begin; stop < d->end;) {
            const char *next = line_end(d, stop);
            if (stop > begin && is_blank(stop, next))
                break;
            stop = next;
        }
    }
    d->p = stop;
    if (d->kind != ORTH_DOCS_FILE) {
        stop -= stop > begin && stop[-1] == '\n';
        stop -= stop > begin && stop[-1] == '\r';
    }
    return stop;
}

bool orth_documents_next(orth_documents *d, orth_document *out)
{
    while (d->p < d->end) {
        if (d->kind == ORTH_DOCS_BLANK_LINE) {
            const char *next = line_end(d, d->p);
            if (is_blank(d->p, next)) {
                d->p = next;
                continue;
            }
        }
        const char *begin = d->p, *stop = next_piece(d);
        const int64_t line_number = d->line_number++;
        if (is_blank(begin, stop))
            continue;
        *out = (orth_document){begin, (size_t)(stop - begin), line_number};
        return true;
    }
    return false;
}
