/* test_pieces.c -- the tokens of a document are those of the document: however it is cut, whatever the tokenizer and the script. */
#include "base/text.h"
#include "data/prepare.h"
#include "data/reader.h"
#include "data_case.h"
#include "text_case.h"
#include "tokenizer_case.h"

#include <string.h>

static const char *const fixtures[] = {"gpt2", "llama3", "qwen", "o200k", "prefix", "stages", "chars/llama2", "chars/gemma", "chars/mistral",
                                       "chars/metaspace", "chars/never", "chars/holes", "chars/nounk", "chars/nfkc", "chars/nfd", "chars/nfkd"};

/* Words of a script, and what stands between them. */
typedef struct {
    const char *name, *words[9], *between[5];
} script;

#define SPACES {" ", " ", " ", ", ", ".\n"}
static const script scripts[] = {
    {"English", {"the", "water", "1913", "(that)", "it's", "river", "café", "word", "a"}, SPACES},
    {"Russian", {"Привет", "мир", "Ёлка", "вода", "и", "человек", "в", "стали", "года"}, SPACES},
    {"Russian without newlines", {"Привет", "мир", "Ёлка", "вода", "и", "человек", "в", "стали", "года"}, {" ", " ", " ", ", ", ". "}},
    {"Hindi", {"हिन्दी", "में", "लिखा", "हुआ", "पाठ", "क़लम", "है", "और", "के"}, {" ", " ", " ", ", ", "।\n"}},
    {"Chinese", {"日本", "中文", "字符", "水", "的", "在", "人", "河流", "年"}, {"", "", "", ",", "。\n"}},
    {"Chinese without newlines", {"日本", "中文", "字符", "水", "的", "在", "人", "河流", "年"}, {"", "", "", ",", "。"}},
    {"Korean", {"한국어", "텍스트", "물", "강", "사람", "그", "이", "나라", "년"}, SPACES},
    {"Arabic", {"النص", "العربي", "مَرْحَبًا", "مع", "في", "ماء", "نهر", "على", "عام"}, SPACES},
    {"emoji", {"😀", "😃", "👨\u200d👩\u200d👧", "👍🏽", "❤️", "☺︎", "x", "1", "é"}, {"", " ", "  ", "\n", "\n\n"}},
};

/* n bytes or a few more; free(). */
static char *script_text(const script *s, size_t n, uint64_t seed)
{
    char *text = malloc(n + 64);
    size_t at = 0;
    for (uint64_t k = 0; at < n; k++)
        at += (size_t)sprintf(text + at, "%s%s", s->words[test_rand_int(seed, 2 * k, 0, 8)], s->between[test_rand_int(seed, 2 * k + 1, 0, 4)]);
    text[at] = 0;
    return text;
}

/* What `text` becomes as the only file of a data set. */
static void prepare_text(data_case *c, const orth_tokenizer *tok, const char *text, size_t n, double valid_fraction, int64_t shard_tokens,
                         orth_dataset **out)
{
    char in[512], dir[512];
    const char *inputs[] = {in};
    CHECK_OK(c->ctx, orth_file_write(c->ctx, case_path(c, &in, "in.txt"), text, n));
    const orth_prepare_options o = {.inputs = inputs, .num_inputs = 1, .out_dir = case_path(c, &dir, "out"), .tokenizer = tok,
                                    .valid_fraction = valid_fraction, .seed = 3, .shard_tokens = shard_tokens, .overwrite = true};
    CHECK_OK(c->ctx, orth_prepare(c->ctx, &o, NULL));
    CHECK_OK(c->ctx, orth_dataset_open(c->ctx, out, dir));
}

static void check_whole(data_case *c, const orth_tokenizer *tok, const char *name, const char *which, const char *text)
{
    const size_t n = strlen(text);
    orth_ids whole = {0};
    orth_dataset *d = NULL;
    CHECK_OK(c->ctx, orth_tokenizer_encode(c->ctx, tok, &whole, text, n));
    prepare_text(c, tok, text, n, 0, 0, &d);
    if (d->train.num_tokens != whole.num + 1 || d->train.num_docs != 1)
        fail_msg("%s, %s: %d tokens in %d documents, not %d in one", name, which, (int)d->train.num_tokens, (int)d->train.num_docs, (int)whole.num + 1);
    int32_t *ids = malloc((size_t)d->train.num_tokens * sizeof *ids);
    CHECK_OK(c->ctx, orth_corpus_read(c->ctx, &d->train, ids, 0, d->train.num_tokens));
    if (memcmp(ids, whole.v, (size_t)whole.num * sizeof *ids) != 0 || ids[whole.num] != orth_tokenizer_eos(tok))
        fail_msg("%s, %s: other tokens", name, which);
    free(ids);
    orth_dataset_close(c->ctx, d);
    orth_ids_free(c->ctx, &whole);
}

