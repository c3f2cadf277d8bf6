/* prepare.c -- see prepare.h.
 *
 *   read a window of documents -> join pieces -> encode on all threads -> write in order -> next window
 *
 * Pieces of one document (documents.h) that are in the same split are joined and encoded as one text, except where the cut between
 * them is known to be neutral: there the threads share the work. What a window does not end of such a text is kept for the next.
 * Each thread appends to a buffer of its own; a document remembers in whose buffer its tokens are.
 */
#include "data/prepare.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/pool.h"
#include "base/rng.h"
#include "data/corpus.h"
#include "data/prepare_output.h"

#define BATCH_DOCS 65536
#define JOINED_BYTES ((size_t)16 << 20) /* a text of pieces ends with the one that reaches this, neutral or not: encoding takes many times its memory */

typedef struct {
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
    orth_reader *reader;
    int32_t eot;
    encode_worker *workers;  /* [num_workers] */
    int num_workers;
    orth_document *texts;    /* [BATCH_DOCS] */
    int64_t *num_pieces;     /* [BATCH_DOCS] of each text */
    orth_document open;      /* a text of pieces that has not ended, its bytes in kept[which]; open_pieces = 0: there is none */
    int64_t open_pieces;
    orth_bytes kept[2];      /* the other one may hold the first text of the present batch */
    int which;
    batch_doc *docs;         /* [BATCH_DOCS] */
} encoding;

/* ---- encoding ---- */

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

static orth_status encode_document(const encoding *e, encode_worker *w, const orth_document *text, batch_doc *d)
{
    const char *p;
    size_t n;
    ORTH_TRY(orth_ctx_check_stop(&w->ctx));
    ORTH_TRY(orth_reader_text(&w->ctx, e->reader, text, &w->text, &p, &n));
    if (orth_reader_is_jsonl(e->reader) && orth_text_is_blank(p, n))
        return ORTH_OK;
    ORTH_TRY(orth_encoder_encode_part(&w->ctx, w->encoder, &w->ids, p, n, (orth_text_part){text->continues, text->goes_on}));
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
    d->status = encode_document(e, w, &e->texts[index], d);
}

/* Encodes a batch and writes it in order. The first document that failed is the one reported: a
 * thread takes documents in ascending order, so the error its ctx kept is that of its first failure. */
static orth_status encode_batch(orth_ctx *ctx, encoding *e, orth_prepare_output *out, int64_t num)
{
    for (int i = 0; i < e->num_workers; i++)
        e->workers[i].ids.num = 0;
    orth_pool_run(ctx->pool, num, encode_task, e);
    for (int64_t i = 0; i < num; i++) {
        const batch_doc *d = &e->docs[i];
        const encode_worker *w = &e->workers[d->worker];
        if (d->status != ORTH_OK)
            return orth_fail(ctx, d->status, w->ctx.error.file, w->ctx.error.line, "%s",
                             w->ctx.error.message);
        if (d->num > 0)
            ORTH_TRY(orth_prepare_output_pieces(ctx, out, w->ids.v + d->first, d->num, d->text_bytes, e->num_pieces[i],
                                                e->texts[i].goes_on));
    }
    return ORTH_OK;
}

/* ---- joining ---- */

/* Whether a text that ends with `piece`, number `index`, is encoded by itself, whatever follows. */
static bool ends_text(const encoding *e, const orth_document *text, const orth_document *piece, int64_t index)
{
    const orth_prepare_options *o = e->options;
    const size_t most = o->shard_tokens > 0 ? ORTH_MIN(JOINED_BYTES, (size_t)o->shard_tokens) : JOINED_BYTES;
    return !piece->goes_on || text->num_bytes >= most || orth_prepare_held_out(o, index) != orth_prepare_held_out(o, index + 1) ||
           orth_tokenizer_cuts(o->tokenizer, piece->text, piece->num_bytes, piece->text + piece->num_bytes, piece->num_after);
}

/* Makes texts of the *num pieces in e->texts, the first of which has number `index`; *num is then how many of them have ended. */
static orth_status join_pieces(orth_ctx *ctx, encoding *e, int64_t index, int64_t *num)
{
    int64_t n = 0;
    orth_document text = e->open;
    bool kept = e->open_pieces > 0;
    index += e->open_pieces;
    for (int64_t i = 0; i < *num; i++, index++) {
        const orth_document piece = e->texts[i];
        if (kept)
            ORTH_TRY(orth_bytes_append(ctx, &e->kept[e->which], piece.text, piece.num_bytes));
        if (e->open_pieces++ == 0)
            text = piece;
        else
            text.num_bytes += piece.num_bytes; /* they stand side by side */
        text.goes_on = piece.goes_on;
        if (!ends_text(e, &text, &piece, index))
            continue;
        if (kept)
            text.text = e->kept[e->which].v;
        e->num_pieces[n] = e->open_pieces;
        e->texts[n++] = text;
        e->open_pieces = 0;
        kept = false;
    }
    *num = n;
    e->open = text;
    if (e->open_pieces == 0 || kept)
        return ORTH_OK;
    e->which = !e->which;
    e->kept[e->which].num = 0;
    return orth_bytes_append(ctx, &e->kept[e->which], text.text, text.num_bytes);
}

