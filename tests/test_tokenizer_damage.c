/* test_tokenizer_damage.c -- damaged and foreign tokenizer files, patterns that explode, and failing allocations and writes
 * end with a message.
 */
#include <unistd.h>

#include "data/tokenizer_pattern.h"
#include "tokenizer_case.h"

#define PRE "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL(vocab, merges) "\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define ADDED(fields) "\"added_tokens\":[{" fields "}]"
#define FLAGS "\"special\":true,\"lstrip\":false,\"rstrip\":false,\"single_word\":false,\"normalized\":false"
#define NORMALIZED "\"special\":false,\"lstrip\":false,\"rstrip\":false,\"single_word\":false,\"normalized\":true"

TEST(damaged_files_are_refused_with_the_place)
{
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"", "t.json:1:0: "},
        {"{\"model\":", "t.json:1:9: "},
        {"[]", "t.json: not a JSON object"},
        {"{}", "t.json: model is not an object: this is no tokenizer.json"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "model.type \"Unigram\" is not supported (BPE)"},
        {"{\"model\":{\"vocab\":[],\"merges\":[]}}", "model.vocab is not an object"},
        {"{\"model\":{\"vocab\":{},\"merges\":{}}}", "model.merges is not a list"},
        {"{" PRE "," MODEL("\"a\":\"0\"", "") "}", "model.vocab: the id of \"a\" is not an integer"},
        {"{" PRE "," MODEL("\"a\":-1", "") "}", "model.vocab: the id of \"a\" is -1, not in [0, "},
        {"{" PRE "," MODEL("\"a\":4000000000", "") "}", "the id of \"a\" is 4000000000, not in [0, "},
        {"{" PRE "," MODEL("\"a\":0,\"b\":0", "") "}", "\"a\" and \"b\" both have id 0"},
        {"{" PRE "," MODEL("\"a\":0,\"a\":1", "") "}", "duplicate object key"},
        {"{" PRE "," MODEL("\"a\":0", "\"a b\"") "}",
         "model.merges[0]: token \"b\" is not in the vocabulary"},
        {"{" PRE "," MODEL("\"a\":0,\"b\":1", "\"a b\"") "}",
         "model.merges[0]: token \"ab\" is not in the vocabulary"},
        {"{" PRE "," MODEL("\"a\":0", "\"a\"") "}",
         "model.merges[0]: \"a\" is not two tokens with one space"},
        {"{" PRE "," MODEL("\"a\":0", "[\"a\"]") "}", "model.merges[0] is neither"},
        {"{" PRE "," MODEL("\"a\":0", "7") "}", "model.merges[0] is neither"},
        {"{" PRE "," ADDED("\"id\":1") "," MODEL("\"a\":0", "") "}",
         "added_tokens[0].content is not a string"},
        {"{" PRE "," ADDED("\"id\":1,\"content\":\"x\"") "," MODEL("\"a\":0", "") "}",
         "added_tokens[0].special is not true or false"},
        {"{" PRE "," ADDED("\"id\":1,\"content\":\"a\"," FLAGS) "," MODEL("\"a\":0", "") "}",
         "added_tokens[0]: \"a\" has id 1, but 0 in model.vocab"},
        {"{" PRE "," ADDED("\"id\":0,\"content\":\"x\"," FLAGS) "," MODEL("\"a\":0", "") "}",
         "added_tokens: \"a\" and \"x\" both have id 0"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\\n\"},\"content\":\" \"}," PRE ",\"added_tokens\":[{\"id\":7,"
         "\"content\":\"\\nx\"," NORMALIZED "},{\"id\":8,\"content\":\" x\"," NORMALIZED "}]," MODEL("\"a\":0", "") "}",
         "t.json: added_tokens: the normalizer makes the same of \"\nx\" (id 7) and \" x\" (id 8), both \"normalized\": true: not supported"},
        {"{\"added_tokens\":{}," PRE "," MODEL("\"a\":0", "") "}", "added_tokens is not a list"},
        {"{\"pre_tokenizer\":{}," MODEL("\"a\":0", "") "}", "pre_tokenizer of type \"(none)\" is not supported"},
        {"{\"pre_tokenizer\":{\"type\":\"Whitespace\"}," MODEL("\"a\":0", "") "}",
         "pre_tokenizer of type \"Whitespace\" is not supported"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(a\"}}"
         "," MODEL("\"a\":0", "") "}",
         "pre_tokenizer \"(a\": end pattern with unmatched parenthesis"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Some\",\"pattern\":{\"String\":\"a\"}}"
         "," MODEL("\"a\":0", "") "}",
         "pre_tokenizer.behavior \"Some\" is not one of Isolated"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":"
         "\"Digits\"}]}," MODEL("\"a\":0", "") "}",
         "pre_tokenizer.pretokenizers[1]: nothing may follow ByteLevel"},
        {"{\"normalizer\":{\"type\":\"Precompiled\"}," PRE "," MODEL("\"a\":0", "") "}",
         "normalizer of type \"Precompiled\" is not supported"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"StripAccents\"}]}," PRE "," MODEL(
             "\"a\":0", "") "}",
         "normalizer.normalizers[1] of type \"StripAccents\" is not supported"},
        {"{\"normalizer\":{\"type\":\"Prepend\"}," PRE "," MODEL("\"a\":0", "") "}", "normalizer.prepend is not a string"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\"}," PRE "," MODEL("\"a\":0", "") "}",
         "normalizer.pattern is not {\"Regex\""},
        {"{" PRE ",\"model\":{\"byte_fallback\":true,\"vocab\":{},\"merges\":[]}}",
         "model.byte_fallback is true, pre_tokenizer is ByteLevel, and byte 0 has no token"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}," MODEL("\"a\":0", "") "}",
         "pre_tokenizer.replacement \"ab\" is not one character"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}," MODEL("\"a\":0", "") "}",
         "pre_tokenizer.prepend_scheme is not one of always, first, never"},
        {"{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
         "\"prepend_scheme\":\"first\"},"
         MODEL("\"a\":0", "") "}",
         "pre_tokenizer.prepend_scheme \"first\" is supported only without a normalizer"},
        {"{\"decoder\":{\"type\":\"WordPiece\"}," MODEL("\"a\":0", "") "}", "decoder of type \"WordPiece\" is not supported here"},
        {"{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}," MODEL("\"a\":0", "") "}",
         "decoder: Strip is supported only behind Fuse"},
        {"{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Replace\"}]},"
         MODEL("\"a\":0", "") "}",
         "decoder.decoders[1]: Replace is supported only before ByteFallback"},
        {"IQ== 0\nIg== 1\n", "t.json: this is a .tiktoken file, not a tokenizer.json: "},
        {" {\"config\": {\"pattern\": \" ?\\\\p{L}+\"},\n\"vocab\": [{\"rank\": 0,\n\"token_bytes\" : \"AA==\", \"token_str\": \"\\u0000\"}]}",
         "t.json: this is a tekken.json of Mistral, not a tokenizer.json: "},
        {"{\"vocab\": {\"token_bytes\": 0}}", "t.json: model is not an object: this is no tokenizer.json"},
        {"\x0a\x0e\x0a\x05<unk>\x15\1\1\1\1\x18\2", 
         "t.json: this is a SentencePiece model (tokenizer.model), not a tokenizer.json"},
        {"{" PRE ",\"model\":{\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}", "model.dropout is set"},
        {"{" PRE ",\"model\":{\"unk_token\":\"u\",\"vocab\":{},\"merges\":[]}}",
         "model.unk_token is not a token"},
        {"{" PRE ",\"model\":{\"end_of_word_suffix\":\"</w>\",\"vocab\":{},\"merges\":[]}}",
         "model.end_of_word_suffix is set"},
        {"{" PRE ",\"model\":{\"ignore_merges\":1,\"vocab\":{},\"merges\":[]}}",
         "model.ignore_merges is not true or false"},
    };
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = NULL;
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        CHECK_FAILS(ctx, ORTH_ERR_DATA, cases[i].message,
                    orth_tokenizer_parse(ctx, &tok, cases[i].json, strlen(cases[i].json), "t.json"));
    assert_null(tok);
    test_ctx_free(ctx);
}

