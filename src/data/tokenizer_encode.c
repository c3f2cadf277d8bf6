/* tokenizer_encode.c -- text -> well-formed parts -> added tokens and the rest -> words -> ids.
 *
 * Text repeats its words, so an encoder remembers them. Two tables, both without effect on results:
 *   short words  up to 16 bytes that gave up to 3 ids: the key is the entry, two entries per cache line,
 *                the older of the two is replaced
 *   long words   the others up to LONG_MAX bytes; emptied when full
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "data/tokenizer_impl.h"

#define SHORT_BYTES 16
#define SHORT_IDS 3
#define LONG_MAX_BYTES 1024
#define WORDS_AT_ONCE 256
#define ROUNDS_PER_CHECK 1024    /* of WORDS_AT_ONCE; then a signal is looked for, also within a document */

typedef struct {
    uint64_t lo, hi;            /* the word, zeros behind it */
    int32_t ids[SHORT_IDS];
    uint16_t num_bytes;         /* 0: free */
    uint16_t num_ids;
} short_entry;

typedef struct {
    uint64_t hash;
    uint32_t key, key_bytes;    /* place in `keys`; key_bytes = 0: free */
    uint32_t ids, num_ids;      /* place in `ids` */
} long_entry;

struct orth_encoder {
    const orth_tokenizer *tok;
    orth_scan_kind scan;        /* NONE: words come from the splitter */
    short_entry *shorts;        /* [short_mask + 1], pairs of entries */
    uint64_t short_mask;
    long_entry *longs;          /* [long_mask + 1] */
    uint64_t long_mask;
    int64_t num_longs;
    orth_bytes keys;
    orth_ids long_ids;
    orth_splitter splitter;
    orth_bytes normal[2];
    const char *text;           /* where the text that is being encoded begins */
    const char *joins_before, *joins_behind; /* where that text is joined to others: its begin and its end, or NULL */
    const char *plain_joins;    /* the former, normalized; NULL: not in what is being encoded now */
    orth_bpe_scratch scratch;
};

static orth_status encoder_create(orth_ctx *ctx, orth_encoder **out, const orth_tokenizer *tok,
                                  int short_log2, int long_log2)
{
    orth_encoder *enc = ORTH_NEW(ctx, orth_encoder);
    if (!enc)
        return ORTH_ERR_NOMEM;
    enc->tok = tok;
    enc->scan = orth_stages_single_scan(tok);
    enc->short_mask = ((uint64_t)1 << short_log2) - 1;
    enc->long_mask = ((uint64_t)1 << long_log2) - 1;
    enc->shorts = ORTH_NEW_ARRAY(ctx, short_entry, enc->short_mask + 1);
    enc->longs = ORTH_NEW_ARRAY(ctx, long_entry, enc->long_mask + 1);
    const orth_status status = enc->shorts && enc->longs ? ORTH_OK : ORTH_ERR_NOMEM;
    if (status != ORTH_OK) {
        orth_encoder_free(ctx, enc);
        return status;
    }
    *out = enc;
    return ORTH_OK;
}

orth_status orth_encoder_create(orth_ctx *ctx, orth_encoder **out, const orth_tokenizer *tok)
{
    return encoder_create(ctx, out, tok, 16, 15); /* 2 MB, 0.75 MB */
}

void orth_encoder_free(orth_ctx *ctx, orth_encoder *enc)
{
    if (!enc)
        return;
    orth_mem_free(ctx, enc->shorts);
    orth_mem_free(ctx, enc->longs);
    orth_bytes_free(ctx, &enc->keys);
    orth_ids_free(ctx, &enc->long_ids);
    orth_splitter_free(ctx, &enc->splitter);
    orth_bytes_free(ctx, &enc->normal[0]);
    orth_bytes_free(ctx, &enc->normal[1]);
    orth_mem_free(ctx, enc->scratch.block);
    orth_mem_free(ctx, enc);
}

/* ---- words ---- */

/* Merges the word into *out, behind what is there, which has room for num_bytes more. */
static orth_status merge_word(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *word,
                              size_t num_bytes)
{
    const int64_t n = orth_bpe_word(ctx, enc->tok, &enc->scratch, out->v + out->num, word, num_bytes);
    if (n < 0)
        return ORTH_ERR_NOMEM;
    out->num += n;
    return ORTH_OK;
}

