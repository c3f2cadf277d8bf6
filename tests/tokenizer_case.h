/* tokenizer_case.h -- tests/fixtures/tokenizer/ for the tests of tokenizers. */
#ifndef ORTH_TESTS_TOKENIZER_CASE_H
#define ORTH_TESTS_TOKENIZER_CASE_H

#include "test.h"

#include "base/files.h"
#include "data/tokenizer.h"

#define FIXTURES ORTH_TEST_DIR "/fixtures/tokenizer/"

static inline orth_tokenizer *load_fixture(orth_ctx *ctx, const char *name)
{
    char path[512];
    orth_tokenizer *tok = NULL;
    snprintf(path, sizeof path, FIXTURES "%s.json", name);
    CHECK_OK(ctx, orth_tokenizer_load(ctx, &tok, path));
    return tok;
}

static inline char *read_fixture(orth_ctx *ctx, const char *name, const char *ending, size_t *out_bytes)
{
    char path[512], *text = NULL;
    snprintf(path, sizeof path, FIXTURES "%s%s", name, ending);
    CHECK_OK(ctx, orth_file_read(ctx, path, &text, out_bytes));
    return text;
}

#endif
