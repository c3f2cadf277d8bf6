/* tokenizer_impl.h -- what the files of the tokenizer share; nobody else includes it.
 *
 *   tokenizer.c          lifetime, building, questions, decoding
 *   tokenizer_derive.c   what follows from the parts
 *   tokenizer_load.c     tokenizer.json -> builder calls
 *   tokenizer_foreign.c  what other files of tokenizers are called
 *   tokenizer_save.c     back to tokenizer.json
 *   tokenizer_tables.c   the two hash tables (strings, pairs) and the character classes
 *   tokenizer_added.c    finding added tokens in text
 *   tokenizer_normalize.c  normalizers: parsing and running them
 *   tokenizer_unicode.c  Unicode normal forms, lower case
 *   tokenizer_scan.c     the well-known patterns, by hand
 *   tokenizer_stages.c   pre-tokenizer stages from JSON
 *   tokenizer_split.c    running them
 *   tokenizer_pattern.c  any pattern, by Oniguruma; its header is its own
 *   tokenizer_properties.c  the character sets that patterns name
 *   tokenizer_decoder.c  the decoder section, ids -> text
 *   tokenizer_cut.c      where a text can be cut without a merge across
 *   tokenizer_neutral.c  where a text can be cut into parts that are encoded one by one
 *   tokenizer_bpe.c      one word -> ids
 *   tokenizer_encode.c   text -> pieces -> words -> ids
 *   tokenizer_train.c, tokenizer_count.c   learning merges from word counts; counting words
 */
#ifndef ORTH_DATA_TOKENIZER_IMPL_H
#define ORTH_DATA_TOKENIZER_IMPL_H

#include "base/arena.h"
#include "data/char_class.h"
#include "data/tokenizer.h"
#include "data/tokenizer_pattern.h"

/* ---- hash tables ---- */

/* Strings (not owned) to ids. */
typedef struct {
    const char *key;
    uint32_t key_bytes;
    int32_t id;
} orth_strmap_entry;
typedef struct {
    orth_strmap_entry *entries; /* key = NULL: free */
    int64_t num, mask;
} orth_strmap;

orth_status orth_strmap_init(orth_ctx *ctx, orth_strmap *m, int64_t expected);
void orth_strmap_free(orth_ctx *ctx, orth_strmap *m);
int32_t orth_strmap_find(const orth_strmap *m, const char *key, size_t key_bytes); /* -1: absent */
/* Adds or replaces. The table grows as needed. */
orth_status orth_strmap_put(orth_ctx *ctx, orth_strmap *m, const char *key, size_t key_bytes, int32_t id);

/* Pairs of ids to (rank, id of the merged token). Filled once, at its final size. */
typedef struct {
    uint64_t key;               /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank;
    int32_t id;
} orth_pairmap_entry;
typedef struct {
    orth_pairmap_entry *entries;
    uint64_t mask;
} orth_pairmap;

#define ORTH_NO_RANK UINT32_MAX

static inline uint64_t orth_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline uint64_t orth_pair_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15u;
    return key ^ key >> 32;
}

/* NULL if the pair does not merge. */
static inline const orth_pairmap_entry *orth_pairmap_find(const orth_pairmap *m, int32_t left, int32_t right)
{
    const uint64_t key = orth_pair_key(left, right);
    for (uint64_t i = orth_pair_hash(key) & m->mask;; i = (i + 1) & m->mask) {
        if (m->entries[i].key == key)
            return &m->entries[i];
        if (m->entries[i].key == UINT64_MAX)
            return NULL;
    }
}

/* ---- the tokenizer ---- */

enum {
    ORTH_TOKEN_USED = 1,        /* there is a token of this id */
    ORTH_TOKEN_MODEL = 2,       /* it is in the model's vocabulary */
    ORTH_TOKEN_ADDED = 4,       /* it is found in text before any splitting */
    ORTH_TOKEN_SPECIAL = 8,
    ORTH_TOKEN_LSTRIP = 16,
    ORTH_TOKEN_RSTRIP = 32,
    ORTH_TOKEN_SINGLE_WORD = 64,
    ORTH_TOKEN_NORMALIZED = 128,
    ORTH_TOKEN_SPELLED = 256,   /* its content is bytes, in the byte-level alphabet */
};

