/* test_tokenizer.c -- against ids and merges made by Hugging Face `tokenizers`
 * (tools/golden/make_tokenizer_fixtures.py), and against Oniguruma. */
#include <jansson.h>
#include <unistd.h>

#include "data/tokenizer_impl.h"
#include "tokenizer_case.h"

static const char *const kinds[] = {"gpt2", "llama3", "qwen", "prefix", "o200k", "stages"};

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

/* ---- training ---- */

static orth_tokenizer *train_fixture(orth_ctx *ctx, orth_tokenizer_kind kind, const char *text,
                                     size_t num_bytes)
{
    const orth_text_span span = {.data = text, .num_bytes = num_bytes};
    const orth_tokenizer_train_options options = {.vocab_size = 701, .kind = kind};
    orth_tokenizer *tok = NULL;
    CHECK_OK(ctx, orth_tokenizer_train(ctx, &tok, &span, 1, &options));
    return tok;
}

TEST(training_learns_the_merges_that_hugging_face_learns)
{
    static const char *const names[] = {"train_gpt2", "train_llama3", "train_qwen"};
    orth_ctx *ctx = test_ctx(2);
    size_t num_bytes, merges_bytes;
    char *text = read_fixture(ctx, "train", ".txt", &num_bytes);
    for (int k = 0; k < ORTH_COUNT(names); k++) {
        orth_tokenizer *tok = train_fixture(ctx, (orth_tokenizer_kind)k, text, num_bytes);
        char *lines = read_fixture(ctx, names[k], ".merges", &merges_bytes), *line = lines;
        assert_int_equal(orth_tokenizer_vocab_size(tok), 701);
        assert_int_equal(orth_tokenizer_eos(tok), 700);
        for (int64_t i = 0; i < tok->num_merges; i++) {
            char got[512];
            snprintf(got, sizeof got, "%s %s\n", tok->tokens[tok->merges[i].left].content,
                     tok->tokens[tok->merges[i].right].content);
            if (strncmp(got, line, strlen(got)) != 0)
                fail_msg("%s: merge %d is %s", names[k], (int)i, got);
            line += strlen(got);
        }
        assert_int_equal(*line, 0);
        orth_mem_free(ctx, lines);
        orth_tokenizer_free(ctx, tok);
    }
    orth_mem_free(ctx, text);
    test_ctx_free(ctx);
}

TEST(training_does_not_depend_on_threads_or_order)
{
    orth_ctx *ctx = test_ctx(1);
    size_t num_bytes;
    char *text = read_fixture(ctx, "train", ".txt", &num_bytes);
    char *many = orth_mem_alloc(ctx, 12 * num_bytes); /* several tasks */
    for (int i = 0; i < 12; i++)
        memcpy(many + (size_t)i * num_bytes, text, num_bytes);
    orth_tokenizer *one = train_fixture(ctx, ORTH_TOKENIZER_LLAMA3, many, 12 * num_bytes);
    for (int threads = 2; threads <= 7; threads += 5) {
        orth_ctx *other = test_ctx(threads);
        orth_tokenizer *tok = train_fixture(other, ORTH_TOKENIZER_LLAMA3, many, 12 * num_bytes);
        assert_true(orth_tokenizer_fingerprint(tok) == orth_tokenizer_fingerprint(one));
        orth_tokenizer_free(other, tok);
        test_ctx_free(other);
    }
    orth_tokenizer_free(ctx, one);
    orth_mem_free(ctx, many);
    orth_mem_free(ctx, text);
    test_ctx_free(ctx);
}

