/* corpus.c -- see corpus.h; dataset.json is described in docs/formats/shard.md. */
#include "data/corpus.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define DATASET_MAX_SHARDS 1000000

/* Member `name` of dataset.json as an integer in [low, high]. */
static orth_status get_int(orth_ctx *ctx, const json_t *object, const char *path, const char *name,
                           int64_t low, int64_t high, int64_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: '%s' is missing or not an integer", path, name);
    int64_t v = json_integer_value(value);
    if (v < low || v > high)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s=%" PRId64 " is not in [%" PRId64 ", %" PRId64 "]", path,
                         name, v, low, high);
    *out = v;
    return ORTH_OK;
}

/* 64-bit numbers are strings of 16 hexadecimal digits: JSON readers lose bits of large integers. */
static orth_status get_hex(orth_ctx *ctx, const json_t *object, const char *path, const char *name,
                           uint64_t *out)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s='%.40s' is not 16 hexadecimal digits", path, name,
                         text ? text : "");
    *out = strtoull(text, NULL, 16);
    return ORTH_OK;
}

/* A shard must be the file that dataset.json was written with, made by the same tokenizer. */
static orth_status check_entry(orth_ctx *ctx, const orth_dataset *d, const orth_shard *s, const json_t *entry)
{
    int64_t tokens = 0, docs = 0;
    uint64_t hash = 0;
    ORTH_TRY(get_int(ctx, entry, s->path, "tokens", 1, INT64_MAX, &tokens));
    ORTH_TRY(get_int(ctx, entry, s->path, "documents", 1, INT64_MAX, &docs));
    ORTH_TRY(get_hex(ctx, entry, s->path, "header_xxh64", &hash));
    const orth_shard_info *i = &s->info;
    if (tokens != i->num_tokens || docs != i->num_docs || hash != i->header_hash)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: is not the shard that dataset.json names: %" PRId64 " tokens, %" PRId64
                         " documents, header %016" PRIx64 " there; %" PRId64 ", %" PRId64 ", %016" PRIx64
                         " here",
                         s->path, tokens, docs, hash, i->num_tokens, i->num_docs, i->header_hash);
    if (i->fingerprint != d->fingerprint)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: tokenizer %016" PRIx64 " made it, the data set says %016" PRIx64, s->path,
                         i->fingerprint, d->fingerprint);
    if (i->vocab_size != d->vocab_size)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: vocab_size=%" PRId64 ", the data set says %" PRId64,
                         s->path, i->vocab_size, d->vocab_size);
    return ORTH_OK;
}

static orth_status open_entry(orth_ctx *ctx, const orth_dataset *d, orth_shard *out, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "file"));
    if (!name || !name[0] || strchr(name, '/'))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s/dataset.json: file='%.80s' is not the name of a file in the folder", d->path,
                         name ? name : "");
    char *path = orth_path_join(ctx, d->path, name);
    if (!path)
        return ORTH_ERR_NOMEM;
    orth_status status = orth_shard_open(ctx, out, path);
    orth_mem_free(ctx, path);
    ORTH_TRY(status);
    return check_entry(ctx, d, out, entry);
}

static orth_status open_split(orth_ctx *ctx, orth_dataset *d, orth_corpus *c, const json_t *root,
                              const char *name)
{
    const json_t *list = json_object_get(root, name);
    if (!json_is_array(list) || json_array_size(list) > DATASET_MAX_SHARDS)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s/dataset.json: '%s' is not a list of at most %d shards",
                         d->path, name, DATASET_MAX_SHARDS);
    const int n = (int)json_array_size(list);
    c->name = orth_path_join(ctx, d->path, name);
    c->shards = ORTH_NEW_ARRAY(ctx, orth_shard, n);
    c->first_token = ORTH_NEW_ARRAY(ctx, int64_t, n + 1);
    c->first_doc = ORTH_NEW_ARRAY(ctx, int64_t, n + 1);
    if (!c->name || !c->shards || !c->first_token || !c->first_doc)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < n; i++) {
        c->num_shards = i + 1; /* before open: close releases what a failing open_entry left */
        ORTH_TRY(open_entry(ctx, d, &c->shards[i], json_array_get(list, (size_t)i)));
        const orth_shard_info *info = &c->shards[i].info;
        c->num_tokens += info->num_tokens;
        c->num_docs += info->num_docs;
        c->text_bytes += info->text_bytes;
        c->first_token[i + 1] = c->num_tokens;
        c->first_doc[i + 1] = c->num_docs;
    }
    return ORTH_OK;
}

static orth_status open_root(orth_ctx *ctx, orth_dataset *d, const json_t *root, const char *json_path)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, "orthant-dataset") != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: format='%.40s' is not 'orthant-dataset'", json_path,
                         format ? format : "");
    int64_t version = 0, eot = 0;
    ORTH_TRY(get_int(ctx, root, json_path, "version", 1, 1, &version));
    ORTH_TRY(get_int(ctx, root, json_path, "vocab_size", 1, INT32_MAX, &d->vocab_size));
    ORTH_TRY(get_int(ctx, root, json_path, "eot_token", 0, d->vocab_size - 1, &eot));
    ORTH_TRY(get_hex(ctx, root, json_path, "tokenizer_fingerprint", &d->fingerprint));
    d->eot_token = (int32_t)eot;
    ORTH_TRY(open_split(ctx, d, &d->train, root, "train"));
    ORTH_TRY(open_split(ctx, d, &d->valid, root, "valid"));
    if (d->train.num_shards == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: 'train' lists no shard: a data set has at least 1",
                         json_path);
    return ORTH_OK;
}

