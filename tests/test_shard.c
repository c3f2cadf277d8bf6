/* test_shard.c -- token shards and JSONL lines: what is written is read again, what is damaged is refused. */
#include <xxhash.h>

#include "data/jsonl.h"
#include "data/shard_layout.h"
#include "data_case.h"

/* ---- shards ---- */

/* A shard of 3 documents in memory, for damage. */
static unsigned char *small_shard(data_case *c, int64_t vocab, size_t *out_bytes)
{
    char path[512], *bytes = NULL;
    orth_shard_writer *w = NULL;
    const int32_t tokens[] = {5, 6, 7, 0, 1, 2, 3};
    case_path(c, &path, "small.orts");
    CHECK_OK(c->ctx, orth_shard_writer_open(c->ctx, &w, path, vocab, 0xABCDEF));
    CHECK_OK(c->ctx, orth_shard_writer_document(c->ctx, w, tokens, 3, 10));
    CHECK_OK(c->ctx, orth_shard_writer_document(c->ctx, w, tokens + 3, 1, 20));
    CHECK_OK(c->ctx, orth_shard_writer_document(c->ctx, w, tokens + 4, 3, 30));
    CHECK_OK(c->ctx, orth_shard_writer_commit(c->ctx, w, NULL));
    CHECK_OK(c->ctx, orth_file_read(c->ctx, path, &bytes, out_bytes));
    return (unsigned char *)bytes;
}

TEST(shards_give_back_their_documents_in_both_widths)
{
    data_case c = case_begin(1);
    static const int64_t vocabs[] = {65536, 65537};
    for (int k = 0; k < 2; k++) {
        const int64_t n = 700000, num_docs = 1000; /* more than one checksum block */
        char path[512];
        int32_t *tokens = calloc((size_t)n, sizeof *tokens), *back = calloc((size_t)n, sizeof *tokens);
        for (int64_t i = 0; i < n; i++)
            tokens[i] = (int32_t)test_rand_int(1, (uint64_t)i, 0, vocabs[k] - 1);
        orth_shard_writer *w = NULL;
        orth_shard s = {0};
        orth_shard_info info;
        case_path(&c, &path, "a.orts");
        CHECK_OK(c.ctx, orth_shard_writer_open(c.ctx, &w, path, vocabs[k], 42));
        for (int64_t d = 0; d < num_docs; d++)
            CHECK_OK(c.ctx, orth_shard_writer_document(c.ctx, w, tokens + d * n / num_docs, n / num_docs, 3));
        CHECK_OK(c.ctx, orth_shard_writer_commit(c.ctx, w, &info));
        CHECK_OK(c.ctx, orth_shard_open(c.ctx, &s, path));
        assert_true(info.header_hash == s.info.header_hash);
        assert_int_equal(s.info.num_tokens, n);
        assert_int_equal(s.info.num_docs, num_docs);
        assert_int_equal(s.info.token_bytes, k ? 4 : 2);
        assert_int_equal(s.info.text_bytes, 3000);
        CHECK_OK(c.ctx, orth_shard_verify(c.ctx, &s));
        CHECK_OK(c.ctx, orth_shard_read(c.ctx, &s, back, 0, n));
        assert_memory_equal(back, tokens, (size_t)n * 4);
        CHECK_OK(c.ctx, orth_shard_read(c.ctx, &s, back, 12345, 678));
        assert_memory_equal(back, tokens + 12345, 678 * 4);
        for (int64_t d = 0; d < num_docs; d++) {
            assert_int_equal(orth_shard_doc_start(&s, d), d * n / num_docs);
            assert_int_equal(orth_shard_docs_up_to(&s, d * n / num_docs), d + 1);
            assert_int_equal(orth_shard_docs_up_to(&s, (d + 1) * n / num_docs - 1), d + 1);
        }
        orth_shard_close(c.ctx, &s);
        /* A damaged block is found by the first who reads in it; the others are as good as before. */
        char *bytes = NULL;
        size_t size = 0;
        CHECK_OK(c.ctx, orth_file_read(c.ctx, path, &bytes, &size));
        bytes[ORTH_SHARD_HEADER_BYTES + ORTH_SHARD_BLOCK_BYTES + 5] ^= 1;
        CHECK_OK(c.ctx, orth_file_write(c.ctx, path, bytes, size));
        orth_mem_free(c.ctx, bytes);
        const int64_t second = ORTH_SHARD_BLOCK_BYTES / info.token_bytes;
        CHECK_OK(c.ctx, orth_shard_open(c.ctx, &s, path));
        CHECK_OK(c.ctx, orth_shard_read(c.ctx, &s, back, 0, second));
        assert_memory_equal(back, tokens, (size_t)second * 4);
        CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "a.orts: offset 1048704: checksum of block 1",
                    orth_shard_read(c.ctx, &s, back, second - 1, 2));
        orth_shard_close(c.ctx, &s);
        free(tokens);
        free(back);
    }
    case_end(&c);
}

