/* test_tokenizer_chars.c -- tokenizers of characters (the kind of SentencePiece) and normalizers, against ids and texts made by
 * Hugging Face `tokenizers` (tools/golden/make_char_fixtures.py). */
#include "data/tokenizer_impl.h"
#include "tokenizer_case.h"

static const char *const kinds[] = {"chars/llama2", "chars/gemma", "chars/mistral", "chars/metaspace", "chars/never",
                                    "chars/holes",  "chars/nounk", "chars/nfkc",    "chars/nfd",       "chars/nfkd"};

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

static uint64_t fnv(const orth_bytes *b)
{
    uint64_t h = 0xCBF29CE484222325;
    for (size_t i = 0; i < b->num; i++)
        h = (h ^ (uint8_t)b->v[i]) * 0x100000001B3;
    return h;
}

/* All at once, and token by token as they come from a model. */
static void check_decoding(orth_ctx *ctx, const orth_tokenizer *tok, const char *kind, const json_t *t, const char *line)
{
    orth_ids ids = {0};
    orth_bytes whole = {0}, parts = {0};
    orth_decoding at = {0};
    CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, json_string_value(t), json_string_length(t)));
    CHECK_OK(ctx, orth_tokenizer_decode(ctx, tok, &whole, ids.v, ids.num, false));
    for (int64_t i = 0; i < ids.num; i++)
        CHECK_OK(ctx, orth_tokenizer_decode_on(ctx, tok, &at, &parts, &ids.v[i], 1, false));
    assert_int_equal(whole.num, parts.num);
    if (whole.num > 0)
        assert_memory_equal(whole.v, parts.v, whole.num);
    if (line[0] != '-' && fnv(&whole) != strtoull(line, NULL, 16))
        fail_msg("%s: \"%s\" comes back as \"%.*s\"", kind, json_string_value(t), (int)whole.num, whole.v);
    orth_ids_free(ctx, &ids);
    orth_bytes_free(ctx, &whole);
    orth_bytes_free(ctx, &parts);
}

TEST(decoding_equals_hugging_face)
{
    orth_ctx *ctx = test_ctx(1);
    json_t *texts = load_texts(ctx);
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        orth_tokenizer *tok = load_fixture(ctx, kinds[k]);
        size_t num_bytes;
        char *lines = read_fixture(ctx, kinds[k], ".decoded", &num_bytes), *line = lines;
        for (size_t i = 0; i < json_array_size(texts); i++) {
            check_decoding(ctx, tok, kinds[k], json_array_get(texts, i), line);
            line = strchr(line, '\n') + 1;
        }
        orth_mem_free(ctx, lines);
        orth_tokenizer_free(ctx, tok);
    }
    json_decref(texts);
    test_ctx_free(ctx);
}

TEST(saved_tokenizer_is_the_same_tokenizer)
{
    orth_ctx *ctx = test_ctx(1);
    json_t *texts = load_texts(ctx);
    uint64_t seen[ORTH_COUNT(kinds)];
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        orth_tokenizer *tok = load_fixture(ctx, kinds[k]), *again = NULL;
        orth_bytes json = {0};
        CHECK_OK(ctx, orth_tokenizer_write(ctx, tok, &json));
        CHECK_OK(ctx, orth_tokenizer_parse(ctx, &again, json.v, json.num, "again"));
        seen[k] = orth_tokenizer_fingerprint(tok);
        assert_true(seen[k] == orth_tokenizer_fingerprint(again));
        check_fixture(ctx, again, kinds[k], texts);
        for (int i = 0; i < k; i++)
            assert_true(seen[i] != seen[k]);
        orth_bytes_free(ctx, &json);
        orth_tokenizer_free(ctx, tok);
        orth_tokenizer_free(ctx, again);
    }
    json_decref(texts);
    test_ctx_free(ctx);
}