static orth_status encode_input(orth_ctx *ctx, encoding *e, orth_prepare_output *out, const char *path)
{
    const int64_t before = orth_reader_bytes(e->reader);
    int64_t kept = 0, num = 0, read = 0;
    ORTH_TRY(orth_reader_input(ctx, e->reader, path));
    do {
        ORTH_TRY(orth_reader_next(ctx, e->reader, e->texts, BATCH_DOCS, &num));
        read = num;
        ORTH_TRY(join_pieces(ctx, e, out->num_pieces, &num));
        ORTH_TRY(encode_batch(ctx, e, out, num));
        for (int64_t i = 0; i < num; i++)
            kept += (int64_t)e->texts[i].num_bytes;
    } while (read > 0);
    const bool jsonl = orth_reader_is_jsonl(e->reader);
    *(jsonl ? &out->result.num_jsonl : &out->result.num_text) += 1;
    out->result.read_bytes = orth_reader_bytes(e->reader);
    if (!jsonl)
        out->result.dropped_bytes += out->result.read_bytes - before - kept;
    return ORTH_OK;
}

/* ---- setting up ---- */

static orth_status check_options(orth_ctx *ctx, const orth_prepare_options *o)
{
    bool there;
    if (o->num_inputs < 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data prepare: no input file");
    if (!(o->valid_fraction >= 0 && o->valid_fraction <= 0.9))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "valid_fraction=%g is not in [0, 0.9]", o->valid_fraction);
    if (o->shard_tokens < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "shard_tokens=%" PRId64 " is below 0", o->shard_tokens);
    if (orth_tokenizer_eos(o->tokenizer) < 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "the tokenizer has no end-of-text token, which ends each document: name one by data.eos_token");
    ORTH_TRY(orth_path_look(ctx, o->out_dir, &there));
    if (!there)
        return ORTH_OK;
    const bool ours = orth_dataset_exists(o->out_dir) || orth_path_is_empty_dir(o->out_dir);
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
    ORTH_TRY(orth_reader_check(ctx, &e->options->text, e->options->inputs, e->options->num_inputs));
    ORTH_TRY(orth_reader_create(ctx, &e->reader, &e->options->text, e->options->num_inputs));
    e->texts = ORTH_NEW_ARRAY(ctx, orth_document, BATCH_DOCS);
    e->docs = ORTH_NEW_ARRAY(ctx, batch_doc, BATCH_DOCS);
    e->num_pieces = ORTH_NEW_ARRAY(ctx, int64_t, BATCH_DOCS);
    e->workers = ORTH_NEW_ARRAY(ctx, encode_worker, n);
    if (!e->texts || !e->docs || !e->num_pieces || !e->workers)
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
    orth_bytes_free(ctx, &e->kept[0]);
    orth_bytes_free(ctx, &e->kept[1]);
    orth_mem_free(ctx, e->num_pieces);
    orth_mem_free(ctx, e->docs);
    orth_mem_free(ctx, e->texts);
    orth_reader_free(ctx, e->reader);
}

static orth_status encode_all(orth_ctx *ctx, encoding *e, orth_prepare_output *out)
{
    ORTH_TRY(start(ctx, e));
    for (int i = 0; i < e->options->num_inputs; i++)
        ORTH_TRY(encode_input(ctx, e, out, e->options->inputs[i]));
    orth_reader_tell_invalid(ctx, e->reader);
    orth_reader_tell_separator(ctx, e->reader);
    if (out->num_pieces == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s%s: %" PRId64 " bytes hold no document: %s", orth_reader_name(e->reader),
                         e->options->num_inputs > 1 ? " and the other inputs" : "", out->result.read_bytes,
                         out->result.read_bytes ? "there is nothing but white space" : "the file is empty");
    return ORTH_OK;
}

orth_status orth_prepare(orth_ctx *ctx, const orth_prepare_options *options, orth_prepare_result *out_result)
{
    ORTH_TRY(check_options(ctx, options));
    encoding e = {.options = options,
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
