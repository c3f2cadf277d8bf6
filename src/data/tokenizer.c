/* tokenizer.c -- building a tokenizer from its parts, asking it. */
#include "data/tokenizer.h"

#include <inttypes.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state on the stack */
#include <xxhash.h>

#include "data/tokenizer_impl.h"

/* ---- growable outputs ---- */

orth_status orth_ids_reserve(orth_ctx *ctx, orth_ids *ids, int64_t extra)
{
    if (ids->cap - ids->num >= extra)
        return ORTH_OK;
    const int64_t cap = ORTH_MAX(ids->num + extra, 2 * ids->cap);
    int32_t *v = orth_mem_realloc(ctx, ids->v, (size_t)cap * sizeof *v);
    if (!v)
        return ORTH_ERR_NOMEM;
    ids->v = v;
    ids->cap = cap;
    return ORTH_OK;
}

orth_status orth_bytes_reserve(orth_ctx *ctx, orth_bytes *bytes, size_t extra)
{
    if (bytes->cap - bytes->num >= extra)
        return ORTH_OK;
    const size_t cap = ORTH_MAX(bytes->num + extra, 2 * bytes->cap);
    char *v = orth_mem_realloc(ctx, bytes->v, cap);
    if (!v)
        return ORTH_ERR_NOMEM;
    bytes->v = v;
    bytes->cap = cap;
    return ORTH_OK;
}

orth_status orth_bytes_append(orth_ctx *ctx, orth_bytes *bytes, const void *data, size_t num_bytes)
{
    ORTH_TRY(orth_bytes_reserve(ctx, bytes, num_bytes));
    if (num_bytes > 0)
        memcpy(bytes->v + bytes->num, data, num_bytes);
    bytes->num += num_bytes;
    return ORTH_OK;
}

void orth_ids_free(orth_ctx *ctx, orth_ids *ids)
{
    orth_mem_free(ctx, ids->v);
    memset(ids, 0, sizeof *ids);
}

void orth_bytes_free(orth_ctx *ctx, orth_bytes *bytes)
{
    orth_mem_free(ctx, bytes->v);
    memset(bytes, 0, sizeof *bytes);
}

/* ---- the byte-level alphabet: a printable character for each byte ---- */