typedef struct {
    const char *content;        /* as tokenizer.json spells it; content_bytes and a zero byte */
    const char *bytes;          /* what it stands for */
    uint32_t content_bytes, num_bytes;
    uint32_t flags;
} orth_token;

typedef struct {
    int32_t left, right, id;
} orth_merge;

/* A set of added tokens as a tree of bytes; node 0 is the root. */
typedef struct {
    int32_t child, sibling;     /* node number, 0: none */
    int32_t id;                 /* token that ends here, -1: none */
    uint8_t byte;
} orth_trie_node;
typedef struct {
    orth_trie_node *nodes;
    int32_t num_nodes, cap_nodes;
    int32_t first[256];         /* child of the root by byte, 0: none */
    int only_first;             /* the one byte that all tokens start with, -1: several or no token */
} orth_trie;

typedef enum { ORTH_STAGE_SPLIT, ORTH_STAGE_BYTE_LEVEL, ORTH_STAGE_DIGITS, ORTH_STAGE_METASPACE } orth_stage_type;
typedef enum { ORTH_PREPEND_ALWAYS, ORTH_PREPEND_FIRST, ORTH_PREPEND_NEVER } orth_prepend_scheme;
typedef enum { /* names: tokenizer_split.c */
    ORTH_SPLIT_ISOLATED,
    ORTH_SPLIT_REMOVED,
    ORTH_SPLIT_CONTIGUOUS,
    ORTH_SPLIT_MERGED_WITH_PREVIOUS,
    ORTH_SPLIT_MERGED_WITH_NEXT,
} orth_split_behavior;
typedef enum { ORTH_SCAN_NONE, ORTH_SCAN_GPT2, ORTH_SCAN_LLAMA3, ORTH_SCAN_QWEN } orth_scan_kind;

/* One step of the pre-tokenizer: cuts every piece into smaller ones. */
typedef struct {
    orth_stage_type type;
    orth_split_behavior behavior;
    bool invert;
    bool literal;               /* the pattern is a plain string */
    bool individual_digits;     /* ORTH_STAGE_DIGITS */
    bool add_prefix_space;      /* ORTH_STAGE_BYTE_LEVEL; done before its pattern */
    bool cuts;                  /* there is a pattern */
    orth_prepend_scheme prepend; /* ORTH_STAGE_METASPACE, whose pattern is its replacement */
    orth_scan_kind scan;        /* not NONE: the pattern is this well-known one, every piece is a match */
    orth_pattern pattern;
} orth_stage;

typedef enum { /* names: tokenizer_normalize.c */
    ORTH_NORMALIZE_NFC,
    ORTH_NORMALIZE_NFD,
    ORTH_NORMALIZE_NFKC,
    ORTH_NORMALIZE_NFKD,
    ORTH_NORMALIZE_LOWERCASE,
    ORTH_NORMALIZE_STRIP,
    ORTH_NORMALIZE_PREPEND,
    ORTH_NORMALIZE_REPLACE,
} orth_normalizer_type;

/* One step of the normalizer: changes a text. */
typedef struct {
    orth_normalizer_type type;
    bool left, right;           /* STRIP */
    bool literal;               /* REPLACE: the pattern is a plain string */
    orth_pattern pattern;       /* REPLACE */
    const char *content;        /* PREPEND, REPLACE */
    size_t content_bytes;
} orth_normalizer;

#define ORTH_MAX_STEPS 16       /* of a normalizer, of a pre-tokenizer, of a decoder */

/* What the decoder section asks for, where a token is characters (byte-level ones are always bytes). */
typedef struct {
    struct {
        const char *from, *to;
    } replace[ORTH_MAX_STEPS];  /* in each token, in this order */
    int num_replace;
    bool byte_tokens;           /* <0x41> is the byte 0x41 */
    bool spaces;                /* there is no decoder: a space between tokens */
    bool metaspace_drops;       /* Metaspace: its character is nothing in the first token */
    const char *strip;          /* a character that is dropped at the start of the text, NULL: none */
    int64_t strip_max;          /* at most so often */
} orth_token_decoder;

