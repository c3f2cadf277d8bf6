/* test_data.c -- prepare and data sets: documents, splits, failures half-way, and what data.path may be. */
#include <dirent.h>

#include <xxhash.h>

#include "data_case.h"

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
        {"a.txt", NULL, "a\n\nb\n", "a\n\nb\n|"},
        {"a.txt", "blank-line", text, "one\ntwo|three|four===five|"},
        {"a.txt", "blank-line", "x", "x|"},
        {"a.txt", "blank-line", "x\xFF\n\n\xC3(", "x\xFF|\xC3(|"},
        {"a.txt", "line", text, "one|two|three|four===five|"},
        {"a.txt", "file", "a\n\nb\n", "a\n\nb\n|"},
        {"a.txt", "===", "===a\n======b===c", "a\n|b|c|"},
        {"a.txt", "\\n\\n", "a\n\nb\nc\n\n\\n\\n", "a|b\nc|\\n\\n|"},
        {"a.txt", "\n\\t\\r\\\\n", "a\n\t\r\\nb\n", "a|b\n|"},
        {"a.jsonl", NULL, "{\"text\":\"a\\n\\nb\"}\n\n{\"text\":\" \"}\n{\"text\":\"c\"}", "a\n\nb|c|"},
    };
    data_case c = case_begin(2);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        prepare_case p;
        orth_dataset *d = NULL;
        prepare_begin(&p, &c, cases[i].name, cases[i].text, strlen(cases[i].text));
        p.options.text.separator = cases[i].separator;
        p.options.text.format = i == 3 ? ORTH_TEXT_TEXT : ORTH_TEXT_AUTO; /* bytes that are no UTF-8 */
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
    for (int k = 0; k < 8; k++) {
        data_case c = case_begin(threads[k % 4]);
        prepare_case p;
        orth_prepare_result r;
        prepare_begin(&p, &c, "in.txt", text, n);
        p.options.valid_fraction = 0.1;
        p.options.seed = 5;
        p.options.shard_tokens = 1000000;
        p.options.text.separator = k < 4 ? "blank-line" : "file";
        CHECK_OK(c.ctx, orth_prepare(c.ctx, &p.options, &r));
        const double share = k < 4 ? (double)r.valid_docs / (double)(r.valid_docs + r.train_docs)
                                   : (double)r.valid_tokens / (double)(r.valid_tokens + r.train_tokens);
        assert_true(share > (k < 4 ? 0.09 : 0.08) && share < (k < 4 ? 0.11 : 0.12));
        assert_int_equal(r.read_bytes, n);
        assert_true(r.text_bytes + r.dropped_bytes == (int64_t)n && (r.dropped_bytes == 0) == (k >= 4));
        const uint64_t h = folder_hash(&c, p.dir);
        assert_true(k % 4 == 0 || h == hash);
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
    p.options.text.separator = "blank-line";
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
    CHECK_FAILS(c.ctx, ORTH_ERR_IO, "it is a folder", orth_prepare(c.ctx, &p.options, NULL));
    p.options.valid_fraction = 1;
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "valid_fraction=1 is not in", orth_prepare(c.ctx, &p.options, NULL));
    prepare_end(&p);
    static const char lines[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":oops}\n{\"bad\":1}\n";
    prepare_begin(&p, &c, "in.jsonl", lines, strlen(lines));
    CHECK_FAILS(c.ctx, ORTH_ERR_DATA, "in.jsonl:3:9: not a JSON value",
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
    p.options.text.separator = "blank-line";
    CHECK_OK(c.ctx, orth_prepare(c.ctx, &p.options, NULL));
    orth_data_options o = {
        .paths = paths, .num_paths = 2, .tokenizer = "bytes", .text.separator = "blank-line",
        .cache_dir = case_path(&c, &cache, "run/data")};
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
    char empty[512];
    paths[1] = case_path(&c, &empty, "empty");
    CHECK_OK(c.ctx, orth_path_make_dirs(c.ctx, empty));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "is a folder without files", orth_data_open_or_prepare(c.ctx, &d, &o));
    char folder[512], inside[512]; /* the folders in it count, hidden files do not */
    CHECK_OK(c.ctx, orth_path_make_dirs(c.ctx, case_path(&c, &folder, "texts/b")));
    CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &inside, "texts/b/x.txt"), "second", 6));
    CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &inside, "texts/a.jsonl"), "{\"text\":\"first\"}", 16));
    CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &inside, "texts/.hidden"), "third", 5));
    paths[1] = case_path(&c, &folder, "texts");
    CHECK_OK(c.ctx, orth_data_open_or_prepare(c.ctx, &d, &o));
    check_documents(&c, d->train[1], "first|second|");
    orth_data_close(c.ctx, d);
    CHECK_OK(c.ctx, orth_path_remove(c.ctx, cache));
    o.num_paths = 1;
    o.tokenizer = "auto";
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "data.tokenizer must name", orth_data_open_or_prepare(c.ctx, &d, &o));
    o.auto_vocab = 260;
    paths[0] = p.in;
    uint64_t fingerprint = 0;
    for (int i = 0; i < 2; i++) { /* trained, then found again */
        CHECK_OK(c.ctx, orth_data_open_or_prepare(c.ctx, &d, &o));
        assert_in_range(d->sets[0]->vocab_size, 257, 260);
        assert_true(i == 0 || fingerprint == d->sets[0]->fingerprint);
        fingerprint = d->sets[0]->fingerprint;
        orth_data_close(c.ctx, d);
        assert_int_equal(count_entries(cache), 2); /* a tokenizer and its shards */
    }
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

