/* test_special_tokens.c -- the tokens that end, begin and pad a text: found in a folder, kept, written, obeyed; and what
 * the verbs say of weights that are not finite. */
#include "run_case.h"

#include <math.h>

#include "ckpt/folder.h"
#include "ckpt/hf.h"
#include "data/corpus.h"

/* "<s>" 256, "</s>" 257, "<end>" 258, "<turn>" 259, "<pad>" 260 behind the bytes: a name that guessing would take, and not. */
static char *tokenizer_json(run_case *r)
{
    static const char *const names[] = {"<s>", "</s>", "<end>", "<turn>", "<pad>"};
    orth_tokenizer *bytes;
    orth_bytes text = {0};
    CHECK_OK(r->ctx, orth_tokenizer_bytes(r->ctx, &bytes));
    CHECK_OK(r->ctx, orth_tokenizer_write(r->ctx, bytes, &text));
    char *out = calloc(1, text.num + 4096), *at = strstr(text.v, "\"added_tokens\"");
    assert_non_null(at);
    const char *begin = strchr(at, '['), *end = strchr(begin, ']');
    size_t n = (size_t)(begin - text.v) + 1;
    memcpy(out, text.v, n);
    for (int i = 0; i < ORTH_COUNT(names); i++)
        n += (size_t)sprintf(out + n, "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                             "\"rstrip\": false, \"normalized\": false, \"special\": true}", i ? "," : "", 256 + i, names[i]);
    memcpy(out + n, end, text.num - (size_t)(end - text.v));
    char *old = strstr(out, "\"<|endoftext|>\": 256"); /* the vocabulary need not have it */
    if (old)
        memcpy(old, "\"<s>\": 256          ", 20);
    orth_bytes_free(r->ctx, &text);
    orth_tokenizer_free(r->ctx, bytes);
    return out;
}

typedef struct {
    const char *file, *text;
} config_file;

static void make_folder(run_case *r, const config_file *files, int n)
{
    char name[128], *text = tokenizer_json(r), path[300];
    snprintf(path, sizeof path, "%s/hf", r->dir);
    if (orth_path_exists(path))
        CHECK_OK(r->ctx, orth_path_remove(r->ctx, path));
    CHECK_OK(r->ctx, orth_path_make_dirs(r->ctx, path));
    run_write(r, "hf/tokenizer.json", text, strlen(text));
    free(text);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "hf/%s", files[i].file);
        run_write(r, name, files[i].text, strlen(files[i].text));
    }
}

static void ignore(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)rank, (void)level, (void)component;
    snprintf(user, 512, "%s", text);
}

