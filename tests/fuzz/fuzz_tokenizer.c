/* fuzz_tokenizer.c -- any bytes as a tokenizer.json: refused with words, or a tokenizer that works.
 *
 * Up to the first zero byte the input is the file; what follows is text to encode with it. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* Decoding what was encoded never fails; a failed call says why. */
static void use(orth_ctx *ctx, const orth_tokenizer *tok, const char *text, size_t num_bytes)
{
    orth_ids ids = {0};
    orth_bytes out = {0};
    orth_tokenizer *again = NULL;
    if (orth_tokenizer_encode(ctx, tok, &ids, text, num_bytes) == ORTH_OK) {
        for (int64_t i = 0; i < ids.num; i++)
            check(ids.v[i] >= 0 && ids.v[i] < orth_tokenizer_vocab_size(tok));
        check(orth_tokenizer_decode(ctx, tok, &out, ids.v, ids.num, false) == ORTH_OK);
    } else
        check(ctx->error.message[0] != 0 && ids.num == 0);
    orth_ctx_clear_error(ctx);
    out.num = 0;
    check(orth_tokenizer_write(ctx, tok, &out) == ORTH_OK);
    check(orth_tokenizer_parse(ctx, &again, out.v, out.num, "again") == ORTH_OK);
    check(orth_tokenizer_fingerprint(again) == orth_tokenizer_fingerprint(tok));
    orth_tokenizer_free(ctx, again);
    orth_ids_free(ctx, &ids);
    orth_bytes_free(ctx, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx *ctx = calloc(1, sizeof *ctx); /* no pool is needed */
    char *copy = malloc(size + 1); /* of its own, so that a read past it is seen */
    memcpy(copy, data, size);
    const char *zero = memchr(copy, 0, size);
    const size_t json_bytes = zero ? (size_t)(zero - copy) : size;
    orth_tokenizer *tok = NULL;
    if (orth_tokenizer_parse(ctx, &tok, copy, json_bytes, "input") == ORTH_OK) {
        use(ctx, tok, zero ? zero + 1 : copy, zero ? size - json_bytes - 1 : ORTH_MIN(size, 512));
        orth_tokenizer_free(ctx, tok);
    } else {
        check(ctx->error.message[0] != 0 && tok == NULL);
    }
    check(ctx->heap_bytes == 0);
    free(copy);
    free(ctx);
    return 0;
}
