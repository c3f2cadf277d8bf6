/* prepare.c -- see prepare.h.
 *
 *   read a batch of documents -> encode them on all threads -> write them in order -> next batch
 *
 * Each thread appends to a buffer of its own; a document remembers in whose buffer its tokens are.
 */
#include "data/prepare.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/rng.h"
#include "data/corpus.h"
#include "data/jsonl.h"
#include "data/prepare_output.h"

#define BATCH_BYTES ((size_t)8 << 20)
#define BATCH_DOCS 65536

typedef struct {
    orth_document doc;
    int worker;              /* in whose buffer the tokens are */
    int64_t first, num;      /* where; num = 0: nothing but white space */
    int64_t text_bytes;      /* decoded */
    orth_status status;
} batch_doc;

/* What one thread of the pool has to itself. */
typedef struct {
    orth_ctx ctx;
    bool ctx_ready;
    orth_encoder *encoder;
    orth_bytes text;         /* of a decoded JSONL line */
    orth_ids ids;            /* of all its documents of a batch */
} encode_worker;

typedef struct {
    const orth_prepare_options *options;
    const char *path;        /* of the input being read */
    bool jsonl;
    const char *field;
    int32_t eot;
    encode_worker *workers;  /* [num_workers] */
    int num_workers;
    batch_doc *docs;         /* [BATCH_DOCS] */
    int64_t num_docs;
} encoding;

/* ---- encoding ---- */

static bool is_blank(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r' || p[i] == '\n'))
        i++;
    return i == n;
}

static orth_status append_id(orth_ctx *ctx, orth_ids *ids, int32_t id)
{
    if (ids->num == ids->cap) {
        const int64_t cap = ORTH_MAX(1024, 2 * ids->cap);
        int32_t *v = orth_mem_realloc(ctx, ids->v, (size_t)cap * sizeof *v);
        if (!v)
            return ORTH_ERR_NOMEM;
        ids->v = v;
        ids->cap = cap;
    }
    ids->v[ids->num++] = id;
    return ORTH_OK;
}

static orth_status encode_document(const encoding *e, encode_worker *w, batch_doc *d)
{
    ORTH_TRY(orth_ctx_check_stop(&w->ctx));
    const char *text = d->doc.text;
    size_t n = d->doc.num_bytes;
    if (e->jsonl) {
        ORTH_TRY(orth_jsonl_text(&w->ctx, &w->text, text, n, e->field, e->path, d->doc.line_number));
        text = w->text.v;
        n = w->text.num;
        if (is_blank(text, n))
            return ORTH_OK;
    }
    ORTH_TRY(orth_encoder_encode(&w->ctx, w->encoder, &w->ids, text, n));
    ORTH_TRY(append_id(&w->ctx, &w->ids, e->eot));
    d->num = w->ids.num - d->first;
    d->text_bytes = (int64_t)n;
    return ORTH_OK;
}

static void encode_task(void *arg, int64_t index, int worker)
{
    encoding *e = arg;
    encode_worker *w = &e->workers[worker];
    batch_doc *d = &e->docs[index];
    d->worker = worker;
    d->first = w->ids.num;
    d->num = 0;
    d->text_bytes = 0;
    d->status = encode_document(e, w, d);
}

/* Encodes what was gathered and writes it in order. The first document that failed is the one reported: a
 * thread takes documents in ascending order, so the error its ctx kept is that of its first failure. */
static orth_status finish_batch(orth_ctx *ctx, encoding *e, orth_prepare_output *out)
{
    for (int i = 0; i < e->num_workers; i++)
        e->workers[i].ids.num = 0;
    orth_pool_run(ctx->pool, e->num_docs, encode_task, e);
    for (int64_t i = 0; i < e->num_docs; i++) {
        const batch_doc *d = &e->docs[i];
        const encode_worker *w = &e->workers[d->worker];
        if (d->status != ORTH_OK)
            return orth_fail(ctx, d->status, w->ctx.error.file, w->ctx.error.line, "%s",
                             w->ctx.error.message);
        if (d->num > 0)
            ORTH_TRY(orth_prepare_output_document(ctx, out, w->ids.v + d->first, d->num, d->text_bytes));
    }
    e->num_docs = 0;
    return ORTH_OK;
}