static orth_status remember_long(orth_ctx *ctx, orth_encoder *enc, long_entry *e, uint64_t hash,
                                 const char *word, size_t num_bytes, const int32_t *ids, int64_t num_ids)
{
    *e = (long_entry){.hash = hash, .key = (uint32_t)enc->keys.num, .ids = (uint32_t)enc->long_ids.num,
                      .num_ids = (uint32_t)num_ids};
    ORTH_TRY(orth_bytes_append(ctx, &enc->keys, word, num_bytes));
    ORTH_TRY(orth_ids_reserve(ctx, &enc->long_ids, num_ids + 1)); /* never NULL, even without ids */
    memcpy(enc->long_ids.v + enc->long_ids.num, ids, (size_t)num_ids * sizeof *ids);
    enc->long_ids.num += num_ids;
    e->key_bytes = (uint32_t)num_bytes; /* last: it makes the entry valid */
    enc->num_longs++;
    return ORTH_OK;
}

static orth_status encode_long(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *word,
                               size_t num_bytes)
{
    if (num_bytes > LONG_MAX_BYTES) {
        if (num_bytes > INT32_MAX)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "tokenizer: a word of %zu bytes; the limit is %d", num_bytes,
                             INT32_MAX);
        return merge_word(ctx, enc, out, word, num_bytes);
    }
    if (2 * (uint64_t)enc->num_longs > enc->long_mask) {
        memset(enc->longs, 0, (enc->long_mask + 1) * sizeof *enc->longs);
        enc->num_longs = enc->long_ids.num = 0;
        enc->keys.num = 0;
    }
    const uint64_t hash = XXH3_64bits(word, num_bytes);
    uint64_t i = hash & enc->long_mask;
    for (; enc->longs[i].key_bytes != 0; i = (i + 1) & enc->long_mask) {
        const long_entry *e = &enc->longs[i];
        if (e->hash == hash && e->key_bytes == num_bytes &&
            memcmp(enc->keys.v + e->key, word, num_bytes) == 0) {
            memcpy(out->v + out->num, enc->long_ids.v + e->ids, e->num_ids * sizeof *out->v);
            out->num += e->num_ids;
            return ORTH_OK;
        }
    }
    const int64_t before = out->num;
    ORTH_TRY(merge_word(ctx, enc, out, word, num_bytes));
    return remember_long(ctx, enc, &enc->longs[i], hash, word, num_bytes, out->v + before, out->num - before);
}

/* The first n <= 16 bytes at p as two words, zeros behind. */
static inline void load_key(const char *p, const char *end, size_t n, uint64_t *lo, uint64_t *hi)
{
    static const uint64_t masks[9] = {0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF,
                                      0xFFFFFFFFFFFFFF, UINT64_MAX};
    uint64_t w[2] = {0, 0};
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (end - p >= SHORT_BYTES) {
        memcpy(w, p, sizeof w);
        *lo = w[0] & masks[ORTH_MIN(n, 8)];
        *hi = w[1] & masks[n < 8 ? 0 : n - 8];
        return;
    }
#else
    (void)masks;
    (void)end;
#endif
    memcpy(w, p, n);
    *lo = w[0];
    *hi = w[1];
}

/* `end`: up to where memory may be read. out has room for num_bytes more and for SHORT_IDS. */
static inline orth_status encode_word(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *word,
                                      size_t num_bytes, const char *end)
{
    if (num_bytes > SHORT_BYTES)
        return encode_long(ctx, enc, out, word, num_bytes);
    uint64_t lo, hi;
    load_key(word, end, num_bytes, &lo, &hi);
    const uint64_t h = (lo ^ (hi * 0x9E3779B97F4A7C15u >> 7) ^ num_bytes << 56) * 0xD6E8FEB86659FD93u;
    short_entry *e = &enc->shorts[(h >> 40) & enc->short_mask & ~(uint64_t)1];
    for (int way = 0; way < 2; way++, e++) {
        if (e->lo == lo && e->hi == hi && e->num_bytes == num_bytes) {
            memcpy(out->v + out->num, e->ids, sizeof e->ids); /* all three: the spare ones are overwritten */
            out->num += e->num_ids;
            return ORTH_OK;
        }
    }
    const int64_t before = out->num;
    const orth_status status = encode_long(ctx, enc, out, word, num_bytes);
    if (status != ORTH_OK || out->num - before > SHORT_IDS)
        return status;
    e -= 2;
    e[1] = e[0];
    *e = (short_entry){.lo = lo, .hi = hi, .num_bytes = (uint16_t)num_bytes,
                       .num_ids = (uint16_t)(out->num - before)};
    memcpy(e->ids, out->v + before, (size_t)(out->num - before) * sizeof *e->ids);
    return ORTH_OK;
}