TEST(training_refuses_small_vocabularies_and_survives_odd_texts)
{
    orth_ctx *ctx = test_ctx(2);
    orth_tokenizer *tok = NULL;
    orth_tokenizer_train_options options = {.vocab_size = 256};
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "vocab_size=256 is not in [257, ",
                orth_tokenizer_train(ctx, &tok, NULL, 0, &options));
    static const char odd[] = "\xff\xfe\x80 ab\xc3 ab ab \xf0\x9f\x98 ab aaaaaaa aaaaaaa";
    const orth_text_span spans[] = {{"", 0}, {odd, sizeof odd - 1}, {"\xff", 1}};
    options.vocab_size = 1000;
    CHECK_OK(ctx, orth_tokenizer_train(ctx, &tok, spans, 3, &options));
    assert_in_range(orth_tokenizer_vocab_size(tok), 259, 300); /* fewer: no more pairs occur twice */
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

/* ---- scanners against patterns ---- */

/* A bit of everything, characters of Unicode 15 and 16 among it. */
static size_t random_text(char *out, size_t max, uint64_t seed)
{
    static const char *const parts[] = {
        "a", "b", "Z", "s", "S", "t", "re", "LL", "'", "'s", "'T", "'VE", "'ll", "0", "1", "23", "456", " ", " ",
        "  ", "\n", "\r\n", "\t", "!", ".", "_", "\"", "\xc3\xa9", "\xc5\xbf", "\xce\xbb", "\xd0\x96", "\xe4\xb8\xad",
        "\xe6\x97\xa5", "\xf0\x9f\x98\x80", "\xe2\x80\x8d", "\xcc\x81", "\xc2\xa0", "\xe2\x80\x83", "\xe3\x80\x80",
        "\xc2\x85", "\xd9\xa3", "\xc2\xbd", "\xe2\x85\xa3", "\xe0\xa4\x95", "\xe0\xa5\x8d", "\xf0\xa0\x80\x80",
        "\xe2\x80\xa8", "\xef\xbb\xbf", "$", "(", "\xc2\xb2", "\xf0\xb1\x8d\x90", "\xf0\x90\xb5\x90", "\xe1\xb2\x89",
    };
    size_t n = 0;
    for (uint64_t i = 0; n + 4 < max; i++) {
        const char *p = parts[test_rand_int(seed, i, 0, ORTH_COUNT(parts) - 1)];
        memcpy(out + n, p, strlen(p));
        n += strlen(p);
    }
    return n;
}

static void check_scan(orth_ctx *ctx, orth_scan_kind kind, const uint8_t *classes, const orth_pattern *pattern,
                       orth_matcher *matcher, const char *text, size_t num_bytes)
{
    orth_matches m = {.pattern = pattern, .text = text, .num_bytes = num_bytes};
    size_t at = 0;
    const char *ends[7]; /* odd, so that words fall on either side of a batch */
    while (at < num_bytes) {
        const int n = orth_scan_words(kind, classes, text + at, text + num_bytes, ends, ORTH_COUNT(ends));
        assert_in_range(n, 1, ORTH_COUNT(ends));
        for (int i = 0; i < n; i++) {
            bool found;
            CHECK_OK(ctx, orth_matches_next(ctx, matcher, &m, &found));
            assert_true(found);
            assert_int_equal(m.start, at);
            if (m.stop != (size_t)(ends[i] - text))
                fail_msg("kind %d: \"%.*s\" at byte %d: the pattern has %d bytes, the scanner %d", (int)kind,
                         (int)num_bytes, text, (int)at, (int)(m.stop - m.start),
                         (int)(ends[i] - text - (int64_t)at));
            at = m.stop;
        }
    }
}

