/* data.c -- see data.h. */
#include "data/data.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include <xxhash.h>

#include "data/inputs.h"

static orth_status check_options(orth_ctx *ctx, const orth_data_options *o)
{
    if (o->num_paths < 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.path is not set: text, JSONL, a folder of them or a prepared folder");
    if (o->num_weights != 0 && o->num_weights != o->num_paths)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "data.weights has %d numbers, data.path has %d: one weight per path", o->num_weights,
                         o->num_paths);
    for (int i = 0; i < o->num_paths; i++)
        if (!orth_path_exists(o->paths[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: no such file or folder (data.path)", o->paths[i]);
    return ORTH_OK;
}

bool orth_data_tokenizer_is_auto(const char *tokenizer)
{
    return !tokenizer || !tokenizer[0] || strcmp(tokenizer, "auto") == 0;
}

static orth_prepare_options prepare_options(const orth_data_options *o)
{
    orth_prepare_options p = {.text = o->text, .valid_fraction = o->valid_fraction, .seed = o->seed};
    p.text.field_is_default = true; /* check_text has looked at all paths; one of them may well be text only */
    return p;
}

static uint64_t add_text(uint64_t h, const char *text)
{
    return XXH64(text ? text : "", text ? strlen(text) + 1 : 1, h);
}

/* Adds the files of all paths that are not prepared. */
static orth_status add_files(orth_ctx *ctx, const orth_data_options *o, orth_inputs *files)
{
    for (int i = 0; i < o->num_paths; i++)
        if (!orth_dataset_exists(o->paths[i]))
            ORTH_TRY(orth_inputs_add(ctx, files, o->paths[i]));
    return ORTH_OK;
}

/* Each path is prepared by itself, the options of text are those of all. */
static orth_status check_text(orth_ctx *ctx, const orth_data_options *o)
{
    orth_inputs files = {0};
    orth_status status = add_files(ctx, o, &files);
    if (status == ORTH_OK && files.num > 0)
        status = orth_reader_check(ctx, &o->text, (const char *const *)files.v, files.num);
    orth_inputs_free(ctx, &files);
    return status;
}

/* Counts the changes of what prepare makes of the same text. 2: the pieces of a document are encoded as one text. */
#define PREPARE_VERSION 2

/* Everything that decides what prepare makes of the files; tok NULL: what decides the tokenizer. */
static orth_status cache_key(orth_ctx *ctx, const orth_data_options *o, const orth_inputs *files,
                             const orth_tokenizer *tok, uint64_t *out)
{
    uint64_t h = tok ? orth_tokenizer_fingerprint(tok) : (uint64_t)o->auto_vocab;
    const orth_special_tokens *special = tok ? orth_tokenizer_special(tok) : NULL;
    const uint64_t numbers[] = {(uint64_t)(o->valid_fraction * 0x1p52), o->seed, ORTH_SHARD_VERSION, PREPARE_VERSION};
    h = add_text(add_text(h + o->text.format, o->text.separator), o->text.field);
    if (o->text.separator && strchr(o->text.separator, '\\')) /* its escapes were not always read */
        h = add_text(h, "escapes");
    if (tok)
        h = XXH64(numbers, sizeof numbers, h);
    if (special)
        h = XXH64(special->eos, (size_t)special->num_eos * sizeof *special->eos, h);
    for (int i = 0; i < files->num; i++) {
        struct stat st;
        if (stat(files->v[i], &st) != 0)
            return orth_file_fail(ctx, files->v[i], "read");
        const int64_t facts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        h = XXH64(files->v[i], strlen(files->v[i]) + 1, h);
        h = XXH64(facts, sizeof facts, h);
    }
    *out = h;
    return ORTH_OK;
}

/* ---- the tokenizer ---- */

static orth_status train_tokenizer(orth_ctx *ctx, const orth_data_options *o, const orth_inputs *files,
                                   orth_tokenizer **out)
{
    const orth_tokenizer_train_options train = {.vocab_size = o->auto_vocab};
    orth_prepare_options p = prepare_options(o);
    p.inputs = (const char *const *)files->v;
    p.num_inputs = files->num;
    p.text.told = true; /* preparing tells of bytes that are not UTF-8 */
    orth_log(ctx, ORTH_LOG_INFO, "data", "training a tokenizer of %" PRId64 " tokens on %s%s", o->auto_vocab,
             files->v[0], files->num > 1 ? " and others" : "");
    return orth_prepare_tokenizer(ctx, out, &p, &train, 0, NULL);
}

static orth_status cached_tokenizer(orth_ctx *ctx, const orth_data_options *o, const orth_inputs *files,
                                    orth_tokenizer **out)
{
    uint64_t key = 0;
    ORTH_TRY(cache_key(ctx, o, files, NULL, &key));
    char *path = orth_mem_printf(ctx, "%s/tokenizer-%016" PRIx64 ".json", o->cache_dir, key);
    if (!path)
        return ORTH_ERR_NOMEM;
    orth_status status = ORTH_OK;
    if (orth_path_exists(path)) {
        status = orth_tokenizer_load(ctx, out, path);
    } else {
        status = train_tokenizer(ctx, o, files, out);
        if (status == ORTH_OK)
            status = orth_path_make_dirs(ctx, o->cache_dir);
        if (status == ORTH_OK)
            status = orth_tokenizer_save(ctx, *out, path);
    }
    orth_mem_free(ctx, path);
    return status;
}

static orth_status check_auto(orth_ctx *ctx, const orth_data_options *o)
{
    if (o->auto_vocab <= 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: is not prepared: data.tokenizer must name a tokenizer.json",
                         o->paths[0]);
    if (o->auto_vocab < ORTH_TOKENIZER_LEAST_VOCAB)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.tokenizer=auto: a tokenizer has at least %d tokens (256 bytes and the end of a text), the model's "
                         "vocabulary %" PRId64 ": model.vocab=4096, for example", ORTH_TOKENIZER_LEAST_VOCAB, o->auto_vocab);
    return ORTH_OK;
}

/* Trained on all paths (none of them is prepared), once: the result is kept in the cache. */
static orth_status auto_tokenizer(orth_ctx *ctx, const orth_data_options *o, orth_tokenizer **out)
{
    ORTH_TRY(check_auto(ctx, o));
    orth_inputs files = {0};
    orth_status status = add_files(ctx, o, &files);
    if (status == ORTH_OK)
        status = cached_tokenizer(ctx, o, &files, out);
    orth_inputs_free(ctx, &files);
    return status;
}

/* The tokenizer that is named, or that of the first prepared folder; NULL: it is to be trained. */
static const char *existing_tokenizer(const orth_data_options *o)
{
    if (!orth_data_tokenizer_is_auto(o->tokenizer))
        return o->tokenizer;
    for (int i = 0; i < o->num_paths; i++)
        if (orth_dataset_exists(o->paths[i]))
            return o->paths[i];
    return NULL;
}

static orth_status find_tokenizer(orth_ctx *ctx, const orth_data_options *o, orth_data *d)
{
    const char *there = existing_tokenizer(o);
    return there ? orth_tokenizer_load(ctx, &d->tokenizer, there) : auto_tokenizer(ctx, o, &d->tokenizer);
}

orth_status orth_data_check_vocab(orth_ctx *ctx, int64_t size, int64_t vocab)
{
    if (size <= vocab)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the tokenizer has %" PRId64 " tokens, the model's vocabulary only %" PRId64 ": a new model has room for "
                     "them with model.vocab=%" PRId64, size, vocab, size);
}

/* One too large for the model is refused before text is prepared with it, which may take minutes. */
static orth_status load_tokenizer(orth_ctx *ctx, const orth_data_options *o, orth_data *d)
{
    ORTH_TRY(find_tokenizer(ctx, o, d));
    ORTH_TRY(orth_tokenizer_name_eos(ctx, d->tokenizer, o->eos, o->num_eos));
    return o->max_vocab > 0 ? orth_data_check_vocab(ctx, orth_tokenizer_vocab_size(d->tokenizer), o->max_vocab) : ORTH_OK;
}

/* ---- the sets ---- */

static orth_status prepare_one(orth_ctx *ctx, const orth_data_options *o, const orth_data *d, const char *path,
                               const orth_inputs *files, const char *folder)
{
    orth_prepare_options p = prepare_options(o);
    orth_prepare_result r;
    p.inputs = (const char *const *)files->v;
    p.num_inputs = files->num;
    p.out_dir = folder;
    p.tokenizer = d->tokenizer;
    orth_log(ctx, ORTH_LOG_INFO, "data", "preparing %s", path);
    ORTH_TRY(orth_path_make_dirs(ctx, o->cache_dir));
    orth_status status = orth_prepare(ctx, &p, &r);
    if (status != ORTH_OK) {
        if (!orth_dataset_exists(folder))
            return status;
        orth_ctx_clear_error(ctx); /* another process was first with the same */
        return ORTH_OK;
    }
    orth_log(ctx, ORTH_LOG_INFO, "data",
             "%s: %" PRId64 " training tokens in %" PRId64 " documents, %" PRId64
             " held-out tokens in %" PRId64,
             path, r.train_tokens, r.train_docs, r.valid_tokens, r.valid_docs);
    return ORTH_OK;
}

static orth_status open_files(orth_ctx *ctx, const orth_data_options *o, const orth_data *d, const char *path,
                              const orth_inputs *files, orth_dataset **out)
{
    uint64_t key = 0;
    ORTH_TRY(cache_key(ctx, o, files, d->tokenizer, &key));
    char *folder = orth_mem_printf(ctx, "%s/%016" PRIx64, o->cache_dir, key);
    if (!folder)
        return ORTH_ERR_NOMEM;
    orth_status status = ORTH_OK;
    if (!orth_dataset_exists(folder))
        status = prepare_one(ctx, o, d, path, files, folder);
    if (status == ORTH_OK)
        status = orth_dataset_open(ctx, out, folder);
    orth_mem_free(ctx, folder);
    return status;
}

static orth_status open_text(orth_ctx *ctx, const orth_data_options *o, const orth_data *d, const char *path,
                             orth_dataset **out)
{
    orth_inputs files = {0};
    orth_status status = orth_inputs_add(ctx, &files, path);
    if (status == ORTH_OK)
        status = open_files(ctx, o, d, path, &files, out);
    orth_inputs_free(ctx, &files);
    return status;
}

static orth_status check_match(orth_ctx *ctx, const orth_data_options *o, const orth_data *d,
                               const orth_dataset *set)
{
    const uint64_t want = orth_tokenizer_fingerprint(d->tokenizer);
    if (set->fingerprint != want)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: tokenizer %016" PRIx64 " made its shards, '%s' is %016" PRIx64
                         ": they must be the same",
                         set->path, set->fingerprint, orth_data_tokenizer_is_auto(o->tokenizer) ? "auto" : o->tokenizer, want);
    return ORTH_OK;
}

