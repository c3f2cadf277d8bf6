/* corpus.h -- a data set: a folder with dataset.json, train-*.orts, valid-*.orts and tokenizer.json.
 *
 * Each split is the concatenation of its shards: one long stream of tokens, cut by document starts.
 * Reading is stateless, so any number of threads may share a data set, each with its own ctx.
 */
#ifndef ORTH_DATA_CORPUS_H
#define ORTH_DATA_CORPUS_H

#include "data/shard.h"

/* One split. May be empty (valid with valid_fraction = 0). */
typedef struct {
    const char *name;           /* folder/train or folder/valid, for messages */
    int num_shards;
    orth_shard *shards;         /* [num_shards] */
    int64_t *first_token;       /* [num_shards + 1] of the stream; the last is num_tokens */
    int64_t *first_doc;         /* [num_shards + 1] */
    int64_t num_tokens, num_docs, text_bytes;
} orth_corpus;

typedef struct {
    char *path;
    int64_t vocab_size;
    uint64_t fingerprint;       /* orth_tokenizer_fingerprint of the tokenizer that made it */
    int32_t eot_token;          /* ends every document */
    orth_corpus train, valid;
} orth_dataset;

/* True if `path` is a folder with a dataset.json. */
bool orth_dataset_exists(const char *path);
/* ORTH_ERR_IO; ORTH_ERR_DATA if dataset.json and shards do not say the same; ORTH_ERR_NOMEM. */
orth_status orth_dataset_open(orth_ctx *ctx, orth_dataset **out, const char *path);
/* The same with the text of dataset.json from memory; the shards are in folder `path`. For fuzzing. */
orth_status orth_dataset_parse(orth_ctx *ctx, orth_dataset **out, const char *path, const char *json, size_t num_bytes);
void orth_dataset_close(orth_ctx *ctx, orth_dataset *d);  /* NULL is fine */
/* Reads everything: checksums of all blocks, all tokens. */
orth_status orth_dataset_verify(orth_ctx *ctx, const orth_dataset *d);

/* Tokens [first, first+n) of the stream. ORTH_ERR_ARG outside of it, ORTH_ERR_DATA. */
orth_status orth_corpus_read(orth_ctx *ctx, const orth_corpus *c, int32_t *out, int64_t first, int64_t n);
/* The document that holds `token` (0 <= token < num_tokens) is [*start, *end) of the stream. */
void orth_corpus_document(const orth_corpus *c, int64_t token, int64_t *start, int64_t *end);
/* Number of documents that start in [0, token]; all of them from the last token on. */
int64_t orth_corpus_docs_up_to(const orth_corpus *c, int64_t token);

#endif
