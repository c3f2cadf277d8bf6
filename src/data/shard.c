/* shard.c -- the reader of token shards; see shard.h and docs/formats/shard.md. */
#include "data/shard.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include <xxhash.h>

#include "data/shard_layout.h"

static orth_status lie(orth_ctx *ctx, const char *path, int offset, const char *field, uint64_t value,
                       const char *rule)
{
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: offset %d: %s=%" PRIu64 " %s", path, offset, field, value,
                     rule);
}

/* What must hold before any other field means anything. */
static orth_status check_seal(orth_ctx *ctx, const unsigned char *h, size_t num_bytes, const char *path)
{
    if (num_bytes < ORTH_SHARD_HEADER_BYTES)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: offset 0: %zu bytes are less than the header of %d: truncated, "
                         "or not a token shard",
                         path, num_bytes, ORTH_SHARD_HEADER_BYTES);
    if (memcmp(h, ORTH_SHARD_MAGIC, 8) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: offset 0: does not start with '%s': not a token shard",
                         path, ORTH_SHARD_MAGIC);
    if (get_u32(h + SHARD_VERSION) != ORTH_SHARD_VERSION)
        return lie(ctx, path, SHARD_VERSION, "version", get_u32(h + SHARD_VERSION),
                   "is not 1, the one that this program reads");
    uint64_t stored = get_u64(h + SHARD_HEADER_HASH), actual = XXH64(h, SHARD_HEADER_HASH, 0);
    if (stored != actual)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: offset %d: checksum of the header is %016" PRIx64
                         ", its bytes give %016" PRIx64 ": damaged", path, SHARD_HEADER_HASH, stored, actual);
    return ORTH_OK;
}

/* A header that is whole may still lie: every size is held against the others and against the file. */
static orth_status check_fields(orth_ctx *ctx, const unsigned char *h, size_t num_bytes, const char *path)
{
    uint64_t token_bytes = get_u32(h + SHARD_TOKEN_BYTES), vocab = get_u64(h + SHARD_VOCAB);
    uint64_t tokens = get_u64(h + SHARD_TOKENS), docs = get_u64(h + SHARD_DOCS);
    uint64_t block = get_u64(h + SHARD_BLOCK);
    if (token_bytes != 2 && token_bytes != 4)
        return lie(ctx, path, SHARD_TOKEN_BYTES, "token_bytes", token_bytes, "is neither 2 nor 4");
    if (vocab < 1 || vocab > (token_bytes == 2 ? 65536u : (uint64_t)INT32_MAX))
        return lie(ctx, path, SHARD_VOCAB, "vocab_size", vocab, "is 0 or does not fit token_bytes");
    if (tokens < 1 || tokens > num_bytes / token_bytes)
        return lie(ctx, path, SHARD_TOKENS, "num_tokens", tokens, "is 0 or more than the file can hold");
    if (docs < 1 || docs > tokens)
        return lie(ctx, path, SHARD_DOCS, "num_docs", docs, "is not in [1, num_tokens]");
    if (get_u64(h + SHARD_TEXT_BYTES) > (uint64_t)INT64_MAX)
        return lie(ctx, path, SHARD_TEXT_BYTES, "text_bytes", get_u64(h + SHARD_TEXT_BYTES),
                   "is above 2^63-1");
    if (block < 8 || block > (uint64_t)1 << 30 || (block & (block - 1)) != 0)
        return lie(ctx, path, SHARD_BLOCK, "block_bytes", block, "is not a power of two in [8, 2^30]");

    const uint64_t docs_at = shard_docs_offset(tokens, token_bytes), hashes_at = docs_at + 8 * docs;
    const uint64_t file_bytes = hashes_at + 8 * ((tokens * token_bytes + block - 1) / block);
    if (get_u64(h + SHARD_DOCS_AT) != docs_at)
        return lie(ctx, path, SHARD_DOCS_AT, "docs_offset", get_u64(h + SHARD_DOCS_AT),
                   "is not where the tokens end");
    if (get_u64(h + SHARD_HASHES_AT) != hashes_at)
        return lie(ctx, path, SHARD_HASHES_AT, "hashes_offset", get_u64(h + SHARD_HASHES_AT),
                   "is not where the document starts end");
    if (get_u64(h + SHARD_FILE_BYTES) != file_bytes)
        return lie(ctx, path, SHARD_FILE_BYTES, "file_bytes", get_u64(h + SHARD_FILE_BYTES),
                   "is not where the block checksums end");
    if (file_bytes != num_bytes)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: offset %d: the header says %" PRIu64 " bytes, the file has %zu: %s", path,
                         SHARD_FILE_BYTES, file_bytes, num_bytes,
                         num_bytes < file_bytes ? "truncated" : "something was appended");
    for (int i = SHARD_RESERVED; i < SHARD_HEADER_HASH; i++)
        if (h[i] != 0)
            return lie(ctx, path, i, "reserved byte", h[i], "is not 0");
    return ORTH_OK;
}

