/* fuzz_jsonl.c -- any bytes as a JSONL file and as a text file: cut into documents that lie inside of it, in
 * order; each line gives its text, no longer than the line, or an error in words. */
#include <stdlib.h>
#include <string.h>

#include "data/documents.h"
#include "data/jsonl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const separators[] = {"blank-line", "line", "file", "\n=\n", "ab"};
    orth_ctx *ctx = calloc(1, sizeof *ctx); /* no pool needed */
    orth_bytes text = {0};
    orth_document d;
    char *copy = malloc(size + 1);
    memcpy(copy, data, size);
    orth_documents docs = orth_documents_begin(true, NULL);
    docs.p = copy;
    docs.end = copy + size;
    docs.final = true;
    while (orth_documents_next(&docs, &d)) {
        char *line = malloc(d.num_bytes + 1); /* of its own, so that a read past it is seen */
        memcpy(line, d.text, d.num_bytes);
        if (orth_jsonl_text(ctx, &text, line, d.num_bytes, "text", "input", d.line_number) == ORTH_OK) {
            if (text.num > d.num_bytes)
                abort();
        } else if (ctx->error.message[0] == 0) {
            abort();
        }
        orth_ctx_clear_error(ctx);
        free(line);
    }
    for (int i = 0; i < ORTH_COUNT(separators); i++) {
        const char *at = copy;
        docs = orth_documents_begin(false, separators[i]);
        docs.p = copy;
        docs.end = copy + size;
        docs.final = true;
        docs.unit = 5;
        while (orth_documents_next(&docs, &d)) {
            if (d.text < at || d.num_bytes == 0 || d.text + d.num_bytes > copy + size)
                abort();
            at = d.text + d.num_bytes;
        }
    }
    orth_bytes_free(ctx, &text);
    if (ctx->heap_bytes != 0)
        abort();
    free(copy);
    free(ctx);
    return 0;
}
