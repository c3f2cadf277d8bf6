/* fuzz_index.c -- any bytes as model.safetensors.index.json beside the three shards of a real model: refused in words, or every
 * tensor of the model can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "ckpt/hf.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/orth-fuzz-index-XXXXXX", *seed;
static size_t seed_bytes;

static void remove_folder(void)
{
    orth_ctx *ctx = calloc(1, sizeof *ctx);
    orth_path_remove(ctx, folder);
    free(ctx);
}

static void put_index(const char *json, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(json, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static void no_log(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)user, (void)rank, (void)level, (void)component, (void)text;
}

/* Whether the folder was read. */
static bool use(orth_ctx *ctx, const char *json, size_t n)
{
    orth_hf_source *source = NULL;
    put_index(json, n);
    if (orth_hf_open(ctx, &source, folder) != ORTH_OK) {
        if (ctx->error.message[0] == 0)
            abort();
        orth_ctx_clear_error(ctx);
        return false;
    }
    orth_hf_close(ctx, source);
    return true;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const names[] = {"config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                        "model-00003-of-00003.safetensors"};
    orth_ctx *ctx = calloc(1, sizeof *ctx);
    char from[512], to[512];
    (void)argc, (void)argv;
    ctx->log.write = no_log;
    if (!mkdtemp(folder))
        abort();
    atexit(remove_folder);
    for (int i = 0; i < ORTH_COUNT(names); i++) {
        snprintf(from, sizeof from, "%s/fixtures/models/mistral/%s", ORTH_TEST_DIR, names[i]);
        snprintf(to, sizeof to, "%s/%s", folder, names[i]);
        if (symlink(from, to) != 0)
            abort();
    }
    snprintf(from, sizeof from, "%s/fixtures/models/mistral/model.safetensors.index.json", ORTH_TEST_DIR);
    if (orth_file_read(ctx, from, &seed, &seed_bytes) != ORTH_OK || !use(ctx, seed, seed_bytes)) /* what is fuzzed must be able to go well */
        abort();
    free(ctx);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx *ctx = calloc(1, sizeof *ctx);
    ctx->log.write = no_log;
    use(ctx, (const char *)data, size);
    /* The right one with some bytes changed: random text is seldom JSON. */
    if (size >= 2 && size < seed_bytes) {
        char *json = malloc(seed_bytes);
        memcpy(json, seed, seed_bytes);
        memcpy(json + (data[0] * 256u + data[1]) % (seed_bytes - size + 2), data + 2, size - 2);
        use(ctx, json, seed_bytes);
        free(json);
    }
    if (ctx->heap_bytes != 0)
        abort();
    free(ctx);
    return 0;
}