TEST(scanners_cut_where_patterns_cut)
{
    orth_ctx *ctx = test_ctx(1);
    orth_arena arena = {0};
    orth_matcher matcher = {0};
    uint8_t *classes;
    CHECK_OK(ctx, orth_char_classes_create(ctx, &arena, &classes));
    for (orth_scan_kind kind = ORTH_SCAN_GPT2; kind <= ORTH_SCAN_QWEN; kind++) {
        const char *text = orth_scan_pattern(kind);
        orth_pattern pattern;
        CHECK_OK(ctx, orth_pattern_compile(ctx, &arena, &pattern, text, strlen(text), false, "", ""));
        for (uint64_t seed = 0; seed < 4000; seed++) {
            char buffer[256];
            const size_t max = (size_t)test_rand_int(seed, 1u << 20, 5, sizeof buffer);
            check_scan(ctx, kind, classes, &pattern, &matcher, buffer, random_text(buffer, max, seed));
        }
        orth_pattern_free(&pattern);
    }
    orth_matcher_free(&matcher);
    orth_arena_release(ctx, &arena);
    test_ctx_free(ctx);
}

/* ---- bytes ---- */

static void check_round_trip(orth_ctx *ctx, const orth_tokenizer *tok, const char *text, size_t num_bytes)
{
    orth_ids ids = {0};
    orth_bytes back = {0};
    CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, text, num_bytes));
    CHECK_OK(ctx, orth_tokenizer_decode(ctx, tok, &back, ids.v, ids.num, false));
    assert_int_equal(back.num, num_bytes);
    if (num_bytes > 0)
        assert_memory_equal(back.v, text, num_bytes);
    orth_ids_free(ctx, &ids);
    orth_bytes_free(ctx, &back);
}

TEST(any_bytes_survive_encoding_and_decoding)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *toks[3] = {load_fixture(ctx, "gpt2"), load_fixture(ctx, "o200k"), NULL};
    CHECK_OK(ctx, orth_tokenizer_bytes(ctx, &toks[2]));
    for (uint64_t seed = 0; seed < 300; seed++) {
        unsigned char text[200];
        const size_t n = (size_t)test_rand_int(seed, 999, 0, sizeof text);
        for (size_t i = 0; i < n; i++) { /* mostly starts and continuations of characters */
            const int64_t r = test_rand_int(seed, i, 0, 9);
            text[i] = (unsigned char)(r < 3   ? test_rand_int(seed, 1000 + i, 0x20, 0x7F)
                                      : r < 6 ? test_rand_int(seed, 1000 + i, 0x80, 0xBF)
                                              : test_rand_int(seed, 1000 + i, 0xC0, 0xFF));
        }
        for (int k = 0; k < 3; k++)
            check_round_trip(ctx, toks[k], (char *)text, n);
    }
    for (int k = 0; k < 3; k++)
        orth_tokenizer_free(ctx, toks[k]);
    test_ctx_free(ctx);
}

TEST(a_byte_that_is_no_character_is_a_piece_by_itself)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = load_fixture(ctx, "gpt2");
    orth_ids all = {0}, parts = {0};
    /* overlong, surrogate, too large, cut off, lone continuation */
    static const char *const bad[] = {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8", "\x80"};
    for (int i = 0; i < ORTH_COUNT(bad); i++) {
        char text[64];
        snprintf(text, sizeof text, "the word %s of the", bad[i]);
        all.num = parts.num = 0;
        CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &all, text, strlen(text)));
        CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &parts, "the word ", 9));
        for (const char *p = bad[i]; *p; p++) {
            CHECK_OK(ctx, orth_ids_reserve(ctx, &parts, 1));
            parts.v[parts.num++] = tok->byte_id[(uint8_t)*p];
        }
        CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &parts, " of the", 7));
        assert_int_equal(all.num, parts.num);
        assert_memory_equal(all.v, parts.v, (size_t)all.num * sizeof *all.v);
    }
    orth_ids_free(ctx, &all);
    orth_ids_free(ctx, &parts);
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

