/* shard_write.c -- the writer of token shards: tokens stream to the file block by block, the tables
 * follow them, and the header, known last, replaces the zeros that were put in its place. */
#include <inttypes.h>
#include <string.h>

#include <xxhash.h>

#include "data/shard_layout.h"

typedef struct {
    unsigned char *bytes; /* heap; u64 entries */
    int64_t count, room;
} table;

struct orth_shard_writer {
    orth_writer *file;
    orth_shard_info info;
    unsigned char *block;   /* [ORTH_SHARD_BLOCK_BYTES] */
    int64_t used;           /* bytes of it */
    table docs, hashes;
};

static orth_status table_add(orth_ctx *ctx, table *t, uint64_t value)
{
    if (t->count == t->room) {
        int64_t room = ORTH_MAX(1024, 2 * t->room);
        unsigned char *bytes = orth_mem_realloc(ctx, t->bytes, (size_t)room * 8);
        if (!bytes)
            return ORTH_ERR_NOMEM;
        t->bytes = bytes;
        t->room = room;
    }
    put_uint(t->bytes + 8 * t->count++, value, 8);
    return ORTH_OK;
}

static void writer_free(orth_ctx *ctx, orth_shard_writer *w)
{
    orth_mem_free(ctx, w->block);
    orth_mem_free(ctx, w->docs.bytes);
    orth_mem_free(ctx, w->hashes.bytes);
    orth_mem_free(ctx, w);
}

orth_status orth_shard_writer_open(orth_ctx *ctx, orth_shard_writer **out, const char *path,
                                   int64_t vocab_size, uint64_t fingerprint)
{
    if (vocab_size < 1 || vocab_size > INT32_MAX)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: vocab_size=%" PRId64 " is not in [1, 2^31-1]", path,
                         vocab_size);
    orth_shard_writer *w = ORTH_NEW(ctx, orth_shard_writer);
    if (!w)
        return ORTH_ERR_NOMEM;
    w->info = (orth_shard_info){.token_bytes = vocab_size <= 65536 ? 2 : 4,
                                .vocab_size = vocab_size,
                                .fingerprint = fingerprint};
    const unsigned char zeros[ORTH_SHARD_HEADER_BYTES] = {0};
    orth_status status = ORTH_ERR_NOMEM;
    w->block = orth_mem_alloc(ctx, ORTH_SHARD_BLOCK_BYTES);
    if (w->block)
        status = orth_writer_open(ctx, &w->file, path);
    if (status == ORTH_OK)
        status = orth_writer_put(ctx, w->file, zeros, sizeof zeros);
    if (status != ORTH_OK) {
        orth_shard_writer_abort(ctx, w);
        return status;
    }
    *out = w;
    return ORTH_OK;
}

static orth_status flush_block(orth_ctx *ctx, orth_shard_writer *w)
{
    if (w->used == 0)
        return ORTH_OK;
    ORTH_TRY(table_add(ctx, &w->hashes, XXH64(w->block, (size_t)w->used, 0)));
    ORTH_TRY(orth_writer_put(ctx, w->file, w->block, (size_t)w->used));
    w->used = 0;
    return ORTH_OK;
}

orth_status orth_shard_writer_more(orth_ctx *ctx, orth_shard_writer *w, const int32_t *tokens, int64_t n,
                                   int64_t text_bytes)
{
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= w->info.vocab_size)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "token %d is not in [0, vocab_size=%" PRId64 ")",
                             (int)tokens[i], w->info.vocab_size);
        put_uint(w->block + w->used, (uint32_t)tokens[i], w->info.token_bytes);
        w->used += w->info.token_bytes;
        if (w->used == ORTH_SHARD_BLOCK_BYTES)
            ORTH_TRY(flush_block(ctx, w));
    }
    w->info.num_tokens += n;
    w->info.text_bytes += text_bytes;
    return ORTH_OK;
}

