/* test_text.c -- how text gets in: pieces of files, folders, one reader for every verb, epochs. */
#include "data/content.h"
#include "data/inputs.h"
#include "data/prepare.h"
#include "data_case.h"
#include "run_case.h"
#include "text_case.h"

/* ---- pieces of whole files ---- */

/* The tokens of the pieces, without the end of text between them, are those of the whole: for words of ASCII. */
TEST(cutting_a_file_into_pieces_does_not_change_its_tokens)
{
    static const orth_tokenizer_kind kinds[] = {ORTH_TOKENIZER_GPT2, ORTH_TOKENIZER_LLAMA3, ORTH_TOKENIZER_QWEN};
    orth_ctx *ctx = test_ctx(2);
    enum { N = 400000 };
    char *text = words_text(N, 4);
    const size_t n = strlen(text);
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        const orth_tokenizer_train_options train = {.vocab_size = 600, .kind = kinds[k]};
        orth_tokenizer *tok = NULL;
        orth_encoder *enc = NULL;
        orth_reader *r = NULL;
        orth_ids whole = {0}, pieces = {0};
        CHECK_OK(ctx, orth_tokenizer_train(ctx, &tok, &(orth_text_span){text, n}, 1, &train));
        CHECK_OK(ctx, orth_encoder_create(ctx, &enc, tok));
        CHECK_OK(ctx, orth_encoder_encode(ctx, enc, &whole, text, n));
        CHECK_OK(ctx, orth_reader_create(ctx, &r, &(orth_text_options){.format = ORTH_TEXT_AUTO}, 1));
        CHECK_OK(ctx, orth_reader_memory(ctx, r, "in", text, n));
        orth_document d = {.goes_on = true};
        int64_t num = 1, count = 0;
        while (num > 0) {
            assert_true(d.goes_on);
            CHECK_OK(ctx, orth_reader_next(ctx, r, &d, 1, &num));
            if (num > 0)
                CHECK_OK(ctx, orth_encoder_encode(ctx, enc, &pieces, d.text, d.num_bytes));
            assert_true(num == 0 || d.num_bytes <= 1024);
            count += num;
            if (num > 0 && !d.goes_on)
                break;
        }
        assert_in_range(count, 500, 800); /* 512 bytes and a little more each */
        assert_int_equal(whole.num, pieces.num);
        assert_memory_equal(whole.v, pieces.v, (size_t)whole.num * sizeof *whole.v);
        orth_reader_free(ctx, r);
        orth_ids_free(ctx, &whole);
        orth_ids_free(ctx, &pieces);
        orth_encoder_free(ctx, enc);
        orth_tokenizer_free(ctx, tok);
    }
    free(text);
    test_ctx_free(ctx);
}

/* Nothing of a file is lost: both splits, pieces in their order, are the file. */
TEST(a_whole_file_is_in_the_data_set_to_the_byte_and_ends_where_a_piece_is_held_out)
{
    data_case c = case_begin(2);
    enum { N = 100000 };
    char in[512], out[512], *text = words_text(N, 5);
    const size_t n = strlen(text);
    const char *inputs[] = {in};
    orth_tokenizer *tok = NULL;
    orth_dataset *d = NULL;
    orth_prepare_result r;
    CHECK_OK(c.ctx, orth_tokenizer_bytes(c.ctx, &tok));
    CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &in, "in.txt"), text, n));
    const orth_prepare_options o = {.inputs = inputs, .num_inputs = 1, .out_dir = case_path(&c, &out, "out"),
                                    .tokenizer = tok, .valid_fraction = 0.2, .seed = 3};
    CHECK_OK(c.ctx, orth_prepare(c.ctx, &o, &r));
    CHECK_OK(c.ctx, orth_dataset_open(c.ctx, &d, out));
    assert_int_equal(r.text_bytes, n);
    assert_int_equal(r.dropped_bytes, 0);
    assert_int_equal(d->train.text_bytes + d->valid.text_bytes, n);
    assert_true(d->valid.num_docs > 5 && d->train.num_docs >= d->valid.num_docs);
    assert_true(d->train.num_docs <= d->valid.num_docs + 1);
    /* Documents of the two splits alternate, so together they are read back in the order of the file. */
    const orth_corpus *splits[] = {&d->train, &d->valid};
    int64_t at[2] = {0, 0};
    size_t place = 0;
    for (int k = 0; at[k] < splits[k]->num_tokens; k = !k) {
        int64_t start, end;
        int32_t id = 0;
        orth_corpus_document(splits[k], at[k], &start, &end);
        assert_int_equal(start, at[k]);
        for (; at[k] < end; at[k]++) {
            CHECK_OK(c.ctx, orth_corpus_read(c.ctx, splits[k], &id, at[k], 1));
            assert_true(at[k] == end - 1 ? id == 256 : id == (unsigned char)text[place]);
            place += at[k] < end - 1;
        }
    }
    assert_int_equal(place, n);
    orth_dataset_close(c.ctx, d);
    orth_tokenizer_free(c.ctx, tok);
    free(text);
    case_end(&c);
}