/* Pairs of characters that stand side by side within a token that a merge makes. */
typedef struct {
    uint64_t *keys;             /* [mask + 1]; 0: free */
    uint64_t num, mask;
    uint8_t ascii[128][16];     /* the same for ASCII, a bit each */
} orth_char_pairs;

/* What is known of all places where a text may be cut without a change of its ids (tokenizer_neutral.c). */
typedef struct {
    enum { ORTH_NEUTRAL_NONE, ORTH_NEUTRAL_WORDS, ORTH_NEUTRAL_CHARS } kind; /* none are known; words of bytes end there; no merge crosses them */
    bool ascii_only;            /* the normalizer changes letters: only those of ASCII are looked at */
    bool in_tokens;             /* an added token holds white space behind another character */
    bool lines_in_tokens;       /* an added token holds another character behind white space */
    bool space_splits;          /* CHARS: a word begins at each space */
    bool newline_alone;         /* CHARS: a newline has no token, and the token of its byte merges with none */
    const char *space;          /* CHARS: what becomes of a space, one character */
    uint8_t ends[32], starts[32]; /* a bit for each byte: no cut behind it, and none behind a line in front of it, because of added tokens */
} orth_neutral;

struct orth_tokenizer {
    orth_arena arena;           /* all that is not listed as owned below */
    char *text;                 /* what is left of the arena's block for strings */
    size_t text_left;
    orth_token *tokens;         /* [num_ids] */
    int64_t num_ids;
    orth_merge *merges;         /* [num_merges], by rank */
    int64_t num_merges;
    int32_t *added;             /* [num_added] ids of added tokens, in the file's order */
    int64_t num_added;
    orth_special_tokens special;
    int32_t unk;                /* -1: none */
    bool fuse_unk, ignore_merges, byte_fallback;
    bool byte_level;            /* the model sees bytes, spelled as characters; otherwise characters */
    bool only_nfc;              /* the normalizer is NFC and nothing else */
    orth_normalizer *normalizers; /* [num_normalizers] */
    int num_normalizers;
    orth_stage *stages;         /* [num_stages] */
    int num_stages;
    orth_token_decoder decoder; /* not byte_level */
    /* Sections of tokenizer.json as compact JSON; "null" where there is none. */
    const char *normalizer_json, *pre_tokenizer_json, *post_processor_json, *decoder_json;

    /* Derived. Owned: maps, tries and compiled patterns. */
    int32_t byte_id[256];       /* token of a single byte (not byte_level: <0x41>), -1: none */
    int32_t ascii_id[128];      /* not byte_level: token of a character */
    orth_char_pairs joins;      /* not byte_level: where merges can happen */
    orth_strmap by_content;     /* all tokens */
    orth_strmap by_bytes;       /* tokens of the model; filled only if ignore_merges */
    orth_pairmap pairs;
    orth_trie raw_added, normalized_added; /* searched before, after normalization */
    orth_neutral neutral;
    uint8_t *classes;           /* [ORTH_CHAR_TABLE] */
    uint64_t fingerprint;
};

/* --- building (tokenizer.c): new, put all tokens, merges and sections, finish --- */

/* Room for num_ids ids, no token yet. */
orth_status orth_tokenizer_new(orth_ctx *ctx, orth_tokenizer **out, int64_t num_ids, int64_t num_merges,
                               int64_t num_added);
/* Sets token `id`, which is free; the content is copied. */
orth_status orth_tokenizer_put(orth_ctx *ctx, orth_tokenizer *tok, int64_t id, const char *content,
                               size_t num_bytes, uint32_t flags);
/* Parses the sections and derives the rest. `name` is for messages. */
orth_status orth_tokenizer_finish(orth_ctx *ctx, orth_tokenizer *tok, const char *name);

