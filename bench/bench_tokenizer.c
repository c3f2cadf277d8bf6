/* bench_tokenizer.c -- speed of encoding (one thread) and training (all threads) on one text file.
 *
 *   bench_tokenizer [TEXT TOKENIZER_JSON [--train VOCAB] [--repeat N]]
 *
 * Without arguments: learns 32,000 tokens from Webster's dictionary (package dict-gcide; made-up words where
 * that is missing) and encodes it. Prints a line per measurement: what, MB/s (median of N), seconds. With
 * --train, learns VOCAB tokens from TEXT first and writes them to TOKENIZER_JSON.
 * tools/bench/tokenizer_peer.py runs it beside Hugging Face's. */
#define _GNU_SOURCE /* memmem */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/pool.h"
#include "base/rng.h"
#include "data/tokenizer.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *seconds, int n, size_t num_bytes)
{
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    const double s = seconds[n / 2];
    printf("%s %.2f MB/s %.3f s\n", what, 1e-6 * (double)num_bytes / s, s);
}

static orth_status bench_encode(orth_ctx *ctx, const orth_tokenizer *tok, const char *text, size_t num_bytes,
                                int n)
{
    double cold[64], warm[64], paragraphs[64];
    orth_ids ids = {0};
    for (int r = 0; r < n; r++) {
        orth_encoder *enc;
        ORTH_TRY(orth_encoder_create(ctx, &enc, tok));
        for (int again = 0; again < 2; again++) {
            ids.num = 0;
            const double t = orth_clock_s();
            ORTH_TRY(orth_encoder_encode(ctx, enc, &ids, text, num_bytes));
            (again ? warm : cold)[r] = orth_clock_s() - t;
        }
        orth_encoder_free(ctx, enc);
        ORTH_TRY(orth_encoder_create(ctx, &enc, tok));
        const double t = orth_clock_s();
        int64_t num_ids = 0;
        for (const char *p = text, *end = text + num_bytes; p < end;) {
            const char *cut = memmem(p, (size_t)(end - p), "\n\n", 2);
            cut = cut ? cut + 2 : end;
            ids.num = 0;
            ORTH_TRY(orth_encoder_encode(ctx, enc, &ids, p, (size_t)(cut - p)));
            num_ids += ids.num;
            p = cut;
        }
        paragraphs[r] = orth_clock_s() - t;
        orth_encoder_free(ctx, enc);
        if (r == 0)
            printf("tokens %lld in paragraphs\n", (long long)num_ids);
    }
    report("encode-document", cold, n, num_bytes);
    report("encode-document-again", warm, n, num_bytes);
    report("encode-paragraphs", paragraphs, n, num_bytes);
    orth_ids_free(ctx, &ids);
    return ORTH_OK;
}

static orth_status bench_train(orth_ctx *ctx, const char *text, size_t num_bytes, int64_t vocab,
                               const char *path)
{
    const orth_text_span span = {.data = text, .num_bytes = num_bytes};
    const orth_tokenizer_train_options options = {.vocab_size = vocab};
    orth_tokenizer *tok;
    double t = orth_clock_s();
    ORTH_TRY(orth_tokenizer_train(ctx, &tok, &span, 1, &options));
    t = orth_clock_s() - t;
    report("train", &t, 1, num_bytes);
    const orth_status status = orth_tokenizer_save(ctx, tok, path);
    orth_tokenizer_free(ctx, tok);
    return status;
}

static orth_status run(orth_ctx *ctx, const char *text_path, const char *tok_path, int64_t vocab, int n)
{
    orth_file_map map;
    orth_tokenizer *tok;
    ORTH_TRY(orth_file_map_open(ctx, &map, text_path));
    if (vocab > 0)
        ORTH_TRY(bench_train(ctx, (const char *)map.data, map.size, vocab, tok_path));
    double t = orth_clock_s();
    ORTH_TRY(orth_tokenizer_load(ctx, &tok, tok_path));
    printf("load %.3f s\n", orth_clock_s() - t);
    if (n > 0)
        ORTH_TRY(bench_encode(ctx, tok, (const char *)map.data, map.size, n));
    orth_tokenizer_free(ctx, tok);
    orth_file_map_close(&map);
    return ORTH_OK;
}

/* Webster's dictionary, or 40 MB of made-up words whose frequencies fall like those of a language. */
static orth_status write_default_text(orth_ctx *ctx, const char *path)
{
    orth_bytes text = {0};
    const size_t max = (size_t)40 << 20;
    text.v = orth_mem_alloc(ctx, max + 64);
    if (!text.v)
        return ORTH_ERR_NOMEM;
    FILE *pipe = popen("zcat -f /usr/share/dictd/gcide.dict.dz 2>/dev/null", "r");
    text.num = pipe ? fread(text.v, 1, max, pipe) : 0;
    if (pipe)
        pclose(pipe);
    printf("text: %s\n", text.num ? "dict-gcide" : "made-up words");
    for (uint64_t i = 0, made = text.num; made == 0 && text.num < max; i++) {
        const orth_rand4 r = orth_philox(1, ORTH_STREAM_TEST, 0, i);
        const uint64_t word = (uint64_t)(1.0f / (orth_rand_unit(r.v[0]) + 1e-5f));
        for (uint64_t w = word * 2654435761u + 7; w > 0; w /= 26 * 26)
            text.v[text.num++] = (char)('a' + w % 26);
        text.v[text.num++] = r.v[1] % 12 ? ' ' : '\n';
    }
    const orth_status status = orth_file_write(ctx, path, text.v, text.num);
    orth_bytes_free(ctx, &text);
    return status;
}

static orth_status run_default(orth_ctx *ctx)
{
    char dir[] = "/tmp/orth-bench-XXXXXX", text[64], json[64];
    if (!mkdtemp(dir))
        return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: cannot make the folder", dir);
    snprintf(text, sizeof text, "%s/text.txt", dir);
    snprintf(json, sizeof json, "%s/tokenizer.json", dir);
    orth_status status = write_default_text(ctx, text);
    if (status == ORTH_OK)
        status = run(ctx, text, json, 32000, 3);
    orth_path_remove(ctx, dir);
    return status;
}

int main(int argc, char **argv)
{
    int64_t vocab = 0;
    int n = 5;
    for (int i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--train") == 0)
            vocab = atoll(argv[i + 1]);
        else
            n = ORTH_MIN(atoi(argv[i + 1]), 64);
    }
    if (argc == 2) {
        fprintf(stderr, "usage: bench_tokenizer [TEXT TOKENIZER_JSON [--train VOCAB] [--repeat N]]\n");
        return 2;
    }
    orth_ctx ctx;
    orth_status status = orth_ctx_init(&ctx, (int)sysconf(_SC_NPROCESSORS_ONLN));
    if (status == ORTH_OK)
        status = argc > 2 ? run(&ctx, argv[1], argv[2], vocab, n) : run_default(&ctx);
    if (status != ORTH_OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", ctx.error.message);
        return orth_status_exit_code(status);
    }
    orth_ctx_destroy(&ctx);
    return 0;
}