/* ---- lists of inputs ---- */

TEST(folders_give_their_files_in_the_order_of_their_paths)
{
    data_case c = case_begin(1);
    char path[512], dir[512], list[2048];
    static const char *const made[] = {"t/b/2.txt", "t/b/10.txt", "t/a.txt", "t/z", "t/.git/x", "t/b/.y", "t/B.txt"};
    static const char *const wanted[] = {"t/B.txt", "t/a.txt", "t/b/10.txt", "t/b/2.txt", "t/link", "t/z", "t/z"};
    static const char *const folders[] = {"t/b", "t/.git", "e"};
    for (int i = 0; i < ORTH_COUNT(folders); i++)
        CHECK_OK(c.ctx, orth_path_make_dirs(c.ctx, case_path(&c, &path, folders[i])));
    for (int i = 0; i < ORTH_COUNT(made); i++)
        CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &path, made[i]), "x", 1));
    assert_int_equal(symlink("b/2.txt", case_path(&c, &path, "t/link")), 0);
    assert_int_equal(symlink("..", case_path(&c, &path, "t/b/loop")), 0);
    snprintf(list, sizeof list, "%s/t\n\n%s/t/z\r\n", c.dir, c.dir);
    CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &path, "list"), list, strlen(list)));
    orth_inputs in = {0};
    CHECK_OK(c.ctx, orth_inputs_add_list(c.ctx, &in, path));
    assert_int_equal(in.num, ORTH_COUNT(wanted));
    for (int i = 0; i < in.num; i++)
        assert_string_equal(in.v[i], case_path(&c, &dir, wanted[i]));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "/e: is a folder without files", orth_inputs_add(c.ctx, &in, case_path(&c, &dir, "e")));
    CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &path, "e/dataset.json"), "{}", 2));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "/e: is prepared already", orth_inputs_add(c.ctx, &in, dir));
    CHECK_OK(c.ctx, orth_file_write(c.ctx, case_path(&c, &path, "list"), "\n\n", 2));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "the list names no file", orth_inputs_add_list(c.ctx, &in, path));
    orth_inputs_free(c.ctx, &in);
    case_end(&c);
}

/* ---- the program ---- */

static void write_jsonl(run_case *r, const char *name)
{
    char *text = words_text(60000, 6), *json = malloc(300000);
    size_t at = 0;
    for (char *p = text, *end; *p; p = end) {
        end = p + ORTH_MIN(strlen(p), 97 + strcspn(p + ORTH_MIN(strlen(p), 97), " "));
        at += (size_t)sprintf(json + at, "{\"id\": %zu, \"content\": \"", at);
        for (; p < end; p++)
            at += (size_t)sprintf(json + at, *p == '\n' ? "\\n" : "%c", *p);
        at += (size_t)sprintf(json + at, " \\\"\"}\n");
    }
    run_write(r, name, json, at);
    free(text);
    free(json);
}

TEST(tokenizer_train_reads_jsonl_as_data_prepare_does)
{
    run_case *r = run_begin();
    write_jsonl(r, "code.jsonl");
    RUN(r, 0, "JSONL, field 'content'", "data prepare --train-tokenizer=400 --field=content --out=s code.jsonl");
    RUN(r, 0, "merges", "tokenizer train --vocab-size=400 --field=content --out=flag.json code.jsonl");
    RUN(r, 0, "merges", "tokenizer train --vocab-size=400 data.jsonl_field=content --out=key.json code.jsonl");
    RUN(r, 0, "merges", "tokenizer train --vocab-size=400 --field=content data.format=jsonl --out=stdin.json - < code.jsonl");
    run_same_file(r, "s/tokenizer.json", "flag.json");
    run_same_file(r, "s/tokenizer.json", "key.json");
    run_same_file(r, "s/tokenizer.json", "stdin.json");
    RUN(r, 0, "", "tokenizer inspect --tokens flag.json > tokens");
    char *tokens = run_read(r, "tokens", NULL);
    assert_null(strstr(tokens, "content"));
    free(tokens);
    RUN(r, 0, "from 1000 bytes", "tokenizer train --vocab-size=400 --field=content --max-bytes=1000 --out=part.json code.jsonl");
    assert_non_null(strstr(r->out, "learned from the first 1000 bytes of the text only"));
    RUN(r, 5, "it has 'id', 'content': data.jsonl_field=NAME", "tokenizer train --vocab-size=400 --out=bad.json code.jsonl");
    RUN(r, 5, "it has 'id', 'content': data.jsonl_field=NAME", "data prepare --tokenizer=bytes --out=bad code.jsonl");
    assert_false(run_has(r, "bad.json") || run_has(r, "bad"));
    /* A line of tokens for each document, without the JSON around it. */
    RUN(r, 0, "", "tokenizer encode --tokenizer=bytes --field=content code.jsonl | wc -l > lines; wc -l < code.jsonl >> lines");
    char *lines = run_read(r, "lines", NULL), *second = strchr(lines, '\n') + 1;
    assert_int_equal(atoi(lines), atoi(second));
    free(lines);
    run_end(r);
}