TEST(the_tokens_of_a_document_are_those_of_the_document_whatever_tokenizer_and_script)
{
    data_case c = case_begin(2);
    for (int k = 0; k < ORTH_COUNT(fixtures); k++) {
        orth_tokenizer *tok = load_fixture(c.ctx, fixtures[k]);
        for (int i = 0; i < ORTH_COUNT(scripts); i++) {
            char *text = script_text(&scripts[i], 30000, (uint64_t)(i + 1));
            check_whole(&c, tok, fixtures[k], scripts[i].name, text);
            free(text);
        }
        orth_tokenizer_free(c.ctx, tok);
    }
    case_end(&c);
}

/* Added tokens that what is behind or before a cut decides about: one that is not matched in front of a letter, which a space becomes; one that takes
 * the white space before it, and that only the normalizer makes of the text. */
TEST(added_tokens_at_cuts_are_those_of_the_document)
{
    static const struct {
        const char *from, *normalizer, *token, *text; /* from NULL: characters */
    } cases[] = {
        {NULL, "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"_\"}",
         "{\"content\": \"foo\", \"single_word\": true, \"lstrip\": false, \"rstrip\": false, \"normalized\": true, \"special\": false}", "-foo "},
        {FIXTURES "gpt2.json", "{\"type\": \"NFC\"}",
         "{\"content\": \"\u014d\", \"single_word\": false, \"lstrip\": true, \"rstrip\": false, \"normalized\": true, \"special\": false}", "o\u0304!\n"},
    };
    static const char chars[] = "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 5, \"content\": \"<end>\", \"single_word\": false, \"lstrip\": false, "
                                "\"rstrip\": false, \"normalized\": false, \"special\": true}], \"model\": {\"type\": \"BPE\", \"vocab\": {\"-\": 0, \"f\": 1, "
                                "\"o\": 2, \"_\": 3, \"x\": 4, \"<end>\": 5}, \"merges\": []}}";
    data_case c = case_begin(2);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char path[512], text[8192] = "";
        json_t *root = cases[i].from ? json_load_file(cases[i].from, 0, NULL) : json_loads(chars, 0, NULL), *added = json_object_get(root, "added_tokens");
        json_t *token = json_loads(cases[i].token, 0, NULL);
        const size_t vocab = json_object_size(json_object_get(json_object_get(root, "model"), "vocab"));
        json_object_set_new(token, "id", json_integer((json_int_t)vocab + (cases[i].from ? (json_int_t)json_array_size(added) : 0)));
        json_array_append_new(added, token);
        json_object_set_new(root, "normalizer", json_loads(cases[i].normalizer, 0, NULL));
        assert_int_equal(json_dump_file(root, case_path(&c, &path, "tokenizer.json"), 0), 0);
        json_decref(root);
        for (int k = 0; k < 1000; k++)
            strcat(text, cases[i].text);
        orth_tokenizer *tok = NULL;
        CHECK_OK(c.ctx, orth_tokenizer_load(c.ctx, &tok, path));
        check_whole(&c, tok, cases[i].token, "its text", strcat(text, "x"));
        orth_tokenizer_free(c.ctx, tok);
    }
    case_end(&c);
}

/* Pieces of 64 KiB, and texts that go on in the next window of the reader, the first and the last in it too. */
TEST(long_paragraphs_and_texts_longer_than_the_window_are_those_of_the_document)
{
    static const char *const kinds[] = {"gpt2", "chars/llama2"};
    static const int chosen[] = {2, 5}; /* without newlines */
    data_case c = case_begin(2);
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        orth_tokenizer *tok = load_fixture(c.ctx, kinds[k]);
        for (int i = 0; i < ORTH_COUNT(chosen); i++) {
            char *text = script_text(&scripts[chosen[i]], k == 0 && i == 1 ? 20000000 : 300000, 11);
            if (k == 0 && i == 1) { /* beyond the limit of a text: pieces of it are, all but the cut at the limit */
                orth_ids whole = {0};
                orth_dataset *d = NULL;
                CHECK_OK(c.ctx, orth_tokenizer_encode(c.ctx, tok, &whole, text, strlen(text)));
                prepare_text(&c, tok, text, strlen(text), 0, 0, &d);
                assert_in_range(d->train.num_tokens, whole.num + 1, whole.num + 3);
                assert_int_equal(d->train.num_docs, 1);
                orth_dataset_close(c.ctx, d);
                orth_ids_free(c.ctx, &whole);
            } else
                check_whole(&c, tok, kinds[k], scripts[chosen[i]].name, text);
            free(text);
        }
        orth_tokenizer_free(c.ctx, tok);
    }
    case_end(&c);
}

