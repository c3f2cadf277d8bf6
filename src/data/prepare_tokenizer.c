/* prepare_tokenizer.c -- a tokenizer trained on the inputs of prepare (prepare.h). */
#include <inttypes.h>
#include <string.h>

#include "data/prepare.h"

#define BATCH_DOCS 4096

/* Copies of the documents, decoded, one after the other; spans have no address until the buffer stands still. */
typedef struct {
    orth_bytes text;
    size_t max;
    orth_text_span *spans;
    int64_t num_spans, cap_spans;
    orth_bytes line;
    orth_document docs[BATCH_DOCS];
} gathering;

static orth_status gather_text(orth_ctx *ctx, gathering *g, const char *text, size_t n)
{
    ORTH_TRY(orth_bytes_append(ctx, &g->text, text, n));
    if (g->num_spans == g->cap_spans) {
        const int64_t cap = ORTH_MAX(1024, 2 * g->cap_spans);
        orth_text_span *fresh = orth_mem_realloc(ctx, g->spans, (size_t)cap * sizeof *fresh);
        if (!fresh)
            return ORTH_ERR_NOMEM;
        g->spans = fresh;
        g->cap_spans = cap;
    }
    g->spans[g->num_spans++] = (orth_text_span){NULL, n};
    return ORTH_OK;
}

/* *full: there was more text than wanted. */
static orth_status gather_input(orth_ctx *ctx, gathering *g, orth_reader *r, const char *path, bool *full)
{
    ORTH_TRY(orth_reader_input(ctx, r, path));
    for (int64_t num = 1; num > 0;) {
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(orth_reader_next(ctx, r, g->docs, BATCH_DOCS, &num));
        for (int64_t i = 0; i < num; i++) {
            const char *text;
            size_t n;
            ORTH_TRY(orth_reader_text(ctx, r, &g->docs[i], &g->line, &text, &n));
            *full = n > g->max - g->text.num;
            ORTH_TRY(gather_text(ctx, g, text, ORTH_MIN(n, g->max - g->text.num)));
            if (*full)
                return ORTH_OK;
        }
    }
    return ORTH_OK;
}

static orth_status gather(orth_ctx *ctx, gathering *g, const orth_prepare_options *o)
{
    orth_reader *r = NULL;
    bool full = false;
    ORTH_TRY(orth_reader_check(ctx, &o->text, o->inputs, o->num_inputs));
    ORTH_TRY(orth_reader_create(ctx, &r, &o->text, o->num_inputs));
    orth_status status = ORTH_OK;
    for (int i = 0; i < o->num_inputs && status == ORTH_OK && !full; i++)
        status = gather_input(ctx, g, r, o->inputs[i], &full);
    if (status == ORTH_OK)
        orth_reader_tell_invalid(ctx, r);
    orth_reader_free(ctx, r);
    ORTH_TRY(status);
    if (full)
        orth_log(ctx, ORTH_LOG_WARN, "tokenizer", "learned from the first %zu bytes of the text only", g->max);
    if (g->text.num == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: no text to learn a tokenizer from", o->inputs[0]);
    return ORTH_OK;
}

orth_status orth_prepare_tokenizer(orth_ctx *ctx, orth_tokenizer **out, const orth_prepare_options *options,
                                   const orth_tokenizer_train_options *train, int64_t max_bytes, int64_t *out_bytes)
{
    if (options->num_inputs < 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "tokenizer: no input file");
    gathering *g = ORTH_NEW(ctx, gathering);
    if (!g)
        return ORTH_ERR_NOMEM;
    g->max = (size_t)(max_bytes > 0 ? max_bytes : ORTH_PREPARE_TOKENIZER_BYTES);
    orth_status status = gather(ctx, g, options);
    const char *at = g->text.v;
    for (int64_t i = 0; i < g->num_spans; at += g->spans[i++].num_bytes)
        g->spans[i].data = at;
    if (status == ORTH_OK)
        status = orth_tokenizer_train(ctx, out, g->spans, g->num_spans, train);
    if (status == ORTH_OK && out_bytes)
        *out_bytes = (int64_t)g->text.num;
    orth_bytes_free(ctx, &g->text);
    orth_mem_free(ctx, g->spans);
    orth_bytes_free(ctx, &g->line);
    orth_mem_free(ctx, g);
    return status;
}
