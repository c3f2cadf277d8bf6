/* prepare_output.c -- see prepare_output.h. */
#include "data/prepare_output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"

#define DEFAULT_SHARD_TOKENS ((int64_t)1 << 27)

orth_status orth_prepare_output_begin(orth_ctx *ctx, orth_prepare_output *out,
                                      const orth_prepare_options *options)
{
    *out = (orth_prepare_output){.options = options,
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
    return orth_path_make_dirs(ctx, out->tmp_dir);
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

static bool is_held_out(const orth_prepare_options *o, int64_t piece)
{
    const uint32_t u = orth_philox(o->seed, ORTH_STREAM_SPLIT, 0, (uint64_t)piece).v[0];
    return piece > 0 && (double)u < o->valid_fraction * 0x1p32;
}

orth_status orth_prepare_output_piece(orth_ctx *ctx, orth_prepare_output *out, const int32_t *tokens, int64_t n,
                                      int64_t text_bytes, bool goes_on)
{
    const int64_t index = out->num_pieces;
    const bool held_out = is_held_out(out->options, index);
    prepare_split *s = &out->splits[held_out];
    const int64_t limit = out->options->shard_tokens ? out->options->shard_tokens : DEFAULT_SHARD_TOKENS;
    if (!s->writer)
        ORTH_TRY(open_shard(ctx, out, s));
    const bool begins = !s->in_document, full = orth_shard_writer_tokens(s->writer) + n >= limit;
    s->in_document = goes_on && n > 1 && !full && is_held_out(out->options, index + 1) == held_out;
    n -= s->in_document;
    ORTH_TRY(begins ? orth_shard_writer_document(ctx, s->writer, tokens, n, text_bytes)
                    : orth_shard_writer_more(ctx, s->writer, tokens, n, text_bytes));
    if (full)
        ORTH_TRY(close_shard(ctx, s));
    out->num_pieces++;
    *(held_out ? &out->result.valid_docs : &out->result.train_docs) += begins;
    *(held_out ? &out->result.valid_tokens : &out->result.train_tokens) += n;
    out->result.text_bytes += text_bytes;
    return ORTH_OK;
}

/* ---- dataset.json ---- */

static void print_split(FILE *f, const prepare_split *s)
{
    fprintf(f, "  \"%s\": [", s->name);
    for (int i = 0; i < s->num_shards; i++) {
        const orth_shard_info *info = &s->shards[i];
        fprintf(f,
                "%s\n    {\"file\": \"%s-%05d.orts\", \"tokens\": %" PRId64 ", \"documents\": %" PRId64
                ", \"text_bytes\": %" PRId64 ", \"header_xxh64\": \"%016" PRIx64 "\"}",
                i ? "," : "", s->name, i, info->num_tokens, info->num_docs, info->text_bytes,
                info->header_hash);
    }
    fprintf(f, "%s]", s->num_shards ? "\n  " : "");
}

/* The special tokens that the text's own eot_token does not tell. */
static void print_special(FILE *f, const orth_special_tokens *s)
{
    fprintf(f, "  \"eos_tokens\": [");
    for (int i = 0; i < s->num_eos; i++)
        fprintf(f, "%s%d", i ? ", " : "", (int)s->eos[i]);
    fprintf(f, "],\n");
    if (s->bos >= 0)
        fprintf(f, "  \"bos_token\": %d,\n", (int)s->bos);
    if (s->pad >= 0)
        fprintf(f, "  \"pad_token\": %d,\n", (int)s->pad);
}

static orth_status write_json(orth_ctx *ctx, const orth_prepare_output *out)
{
    /* About 200 bytes a shard. */
    const size_t room = 4096 + 256 * (size_t)(out->splits[0].num_shards + out->splits[1].num_shards);
    char *text = orth_mem_alloc(ctx, room), *path = orth_path_join(ctx, out->tmp_dir, "dataset.json");
    FILE *f = text && path ? fmemopen(text, room, "w") : NULL;
    orth_status status = ORTH_ERR_NOMEM;
    if (f) {
        fprintf(f,
                "{\n  \"format\": \"orthant-dataset\",\n  \"version\": 1,\n  \"vocab_size\": %" PRId64 ",\n"
                "  \"eot_token\": %d,\n  \"tokenizer_fingerprint\": \"%016" PRIx64 "\",\n"
                "  \"seed\": %" PRIu64 ",\n  \"valid_fraction\": %.17g,\n",
                out->vocab_size, (int)orth_tokenizer_eos(out->options->tokenizer), out->fingerprint,
                out->options->seed, out->options->valid_fraction);
        print_special(f, orth_tokenizer_special(out->options->tokenizer));
        print_split(f, &out->splits[0]);
        fprintf(f, ",\n");
        print_split(f, &out->splits[1]);
        fprintf(f, "\n}\n");
        const long n = ftell(f);
        const bool whole = n >= 0 && !ferror(f);
        status = fclose(f) == 0 && whole ? orth_file_write(ctx, path, text, (size_t)n)
                                         : ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: cannot put it together", path);
    } else if (text && path) {
        status = ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "no memory for dataset.json");
    }
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, path);
    return status;
}

/* The new folder takes the place of the old one, which is put aside first and removed last. */
static orth_status move_into_place(orth_ctx *ctx, orth_prepare_output *out)
{
    const char *dir = out->options->out_dir;
    char *aside = orth_mem_printf(ctx, "%s-old", out->tmp_dir);
    if (!aside)
        return ORTH_ERR_NOMEM;
    const bool replaces = out->options->overwrite && orth_path_exists(dir);
    orth_status status = ORTH_OK;
    if (replaces && rename(dir, aside) != 0)
        status = ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: cannot put aside: %s", dir, strerror(errno));
    if (status == ORTH_OK && rename(out->tmp_dir, dir) != 0) {
        status = ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: cannot rename into place: %s", dir, strerror(errno));
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
    orth_mem_free(ctx, out->tmp_dir);
}