TEST(deep_nesting_and_missing_files_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = NULL;
    enum { DEEP = 100000 };
    char *deep = orth_mem_alloc(ctx, DEEP + 1);
    memset(deep, '[', DEEP);
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "maximum parsing depth reached",
                orth_tokenizer_parse(ctx, &tok, deep, DEEP, "t.json"));
    orth_mem_free(ctx, deep);
    CHECK_FAILS(ctx, ORTH_ERR_IO, "/no/such/tokenizer.json",
                orth_tokenizer_load(ctx, &tok, "/no/such/tokenizer.json"));
    CHECK_FAILS(ctx, ORTH_ERR_IO, FIXTURES,
                orth_tokenizer_load(ctx, &tok, FIXTURES)); /* a folder without one */
    assert_null(tok);
    test_ctx_free(ctx);
}

TEST(a_pattern_that_explodes_ends_with_a_message)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = NULL;
    static const char json[] =
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
        "\"Isolated\",\"pattern\":{\"Regex\":\"(?:a+b?)+c\\\\d(?<=x)\"}},{\"type\":\"ByteLevel\"}]}," MODEL(
            "\"a\":0", "") "}";
    CHECK_OK(ctx, orth_tokenizer_parse(ctx, &tok, json, sizeof json - 1, "t.json"));
    orth_ids ids = {0};
    char text[64];
    memset(text, 'a', sizeof text);
    memcpy(text + 60, "c1", 2);
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "was given up at byte 0 of a text of 64 bytes: retry-limit-in-match over",
                orth_tokenizer_encode(ctx, tok, &ids, text, sizeof text));
    assert_int_equal(ids.num, 0);
    orth_ids_free(ctx, &ids);
    orth_tokenizer_free(ctx, tok);
    test_ctx_free(ctx);
}

