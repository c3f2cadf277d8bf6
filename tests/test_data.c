/* test_data.c -- shards, data sets and prepare: what is written is read again, what is damaged is refused. */
#include <dirent.h>

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
    /* A token outside the vocabulary is refused when it is read, and by verify where the checksum is right.
     */
    put_uint(bytes + 128 + 2 * 4, 100, 2);
    int32_t out[7];
    CHECK_OK(c.ctx, orth_shard_parse(c.ctx, &s, bytes, n, "x.orts"));
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "x.orts: offset 136: token 100 is not below vocab_size=100",
                orth_shard_read(c.ctx, &s, out, 2, 5));
    put_uint(bytes + n - 8, XXH64(bytes + 128, 14, 0), 8);
    put_uint(bytes + SHARD_TABLES_HASH, XXH64(bytes + 144, n - 144, 0), 8);
    reseal(bytes);
    CHECK_OK(c.ctx, orth_shard_parse(c.ctx, &s, bytes, n, "x.orts"));
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "token 100 is not below", orth_shard_verify(c.ctx, &s));
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
        {"{\"txt\":\"a\"}", NULL, "f:7:12: the object has no field 'text'"},
        {"{}", NULL, "has no field 'text'"},
        {"{\"text\":5}", NULL, "f:7:2: the field that holds the text is not a string"},
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

/* ---- prepare ---- */

typedef struct {
    data_case *c;
    orth_tokenizer *tok;
    char in[512], dir[512];
    const char *inputs[1];
    orth_prepare_options options;
} prepare_case;

static void prepare_begin(prepare_case *p, data_case *c, const char *name, const char *text, size_t n)
{
    *p = (prepare_case){.c = c};
    CHECK_OK(c->ctx, orth_tokenizer_bytes(c->ctx, &p->tok));
    CHECK_OK(c->ctx, orth_file_write(c->ctx, case_path(c, &p->in, name), text, n));
    p->inputs[0] = p->in;
    case_path(c, &p->dir, "out");
    p->options = (orth_prepare_options){
        .inputs = p->inputs, .num_inputs = 1, .out_dir = p->dir, .tokenizer = p->tok};
}

static void prepare_end(prepare_case *p)
{
    orth_tokenizer_free(p->c->ctx, p->tok);
}

/* The documents of a split as text, the end-of-text token as '|'. */
static void check_documents(data_case *c, const orth_corpus *corpus, const char *expected)
{
    char text[4096];
    int32_t *tokens = calloc((size_t)corpus->num_tokens + 1, sizeof *tokens);
    CHECK_OK(c->ctx, orth_corpus_read(c->ctx, corpus, tokens, 0, corpus->num_tokens));
    for (int64_t i = 0; i < corpus->num_tokens; i++)
        text[i] = tokens[i] == 256 ? '|' : (char)tokens[i];
    text[corpus->num_tokens] = 0;
    assert_string_equal(text, expected);
    free(tokens);
}

TEST(documents_are_cut_at_every_kind_of_separator)
{
    static const char text[] = "\n\none\ntwo\n \t\r\n\nthree\r\n\n\nfour===five\n";
    static const struct {
        const char *name, *separator, *text, *expected;
    } cases[] = {
        {"a.txt", NULL, text, "one\ntwo|three|four===five|"},
        {"a.txt", "blank-line", "x", "x|"},
        {"a.txt", "blank-line", "x\xFF\n\n\xC3(", "x\xFF|\xC3(|"},
        {"a.txt", "line", text, "one|two|three|four===five|"},
        {"a.txt", "file", "a\n\nb\n", "a\n\nb\n|"},
        {"a.txt", "===", "===a\n======b===c", "a\n|b|c|"},
        {"a.jsonl", NULL, "{\"text\":\"a\\n\\nb\"}\n\n{\"text\":\" \"}\n{\"text\":\"c\"}", "a\n\nb|c|"},
    };
    data_case c = case_begin(2);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        prepare_case p;
        orth_dataset *d = NULL;
        prepare_begin(&p, &c, cases[i].name, cases[i].text, strlen(cases[i].text));
        p.options.separator = cases[i].separator;
        p.options.overwrite = true;
        CHECK_OK(c.ctx, orth_prepare(c.ctx, &p.options, NULL));
        CHECK_OK(c.ctx, orth_dataset_open(c.ctx, &d, p.dir));
        check_documents(&c, &d->train, cases[i].expected);
        assert_int_equal(d->valid.num_tokens, 0);
        CHECK_OK(c.ctx, orth_dataset_verify(c.ctx, d));
        orth_dataset_close(c.ctx, d);
        prepare_end(&p);
    }
    case_end(&c);
}

