/* special_tokens.c -- see special_tokens.h. */
#include "data/special_tokens.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/files.h"
#include "data/tokenizer.h"

#define MAX_FILE_BYTES ((size_t)1 << 26)

int32_t orth_special_tokens_eos(const orth_special_tokens *s)
{
    return s->num_eos > 0 ? s->eos[0] : -1;
}

bool orth_special_tokens_ends(const orth_special_tokens *s, int32_t token)
{
    for (int i = 0; i < s->num_eos; i++)
        if (s->eos[i] == token)
            return true;
    return false;
}

void orth_special_tokens_add_eos(orth_special_tokens *s, int32_t token, bool first)
{
    int at = 0;
    while (at < s->num_eos && s->eos[at] != token)
        at++;
    if (!first) {
        if (at == s->num_eos && at < ORTH_MAX_EOS)
            s->eos[s->num_eos++] = token;
        return;
    }
    if (at == s->num_eos)
        at = s->num_eos < ORTH_MAX_EOS ? s->num_eos++ : ORTH_MAX_EOS - 1;
    memmove(s->eos + 1, s->eos, (size_t)at * sizeof *s->eos);
    s->eos[0] = token;
}

/* ---- one file ---- */

typedef enum { EOS, BOS, PAD, NUM_ROLES } role;

typedef struct {
    orth_ctx *ctx;
    const orth_tokenizer *tok;    /* or NULL */
    orth_special_tokens *out;
    bool ids;                     /* the file names ids, else contents */
    const char *path;
    const char *const *keys;      /* [NUM_ROLES] */
} reader;

static orth_status wrong(const reader *r, const char *key, const char *want)
{
    return ORTH_FAIL(r->ctx, ORTH_ERR_DATA, "%s: %s is not %s", r->path, key, want);
}

static bool known(const orth_tokenizer *tok, int32_t id)
{
    size_t n;
    return !tok || orth_tokenizer_token(tok, id, &n);
}

static const char *const id_keys[NUM_ROLES] = {"eos_token_id", "bos_token_id", "pad_token_id"};

/* -1: the tokenizer does not have it, or it says itself that there is none: folders for Transformers have "pad_token_id": -1. */
static orth_status read_id(const reader *r, const char *key, const json_t *v, int32_t *out)
{
    const double x = json_number_value(v); /* all numbers were read as reals: see orth_special_tokens_json */
    *out = -1;
    if (r->keys == id_keys && x < 0 && x == floor(x))
        return ORTH_OK;
    if (!json_is_number(v) || x < 0 || x > INT32_MAX || x != floor(x))
        return wrong(r, key, "a token's id, or a list of them");
    *out = (int32_t)x;
    if (!known(r->tok, *out)) {
        orth_log(r->ctx, ORTH_LOG_WARN, "tokenizer", "%s: %s=%" PRId32 " is no token of the tokenizer: left out", r->path, key,
                 *out);
        *out = -1;
    }
    return ORTH_OK;
}

/* A content, or an object that has it in "content". */
static orth_status read_content(const reader *r, const char *key, const json_t *v, int32_t *out)
{
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (!text)
        return wrong(r, key, "a token, or an object with its content");
    *out = r->tok ? orth_tokenizer_id(r->tok, text) : -1;
    if (r->tok && *out < 0)
        orth_log(r->ctx, ORTH_LOG_WARN, "tokenizer", "%s: %s=\"%.60s\" is no token of the tokenizer: left out", r->path, key,
                 text);
    return ORTH_OK;
}

static orth_status take(const reader *r, role which, const json_t *v)
{
    int32_t id = -1;
    ORTH_TRY(r->ids ? read_id(r, r->keys[which], v, &id) : read_content(r, r->keys[which], v, &id));
    if (id < 0)
        return ORTH_OK;
    if (which == EOS)
        orth_special_tokens_add_eos(r->out, id, false);
    else if (which == BOS && r->out->bos < 0)
        r->out->bos = id;
    else if (which == PAD && r->out->pad < 0)
        r->out->pad = id;
    return ORTH_OK;
}

static orth_status read_roles(const reader *r, const json_t *root, role first, role last)
{
    for (role which = first; which <= last; which++) {
        const json_t *v = json_object_get(root, r->keys[which]);
        if (!v || json_is_null(v))
            continue;
        const size_t n = which == EOS && json_is_array(v) ? json_array_size(v) : 1;
        for (size_t i = 0; i < n; i++)
            ORTH_TRY(take(r, which, json_is_array(v) ? json_array_get(v, i) : v));
    }
    return ORTH_OK;
}