/* Tokens of `{"text": "` in a training set are seen by nobody. */
TEST(jsonl_under_another_name_is_never_read_as_text)
{
    static const char *const refused[] = {
        "data prepare --tokenizer=bytes --out=s - < code.jsonl", "data prepare --tokenizer=bytes --out=s code.json",
        "data prepare --tokenizer=bytes --field=content --out=s code.json code.jsonl", "tokenizer train --vocab-size=400 --out=t.json - < code.jsonl",
        "tokenizer encode --tokenizer=bytes < one.json", "train data.path=code.json model.preset=gpt2-tiny model.vocab=400 data.seq_len=16 checkpoint.dir=s",
        "init code.json --out=s",
    };
    static const char one[] = "\n {\"id\": [1, {}], \"text\": \"a\"}", config[] = "{\"id\": 1, \"n\": \"text\"}\n", code[] = "{\n  int a;\n}\n{\n}\n";
    run_case *r = run_begin();
    write_jsonl(r, "code.jsonl");
    write_jsonl(r, "code.json");
    run_write(r, "one.json", one, strlen(one));
    run_write(r, "config.json", config, strlen(config));
    run_write(r, "code.c", code, strlen(code));
    for (int i = 0; i < ORTH_COUNT(refused); i++) {
        RUN(r, 5, "a JSON object, and its name does not end in .jsonl or .ndjson: data.format=jsonl", "%s", refused[i]);
        assert_false(run_has(r, "s") || run_has(r, "t.json"));
    }
    static const struct { const char *text, *said; } others[] = {
        {"[{\"a\": \"b\"}, {\"a\": \"c\"}]", "begins with a JSON array of objects, not with text: `jq -c '.[]'`"},
        {" [\n  {\n  \"a\": \"b\"\n  }\n]\n", "begins with a JSON array of objects, not with text: `jq -c '.[]'`"},
        {"{\n \"a\": 1\n}\n{\n \"a\": 2\n}\n", "begins with JSON objects, not with text: `jq -c .`"},
        {"\xEF\xBB\xBF{\"a\": 1}\n{\"a\": 2}\n", "its first line is a JSON object"},
        {"{\n  \"text\": \"b\"\n}\n", "is a JSON object, and its name"},
    };
    for (int i = 0; i < ORTH_COUNT(others); i++) {
        run_write(r, "other.txt", others[i].text, strlen(others[i].text));
        RUN(r, 5, others[i].said, "data prepare --tokenizer=bytes --out=s other.txt");
    }
    run_write(r, "mark.jsonl", "\xEF\xBB\xBF{\"text\": \"ab\"}\n", 18);
    RUN(r, 0, "97 98\n", "tokenizer encode --tokenizer=bytes mark.jsonl");
    RUN(r, 2, "field 'content' of JSONL is asked for (--field or data.jsonl_field), but no name ends in .jsonl or .ndjson, with or without .gz or "
        ".zst: code.c", "data prepare --tokenizer=bytes --field=content --out=s code.c config.json");
    RUN(r, 2, "data.format=text has none", "data prepare --tokenizer=bytes data.jsonl_field=content data.format=text --out=s code.jsonl");
    RUN(r, 2, "no name ends in", "tokenizer encode --tokenizer=bytes --field=content code.c");
    RUN(r, 2, "no name ends in", "tokenizer train --vocab-size=400 --field=content --out=t.json code.c");
    RUN(r, 2, "no name ends in", "init --out=s code.c data.jsonl_field=content");
    /* One object without the field, and what begins as one, are text; and so is all that is called text. */
    RUN(r, 0, "", "data prepare --tokenizer=bytes --out=s code.c config.json");
    RUN(r, 0, "", "data prepare --tokenizer=bytes --out=s2 data.format=text code.json");
    RUN(r, 0, "", "data prepare --tokenizer=bytes --out=s3 --field=content data.format=jsonl - < code.json");
    RUN(r, 0, "", "data prepare --tokenizer=bytes --out=s4 --field=content code.jsonl code.c");
    run_end(r);
}