/* Text of many documents of all lengths, longer than one batch of prepare. */
static char *long_text(size_t n)
{
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t r = orth_philox(3, ORTH_STREAM_TEST, 2, i).v[0];
        text[i] = i && text[i - 1] == '\n' && r % 8 < 7 ? '\n' : r % 40 == 0 ? '\n' : (char)('a' + r % 26);
    }
    return text;
}

static uint64_t folder_hash(data_case *c, const char *dir)
{
    uint64_t sum = 0; /* of unordered entries */
    DIR *d = opendir(dir);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        char *bytes = NULL, *path = orth_path_join(c->ctx, dir, e->d_name);
        size_t n = 0;
        if (e->d_name[0] != '.') {
            CHECK_OK(c->ctx, orth_file_read(c->ctx, path, &bytes, &n));
            sum += XXH64(bytes, n, XXH64(e->d_name, strlen(e->d_name), 0));
        }
        orth_mem_free(c->ctx, bytes);
        orth_mem_free(c->ctx, path);
    }
    closedir(d);
    return sum;
}

TEST(any_number_of_threads_writes_the_same_bytes)
{
    const size_t n = (size_t)9 << 20;
    char *text = long_text(n);
    uint64_t hash = 0;
    static const int threads[] = {1, 2, 3, 7};
    for (int k = 0; k < 4; k++) {
        data_case c = case_begin(threads[k]);
        prepare_case p;
        orth_prepare_result r;
        prepare_begin(&p, &c, "in.txt", text, n);
        p.options.valid_fraction = 0.1;
        p.options.seed = 5;
        p.options.shard_tokens = 1000000;
        CHECK_OK(c.ctx, orth_prepare(c.ctx, &p.options, &r));
        const double share = (double)r.valid_docs / (double)(r.valid_docs + r.train_docs);
        assert_true(share > 0.09 && share < 0.11);
        const uint64_t h = folder_hash(&c, p.dir);
        assert_true(k == 0 || h == hash);
        hash = h;
        prepare_end(&p);
        case_end(&c);
    }
    free(text);
}

static int count_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

TEST(a_failing_write_or_allocation_leaves_no_folder_or_the_old_one)
{
    data_case c = case_begin(1);
    prepare_case p;
    static const char text[] = "one\n\ntwo\n\nthree\n\nfour";
    prepare_begin(&p, &c, "in.txt", text, strlen(text));
    p.options.valid_fraction = 0.5;
    p.options.shard_tokens = 4;
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        p.options.overwrite = overwrite;
        const uint64_t before = overwrite ? folder_hash(&c, p.dir) : 0;
        for (int kind = 0; kind < 2; kind++) {
            if (!overwrite)
                CHECK_OK(c.ctx, orth_path_remove(c.ctx, p.dir));
            for (int64_t n = 1;; n++) {
                orth_faults faults = {.alloc = kind ? n : 0, .write = kind ? 0 : n};
                c.ctx->faults = &faults;
                orth_status status = orth_prepare(c.ctx, &p.options, NULL);
                c.ctx->faults = NULL;
                if (status == ORTH_OK)
                    break;
                assert_true(n < 1000 && c.ctx->error.message[0]);
                assert_true(kind ? status == ORTH_ERR_NOMEM
                                 : status == ORTH_ERR_NOSPACE || status == ORTH_ERR_IO);
                orth_ctx_clear_error(c.ctx);
                assert_int_equal(count_entries(c.dir), 1 + overwrite); /* the input, and the old folder */
                if (overwrite)
                    assert_true(folder_hash(&c, p.dir) == before);
            }
        }
        if (!overwrite)
            CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "exists already", orth_prepare(c.ctx, &p.options, NULL));
    }
    orth_dataset *d = NULL;
    CHECK_OK(c.ctx, orth_dataset_open(c.ctx, &d, p.dir));
    CHECK_OK(c.ctx, orth_dataset_verify(c.ctx, d));
    assert_int_equal(d->train.num_docs + d->valid.num_docs, 4);
    orth_dataset_close(c.ctx, d);
    prepare_end(&p);
    case_end(&c);
}

