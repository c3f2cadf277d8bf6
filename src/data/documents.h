/* documents.h -- cuts the bytes of a text or JSONL file into documents, in order, copying nothing.
 *
 * Separators of text files (`data.separator`):
 *   blank-line   one or more lines of nothing but spaces, tabs and carriage returns
 *   line         every line is a document
 *   file         the whole file is one
 *   other text   each occurrence of that very text
 * A document is what lies between; the end of its last line does not belong to it (`file`, and other text,
 * leave it as it is). What is empty or only white space is no document. JSONL: a document per line.
 */
#ifndef ORTH_DATA_DOCUMENTS_H
#define ORTH_DATA_DOCUMENTS_H

#include "base/ctx.h"

typedef enum {
    ORTH_DOCS_BLANK_LINE,
    ORTH_DOCS_LINE,
    ORTH_DOCS_FILE,
    ORTH_DOCS_TEXT,
    ORTH_DOCS_JSONL
} orth_docs_kind;

/* A cursor over one file; the bytes outlive it. Make with orth_documents_begin. */
typedef struct {
    orth_docs_kind kind;
    const char *separator;
    const char *p, *end;
    int64_t line_number;       /* of p, from 1 (JSONL only) */
} orth_documents;

typedef struct {
    const char *text;          /* JSONL: the line, not decoded */
    size_t num_bytes;
    int64_t line_number;       /* JSONL only */
} orth_document;

/* JSONL if the name ends in .jsonl or .ndjson; else text, cut at `separator` (NULL or "": blank-line). */
orth_documents orth_documents_begin(const char *path, const char *separator, const char *text,
                                    size_t num_bytes);
/* False at the end. */
bool orth_documents_next(orth_documents *docs, orth_document *out);

#endif