/* Its field, and that all of its data is JSONL, are said of its own data. */
TEST(a_run_on_jsonl_is_scored_on_plain_text)
{
    run_case *r = run_begin();
    write_jsonl(r, "code.jsonl");
    write_jsonl(r, "code.json");
    RUN(r, 0, "done", "train run.yaml data.path=code.jsonl data.tokenizer=shards data.jsonl_field=content train.steps=1");
    RUN(r, 0, "loss", "eval a --text=text.txt");
    RUN(r, 0, "loss", "eval a --text=- < text.txt");
    RUN(r, 0, "loss", "eval a --text=code.jsonl");
    RUN(r, 0, "loss", "eval a data.path=text.txt data.valid_fraction=0.1");
    RUN(r, 2, "field 'content' of JSONL is asked for", "eval a --text=text.txt --field=content");
    RUN(r, 2, "field 'content' of JSONL is asked for", "eval a --text=text.txt data.jsonl_field=content");
    RUN(r, 0, "done", "train run.yaml data.path=code.json data.tokenizer=shards data.jsonl_field=content data.format=jsonl train.steps=1 checkpoint.dir=j");
    RUN(r, 0, "loss", "eval j --text=text.txt");
    RUN(r, 5, "data.format=jsonl reads a field", "eval j --text=code.json");
    RUN(r, 0, "loss", "eval j --text=code.json data.format=jsonl");
    RUN(r, 5, "text.txt:1:1: ", "eval j --text=text.txt data.format=jsonl");
    run_end(r);
}

/* The window that text is read through holds 8 MiB. */
TEST(what_is_no_text_is_found_far_into_a_file)
{
    const size_t n = 9 << 20;
    run_case *r = run_begin();
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) /* two bytes a letter, one of them across the end of the window */
        text[i] = i == 0 ? 'x' : i % 2 ? '\xC3' : '\xA9';
    text[n - 1] = 'x';
    run_write(r, "far.txt", text, n);
    RUN(r, 0, "", "data prepare --tokenizer=bytes --out=s far.txt");
    text[n - 3] = '\xFF';
    run_write(r, "far.txt", text, n);
    RUN(r, 0, "", "data prepare --tokenizer=bytes --out=s2 far.txt");
    text[n - 3] = 0;
    run_write(r, "far.txt", text, n);
    RUN(r, 5, "far.txt: is binary, not text: byte 9437181 is NUL", "data prepare --tokenizer=bytes --out=s3 far.txt");
    memset(text + n - 200001, 0xFF, 200000);
    run_write(r, "far.txt", text, n);
    RUN(r, 5, "far.txt: is not UTF-8: 200000 of its first 9437184 bytes are not, the first at byte 9237183", "data prepare --tokenizer=bytes --out=s3 far.txt");
    assert_false(run_has(r, "s3"));
    free(text);
    run_end(r);
}

/* A text in which a few letters are Latin-1. */
TEST(bytes_that_are_not_utf8_are_counted_once_for_all_inputs)
{
    static const char *const said = "3 bytes of the text are not UTF-8, the first at byte 203 of b.txt: ";
    static const char *const verbs[] = {
        "data prepare --tokenizer=bytes --overwrite --out=s a.txt b.txt c.jsonl", "data prepare --train-tokenizer=280 --overwrite --out=s a.txt b.txt c.jsonl",
        "tokenizer train --vocab-size=280 --out=t.json a.txt b.txt c.jsonl", "tokenizer encode --tokenizer=bytes a.txt b.txt c.jsonl",
        "init --out=i.yaml some", "train run.yaml data.path=some train.steps=1", "eval a --text=some",
    };
    run_case *r = run_begin();
    RUN(r, 0, "", "help >/dev/null; for i in $(seq 100); do echo a long line of text without accents; done >a.txt; (head -c 200 a.txt; "
        "printf 'caf\\351 na\\357ve '; cat a.txt) >b.txt; (printf '{\"text\": \"caf\\351 '; tr '\\n' ' ' <a.txt; echo '\"}') >c.jsonl; "
        "mkdir some; cp a.txt b.txt c.jsonl some");
    for (int i = 0; i < ORTH_COUNT(verbs); i++) {
        RUN(r, 0, i < 4 ? said : "3 bytes of the text are not UTF-8, the first at byte 203 of some/b.txt: ", "%s", verbs[i]);
        assert_null(strstr(strstr(r->out, "not UTF-8") + 1, "not UTF-8"));
    }
    RUN(r, 0, "1 byte of the text is not UTF-8, the first at byte 13 of c.jsonl", "tokenizer encode --tokenizer=bytes c.jsonl");
    RUN(r, 0, "tokens", "data prepare --tokenizer=bytes --out=s2 a.txt");
    assert_null(strstr(r->out, "UTF-8"));
    RUN(r, 0, "tokens", "data prepare --tokenizer=bytes data.format=text --out=s3 b.txt");
    assert_null(strstr(r->out, "UTF-8"));
    run_end(r);
}

