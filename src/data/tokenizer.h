/* tokenizer.h -- BPE tokenizers, of bytes and of characters: Hugging Face tokenizer.json in and out, encoding;
 * training of byte-level ones.
 *
 * Sources: Sennrich et al., "Neural machine translation of rare words with subword units",
 * arXiv:1508.07909; Radford et al., "Language models are unsupervised multitask learners" (the byte
 * alphabet and the GPT-2 pattern). What of tokenizer.json is read and written: docs/formats/tokenizer.md.
 *
 * Text is bytes. Well-formed UTF-8 gets the ids that Hugging Face `tokenizers` gives with
 * add_special_tokens=False (post-processor templates are kept for saving and never applied). Each byte
 * that is not part of a well-formed sequence is a piece by itself, encoded as that byte; the text
 * between two such bytes is encoded as if it stood alone.
 *
 * A tokenizer in use is immutable: any number of threads may use it at once, each through an orth_encoder of
 * its own. The ctx of a call is the calling thread's own (the workers of a pool share none: give each
 * one made by orth_ctx_init(&w, 1)), and what one ctx allocated is freed with the same ctx.
 */
#ifndef ORTH_DATA_TOKENIZER_H
#define ORTH_DATA_TOKENIZER_H

#include "base/ctx.h"
#include "data/special_tokens.h"

typedef struct orth_tokenizer orth_tokenizer; /* opaque, immutable */
typedef struct orth_encoder orth_encoder;     /* opaque: word cache and scratch of one thread */

/* Growable outputs; zero-initialised: ready. Calls append. */
typedef struct {
    int32_t *v;
    int64_t num, cap;
} orth_ids;
typedef struct {
    char *v;
    size_t num, cap;
} orth_bytes;
void orth_ids_free(orth_ctx *ctx, orth_ids *ids);       /* zeroes *ids: ready again */
void orth_bytes_free(orth_ctx *ctx, orth_bytes *bytes);
orth_status orth_bytes_append(orth_ctx *ctx, orth_bytes *bytes, const void *data, size_t num_bytes); /* ORTH_ERR_NOMEM */

/* --- making one; free with orth_tokenizer_free. *out is set only on success. --- */

/* `path` names a tokenizer.json, a folder that holds one, or is the word "bytes" (orth_tokenizer_bytes). What the
 * folder of a file called tokenizer.json says of end-of-text and other special tokens is read too (special_tokens.h).
 * ORTH_ERR_IO; ORTH_ERR_DATA with path and place for a damaged file or a kind that is not supported. */
orth_status orth_tokenizer_load(orth_ctx *ctx, orth_tokenizer **out, const char *path);
/* The same from memory; `name` stands for the path in messages. */
orth_status orth_tokenizer_parse(orth_ctx *ctx, orth_tokenizer **out, const char *json, size_t num_bytes,
                                 const char *name);
/* 256 single bytes (id = byte) and "<|endoftext|>" (256): no file, no merges, no training. */
orth_status orth_tokenizer_bytes(orth_ctx *ctx, orth_tokenizer **out);
void orth_tokenizer_free(orth_ctx *ctx, orth_tokenizer *tok); /* NULL is fine */

/* Which pattern cuts text into words. */
typedef enum {
    ORTH_TOKENIZER_GPT2 = 0, /* ByteLevel's own pattern */
    ORTH_TOKENIZER_LLAMA3,   /* up to three digits together */
    ORTH_TOKENIZER_QWEN      /* digits alone, NFC */
} orth_tokenizer_kind;

#define ORTH_TOKENIZER_LEAST_VOCAB 257 /* of one that is trained */

typedef struct {
    int64_t vocab_size;       /* all tokens: 256 bytes, merges, eos. At least ORTH_TOKENIZER_LEAST_VOCAB. */
    int64_t min_frequency;    /* pairs seen less often are not merged; 0: 2 */
    orth_tokenizer_kind kind;
    const char *eos;          /* NULL: "<|endoftext|>" */
} orth_tokenizer_train_options;

typedef struct {
    const char *data;         /* a document, or many with their own separation */
    size_t num_bytes;
} orth_text_span;

/* Learns merges from all spans, on all threads of ctx->pool. The result depends on the spans only, not on
 * the number of threads, and equals that of Hugging Face's BpeTrainer on the same documents (ties: the
 * smaller pair of ids). eos has the last id. A text with too few distinct pairs gives a smaller vocabulary.
 * ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_tokenizer_train(orth_ctx *ctx, orth_tokenizer **out, const orth_text_span *spans,
                                 int64_t num_spans, const orth_tokenizer_train_options *options);

/* --- writing --- */

/* A tokenizer.json that Hugging Face `tokenizers` loads and that encodes the same. */
orth_status orth_tokenizer_save(orth_ctx *ctx, const orth_tokenizer *tok, const char *path);
/* The text of that file, appended to *out. */
orth_status orth_tokenizer_write(orth_ctx *ctx, const orth_tokenizer *tok, orth_bytes *out);

/* --- asking --- */

