/* tokenizer_load.c -- tokenizer.json -> the parts of a tokenizer. docs/formats/tokenizer.md has the format.
 *
 * Nothing in the file is trusted: every type, id and name is checked before it is used, and memory grows
 * with the file, never with a number in it (ids: see MAX_ID).
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "data/tokenizer_impl.h"

#define MAX_FILE_BYTES ((size_t)1 << 29)
#define MAX_TOKEN_BYTES 65535
/* Ids may have holes, but not so many that the table of tokens is mostly holes. */
#define MAX_ID(num_tokens) (((int64_t)1 << 20) + 2 * (int64_t)(num_tokens))

typedef struct {
    orth_ctx *ctx;
    const char *name;
    const json_t *model, *vocab, *merges, *added;
    orth_tokenizer *tok;
    orth_bytes scratch;
} loader;

#define BAD(ld, ...) ORTH_FAIL((ld)->ctx, ORTH_ERR_DATA, __VA_ARGS__)

/* ---- tokens ---- */

static orth_status check_id(loader *ld, const json_t *v, const char *place, const char *content, int64_t *out)
{
    const int64_t limit = MAX_ID(json_object_size(ld->vocab) + json_array_size(ld->added));
    if (!json_is_integer(v))
        return BAD(ld, "%s: %s: the id of \"%.80s\" is not an integer", ld->name, place, content);
    const json_int_t id = json_integer_value(v);
    if (id < 0 || id >= limit)
        return BAD(ld, "%s: %s: the id of \"%.80s\" is %lld, not in [0, %lld)", ld->name, place, content,
                   (long long)id, (long long)limit);
    *out = id;
    return ORTH_OK;
}

/* One more than the largest id of the file. */
static orth_status count_ids(loader *ld, int64_t *out_num)
{
    int64_t num = 0, id;
    const char *content;
    json_t *v;
    json_object_foreach((json_t *)ld->vocab, content, v) {
        ORTH_TRY(check_id(ld, v, "model.vocab", content, &id));
        num = ORTH_MAX(num, id + 1);
    }
    for (size_t i = 0; i < json_array_size(ld->added); i++) {
        const json_t *a = json_array_get(ld->added, i), *c = json_object_get(a, "content");
        if (!json_is_string(c))
            return BAD(ld, "%s: added_tokens[%zu].content is not a string", ld->name, i);
        ORTH_TRY(check_id(ld, json_object_get(a, "id"), "added_tokens", json_string_value(c), &id));
        num = ORTH_MAX(num, id + 1);
    }
    *out_num = num;
    return ORTH_OK;
}

static orth_status put_token(loader *ld, const char *place, int64_t id, const char *content, size_t num_bytes,
                             uint32_t flags)
{
    if (num_bytes > MAX_TOKEN_BYTES)
        return BAD(ld, "%s: %s: token \"%.40s...\" has %zu bytes, the limit is %d", ld->name, place, content,
                   num_bytes, MAX_TOKEN_BYTES);
    const orth_token *there = &ld->tok->tokens[id];
    if (there->flags & ORTH_TOKEN_USED)
        return BAD(ld, "%s: %s: \"%.80s\" and \"%.80s\" both have id %lld", ld->name, place, there->content,
                   content, (long long)id);
    return orth_tokenizer_put(ld->ctx, ld->tok, id, content, num_bytes, flags);
}

static orth_status load_vocab(loader *ld)
{
    const char *content;
    json_t *v;
    json_object_foreach((json_t *)ld->vocab, content, v) {
        ORTH_TRY(
            put_token(ld, "model.vocab", json_integer_value(v), content, strlen(content), ORTH_TOKEN_MODEL));
    }
    return ORTH_OK;
}

static orth_status added_flags(loader *ld, const json_t *a, size_t i, uint32_t *out)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } keys[] = {{"special", ORTH_TOKEN_SPECIAL},         {"lstrip", ORTH_TOKEN_LSTRIP},
                {"rstrip", ORTH_TOKEN_RSTRIP},           {"single_word", ORTH_TOKEN_SINGLE_WORD},
                {"normalized", ORTH_TOKEN_NORMALIZED}};
    uint32_t flags = ORTH_TOKEN_ADDED;
    for (int k = 0; k < ORTH_COUNT(keys); k++) {
        const json_t *v = json_object_get(a, keys[k].key);
        if (!json_is_boolean(v))
            return BAD(ld, "%s: added_tokens[%zu].%s is not true or false", ld->name, i, keys[k].key);
        flags |= json_is_true(v) ? keys[k].flag : 0;
    }
    *out = flags;
    return ORTH_OK;
}