/* Each search takes few steps, all of them together take the square of the text's length. */
TEST(a_pattern_that_is_quadratic_ends_with_a_message)
{
    orth_ctx *ctx = test_ctx(1);
    orth_arena arena = {0};
    orth_pattern pattern;
    orth_matcher matcher = {0};
    enum { N = 20000 };
    char *text = orth_mem_alloc(ctx, N);
    memset(text, 'a', N);
    CHECK_OK(ctx, orth_pattern_compile(ctx, &arena, &pattern, "(?:a|b)*c|a", 11, false, "", ""));
    orth_matches m = {.pattern = &pattern, .text = text, .num_bytes = N};
    orth_status status = ORTH_OK;
    bool found = true;
    while (status == ORTH_OK && found)
        status = orth_matches_next(ctx, &matcher, &m, &found);
    assert_int_equal(status, ORTH_ERR_DATA);
    assert_non_null(strstr(ctx->error.message, "retry-limit-in-search over"));
    orth_mem_free(ctx, text);
    orth_matcher_free(&matcher);
    orth_pattern_free(&pattern);
    orth_arena_release(ctx, &arena);
    test_ctx_free(ctx);
}

TEST(a_folder_with_another_kind_of_tokenizer_says_so)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = NULL;
    char dir[] = "/tmp/orth-tokenizer-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    CHECK_OK(ctx, orth_file_write(ctx, path, "\x0a", 1));
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "no tokenizer.json, but there is a tokenizer.model", orth_tokenizer_load(ctx, &tok, dir));
    unlink(path);
    rmdir(dir);
    test_ctx_free(ctx);
}