TEST(special_tokens_are_read_from_the_files_beside_tokenizer_json)
{
    static const struct {
        config_file files[4];
        orth_special_tokens want;
    } cases[] = {
        {{{NULL, NULL}}, {1, {257}, -1, -1}}, /* nothing is named: the well-known </s> */
        {{{"config.json", "{\"eos_token_id\": 258, \"bos_token_id\": 256}"}}, {1, {258}, 256, -1}},
        {{{"generation_config.json", "{\"eos_token_id\": [258, 259], \"pad_token_id\": 260}"}}, {2, {258, 259}, -1, 260}},
        {{{"tokenizer_config.json", "{\"eos_token\": \"<end>\", \"model_max_length\": 1000000000000000019884624838656}"}},
         {1, {258}, -1, -1}},
        {{{"special_tokens_map.json", "{\"eos_token\": {\"content\": \"<turn>\", \"lstrip\": false}, \"bos_token\": \"<s>\"}"}},
         {1, {259}, 256, -1}},
        /* As of a chat model: documents end with what the tokenizer ends them with, sampling stops at all. */
        {{{"tokenizer_config.json", "{\"eos_token\": \"<turn>\", \"pad_token\": \"<turn>\", \"bos_token\": null}"},
          {"config.json", "{\"eos_token_id\": 258, \"bos_token_id\": 256, \"pad_token_id\": null}"},
          {"generation_config.json", "{\"eos_token_id\": [259, 258, 257]}"}},
         {3, {259, 258, 257}, 256, -1}},
        {{{"config.json", "{\"eos_token_id\": 258, \"pad_token_id\": 258}"}}, {1, {258}, -1, 258}},
        {{{"config.json", "{\"eos_token_id\": 258, \"bos_token_id\": -2, \"pad_token_id\": -1}"}}, {1, {258}, -1, -1}},
        {{{"config.json", "{\"eos_token_id\": -1, \"pad_token_id\": -1}"},
          {"generation_config.json", "{\"eos_token_id\": [-1, 258], \"pad_token_id\": 260}"}}, {1, {258}, -1, 260}},
        {{{"config.json", "{\"eos_token_id\": [2000, 258], \"bos_token_id\": 5000}"}}, {1, {258}, -1, -1}},
    };
    run_case *r = run_begin();
    char path[300], warning[512] = "";
    r->ctx->log.write = ignore, r->ctx->log.user = warning;
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        int n = 0;
        while (n < 4 && cases[i].files[n].file)
            n++;
        make_folder(r, cases[i].files, n);
        for (int by_file = 0; by_file < 2; by_file++) {
            orth_tokenizer *tok;
            snprintf(path, sizeof path, "%s/hf%s", r->dir, by_file ? "/tokenizer.json" : "");
            CHECK_OK(r->ctx, orth_tokenizer_load(r->ctx, &tok, path));
            const orth_special_tokens *got = orth_tokenizer_special(tok), *want = &cases[i].want;
            if (memcmp(got, want, sizeof *got) != 0)
                fail_msg("case %d: %d ends (%d, %d, %d), begin %d, pad %d", i, got->num_eos, got->eos[0], got->eos[1],
                         got->eos[2], got->bos, got->pad);
            orth_tokenizer_free(r->ctx, tok);
        }
    }
    assert_non_null(strstr(warning, "config.json: bos_token_id=5000 is no token of the tokenizer: left out"));
    run_end(r);
}

TEST(files_that_name_no_tokens_are_refused)
{
    static const struct {
        config_file file;
        const char *message;
    } cases[] = {
        {{"config.json", "{\"eos_token_id\": \"x\"}"}, "config.json: eos_token_id is not a token's id"},
        {{"config.json", "{\"eos_token_id\": [1.5]}"}, "config.json: eos_token_id is not a token's id"},
        {{"config.json", "{\"bos_token_id\": -1.5}"}, "config.json: bos_token_id is not a token's id"},
        {{"dataset.json", "{\"pad_token\": -1}"}, "dataset.json: pad_token is not a token's id"},
        {{"tokenizer_config.json", "{\"eos_token\": {}}"}, "tokenizer_config.json: eos_token is not a token, or an object"},
        {{"special_tokens_map.json", "{\"pad_token\": 3}"}, "special_tokens_map.json: pad_token is not a token, or an object"},
        {{"generation_config.json", "[]"}, "generation_config.json: its JSON is not an object"},
        {{"generation_config.json", "{"}, "generation_config.json:1:"},
    };
    run_case *r = run_begin();
    char path[300];
    snprintf(path, sizeof path, "%s/hf", r->dir);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_tokenizer *tok;
        make_folder(r, &cases[i].file, 1);
        CHECK_FAILS(r->ctx, ORTH_ERR_DATA, cases[i].message, orth_tokenizer_load(r->ctx, &tok, path));
    }
    run_end(r);
}

