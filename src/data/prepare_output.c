/* prepare_output.c -- see prepare_output.h. */
#include "data/prepare_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_out.h"
#include "base/rng.h"

#define DEFAULT_SHARD_TOKENS ((int64_t)1 << 27)

orth_status orth_prepare_output_begin(orth_ctx *ctx, orth_prepare_output *out,
                                      const orth_prepare_options *options)
{
    *out = (orth_prepare_output){.options = options, .lock = -1,
                                 .vocab_size = orth_tokenizer_vocab_size(options->tokenizer),
                                 .fingerprint = orth_tokenizer_fingerprint(options->tokenizer),
                                 .splits = {{.name = "train"}, {.name = "valid"}}};
    size_t n = strlen(options->out_dir);
    while (n > 1 && options->out_dir[n - 1] == '/')
        n--;
    out->tmp_dir = orth_mem_printf(ctx, "%.*s.tmp-%ld", (int)n, options->out_dir, (long)getpid());
    if (!out->tmp_dir)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_path_remove(ctx, out->tmp_dir)); /* of a process of that number that was killed */
    ORTH_TRY(orth_path_make_dirs(ctx, out->tmp_dir));
    return orth_path_lock(ctx, out->tmp_dir, "another process prepares here", &out->lock); /* train/leftovers.c removes what nobody has */
}

static orth_status open_shard(orth_ctx *ctx, orth_prepare_output *out, prepare_split *s)
{
    char *path = orth_mem_printf(ctx, "%s/%s-%05d.orts", out->tmp_dir, s->name, s->num_shards);
    if (!path)
        return ORTH_ERR_NOMEM;
    orth_status status = orth_shard_writer_open(ctx, &s->writer, path, out->vocab_size, out->fingerprint);
    orth_mem_free(ctx, path);
    return status;
}

static orth_status close_shard(orth_ctx *ctx, prepare_split *s)
{
    if (!s->writer)
        return ORTH_OK;
    if (s->num_shards == s->cap_shards) {
        const int cap = ORTH_MAX(16, 2 * s->cap_shards);
        orth_shard_info *fresh = orth_mem_realloc(ctx, s->shards, (size_t)cap * sizeof *fresh);
        if (!fresh)
            return ORTH_ERR_NOMEM;
        s->shards = fresh;
        s->cap_shards = cap;
    }
    orth_shard_writer *w = s->writer;
    s->writer = NULL; /* commit frees it whatever happens */
    ORTH_TRY(orth_shard_writer_commit(ctx, w, &s->shards[s->num_shards]));
    s->num_shards++;
    return ORTH_OK;
}

bool orth_prepare_held_out(const orth_prepare_options *o, int64_t piece)
{
    const uint32_t u = orth_philox(o->seed, ORTH_STREAM_SPLIT, 0, (uint64_t)piece).v[0];
    return piece > 0 && (double)u < o->valid_fraction * 0x1p32;
}

orth_status orth_prepare_output_pieces(orth_ctx *ctx, orth_prepare_output *out, const int32_t *tokens, int64_t n,
                                       int64_t text_bytes, int64_t num_pieces, bool goes_on)
{
    const int64_t index = out->num_pieces;
    const bool held_out = orth_prepare_held_out(out->options, index);
    prepare_split *s = &out->splits[held_out];
    const int64_t limit = out->options->shard_tokens ? out->options->shard_tokens : DEFAULT_SHARD_TOKENS;
    if (!s->writer)
        ORTH_TRY(open_shard(ctx, out, s));
    const bool begins = !s->in_document, full = orth_shard_writer_tokens(s->writer) + n >= limit;
    s->in_document = goes_on && n > 1 && !full && orth_prepare_held_out(out->options, index + num_pieces) == held_out;
    n -= s->in_document;
    ORTH_TRY(begins ? orth_shard_writer_document(ctx, s->writer, tokens, n, text_bytes)
                    : orth_shard_writer_more(ctx, s->writer, tokens, n, text_bytes));
    if (full)
        ORTH_TRY(close_shard(ctx, s));
    out->num_pieces += num_pieces;
    *(held_out ? &out->result.valid_docs : &out->result.train_docs) += begins;
    *(held_out ? &out->result.valid_tokens : &out->result.train_tokens) += n;
    out->result.text_bytes += text_bytes;
    return ORTH_OK;
}

/* ---- dataset.json ---- */

static void add_split(orth_json_out *j, const prepare_split *s)
{
    orth_json_open(j, s->name, '[');
    for (int i = 0; i < s->num_shards; i++) {
        const orth_shard_info *info = &s->shards[i];
        orth_json_open(j, NULL, '{');
        orth_json_print(j, "file", "\"%s-%05d.orts\"", s->name, i);
        orth_json_print(j, "tokens", "%" PRId64, info->num_tokens);
        orth_json_print(j, "documents", "%" PRId64, info->num_docs);
        orth_json_print(j, "text_bytes", "%" PRId64, info->text_bytes);
        orth_json_print(j, "header_xxh64", "\"%016" PRIx64 "\"", info->header_hash);
        orth_json_close(j, '}');
    }
    orth_json_close(j, ']');
}