/* The parts that the encoder cuts a text into, against the text merged as one word. */
TEST(cuts_do_not_change_what_is_merged)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = load_fixture(ctx, "chars/gemma");
    static const char *const parts[] = {"\xe2\x96\x81", "\xe2\x96\x81the", "word", "a", "t", "h",
                                        "\n", "\xc3\xa9", "\xe4\xb8\xad", "ing", "<", "0x41>"};
    orth_bpe_scratch scratch = {0};
    for (uint64_t seed = 0; seed < 500; seed++) {
        orth_bytes text = {0};
        orth_ids cut = {0}, whole = {0};
        for (uint64_t i = 0; i < 60; i++) {
            const char *p = parts[test_rand_int(seed, i, 0, ORTH_COUNT(parts) - 1)];
            CHECK_OK(ctx, orth_bytes_append(ctx, &text, p, strlen(p)));
        }
        CHECK_OK(ctx, orth_ids_reserve(ctx, &cut, (int64_t)text.num));
        CHECK_OK(ctx, orth_ids_reserve(ctx, &whole, (int64_t)text.num));
        whole.num = orth_bpe_word(ctx, tok, &scratch, whole.v, text.v, text.num);
        int num_cuts = 0;
        for (const char *p = text.v, *end = p + text.num, *stop; p < end; p = stop, num_cuts++) {
            stop = orth_cut(tok, p, end);
            cut.num += orth_bpe_word(ctx, tok, &scratch, cut.v + cut.num, p, (size_t)(stop - p));
        }
        assert_in_range(num_cuts, 5, 100);
        assert_int_equal(cut.num, whole.num);
        assert_memory_equal(cut.v, whole.v, (size_t)whole.num * sizeof *whole.v);
        orth_bytes_free(ctx, &text);
        orth_ids_free(ctx, &cut);
        orth_ids_free(ctx, &whole);
    }
    orth_mem_free(ctx, scratch.block);
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

TEST(a_long_text_without_cuts_is_not_quadratic)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = load_fixture(ctx, "chars/mistral"); /* one word, as the whole of it may be a token */
    enum { N = 1 << 20 };
    char *text = orth_mem_alloc(ctx, N);
    orth_ids ids = {0};
    orth_bytes back = {0};
    for (int i = 0; i < N; i++)
        text[i] = "abcdefgh the\n"[test_rand_int(3, (uint64_t)i, 0, 12)];
    CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, text, N)); /* would take hours */
    CHECK_OK(ctx, orth_tokenizer_decode(ctx, tok, &back, ids.v, ids.num, false));
    assert_int_equal(back.num, N - (text[0] == ' ')); /* a space that was there is dropped as the one that is added */
    assert_memory_equal(back.v, text + (text[0] == ' '), back.num);
    orth_ids_free(ctx, &ids);
    orth_bytes_free(ctx, &back);
    orth_mem_free(ctx, text);
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

TEST(bytes_that_are_no_characters_survive)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = load_fixture(ctx, "chars/gemma");
    static const char text[] = "the \xff\xfe word\xe4\xb8 \xc3\xa9";
    orth_ids ids = {0};
    orth_bytes back = {0};
    CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, text, sizeof text - 1));
    CHECK_OK(ctx, orth_tokenizer_decode(ctx, tok, &back, ids.v, ids.num, false));
    assert_int_equal(back.num, sizeof text - 1);
    assert_memory_equal(back.v, text, back.num);
    assert_string_equal(orth_tokenizer_kind_name(tok), "characters");
    orth_ids_free(ctx, &ids);
    orth_bytes_free(ctx, &back);
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_equals_hugging_face),
        cmocka_unit_test(decoding_equals_hugging_face),
        cmocka_unit_test(saved_tokenizer_is_the_same_tokenizer),
        cmocka_unit_test(cuts_do_not_change_what_is_merged),
        cmocka_unit_test(a_long_text_without_cuts_is_not_quadratic),
        cmocka_unit_test(bytes_that_are_no_characters_survive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