/* What ends the documents of the first set is the end of text, whatever else the tokenizer's folder names first. */
static orth_status take_eot(orth_ctx *ctx, const orth_data_options *o, const orth_data *d)
{
    orth_special_tokens special = *orth_tokenizer_special(d->tokenizer);
    for (int i = 0; i < d->num_sets; i++)
        if (o->num_eos > 0 && d->sets[i]->eot_token != special.eos[0])
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its documents end with token %d, data.eos_token=%s is token %d",
                             d->sets[i]->path, (int)d->sets[i]->eot_token, o->eos[0], (int)special.eos[0]);
    orth_special_tokens_add_eos(&special, d->sets[0]->eot_token, true);
    orth_tokenizer_set_special(d->tokenizer, &special);
    return ORTH_OK;
}

/* A header holds the hash of its shard's tables, and these the hash of every block of tokens. */
static uint64_t add_fingerprint(uint64_t h, const orth_corpus *c)
{
    for (int i = 0; i < c->num_shards; i++)
        h = XXH64(&c->shards[i].info.header_hash, sizeof c->shards[i].info.header_hash, h);
    return h;
}

static orth_status open_sets(orth_ctx *ctx, const orth_data_options *o, orth_data *d)
{
    const int n = o->num_paths;
    d->sets = ORTH_NEW_ARRAY(ctx, orth_dataset *, n);
    d->train = ORTH_NEW_ARRAY(ctx, const orth_corpus *, n);
    d->valid = ORTH_NEW_ARRAY(ctx, const orth_corpus *, n);
    double *weights = o->num_weights ? ORTH_NEW_ARRAY(ctx, double, n) : NULL;
    d->weights = weights;
    if (!d->sets || !d->train || !d->valid || (o->num_weights && !weights))
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < n; i++) {
        if (orth_dataset_exists(o->paths[i]))
            ORTH_TRY(orth_dataset_open(ctx, &d->sets[i], o->paths[i]));
        else
            ORTH_TRY(open_text(ctx, o, d, o->paths[i], &d->sets[i]));
        d->num_sets = i + 1;
        ORTH_TRY(check_match(ctx, o, d, d->sets[i]));
        d->train[i] = &d->sets[i]->train;
        d->fingerprint = add_fingerprint(d->fingerprint, d->train[i]);
        if (d->sets[i]->valid.num_tokens > 1)
            d->valid[d->num_valid++] = &d->sets[i]->valid;
        if (weights)
            weights[i] = o->weights[i];
    }
    return ORTH_OK;
}

