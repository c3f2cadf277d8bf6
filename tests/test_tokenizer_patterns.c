/* test_tokenizer_patterns.c -- patterns split texts as Hugging Face `tokenizers` splits them
 * (tools/golden/make_pattern_fixtures.py; ORTHANT_PATTERNS names another file that it made). */
#include <jansson.h>

#include "data/tokenizer_impl.h"
#include "tokenizer_case.h"

static orth_tokenizer *tokenizer_with(orth_ctx *ctx, const json_t *pre)
{
    orth_tokenizer *tok = NULL;
    json_t *root = json_pack("{s:O, s:{s:s, s:{}, s:[]}}", "pre_tokenizer", pre, "model", "type", "BPE", "vocab", "merges");
    char *json = json_dumps(root, JSON_COMPACT);
    if (orth_tokenizer_parse(ctx, &tok, json, strlen(json), "pattern") != ORTH_OK)
        print_message("%s\n", ctx->error.message);
    orth_ctx_clear_error(ctx);
    free(json);
    json_decref(root);
    return tok;
}

static uint64_t fnv(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)p[i]) * 0x100000001B3;
    return h;
}

/* As split_hash() of the script. */
static uint64_t split_hash(orth_ctx *ctx, const orth_tokenizer *tok, const json_t *texts)
{
    orth_splitter s = {0};
    uint64_t h = 0xCBF29CE484222325;
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *t = json_array_get(texts, i);
        CHECK_OK(ctx, orth_splitter_run(ctx, &s, tok, json_string_value(t), json_string_length(t), true, false));
        for (int64_t k = 0; k < s.in.num; k++)
            h = fnv(fnv(h, s.in.v[k].p, s.in.v[k].num_bytes), "\xff", 1);
        h = fnv(h, "\xff", 1);
    }
    orth_splitter_free(ctx, &s);
    return h;
}

static bool case_holds(orth_ctx *ctx, const json_t *c, const json_t *texts)
{
    orth_tokenizer *tok = tokenizer_with(ctx, json_object_get(c, "pre_tokenizer"));
    char got[32] = "refused";
    if (tok)
        snprintf(got, sizeof got, "%016llx", (unsigned long long)split_hash(ctx, tok, texts));
    orth_tokenizer_free(ctx, tok);
    const bool holds = strcmp(got, json_string_value(json_object_get(c, "hash"))) == 0;
    if (!holds) {
        char *text = json_dumps(c, JSON_COMPACT);
        print_message("%s: %s\n", got, text);
        free(text);
    }
    return holds;
}

TEST(patterns_split_as_hugging_face_splits)
{
    orth_ctx *ctx = test_ctx(1);
    const char *path = getenv("ORTHANT_PATTERNS");
    json_t *root = json_load_file(path ? path : FIXTURES "patterns.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    const json_t *cases = json_object_get(root, "cases");
    int failed = 0;
    for (size_t i = 0; i < json_array_size(cases); i++)
        failed += !case_holds(ctx, json_array_get(cases, i), json_object_get(root, "texts"));
    assert_true(json_array_size(cases) > 500);
    assert_int_equal(failed, 0);
    json_decref(root);
    test_ctx_free(ctx);
}

TEST(what_versions_of_oniguruma_read_differently_is_refused)
{
    static const struct {
        const char *pattern, *message;
    } cases[] = {
        {"\\R+", "\\R (any line break) is not supported in a pattern"},
        {"a\\X", "\\X (text segments) is not supported"},
        {"(?y{g})\\y", "one of the options I, L, C, y"},
        {"(?I:a)", "one of the options I, L, C, y"},
        {"(?{x})", "(a callout)"},
        {"(*FAIL)", "(a callout)"},
        {"(?(a)b|c)", "(a condition)"},
        {"(?~|a|b)", "(an absent stopper)"},
        {"[[:^alpha:]]", "begins no [:name:]"},
        {"[[::]]", "begins no [:name:]"},
        {"\\p{Word}", "invalid character property name {Word}"},
        {"\\p{Age=6.0}", "invalid character property name {Age=6.0}"},
        {"\\p{In_Basic_Latin}", "invalid character property name {In_Basic_Latin}"},
        {"[z-a]", "empty range in char class"},
        {"a**(", "end pattern with unmatched parenthesis"},
    };
    orth_ctx *ctx = test_ctx(1);
    orth_arena arena = {0};
    orth_pattern p;
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        CHECK_FAILS(ctx, ORTH_ERR_DATA, cases[i].message,
                    orth_pattern_compile(ctx, &arena, &p, cases[i].pattern, strlen(cases[i].pattern), false, "t.json", "place"));
    static const char *const fine[] = {"[(*]", "[(?{]", "\\[[:alpha:]]\\(*", "(?i-m:a)", "[a\\][:alpha:]]"};
    for (int i = 0; i < ORTH_COUNT(fine); i++) {
        CHECK_OK(ctx, orth_pattern_compile(ctx, &arena, &p, fine[i], strlen(fine[i]), false, "t.json", "place"));
        orth_pattern_free(&p);
    }
    orth_arena_release(ctx, &arena);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_split_as_hugging_face_splits),
        cmocka_unit_test(what_versions_of_oniguruma_read_differently_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