/* ---- text without added tokens ---- */

static orth_status encode_scanned(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *p,
                                  const char *end)
{
    const char *ends[WORDS_AT_ONCE];
    for (int64_t round = 1; p < end; round++) {
        if (round % ROUNDS_PER_CHECK == 0)
            ORTH_TRY(orth_ctx_check_stop(ctx));
        const int n = orth_scan_words(enc->scan, enc->tok->classes, p, end, ends, WORDS_AT_ONCE);
        /* A byte gives at most one id. */
        ORTH_TRY(orth_ids_reserve(ctx, out, ends[n - 1] - p + SHORT_IDS));
        for (int i = 0; i < n; p = ends[i++])
            ORTH_TRY(encode_word(ctx, enc, out, p, (size_t)(ends[i] - p), end));
    }
    return ORTH_OK;
}

/* A piece of characters: the parts that merges cannot leave. With ignore_merges, the whole piece may be a token. */
static orth_status encode_chars(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *p, const char *end)
{
    for (const char *stop; p < end; p = stop) {
        ORTH_TRY(orth_ctx_check_stop(ctx));
        stop = enc->tok->ignore_merges ? end : orth_cut(enc->tok, p, end);
        ORTH_TRY(encode_word(ctx, enc, out, p, (size_t)(stop - p), end));
    }
    return ORTH_OK;
}

static orth_status encode_plain(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *p,
                                const char *end)
{
    if (enc->scan != ORTH_SCAN_NONE)
        return encode_scanned(ctx, enc, out, p, end);
    orth_splitter *s = &enc->splitter;
    ORTH_TRY(orth_splitter_run(ctx, s, enc->tok, p, (size_t)(end - p), p == enc->text, p == enc->plain_joins));
    for (int64_t i = 0; i < s->in.num; i++) {
        const orth_piece *w = &s->in.v[i];
        ORTH_TRY(orth_ids_reserve(ctx, out, (int64_t)w->num_bytes + SHORT_IDS));
        if (enc->tok->byte_level)
            ORTH_TRY(encode_word(ctx, enc, out, w->p, w->num_bytes, w->p + w->num_bytes));
        else
            ORTH_TRY(encode_chars(ctx, enc, out, w->p, w->p + w->num_bytes));
    }
    return ORTH_OK;
}

/* ---- added tokens ---- */

static int class_before(const uint8_t *classes, const char *p, const char *start, const char **out_at)
{
    int n;
    const char *q = p - 1;
    while (q > start && ((unsigned char)*q & 0xC0) == 0x80)
        q--;
    *out_at = q;
    return orth_char_class(classes, orth_utf8_at((const unsigned char *)q, &n));
}

static int class_after(const uint8_t *classes, const char *p, int *n)
{
    return orth_char_class(classes, orth_utf8_at((const unsigned char *)p, n));
}

/* Whether a token at [from, to) of text [start, end) stands where its flags allow; widens it over the white
 * space it strips, to the left not beyond `done`: what the token before has stripped is gone. Then a match within that is empty. */