static orth_status check_tables(orth_ctx *ctx, const orth_shard *s, const unsigned char *file,
                                uint64_t stored_hash)
{
    const int64_t tokens_end = ORTH_SHARD_HEADER_BYTES + s->info.num_tokens * s->info.token_bytes;
    const int64_t docs_at = s->doc_starts - file, end = (int64_t)s->map.size;
    for (int64_t i = tokens_end; i < docs_at; i++)
        if (file[i] != 0)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: offset %" PRId64 ": padding byte %d is not 0", s->path,
                             i, file[i]);
    uint64_t actual = XXH64(s->doc_starts, (size_t)(end - docs_at), 0);
    if (actual != stored_hash)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: offset %" PRId64 ": checksum of the tables is %016" PRIx64
                         ", their bytes give %016" PRIx64 ": damaged", s->path, docs_at, stored_hash, actual);
    uint64_t before = 0;
    for (int64_t d = 0; d < s->info.num_docs; d++) {
        uint64_t start = get_u64(s->doc_starts + 8 * d);
        if (d == 0 ? start != 0 : (start <= before || start >= (uint64_t)s->info.num_tokens))
            return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                             "%s: offset %" PRId64 ": document %" PRId64 " starts at token %" PRIu64
                             ": starts rise from 0 and stay below num_tokens=%" PRId64,
                             s->path, docs_at + 8 * d, d, start, s->info.num_tokens);
        before = start;
    }
    return ORTH_OK;
}

/* Fills s->info and the pointers from s->map; s->path is set. */
static orth_status parse(orth_ctx *ctx, orth_shard *s)
{
    const unsigned char *h = s->map.data;
    ORTH_TRY(check_seal(ctx, h, s->map.size, s->path));
    ORTH_TRY(check_fields(ctx, h, s->map.size, s->path));
    s->info = (orth_shard_info){
        .token_bytes = (int)get_u32(h + SHARD_TOKEN_BYTES),
        .vocab_size = (int64_t)get_u64(h + SHARD_VOCAB),
        .fingerprint = get_u64(h + SHARD_FINGERPRINT),
        .num_tokens = (int64_t)get_u64(h + SHARD_TOKENS),
        .num_docs = (int64_t)get_u64(h + SHARD_DOCS),
        .text_bytes = (int64_t)get_u64(h + SHARD_TEXT_BYTES),
        .header_hash = get_u64(h + SHARD_HEADER_HASH),
    };
    s->block_bytes = (int64_t)get_u64(h + SHARD_BLOCK);
    s->tokens = h + ORTH_SHARD_HEADER_BYTES;
    s->doc_starts = h + get_u64(h + SHARD_DOCS_AT);
    s->block_hashes = h + get_u64(h + SHARD_HASHES_AT);
    return check_tables(ctx, s, h, get_u64(h + SHARD_TABLES_HASH));
}

static int64_t token_bytes_of(const orth_shard *s)
{
    return s->info.num_tokens * s->info.token_bytes;
}

orth_status orth_shard_open(orth_ctx *ctx, orth_shard *out, const char *path)
{
    orth_shard s = {.path = orth_mem_strdup(ctx, path)};
    if (!s.path)
        return ORTH_ERR_NOMEM;
    orth_status status = orth_file_map_open(ctx, &s.map, path);
    if (status == ORTH_OK)
        status = parse(ctx, &s);
    if (status == ORTH_OK) {
        const size_t blocks = (size_t)orth_div_up(token_bytes_of(&s), s.block_bytes);
        s.checked = orth_mem_alloc(ctx, blocks);
        if (s.checked)
            memset((void *)s.checked, 0, blocks);
        else
            status = ORTH_ERR_NOMEM;
    }
    if (status != ORTH_OK) {
        orth_shard_close(ctx, &s);
        return status;
    }
    *out = s;
    return ORTH_OK;
}

void orth_shard_close(orth_ctx *ctx, orth_shard *s)
{
    orth_file_map_close(&s->map);
    orth_mem_free(ctx, (void *)s->checked);
    orth_mem_free(ctx, s->path);
    *s = (orth_shard){0};
}