TEST(a_list_of_ends_keeps_each_once_and_no_more_than_it_has_room_for)
{
    orth_special_tokens s = ORTH_NO_SPECIAL_TOKENS;
    assert_int_equal(orth_special_tokens_eos(&s), -1);
    for (int32_t i = 0; i < 40; i++)
        orth_special_tokens_add_eos(&s, i / 2, false);
    assert_int_equal(s.num_eos, ORTH_MAX_EOS);
    orth_special_tokens_add_eos(&s, 5, true);
    assert_true(s.eos[0] == 5 && s.eos[1] == 0 && s.eos[5] == 4 && s.eos[6] == 6);
    orth_special_tokens_add_eos(&s, 99, true);
    assert_true(s.eos[0] == 99 && s.eos[1] == 5 && s.num_eos == ORTH_MAX_EOS);
    assert_true(orth_special_tokens_ends(&s, 14) && !orth_special_tokens_ends(&s, 15));
}

/* ---- in the program ---- */

static int32_t eot_of(run_case *r, const char *shards)
{
    char path[300];
    orth_dataset *d;
    snprintf(path, sizeof path, "%s/%s", r->dir, shards);
    CHECK_OK(r->ctx, orth_dataset_open(r->ctx, &d, path));
    const int32_t eot = d->eot_token;
    orth_dataset_close(r->ctx, d);
    return eot;
}

static void check_has(run_case *r, const char *file, const char *text)
{
    size_t n;
    char *all = run_read(r, file, &n);
    if (!strstr(all, text))
        fail_msg("%s does not have %s:\n%.2000s", file, text, all);
    if (n == 0 || all[n - 1] != '\n')
        fail_msg("%s does not end with a newline", file);
    free(all);
}

TEST(documents_end_with_the_token_that_is_named)
{
    static const config_file config = {"config.json", "{\"eos_token_id\": [258, 259], \"bos_token_id\": 256}"};
    run_case *r = run_begin();
    make_folder(r, &config, 1);
    RUN(r, 0, "tokens", "data prepare --tokenizer=hf --out=p1 text.txt");
    assert_int_equal(eot_of(r, "p1"), 258);
    RUN(r, 0, "tokens", "data prepare --tokenizer=hf/tokenizer.json --eos-token='<pad>' --out=p2 text.txt");
    assert_int_equal(eot_of(r, "p2"), 260);
    RUN(r, 0, "tokens", "data prepare data.tokenizer=hf data.eos_token='[<turn>, <end>]' --out=p3 text.txt");
    assert_int_equal(eot_of(r, "p3"), 259);
    RUN(r, 2, "the end-of-text token \"<no>\" is no token of the tokenizer",
        "data prepare --tokenizer=hf --eos-token='<no>' --out=p4 text.txt");
    RUN(r, 5, "its documents end with token 258, data.eos_token=<turn> is token 259",
        "train run.yaml data.path=p1 data.eos_token='<turn>' model.vocab=300 train.steps=1");
    RUN(r, 0, "saved", "train run.yaml data.path=p3 checkpoint.dir=b model.vocab=300 train.steps=1");
    RUN(r, 0, "end of text 259, 258; begin 256", "ckpt inspect b");
    RUN(r, 0, "saved", "train run.yaml data.path=text.txt data.tokenizer=hf data.eos_token='<end>' checkpoint.dir=c "
        "model.vocab=300 train.steps=1");
    RUN(r, 0, "end of text 258; begin 256", "ckpt inspect c");
    run_end(r);
}

/* A tokenizer of no well-known name, as `tokenizer train --eos` makes it, has one special token: that ends documents. */
TEST(the_only_special_token_ends_documents)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "tokenizer train --vocab-size=280 --eos='<fin>' --out=t.json text.txt");
    RUN(r, 0, "tokens", "data prepare --tokenizer=t.json --out=p text.txt");
    assert_int_equal(eot_of(r, "p"), 279);
    run_end(r);
}