static void reseal(unsigned char *h)
{
    put_uint(h + SHARD_HEADER_HASH, XXH64(h, SHARD_HEADER_HASH, 0), 8);
}

TEST(a_lie_in_any_header_field_is_refused_with_path_offset_value_and_rule)
{
    static const struct {
        int offset, bytes;
        uint64_t value;
        const char *message;
    } lies[] = {
        {SHARD_VERSION, 4, 2, "x.orts: offset 8: version=2 is not 1"},
        {SHARD_TOKEN_BYTES, 4, 3, "offset 12: token_bytes=3 is neither 2 nor 4"},
        {SHARD_TOKEN_BYTES, 4, 4, "offset 64: docs_offset=144 is not where the tokens end"},
        {SHARD_VOCAB, 8, 0, "offset 16: vocab_size=0"},
        {SHARD_VOCAB, 8, 65537, "offset 16: vocab_size=65537"},
        {SHARD_TOKENS, 8, 0, "offset 32: num_tokens=0"},
        {SHARD_TOKENS, 8, 3, "offset 64: docs_offset=144"},
        {SHARD_TOKENS, 8, (uint64_t)1 << 63, "offset 32: num_tokens=9223372036854775808"},
        {SHARD_TOKENS, 8, UINT64_MAX, "offset 32: num_tokens=18446744073709551615"},
        {SHARD_DOCS, 8, 0, "offset 40: num_docs=0"},
        {SHARD_DOCS, 8, 8, "offset 40: num_docs=8 is not in [1, num_tokens]"},
        {SHARD_DOCS, 8, 4, "offset 72: hashes_offset=168"},
        {SHARD_TEXT_BYTES, 8, UINT64_MAX, "offset 48: text_bytes"},
        {SHARD_BLOCK, 8, 0, "offset 56: block_bytes=0 is not a power of two"},
        {SHARD_BLOCK, 8, 24, "offset 56: block_bytes=24 is not a power of two"},
        {SHARD_BLOCK, 8, 8, "offset 80: file_bytes=176 is not where the block checksums end"},
        {SHARD_DOCS_AT, 8, UINT64_MAX - 7, "offset 64: docs_offset"},
        {SHARD_HASHES_AT, 8, 0, "offset 72: hashes_offset=0"},
        {SHARD_FILE_BYTES, 8, 1, "offset 80: file_bytes=1"},
        {SHARD_TABLES_HASH, 8, 1, "offset 144: checksum of the tables"},
        {SHARD_RESERVED + 3, 1, 9, "offset 99: reserved byte=9 is not 0"},
    };
    data_case c = case_begin(1);
    size_t n = 0;
    unsigned char *good = small_shard(&c, 100, &n), *bad = malloc(n);
    orth_shard s;
    assert_int_equal(n, 128 + 16 + 3 * 8 + 8);
    CHECK_OK(c.ctx, orth_shard_parse(c.ctx, &s, good, n, "x.orts"));
    for (int i = 0; i < ORTH_COUNT(lies); i++) {
        memcpy(bad, good, n);
        put_uint(bad + lies[i].offset, lies[i].value, lies[i].bytes);
        reseal(bad);
        CHECK_FAILS(c.ctx, ORTH_ERR_DATA, lies[i].message, orth_shard_parse(c.ctx, &s, bad, n, "x.orts"));
    }
    /* Tables that are sealed and lie: starts that do not rise, or reach past the tokens. */
    static const uint64_t starts[][3] = {{1, 3, 4}, {0, 0, 4}, {0, 4, 3}, {0, 3, 7}, {0, 3, UINT64_MAX}};
    for (int i = 0; i < ORTH_COUNT(starts); i++) {
        memcpy(bad, good, n);
        for (int d = 0; d < 3; d++)
            put_uint(bad + 144 + 8 * d, starts[i][d], 8);
        put_uint(bad + SHARD_TABLES_HASH, XXH64(bad + 144, n - 144, 0), 8);
        reseal(bad);
        CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "starts rise from 0 and stay below num_tokens=7",
                    orth_shard_parse(c.ctx, &s, bad, n, "x.orts"));
    }
    orth_mem_free(c.ctx, good);
    free(bad);
    case_end(&c);
}