static void check_same_set(run_case *r, const char *a, const char *b)
{
    static const char *const files[] = {"train-00000.orts", "valid-00000.orts"};
    for (int i = 0; i < ORTH_COUNT(files); i++) {
        char p[128], q[128];
        snprintf(p, sizeof p, "%s/%s", a, files[i]);
        snprintf(q, sizeof q, "%s/%s", b, files[i]);
        run_same_file(r, p, q);
    }
}

/* As Python's utf-8-sig: it says how the text is encoded. */
TEST(a_byte_order_mark_is_no_part_of_the_text)
{
    static const char marked[] = "\xEF\xBB\xBF" "ab\xEF\xBB\xBF\n"; /* behind the beginning it is a character */
    run_case *r = run_begin();
    RUN(r, 0, "", "help >/dev/null; (printf '\\357\\273\\277'; cat text.txt) >marked.txt; gzip -k marked.txt");
    run_write(r, "short.txt", marked, strlen(marked));
    RUN(r, 0, "97 98 239 187 191 10\n", "tokenizer encode --tokenizer=bytes short.txt");
    RUN(r, 0, "97 98 239 187 191 10\n", "tokenizer encode --tokenizer=bytes - < short.txt");
    RUN(r, 0, "239 187 191 97 98 239 187 191 10\n", "tokenizer encode --tokenizer=bytes data.format=text short.txt");
    RUN(r, 0, "97 98 239 187 191\n", "tokenizer encode --tokenizer=bytes data.separator=line short.txt");
#define PREPARE "data prepare --tokenizer=shards --valid-fraction=0.1 --overwrite --out=other "
    RUN(r, 0, "separator \"file\", 0 bytes of separators", PREPARE "marked.txt");
    check_same_set(r, "shards", "other");
    RUN(r, 0, "tokens", PREPARE "marked.txt.gz");
    check_same_set(r, "shards", "other");
#undef PREPARE
    RUN(r, 0, "merges", "tokenizer train --vocab-size=%d --out=t.json marked.txt", RUN_VOCAB);
    run_same_file(r, "shards/tokenizer.json", "t.json");
    RUN(r, 0, "loss", "train run.yaml data.path=marked.txt data.tokenizer=shards train.steps=1 data.valid_fraction=0.1");
    RUN(r, 0, "loss", "eval a --json --text=text.txt >unmarked; %s eval a --json --text=marked.txt >marked; diff unmarked marked && echo loss", ORTH_BINARY);
    run_write(r, "only.txt", marked, 3);
    RUN(r, 5, "only.txt: 0 bytes hold no document", "data prepare --tokenizer=bytes --out=s only.txt");
    run_end(r);
}