TEST(every_failing_allocation_and_write_while_opening_is_survived)
{
    data_case c = case_begin(1);
    prepare_case p;
    char cache[512];
    const char *path = p.in;
    orth_data *d = NULL;
    prepare_begin(&p, &c, "in.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}", 38);
    const orth_data_options o = {.paths = &path, .num_paths = 1, .tokenizer = "bytes", .valid_fraction = 0.5,
                                 .seed = 1, .cache_dir = case_path(&c, &cache, "cache")};
    const int64_t before = c.ctx->heap_bytes;
    for (int kind = 0; kind < 3; kind++) { /* writes, allocations; allocations with the cache in place */
        if (kind == 1)
            CHECK_OK(c.ctx, orth_path_remove(c.ctx, cache));
        for (int64_t n = 1;; n++) {
            orth_faults faults = {.alloc = kind ? n : 0, .write = kind ? 0 : n};
            c.ctx->faults = &faults;
            orth_status status = orth_data_open_or_prepare(c.ctx, &d, &o);
            c.ctx->faults = NULL;
            if (status == ORTH_OK && (kind ? faults.alloc : faults.write) > 0)
                break; /* there are fewer than n */
            assert_true(n < 1000 && (status == ORTH_OK || c.ctx->error.message[0]));
            if (status == ORTH_OK) /* the failure was of something that can be done without */
                orth_data_close(c.ctx, d);
            orth_ctx_clear_error(c.ctx);
            assert_int_equal(c.ctx->heap_bytes, before);
        }
        assert_int_equal(d->train[0]->num_docs + d->sets[0]->valid.num_docs, 3);
        orth_data_close(c.ctx, d);
    }
    prepare_end(&p);
    case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_cut_at_every_kind_of_separator),
        cmocka_unit_test(any_number_of_threads_writes_the_same_bytes),
        cmocka_unit_test(a_failing_write_or_allocation_leaves_no_folder_or_the_old_one),
        cmocka_unit_test(inputs_that_hold_nothing_are_refused_by_name),
        cmocka_unit_test(dataset_json_that_lies_is_refused),
        cmocka_unit_test(data_path_may_be_text_that_is_prepared_once_or_a_folder),
        cmocka_unit_test(every_failing_allocation_and_write_while_opening_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