static uint32_t byte_char(unsigned byte)
{
    if ((byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE)
        return byte;
    /* The others, in order, are U+0100 and up. */
    return 256 + (byte <= ' ' ? byte : byte <= 0xA0 ? byte - 0x7F + 33 : 67);
}

int orth_byte_spell(unsigned char byte, char out[2])
{
    const uint32_t c = byte_char(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    return 2;
}

int64_t orth_byte_unspell(const char *content, size_t num_bytes, char *out)
{
    const unsigned char *p = (const unsigned char *)content, *end = p + num_bytes;
    int64_t num = 0;
    while (p < end) {
        int n;
        const uint32_t c = orth_utf8_at(p, &n);
        int byte = -1;
        if (c < 256 && byte_char(c) == c)
            byte = (int)c;
        else if (c >= 256 && c <= 256 + ' ')
            byte = (int)c - 256;
        else if (c >= 256 + 33 && c < 256 + 67)
            byte = (int)c - 256 - 33 + 0x7F;
        else if (c == 256 + 67)
            byte = 0xAD;
        if (byte < 0)
            return -1;
        out[num++] = (char)byte;
        p += n;
    }
    return num;
}

void orth_byte_order(unsigned char out[256])
{
    int num = 0;
    for (uint32_t c = 0; c < 256 + 68; c++) {
        for (unsigned b = 0; b < 256; b++) {
            if (byte_char(b) == c)
                out[num++] = (unsigned char)b;
        }
    }
}

/* ---- building ---- */

orth_status orth_tokenizer_new(orth_ctx *ctx, orth_tokenizer **out, int64_t num_ids, int64_t num_merges,
                               int64_t num_added)
{
    orth_tokenizer *tok = ORTH_NEW(ctx, orth_tokenizer);
    if (!tok)
        return ORTH_ERR_NOMEM;
    tok->num_ids = num_ids;
    tok->special = ORTH_NO_SPECIAL_TOKENS;
    tok->unk = -1;
    tok->normalizer_json = tok->pre_tokenizer_json = tok->post_processor_json = tok->decoder_json = "null";
    tok->tokens = ORTH_ARENA_ARRAY(ctx, &tok->arena, orth_token, num_ids);
    tok->merges = ORTH_ARENA_ARRAY(ctx, &tok->arena, orth_merge, num_merges);
    tok->added = ORTH_ARENA_ARRAY(ctx, &tok->arena, int32_t, num_added);
    if (!tok->tokens || !tok->merges || !tok->added) {
        orth_tokenizer_free(ctx, tok);
        return ORTH_ERR_NOMEM;
    }
    *out = tok;
    return ORTH_OK;
}

void orth_tokenizer_free(orth_ctx *ctx, orth_tokenizer *tok)
{
    if (!tok)
        return;
    orth_stages_free(tok);
    orth_normalizers_free(tok);
    orth_mem_free(ctx, tok->joins.keys);
    orth_strmap_free(ctx, &tok->by_content);
    orth_strmap_free(ctx, &tok->by_bytes);
    orth_mem_free(ctx, tok->pairs.entries);
    orth_mem_free(ctx, tok->raw_added.nodes);
    orth_mem_free(ctx, tok->normalized_added.nodes);
    orth_arena_release(ctx, &tok->arena);
    orth_mem_free(ctx, tok);
}

char *orth_tokenizer_text(orth_ctx *ctx, orth_tokenizer *tok, size_t num_bytes)
{
    const size_t block = (size_t)64 << 10;
    if (num_bytes > tok->text_left) {
        char *p = orth_arena_alloc(ctx, &tok->arena, ORTH_MAX(num_bytes, block));
        if (!p || num_bytes > block / 4)
            return p;
        tok->text = p;
        tok->text_left = block;
    }
    char *p = tok->text;
    tok->text += num_bytes;
    tok->text_left -= num_bytes;
    return p;
}

orth_status orth_tokenizer_put(orth_ctx *ctx, orth_tokenizer *tok, int64_t id, const char *content,
                               size_t num_bytes, uint32_t flags)
{
    char *copy = orth_tokenizer_text(ctx, tok, num_bytes + 1);
    if (!copy)
        return ORTH_ERR_NOMEM;
    memcpy(copy, content, num_bytes);
    copy[num_bytes] = 0;
    tok->tokens[id] = (orth_token){.content = copy, .bytes = copy, .content_bytes = (uint32_t)num_bytes,
                                   .num_bytes = (uint32_t)num_bytes, .flags = flags | ORTH_TOKEN_USED};
    return ORTH_OK;
}

static void hash_string(XXH64_state_t *h, const char *s, uint64_t num_bytes)
{
    XXH64_update(h, &num_bytes, sizeof num_bytes); /* the length first: no two lists of strings look alike */
    if (num_bytes > 0)
        XXH64_update(h, s, num_bytes);
}

/* What not all tokenizers have: nothing is added for the others, whose fingerprints stay as they were before these were read. */
static void hash_more(XXH64_state_t *h, const orth_tokenizer *tok)
{
    for (int i = 0; i < tok->num_normalizers && !tok->only_nfc; i++) {
        const orth_normalizer *n = &tok->normalizers[i];
        const int32_t fields[] = {n->type, n->left, n->right, n->literal};
        XXH64_update(h, fields, sizeof fields);
        hash_string(h, n->pattern.text, n->pattern.num_bytes);
        hash_string(h, n->content, n->content_bytes);
    }
    for (int i = 0; i < tok->num_stages; i++) {
        const int32_t fields[] = {tok->stages[i].prepend, tok->stages[i].cuts};
        if (tok->stages[i].type == ORTH_STAGE_METASPACE)
            XXH64_update(h, fields, sizeof fields);
    }
    const int32_t model[] = {tok->byte_level, tok->byte_fallback};
    if (!tok->byte_level)
        XXH64_update(h, model, sizeof model);
}

static uint64_t compute_fingerprint(const orth_tokenizer *tok)
{
    XXH64_state_t h;
    XXH64_reset(&h, 0);
    const int32_t head[] = {(int32_t)tok->num_ids, (int32_t)tok->num_merges, tok->unk, tok->fuse_unk,
                            tok->ignore_merges, tok->only_nfc, tok->num_stages};
    XXH64_update(&h, head, sizeof head);
    for (int i = 0; i < tok->num_stages; i++) {
        const orth_stage *s = &tok->stages[i];
        const int32_t fields[] = {s->type, s->behavior, s->invert, s->literal, s->individual_digits,
                                  s->add_prefix_space};
        XXH64_update(&h, fields, sizeof fields);
        hash_string(&h, s->pattern.text, s->pattern.num_bytes);
    }
    for (int64_t id = 0; id < tok->num_ids; id++) {
        const uint32_t flags = tok->tokens[id].flags & ~(uint32_t)ORTH_TOKEN_SPELLED;
        XXH64_update(&h, &flags, sizeof flags);
        hash_string(&h, tok->tokens[id].content, tok->tokens[id].content_bytes);
    }
    XXH64_update(&h, tok->merges, (size_t)tok->num_merges * sizeof *tok->merges);
    hash_more(&h, tok);
    return XXH64_digest(&h);
}

/* The only special token; -1: none or several. */
static int32_t only_special(const orth_tokenizer *tok)
{
    int32_t only = -1;
    for (int32_t id = 0; id < tok->num_ids; id++) {
        if (!(tok->tokens[id].flags & ORTH_TOKEN_SPECIAL))
            continue;
        if (only >= 0)
            return -1;
        only = id;
    }
    return only;
}

/* What a tokenizer.json by itself tells: a well-known name. A single token between documents also begins them. */
static orth_special_tokens guess_special(const orth_tokenizer *tok)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<eos>"};
    orth_special_tokens s = ORTH_NO_SPECIAL_TOKENS;
    const int32_t only = only_special(tok);
    for (int i = 0; i < ORTH_COUNT(names) && s.num_eos == 0; i++) {
        const int32_t id = orth_tokenizer_id(tok, names[i]);
        if (id < 0 || !(tok->tokens[id].flags & ORTH_TOKEN_SPECIAL))
            continue;
        orth_special_tokens_add_eos(&s, id, false);
        s.bos = i == 0 ? id : -1;
    }
    if (s.num_eos == 0 && only >= 0)
        orth_special_tokens_add_eos(&s, only, false);
    if (only >= 0)
        s.bos = only;
    return s;
}

orth_status orth_tokenizer_finish(orth_ctx *ctx, orth_tokenizer *tok, const char *name)
{
    ORTH_TRY(orth_char_classes_create(ctx, &tok->arena, &tok->classes));
    ORTH_TRY(orth_normalizers_parse(ctx, tok, name));
    ORTH_TRY(orth_stages_parse(ctx, tok, name));
    ORTH_TRY(orth_tokenizer_derive(ctx, tok, name));
    tok->special = guess_special(tok);
    tok->fingerprint = compute_fingerprint(tok);
    return ORTH_OK;
}

static orth_status fill_bytes(orth_ctx *ctx, orth_tokenizer *tok)
{
    static const char eos[] = "<|endoftext|>";
    for (int b = 0; b < 256; b++) {
        char spelled[2];
        const int n = orth_byte_spell((unsigned char)b, spelled);
        ORTH_TRY(orth_tokenizer_put(ctx, tok, b, spelled, (size_t)n, ORTH_TOKEN_MODEL));
    }
    ORTH_TRY(orth_tokenizer_put(ctx, tok, 256, eos, sizeof eos - 1, ORTH_TOKEN_ADDED | ORTH_TOKEN_SPECIAL));
    tok->added[0] = 256;
    tok->num_added = 1;
    tok->pre_tokenizer_json = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                              "\"use_regex\":false}";
    tok->decoder_json = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
                        "\"use_regex\":true}";
    return orth_tokenizer_finish(ctx, tok, "bytes");
}

orth_status orth_tokenizer_bytes(orth_ctx *ctx, orth_tokenizer **out)
{
    orth_tokenizer *tok;
    ORTH_TRY(orth_tokenizer_new(ctx, &tok, 257, 0, 1));
    orth_status status = fill_bytes(ctx, tok);
    if (status == ORTH_OK)
        *out = tok;
    else
        orth_tokenizer_free(ctx, tok);
    return status;
}

/* ---- asking ---- */

int64_t orth_tokenizer_vocab_size(const orth_tokenizer *tok)
{
    return tok->num_ids;
}

int64_t orth_tokenizer_num_merges(const orth_tokenizer *tok)
{
    return tok->num_merges;
}

const orth_special_tokens *orth_tokenizer_special(const orth_tokenizer *tok)
{
    return &tok->special;
}

int32_t orth_tokenizer_eos(const orth_tokenizer *tok)
{
    return orth_special_tokens_eos(&tok->special);
}

void orth_tokenizer_set_special(orth_tokenizer *tok, const orth_special_tokens *special)
{
    tok->special = *special;
}

orth_status orth_tokenizer_name_eos(orth_ctx *ctx, orth_tokenizer *tok, const char *const *contents, int n)
{
    orth_special_tokens s = tok->special;
    if (n == 0)
        return ORTH_OK;
    if (n > ORTH_MAX_EOS)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%d end-of-text tokens are named; the limit is %d", n, ORTH_MAX_EOS);
    s.num_eos = 0;
    for (int i = 0; i < n; i++) {
        const int32_t id = orth_tokenizer_id(tok, contents[i]);
        if (id < 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the end-of-text token \"%.80s\" is no token of the tokenizer", contents[i]);
        orth_special_tokens_add_eos(&s, id, false);
    }
    tok->special = s;
    return ORTH_OK;
}

int32_t orth_tokenizer_id(const orth_tokenizer *tok, const char *content)
{
    return orth_strmap_find(&tok->by_content, content, strlen(content));
}

static bool is_used(const orth_tokenizer *tok, int64_t id)
{
    return id >= 0 && id < tok->num_ids && (tok->tokens[id].flags & ORTH_TOKEN_USED);
}

const char *orth_tokenizer_content(const orth_tokenizer *tok, int32_t id, size_t *out_bytes)
{
    const bool used = is_used(tok, id);
    *out_bytes = used ? tok->tokens[id].content_bytes : 0;
    return used ? tok->tokens[id].content : NULL;
}

const char *orth_tokenizer_token(const orth_tokenizer *tok, int32_t id, size_t *out_bytes)
{
    const bool used = is_used(tok, id);
    *out_bytes = used ? tok->tokens[id].num_bytes : 0;
    return used ? tok->tokens[id].bytes : NULL;
}

bool orth_tokenizer_is_special(const orth_tokenizer *tok, int32_t id)
{
    return is_used(tok, id) && (tok->tokens[id].flags & ORTH_TOKEN_SPECIAL);
}

uint64_t orth_tokenizer_fingerprint(const orth_tokenizer *tok)
{
    return tok->fingerprint;
}

orth_status orth_tokenizer_require(orth_ctx *ctx, const char *name, uint64_t got, const char *folder, uint64_t want)
{
    if (got == want)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "data.tokenizer=%s is tokenizer %016" PRIx64 ", the one of the weights in %s is %016" PRIx64, name, got, folder, want);
}

const char *orth_tokenizer_kind_name(const orth_tokenizer *tok)
{
    static const char *const names[] = {"custom", "gpt2", "llama3", "qwen"};
    if (!tok->byte_level)
        return "characters";
    if (tok->num_merges == 0 && tok->num_stages == 1 && !tok->stages[0].cuts)
        return "bytes";
    return names[orth_stages_single_scan(tok)];
}
