/* tokenizer_case.h -- tests/fixtures/tokenizer/ for the tests of tokenizers. */
#ifndef ORTH_TESTS_TOKENIZER_CASE_H
#define ORTH_TESTS_TOKENIZER_CASE_H

#include <jansson.h>

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

static inline json_t *load_texts(orth_ctx *ctx)
{
    size_t num_bytes;
    char *text = read_fixture(ctx, "texts", ".json", &num_bytes);
    json_t *texts = json_loadb(text, num_bytes, JSON_ALLOW_NUL, NULL);
    orth_mem_free(ctx, text);
    assert_non_null(texts);
    return texts;
}

/* Fails with the text, both lists and the place where they part. */
static inline void check_ids(const char *kind, const char *text, const orth_ids *got, const char *line)
{
    int64_t n = 0;
    for (const char *p = line; *p && *p != '\n';) {
        char *end;
        const long want = strtol(p, &end, 10);
        if (end == p)
            break;
        if (n >= got->num || got->v[n] != want)
            fail_msg("%s: \"%s\": id %d is %d, not %ld", kind, text, (int)n,
                     n < got->num ? (int)got->v[n] : -1, want);
        n++;
        p = end;
    }
    if (n != got->num)
        fail_msg("%s: \"%s\": %d ids, not %d", kind, text, (int)got->num, (int)n);
}

static inline void check_fixture(orth_ctx *ctx, const orth_tokenizer *tok, const char *kind, const json_t *texts)
{
    size_t num_bytes;
    char *lines = read_fixture(ctx, kind, ".ids", &num_bytes), *line = lines;
    orth_encoder *enc = NULL;
    CHECK_OK(ctx, orth_encoder_create(ctx, &enc, tok));
    orth_ids ids = {0};
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *t = json_array_get(texts, i);
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            ids.num = 0;
            CHECK_OK(ctx, orth_encoder_encode(ctx, enc, &ids, json_string_value(t), json_string_length(t)));
            check_ids(kind, json_string_value(t), &ids, line);
        }
        ids.num = 0;
        CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, json_string_value(t), json_string_length(t)));
        check_ids(kind, json_string_value(t), &ids, line);
        line = strchr(line, '\n') + 1;
    }
    orth_ids_free(ctx, &ids);
    orth_encoder_free(ctx, enc);
    orth_mem_free(ctx, lines);
}

#endif
