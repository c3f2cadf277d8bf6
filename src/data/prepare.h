/* prepare.h -- from text or JSONL inputs to a data set: token shards, dataset.json, tokenizer.json.
 *
 * Documents (reader.h) are encoded in parallel, each followed by the end-of-text token, and written in
 * their order: the bytes of the result depend on the inputs and options, never on the number of threads.
 * A document, or of a whole file a piece, is held out for validation if a number made from (seed, its index) is below
 * valid_fraction; the first never is, so there is always something to train on. Where a piece is held out of a file, the
 * training document ends before it and another one begins behind it, so that no text is joined that does not belong together.
 * The tokens of pieces in the same split are those of their text as a whole, up to 16 MiB of it, or shard_tokens bytes (docs/formats/shard.md).
 * The folder appears whole: it is written as out_dir.tmp-PID and renamed, also when it replaces another.
 */
#ifndef ORTH_DATA_PREPARE_H
#define ORTH_DATA_PREPARE_H

#include "data/reader.h"

typedef struct {
    const char *const *inputs;       /* [num_inputs] files; "-": standard input (inputs.h makes such a list) */
    int num_inputs;
    const char *out_dir;
    const orth_tokenizer *tokenizer; /* has an end-of-text token */
    orth_text_options text;
    double valid_fraction;           /* [0, 0.9] of the documents or pieces */
    uint64_t seed;
    int64_t shard_tokens;            /* a shard ends with the document that reaches this; 0: 2^27 */
    bool overwrite;                  /* replaces an existing out_dir */
} orth_prepare_options;

typedef struct {
    int64_t train_tokens, valid_tokens, train_docs, valid_docs, text_bytes;
    int64_t read_bytes;              /* of all inputs, decompressed */
    int64_t dropped_bytes;           /* of text: separators, white space between and around documents */
    int num_text, num_jsonl;         /* inputs of each kind */
} orth_prepare_result;

/* out_result may be NULL. ORTH_ERR_ARG (options; out_dir exists); ORTH_ERR_IO; ORTH_ERR_DATA (no text in any input,
 * binary or damaged, a line that is not JSON, with its place); ORTH_ERR_NOSPACE; ORTH_ERR_NOMEM. On failure out_dir is
 * as before. */
orth_status orth_prepare(orth_ctx *ctx, const orth_prepare_options *options, orth_prepare_result *out_result);

/* Trains a byte-level BPE tokenizer on the documents of the inputs, the first max_bytes of their text (0:
 * ORTH_PREPARE_TOKENIZER_BYTES; a warning says where more was there). Of the options: inputs, text. *out_bytes (may be
 * NULL): of the text. */
#define ORTH_PREPARE_TOKENIZER_BYTES ((int64_t)256 << 20)
orth_status orth_prepare_tokenizer(orth_ctx *ctx, orth_tokenizer **out, const orth_prepare_options *options,
                                   const orth_tokenizer_train_options *train, int64_t max_bytes, int64_t *out_bytes);

#endif