/* Room for a string of the tokenizer. The arena aligns every block to 64 bytes; short strings share one. NULL: no memory. */
char *orth_tokenizer_text(orth_ctx *ctx, orth_tokenizer *tok, size_t num_bytes);
/* What follows from normalizers, stages, tokens and merges (tokenizer_derive.c). `name` is for messages. */
orth_status orth_tokenizer_derive(orth_ctx *ctx, orth_tokenizer *tok, const char *name);

/* UTF-8 of the character that spells `byte` in the byte-level alphabet; returns its 1 or 2 bytes. */
int orth_byte_spell(unsigned char byte, char out[2]);
/* Bytes that a byte-level string stands for, into out[num_bytes]; -1 if some character is not in the
 * alphabet. */
int64_t orth_byte_unspell(const char *content, size_t num_bytes, char *out);
/* Bytes in the order of the characters that spell them, which is that of their ids in a trained file. */
void orth_byte_order(unsigned char out[256]);

/* --- parts --- */
orth_status orth_pairmap_init(orth_ctx *ctx, orth_pairmap *m, const orth_merge *merges, int64_t num_merges);

orth_status orth_trie_init(orth_ctx *ctx, orth_trie *t);
orth_status orth_trie_add(orth_ctx *ctx, orth_trie *t, const char *key, size_t num_bytes, int32_t id);
/* The token that is just this key; -1: none. */
int32_t orth_trie_get(const orth_trie *t, const char *key, size_t num_bytes);
/* Leftmost, then longest match in [p, end); false if there is none. */
bool orth_trie_find(const orth_trie *t, const char *p, const char *end, const char **out_start,
                    const char **out_end, int32_t *out_id);

/* Appends a normal form (NFC, NFD, NFKC, NFKD) of well-formed UTF-8 to *out, or, when text is its own normal form,
 * sets *out_same and appends nothing. ORTH_ERR_NOMEM. */
orth_status orth_normal_form(orth_ctx *ctx, const uint8_t *classes, orth_normalizer_type form, orth_bytes *out,
                             bool *out_same, const char *text, size_t num_bytes);
/* Appends the text in lower case, character by character. */
orth_status orth_lowercase(orth_ctx *ctx, orth_bytes *out, const char *text, size_t num_bytes);

/* tok->normalizers from the section's JSON. */
orth_status orth_normalizers_parse(orth_ctx *ctx, orth_tokenizer *tok, const char *name);
void orth_normalizers_free(orth_tokenizer *tok);
/* Runs all steps over *text, which then points into buffers[0] or [1], or stays. Nothing is put before, or taken from, a text that
 * continues; nor is anything taken from the end of one that goes on. */
orth_status orth_normalize(orth_ctx *ctx, const orth_tokenizer *tok, orth_matcher *matcher, orth_bytes buffers[2],
                           const char **text, size_t *num_bytes, orth_text_part part);

/* Writes where the words of well-formed UTF-8 [p, end) end, at most `max` of them, and returns how many;
 * fewer than max: the last ends at `end`. kind is not ORTH_SCAN_NONE. */
int orth_scan_words(orth_scan_kind kind, const uint8_t *classes, const char *p, const char *end,
                    const char **out_ends, int max);
/* Which scanner does what this pattern does. */
orth_scan_kind orth_scan_from_pattern(const char *pattern, size_t num_bytes);
const char *orth_scan_pattern(orth_scan_kind kind);

/* tok->stages and tok->byte_level from the section's JSON. */
orth_status orth_stages_parse(orth_ctx *ctx, orth_tokenizer *tok, const char *name);
void orth_stages_free(orth_tokenizer *tok);

/* tok->decoder from the section's JSON. */
orth_status orth_decoder_parse(orth_ctx *ctx, orth_tokenizer *tok, const char *name);
/* The byte of a content such as "<0x41>"; -1: it is not of that form. */
int orth_byte_token(const char *content, size_t num_bytes);
/* What a token of characters stands for, in the middle of a text: *content then points into buffers[0] or [1], or stays. */
orth_status orth_decoder_token(orth_ctx *ctx, const orth_token_decoder *d, orth_bytes buffers[2], const char **content,
                               size_t *num_bytes);