orth_status orth_shard_parse(orth_ctx *ctx, orth_shard *out, const void *bytes, size_t num_bytes,
                             const char *path)
{
    orth_shard s = {.path = (char *)path, .map = {.data = bytes, .size = num_bytes}};
    ORTH_TRY(parse(ctx, &s));
    *out = s;
    return ORTH_OK;
}

static orth_status fail_token(orth_ctx *ctx, const orth_shard *s, int64_t index, uint32_t token)
{
    return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                     "%s: offset %" PRId64 ": token %" PRIu32 " is not below vocab_size=%" PRId64, s->path,
                     ORTH_SHARD_HEADER_BYTES + index * s->info.token_bytes, token, s->info.vocab_size);
}

static uint32_t token_at(const orth_shard *s, int64_t i)
{
    return s->info.token_bytes == 2 ? get_u16(s->tokens + 2 * i) : get_u32(s->tokens + 4 * i);
}

/* First token of [first, first+n) outside the vocabulary; first+n if there is none. */
static int64_t find_foreign(const orth_shard *s, int64_t first, int64_t n)
{
    uint32_t largest = 0;
    if (s->info.token_bytes == 2)
        for (int64_t i = first; i < first + n; i++)
            largest = ORTH_MAX(largest, (uint32_t)get_u16(s->tokens + 2 * i));
    else
        for (int64_t i = first; i < first + n; i++)
            largest = ORTH_MAX(largest, get_u32(s->tokens + 4 * i));
    if (largest < s->info.vocab_size)
        return first + n;
    while (token_at(s, first) < s->info.vocab_size)
        first++;
    return first;
}

static orth_status check_block(orth_ctx *ctx, const orth_shard *s, int64_t b)
{
    const int64_t at = b * s->block_bytes, n = ORTH_MIN(s->block_bytes, token_bytes_of(s) - at);
    const uint64_t stored = get_u64(s->block_hashes + 8 * b), actual = XXH64(s->tokens + at, (size_t)n, 0);
    if (stored == actual)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                     "%s: offset %" PRId64 ": checksum of block %" PRId64 " (%" PRId64 " bytes) is %016" PRIx64
                     ", its bytes give %016" PRIx64 ": damaged",
                     s->path, ORTH_SHARD_HEADER_BYTES + at, b, n, stored, actual);
}

orth_status orth_shard_verify(orth_ctx *ctx, const orth_shard *s)
{
    for (int64_t b = 0; b * s->block_bytes < token_bytes_of(s); b++)
        ORTH_TRY(check_block(ctx, s, b));
    const int64_t bad = find_foreign(s, 0, s->info.num_tokens);
    return bad < s->info.num_tokens ? fail_token(ctx, s, bad, token_at(s, bad)) : ORTH_OK;
}

/* The blocks of tokens [first, first+n) that nobody has read yet. Their pages leave the resident set again:
 * one sequence needs few of them. Two threads may check the same block. */
static orth_status check_new_blocks(orth_ctx *ctx, const orth_shard *s, int64_t first, int64_t n)
{
    const int64_t size = s->info.token_bytes, end = (first + n) * size;
    for (int64_t b = first * size / s->block_bytes; b * s->block_bytes < end; b++) {
        if (s->checked && atomic_load_explicit(&s->checked[b], memory_order_relaxed))
            continue;
        ORTH_TRY(check_block(ctx, s, b));
        if (!s->checked)
            continue;
        atomic_store_explicit(&s->checked[b], 1, memory_order_relaxed);
        orth_file_map_release(&s->map, (size_t)(ORTH_SHARD_HEADER_BYTES + b * s->block_bytes),
                              (size_t)s->block_bytes);
    }
    return ORTH_OK;
}

orth_status orth_shard_read(orth_ctx *ctx, const orth_shard *s, int32_t *out, int64_t first, int64_t n)
{
    ORTH_TRY(check_new_blocks(ctx, s, first, n));
    int64_t bad = find_foreign(s, first, n);
    if (bad < first + n)
        return fail_token(ctx, s, bad, token_at(s, bad));
    if (s->info.token_bytes == 2)
        for (int64_t i = 0; i < n; i++)
            out[i] = get_u16(s->tokens + 2 * (first + i));
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (int32_t)get_u32(s->tokens + 4 * (first + i));
    return ORTH_OK;
}

int64_t orth_shard_doc_start(const orth_shard *s, int64_t d)
{
    return d == s->info.num_docs ? s->info.num_tokens : (int64_t)get_u64(s->doc_starts + 8 * d);
}

int64_t orth_shard_docs_up_to(const orth_shard *s, int64_t token)
{
    int64_t low = 0,
            high = s->info.num_docs; /* documents below low start at or before token; from high on after */
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (orth_shard_doc_start(s, mid) <= token)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}