TEST(every_truncation_and_every_flipped_bit_is_found)
{
    data_case c = case_begin(1);
    size_t n = 0;
    unsigned char *bytes = small_shard(&c, 100, &n);
    orth_shard s;
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *copy = malloc(cut + 1); /* of exact size: sanitizers see a read past it */
        memcpy(copy, bytes, cut);
        CHECK_FAILS(c.ctx, ORTH_ERR_DATA, cut < 128 ? "less than the header" : "x.orts: offset",
                    orth_shard_parse(c.ctx, &s, copy, cut, "x.orts"));
        free(copy);
    }
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        orth_status status = orth_shard_parse(c.ctx, &s, bytes, n, "x.orts");
        const bool in_tokens = bit / 8 >= 128 && bit / 8 < 128 + 14;
        assert_int_equal(status, in_tokens ? ORTH_OK : ORTH_ERR_DATA); /* open reads no tokens */
        orth_ctx_clear_error(c.ctx);
        if (in_tokens)
            CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "checksum of block 0 (14 bytes)", orth_shard_verify(c.ctx, &s));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    /* Neither is read: a damaged block, nor a token outside the vocabulary under a right checksum. */
    put_uint(bytes + 128 + 2 * 4, 100, 2);
    int32_t out[7];
    CHECK_OK(c.ctx, orth_shard_parse(c.ctx, &s, bytes, n, "x.orts"));
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "checksum of block 0 (14 bytes)", orth_shard_read(c.ctx, &s, out, 2, 5));
    put_uint(bytes + n - 8, XXH64(bytes + 128, 14, 0), 8);
    put_uint(bytes + SHARD_TABLES_HASH, XXH64(bytes + 144, n - 144, 0), 8);
    reseal(bytes);
    CHECK_OK(c.ctx, orth_shard_parse(c.ctx, &s, bytes, n, "x.orts"));
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "token 100 is not below", orth_shard_verify(c.ctx, &s));
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "x.orts: offset 136: token 100 is not below vocab_size=100",
                orth_shard_read(c.ctx, &s, out, 2, 5));
    orth_mem_free(c.ctx, bytes);
    case_end(&c);
}

/* ---- JSONL ---- */

