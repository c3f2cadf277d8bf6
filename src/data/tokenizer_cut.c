/* tokenizer_cut.c -- where a text of characters can be cut so that its parts are merged by themselves.
 *
 * A tokenizer of characters often has no pre-tokenizer: a whole document is one word. But merges make tokens, and two
 * characters that stand side by side in no token that a merge makes are never joined. A text that is cut between them
 * gives the same ids, part by part; and parts are mostly words, which the encoder remembers. Only characters that are
 * tokens themselves are looked at: what others become (tokens of bytes, the unknown token) has other text than they
 * have. */
#include "data/tokenizer_impl.h"

static uint64_t pair_key(uint32_t a, uint32_t b)
{
    return (uint64_t)a << 32 | b | (uint64_t)1 << 63; /* never 0 */
}

static uint64_t *pair_slot(const orth_char_pairs *pairs, uint64_t key)
{
    uint64_t i = orth_pair_hash(key) & pairs->mask;
    while (pairs->keys[i] != 0 && pairs->keys[i] != key)
        i = (i + 1) & pairs->mask;
    return &pairs->keys[i];
}

static orth_status grow(orth_ctx *ctx, orth_char_pairs *pairs)
{
    const orth_char_pairs old = *pairs;
    pairs->mask = old.keys ? 2 * old.mask + 1 : 4095;
    pairs->keys = ORTH_NEW_ARRAY(ctx, uint64_t, pairs->mask + 1);
    if (!pairs->keys) {
        *pairs = old;
        return ORTH_ERR_NOMEM;
    }
    for (uint64_t i = 0; old.keys && i <= old.mask; i++) {
        if (old.keys[i] != 0)
            *pair_slot(pairs, old.keys[i]) = old.keys[i];
    }
    orth_mem_free(ctx, old.keys);
    return ORTH_OK;
}

static orth_status add_pair(orth_ctx *ctx, orth_char_pairs *pairs, uint32_t a, uint32_t b)
{
    if (a < 0x80 && b < 0x80) {
        pairs->ascii[a][b / 8] |= (uint8_t)(1 << b % 8);
        return ORTH_OK;
    }
    if (!pairs->keys || 2 * (pairs->num + 1) > pairs->mask)
        ORTH_TRY(grow(ctx, pairs));
    uint64_t *slot = pair_slot(pairs, pair_key(a, b));
    pairs->num += *slot == 0;
    *slot = pair_key(a, b);
    return ORTH_OK;
}

static bool has_pair(const orth_char_pairs *pairs, uint32_t a, uint32_t b)
{
    if (a < 0x80 && b < 0x80)
        return pairs->ascii[a][b / 8] >> b % 8 & 1;
    return pairs->keys && *pair_slot(pairs, pair_key(a, b)) != 0;
}

orth_status orth_char_pairs_init(orth_ctx *ctx, orth_char_pairs *pairs, const orth_tokenizer *tok)
{
    for (int64_t i = 0; i < tok->num_merges; i++) {
        const orth_token *t = &tok->tokens[tok->merges[i].id];
        const unsigned char *p = (const unsigned char *)t->content, *end = p + t->content_bytes;
        uint32_t before = 0;
        int n;
        for (bool first = true; p < end; p += n, first = false) {
            const uint32_t c = orth_utf8_at(p, &n);
            if (!first)
                ORTH_TRY(add_pair(ctx, pairs, before, c));
            before = c;
        }
    }
    return ORTH_OK;
}

int32_t orth_char_token(const orth_tokenizer *tok, const char *p, size_t num_bytes)
{
    if (num_bytes == 1)
        return (unsigned char)*p < 0x80 ? tok->ascii_id[(unsigned char)*p] : -1;
    const int32_t id = orth_strmap_find(&tok->by_content, p, num_bytes);
    return id >= 0 && (tok->tokens[id].flags & ORTH_TOKEN_MODEL) ? id : -1;
}

/* a and b are the characters at p and q. */
static bool parts(const orth_tokenizer *tok, uint32_t a, const char *p, size_t p_bytes, uint32_t b, const char *q, size_t q_bytes)
{
    return !has_pair(&tok->joins, a, b) && orth_char_token(tok, p, p_bytes) >= 0 && orth_char_token(tok, q, q_bytes) >= 0;
}

bool orth_chars_part(const orth_tokenizer *tok, const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int n;
    return parts(tok, orth_utf8_at((const unsigned char *)a, &n), a, a_bytes, orth_utf8_at((const unsigned char *)b, &n), b, b_bytes);
}

const char *orth_cut(const orth_tokenizer *tok, const char *p, const char *end)
{
    int n;
    uint32_t before = orth_utf8_at((const unsigned char *)p, &n);
    const char *last = p;
    for (p += n; p < end; last = p, p += n) {
        const uint32_t c = orth_utf8_at((const unsigned char *)p, &n);
        if (parts(tok, before, last, (size_t)(p - last), c, p, (size_t)n))
            return p;
        before = c;
    }
    return end;
}
