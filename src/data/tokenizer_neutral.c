/* tokenizer_neutral.c -- where a text can be cut into parts whose ids, one after the other, are those of the whole.
 *
 * The parts of a long document are encoded side by side, so cuts are wanted; but only those that are known to be neutral
 * for the tokenizer at hand: what is not understood here is never cut. Three kinds of places are looked at.
 *
 *   x|space    in front of a space that follows a character that is not white space
 *   x|newline  in front of a newline, likewise
 *   line|x     behind a newline between two characters that are not white space
 *
 * Tokenizers of bytes, with a pattern that is scanned (tokenizer_scan.c): at x|space every alternative of the patterns ends;
 * at x|newline those of letters and of numbers do (that of signs takes newlines with it); at line|x the white space ends, and is
 * read alike at the end of a text, where a longer run of it would not be. White space is never composed with what is before
 * it. Tokenizers of characters: what merges cannot join, as in tokenizer_cut.c, with the character that a space becomes.
 * What is put before a text and stripped around it depends on orth_text_part, not on the text.
 *
 * Added tokens: none may lie across the cut, take white space across it, or (where something is put before a text, which is done
 * behind each of them too) end at it. What a normalizer other than NFC makes of letters is not followed: then only those of ASCII count. */
#include <string.h>

#include "data/tokenizer_impl.h"

static void put_byte(uint8_t set[32], unsigned char byte)
{
    set[byte / 8] |= (uint8_t)(1 << byte % 8);
}

/* In lower case too: that may be what the normalizer has made of it. */
static bool has_byte(const uint8_t set[32], unsigned char byte)
{
    const unsigned char lower = byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte;
    return (set[byte / 8] >> byte % 8 & 1) || (set[lower / 8] >> lower % 8 & 1);
}

static uint32_t first_char(const char *p, size_t num_bytes, int *n)
{
    size_t k = 1;
    while (k < 4 && k < num_bytes && ((unsigned char)p[k] & 0xC0) == 0x80)
        k++;
    *n = num_bytes > 0 && orth_utf8_valid_prefix((const unsigned char *)p, (const unsigned char *)p + k) == k ? (int)k : 0;
    return *n ? orth_utf8_at((const unsigned char *)p, n) : 0;
}

/* ---- what is known of the tokenizer ---- */

static bool is_space_string(const orth_pattern *p, bool literal)
{
    return literal && p->num_bytes == 1 && p->text[0] == ' ';
}

/* Normalizers: *edges, where one acts at the ends of a text. False: one is not understood. */
static bool read_normalizers(const orth_tokenizer *tok, orth_neutral *k, bool *edges)
{
    for (int i = 0; i < tok->num_normalizers; i++) {
        const orth_normalizer *step = &tok->normalizers[i];
        switch (step->type) {
        case ORTH_NORMALIZE_NFC:
            break;
        case ORTH_NORMALIZE_STRIP:
        case ORTH_NORMALIZE_PREPEND:
            *edges = true;
            break;
        case ORTH_NORMALIZE_REPLACE:
            if (k->space || !is_space_string(&step->pattern, step->literal))
                return false;
            k->space = step->content;
            break;
        default:
            k->ascii_only = true;
        }
    }
    return true;
}

static bool reads_words(const orth_tokenizer *tok, orth_neutral *k, bool *edges)
{
    const orth_stage *s = tok->stages;
    const bool one = tok->num_stages == 1 && s->type == ORTH_STAGE_BYTE_LEVEL;
    const bool bytes = one && !s->cuts && !s->add_prefix_space && tok->num_merges == 0 && !tok->ignore_merges && tok->num_normalizers == 0;
    const bool prefix = one && s->scan != ORTH_SCAN_NONE && s->add_prefix_space;
    *edges = *edges || prefix;
    return !k->space && (bytes || prefix || orth_stages_single_scan(tok) != ORTH_SCAN_NONE);
}

