/* fuzz_shard.c -- any bytes as a token shard: refused with words, or read within its bounds.
 *
 * Checksums stop random changes at the door, so the input is also tried with its seals made right: then the
 * checks behind them are what is fuzzed. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "data/shard_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(orth_ctx *ctx, const unsigned char *bytes, size_t size)
{
    orth_shard s;
    if (orth_shard_parse(ctx, &s, bytes, size, "input") == ORTH_OK) {
        int32_t tokens[16];
        const int64_t N = s.info.num_tokens;
        int64_t sum = 0;
        orth_shard_read(ctx, &s, tokens, 0, ORTH_MIN(N, 16));
        orth_shard_read(ctx, &s, tokens, ORTH_MAX(0, N - 16), ORTH_MIN(N, 16));
        for (int64_t i = 0; i < N; i += 1 + N / 64)
            sum += orth_shard_docs_up_to(&s, i);
        for (int64_t d = 0; d <= s.info.num_docs; d++)
            sum += orth_shard_doc_start(&s, d);
        if (sum < 0)
            abort();
        orth_ctx_clear_error(ctx);
        orth_shard_verify(ctx, &s);
    } else if (ctx->error.message[0] == 0) {
        abort();
    }
    orth_ctx_clear_error(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx *ctx = calloc(1, sizeof *ctx); /* parsing takes neither pool nor heap */
    unsigned char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    use(ctx, copy, size);
    if (size >= ORTH_SHARD_HEADER_BYTES) {
        const uint64_t tables = get_u64(copy + SHARD_DOCS_AT);
        memcpy(copy, ORTH_SHARD_MAGIC, 8);
        put_uint(copy + SHARD_VERSION, ORTH_SHARD_VERSION, 4);
        if (tables <= size)
            put_uint(copy + SHARD_TABLES_HASH, XXH64(copy + tables, size - tables, 0), 8);
        put_uint(copy + SHARD_HEADER_HASH, XXH64(copy, SHARD_HEADER_HASH, 0), 8);
        use(ctx, copy, size);
        /* Sizes that fit each other: num_tokens, num_docs and block_bytes as they are, the rest derived. */
        const uint64_t width = get_u32(copy + SHARD_TOKEN_BYTES) & 4 ? 4 : 2,
                       room = size - ORTH_SHARD_HEADER_BYTES;
        const uint64_t n = get_u64(copy + SHARD_TOKENS) % (room / width + 1),
                       docs = get_u64(copy + SHARD_DOCS) % (n + 1);
        const uint64_t block = (uint64_t)8 << get_u64(copy + SHARD_BLOCK) % 28,
                       docs_at = shard_docs_offset(n, width);
        const uint64_t end = docs_at + 8 * docs + 8 * ((n * width + block - 1) / block);
        if (end <= size) {
            put_uint(copy + SHARD_TOKEN_BYTES, width, 4);
            put_uint(copy + SHARD_VOCAB, 1 + get_u64(copy + SHARD_VOCAB) % 65536, 8);
            put_uint(copy + SHARD_TOKENS, n, 8);
            put_uint(copy + SHARD_DOCS, docs, 8);
            put_uint(copy + SHARD_BLOCK, block, 8);
            put_uint(copy + SHARD_DOCS_AT, docs_at, 8);
            put_uint(copy + SHARD_HASHES_AT, docs_at + 8 * docs, 8);
            put_uint(copy + SHARD_FILE_BYTES, end, 8);
            put_uint(copy + SHARD_TABLES_HASH, XXH64(copy + docs_at, end - docs_at, 0), 8);
            memset(copy + SHARD_RESERVED, 0, SHARD_HEADER_HASH - SHARD_RESERVED);
            put_uint(copy + SHARD_HEADER_HASH, XXH64(copy, SHARD_HEADER_HASH, 0), 8);
            unsigned char *exact = malloc(end);
            memcpy(exact, copy, end);
            use(ctx, exact, end);
            free(exact);
        }
    }
    free(copy);
    free(ctx);
    return 0;
}