TEST(inputs_that_hold_nothing_are_refused_by_name)
{
    data_case c = case_begin(2);
    prepare_case p;
    prepare_begin(&p, &c, "in.txt", "", 0);
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "in.txt: 0 bytes hold no document: the file is empty",
                orth_prepare(c.ctx, &p.options, NULL));
    prepare_end(&p);
    prepare_begin(&p, &c, "in.txt", "\n  \n", 4);
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "nothing but white space", orth_prepare(c.ctx, &p.options, NULL));
    p.inputs[0] = "/nonexistent/file";
    CHECK_FAILS(c.ctx, ORTH_ERR_IO, "/nonexistent/file: cannot open", orth_prepare(c.ctx, &p.options, NULL));
    p.inputs[0] = c.dir;
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "is a folder", orth_prepare(c.ctx, &p.options, NULL));
    p.options.valid_fraction = 1;
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "valid_fraction=1 is not in", orth_prepare(c.ctx, &p.options, NULL));
    prepare_end(&p);
    static const char lines[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":oops}\n{\"bad\":1}\n";
    prepare_begin(&p, &c, "in.jsonl", lines, strlen(lines));
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "in.jsonl:3:2: the field that holds the text is not a string",
                orth_prepare(c.ctx, &p.options, NULL));
    assert_int_equal(count_entries(c.dir), 2);
    prepare_end(&p);
    case_end(&c);
}

/* ---- data sets ---- */

static void check_dataset_refused(data_case *c, const char *dir, const char *from, const char *to,
                                  const char *message)
{
    char path[600], *text = NULL;
    size_t n = 0;
    orth_dataset *d = NULL;
    snprintf(path, sizeof path, "%s/dataset.json", dir);
    CHECK_OK(c->ctx, orth_file_read(c->ctx, path, &text, &n));
    char changed[4096];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    CHECK_OK(c->ctx, orth_file_write(c->ctx, path, changed, strlen(changed)));
    CHECK_FAILS(c->ctx, ORTH_ERR_DATA, message, orth_dataset_open(c->ctx, &d, dir));
    CHECK_OK(c->ctx, orth_file_write(c->ctx, path, text, n));
    orth_mem_free(c->ctx, text);
}

TEST(dataset_json_that_lies_is_refused)
{
    data_case c = case_begin(1);
    char dir[512];
    const int64_t lengths[] = {5, 6, 7};
    orth_dataset_close(c.ctx, case_dataset(&c, "set", lengths, 3, 2, 100));
    case_path(&c, &dir, "set");
    check_dataset_refused(&c, dir, "orthant-dataset", "other", "format='other'");
    check_dataset_refused(&c, dir, "\"version\": 1", "\"version\": 2", "version=2 is not in [1, 1]");
    check_dataset_refused(&c, dir, "\"vocab_size\": 100", "\"vocab_size\": 0", "vocab_size=0");
    check_dataset_refused(&c, dir, "\"vocab_size\": 100", "\"vocab_size\": 99", "the data set says 99");
    check_dataset_refused(&c, dir, "\"eot_token\": 0", "\"eot_token\": 100",
                          "eot_token=100 is not in [0, 99]");
    check_dataset_refused(&c, dir, "000000000000004d", "000000000000004e",
                          "the data set says 000000000000004e");
    check_dataset_refused(&c, dir, "000000000000004d", "4d", "is not 16 hexadecimal digits");
    check_dataset_refused(&c, dir, "\"tokens\": 11", "\"tokens\": 12",
                          "is not the shard that dataset.json names");
    check_dataset_refused(&c, dir, "train-00000", "../train", "is not the name of a file");
    check_dataset_refused(&c, dir, "train-00000", "train-00001", "is not the shard that dataset.json names");
    check_dataset_refused(&c, dir, "\"valid\": []", "\"valid\": 5", "'valid' is not a list");
    check_dataset_refused(&c, dir, "\"train\"", "\"tra\"", "'train' is not a list");
    check_dataset_refused(&c, dir, "\"valid\": []}", "", "dataset.json:1:");
    case_end(&c);
}