TEST(checkpoints_and_exports_keep_the_special_tokens)
{
    static const config_file files[] = {
        {"config.json", "{\"eos_token_id\": 258, \"bos_token_id\": 256}"},
        {"generation_config.json", "{\"eos_token_id\": [258, 259]}"},
        {"tokenizer_config.json", "{\"pad_token\": \"<pad>\"}"},
    };
    run_case *r = run_begin();
    make_folder(r, files, ORTH_COUNT(files));
    RUN(r, 0, "saved", "train run.yaml data.path=text.txt data.tokenizer=hf model.vocab=300 train.steps=1");
    RUN(r, 0, "end of text 258, 259; begin 256; pad 260", "ckpt inspect a");
    check_has(r, "a/checkpoints/step-00000001/generation_config.json", "\"pad_token_id\": 260");
    check_has(r, "a/checkpoints/step-00000001/tokenizer_config.json", "\"eos_token\": \"<end>\"");
    RUN(r, 0, "parameters", "ckpt export a e1");
    RUN(r, 0, "parameters", "ckpt import e1 i");
    RUN(r, 0, "end of text 258, 259; begin 256; pad 260", "ckpt inspect i");
    RUN(r, 0, "parameters", "ckpt export i e2");
    static const char *const folders[] = {"e1", "e2"};
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/config.json", folders[i]);
        check_has(r, name, "\"bos_token_id\": 256,\n  \"eos_token_id\": [\n    258,\n    259\n  ],\n  \"pad_token_id\": 260");
        snprintf(name, sizeof name, "%s/generation_config.json", folders[i]);
        check_has(r, name, "\"eos_token_id\": [\n    258,\n    259\n  ]");
        snprintf(name, sizeof name, "%s/tokenizer_config.json", folders[i]);
        check_has(r, name, "\"bos_token\": \"<s>\",\n  \"eos_token\": \"<end>\",\n  \"pad_token\": \"<pad>\"");
    }
    run_end(r);
}

/* Transformers' apply_chat_template needs it; the later form of it is a file of its own. */
TEST(imports_and_exports_keep_the_chat_template)
{
    static const config_file files[] = {
        {"config.json", "{\"eos_token_id\": 258, \"bos_token_id\": 256}"},
        {"tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656, \"chat_template\": \"{{ a }}\\n\\u00e9\"}"},
    };
    static const char list[] = "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ b }}\"}]}", null[] = "{\"chat_template\": null}";
    run_case *r = run_begin();
    make_folder(r, files, ORTH_COUNT(files));
    RUN(r, 0, "saved", "train run.yaml data.path=text.txt data.tokenizer=hf model.vocab=300 train.steps=1");
    RUN(r, 0, "parameters", "ckpt export a e1");
    char *config = run_read(r, "e1/tokenizer_config.json", NULL);
    assert_null(strstr(config, "chat_template"));
    free(config);
    static const struct { const char *file, *text, *kept; } cases[] = {
        {"tokenizer_config.json", NULL, "\"chat_template\": \"{{ a }}\\n\303\251\"\n"},
        {"tokenizer_config.json", list, "\"chat_template\": [\n    {\n      \"name\": \"default\",\n      \"template\": \"{{ b }}\"\n    }\n  ]"},
        {"chat_template.jinja", "{{ \"c\" }}\n", "\"chat_template\": \"{{ \\\"c\\\" }}\\n\"\n"},
        {"tokenizer_config.json", null, "\"chat_template\": \"{{ \\\"c\\\" }}\\n\"\n"},
    };
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        const char *text = cases[i].text ? cases[i].text : files[1].text;
        char name[64];
        snprintf(name, sizeof name, "e1/%s", cases[i].file);
        run_write(r, name, text, strlen(text));
        RUN(r, 0, "parameters", "ckpt import e1 i%d", i);
        RUN(r, 0, "parameters", "ckpt export i%d x%d", i, i);
        snprintf(name, sizeof name, "x%d/tokenizer_config.json", i);
        check_has(r, name, cases[i].kept);
    }
    run_write(r, "e1/chat_template.jinja", "\xFF", 1);
    RUN(r, 5, "chat_template.jinja: a chat template must be UTF-8", "ckpt import e1 no");
    run_end(r);
}