static bool reads_chars(const orth_tokenizer *tok, orth_neutral *k, bool *edges)
{
    const orth_stage *s = tok->stages;
    if (k->ascii_only || tok->num_stages > 1)
        return false;
    const bool meta = tok->num_stages == 1 && s->type == ORTH_STAGE_METASPACE;
    /* A split at spaces has nothing to do where they have been replaced. */
    if (tok->num_stages == 1 && !meta && !(s->type == ORTH_STAGE_SPLIT && is_space_string(&s->pattern, s->literal) && k->space && k->space[0] != ' '))
        return false;
    if (!k->space)
        k->space = meta ? s->pattern.text : " ";
    *edges = *edges || (meta && s->prepend != ORTH_PREPEND_NEVER);
    k->space_splits = meta && s->cuts && strcmp(k->space, s->pattern.text) == 0;
    const int32_t newline = tok->byte_id['\n'];
    k->newline_alone = tok->byte_fallback && newline >= 0 && orth_char_token(tok, "\n", 1) < 0;
    for (int64_t i = 0; i < tok->num_merges && k->newline_alone; i++)
        k->newline_alone = tok->merges[i].left != newline && tok->merges[i].right != newline;
    int n;
    first_char(k->space, strlen(k->space), &n);
    return n > 0 && (size_t)n == strlen(k->space);
}

/* What a space becomes is of the class of letters, as "_" is: it keeps a token of single words from matching in front of it. */
static bool space_is_of_words(const orth_tokenizer *tok, const orth_neutral *k)
{
    int n = 0;
    const uint32_t c = k->space ? first_char(k->space, strlen(k->space), &n) : 0;
    return n > 0 && (orth_char_class(tok->classes, c) & ORTH_CHAR_WORD);
}

static bool is_white(const orth_tokenizer *tok, const char *p, const char *end, const char *space, int *n)
{
    const size_t k = space ? strlen(space) : 0;
    const bool white = orth_char_class(tok->classes, orth_utf8_at((const unsigned char *)p, n)) & ORTH_CHAR_SPACE;
    return white || (k > 0 && (size_t)(end - p) >= k && memcmp(p, space, k) == 0);
}

/* One added token, as it is written or as the normalizer leaves it. */
static void look_at_token(const orth_tokenizer *tok, orth_neutral *k, bool edges, uint32_t flags, const char *text, size_t num_bytes)
{
    const char *end = text + num_bytes;
    bool before = false, white = false;
    int n;
    for (const char *p = text; p < end; p += n, before = white) {
        white = is_white(tok, p, end, k->space, &n);
        if (p > text && white != before)
            *(white ? &k->in_tokens : &k->lines_in_tokens) = true;
        if (p == text && white && (flags & ORTH_TOKEN_SINGLE_WORD))
            k->in_tokens = true; /* at the start of a part no word is before it */
    }
    if (num_bytes == 0)
        return;
    if (edges || (flags & ORTH_TOKEN_RSTRIP) || ((white || space_is_of_words(tok, k)) && (flags & ORTH_TOKEN_SINGLE_WORD)))
        put_byte(k->ends, (unsigned char)end[-1]);
    if (flags & ORTH_TOKEN_LSTRIP)
        put_byte(k->starts, (unsigned char)text[0]);
}

static orth_status look_at_tokens(orth_ctx *ctx, const orth_tokenizer *tok, orth_neutral *k, bool edges)
{
    orth_bytes normal[2] = {{0}, {0}};
    orth_matcher matcher = {0};
    orth_status status = ORTH_OK;
    for (int64_t i = 0; i < tok->num_added; i++) {
        const orth_token *t = &tok->tokens[tok->added[i]];
        const char *text = t->content;
        size_t n = t->content_bytes;
        look_at_token(tok, k, edges, t->flags, text, n);
        if (!(t->flags & ORTH_TOKEN_NORMALIZED))
            continue;
        ORTH_TRY_GOTO(orth_normalize(ctx, tok, &matcher, normal, &text, &n, (orth_text_part){0}));
        look_at_token(tok, k, edges, t->flags, text, n);
        if ((t->flags & ORTH_TOKEN_LSTRIP) && tok->num_normalizers > 0)
            k->lines_in_tokens = true; /* its first byte is not that of a text which the normalizer makes it of */
    }
done:
    orth_bytes_free(ctx, &normal[0]);
    orth_bytes_free(ctx, &normal[1]);
    orth_matcher_free(&matcher);
    return status;
}

