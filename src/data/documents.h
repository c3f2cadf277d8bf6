/* documents.h -- cuts bytes into documents, in order, copying nothing.
 *
 * Separators of text (`data.separator`):
 *   file         the whole file is one document, every byte of it
 *   blank-line   one or more lines of nothing but spaces, tabs and carriage returns
 *   line         every line is a document
 *   other text   each occurrence of that very text; \n, \t, \r and \\ in it are a newline, a tab, a carriage return and a backslash
 * A document is what lies between; the end of its last line does not belong to it (`file`, and other text,
 * leave it as it is). What is empty or only white space is no document. JSONL: a document per line.
 *
 * A whole file comes in pieces of `unit` bytes or a little more, so that it can be encoded in parallel and parts of it
 * held out. A piece ends where a cut is likely not to change the tokens, if there is such a place before 2*unit: in front of a newline, or
 * else a space, that follows an ASCII letter or digit; the same behind other letters; in front of a single space between two
 * characters that are not white space; behind a line. Failing that it ends anywhere but inside a UTF-8 sequence. Whoever encodes
 * the pieces asks the tokenizer which of these places are neutral (orth_tokenizer_cuts), and joins the pieces at the others.
 *
 * The bytes may come in windows: p and end are moved by the caller, `final` is set with the last one.
 */
#ifndef ORTH_DATA_DOCUMENTS_H
#define ORTH_DATA_DOCUMENTS_H

#include "base/ctx.h"
#include "data/char_class.h"

typedef enum {
    ORTH_DOCS_FILE,
    ORTH_DOCS_BLANK_LINE,
    ORTH_DOCS_LINE,
    ORTH_DOCS_TEXT,
    ORTH_DOCS_JSONL
} orth_docs_kind;

/* A cursor. Make with orth_documents_begin, then set p, end, final and, for files, unit and classes. */
typedef struct {
    orth_docs_kind kind;
    const char *separator;
    size_t unit;               /* > 0: bytes of a piece (ORTH_DOCS_FILE only) */
    const uint8_t *classes;    /* of characters (ORTH_DOCS_FILE only) */
    bool continues;            /* a piece of the document was given out (ORTH_DOCS_FILE only) */
    const char *p, *end;
    bool final;                /* nothing follows `end` */
    bool found;                /* a separator that is other text */
    int64_t line_number;       /* of p, from 1 (JSONL only) */
} orth_documents;

typedef struct {
    const char *text;          /* JSONL: the line, not decoded */
    size_t num_bytes;
    int64_t line_number;       /* JSONL only */
    bool continues, goes_on;   /* the piece before, the next piece, belongs to the same document (ORTH_DOCS_FILE only) */
    size_t num_after;          /* goes_on: bytes of the next piece that stand behind this one, >= 1 */
} orth_document;

/* The text that `separator` as it is given (NULL: "") stands for, with its escapes read; heap memory. ORTH_ERR_ARG: a backslash before anything else. */
orth_status orth_separator_read(orth_ctx *ctx, char **out, const char *separator);

/* Text that is cut at `separator` (NULL or "": file), or JSONL. */
orth_documents orth_documents_begin(bool jsonl, const char *separator);
/* False: no further document, or none that ends before `end` (not final); p is where it begins. */
bool orth_documents_next(orth_documents *docs, orth_document *out);

bool orth_text_is_blank(const char *p, size_t num_bytes);

#endif