TEST(data_path_may_be_text_that_is_prepared_once_or_a_folder)
{
    data_case c = case_begin(2);
    prepare_case p;
    char cache[512];
    const char *paths[2] = {p.in, p.dir};
    prepare_begin(&p, &c, "in.txt", "hello\n\nworld, this is text", 26);
    CHECK_OK(c.ctx, orth_prepare(c.ctx, &p.options, NULL));
    orth_data_options o = {
        .paths = paths, .num_paths = 2, .tokenizer = "bytes", .cache_dir = case_path(&c, &cache, "run/data")};
    for (int i = 0; i < 2; i++) {
        orth_data *d = NULL;
        CHECK_OK(c.ctx, orth_data_open_or_prepare(c.ctx, &d, &o));
        check_documents(&c, d->train[0], "hello|world, this is text|");
        check_documents(&c, d->train[1], "hello|world, this is text|");
        assert_int_equal(d->num_valid, 0);
        orth_data_close(c.ctx, d);
        assert_int_equal(count_entries(cache), 1);
    }
    orth_data *d = NULL;
    o.weights = &(double){1};
    o.num_weights = 1;
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "data.weights has 1 numbers, data.path has 2",
                orth_data_open_or_prepare(c.ctx, &d, &o));
    o.num_weights = 0;
    paths[1] = "/nonexistent";
    CHECK_FAILS(c.ctx, ORTH_ERR_IO, "/nonexistent: no such file", orth_data_open_or_prepare(c.ctx, &d, &o));
    paths[1] = c.dir;
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "folder without dataset.json",
                orth_data_open_or_prepare(c.ctx, &d, &o));
    o.num_paths = 1;
    o.tokenizer = "auto";
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "data.tokenizer must name", orth_data_open_or_prepare(c.ctx, &d, &o));
    /* Shards of another tokenizer. */
    const int64_t length = 9;
    orth_dataset_close(c.ctx, case_dataset(&c, "foreign", &length, 1, 1, 257));
    char foreign[512];
    paths[0] = case_path(&c, &foreign, "foreign");
    o.tokenizer = "bytes";
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "tokenizer 000000000000004d made its shards, 'bytes' is",
                orth_data_open_or_prepare(c.ctx, &d, &o));
    prepare_end(&p);
    case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_give_back_their_documents_in_both_widths),
        cmocka_unit_test(a_lie_in_any_header_field_is_refused_with_path_offset_value_and_rule),
        cmocka_unit_test(every_truncation_and_every_flipped_bit_is_found),
        cmocka_unit_test(jsonl_lines_give_their_text_or_a_place_and_a_reason),
        cmocka_unit_test(documents_are_cut_at_every_kind_of_separator),
        cmocka_unit_test(any_number_of_threads_writes_the_same_bytes),
        cmocka_unit_test(a_failing_write_or_allocation_leaves_no_folder_or_the_old_one),
        cmocka_unit_test(inputs_that_hold_nothing_are_refused_by_name),
        cmocka_unit_test(dataset_json_that_lies_is_refused),
        cmocka_unit_test(data_path_may_be_text_that_is_prepared_once_or_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