orth_status orth_neutral_derive(orth_ctx *ctx, orth_tokenizer *tok)
{
    orth_neutral k = {.kind = ORTH_NEUTRAL_NONE};
    bool edges = false;
    if (read_normalizers(tok, &k, &edges)) {
        if (tok->byte_level)
            k.kind = reads_words(tok, &k, &edges) ? ORTH_NEUTRAL_WORDS : ORTH_NEUTRAL_NONE;
        else
            k.kind = reads_chars(tok, &k, &edges) ? ORTH_NEUTRAL_CHARS : ORTH_NEUTRAL_NONE;
    }
    if (k.kind != ORTH_NEUTRAL_NONE)
        ORTH_TRY(look_at_tokens(ctx, tok, &k, edges));
    tok->neutral = k;
    return ORTH_OK;
}

/* ---- a cut ---- */

static bool is_alnum(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* x|space and x|newline; `next` is the space or newline. */
static bool cuts_before_space(const orth_tokenizer *tok, const char *x, uint32_t c, int n, char next)
{
    const orth_neutral *k = &tok->neutral;
    const int class = orth_char_class(tok->classes, c);
    if (k->in_tokens || (class & ORTH_CHAR_SPACE) || (k->ascii_only && !is_alnum(c)))
        return false;
    if (tok->num_normalizers > 0 && (class & ORTH_CHAR_NFC_UNSAFE)) /* it may become something else */
        return false;
    if (k->kind == ORTH_NEUTRAL_WORDS)
        return next == ' ' || (class & (ORTH_CHAR_LETTER | ORTH_CHAR_NUMBER));
    if (next == ' ' && k->space_splits)
        return true;
    if (tok->ignore_merges) /* what is not split may be a token whole */
        return false;
    if (next == ' ')
        return orth_chars_part(tok, x, (size_t)n, k->space, strlen(k->space));
    return k->newline_alone ? orth_char_token(tok, x, (size_t)n) >= 0 : orth_chars_part(tok, x, (size_t)n, "\n", 1);
}

/* line|x, where before[num_bytes] ends with the newline. */
static bool cuts_behind_line(const orth_tokenizer *tok, const char *before, size_t num_bytes, const char *after, size_t after_bytes)
{
    const orth_neutral *k = &tok->neutral;
    int n, m;
    const uint32_t x = orth_utf8_last(before, num_bytes - 1, &n), y = first_char(after, after_bytes, &m);
    if (k->kind != ORTH_NEUTRAL_WORDS || k->in_tokens || k->lines_in_tokens || n == 0 || m == 0)
        return false;
    if (has_byte(k->ends, (unsigned char)before[num_bytes - 2]) || has_byte(k->starts, (unsigned char)after[0])) /* the newline may belong to a token */
        return false;
    const int class_y = orth_char_class(tok->classes, y);
    if ((orth_char_class(tok->classes, x) & ORTH_CHAR_SPACE) || (class_y & ORTH_CHAR_SPACE))
        return false;
    if (tok->num_normalizers > 0 && ((class_y & ORTH_CHAR_NFC_UNSAFE) || (k->ascii_only && (x >= 0x80 || y >= 0x80))))
        return false;
    return true;
}

bool orth_tokenizer_cuts(const orth_tokenizer *tok, const char *before, size_t before_bytes, const char *after, size_t after_bytes)
{
    int n;
    const uint32_t x = orth_utf8_last(before, before_bytes, &n);
    if (tok->neutral.kind == ORTH_NEUTRAL_NONE || n == 0 || after_bytes == 0 || has_byte(tok->neutral.ends, (unsigned char)before[before_bytes - 1]))
        return false;
    if (after[0] == ' ' || after[0] == '\n')
        return cuts_before_space(tok, before + before_bytes - n, x, n, after[0]);
    return x == '\n' && cuts_behind_line(tok, before, before_bytes, after, after_bytes);
}