TEST(every_way_in_gives_the_same_shards)
{
    run_case *r = run_begin();
    size_t n;
    char *text = run_read(r, "text.txt", &n);
    packed gz = gzip_of(text, n), zst = zstd_of(text, n);
    run_write(r, "text.gz", gz.v, gz.n);
    run_write(r, "text.zst", zst.v, zst.n);
    run_write(r, "list", "text.txt\n", 9);
#define PREPARE "data prepare --tokenizer=shards --valid-fraction=0.1 --overwrite --out=other "
    RUN(r, 0, "separator \"file\", 0 bytes of separators", PREPARE "text.gz");
    check_same_set(r, "shards", "other");
    RUN(r, 0, "tokens", PREPARE "text.zst");
    check_same_set(r, "shards", "other");
    RUN(r, 0, "tokens", PREPARE "- < text.zst");
    check_same_set(r, "shards", "other");
    RUN(r, 0, "tokens", PREPARE "--files-from=list");
    check_same_set(r, "shards", "other");
    RUN(r, 0, "loss", "train run.yaml data.path=text.gz data.tokenizer=shards data.valid_fraction=0.1 train.steps=1");
    RUN(r, 0, "loss", "eval a --text=text.gz");
    RUN(r, 0, "loss", "eval a --text=- < text.zst");
    RUN(r, 2, "standard input (-) is named 2 times", PREPARE "- text.txt - < text.txt");
    RUN(r, 2, "reads the text twice", "data prepare --train-tokenizer=300 --out=x - < text.txt");
    RUN(r, 2, "data prepare: which text?", "data prepare --tokenizer=bytes --out=x");
    RUN(r, 2, "(data.separator=blank-line now, file then): --resume goes on with the same data",
        "train run.yaml data.path=text.gz data.tokenizer=shards data.valid_fraction=0.1 train.steps=2 data.separator=blank-line "
        "--resume");
    /* Damaged: nothing is left. */
    run_write(r, "cut.gz", gz.v, gz.n / 2);
    RUN(r, 5, "cut.gz: the gzip stream is damaged at byte", "data prepare --tokenizer=bytes --out=cut text.txt cut.gz");
    RUN(r, 5, "cut.gz: the gzip stream is damaged at byte", "tokenizer train --vocab-size=300 --out=cut.json cut.gz");
    RUN(r, 5, "cut.gz: the gzip stream is damaged at byte", "eval a --text=cut.gz");
    RUN(r, 0, "1\n", "help > /dev/null; ls -a | grep -c cut"); /* the file itself */
    run_write(r, "table.parquet", "PAR1\0\0\0PAR1", 11);
    RUN(r, 5, "table.parquet: is Parquet, not text", "data prepare --tokenizer=bytes --out=x table.parquet");
    RUN(r, 5, "table.parquet: is Parquet, not text", "tokenizer train --vocab-size=300 --out=x table.parquet");
    RUN(r, 0, "11 bytes", "data prepare --tokenizer=bytes --out=x data.format=text table.parquet");
    /* A signal ends the wait for standard input. */
    RUN(r, 130, "SIGINT", "help > /dev/null; mkfifo pipe; timeout --preserve-status -s INT 1 %s data prepare --tokenizer=bytes "
        "--out=waits - <> pipe", ORTH_BINARY);
    assert_false(run_has(r, "waits"));
    free(text), free(gz.v), free(zst.v);
    run_end(r);
}

/* Shells and run files hand over a backslash and an n. */
TEST(a_separator_has_escapes_and_is_told_of_where_it_occurs_nowhere)
{
    run_case *r = run_begin();
    run_write(r, "sep.txt", "a\n\nb\n\nc", 7);
    RUN(r, 0, "3 documents", "data prepare --tokenizer=bytes --valid-fraction=0 --document-separator='\\n\\n' --out=o sep.txt");
    assert_non_null(strstr(r->out, "separator \"\\n\\n\", 4 bytes"));
    assert_null(strstr(r->out, "occurs nowhere"));
    RUN(r, 0, "97\n98\n99\n", "tokenizer encode --tokenizer=bytes data.separator='\\n\\n' sep.txt");
    RUN(r, 0, "the separator '===\\n' occurs nowhere in sep.txt: a file is one document",
        "data prepare --tokenizer=bytes --document-separator='===\\n' --valid-fraction=0 --out=o2 sep.txt");
    RUN(r, 0, "occurs nowhere in text.txt and the other inputs", "data prepare --tokenizer=bytes --document-separator=== --out=o3 sep.txt text.txt");
    RUN(r, 0, "train", "data prepare --tokenizer=bytes --document-separator='b\\n' --out=o4 sep.txt text.txt");
    assert_null(strstr(r->out, "occurs nowhere"));
    RUN(r, 2, "separator 'a\\d': behind a backslash stands n, t, r or another backslash",
        "data prepare --tokenizer=bytes --document-separator='a\\d' --out=no sep.txt");
    assert_false(run_has(r, "no"));
    RUN(r, 2, "behind a backslash", "train run.yaml data.path=text.txt data.tokenizer=shards data.separator='\\'");
    RUN(r, 0, "occurs nowhere in text.txt", "train run.yaml data.path=text.txt data.tokenizer=shards data.separator='===' train.steps=1");
    run_end(r);
}

TEST(any_number_of_files_fits_a_command_line)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "help > /dev/null; mkdir many; i=0; while [ $i -lt 700 ]; do echo text $i > many/$i.txt; i=$((i+1)); done");
    RUN(r, 0, "of 700 inputs", "data prepare --tokenizer=bytes --out=one many/*.txt");
    RUN(r, 0, "train         6890 tokens        700 documents", "data prepare --tokenizer=bytes --valid-fraction=0 --out=two many");
    RUN(r, 0, "merges", "tokenizer train --vocab-size=270 --out=t.json many/*.txt");
    RUN(r, 0, "", "tokenizer encode --tokenizer=bytes many/*.txt > ids");
    run_end(r);
}