orth_status orth_shard_writer_document(orth_ctx *ctx, orth_shard_writer *w, const int32_t *tokens, int64_t n,
                                       int64_t text_bytes)
{
    if (n < 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "document of %" PRId64 " tokens: a shard's documents have at least 1", n);
    ORTH_TRY(table_add(ctx, &w->docs, (uint64_t)w->info.num_tokens));
    w->info.num_docs++;
    return orth_shard_writer_more(ctx, w, tokens, n, text_bytes);
}

int64_t orth_shard_writer_tokens(const orth_shard_writer *w)
{
    return w->info.num_tokens;
}

static void make_header(unsigned char *h, orth_shard_writer *w, uint64_t tables_hash)
{
    const uint64_t docs_at = shard_docs_offset((uint64_t)w->info.num_tokens, (uint64_t)w->info.token_bytes);
    const uint64_t hashes_at = docs_at + 8 * (uint64_t)w->docs.count;
    memset(h, 0, ORTH_SHARD_HEADER_BYTES);
    memcpy(h, ORTH_SHARD_MAGIC, 8);
    put_uint(h + SHARD_VERSION, ORTH_SHARD_VERSION, 4);
    put_uint(h + SHARD_TOKEN_BYTES, (uint64_t)w->info.token_bytes, 4);
    put_uint(h + SHARD_VOCAB, (uint64_t)w->info.vocab_size, 8);
    put_uint(h + SHARD_FINGERPRINT, w->info.fingerprint, 8);
    put_uint(h + SHARD_TOKENS, (uint64_t)w->info.num_tokens, 8);
    put_uint(h + SHARD_DOCS, (uint64_t)w->info.num_docs, 8);
    put_uint(h + SHARD_TEXT_BYTES, (uint64_t)w->info.text_bytes, 8);
    put_uint(h + SHARD_BLOCK, ORTH_SHARD_BLOCK_BYTES, 8);
    put_uint(h + SHARD_DOCS_AT, docs_at, 8);
    put_uint(h + SHARD_HASHES_AT, hashes_at, 8);
    put_uint(h + SHARD_FILE_BYTES, hashes_at + 8 * (uint64_t)w->hashes.count, 8);
    put_uint(h + SHARD_TABLES_HASH, tables_hash, 8);
    w->info.header_hash = XXH64(h, SHARD_HEADER_HASH, 0);
    put_uint(h + SHARD_HEADER_HASH, w->info.header_hash, 8);
}

static orth_status finish(orth_ctx *ctx, orth_shard_writer *w)
{
    if (w->info.num_docs == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "shard without documents: it needs at least 1");
    const unsigned char zeros[8] = {0};
    const int64_t bytes = w->info.num_tokens * w->info.token_bytes;
    ORTH_TRY(flush_block(ctx, w));
    ORTH_TRY(orth_writer_put(ctx, w->file, zeros, (size_t)((8 - bytes % 8) % 8)));
    /* One table after the other in memory too: they have one checksum. */
    const int64_t num_docs = w->docs.count;
    for (int64_t i = 0; i < w->hashes.count; i++)
        ORTH_TRY(table_add(ctx, &w->docs, get_u64(w->hashes.bytes + 8 * i)));
    const size_t table_bytes = (size_t)w->docs.count * 8;
    ORTH_TRY(orth_writer_put(ctx, w->file, w->docs.bytes, table_bytes));
    w->docs.count = num_docs;
    unsigned char header[ORTH_SHARD_HEADER_BYTES];
    make_header(header, w, XXH64(w->docs.bytes, table_bytes, 0));
    return orth_writer_put_at(ctx, w->file, header, sizeof header, 0);
}

orth_status orth_shard_writer_commit(orth_ctx *ctx, orth_shard_writer *w, orth_shard_info *out_info)
{
    orth_status status = finish(ctx, w);
    if (status != ORTH_OK) {
        orth_shard_writer_abort(ctx, w);
        return status;
    }
    orth_shard_info info = w->info;
    status = orth_writer_commit(ctx, w->file);
    writer_free(ctx, w);
    if (status == ORTH_OK && out_info)
        *out_info = info;
    return status;
}

void orth_shard_writer_abort(orth_ctx *ctx, orth_shard_writer *w)
{
    if (!w)
        return;
    orth_writer_abort(ctx, w->file);
    writer_free(ctx, w);
}