orth_status orth_data_open_or_prepare(orth_ctx *ctx, orth_data **out, const orth_data_options *options)
{
    ORTH_TRY(check_options(ctx, options));
    ORTH_TRY(check_text(ctx, options));
    orth_data *d = ORTH_NEW(ctx, orth_data);
    if (!d)
        return ORTH_ERR_NOMEM;
    orth_status status = load_tokenizer(ctx, options, d);
    if (status == ORTH_OK)
        status = open_sets(ctx, options, d);
    if (status == ORTH_OK)
        status = take_eot(ctx, options, d);
    if (status != ORTH_OK) {
        orth_data_close(ctx, d);
        return status;
    }
    *out = d;
    return ORTH_OK;
}

static orth_status look_at_files(orth_ctx *ctx, const orth_data_options *o, const orth_inputs *files)
{
    orth_reader *r = NULL;
    ORTH_TRY(orth_reader_create(ctx, &r, &o->text, files->num));
    orth_status status = ORTH_OK;
    for (int i = 0; i < files->num && status == ORTH_OK; i++)
        status = orth_reader_input(ctx, r, files->v[i]);
    if (status == ORTH_OK && files->num > 0 && orth_reader_bytes(r) == 0)
        status = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s", files->v[0], files->num > 1 ? "the files are empty" : "the file is empty");
    orth_reader_free(ctx, r);
    return status;
}

orth_status orth_data_check(orth_ctx *ctx, const orth_data_options *options)
{
    orth_data d = {0};
    orth_inputs files = {0};
    ORTH_TRY(check_options(ctx, options));
    ORTH_TRY(check_text(ctx, options));
    orth_status status = add_files(ctx, options, &files);
    if (status == ORTH_OK)
        status = look_at_files(ctx, options, &files);
    if (status == ORTH_OK)
        status = existing_tokenizer(options) ? load_tokenizer(ctx, options, &d) : check_auto(ctx, options);
    orth_tokenizer_free(ctx, d.tokenizer);
    orth_inputs_free(ctx, &files);
    return status;
}

void orth_data_close(orth_ctx *ctx, orth_data *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->num_sets; i++)
        orth_dataset_close(ctx, d->sets[i]);
    orth_mem_free(ctx, d->sets);
    orth_mem_free(ctx, d->train);
    orth_mem_free(ctx, d->valid);
    orth_mem_free(ctx, (double *)d->weights);
    orth_tokenizer_free(ctx, d->tokenizer);
    orth_mem_free(ctx, d);
}