/* A token that the vocabulary has too must have the same id there. */
static orth_status load_added(loader *ld)
{
    orth_tokenizer *tok = ld->tok;
    for (size_t i = 0; i < json_array_size(ld->added); i++) {
        const json_t *a = json_array_get(ld->added, i), *c = json_object_get(a, "content");
        const char *content = json_string_value(c);
        const int64_t id = json_integer_value(json_object_get(a, "id"));
        uint32_t flags = 0;
        ORTH_TRY(added_flags(ld, a, i, &flags));
        if (json_string_length(c) == 0)
            continue; /* matches nothing; Hugging Face ignores it too */
        const json_t *known = json_object_get(ld->vocab, content);
        if (known && json_integer_value(known) != id)
            return BAD(ld, "%s: added_tokens[%zu]: \"%.80s\" has id %lld, but %lld in model.vocab", ld->name,
                       i, content, (long long)id, (long long)json_integer_value(known));
        if (known && (tok->tokens[id].flags & ORTH_TOKEN_ADDED))
            return BAD(ld, "%s: added_tokens[%zu]: \"%.80s\" is listed twice", ld->name, i, content);
        if (known)
            tok->tokens[id].flags |= flags;
        else
            ORTH_TRY(put_token(ld, "added_tokens", id, content, json_string_length(c), flags));
        tok->added[tok->num_added++] = (int32_t)id;
    }
    return ORTH_OK;
}

/* ---- merges ---- */

/* The two sides of a merge: ["a","b"], or "a b" as older files have it. They are left side by side in
 * scratch. */
static orth_status merge_sides(loader *ld, size_t i, size_t *out_left, size_t *out_right)
{
    const json_t *m = json_array_get(ld->merges, i);
    const char *a, *b;
    size_t left, right;
    if (json_is_string(m)) {
        const char *s = json_string_value(m), *space = strchr(s, ' ');
        if (!space || strchr(space + 1, ' '))
            return BAD(ld, "%s: model.merges[%zu]: \"%.80s\" is not two tokens with one space between",
                       ld->name, i, s);
        a = s;
        left = (size_t)(space - s);
        b = space + 1;
        right = strlen(b);
    } else {
        const json_t *ja = json_array_get(m, 0), *jb = json_array_get(m, 1);
        if (json_array_size(m) != 2 || !json_is_string(ja) || !json_is_string(jb))
            return BAD(ld, "%s: model.merges[%zu] is neither \"a b\" nor [\"a\", \"b\"]", ld->name, i);
        a = json_string_value(ja);
        left = json_string_length(ja);
        b = json_string_value(jb);
        right = json_string_length(jb);
    }
    ld->scratch.num = 0;
    ORTH_TRY(orth_bytes_append(ld->ctx, &ld->scratch, a, left));
    ORTH_TRY(orth_bytes_append(ld->ctx, &ld->scratch, b, right));
    *out_left = left;
    *out_right = right;
    return ORTH_OK;
}

static orth_status merge_token(loader *ld, size_t i, const orth_strmap *vocab, const char *content,
                               size_t num_bytes, int32_t *out)
{
    *out = orth_strmap_find(vocab, content, num_bytes);
    if (*out < 0)
        return BAD(ld, "%s: model.merges[%zu]: token \"%.*s\" is not in the vocabulary", ld->name, i,
                   (int)ORTH_MIN(num_bytes, 80), content);
    return ORTH_OK;
}

static orth_status load_merges_with(loader *ld, const orth_strmap *vocab)
{
    orth_tokenizer *tok = ld->tok;
    for (size_t i = 0; i < json_array_size(ld->merges); i++) {
        size_t left = 0, right = 0;
        ORTH_TRY(merge_sides(ld, i, &left, &right));
        orth_merge m = {0};
        ORTH_TRY(merge_token(ld, i, vocab, ld->scratch.v, left, &m.left));
        ORTH_TRY(merge_token(ld, i, vocab, ld->scratch.v + left, right, &m.right));
        ORTH_TRY(merge_token(ld, i, vocab, ld->scratch.v, left + right, &m.id));
        tok->merges[tok->num_merges++] = m;
    }
    return ORTH_OK;
}

