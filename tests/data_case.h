/* data_case.h -- what the tests of src/data share: a folder of their own, and small data sets in it. */
#ifndef ORTH_TESTS_DATA_CASE_H
#define ORTH_TESTS_DATA_CASE_H

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "base/files.h"
#include "data/data.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "test.h"

/* A new folder, in memory where there is such a place (on a disk each commit would wait for it); removed by
 * case_end. */
typedef struct {
    orth_ctx *ctx;
    char dir[256];
} data_case;

static inline data_case case_begin(int num_threads)
{
    data_case c = {.ctx = test_ctx(num_threads)};
    const char *tmp = getenv("TMPDIR");
    tmp = tmp ? tmp : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(c.dir, sizeof c.dir, "%s/orth-data-XXXXXX", tmp);
    assert_non_null(mkdtemp(c.dir));
    c.ctx->log.level = ORTH_LOG_ERROR;
    return c;
}

static inline void case_end(data_case *c)
{
    CHECK_OK(c->ctx, orth_path_remove(c->ctx, c->dir));
    test_ctx_free(c->ctx);
}

/* Path of `name` in the folder, written to *buffer. */
static inline const char *case_path(const data_case *c, char (*buffer)[512], const char *name)
{
    snprintf(*buffer, sizeof *buffer, "%s/%s", c->dir, name);
    return *buffer;
}

/* Document d has lengths[d] tokens; the token at place i of the stream is i % vocab. One shard per
 * docs_per_shard documents. Writes DIR/name/{dataset.json,train-*.orts} by hand, without prepare. */
static inline orth_dataset *case_dataset(data_case *c, const char *name, const int64_t *lengths, int num_docs,
                                         int docs_per_shard, int64_t vocab)
{
    char dir[512], path[600];
    char json[8192];
    case_path(c, &dir, name);
    CHECK_OK(c->ctx, orth_path_make_dirs(c->ctx, dir));
    int n = snprintf(json, sizeof json,
                     "{\"format\": \"orthant-dataset\", \"version\": 1, \"vocab_size\": %" PRId64
                     ", \"eot_token\": 0, \"tokenizer_fingerprint\": \"%016x\", \"train\": [",
                     vocab, 77);
    int64_t at = 0;
    for (int d = 0, shard = 0; d < num_docs; shard++) {
        orth_shard_writer *w = NULL;
        orth_shard_info info;
        snprintf(path, sizeof path, "%s/train-%05d.orts", dir, shard);
        CHECK_OK(c->ctx, orth_shard_writer_open(c->ctx, &w, path, vocab, 77));
        for (int k = 0; k < docs_per_shard && d < num_docs; k++, d++) {
            int32_t *tokens = calloc((size_t)lengths[d], sizeof *tokens);
            for (int64_t i = 0; i < lengths[d]; i++)
                tokens[i] = (int32_t)(at++ % vocab);
            CHECK_OK(c->ctx, orth_shard_writer_document(c->ctx, w, tokens, lengths[d], lengths[d]));
            free(tokens);
        }
        CHECK_OK(c->ctx, orth_shard_writer_commit(c->ctx, w, &info));
        n += snprintf(json + n, sizeof json - (size_t)n,
                      "%s{\"file\": \"train-%05d.orts\", \"tokens\": %" PRId64 ", \"documents\": %" PRId64
                      ", \"header_xxh64\": \"%016" PRIx64 "\"}",
                      shard ? ", " : "", shard, info.num_tokens, info.num_docs, info.header_hash);
    }
    n += snprintf(json + n, sizeof json - (size_t)n, "], \"valid\": []}");
    snprintf(path, sizeof path, "%s/dataset.json", dir);
    CHECK_OK(c->ctx, orth_file_write(c->ctx, path, json, (size_t)n));
    orth_dataset *out = NULL;
    CHECK_OK(c->ctx, orth_dataset_open(c->ctx, &out, dir));
    return out;
}

#endif