/* Everything that allocates, with the n-th allocation refused, for every n until all goes through. */
static orth_status use_everything(orth_ctx *ctx, const char *json, size_t num_bytes)
{
    static const char text[] =
        "the word <|endoftext|> cafe\xcc\x81 12 don't the the the aaaaaaaaaaaaaaaaaaaaaaaaaaaa\xff"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const orth_text_span span = {.data = text, .num_bytes = sizeof text - 1};
    const orth_tokenizer_train_options options = {.vocab_size = 270, .kind = ORTH_TOKENIZER_QWEN};
    orth_tokenizer *tok = NULL, *trained = NULL;
    orth_ids ids = {0};
    orth_bytes out = {0};
    orth_status status = ORTH_OK;
    ORTH_TRY_GOTO(orth_tokenizer_parse(ctx, &tok, json, num_bytes, "t.json"));
    ORTH_TRY_GOTO(orth_tokenizer_encode(ctx, tok, &ids, text, sizeof text - 1));
    ORTH_TRY_GOTO(orth_tokenizer_decode(ctx, tok, &out, ids.v, ids.num, false));
    ORTH_TRY_GOTO(orth_tokenizer_write(ctx, tok, &out));
    ORTH_TRY_GOTO(orth_tokenizer_train(ctx, &trained, &span, 1, &options));
done:
    orth_ids_free(ctx, &ids);
    orth_bytes_free(ctx, &out);
    orth_tokenizer_free(ctx, tok);
    orth_tokenizer_free(ctx, trained);
    return status;
}

TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    static const char *const names[] = {"qwen", "stages", "prefix", "chars/llama2", "chars/nounk"};
    for (int k = 0; k < ORTH_COUNT(names); k++) {
        orth_ctx *ctx = test_ctx(1);
        size_t num_bytes;
        char *json = read_fixture(ctx, names[k], ".json", &num_bytes);
        const int64_t before = ctx->heap_bytes;
        orth_faults faults = {.sticky = false};
        ctx->faults = &faults;
        for (int64_t n = 1;; n++) {
            faults.alloc = n;
            const orth_status status = use_everything(ctx, json, num_bytes);
            assert_int_equal(ctx->heap_bytes, before);
            if (status == ORTH_OK)
                break;
            assert_int_equal(status, ORTH_ERR_NOMEM);
            orth_ctx_clear_error(ctx);
            assert_in_range(n, 1, 2000);
        }
        faults.alloc = 0;
        orth_mem_free(ctx, json);
        test_ctx_free(ctx);
    }
}

TEST(a_failing_write_leaves_the_old_file)
{
    orth_ctx *ctx = test_ctx(1);
    orth_tokenizer *tok = load_fixture(ctx, "gpt2"), *back = NULL;
    char path[] = "/tmp/orth-tokenizer-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    CHECK_OK(ctx, orth_tokenizer_save(ctx, tok, path));
    orth_faults faults = {.write = 1};
    ctx->faults = &faults;
    assert_int_not_equal(orth_tokenizer_save(ctx, tok, path), ORTH_OK);
    ctx->faults = NULL;
    orth_ctx_clear_error(ctx);
    CHECK_OK(ctx, orth_tokenizer_load(ctx, &back, path));
    assert_true(orth_tokenizer_fingerprint(back) == orth_tokenizer_fingerprint(tok));
    unlink(path);
    orth_tokenizer_free(ctx, tok);
    orth_tokenizer_free(ctx, back);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_files_are_refused_with_the_place),
        cmocka_unit_test(deep_nesting_and_missing_files_are_refused),
        cmocka_unit_test(a_pattern_that_explodes_ends_with_a_message),
        cmocka_unit_test(a_pattern_that_is_quadratic_ends_with_a_message),
        cmocka_unit_test(a_folder_with_another_kind_of_tokenizer_says_so),
        cmocka_unit_test(every_failing_allocation_is_reported_and_nothing_leaks),
        cmocka_unit_test(a_failing_write_leaves_the_old_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