/* The tokens of bytes, 256 <|endoftext|>, 257 `a` and 258 `b`: their contents and what they strip. */
static orth_tokenizer *with_added(orth_ctx *ctx, const char *a, const char *a_strips, const char *b, const char *b_strips)
{
    static const char mark[] = "\"added_tokens\": [";
    const char *contents[] = {a, b}, *strips[] = {a_strips, b_strips};
    orth_tokenizer *tok;
    orth_bytes text = {0};
    CHECK_OK(ctx, orth_tokenizer_bytes(ctx, &tok));
    CHECK_OK(ctx, orth_tokenizer_write(ctx, tok, &text));
    orth_tokenizer_free(ctx, tok);
    char *json = calloc(1, text.num + 1024), *at = strstr(text.v, mark);
    assert_non_null(at);
    at += strlen(mark);
    size_t n = (size_t)(at - text.v);
    memcpy(json, text.v, n);
    for (int i = 0; i < 2; i++)
        n += (size_t)sprintf(json + n, "{\"id\": %d, \"content\": \"%s\", \"lstrip\": %s, \"rstrip\": %s, \"single_word\": false, \"normalized\": false, "
                             "\"special\": true},", 257 + i, contents[i], strchr(strips[i], 'l') ? "true" : "false", strchr(strips[i], 'r') ? "true" : "false");
    memcpy(json + n, at, text.num - (size_t)(at - text.v));
    CHECK_OK(ctx, orth_tokenizer_parse(ctx, &tok, json, strlen(json), "added"));
    orth_bytes_free(ctx, &text);
    free(json);
    return tok;
}

/* The ids are those of tokenizers 0.23.3, which fails on the seventh text. */
TEST(what_a_token_has_stripped_is_no_token_that_strips)
{
    static const struct {
        const char *a, *a_strips, *b, *b_strips, *text;
        int num;
        int32_t ids[6];
    } cases[] = {
        {"\\n", "lr", "<b>", "", "y\n\nb", 3, {'y', 257, 'b'}},
        {"\\n", "lr", "<b>", "", "y\n \n<b>", 3, {'y', 257, 258}},
        {"<a>", "r", "  ", "l", "<a>  x", 2, {257, 'x'}},
        {"<a>", "r", " x", "l", "<a>   xy", 3, {257, 258, 'y'}},
        {"<a>", "r", "\\n", "", "<a>\n  x", 5, {257, 258, ' ', ' ', 'x'}},
        {"<a>", "r", "\\n", "r", "<a>\n\n\nx", 5, {257, 258, 258, 258, 'x'}},
        {"<a>", "r", "\\n", "l", "<a>\n  x", 2, {257, 'x'}},
        {"<a>", "r", "<b>", "l", "<a> <b>  <b>x", 4, {257, 258, 258, 'x'}},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_tokenizer *tok = with_added(ctx, cases[i].a, cases[i].a_strips, cases[i].b, cases[i].b_strips);
        orth_ids ids = {0};
        CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, cases[i].text, strlen(cases[i].text)));
        if (ids.num != cases[i].num || memcmp(ids.v, cases[i].ids, (size_t)ids.num * sizeof *ids.v) != 0)
            fail_msg("case %d: %d ids, %d, %d, ...", i, (int)ids.num, (int)ids.v[0], ids.num > 1 ? (int)ids.v[1] : -1);
        orth_ids_free(ctx, &ids);
        orth_tokenizer_free(ctx, tok);
    }
    test_ctx_free(ctx);
}

TEST(bytes_tokenizer_is_built_in)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = NULL, *again = NULL;
    CHECK_OK(ctx, orth_tokenizer_load(ctx, &tok, "bytes"));
    assert_int_equal(orth_tokenizer_vocab_size(tok), 257);
    assert_int_equal(orth_tokenizer_eos(tok), 256);
    assert_string_equal(orth_tokenizer_kind_name(tok), "bytes");
    orth_ids ids = {0};
    CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, "a\n\xff<|endoftext|>\0", 17));
    const int32_t want[] = {'a', '\n', 0xFF, 256, 0};
    assert_int_equal(ids.num, 5);
    assert_memory_equal(ids.v, want, sizeof want);
    orth_bytes json = {0};
    CHECK_OK(ctx, orth_tokenizer_write(ctx, tok, &json));
    CHECK_OK(ctx, orth_tokenizer_parse(ctx, &again, json.v, json.num, "bytes"));
    assert_true(orth_tokenizer_fingerprint(again) == orth_tokenizer_fingerprint(tok));
    orth_bytes_free(ctx, &json);
    orth_ids_free(ctx, &ids);
    orth_tokenizer_free(ctx, tok);
    orth_tokenizer_free(ctx, again);
    test_ctx_free(ctx);
}