/* One more than the largest id: what a model's vocabulary must hold at least. */
int64_t orth_tokenizer_vocab_size(const orth_tokenizer *tok);
int64_t orth_tokenizer_num_merges(const orth_tokenizer *tok);
/* The tokens that end, begin and pad a text: as the folder of tokenizer.json names them. Where it names no end of text:
 * the special token "<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>" or "<eos>", the first of these there is, or
 * else the only special token there is. */
const orth_special_tokens *orth_tokenizer_special(const orth_tokenizer *tok);
/* The one that ends documents; -1: none. */
int32_t orth_tokenizer_eos(const orth_tokenizer *tok);
/* Before others use `tok`: other special tokens than those it was loaded with. */
void orth_tokenizer_set_special(orth_tokenizer *tok, const orth_special_tokens *special);
/* Before others use `tok`: these contents are its end-of-text tokens, the first ends documents. n = 0 changes nothing.
 * ORTH_ERR_ARG for one that the tokenizer does not have. */
orth_status orth_tokenizer_name_eos(orth_ctx *ctx, orth_tokenizer *tok, const char *const *contents, int n);
/* Id of a token by its content as tokenizer.json spells it; -1: no such token. */
int32_t orth_tokenizer_id(const orth_tokenizer *tok, const char *content);
/* The content of a token, as above, not terminated; NULL and 0 for ids outside the vocabulary or unused in it. */
const char *orth_tokenizer_content(const orth_tokenizer *tok, int32_t id, size_t *out_bytes);
/* The bytes that an id stands for; NULL and 0 for ids outside the vocabulary or unused in it. */
const char *orth_tokenizer_token(const orth_tokenizer *tok, int32_t id, size_t *out_bytes);
bool orth_tokenizer_is_special(const orth_tokenizer *tok, int32_t id);
/* XXH64 of everything that decides how text is encoded and decoded; equal after save and load. Shards
 * and checkpoints carry it, so that they are never read with another tokenizer. */
uint64_t orth_tokenizer_fingerprint(const orth_tokenizer *tok);
/* ORTH_ERR_DATA where `got`, the fingerprint of data.tokenizer=name, is not `want`, that of the tokenizer of the weights in `folder`. */
orth_status orth_tokenizer_require(orth_ctx *ctx, const char *name, uint64_t got, const char *folder, uint64_t want);
/* "gpt2", "llama3", "qwen", "bytes", "custom" (other patterns), or "characters" (the model sees characters, not bytes:
 * the kind of SentencePiece). */
const char *orth_tokenizer_kind_name(const orth_tokenizer *tok);

/* --- encoding and decoding --- */

/* An encoder keeps what it learned about words between calls; make one per thread and reuse it. `tok`
 * outlives it. ORTH_ERR_NOMEM. */
orth_status orth_encoder_create(orth_ctx *ctx, orth_encoder **out, const orth_tokenizer *tok);
void orth_encoder_free(orth_ctx *ctx, orth_encoder *enc); /* NULL is fine */
/* Appends the ids of text[num_bytes]. On failure ids->num is as before. ORTH_ERR_NOMEM; ORTH_ERR_DATA if a
 * custom pattern takes too many steps. */
orth_status orth_encoder_encode(orth_ctx *ctx, orth_encoder *enc, orth_ids *ids, const char *text,
                                size_t num_bytes);

/* Where a part of a text stands; zero-initialised: it is the whole text. */
typedef struct {
    bool continues;             /* something comes before it: no space is put before it, and none is stripped there */
    bool goes_on;               /* something follows: no space is stripped at its end */
} orth_text_part;
/* The same, of a part of a text. The parts together are what one call gives if the cuts between them are neutral. */
orth_status orth_encoder_encode_part(orth_ctx *ctx, orth_encoder *enc, orth_ids *ids, const char *text,
                                     size_t num_bytes, orth_text_part part);
/* Whether the cut between `before` and `after`, which stand side by side in a text, is known to be neutral: both are at least a byte,
 * and as much of them as there is. Many cuts are neutral of which this is not known. */
bool orth_tokenizer_cuts(const orth_tokenizer *tok, const char *before, size_t before_bytes, const char *after,
                         size_t after_bytes);

/* One call's worth of orth_encoder_encode, for short texts. */
orth_status orth_tokenizer_encode(orth_ctx *ctx, const orth_tokenizer *tok, orth_ids *ids, const char *text,
                                  size_t num_bytes);
/* Appends the bytes of the ids; special tokens appear as their content unless skip_special.
 * ORTH_ERR_DATA for an id outside the vocabulary; out->num is then as before. */
orth_status orth_tokenizer_decode(orth_ctx *ctx, const orth_tokenizer *tok, orth_bytes *out,
                                  const int32_t *ids, int64_t num_ids, bool skip_special);

/* How far a text was decoded; zero-initialised: it begins. The first tokens of a text may stand for less than later
 * ones: tokenizers of the kind of SentencePiece drop the space before the first word. */
typedef struct {
    int64_t num_tokens, num_stripped;
    bool begun;                 /* some text was given out */
} orth_decoding;
/* The same, of a text that comes in parts: the parts together are what one call gives. *at moves on, unless the call
 * fails. */
orth_status orth_tokenizer_decode_on(orth_ctx *ctx, const orth_tokenizer *tok, orth_decoding *at, orth_bytes *out,
                                     const int32_t *ids, int64_t num_ids, bool skip_special);

#endif
