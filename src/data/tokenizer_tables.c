/* tokenizer_tables.c -- strings to ids, pairs to merges, characters to classes, and what is UTF-8. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "data/tokenizer_impl.h"

static int64_t table_size(int64_t expected)
{
    int64_t size = 16;
    while (size < 2 * expected) /* at most half full: short probes */
        size *= 2;
    return size;
}

/* ---- strings ---- */

orth_status orth_strmap_init(orth_ctx *ctx, orth_strmap *m, int64_t expected)
{
    const int64_t size = table_size(expected);
    m->entries = ORTH_NEW_ARRAY(ctx, orth_strmap_entry, size);
    if (!m->entries)
        return ORTH_ERR_NOMEM;
    m->num = 0;
    m->mask = size - 1;
    return ORTH_OK;
}

void orth_strmap_free(orth_ctx *ctx, orth_strmap *m)
{
    orth_mem_free(ctx, m->entries);
    memset(m, 0, sizeof *m);
}

/* The entry of the key, or the free one where it belongs. */
static orth_strmap_entry *strmap_slot(const orth_strmap *m, const char *key, size_t key_bytes)
{
    int64_t i = (int64_t)(XXH3_64bits(key, key_bytes) & (uint64_t)m->mask);
    for (;; i = (i + 1) & m->mask) {
        orth_strmap_entry *e = &m->entries[i];
        if (!e->key || (e->key_bytes == key_bytes && memcmp(e->key, key, key_bytes) == 0))
            return e;
    }
}

int32_t orth_strmap_find(const orth_strmap *m, const char *key, size_t key_bytes)
{
    if (!m->entries)
        return -1;
    const orth_strmap_entry *e = strmap_slot(m, key, key_bytes);
    return e->key ? e->id : -1;
}

static orth_status strmap_grow(orth_ctx *ctx, orth_strmap *m)
{
    orth_strmap bigger;
    ORTH_TRY(orth_strmap_init(ctx, &bigger, m->num * 2));
    for (int64_t i = 0; i <= m->mask; i++) {
        if (m->entries[i].key)
            *strmap_slot(&bigger, m->entries[i].key, m->entries[i].key_bytes) = m->entries[i];
    }
    bigger.num = m->num;
    orth_strmap_free(ctx, m);
    *m = bigger;
    return ORTH_OK;
}

orth_status orth_strmap_put(orth_ctx *ctx, orth_strmap *m, const char *key, size_t key_bytes, int32_t id)
{
    if (2 * (m->num + 1) > m->mask + 1)
        ORTH_TRY(strmap_grow(ctx, m));
    orth_strmap_entry *e = strmap_slot(m, key, key_bytes);
    if (!e->key)
        m->num++;
    *e = (orth_strmap_entry){.key = key, .key_bytes = (uint32_t)key_bytes, .id = id};
    return ORTH_OK;
}

/* ---- pairs ---- */

orth_status orth_pairmap_init(orth_ctx *ctx, orth_pairmap *m, const orth_merge *merges, int64_t num_merges)
{
    const int64_t size = table_size(num_merges);
    m->entries = ORTH_NEW_ARRAY(ctx, orth_pairmap_entry, size);
    if (!m->entries)
        return ORTH_ERR_NOMEM;
    m->mask = (uint64_t)size - 1;
    for (int64_t i = 0; i < size; i++)
        m->entries[i].key = UINT64_MAX;
    for (int64_t r = 0; r < num_merges; r++) {
        const uint64_t key = orth_pair_key(merges[r].left, merges[r].right);
        uint64_t i = orth_pair_hash(key) & m->mask;
        while (m->entries[i].key != UINT64_MAX && m->entries[i].key != key)
            i = (i + 1) & m->mask;
        /* A pair that is listed twice has its last rank, as in Hugging Face's map. */
        m->entries[i] = (orth_pairmap_entry){.key = key, .rank = (uint32_t)r, .id = merges[r].id};
    }
    return ORTH_OK;
}

/* ---- characters ---- */

#define L ORTH_CHAR_LETTER
#define N ORTH_CHAR_NUMBER
#define S ORTH_CHAR_SPACE
#define W ORTH_CHAR_WORD
#define U ORTH_CHAR_NFC_UNSAFE
#define D ORTH_CHAR_NUMERIC
#define K ORTH_CHAR_FORM_UNSAFE
#define R(first, last, classes) {first, last, classes},
static const struct {
    uint32_t first, last;
    uint8_t classes;
} class_ranges[] = {
#include "data/unicode_classes.def"
};
#undef R
#undef L
#undef N
#undef S
#undef W
#undef U
#undef D
#undef K

orth_status orth_char_classes_create(orth_ctx *ctx, orth_arena *arena, uint8_t **out)
{
    uint8_t *classes = orth_arena_alloc(ctx, arena, ORTH_CHAR_TABLE);
    if (!classes)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < ORTH_COUNT(class_ranges); i++) {
        for (uint32_t c = class_ranges[i].first; c <= class_ranges[i].last && c < ORTH_CHAR_TABLE; c++)
            classes[c] = class_ranges[i].classes;
    }
    *out = classes;
    return ORTH_OK;
}

/* Bytes of the well-formed sequence at p, 0 if there is none (Unicode, table 3-7). */
static int sequence_length(const unsigned char *p, const unsigned char *end)
{
    const int64_t left = end - p;
    const unsigned c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4 || left < 2)
        return 0;
    unsigned low = 0x80, high = 0xBF; /* of the second byte: no surrogates, nothing overlong or too large */
    if (c == 0xE0)
        low = 0xA0;
    else if (c == 0xED)
        high = 0x9F;
    else if (c == 0xF0)
        low = 0x90;
    else if (c == 0xF4)
        high = 0x8F;
    if (p[1] < low || p[1] > high)
        return 0;
    const int n = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (left < n)
        return 0;
    for (int i = 2; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    return n;
}

size_t orth_utf8_valid_prefix(const unsigned char *p, const unsigned char *end)
{
    const unsigned char *start = p;
    while (p < end) {
        uint64_t eight;
        if (end - p >= 8 && (memcpy(&eight, p, 8), (eight & 0x8080808080808080u) == 0)) {
            p += 8;
            continue;
        }
        int n = sequence_length(p, end);
        if (n == 0)
            break;
        p += n;
    }
    return (size_t)(p - start);
}