TEST(long_words_are_merged_like_short_ones)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = load_fixture(ctx, "gpt2");
    enum { N = 300000 };
    char *text = orth_mem_alloc(ctx, N);
    for (int i = 0; i < N; i++)
        text[i] = (char)('a' + test_rand_int(3, (uint64_t)i, 0, 5));
    check_round_trip(ctx, tok, text, N); /* a quadratic merge would take minutes */
    /* The heap against the search through all pairs: word lengths on either side of the limit. */
    orth_bpe_scratch scratch = {0};
    int32_t whole[128];
    for (int n = 40; n < 60; n++) {
        orth_ids ids = {0};
        CHECK_OK(ctx, orth_tokenizer_encode(ctx, tok, &ids, text, (size_t)n));
        assert_int_equal(orth_bpe_word(ctx, tok, &scratch, whole, text, (size_t)n), ids.num);
        assert_memory_equal(whole, ids.v, (size_t)ids.num * sizeof *whole);
        orth_ids_free(ctx, &ids);
    }
    orth_mem_free(ctx, scratch.block);
    orth_mem_free(ctx, text);
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

TEST(questions_have_answers)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = load_fixture(ctx, "llama3");
    size_t n;
    assert_int_equal(orth_tokenizer_id(tok, "<|endoftext|>"), orth_tokenizer_eos(tok));
    assert_true(orth_tokenizer_is_special(tok, orth_tokenizer_eos(tok)));
    assert_int_equal(orth_tokenizer_id(tok, "no such token"), -1);
    assert_null(orth_tokenizer_token(tok, -1, &n));
    assert_null(orth_tokenizer_token(tok, 1 << 30, &n));
    const int32_t the = orth_tokenizer_id(tok, "\xc4\xa0the"); /* spelled as in the file */
    assert_memory_equal(orth_tokenizer_token(tok, the, &n), " the", 4);
    assert_string_equal(orth_tokenizer_kind_name(tok), "llama3");
    orth_bytes out = {0};
    const int32_t ids[] = {the, orth_tokenizer_eos(tok), the, 99999};
    CHECK_OK(ctx, orth_tokenizer_decode(ctx, tok, &out, ids, 3, true));
    assert_int_equal(out.num, 8);
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "token 3 of 4 has id 99999: not in the vocabulary of",
                orth_tokenizer_decode(ctx, tok, &out, ids, 4, false));
    assert_int_equal(out.num, 8);
    orth_bytes_free(ctx, &out);
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_equals_hugging_face),
        cmocka_unit_test(saved_tokenizer_is_the_same_tokenizer),
        cmocka_unit_test(training_learns_the_merges_that_hugging_face_learns),
        cmocka_unit_test(training_does_not_depend_on_threads_or_order),
        cmocka_unit_test(training_refuses_small_vocabularies_and_survives_odd_texts),
        cmocka_unit_test(scanners_cut_where_patterns_cut),
        cmocka_unit_test(any_bytes_survive_encoding_and_decoding),
        cmocka_unit_test(a_byte_that_is_no_character_is_a_piece_by_itself),
        cmocka_unit_test(what_a_token_has_stripped_is_no_token_that_strips),
        cmocka_unit_test(bytes_tokenizer_is_built_in),
        cmocka_unit_test(long_words_are_merged_like_short_ones),
        cmocka_unit_test(questions_have_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
