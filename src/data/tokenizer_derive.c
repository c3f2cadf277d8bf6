/* tokenizer_derive.c -- what follows from the parts of a tokenizer: what tokens stand for, maps, trees of added tokens. */
#include <string.h>

#include "data/tokenizer_impl.h"

/* Sets what the token stands for, where that is not its content. */
static orth_status set_bytes(orth_ctx *ctx, orth_tokenizer *tok, orth_token *t, const char *bytes, size_t num_bytes)
{
    if (num_bytes == t->content_bytes && memcmp(bytes, t->content, num_bytes) == 0)
        return ORTH_OK;
    char *copy = orth_tokenizer_text(ctx, tok, num_bytes + 1);
    if (!copy)
        return ORTH_ERR_NOMEM;
    if (num_bytes > 0)
        memcpy(copy, bytes, num_bytes);
    t->bytes = copy;
    t->num_bytes = (uint32_t)num_bytes;
    return ORTH_OK;
}

/* Tokens of the model that are spelled in the byte-level alphabet stand for those bytes; all others for themselves. */
static orth_status derive_spelled(orth_ctx *ctx, orth_tokenizer *tok)
{
    orth_bytes scratch = {0};
    orth_status status = ORTH_OK;
    for (int64_t id = 0; id < tok->num_ids; id++) {
        orth_token *t = &tok->tokens[id];
        if (!(t->flags & ORTH_TOKEN_MODEL))
            continue;
        scratch.num = 0;
        ORTH_TRY_GOTO(orth_bytes_reserve(ctx, &scratch, t->content_bytes + 1));
        const int64_t n = orth_byte_unspell(t->content, t->content_bytes, scratch.v);
        if (n < 0)
            continue;
        ORTH_TRY_GOTO(set_bytes(ctx, tok, t, scratch.v, (size_t)n));
        t->flags |= ORTH_TOKEN_SPELLED;
    }
done:
    orth_bytes_free(ctx, &scratch);
    return status;
}

/* Tokens of characters, as the decoder leaves them. It sees added tokens as the normalizer leaves those that ask for it. */
static orth_status derive_decoded(orth_ctx *ctx, orth_tokenizer *tok)
{
    orth_bytes normal[2] = {{0}, {0}}, decoded[2] = {{0}, {0}};
    orth_matcher matcher = {0};
    orth_status status = ORTH_OK;
    for (int64_t id = 0; id < tok->num_ids; id++) {
        orth_token *t = &tok->tokens[id];
        if (!(t->flags & ORTH_TOKEN_USED))
            continue;
        const char *text = t->content;
        size_t n = t->content_bytes;
        if ((t->flags & ORTH_TOKEN_ADDED) && (t->flags & ORTH_TOKEN_NORMALIZED))
            ORTH_TRY_GOTO(orth_normalize(ctx, tok, &matcher, normal, &text, &n, (orth_text_part){0}));
        ORTH_TRY_GOTO(orth_decoder_token(ctx, &tok->decoder, decoded, &text, &n));
        ORTH_TRY_GOTO(set_bytes(ctx, tok, t, text, n));
    }
done:
    for (int i = 0; i < 2; i++) {
        orth_bytes_free(ctx, &normal[i]);
        orth_bytes_free(ctx, &decoded[i]);
    }
    orth_matcher_free(&matcher);
    return status;
}

/* byte_id and ascii_id. */
static void find_single_tokens(orth_tokenizer *tok)
{
    memset(tok->byte_id, -1, sizeof tok->byte_id);
    memset(tok->ascii_id, -1, sizeof tok->ascii_id);
    for (int64_t id = 0; id < tok->num_ids; id++) {
        const orth_token *t = &tok->tokens[id];
        if (!(t->flags & ORTH_TOKEN_MODEL))
            continue;
        const int byte = tok->byte_level ? -1 : orth_byte_token(t->content, t->content_bytes);
        if (tok->byte_level && (t->flags & ORTH_TOKEN_SPELLED) && t->num_bytes == 1)
            tok->byte_id[(uint8_t)t->bytes[0]] = (int32_t)id;
        else if (byte >= 0 && !strpbrk(t->content + 3, "abcdef"))
            tok->byte_id[byte] = (int32_t)id;
        else if (!tok->byte_level && t->content_bytes == 1)
            tok->ascii_id[(uint8_t)t->content[0] & 0x7F] = (int32_t)id;
    }
}