/* What config.json alone says survives, too: no tokenizer, no bos, an end of text that pads. */
TEST(a_folder_without_a_tokenizer_keeps_its_ids)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 0, "parameters", "ckpt export a e1");
    check_has(r, "e1/tokenizer_config.json", "\"pad_token\": \"<|endoftext|>\"");
    check_has(r, "e1/config.json", "\"pad_token_id\": null");
    run_remove(r, "e1/tokenizer.json");
    run_remove(r, "e1/tokenizer_config.json");
    run_remove(r, "e1/generation_config.json");
    char *config = run_read(r, "e1/config.json", NULL), *at = strstr(config, "\"bos_token_id\"");
    assert_non_null(at);
    strcpy(at, "\"bos_token_id\": null, \"eos_token_id\": [7, 9], \"pad_token_id\": 7}");
    run_write(r, "e1/config.json", config, strlen(config));
    free(config);
    RUN(r, 0, "parameters", "ckpt import e1 i");
    RUN(r, 0, "end of text 7, 9; pad 7", "ckpt inspect i");
    RUN(r, 0, "parameters", "ckpt export i e2");
    check_has(r, "e2/config.json", "\"bos_token_id\": null,\n  \"eos_token_id\": [\n    7,\n    9\n  ],\n  \"pad_token_id\": 7");
    run_end(r);
}

/* As of Qwen2: the tokenizer by itself would begin texts with what ends them, the files beside it say that nothing does. */
TEST(null_in_a_file_is_not_replaced_by_a_guess)
{
    static const struct { const char *bos, *inspected, *exported; } cases[] = {
        {"", "end of text 299; begin 299", "\"bos_token_id\": 299"},
        {"\"bos_token_id\": null, ", "end of text 299\n", "\"bos_token_id\": null"},
        {"\"bos_token_id\": -1, ", "end of text 299\n", "\"bos_token_id\": null"},
    };
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 0, "parameters", "ckpt export a e1");
    run_remove(r, "e1/tokenizer_config.json");
    run_remove(r, "e1/generation_config.json");
    char *config = run_read(r, "e1/config.json", NULL), *at = strstr(config, "\"bos_token_id\"");
    assert_non_null(at);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        sprintf(at, "%s\"eos_token_id\": null}", cases[i].bos);
        run_write(r, "e1/config.json", config, strlen(config));
        RUN(r, 0, "parameters", "ckpt import e1 i%d", i);
        RUN(r, 0, cases[i].inspected, "ckpt inspect i%d", i);
        RUN(r, 0, "parameters", "ckpt export i%d x%d", i, i);
        char name[32];
        snprintf(name, sizeof name, "x%d/config.json", i);
        check_has(r, name, cases[i].exported);
    }
    free(config);
    run_end(r);
}

/* A tokenizer that Orthant does not read is no reason to refuse the weights beside it. */
TEST(an_import_copies_a_tokenizer_that_cannot_be_read)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 0, "parameters", "ckpt export a e1");
    run_write(r, "e1/tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}", 30);
    RUN(r, 0, "Orthant cannot use it", "ckpt import e1 i");
    RUN(r, 0, "end of text 299", "ckpt inspect i");
    assert_true(run_has(r, "i/step-00000000/tokenizer.json") && !run_has(r, "i/step-00000000/tokenizer_config.json"));
    run_write(r, "e1/generation_config.json", "{\"eos_token_id\": {}}\n", 21);
    RUN(r, 5, "generation_config.json: eos_token_id is not a token's id", "ckpt import e1 j");
    assert_false(run_has(r, "j"));
    run_end(r);
}

/* The tokens of one sample, the same each time. */
static int sample(run_case *r, const char *options, int32_t ids[64])
{
    int n = 0;
    RUN(r, 0, "", "generate %s --temperature=1 --top-k=0 --seed=4 --logprobs --tokens=30 --prompt='the river'", options);
    for (char *line = r->out; line && *line && n < 64; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strchr(line, '\t') && strstr(line, "0x"))
            ids[n++] = atoi(line);
    return n;
}