static bool fit_token(const orth_tokenizer *tok, uint32_t flags, const char *start, const char *end,
                      const char *done, const char **from, const char **to)
{
    const uint8_t *classes = tok->classes;
    const char *at;
    int n;
    if (flags & ORTH_TOKEN_SINGLE_WORD) {
        if (*from > start && (class_before(classes, *from, start, &at) & ORTH_CHAR_WORD))
            return false;
        if (*to < end && (class_after(classes, *to, &n) & ORTH_CHAR_WORD))
            return false;
    }
    if (flags & ORTH_TOKEN_LSTRIP) {
        *from = ORTH_MAX(*from, done);
        while (*from > done && (class_before(classes, *from, start, &at) & ORTH_CHAR_SPACE))
            *from = at;
    }
    if (flags & ORTH_TOKEN_RSTRIP) {
        while (*to < end && (class_after(classes, *to, &n) & ORTH_CHAR_SPACE))
            *to += n;
    }
    return true;
}

typedef orth_status (*rest_fn)(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *p,
                               const char *end);

/* Emits the tokens of the trie, and gives what lies between to `rest`. */
static orth_status encode_around(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const orth_trie *trie,
                                 rest_fn rest, const char *start, const char *end)
{
    const char *done = start, *p = start, *from, *to;
    int32_t id;
    while (p < end && orth_trie_find(trie, p, end, &from, &to, &id)) {
        p = to; /* the next match begins here, even within white space that this one strips */
        if (!fit_token(enc->tok, enc->tok->tokens[id].flags, start, end, done, &from, &to))
            continue;
        if (from >= to) /* dropped, as in `tokenizers`, which fails where even from > to */
            continue;
        if (from > done)
            ORTH_TRY(rest(ctx, enc, out, done, from));
        ORTH_TRY(orth_ids_reserve(ctx, out, 1));
        out->v[out->num++] = id;
        done = to;
    }
    return done < end ? rest(ctx, enc, out, done, end) : ORTH_OK;
}

static orth_status encode_normal(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *p,
                                 const char *end)
{
    size_t num_bytes = (size_t)(end - p);
    const orth_text_part part = {.continues = p == enc->joins_before, .goes_on = end == enc->joins_behind};
    ORTH_TRY(orth_normalize(ctx, enc->tok, &enc->splitter.matcher, enc->normal, &p, &num_bytes, part));
    enc->plain_joins = part.continues ? p : NULL;
    return encode_around(ctx, enc, out, &enc->tok->normalized_added, encode_plain, p, p + num_bytes);
}

/* ---- all of a text ---- */

static orth_status encode_text(orth_ctx *ctx, orth_encoder *enc, orth_ids *out, const char *p,
                               const char *end)
{
    while (p < end) {
        const size_t n = orth_utf8_valid_prefix((const unsigned char *)p, (const unsigned char *)end);
        enc->text = p;
        if (n > 0)
            ORTH_TRY(encode_around(ctx, enc, out, &enc->tok->raw_added, encode_normal, p, p + n));
        p += n;
        if (p < end) { /* a byte that is no character: by itself */
            ORTH_TRY(orth_ids_reserve(ctx, out, 1 + SHORT_IDS));
            ORTH_TRY(encode_word(ctx, enc, out, p, 1, end));
            p++;
        }
    }
    return ORTH_OK;
}

orth_status orth_encoder_encode(orth_ctx *ctx, orth_encoder *enc, orth_ids *ids, const char *text,
                                size_t num_bytes)
{
    return orth_encoder_encode_part(ctx, enc, ids, text, num_bytes, (orth_text_part){0});
}

orth_status orth_encoder_encode_part(orth_ctx *ctx, orth_encoder *enc, orth_ids *ids, const char *text,
                                     size_t num_bytes, orth_text_part part)
{
    const int64_t before = ids->num;
    enc->joins_before = part.continues ? text : NULL;
    enc->joins_behind = part.goes_on ? text + num_bytes : NULL;
    const orth_status status = num_bytes ? encode_text(ctx, enc, ids, text, text + num_bytes) : ORTH_OK;
    if (status != ORTH_OK)
        ids->num = before;
    return status;
}

orth_status orth_tokenizer_encode(orth_ctx *ctx, const orth_tokenizer *tok, orth_ids *ids, const char *text,
                                  size_t num_bytes)
{
    orth_encoder *enc;
    ORTH_TRY(encoder_create(ctx, &enc, tok, 8, 8));
    const orth_status status = orth_encoder_encode(ctx, enc, ids, text, num_bytes);
    orth_encoder_free(ctx, enc);
    return status;
}
