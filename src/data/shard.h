/* shard.h -- one file of tokens: written once as a stream, read through a memory map.
 *
 * Format: docs/formats/shard.md (header, tokens, document starts, checksums of blocks of tokens).
 * Opening checks the header and both tables, and that every size fits the file, so that no lie leads
 * outside of the map. A block of tokens is compared with its checksum when the first of its tokens is read,
 * a token with the vocabulary each time: what follows indexes tables with it. orth_shard_verify does both
 * for all of them.
 * Invariant: a document lies in one shard whole, so a shard starts with a document.
 */
#ifndef ORTH_DATA_SHARD_H
#define ORTH_DATA_SHARD_H

#include "base/files.h"

#define ORTH_SHARD_MAGIC "ORTHSHRD"
#define ORTH_SHARD_VERSION 1
#define ORTH_SHARD_HEADER_BYTES 128
#define ORTH_SHARD_BLOCK_BYTES 1048576 /* token bytes under one checksum; a reader takes any 2^k >= 8 */

typedef struct {
    int token_bytes;            /* 2 or 4 */
    int64_t vocab_size;         /* every token is below it */
    uint64_t fingerprint;       /* of the tokenizer that made the tokens */
    int64_t num_tokens;
    int64_t num_docs;
    int64_t text_bytes;         /* of the documents the tokens stand for (bits per byte) */
    uint64_t header_hash;       /* XXH64 of the header, which holds the hash of the tables */
} orth_shard_info;

typedef struct {
    char *path;                 /* heap */
    orth_file_map map;
    orth_shard_info info;
    int64_t block_bytes;
    const unsigned char *tokens;      /* little-endian, info.token_bytes each */
    const unsigned char *doc_starts;  /* [num_docs] u64: index of a document's first token */
    const unsigned char *block_hashes;/* u64 per block of block_bytes of tokens */
    _Atomic unsigned char *checked;   /* heap, per block: not 0 once its checksum was right; NULL: not kept */
} orth_shard;

/* ORTH_ERR_IO; ORTH_ERR_DATA with path, offset, value and rule; ORTH_ERR_NOMEM. */
orth_status orth_shard_open(orth_ctx *ctx, orth_shard *out, const char *path);
void orth_shard_close(orth_ctx *ctx, orth_shard *s);      /* a zeroed shard is fine */
/* The checks of open on bytes in memory, which outlive *out; `path` is for messages. For fuzzing. */
orth_status orth_shard_parse(orth_ctx *ctx, orth_shard *out, const void *bytes, size_t num_bytes,
                             const char *path);

/* Compares every block with its checksum, then every token with the vocabulary. ORTH_ERR_DATA. */
orth_status orth_shard_verify(orth_ctx *ctx, const orth_shard *s);

/* Tokens [first, first+n), inside the shard, as int32. ORTH_ERR_DATA for one outside the vocabulary, or for a
 * damaged block that holds one of them.
 * Safe from several threads, each with its own ctx. */
orth_status orth_shard_read(orth_ctx *ctx, const orth_shard *s, int32_t *out, int64_t first, int64_t n);

/* First token of document d; d = num_docs gives num_tokens. */
int64_t orth_shard_doc_start(const orth_shard *s, int64_t d);
/* Number of documents that start at or before `token`: token lies in document count - 1. */
int64_t orth_shard_docs_up_to(const orth_shard *s, int64_t token);

typedef struct orth_shard_writer orth_shard_writer;

/* token_bytes is 2 if vocab_size <= 65536, else 4. Nothing is at `path` before commit. */
orth_status orth_shard_writer_open(orth_ctx *ctx, orth_shard_writer **out, const char *path,
                                   int64_t vocab_size, uint64_t fingerprint);
/* A document, or its beginning: n >= 1 tokens, all in [0, vocab_size) (ORTH_ERR_ARG otherwise). */
orth_status orth_shard_writer_document(orth_ctx *ctx, orth_shard_writer *w, const int32_t *tokens, int64_t n,
                                       int64_t text_bytes);
/* More tokens, n >= 1, of the document that was written last. */
orth_status orth_shard_writer_more(orth_ctx *ctx, orth_shard_writer *w, const int32_t *tokens, int64_t n,
                                   int64_t text_bytes);
int64_t orth_shard_writer_tokens(const orth_shard_writer *w);
/* Frees w whatever happens; *out_info (may be NULL) is what the header says. */
orth_status orth_shard_writer_commit(orth_ctx *ctx, orth_shard_writer *w, orth_shard_info *out_info);
void orth_shard_writer_abort(orth_ctx *ctx, orth_shard_writer *w); /* NULL is fine */

#endif