static orth_status build_maps(orth_ctx *ctx, orth_tokenizer *tok)
{
    ORTH_TRY(orth_strmap_init(ctx, &tok->by_content, tok->num_ids));
    for (int64_t id = 0; id < tok->num_ids; id++) {
        const orth_token *t = &tok->tokens[id];
        if (t->flags & ORTH_TOKEN_USED)
            ORTH_TRY(orth_strmap_put(ctx, &tok->by_content, t->content, t->content_bytes, (int32_t)id));
    }
    find_single_tokens(tok);
    ORTH_TRY(orth_pairmap_init(ctx, &tok->pairs, tok->merges, tok->num_merges));
    if (!tok->byte_level)
        ORTH_TRY(orth_char_pairs_init(ctx, &tok->joins, tok));
    if (!tok->ignore_merges)
        return ORTH_OK;
    ORTH_TRY(orth_strmap_init(ctx, &tok->by_bytes, tok->num_ids));
    for (int64_t id = 0; id < tok->num_ids; id++) {
        const orth_token *t = &tok->tokens[id];
        if (tok->byte_level && (t->flags & ORTH_TOKEN_SPELLED))
            ORTH_TRY(orth_strmap_put(ctx, &tok->by_bytes, t->bytes, t->num_bytes, (int32_t)id));
        else if (!tok->byte_level && (t->flags & ORTH_TOKEN_MODEL))
            ORTH_TRY(orth_strmap_put(ctx, &tok->by_bytes, t->content, t->content_bytes, (int32_t)id));
    }
    return ORTH_OK;
}

/* Hugging Face finds one of two tokens with the same normal form, now this one and now that. */
static orth_status add_normalized(orth_ctx *ctx, orth_tokenizer *tok, const char *text, size_t n, int32_t id, const char *name)
{
    const int32_t other = orth_trie_get(&tok->normalized_added, text, n);
    if (other >= 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: added_tokens: the normalizer makes the same of \"%.80s\" (id %d) and \"%.80s\" (id %d), both "
                         "\"normalized\": true: not supported", name, tok->tokens[other].content, (int)other, tok->tokens[id].content, (int)id);
    return orth_trie_add(ctx, &tok->normalized_added, text, n, id);
}

static orth_status build_tries(orth_ctx *ctx, orth_tokenizer *tok, const char *name)
{
    ORTH_TRY(orth_trie_init(ctx, &tok->raw_added));
    ORTH_TRY(orth_trie_init(ctx, &tok->normalized_added));
    orth_bytes normal[2] = {{0}, {0}};
    orth_matcher matcher = {0};
    orth_status status = ORTH_OK;
    for (int64_t i = 0; i < tok->num_added; i++) {
        const int32_t id = tok->added[i];
        const orth_token *t = &tok->tokens[id];
        if (!(t->flags & ORTH_TOKEN_NORMALIZED)) {
            ORTH_TRY_GOTO(orth_trie_add(ctx, &tok->raw_added, t->content, t->content_bytes, id));
            continue;
        }
        const char *text = t->content;
        size_t n = t->content_bytes;
        ORTH_TRY_GOTO(orth_normalize(ctx, tok, &matcher, normal, &text, &n, (orth_text_part){0}));
        ORTH_TRY_GOTO(add_normalized(ctx, tok, text, n, id, name));
    }
done:
    orth_bytes_free(ctx, &normal[0]);
    orth_bytes_free(ctx, &normal[1]);
    orth_matcher_free(&matcher);
    return status;
}

/* A tokenizer of bytes looks for <0x41> only where a byte has no token: then it is neither one kind nor the other. */
static orth_status check_byte_fallback(orth_ctx *ctx, const orth_tokenizer *tok, const char *name)
{
    for (int b = 0; b < 256 && tok->byte_level && tok->byte_fallback; b++) {
        if (tok->byte_id[b] < 0)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: model.byte_fallback is true, pre_tokenizer is ByteLevel, and byte %d has no "
                             "token: not supported", name, b);
    }
    return ORTH_OK;
}

orth_status orth_tokenizer_derive(orth_ctx *ctx, orth_tokenizer *tok, const char *name)
{
    if (!tok->byte_level)
        ORTH_TRY(orth_decoder_parse(ctx, tok, name));
    ORTH_TRY(tok->byte_level ? derive_spelled(ctx, tok) : derive_decoded(ctx, tok));
    ORTH_TRY(build_maps(ctx, tok));
    ORTH_TRY(check_byte_fallback(ctx, tok, name));
    ORTH_TRY(build_tries(ctx, tok, name));
    return orth_neutral_derive(ctx, tok);
}
