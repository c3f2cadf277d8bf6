/* shard_layout.h -- offsets in the header of a shard, shared by its reader and its writer.
 * docs/formats/shard.md says what the fields mean. Numbers are little-endian on every host. */
#ifndef ORTH_DATA_SHARD_LAYOUT_H
#define ORTH_DATA_SHARD_LAYOUT_H

#include <stdint.h>

#include "data/shard.h"

enum {
    SHARD_VERSION = 8,        /* u32 */
    SHARD_TOKEN_BYTES = 12,   /* u32 */
    SHARD_VOCAB = 16,         /* u64, as all that follow */
    SHARD_FINGERPRINT = 24,
    SHARD_TOKENS = 32,
    SHARD_DOCS = 40,
    SHARD_TEXT_BYTES = 48,
    SHARD_BLOCK = 56,
    SHARD_DOCS_AT = 64,
    SHARD_HASHES_AT = 72,
    SHARD_FILE_BYTES = 80,
    SHARD_TABLES_HASH = 88,
    SHARD_RESERVED = 96,      /* zeros up to SHARD_HEADER_HASH */
    SHARD_HEADER_HASH = 120
};

static inline uint16_t get_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t get_u64(const unsigned char *p)
{
    return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

static inline void put_uint(unsigned char *p, uint64_t value, int num_bytes)
{
    for (int i = 0; i < num_bytes; i++)
        p[i] = (unsigned char)(value >> 8 * i);
}

/* Tokens are padded with zeros to a multiple of 8 bytes. */
static inline uint64_t shard_docs_offset(uint64_t tokens, uint64_t token_bytes)
{
    return ORTH_SHARD_HEADER_BYTES + (tokens * token_bytes + 7) / 8 * 8;
}

#endif