/* What the ids stand for in the middle of a text, without ends of text. */
static int64_t bytes_of_ids(const orth_tokenizer *tok, const int32_t *ids, int64_t num)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < num; i++) {
        size_t n;
        orth_tokenizer_token(tok, ids[i], &n);
        sum += ids[i] == orth_tokenizer_eos(tok) ? 0 : (int64_t)n;
    }
    return sum;
}

static int64_t bytes_of_corpus(data_case *c, const orth_tokenizer *tok, const orth_corpus *corpus)
{
    int32_t *ids = malloc((size_t)corpus->num_tokens * sizeof *ids);
    CHECK_OK(c->ctx, orth_corpus_read(c->ctx, corpus, ids, 0, corpus->num_tokens));
    const int64_t sum = bytes_of_ids(tok, ids, corpus->num_tokens);
    free(ids);
    return sum;
}

/* Where the split changes within a document, the two sides are texts of their own; no space is put before the second. Where a shard is
 * full, too. */
TEST(no_space_is_put_into_a_document_where_a_part_is_held_out_or_a_shard_is_full)
{
    static const char *const kinds[] = {"chars/llama2", "chars/metaspace", "chars/mistral", "prefix"};
    data_case c = case_begin(2);
    static const script plain = {"", {"the", "water", "1913", "(that)", "it's", "river", "cafe", "words", "a"}, SPACES}; /* no added tokens */
    char *text = script_text(&plain, 60000, 5);
    const size_t n = strlen(text);
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        orth_tokenizer *tok = load_fixture(c.ctx, kinds[k]);
        orth_ids whole = {0};
        CHECK_OK(c.ctx, orth_tokenizer_encode(c.ctx, tok, &whole, text, n));
        const int64_t want = bytes_of_ids(tok, whole.v, whole.num);
        assert_true(want >= (int64_t)n + 1);
        for (int full = 0; full < 2; full++) {
            orth_dataset *d = NULL;
            prepare_text(&c, tok, text, n, full ? 0 : 0.3, full ? 3000 : 0, &d);
            assert_true(d->train.num_docs + d->valid.num_docs > (full ? 0 : 10));
            assert_int_equal(d->train.text_bytes + d->valid.text_bytes, n);
            const int64_t bytes = bytes_of_corpus(&c, tok, &d->train) + (full ? 0 : bytes_of_corpus(&c, tok, &d->valid));
            if (bytes != want)
                fail_msg("%s: the tokens are %d bytes, not %d", kinds[k], (int)bytes, (int)want);
            orth_dataset_close(c.ctx, d);
        }
        orth_ids_free(c.ctx, &whole);
        orth_tokenizer_free(c.ctx, tok);
    }
    free(text);
    case_end(&c);
}

/* ---- neutral cuts ---- */

/* Words, white space, signs, marks, added tokens, bytes that are not UTF-8. */
static size_t mixed_text(char *to, uint64_t seed, int num)
{
    static const char *const parts[] = {" ", " ", " ", "\n", "\n", "  ", "\t", "\r\n", "\u00a0", "\u3000", "\u2581", "_", "a", "the", "It's", "é", "word", "Word", "cafe",
                                        "café", "CAFE\u0301", "e\u0301", "\u0301", "क़", "हिन्दी", "है", "Привет", "мир", "日本語", "한국", "。", ".", "...", "'s", "?!", "12", "1",
                                        "½", "ﬁ", "İ", "Σ", "<|endoftext|>", "<|strip|>", "<|left|>", "<|right|>", "<tool_call>", "</s>", "\xFF", "\xE2\x82", "x", "A"};
    size_t at = 0;
    for (int i = 0; i < num; i++)
        at += (size_t)sprintf(to + at, "%s", parts[test_rand_int(seed, (uint64_t)i, 0, ORTH_COUNT(parts) - 1)]);
    return at;
}

