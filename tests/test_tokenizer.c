/* test_tokenizer.c -- against ids and merges made by Hugging Face `tokenizers`
 * (tools/golden/make_tokenizer_fixtures.py), against PCRE2, and against damage. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <unistd.h>

#include "data/tokenizer.h"
#include "data/tokenizer_impl.h"
#include "test.h"

#include "base/files.h"

#define FIXTURES ORTH_TEST_DIR "/fixtures/tokenizer/"

static const char *const kinds[] = {"gpt2", "llama3", "qwen", "prefix", "o200k", "stages"};

static orth_tokenizer *load_fixture(orth_ctx *ctx, const char *name)
{
    char path[512];
    orth_tokenizer *tok = NULL;
    snprintf(path, sizeof path, FIXTURES "%s.json", name);
    CHECK_OK(ctx, orth_tokenizer_load(ctx, &tok, path));
    return tok;
}

static char *read_fixture(orth_ctx *ctx, const char *name, const char *ending, size_t *out_bytes)
{
    char path[512], *text = NULL;
    snprintf(path, sizeof path, FIXTURES "%s%s", name, ending);
    CHECK_OK(ctx, orth_file_read(ctx, path, &text, out_bytes));
    return text;
}

static json_t *load_texts(orth_ctx *ctx)
{
    size_t num_bytes;
    char *text = read_fixture(ctx, "texts", ".json", &num_bytes);
    json_t *texts = json_loadb(text, num_bytes, JSON_ALLOW_NUL, NULL);
    orth_mem_free(ctx, text);
    assert_non_null(texts);
    return texts;
}

/* Fails with the text, both lists and the place where they part. */
static void check_ids(const char *kind, const char *text, const orth_ids *got, const char *line)
{
    int64_t n = 0;
    for (const char *p = line; *p && *p != '\n';) {
        char *end;
        const long want = strtol(p, &end, 10);
        if (end == p)
            break;
        if (n >= got->num || got->v[n] != want)
            fail_msg("%s: \"%s\": id %d is %d, not %ld", kind, text, (int)n, n < got->num ? (int)got->v[n] : -1, want);
        n++;
        p = end;
    }
    if (n != got->num)
        fail_msg("%s: \"%s\": %d ids, not %d", kind, text, (int)got->num, (int)n);
}

static void check_fixture(orth_ctx *ctx, const orth_tokenizer *tok, const char *kind, const json_t *texts)
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

TEST(encoding_equals_hugging_face)
{
    orth_ctx *ctx = test_ctx(1);
    json_t *texts = load_texts(ctx);
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        orth_tokenizer *tok = load_fixture(ctx, kinds[k]);
        check_fixture(ctx, tok, kinds[k], texts);
        orth_tokenizer_free(ctx, tok);
    }
    json_decref(texts);
    test_ctx_free(ctx);
}

TEST(saved_tokenizer_is_the_same_tokenizer)
{
    orth_ctx *ctx = test_ctx(1);
    json_t *texts = load_texts(ctx);
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        orth_tokenizer *tok = load_fixture(ctx, kinds[k]), *again = NULL;
        orth_bytes json = {0}, json_again = {0};
        CHECK_OK(ctx, orth_tokenizer_write(ctx, tok, &json));
        CHECK_OK(ctx, orth_tokenizer_parse(ctx, &again, json.v, json.num, "again"));
        CHECK_OK(ctx, orth_tokenizer_write(ctx, again, &json_again));
        assert_int_equal(json.num, json_again.num);
        assert_memory_equal(json.v, json_again.v, json.num);
        assert_true(orth_tokenizer_fingerprint(tok) == orth_tokenizer_fingerprint(again));
        check_fixture(ctx, again, kinds[k], texts);
        orth_bytes_free(ctx, &json);
        orth_bytes_free(ctx, &json_again);
        orth_tokenizer_free(ctx, tok);
        orth_tokenizer_free(ctx, again);
    }
    json_decref(texts);
    test_ctx_free(ctx);
}

static orth_tokenizer *parse_text(orth_ctx *ctx, const char *json)
{
    orth_tokenizer *tok = NULL;
    CHECK_OK(ctx, orth_tokenizer_parse(ctx, &tok, json, strlen(json), "t.json"));
    return tok;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_equals_hugging_face),
        cmocka_unit_test(saved_tokenizer_is_the_same_tokenizer),
    };
    (void)parse_text;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