TEST(sampling_stops_at_each_end_of_text)
{
    run_case *r = run_begin();
    int32_t ids[64], other[64];
    char edit[256], path[300], options[400];
    RUN(r, 0, "saved", "train run.yaml train.steps=3");
    RUN(r, 0, "parameters", "ckpt export a e");
    const int n = sample(r, "e", ids);
    assert_true(n > 5);
    int last = n - 1; /* the first of its kind, and not the first of all */
    for (int k = 1; k < n && last == n - 1; k++) {
        bool seen = false;
        for (int j = 0; j < k; j++)
            seen = seen || ids[j] == ids[k];
        if (!seen)
            last = k;
    }
    snprintf(edit, sizeof edit, "{\"eos_token_id\": [299, %d]}\n", (int)ids[last]);
    run_write(r, "e/generation_config.json", edit, strlen(edit));
    assert_int_equal(sample(r, "e", other), last);
    assert_memory_equal(ids, other, (size_t)last * sizeof *ids);
    RUN(r, 0, "parameters", "ckpt import e i");
    assert_int_equal(sample(r, "i", other), last);
    /* Named on the command line, for weights of which nobody said so. */
    orth_tokenizer *tok;
    size_t num;
    snprintf(path, sizeof path, "%s/e", r->dir);
    CHECK_OK(r->ctx, orth_tokenizer_load(r->ctx, &tok, path));
    const char *content = orth_tokenizer_content(tok, ids[last], &num);
    snprintf(options, sizeof options, "a data.eos_token='%.*s'", (int)num, content);
    orth_tokenizer_free(r->ctx, tok);
    assert_int_equal(sample(r, options, other), last);
    RUN(r, 2, "is no token of the tokenizer", "generate a data.eos_token=nonsense");
    run_end(r);
}

/* ---- weights that are not finite ---- */

TEST(weights_that_are_not_finite_are_told_of)
{
    static const float bad[] = {NAN, INFINITY};
    run_case *r = run_begin();
    size_t n;
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 0, "parameters", "ckpt export a e");
    char *bytes = run_read(r, "e/model.safetensors", &n);
    for (int i = 0; i < 2; i++) {
        memcpy(bytes + n - 4, &bad[i], 4); /* of the last tensor: all scores depend on it */
        run_write(r, "e/model.safetensors", bytes, n);
        RUN(r, 6, "\"loss\": null, \"loss_hex\": null, \"perplexity\": null, \"bits_per_byte\": null",
            "eval e --text=text.txt --json");
        RUN(r, 6, "the loss is NaN over", "eval e --text=text.txt");
        assert_null(strstr(r->out, "perplexity"));
        RUN(r, 6, "the model's score of token", "generate e --prompt=the");
        const char *message = i ? "is infinite: weights must be finite" : "is NaN: weights must be finite";
        RUN(r, 5, message, "ckpt import e i");
        RUN(r, 5, message, "ckpt verify e");
        assert_false(run_has(r, "i"));
    }
    free(bytes);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_tokens_are_read_from_the_files_beside_tokenizer_json),
        cmocka_unit_test(files_that_name_no_tokens_are_refused),
        cmocka_unit_test(a_list_of_ends_keeps_each_once_and_no_more_than_it_has_room_for),
        cmocka_unit_test(documents_end_with_the_token_that_is_named),
        cmocka_unit_test(the_only_special_token_ends_documents),
        cmocka_unit_test(checkpoints_and_exports_keep_the_special_tokens),
        cmocka_unit_test(imports_and_exports_keep_the_chat_template),
        cmocka_unit_test(a_folder_without_a_tokenizer_keeps_its_ids),
        cmocka_unit_test(null_in_a_file_is_not_replaced_by_a_guess),
        cmocka_unit_test(an_import_copies_a_tokenizer_that_cannot_be_read),
        cmocka_unit_test(sampling_stops_at_each_end_of_text),
        cmocka_unit_test(weights_that_are_not_finite_are_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