static orth_status load_merges(loader *ld)
{
    orth_strmap vocab;
    ORTH_TRY(orth_strmap_init(ld->ctx, &vocab, (int64_t)json_object_size(ld->vocab)));
    orth_status status = ORTH_OK;
    for (int64_t id = 0; id < ld->tok->num_ids && status == ORTH_OK; id++) {
        const orth_token *t = &ld->tok->tokens[id];
        if (t->flags & ORTH_TOKEN_MODEL)
            status = orth_strmap_put(ld->ctx, &vocab, t->content, t->content_bytes, (int32_t)id);
    }
    if (status == ORTH_OK)
        status = load_merges_with(ld, &vocab);
    orth_strmap_free(ld->ctx, &vocab);
    return status;
}

/* ---- the model's options and the other sections ---- */

static orth_status model_flag(loader *ld, const char *key, bool *out)
{
    const json_t *v = json_object_get(ld->model, key);
    *out = json_is_true(v);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return BAD(ld, "%s: model.%s is not true or false", ld->name, key);
    return ORTH_OK;
}

static orth_status check_model(loader *ld)
{
    const char *type = json_string_value(json_object_get(ld->model, "type"));
    /* Files of tokenizers before 0.9 name no type. */
    if (type && strcmp(type, "BPE") != 0)
        return BAD(ld, "%s: model.type \"%.60s\" is not supported (BPE)", ld->name, type);
    if (!json_is_object(ld->vocab))
        return BAD(ld, "%s: model.vocab is not an object", ld->name);
    if (!json_is_array(ld->merges))
        return BAD(ld, "%s: model.merges is not a list", ld->name);
    if (ld->added && !json_is_null(ld->added) && !json_is_array(ld->added))
        return BAD(ld, "%s: added_tokens is not a list", ld->name);
    static const char *const absent[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < ORTH_COUNT(absent); i++) {
        const json_t *v = json_object_get(ld->model, absent[i]);
        if (v && !json_is_null(v) && json_string_length(v) + !json_is_string(v) > 0)
            return BAD(ld, "%s: model.%s is set: not supported", ld->name, absent[i]);
    }
    const json_t *dropout = json_object_get(ld->model, "dropout");
    if (dropout && !json_is_null(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0.0))
        return BAD(ld, "%s: model.dropout is set: not supported", ld->name);
    return ORTH_OK;
}

static orth_status load_model(loader *ld)
{
    ORTH_TRY(model_flag(ld, "fuse_unk", &ld->tok->fuse_unk));
    ORTH_TRY(model_flag(ld, "ignore_merges", &ld->tok->ignore_merges));
    ORTH_TRY(model_flag(ld, "byte_fallback", &ld->tok->byte_fallback));
    const json_t *unk = json_object_get(ld->model, "unk_token");
    if (unk && !json_is_null(unk)) {
        const json_t *id = json_is_string(unk) ? json_object_get(ld->vocab, json_string_value(unk)) : NULL;
        if (!id)
            return BAD(ld, "%s: model.unk_token is not a token of model.vocab", ld->name);
        ld->tok->unk = (int32_t)json_integer_value(id);
    }
    return ORTH_OK;
}