static orth_status open_json(orth_ctx *ctx, orth_dataset *d, const char *json_path, const char *json, size_t n)
{
    json_error_t error;
    json_t *root = json_loadb(n ? json : "", n, JSON_REJECT_DUPLICATES, &error);
    if (!root && error.text[0] == '\0') /* its tables got no memory */
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory to read its JSON", json_path);
    if (!root)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s:%d:%d: %s", json_path, error.line, error.column, error.text);
    orth_status status = open_root(ctx, d, root, json_path);
    json_decref(root);
    return status;
}

bool orth_dataset_exists(const char *path)
{
    char json_path[PATH_MAX];
    const int n = snprintf(json_path, sizeof json_path, "%s/dataset.json", path);
    return n < (int)sizeof json_path && orth_path_exists(json_path);
}

orth_status orth_dataset_parse(orth_ctx *ctx, orth_dataset **out, const char *path, const char *json, size_t num_bytes)
{
    orth_dataset *d = ORTH_NEW(ctx, orth_dataset);
    if (!d)
        return ORTH_ERR_NOMEM;
    orth_status status = ORTH_ERR_NOMEM;
    d->path = orth_mem_strdup(ctx, path);
    char *json_path = d->path ? orth_path_join(ctx, path, "dataset.json") : NULL;
    if (json_path)
        status = open_json(ctx, d, json_path, json, num_bytes);
    orth_mem_free(ctx, json_path);
    if (status != ORTH_OK) {
        orth_dataset_close(ctx, d);
        return status;
    }
    *out = d;
    return ORTH_OK;
}

orth_status orth_dataset_open(orth_ctx *ctx, orth_dataset **out, const char *path)
{
    orth_file_map map = {0};
    char *json_path = orth_path_join(ctx, path, "dataset.json");
    if (!json_path)
        return ORTH_ERR_NOMEM;
    orth_status status = orth_file_map_open(ctx, &map, json_path);
    orth_mem_free(ctx, json_path);
    if (status == ORTH_OK)
        status = orth_dataset_parse(ctx, out, path, (const char *)map.data, map.size);
    orth_file_map_close(&map);
    return status;
}

static void close_split(orth_ctx *ctx, orth_corpus *c)
{
    for (int i = 0; i < c->num_shards; i++)
        orth_shard_close(ctx, &c->shards[i]);
    orth_mem_free(ctx, c->shards);
    orth_mem_free(ctx, c->first_token);
    orth_mem_free(ctx, c->first_doc);
    orth_mem_free(ctx, (char *)c->name);
}

void orth_dataset_close(orth_ctx *ctx, orth_dataset *d)
{
    if (!d)
        return;
    close_split(ctx, &d->train);
    close_split(ctx, &d->valid);
    orth_mem_free(ctx, d->path);
    orth_mem_free(ctx, d);
}

orth_status orth_dataset_verify(orth_ctx *ctx, const orth_dataset *d)
{
    const orth_corpus *const splits[] = {&d->train, &d->valid};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < splits[k]->num_shards; i++)
            ORTH_TRY(orth_shard_verify(ctx, &splits[k]->shards[i]));
    return ORTH_OK;
}

/* The shard that holds `token`, 0 <= token < num_tokens. */
static int find_shard(const orth_corpus *c, int64_t token)
{
    int low = 0, high = c->num_shards - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (c->first_token[mid] <= token)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

orth_status orth_corpus_read(orth_ctx *ctx, const orth_corpus *c, int32_t *out, int64_t first, int64_t n)
{
    if (n <= 0)
        return ORTH_OK;
    if (first < 0 || n > c->num_tokens || first > c->num_tokens - n)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "%s: tokens [%" PRId64 ", +%" PRId64 ") are not in [0, %" PRId64 ")", c->name, first,
                         n, c->num_tokens);
    for (int i = find_shard(c, first); n > 0; i++) {
        int64_t take = ORTH_MIN(n, c->first_token[i + 1] - first);
        ORTH_TRY(orth_shard_read(ctx, &c->shards[i], out, first - c->first_token[i], take));
        out += take;
        first += take;
        n -= take;
    }
    return ORTH_OK;
}

void orth_corpus_document(const orth_corpus *c, int64_t token, int64_t *start, int64_t *end)
{
    const int i = find_shard(c, token);
    const int64_t d = orth_shard_docs_up_to(&c->shards[i], token - c->first_token[i]);
    *start = c->first_token[i] + orth_shard_doc_start(&c->shards[i], d - 1);
    *end = c->first_token[i] + orth_shard_doc_start(&c->shards[i], d);
}

int64_t orth_corpus_docs_up_to(const orth_corpus *c, int64_t token)
{
    if (token >= c->num_tokens)
        return c->num_docs;
    const int i = find_shard(c, token);
    return c->first_doc[i] + orth_shard_docs_up_to(&c->shards[i], token - c->first_token[i]);
}