orth_status orth_char_pairs_init(orth_ctx *ctx, orth_char_pairs *pairs, const orth_tokenizer *tok);
/* End of the first part of [p, end) that merges cannot leave. */
const char *orth_cut(const orth_tokenizer *tok, const char *p, const char *end);
/* Whether no merge joins what ends with the character `a` and begins with `b`: both are tokens that stand side by side in none. */
bool orth_chars_part(const orth_tokenizer *tok, const char *a, size_t a_bytes, const char *b, size_t b_bytes);
/* tok->neutral, from all the rest. */
orth_status orth_neutral_derive(orth_ctx *ctx, orth_tokenizer *tok);
/* Token of the model that is this character; -1: none. */
int32_t orth_char_token(const orth_tokenizer *tok, const char *p, size_t num_bytes);

/* "" for what may be a tokenizer.json, otherwise what the file is and how to make one of it. */
const char *orth_foreign_tokenizer(const char *data, size_t num_bytes);
/* What a folder without tokenizer.json may have instead: *out_hint is "" or says so. ORTH_ERR_NOMEM. */
orth_status orth_foreign_in_folder(orth_ctx *ctx, const char *dir, const char **out_hint);

/* A piece of text on its way through the stages. */
typedef struct {
    const char *p;
    size_t num_bytes;
} orth_piece;
typedef struct {
    orth_piece *v;
    int64_t num, cap;
} orth_pieces;
/* What stages need besides the text; one per thread. Zero-initialised: ready. */
typedef struct {
    orth_pieces in, out;        /* the result is in `in` */
    orth_bytes changed[2];      /* text of pieces that a stage has changed; the next such stage uses the other */
    orth_matcher matcher;
} orth_splitter;
void orth_splitter_free(orth_ctx *ctx, orth_splitter *s);
/* Runs all stages over one text; s->in holds the words, valid until the next call. `first`: the whole text begins here. `continues`: the
 * text is a part that another one comes before, so that nothing is put before it. */
orth_status orth_splitter_run(orth_ctx *ctx, orth_splitter *s, const orth_tokenizer *tok, const char *text,
                              size_t num_bytes, bool first, bool continues);
/* The scanner that alone does what all stages do; NONE: there is no such. */
orth_scan_kind orth_stages_single_scan(const orth_tokenizer *tok);

/* Scratch for merging one word. */
typedef struct {
    void *block;                /* symbols and heap */
    size_t block_bytes;
} orth_bpe_scratch;
/* Writes the ids of one word to out[num_bytes]; returns how many, or -1 without memory. */
int64_t orth_bpe_word(orth_ctx *ctx, const orth_tokenizer *tok, orth_bpe_scratch *scratch, int32_t *out,
                      const char *word, size_t num_bytes);

/* Room for `extra` more. */
orth_status orth_ids_reserve(orth_ctx *ctx, orth_ids *ids, int64_t extra);
orth_status orth_bytes_reserve(orth_ctx *ctx, orth_bytes *bytes, size_t extra);

/* A JSON string with its quotes, appended. */
orth_status orth_json_put_string(orth_ctx *ctx, orth_bytes *out, const char *s, size_t num_bytes);

/* --- training: the distinct words of all spans and how often each occurs, in no particular order --- */
typedef struct {
    const char *word;           /* NULL: a free entry of the table */
    uint64_t hash;
    int64_t count;
    uint32_t num_bytes;
} orth_word;
typedef struct {
    orth_word *entries;         /* [mask + 1] */
    int64_t num, mask;
} orth_word_table;
typedef struct orth_word_counter orth_word_counter;

/* Counts on all threads of ctx->pool. Free with orth_word_counter_free. */
orth_status orth_words_count(orth_ctx *ctx, orth_word_counter **out, const orth_text_span *spans,
                             int64_t num_spans, orth_scan_kind scan, bool nfc);
const orth_word_table *orth_words_table(const orth_word_counter *counter);
void orth_word_counter_free(orth_ctx *ctx, orth_word_counter *counter);

#endif
