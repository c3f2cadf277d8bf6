/* fuzz_text.c -- any bytes as an input: compressed or not, text or JSONL, cut in every way. Refused in words, or every
 * document lies in order and gives its text; of a whole file the pieces are all bytes. The first byte chooses the way. */
#include <stdlib.h>
#include <string.h>

#include "data/reader.h"
#include "data/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST ((int64_t)4 << 20) /* of what comes out: bombs end here */

static void check_failed(orth_ctx *ctx)
{
    if (ctx->error.message[0] == 0)
        abort();
    orth_ctx_clear_error(ctx);
}

static void use(orth_ctx *ctx, orth_reader *r, const char *name, const uint8_t *data, size_t size)
{
    orth_document docs[7];
    orth_bytes line = {0};
    int64_t num = 1, total = 0;
    const int64_t before = orth_reader_bytes(r);
    orth_status status = orth_reader_memory(ctx, r, name, data, size);
    while (status == ORTH_OK && num > 0 && total < MOST) {
        status = orth_reader_next(ctx, r, docs, 7, &num);
        for (int64_t i = 0; status == ORTH_OK && i < num; i++) {
            const char *text;
            size_t n;
            total += (int64_t)docs[i].num_bytes;
            if (docs[i].num_bytes == 0 || (i > 0 && docs[i].text < docs[i - 1].text + docs[i - 1].num_bytes))
                abort();
            if (orth_reader_text(ctx, r, &docs[i], &line, &text, &n) != ORTH_OK)
                check_failed(ctx);
            else if (n > docs[i].num_bytes)
                abort();
        }
    }
    if (status != ORTH_OK)
        check_failed(ctx);
    else if (total > orth_reader_bytes(r) - before)
        abort();
    orth_bytes_free(ctx, &line);
}

/* Readers are kept: their windows take longer to make than an input to read. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const separators[] = {"file", "blank-line", "line", "\n=\n", "ab"};
    static const char *const names[] = {"in.txt", "in.jsonl", "in.ndjson.gz", "in.jsonl.zst"};
    static orth_reader *readers[3][5][2];
    static orth_ctx ctx; /* no pool needed */
    if (size == 0)
        return 0;
    const int format = data[0] % 3, separator = data[0] / 4 % 5, inputs = data[0] % 2;
    orth_reader **r = &readers[format][separator][inputs];
    const orth_text_options o = {.format = (orth_text_format)format, .separator = separators[separator]};
    uint8_t *copy = malloc(size); /* of its own, so that a read past it is seen */
    memcpy(copy, data + 1, size - 1);
    if (!*r && orth_reader_create(&ctx, r, &o, inputs) != ORTH_OK)
        abort();
    use(&ctx, *r, names[data[0] / 32 % 4], copy, size - 1);
    if (orth_reader_memory(&ctx, *r, "none", "", 0) != ORTH_OK) /* lets go of the copy */
        abort();
    free(copy);
    return 0;
}