TEST(a_file_of_spaces_is_encoded_and_is_no_document_of_a_training_set)
{
    run_case *r = run_begin();
    run_write(r, "blank.txt", "  \n", 3);
    RUN(r, 0, "32 32 10", "tokenizer encode --tokenizer=bytes blank.txt");
    RUN(r, 0, "", "help > /dev/null; mkdir some; echo text > some/a.txt; cp blank.txt some/b.txt");
    RUN(r, 0, "1 documents", "data prepare --tokenizer=bytes --valid-fraction=0 --out=set some");
    run_end(r);
}

/* ---- epochs ---- */

static int64_t number_behind(const char *text, const char *what)
{
    const char *at = strstr(text, what);
    assert_non_null(at);
    return strtoll(at + strlen(what), NULL, 10);
}

TEST(epochs_are_steps_that_plan_inspect_and_run_yaml_tell)
{
    run_case *r = run_begin();
    char *yaml = run_read(r, "run.yaml", NULL), *at = strstr(yaml, "steps: 8, ");
    memmove(at, at + 10, strlen(at + 10) + 1);
    run_write(r, "free.yaml", yaml, strlen(yaml));
    RUN(r, 0, "epoch", "data inspect shards data.seq_len=32 train.global_batch=6");
    const int64_t tokens = number_behind(r->out, "train"), sequences = (tokens - 1) / 32;
    assert_int_equal(number_behind(r->out, "epoch"), sequences);
    RUN(r, 0, "\"epoch\": {\"seq_len\": 32", "data inspect --json shards data.seq_len=32 train.global_batch=6");
    assert_int_equal(number_behind(r->out, "\"sequences\": "), sequences);
    const int64_t half = (sequences + 11) / 12; /* half a pass in batches of 6, rounded up */
    char want[64];
    RUN(r, 0, "training tokens; an epoch is", "plan free.yaml train.epochs=0.5");
    assert_int_equal(number_behind(r->out, "data"), tokens);
    snprintf(want, sizeof want, "steps; %" PRId64 " steps are 0.5", half);
    assert_non_null(strstr(r->out, want));
    RUN(r, 2, "train.epochs=0.5 and train.steps=8 both say how long", "train run.yaml train.epochs=0.5");
    RUN(r, 0, "saved", "train free.yaml train.epochs=0.5");
    RUN(r, 0, "saved", "train free.yaml train.steps=%d checkpoint.dir=b", (int)half);
    char *a = run_metrics(r, "a"), *b = run_metrics(r, "b"); /* also the learning rates: they end with the steps */
    assert_string_equal(a, b);
    snprintf(want, sizeof want, "steps: %" PRId64 "\n", half);
    char *used = run_read(r, "a/run.yaml", NULL);
    assert_non_null(strstr(used, want));
    RUN(r, 0, "", "plan a/run.yaml");
    RUN(r, 0, "", "train free.yaml train.epochs=0.5 --resume"); /* nothing is left to do */
    RUN(r, 2, "the last step is", "train free.yaml train.epochs=0.5 checkpoint.dir=c --timeline=%d", (int)half + 1);
    free(yaml), free(used), free(a), free(b);
    run_end(r);
}

/* The JSON of `plan` from "cost" on, to its end; heap memory. */
static char *cost_of(run_case *r, const char *words)
{
    RUN(r, 0, "", "plan free.yaml --cluster=h100-1 precision.compute=bf16 --json %s", words);
    const char *at = strstr(r->out, "\"cost\": {");
    assert_non_null(at);
    return strndup(at, strcspn(at, "}"));
}

