/* fuzz_dataset.c -- any bytes as dataset.json beside one real shard: refused in words, or read within its bounds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/corpus.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/orth-fuzz-dataset-XXXXXX", seed[512];

static void remove_folder(void)
{
    orth_ctx *ctx = calloc(1, sizeof *ctx);
    orth_path_remove(ctx, folder);
    free(ctx);
}

/* The shard that a right dataset.json names, and that json. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const int32_t tokens[] = {1, 2, 0, 3, 0};
    orth_ctx *ctx = calloc(1, sizeof *ctx);
    orth_shard_writer *w = NULL;
    orth_shard_info info;
    char path[64];
    (void)argc, (void)argv;
    if (!mkdtemp(folder))
        abort();
    atexit(remove_folder);
    snprintf(path, sizeof path, "%s/train-00000.orts", folder);
    if (orth_shard_writer_open(ctx, &w, path, 10, 77) != ORTH_OK || orth_shard_writer_document(ctx, w, tokens, 3, 2) != ORTH_OK ||
        orth_shard_writer_document(ctx, w, tokens + 3, 2, 1) != ORTH_OK || orth_shard_writer_commit(ctx, w, &info) != ORTH_OK)
        abort();
    snprintf(seed, sizeof seed, "{\"format\": \"orthant-dataset\", \"version\": 1, \"vocab_size\": 10, \"eot_token\": 0, "
             "\"tokenizer_fingerprint\": \"000000000000004d\", \"train\": [{\"file\": \"train-00000.orts\", \"tokens\": 5, "
             "\"documents\": 2, \"header_xxh64\": \"%016" PRIx64 "\"}], \"valid\": []}", info.header_hash);
    orth_dataset *d = NULL;
    if (orth_dataset_parse(ctx, &d, folder, seed, strlen(seed)) != ORTH_OK) /* what is fuzzed must be able to go well */
        abort();
    orth_dataset_close(ctx, d);
    free(ctx);
    return 0;
}

static void use(orth_ctx *ctx, const char *json, size_t n)
{
    orth_dataset *d = NULL;
    if (orth_dataset_parse(ctx, &d, folder, json, n) != ORTH_OK) {
        if (ctx->error.message[0] == 0)
            abort();
        orth_ctx_clear_error(ctx);
        return;
    }
    int32_t tokens[8];
    int64_t start, end;
    if (d->train.num_tokens > 8 * (int64_t)n || d->eot_token >= d->vocab_size)
        abort();
    if (orth_corpus_read(ctx, &d->train, tokens, 0, ORTH_MIN(8, d->train.num_tokens)) != ORTH_OK)
        abort();
    orth_corpus_document(&d->train, d->train.num_tokens - 1, &start, &end);
    if (start < 0 || end != d->train.num_tokens)
        abort();
    orth_dataset_close(ctx, d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx *ctx = calloc(1, sizeof *ctx);
    const size_t n = strlen(seed);
    char *json = malloc(ORTH_MAX(size, n) + 1);
    memcpy(json, data, size);
    use(ctx, json, size);
    /* The right one with some bytes changed, or with a part of it replaced: random text is seldom JSON. */
    if (size >= 2 && size < n) {
        memcpy(json, seed, n);
        memcpy(json + (data[0] * 256u + data[1]) % (n - size + 2), data + 2, size - 2);
        use(ctx, json, n);
    }
    if (ctx->heap_bytes != 0)
        abort();
    free(json);
    free(ctx);
    return 0;
}
