/* reader.h -- the documents of text and JSONL inputs, one input after the other: the one way that text gets in, for
 * training a tokenizer, encoding, preparing, training and scoring.
 *
 *   source (file, standard input, gzip, zstd) -> window -> is it text? -> documents
 *
 * Well-formed UTF-8 is wanted, other bytes are text all the same, up to 1 % (content.h). The UTF-8 byte order mark that an input
 * begins with is skipped.
 * An input is JSONL if its name ends in .jsonl or .ndjson, with or without .gz or .zst behind it; else text, and refused if it
 * begins with objects of JSON around text.
 * Memory: a window of 8 MiB, more where a document is longer, at most ORTH_READER_MAX_DOCUMENT.
 */
#ifndef ORTH_DATA_READER_H
#define ORTH_DATA_READER_H

#include "data/documents.h"
#include "data/tokenizer.h"

#define ORTH_READER_MAX_DOCUMENT ((size_t)256 << 20) /* bytes of a document that is not a whole file */

typedef enum { ORTH_TEXT_AUTO, ORTH_TEXT_TEXT, ORTH_TEXT_JSONL } orth_text_format;

/* What the run file says of its text; zero-initialised: the defaults. */
typedef struct {
    orth_text_format format;   /* data.format; AUTO: by the name, and what does not look like text is refused; TEXT: as it is, with a byte order mark */
    const char *separator;     /* data.separator as it is given, see documents.h; NULL or "": file */
    const char *field;         /* data.jsonl_field; NULL or "": text */
    bool field_is_default;     /* the field was not asked for of these inputs: all of them may be text */
    bool told;                 /* who reads the inputs another time tells of bytes that are not UTF-8 */
} orth_text_options;

/* A field that is asked for of inputs none of which is JSONL is ORTH_ERR_ARG. The paths are all inputs that the field was asked for. */
orth_status orth_reader_check(orth_ctx *ctx, const orth_text_options *options, const char *const *paths, int num_paths);

typedef struct orth_reader orth_reader;

/* num_inputs: how many inputs there will be, each taken to be as long as the others: a piece of a whole file is a
 * thousandth of them all, but 512 bytes to 64 KiB. 0: files are not cut (and at most ORTH_READER_MAX_DOCUMENT long), and one of white space is a document.
 * What the options point to outlives the reader. ORTH_ERR_ARG: the separator has another escape. */
orth_status orth_reader_create(orth_ctx *ctx, orth_reader **out, const orth_text_options *options, int num_inputs);
void orth_reader_free(orth_ctx *ctx, orth_reader *r); /* NULL is fine */

/* Goes on to input `path` ("-": standard input); what came from the one before is gone. ORTH_ERR_IO; ORTH_ERR_DATA:
 * binary (content.h), damaged (source.h). */
orth_status orth_reader_input(orth_ctx *ctx, orth_reader *r, const char *path);
orth_status orth_reader_memory(orth_ctx *ctx, orth_reader *r, const char *name, const void *bytes, size_t num_bytes);

/* The next documents, at most `max`, as they stand in the input; valid until the next call. *out_num = 0: the input has
 * ended. ORTH_ERR_DATA: damaged, or a document that is too long. */
orth_status orth_reader_next(orth_ctx *ctx, orth_reader *r, orth_document *out, int64_t max, int64_t *out_num);
/* The text of a document: of JSONL what is in the field, decoded into *line; else the document itself. Any thread may
 * call it, with its own ctx and `line`. */
orth_status orth_reader_text(orth_ctx *ctx, const orth_reader *r, const orth_document *d, orth_bytes *line,
                             const char **out_text, size_t *out_bytes);

const char *orth_reader_name(const orth_reader *r);     /* of the input, for messages */
int64_t orth_reader_bytes(const orth_reader *r);        /* read so far from all inputs, decompressed, without byte order marks */
/* Logs how many bytes of what was read are not UTF-8, if there are any. To be called once, behind the last input. */
void orth_reader_tell_invalid(orth_ctx *ctx, const orth_reader *r);
/* Logs that the separator occurs nowhere in what was read, if it is a text and should cut some. To be called behind the last input. */
void orth_reader_tell_separator(orth_ctx *ctx, const orth_reader *r);
bool orth_reader_is_jsonl(const orth_reader *r);        /* the present input */

#endif