static orth_status encode_file(orth_ctx *ctx, encoding *e, orth_prepare_output *out, const orth_file_map *map)
{
    orth_documents docs = orth_documents_begin(e->path, e->options->separator, (const char *)map->data,
                                               map->size);
    e->jsonl = docs.kind == ORTH_DOCS_JSONL;
    const int64_t before = out->num_docs;
    size_t bytes = 0;
    for (orth_document d; orth_documents_next(&docs, &d);) {
        e->docs[e->num_docs++].doc = d;
        bytes += d.num_bytes;
        if (bytes >= BATCH_BYTES || e->num_docs == BATCH_DOCS) {
            ORTH_TRY(finish_batch(ctx, e, out));
            bytes = 0;
        }
    }
    ORTH_TRY(finish_batch(ctx, e, out));
    if (out->num_docs == before)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %zu bytes hold no document: %s", e->path, map->size,
                         map->size ? "there is nothing but white space" : "the file is empty");
    return ORTH_OK;
}

/* ---- setting up ---- */

static orth_status check_options(orth_ctx *ctx, const orth_prepare_options *o)
{
    if (o->num_inputs < 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data prepare: no input file");
    if (!(o->valid_fraction >= 0 && o->valid_fraction <= 0.9))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "valid_fraction=%g is not in [0, 0.9]", o->valid_fraction);
    if (o->shard_tokens < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "shard_tokens=%" PRId64 " is below 0", o->shard_tokens);
    if (orth_tokenizer_eos(o->tokenizer) < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "the tokenizer has no end-of-text token, which ends each document: name one by data.eos_token");
    for (int i = 0; i < o->num_inputs; i++)
        if (orth_path_is_dir(o->inputs[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: is a folder, inputs are text or JSONL files",
                             o->inputs[i]);
    if (!orth_path_exists(o->out_dir))
        return ORTH_OK;
    const bool ours = orth_dataset_exists(ctx, o->out_dir) || orth_path_is_empty_dir(o->out_dir);
    if (ctx->error.message[0])
        return ctx->error.code;
    if (!ours) /* somebody's own files */
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: exists already and is no prepared folder (without dataset.json): give "
                         "another", o->out_dir);
    if (!o->overwrite)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: exists already; --overwrite replaces it", o->out_dir);
    return ORTH_OK;
}

static orth_status start_worker(orth_ctx *ctx, const encoding *e, encode_worker *w)
{
    if (orth_ctx_init(&w->ctx, 1) != ORTH_OK)
        return ORTH_FAIL(ctx, w->ctx.error.code, "%s", w->ctx.error.message);
    w->ctx_ready = true;
    w->ctx.faults = ctx->faults;
    w->ctx.progress = ctx->progress;
    w->ctx.stop = ctx->stop;
    w->ctx.stop_user = ctx->stop_user;
    if (orth_encoder_create(&w->ctx, &w->encoder, e->options->tokenizer) != ORTH_OK)
        return ORTH_FAIL(ctx, w->ctx.error.code, "%s", w->ctx.error.message);
    return ORTH_OK;
}

static orth_status start(orth_ctx *ctx, encoding *e)
{
    const int n = orth_pool_num_threads(ctx->pool);
    e->docs = ORTH_NEW_ARRAY(ctx, batch_doc, BATCH_DOCS);
    e->workers = ORTH_NEW_ARRAY(ctx, encode_worker, n);
    if (!e->docs || !e->workers)
        return ORTH_ERR_NOMEM;
    for (; e->num_workers < n;)
        ORTH_TRY(start_worker(ctx, e, &e->workers[e->num_workers++]));
    return ORTH_OK;
}

static void stop(orth_ctx *ctx, encoding *e)
{
    for (int i = 0; i < e->num_workers; i++) {
        encode_worker *w = &e->workers[i];
        if (!w->ctx_ready)
            continue;
        orth_encoder_free(&w->ctx, w->encoder);
        orth_ids_free(&w->ctx, &w->ids);
        orth_bytes_free(&w->ctx, &w->text);
        orth_ctx_destroy(&w->ctx);
    }
    orth_mem_free(ctx, e->workers);
    orth_mem_free(ctx, e->docs);
}

static orth_status encode_all(orth_ctx *ctx, encoding *e, orth_prepare_output *out)
{
    ORTH_TRY(start(ctx, e));
    for (int i = 0; i < e->options->num_inputs; i++) {
        orth_file_map map = {0};
        e->path = e->options->inputs[i];
        ORTH_TRY(orth_file_map_open(ctx, &map, e->path));
        orth_status status = encode_file(ctx, e, out, &map);
        orth_file_map_close(&map);
        ORTH_TRY(status);
    }
    return ORTH_OK;
}

orth_status orth_prepare(orth_ctx *ctx, const orth_prepare_options *options, orth_prepare_result *out_result)
{
    ORTH_TRY(check_options(ctx, options));
    encoding e = {.options = options,
                  .field = options->jsonl_field ? options->jsonl_field : "text",
                  .eot = orth_tokenizer_eos(options->tokenizer)};
    orth_prepare_output out;
    orth_status status = orth_prepare_output_begin(ctx, &out, options);
    if (status == ORTH_OK)
        status = encode_all(ctx, &e, &out);
    stop(ctx, &e);
    if (status == ORTH_OK)
        status = orth_prepare_output_commit(ctx, &out);
    if (status == ORTH_OK && out_result)
        *out_result = out.result;
    orth_prepare_output_end(ctx, &out);
    return status;
}

/* ---- a tokenizer of its own ---- */

/* Copies documents, decoded, one after the other; spans keep offsets until the buffer stands still. */
typedef struct {
    char *text;
    size_t num, cap;
    orth_text_span *spans;
    int64_t num_spans, cap_spans;
    orth_bytes line;
} gathering;

static orth_status gather_text(orth_ctx *ctx, gathering *g, const char *text, size_t n)
{
    if (g->num + n > g->cap) {
        const size_t cap = ORTH_MAX(g->num + n, 2 * g->cap);
        char *fresh = orth_mem_realloc(ctx, g->text, cap);
        if (!fresh)
            return ORTH_ERR_NOMEM;
        g->text = fresh;
        g->cap = cap;
    }
    if (g->num_spans == g->cap_spans) {
        const int64_t cap = ORTH_MAX(1024, 2 * g->cap_spans);
        orth_text_span *fresh = orth_mem_realloc(ctx, g->spans, (size_t)cap * sizeof *fresh);
        if (!fresh)
            return ORTH_ERR_NOMEM;
        g->spans = fresh;
        g->cap_spans = cap;
    }
    memcpy(g->text + g->num, text, n);
    g->spans[g->num_spans++] = (orth_text_span){NULL, n};
    g->num += n;
    return ORTH_OK;
}

static orth_status gather_file(orth_ctx *ctx, gathering *g, const orth_prepare_options *o, const char *path,
                               const orth_file_map *map, size_t max_bytes)
{
    const char *field = o->jsonl_field ? o->jsonl_field : "text";
    orth_documents docs = orth_documents_begin(path, o->separator, (const char *)map->data, map->size);
    for (orth_document d; g->num < max_bytes && orth_documents_next(&docs, &d);) {
        const char *text = d.text;
        size_t n = d.num_bytes;
        if (docs.kind == ORTH_DOCS_JSONL) {
            ORTH_TRY(orth_jsonl_text(ctx, &g->line, text, n, field, path, d.line_number));
            text = g->line.v;
            n = g->line.num;
        }
        ORTH_TRY(gather_text(ctx, g, text, ORTH_MIN(n, max_bytes - g->num)));
    }
    return ORTH_OK;
}

static orth_status gather(orth_ctx *ctx, gathering *g, const orth_prepare_options *o, size_t max_bytes)
{
    for (int i = 0; i < o->num_inputs; i++) {
        orth_file_map map = {0};
        ORTH_TRY(orth_file_map_open(ctx, &map, o->inputs[i]));
        orth_status status = gather_file(ctx, g, o, o->inputs[i], &map, max_bytes);
        orth_file_map_close(&map);
        ORTH_TRY(status);
    }
    if (g->num == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: holds no text to train a tokenizer on", o->inputs[0]);
    return ORTH_OK;
}

orth_status orth_prepare_tokenizer(orth_ctx *ctx, orth_tokenizer **out, const orth_prepare_options *options,
                                   int64_t vocab_size, int64_t max_bytes)
{
    gathering g = {0};
    if (options->num_inputs < 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "tokenizer: no input file");
    orth_status status = gather(ctx, &g, options, max_bytes > 0 ? (size_t)max_bytes : (size_t)64 << 20);
    const char *at = g.text;
    for (int64_t i = 0; i < g.num_spans; at += g.spans[i++].num_bytes)
        g.spans[i].data = at;
    const orth_tokenizer_train_options train = {.vocab_size = vocab_size};
    if (status == ORTH_OK)
        status = orth_tokenizer_train(ctx, out, g.spans, g.num_spans, &train);
    orth_mem_free(ctx, g.text);
    orth_mem_free(ctx, g.spans);
    orth_bytes_free(ctx, &g.line);
    return status;
}