/* JSON_DECODE_INT_AS_REAL: model_max_length is often 10^30. */
orth_status orth_special_tokens_json(orth_ctx *ctx, json_t **out, const char *path)
{
    char *text = NULL;
    size_t n = 0;
    json_error_t error;
    if (!orth_path_exists(path))
        return ORTH_OK;
    ORTH_TRY(orth_file_read(ctx, path, &text, &n));
    json_t *root = n <= MAX_FILE_BYTES ? json_loadb(text, n, JSON_DECODE_INT_AS_REAL, &error) : NULL;
    orth_mem_free(ctx, text);
    if (n > MAX_FILE_BYTES)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its %zu bytes are more than the %zu that such a file may have", path, n,
                         MAX_FILE_BYTES);
    if (!root && error.text[0] == '\0') /* its tables got no memory */
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory to read its JSON", path);
    if (!root)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s:%d:%d: not valid JSON: %s", path, error.line, error.column, error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its JSON is not an object", path);
    }
    *out = root;
    return ORTH_OK;
}

/* ---- a folder ---- */

static const char *const content_keys[NUM_ROLES] = {"eos_token", "bos_token", "pad_token"};
static const char *const data_keys[NUM_ROLES] = {"eos_tokens", "bos_token", "pad_token"};

enum { DATASET, TOKENIZER_CONFIG, SPECIAL_MAP, CONFIG, GENERATION, NUM_FILES };

static const struct {
    const char *name;
    bool ids;
    const char *const *keys;
} files[NUM_FILES] = {
    [DATASET] = {"dataset.json", true, data_keys},
    [TOKENIZER_CONFIG] = {"tokenizer_config.json", false, content_keys},
    [SPECIAL_MAP] = {"special_tokens_map.json", false, content_keys},
    [CONFIG] = {"config.json", true, id_keys},
    [GENERATION] = {"generation_config.json", true, id_keys},
};

typedef struct {
    char *path[NUM_FILES];
    json_t *root[NUM_FILES];      /* NULL: no such file */
} folder;

static orth_status open_folder(orth_ctx *ctx, folder *f, const char *dir)
{
    for (int i = 0; i < NUM_FILES; i++) {
        f->path[i] = orth_path_join(ctx, dir, files[i].name);
        if (!f->path[i])
            return ORTH_ERR_NOMEM;
        ORTH_TRY(orth_special_tokens_json(ctx, &f->root[i], f->path[i]));
    }
    return ORTH_OK;
}

static void close_folder(orth_ctx *ctx, folder *f)
{
    for (int i = 0; i < NUM_FILES; i++) {
        json_decref(f->root[i]);
        orth_mem_free(ctx, f->path[i]);
    }
}

static bool names(const folder *f, role which)
{
    bool found = false;
    for (int i = 0; i < NUM_FILES; i++)
        found = found || json_object_get(f->root[i], files[i].keys[which]);
    return found;
}

/* Where no file names an end of text, it is the tokenizer's own. So are the other tokens, of which null says that there are none. */
static void take_own(orth_special_tokens *s, const folder *f, const orth_special_tokens *own)
{
    const orth_special_tokens read = *s;
    *s = *own;
    if (names(f, BOS))
        s->bos = read.bos;
    if (names(f, PAD))
        s->pad = read.pad;
}

static orth_status read_folder(orth_ctx *ctx, orth_special_tokens *out, const folder *f, const orth_tokenizer *tok)
{
    reader r[NUM_FILES];
    for (int i = 0; i < NUM_FILES; i++) {
        r[i] = (reader){ctx, tok, out, files[i].ids, f->path[i], files[i].keys};
        ORTH_TRY(read_roles(&r[i], f->root[i], EOS, EOS));
    }
    ORTH_TRY(read_roles(&r[CONFIG], f->root[CONFIG], BOS, PAD));
    const bool own_pad = out->pad >= 0;
    for (int i = 0; i < NUM_FILES; i++)
        if (i != CONFIG)
            ORTH_TRY(read_roles(&r[i], f->root[i], BOS, PAD));
    if (!own_pad && out->pad == orth_special_tokens_eos(out))
        out->pad = -1;
    if (tok && out->num_eos == 0)
        take_own(out, f, orth_tokenizer_special(tok));
    return ORTH_OK;
}

orth_status orth_special_tokens_read(orth_ctx *ctx, orth_special_tokens *out, const char *dir, const orth_tokenizer *tok)
{
    folder f = {.path = {NULL}};
    orth_special_tokens found = ORTH_NO_SPECIAL_TOKENS;
    orth_status s = open_folder(ctx, &f, dir);
    if (s == ORTH_OK)
        s = read_folder(ctx, &found, &f, tok);
    close_folder(ctx, &f);
    if (s == ORTH_OK)
        *out = found;
    return s;
}