static orth_status keep_section(loader *ld, const json_t *root, const char *key, const char **out)
{
    const json_t *section = json_object_get(root, key);
    if (!section || json_is_null(section))
        return ORTH_OK;
    char *text = json_dumps(section, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return ORTH_FAIL(ld->ctx, ORTH_ERR_NOMEM, "tokenizer: no memory to keep section %s", key);
    *out = orth_arena_printf(ld->ctx, &ld->tok->arena, "%s", text);
    free(text); /* jansson's own allocation */
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}

static orth_status load_root(loader *ld, const json_t *root)
{
    if (!json_is_object(root))
        return BAD(ld, "%s: not a JSON object", ld->name);
    ld->model = json_object_get(root, "model");
    if (!json_is_object(ld->model))
        return BAD(ld, "%s: model is not an object: this is no tokenizer.json", ld->name);
    ld->vocab = json_object_get(ld->model, "vocab");
    ld->merges = json_object_get(ld->model, "merges");
    ld->added = json_object_get(root, "added_tokens");
    ORTH_TRY(check_model(ld));
    int64_t num_ids = 0;
    ORTH_TRY(count_ids(ld, &num_ids));
    ORTH_TRY(orth_tokenizer_new(ld->ctx, &ld->tok, num_ids, (int64_t)json_array_size(ld->merges),
                                (int64_t)json_array_size(ld->added)));
    ORTH_TRY(load_model(ld));
    ORTH_TRY(load_vocab(ld));
    ORTH_TRY(load_added(ld));
    ORTH_TRY(load_merges(ld));
    ORTH_TRY(keep_section(ld, root, "normalizer", &ld->tok->normalizer_json));
    ORTH_TRY(keep_section(ld, root, "pre_tokenizer", &ld->tok->pre_tokenizer_json));
    ORTH_TRY(keep_section(ld, root, "post_processor", &ld->tok->post_processor_json));
    ORTH_TRY(keep_section(ld, root, "decoder", &ld->tok->decoder_json));
    return orth_tokenizer_finish(ld->ctx, ld->tok, ld->name);
}

orth_status orth_tokenizer_parse(orth_ctx *ctx, orth_tokenizer **out, const char *json, size_t num_bytes,
                                 const char *name)
{
    if (num_bytes > MAX_FILE_BYTES)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %zu bytes; the limit is %zu", name, num_bytes,
                         MAX_FILE_BYTES);
    const char *foreign = orth_foreign_tokenizer(json, num_bytes);
    if (foreign[0])
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s", name, foreign);
    json_error_t error;
    json_t *root = json_loadb(json ? json : "", num_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root && error.text[0] == '\0') /* its tables got no memory */
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory to read its JSON", name);
    if (!root)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s:%d:%d: %s", name, error.line, error.column, error.text);
    loader ld = {.ctx = ctx, .name = name};
    orth_status status = load_root(&ld, root);
    json_decref(root);
    orth_bytes_free(ctx, &ld.scratch);
    if (status == ORTH_OK)
        *out = ld.tok;
    else
        orth_tokenizer_free(ctx, ld.tok);
    return status;
}

static orth_status load_file(orth_ctx *ctx, orth_tokenizer **out, const char *path)
{
    orth_file_map map;
    ORTH_TRY(orth_file_map_open(ctx, &map, path));
    orth_status status = orth_tokenizer_parse(ctx, out, (const char *)map.data, map.size, path);
    orth_file_map_close(&map);
    return status;
}

/* tokenizer.json of `dir`, and what its other files say of special tokens. */
static orth_status load_from(orth_ctx *ctx, orth_tokenizer **out, const char *dir)
{
    orth_special_tokens special = {0};
    orth_tokenizer *tok = NULL;
    char *file = orth_path_join(ctx, dir, "tokenizer.json");
    if (!file)
        return ORTH_ERR_NOMEM;
    const char *hint = "";
    orth_status status = ORTH_OK;
    if (!orth_path_exists(file))
        status = orth_foreign_in_folder(ctx, dir, &hint);
    if (status == ORTH_OK && hint[0])
        status = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: no tokenizer.json, but %s", dir, hint);
    if (status == ORTH_OK)
        status = load_file(ctx, &tok, file);
    orth_mem_free(ctx, file);
    if (status == ORTH_OK)
        status = orth_special_tokens_read(ctx, &special, dir, tok);
    if (status == ORTH_OK) {
        tok->special = special;
        *out = tok;
    } else
        orth_tokenizer_free(ctx, tok);
    return status;
}

orth_status orth_tokenizer_load(orth_ctx *ctx, orth_tokenizer **out, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strcmp(path, "bytes") == 0)
        return orth_tokenizer_bytes(ctx, out);
    if (orth_path_is_dir(path))
        return load_from(ctx, out, path);
    if (strcmp(name, "tokenizer.json") != 0)
        return load_file(ctx, out, path);
    char *dir = slash ? orth_mem_printf(ctx, "%.*s", (int)(name - path), path) : orth_mem_strdup(ctx, ".");
    if (!dir)
        return ORTH_ERR_NOMEM;
    orth_status status = load_from(ctx, out, dir);
    orth_mem_free(ctx, dir);
    return status;
}
