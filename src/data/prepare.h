/* prepare.h -- from text or JSONL files to a data set: token shards, dataset.json, tokenizer.json.
 *
 * Documents (documents.h) are encoded in parallel, each followed by the end-of-text token, and written in
 * their order: the bytes of the result depend on the inputs and options, never on the number of threads.
 * A document is held out for validation if a number made from (seed, its index) is below valid_fraction;
 * the first document never is, so there is always something to train on.
 * The folder appears whole: it is written as out_dir.tmp-PID and renamed, also when it replaces another.
 */
#ifndef ORTH_DATA_PREPARE_H
#define ORTH_DATA_PREPARE_H

#include "data/documents.h"
#include "data/tokenizer.h"

typedef struct {
    const char *const *inputs;       /* [num_inputs] files */
    int num_inputs;
    const char *out_dir;
    const orth_tokenizer *tokenizer; /* has an end-of-text token */
    const char *separator;           /* of text files, see documents.h; NULL: blank-line */
    const char *jsonl_field;         /* NULL: "text" */
    double valid_fraction;           /* [0, 0.9] of the documents */
    uint64_t seed;
    int64_t shard_tokens;            /* a shard ends with the document that reaches this; 0: 2^27 */
    bool overwrite;                  /* replaces an existing out_dir */
} orth_prepare_options;

typedef struct {
    int64_t train_tokens, valid_tokens, train_docs, valid_docs, text_bytes;
} orth_prepare_result;

/* out_result may be NULL. ORTH_ERR_ARG (options; out_dir exists); ORTH_ERR_IO; ORTH_ERR_DATA (empty file, a
 * line that is not JSON, with its place); ORTH_ERR_NOSPACE; ORTH_ERR_NOMEM. On failure out_dir is as before.
 */
orth_status orth_prepare(orth_ctx *ctx, const orth_prepare_options *options, orth_prepare_result *out_result);

/* Trains a byte-level BPE tokenizer of at most vocab_size tokens on the documents of the inputs, up to
 * max_bytes of text (0: 64 MiB). Of the options: inputs, separator, jsonl_field. */
orth_status orth_prepare_tokenizer(orth_ctx *ctx, orth_tokenizer **out, const orth_prepare_options *options,
                                   int64_t vocab_size, int64_t max_bytes);

#endif