/* The ids of the two parts against those of the whole. */
static bool cut_is_neutral(orth_ctx *ctx, orth_encoder *enc, const char *text, size_t n, size_t cut)
{
    orth_ids whole = {0}, parts = {0};
    CHECK_OK(ctx, orth_encoder_encode(ctx, enc, &whole, text, n));
    CHECK_OK(ctx, orth_encoder_encode_part(ctx, enc, &parts, text, cut, (orth_text_part){.goes_on = true}));
    CHECK_OK(ctx, orth_encoder_encode_part(ctx, enc, &parts, text + cut, n - cut, (orth_text_part){.continues = true}));
    const bool same = whole.num == parts.num && memcmp(whole.v, parts.v, (size_t)whole.num * sizeof *whole.v) == 0;
    orth_ids_free(ctx, &whole);
    orth_ids_free(ctx, &parts);
    return same;
}

TEST(a_cut_that_is_called_neutral_changes_no_id)
{
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(fixtures); k++) {
        orth_tokenizer *tok = load_fixture(ctx, fixtures[k]);
        orth_encoder *enc = NULL;
        CHECK_OK(ctx, orth_encoder_create(ctx, &enc, tok));
        int64_t num_neutral = 0;
        for (uint64_t seed = 1; seed <= 1500; seed++) {
            char text[1024];
            const size_t n = mixed_text(text, seed + 10000 * (uint64_t)k, 30);
            for (size_t cut = 1; cut < n; cut++) {
                if (!orth_tokenizer_cuts(tok, text, cut, text + cut, n - cut))
                    continue;
                num_neutral++;
                if (!cut_is_neutral(ctx, enc, text, n, cut))
                    fail_msg("%s, seed %d: a cut in \"%.*s|%.*s\"", fixtures[k], (int)seed, (int)cut, text, (int)(n - cut), text + cut);
            }
        }
        print_message("%-16s %d neutral cuts\n", fixtures[k], (int)num_neutral);
        orth_encoder_free(ctx, enc);
        orth_tokenizer_free(ctx, tok);
    }
    test_ctx_free(ctx);
}

/* How many of the pieces of a text end at a cut that is called neutral, in per cent. */
static int neutral_share(orth_ctx *ctx, const orth_tokenizer *tok, const script *s)
{
    char *text = script_text(s, 200000, 9);
    orth_reader *r = NULL;
    orth_document d;
    int64_t num = 1, all = 0, neutral = 0;
    CHECK_OK(ctx, orth_reader_create(ctx, &r, &(orth_text_options){.format = ORTH_TEXT_AUTO}, 1));
    CHECK_OK(ctx, orth_reader_memory(ctx, r, "in", text, strlen(text)));
    for (;; all++) {
        CHECK_OK(ctx, orth_reader_next(ctx, r, &d, 1, &num));
        assert_int_equal(num, 1);
        if (!d.goes_on)
            break;
        neutral += orth_tokenizer_cuts(tok, d.text, d.num_bytes, d.text + d.num_bytes, d.num_after);
    }
    orth_reader_free(ctx, r);
    free(text);
    return (int)(100 * neutral / all);
}

/* So that threads can share a document. */
TEST(pieces_of_most_scripts_end_at_neutral_cuts_of_common_tokenizers)
{
    static const struct {
        const char *kind;
        int script, least;
    } cases[] = {{"gpt2", 0, 100}, {"gpt2", 1, 100}, {"gpt2", 3, 95}, {"gpt2", 4, 90}, {"gpt2", 6, 100},
                 {"gpt2", 7, 95}, {"llama3", 1, 100}, {"qwen", 1, 100}, {"qwen", 4, 90},
                 {"qwen", 3, 95}, {"chars/gemma", 0, 90}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_tokenizer *tok = load_fixture(ctx, cases[i].kind);
        const int share = neutral_share(ctx, tok, &scripts[cases[i].script]);
        if (share < cases[i].least)
            fail_msg("%s, %s: %d %%, not %d", cases[i].kind, scripts[cases[i].script].name, share, cases[i].least);
        orth_tokenizer_free(ctx, tok);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tokens_of_a_document_are_those_of_the_document_whatever_tokenizer_and_script),
        cmocka_unit_test(added_tokens_at_cuts_are_those_of_the_document),
        cmocka_unit_test(long_paragraphs_and_texts_longer_than_the_window_are_those_of_the_document),
        cmocka_unit_test(no_space_is_put_into_a_document_where_a_part_is_held_out_or_a_shard_is_full),
        cmocka_unit_test(a_cut_that_is_called_neutral_changes_no_id),
        cmocka_unit_test(pieces_of_most_scripts_end_at_neutral_cuts_of_common_tokenizers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