TEST(jsonl_lines_give_their_text_or_a_place_and_a_reason)
{
    static const struct {
        const char *line, *text, *message;
    } cases[] = {
        {"{\"text\": \"a b\"}", "a b", NULL},
        {"  {\"id\":1,\"text\":\"x\\n\\\"\\\\\\/\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"}\r",
         "x\n\"\\/\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", NULL},
        {"{\"text\":\"\\ud800x\\udc00\\ud800\\u0041\"}",
         "\xEF\xBF\xBDx\xEF\xBF\xBD\xEF\xBF\xBD"
         "A",
         NULL},
        {"{\"text\":\"\xFF\xC3\"}", "\xFF\xC3", NULL}, /* not UTF-8: bytes */
        {"{\"m\":{\"text\":\"no\",\"l\":[1,-2.5e+3,true,false,null,{}]},\"te\\u0078t\":\"yes\"}", "yes",
         NULL},
        {"{\"text\":\"first\",\"text\":\"\"}", "", NULL},
        {"{\"txt\":\"a\"}", NULL, "f:7:12: the object has no field 'text'; it has 'txt': data.jsonl_field=NAME"},
        {"{}", NULL, "has no field 'text'; it is empty"},
        {"{\"id\":1,\"a\\nb\":2,\"messages\":[{\"text\":\"x\"}]}", NULL,
         "it has 'id', 'a?b', 'messages': data.jsonl_field=NAME (or --field=NAME, where the verb has it) says which one holds the text; "
         "chats"},
        {"{\"a\":[1],\"text\":[\"x\"]}", NULL, "f:7:10: field 'text' is a list, not a string"},
        {"{\"text\":{\"a\":1}}", NULL, "field 'text' is an object, not a string"},
        {"{\"text\":null}", NULL, "field 'text' is null, not a string"},
        {"{\"text\":true}", NULL, "field 'text' is a truth value, not a string"},
        {"{\"text\":5}", NULL, "f:7:2: field 'text' is a number, not a string"},
        {"[\"text\"]", NULL, "f:7:1: '{' is missing"},
        {"{\"text\":\"a\"", NULL, "f:7:12: '}' is missing"},
        {"{\"text\":\"a\"} x", NULL, "f:7:14: something follows the object"},
        {"{\"text\":\"a", NULL, "'\"' is missing"},
        {"{\"text\":\"\\q\"}", NULL, "unknown escape"},
        {"{\"text\":\"\\u12g4\"}", NULL, "4 hexadecimal digits"},
        {"{\"text\":\"\x01\"}", NULL, "control character"},
        {"{\"a\":01,\"text\":\"\"}", NULL, "not a JSON value"},
        {"{\"a\":1.,\"text\":\"\"}", NULL, "no digit behind the point"},
        {"{\"a\":1e,\"text\":\"\"}", NULL, "no digit in the exponent"},
        {"{\"a\":nul,\"text\":\"\"}", NULL, "not a JSON value"},
        {"{\"a\":[1,],\"text\":\"\"}", NULL, "not a JSON value"},
        {"{\"a\":", NULL, "the line ends inside a value"},
        {"{,}", NULL, "'\"' is missing"},
    };
    data_case c = case_begin(1);
    orth_bytes out = {0};
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        const size_t n = strlen(cases[i].line);
        char *copy = malloc(n + 1);
        memcpy(copy, cases[i].line, n); /* no zero byte after the end */
        if (cases[i].text) {
            CHECK_OK(c.ctx, orth_jsonl_text(c.ctx, &out, copy, n, "text", "f", 7));
            assert_int_equal(out.num, strlen(cases[i].text));
            assert_memory_equal(out.v, cases[i].text, out.num);
        } else {
            CHECK_FAILS(c.ctx, ORTH_ERR_DATA, cases[i].message,
                        orth_jsonl_text(c.ctx, &out, copy, n, "text", "f", 7));
        }
        free(copy);
    }
    char deep[4000] = "{\"a\":";
    memset(deep + 5, '[', sizeof deep - 6);
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "nested deeper than 64",
                orth_jsonl_text(c.ctx, &out, deep, strlen(deep), "text", "f", 7));
    orth_bytes_free(c.ctx, &out);
    case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_give_back_their_documents_in_both_widths),
        cmocka_unit_test(a_lie_in_any_header_field_is_refused_with_path_offset_value_and_rule),
        cmocka_unit_test(every_truncation_and_every_flipped_bit_is_found),
        cmocka_unit_test(jsonl_lines_give_their_text_or_a_place_and_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