TEST(days_and_cost_of_epochs_are_those_of_their_steps_and_what_is_not_known_says_why)
{
    static const struct {
        const char *words, *line;
    } cases[] = {{"", "the whole run  not known: train.steps is not set\n"},
                 {"train.steps=0", "the whole run  0 steps (train.steps=0), which take no time\n"},
                 {"train.epochs=2 data.path=none",
                  "the whole run  not known: train.epochs of data that is not counted (data.path is not set, or not prepared)\n"},
                 {"train.epochs=2 data.seq_len=128 data.path=tiny", "the whole run  not known: train.epochs of data without a whole sequence\n"}};
    run_case *r = run_begin();
    char *yaml = run_read(r, "run.yaml", NULL), *at = strstr(yaml, "steps: 8, "), want[96], words[64];
    memmove(at, at + 10, strlen(at + 10) + 1);
    run_write(r, "free.yaml", yaml, strlen(yaml));
    run_write(r, "tiny.txt", "a few words", 11);
    RUN(r, 0, "", "data prepare --tokenizer=bytes --valid-fraction=0 --out=tiny tiny.txt");
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        RUN(r, 0, cases[i].line, "plan free.yaml --cluster=h100-1 precision.compute=bf16 %s", cases[i].words);
    RUN(r, 0, "epochs", "plan free.yaml --cluster=h100-1 precision.compute=bf16 train.epochs=2");
    const int64_t steps = number_behind(r->out, "the whole run  ");
    snprintf(want, sizeof want, "steps; %" PRId64 " steps are 2", steps);
    assert_true(steps > 0 && strstr(r->out, want));
    snprintf(words, sizeof words, "train.steps=%" PRId64, steps);
    char *by_epochs = cost_of(r, "train.epochs=2"), *by_steps = cost_of(r, words), *none = cost_of(r, "train.steps=0"),
         *unknown = cost_of(r, "train.epochs=2 data.path=none");
    assert_string_equal(by_epochs, by_steps);
    assert_null(strstr(by_epochs, "\"days\": null"));
    assert_non_null(strstr(none, "\"days\": 0,"));
    assert_true(strstr(unknown, "\"days\": null") && strstr(unknown, "\"not_known\": \"train.epochs of data"));
    RUN(r, 0, "USD", "plan free.yaml --cluster=h100-1 precision.compute=bf16 train.epochs=200 --compare 'train.micro_batch=[1,2]'");
    free(yaml), free(by_epochs), free(by_steps), free(none), free(unknown);
    run_end(r);
}

/* However the bytes come, those that are not UTF-8 are counted alike. */
TEST(invalid_bytes_are_counted_across_the_pieces_of_an_input)
{
    enum { N = 4000 };
    static const char *const parts[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}, *const bad[] = {"\xFF", "\x80", "\xE2\x82", "\xF0\x9F\x98", "\xC3"};
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        char text[N + 8];
        size_t n = 0;
        for (uint64_t i = 0; n < N; i++) {
            const char *add = n > 1500 && test_rand_int(seed, 2 * i, 0, 499) == 0 ? bad[test_rand_int(seed, 2 * i + 1, 0, 4)] : parts[test_rand_int(seed, 2 * i + 1, 0, 3)];
            memcpy(text + n, add, strlen(add));
            n += strlen(add);
        }
        orth_content whole = {0}, pieces = {0};
        CHECK_OK(ctx, orth_content_check(ctx, "whole", &whole, text, n, false));
        for (size_t at = 0, k, i = 0; at < n; at += k, i++) {
            k = (size_t)test_rand_int(seed + 1000, i, 1, seed % 2 ? 5 : 900);
            k = ORTH_MIN(k, n - at);
            CHECK_OK(ctx, orth_content_check(ctx, "pieces", &pieces, text + at, k, at + k < n));
        }
        assert_int_equal(whole.num_bad, pieces.num_bad);
        assert_int_equal(whole.first_bad, pieces.first_bad);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cutting_a_file_into_pieces_does_not_change_its_tokens),
        cmocka_unit_test(a_whole_file_is_in_the_data_set_to_the_byte_and_ends_where_a_piece_is_held_out),
        cmocka_unit_test(folders_give_their_files_in_the_order_of_their_paths),
        cmocka_unit_test(tokenizer_train_reads_jsonl_as_data_prepare_does),
        cmocka_unit_test(jsonl_under_another_name_is_never_read_as_text),
        cmocka_unit_test(a_run_on_jsonl_is_scored_on_plain_text),
        cmocka_unit_test(what_is_no_text_is_found_far_into_a_file),
        cmocka_unit_test(bytes_that_are_not_utf8_are_counted_once_for_all_inputs),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_the_text),
        cmocka_unit_test(every_way_in_gives_the_same_shards),
        cmocka_unit_test(a_separator_has_escapes_and_is_told_of_where_it_occurs_nowhere),
        cmocka_unit_test(any_number_of_files_fits_a_command_line),
        cmocka_unit_test(a_file_of_spaces_is_encoded_and_is_no_document_of_a_training_set),
        cmocka_unit_test(invalid_bytes_are_counted_across_the_pieces_of_an_input),
        cmocka_unit_test(epochs_are_steps_that_plan_inspect_and_run_yaml_tell),
        cmocka_unit_test(days_and_cost_of_epochs_are_those_of_their_steps_and_what_is_not_known_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