/* The special tokens that the text's own eot_token does not tell. */
static void add_special(orth_json_out *j, const orth_special_tokens *s)
{
    orth_json_open(j, "eos_tokens", '[');
    for (int i = 0; i < s->num_eos; i++)
        orth_json_print(j, NULL, "%d", (int)s->eos[i]);
    orth_json_close(j, ']');
    if (s->bos >= 0)
        orth_json_print(j, "bos_token", "%d", (int)s->bos);
    if (s->pad >= 0)
        orth_json_print(j, "pad_token", "%d", (int)s->pad);
}

static char *dataset_json(orth_ctx *ctx, const orth_prepare_output *out)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text, .lines = 2};
    orth_json_open(&j, NULL, '{');
    orth_json_string(&j, "format", "orthant-dataset");
    orth_json_print(&j, "version", "1");
    orth_json_print(&j, "vocab_size", "%" PRId64, out->vocab_size);
    orth_json_print(&j, "eot_token", "%d", (int)orth_tokenizer_eos(out->options->tokenizer));
    orth_json_print(&j, "tokenizer_fingerprint", "\"%016" PRIx64 "\"", out->fingerprint);
    orth_json_print(&j, "seed", "%" PRIu64, out->options->seed);
    orth_json_print(&j, "valid_fraction", "%.17g", out->options->valid_fraction);
    add_special(&j, orth_tokenizer_special(out->options->tokenizer));
    add_split(&j, &out->splits[0]);
    add_split(&j, &out->splits[1]);
    orth_json_close(&j, '}');
    orth_text_add(ctx, &text, "\n");
    return orth_text_take(ctx, &text);
}

static orth_status write_json(orth_ctx *ctx, const orth_prepare_output *out)
{
    char *text = dataset_json(ctx, out), *path = orth_path_join(ctx, out->tmp_dir, "dataset.json");
    const orth_status status = text && path ? orth_file_write(ctx, path, text, strlen(text)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, path);
    return status;
}

/* The new folder takes the place of the old one, which is put aside first and removed last. */
static orth_status move_into_place(orth_ctx *ctx, orth_prepare_output *out)
{
    const char *dir = out->options->out_dir;
    char *aside = orth_mem_printf(ctx, "%s-old", out->tmp_dir);
    bool there = false;
    orth_status status = aside ? orth_path_look(ctx, dir, &there) : ORTH_ERR_NOMEM;
    const bool replaces = there && out->options->overwrite;
    if (replaces && rename(dir, aside) != 0)
        status = orth_file_fail(ctx, dir, "put aside");
    if (status == ORTH_OK && rename(out->tmp_dir, dir) != 0) {
        status = orth_file_fail(ctx, dir, "rename into place");
        if (replaces && rename(aside, dir) != 0)
            orth_log(ctx, ORTH_LOG_WARN, "data", "the former %s is now %s", dir, aside);
    }
    /* The new folder is in place: what is left of the old one is a nuisance, not a failure. */
    if (status == ORTH_OK && replaces && orth_path_remove(ctx, aside) != ORTH_OK) {
        orth_log(ctx, ORTH_LOG_WARN, "data", "%s: the former folder could not be removed: %s", aside,
                 ctx->error.message);
        orth_ctx_clear_error(ctx);
    }
    orth_mem_free(ctx, aside);
    return status;
}

orth_status orth_prepare_output_commit(orth_ctx *ctx, orth_prepare_output *out)
{
    ORTH_TRY(close_shard(ctx, &out->splits[0]));
    ORTH_TRY(close_shard(ctx, &out->splits[1]));
    char *path = orth_path_join(ctx, out->tmp_dir, "tokenizer.json");
    if (!path)
        return ORTH_ERR_NOMEM;
    orth_status status = orth_tokenizer_save(ctx, out->options->tokenizer, path);
    orth_mem_free(ctx, path);
    ORTH_TRY(status);
    ORTH_TRY(write_json(ctx, out));
    return move_into_place(ctx, out);
}

void orth_prepare_output_end(orth_ctx *ctx, orth_prepare_output *out)
{
    for (int i = 0; i < 2; i++) {
        orth_shard_writer_abort(ctx, out->splits[i].writer);
        orth_mem_free(ctx, out->splits[i].shards);
    }
    /* An earlier error stays the one that is reported; after a commit there is nothing to remove. */
    if (out->tmp_dir)
        orth_path_remove(ctx, out->tmp_dir);
    if (out->lock >= 0)
        close(out->lock);
    orth_mem_free(ctx, out->tmp_dir);
}
