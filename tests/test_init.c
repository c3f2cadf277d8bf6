/* test_init.c -- `orthant init`: run files that fit the data and train as they are. */
#include "run_case.h"

#include <string.h>

#include "config/config.h"

/* The run file trains for a few steps of its own batch, and what it printed is in r->out. */
static void trains(run_case *r, const char *run_file)
{
    RUN(r, 0, "done: step 2", "train %s train.epochs=0 train.steps=2", run_file);
}

static void has(run_case *r, const char *file, const char *text)
{
    char *all = run_read(r, file, NULL);
    if (!strstr(all, text))
        fail_msg("%s has no \"%s\":\n%s", file, text, all);
    free(all);
}

TEST(its_run_files_train_on_text_jsonl_and_shards)
{
    run_case *r = run_begin();
    RUN(r, 0, "t.yaml: for 1 file of text with ", "init text.txt --out=t.yaml");
    has(r, "t.yaml", "  path: [text.txt]\n");
    has(r, "t.yaml", "  dir: runs/t\n");
    trains(r, "t.yaml");

    char lines[64 * 64];
    size_t n = 0;
    for (int i = 0; i < 64; i++)
        n += (size_t)sprintf(lines + n, "{\"content\": \"the water was in the river\"}\n");
    run_write(r, "lines.jsonl", lines, n);
    RUN(r, 5, "it has 'content'", "init lines.jsonl --out=j.yaml");
    assert_false(run_has(r, "j.yaml"));
    RUN(r, 0, "1 file of JSONL", "init lines.jsonl --out=j.yaml data.jsonl_field=content");
    has(r, "j.yaml", "  jsonl_field: content\n");
    has(r, "j.yaml", "  doc_mask: true\n");
    has(r, "j.yaml", "  valid_fraction: 0.1\n");
    trains(r, "j.yaml");

    /* The third example of `orthant init --help`: a folder of text beside JSONL. Each path is prepared by itself, the field is for all. */
    RUN(r, 0, "text and JSONL", "init text.txt lines.jsonl --out=m.yaml data.jsonl_field=content");
    trains(r, "m.yaml");
    RUN(r, 2, "field 'content' of JSONL is asked for", "train m.yaml data.path=[text.txt,text.txt] checkpoint.dir=no");

    RUN(r, 0, "1 prepared data set", "init shards --out=s.yaml");
    trains(r, "s.yaml");
    run_end(r);
}

/* As words of a shell: on standard output, and in the comments of the file, which are not wrapped within one. */
TEST(its_commands_can_be_pasted_whatever_the_name)
{
    static const char *const words[] = {"'my run #1.yaml'", "'it'\\''s $HOME (2) and a name that is far too long for a line of a run file, with "
                                        "spaces.yaml'", "a/plain_name-1.yaml"};
    static const char script[] = "eval \"$1 $(sed -n 's/^#   orthant plan /plan /p' \"$2\")\"";
    run_case *r = run_begin();
    char want[512];
    run_write(r, "paste.sh", script, strlen(script));
    RUN(r, 0, "", "help >/dev/null; mkdir a");
    for (int i = 0; i < ORTH_COUNT(words); i++) {
        snprintf(want, sizeof want, "next:  orthant plan %s\n       orthant train %s\n", words[i], words[i]);
        RUN(r, 0, want, "init text.txt --out=%s", words[i]);
        RUN(r, 0, "parameters", "help >/dev/null; sh paste.sh %s %s", ORTH_BINARY, words[i]);
    }
    run_end(r);
}

/* Its comments and the run folder's name are those of a file that can be read again. */
TEST(any_name_is_one_for_a_run_file)
{
    static const char *const names[] = {"a\001b\nc.yaml", "q\"u: #x.yaml", ".yaml", "\303\251\303\251", "x\303\251\303\251\303\251\303\251\303\251\303\251\303\251"
                                        "\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251.yaml"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(names); i++) {
        RUN(r, 0, "next:", "init text.txt --out='%s'", names[i]);
        RUN(r, 0, "parameters", "plan './%s'", names[i]);
    }
    RUN(r, 2, "must be UTF-8", "init text.txt --out='\377.yaml'");
    run_end(r);
}

TEST(a_key_that_is_given_stays_and_the_others_follow_it)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "init text.txt --out=p.yaml model.preset=gpt2-tiny model.vocab=300 data.tokenizer=bytes train.steps=7 parallel.dp=2");
    has(r, "p.yaml", "  preset: gpt2-tiny\n");
    has(r, "p.yaml", "  steps: 7\n");
    has(r, "p.yaml", "  dp: 2\n");
    char *all = run_read(r, "p.yaml", NULL);
    assert_null(strstr(all, "  layers: "));
    assert_null(strstr(all, "  epochs: "));
    free(all);
    RUN(r, 0, "done: step 7", "train p.yaml");
    run_end(r);
}

/* A rule between two keys is no reason to refuse the one that is given: the other one is chosen. */
TEST(any_single_key_is_followed)
{
    static const struct { const char *key, *chosen; } cases[] = {
        {"model.hidden=64", "  heads: 1\n"}, {"model.hidden=320", "  heads: 5\n"}, {"model.layers=2", "  hidden: 128\n"},
        {"model.heads=3", "  hidden: 132\n"}, {"model.kv_heads=2", "  heads: 2\n"}, {"model.head_dim=16", "  heads: 8\n"},
        {"model.hidden=64 model.kv_heads=4", "  heads: 4\n"}, {"parallel.tp=4", "  heads: 4\n"}, {"parallel.pp=6", "  layers: 6\n"}, {"train.micro_batch=16", "  global_batch: 16\n"},
        {"train.micro_batch=3 parallel.dp=2", "  global_batch: 6\n"}, {"train.global_batch=6", "  micro_batch: 2\n"}, {"model.max_seq=64", "  seq_len: 64\n"},
        {"model.max_seq=17", "  seq_len: 16\n"}, {"data.seq_len=2000 data.tokenizer=bytes", "  seq_len: 2000\n"},
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char file[32];
        snprintf(file, sizeof file, "key%d.yaml", i);
        RUN(r, 0, "next:", "init text.txt --out=%s %s", file, cases[i].key);
        has(r, file, cases[i].chosen);
        RUN(r, 0, "parameters", "plan %s", file);
    }
    trains(r, "key0.yaml");
    trains(r, "key3.yaml");
    trains(r, "key9.yaml");
    /* Two that are given may break a rule; and what is chosen is no reason for words. */
    RUN(r, 2, "data.seq_len=128 exceeds model.max_seq=64", "init text.txt --out=no.yaml model.max_seq=64 data.seq_len=128");
    RUN(r, 2, "train.micro_batch=4 does not divide train.global_batch=6", "init text.txt --out=no.yaml train.micro_batch=4 train.global_batch=6");
    RUN(r, 2, "must be", "init text.txt --out=no.yaml model.hidden=0");
    assert_false(run_has(r, "no.yaml"));
    run_end(r);
}

/* What was counted is known: the run file would be refused by train only. */
TEST(what_train_would_refuse_of_the_data_is_refused)
{
    run_case *r = run_begin();
    RUN(r, 2, "command line: model.vocab=100 is less than the 257 tokens that the tokenizer has at least", "init text.txt --out=no.yaml model.vocab=100");
    RUN(r, 2, "command line: model.vocab=256 is less than the 257 tokens that the tokenizer has", "init text.txt --out=no.yaml model.vocab=256 data.tokenizer=bytes");
    RUN(r, 2, "command line: model.vocab=299 is less than the 300 tokens that the tokenizer has: model.vocab=300 has room for them", "init shards --out=no.yaml model.vocab=299");
    RUN(r, 2, "command line: model.vocab=256 (of model.preset=gpt2-tiny) is less than the 257 tokens", "init text.txt --out=no.yaml model.preset=gpt2-tiny");
    RUN(r, 2, "command line: data.seq_len=1000000: a sequence takes 1000001 tokens", "init text.txt --out=no.yaml data.seq_len=1000000");
    RUN(r, 2, "command line: data.seq_len=1000000: a sequence takes 1000001 tokens", "init shards --out=no.yaml data.seq_len=1000000");
    /* A sequence lies in one path. */
    run_write(r, "short.txt", "the water was in the river, and the river was in the water. the stone was on the mountain, and the water was not. "
              "there was water in the river, and the stone was in the river. each of them said that they have water for the river.\n", 230);
    RUN(r, 2, "one of the paths has only about ", "init text.txt short.txt --out=no.yaml data.seq_len=128");
    assert_false(run_has(r, "no.yaml"));
    RUN(r, 0, "next:", "init text.txt short.txt --out=two.yaml data.valid_fraction=0");
    has(r, "two.yaml", "  seq_len: 32\n");
    trains(r, "two.yaml");
    RUN(r, 0, "next:", "init text.txt --out=v.yaml model.vocab=257");
    trains(r, "v.yaml");
    run_end(r);
}

TEST(more_text_gets_a_larger_model)
{
    run_case *r = run_begin();
    const size_t large = 72 << 20; /* more than is looked at: the rest is estimated */
    char *text = malloc(large);
    for (size_t i = 0; i < large; i++)
        text[i] = "the water was in the river\n"[i % 27];
    run_write(r, "large.txt", text, large);
    free(text);
    RUN(r, 0, "75.5 million bytes", "init large.txt --out=large.yaml data.tokenizer=bytes");
    RUN(r, 0, "", "init text.txt --out=small.yaml data.tokenizer=bytes");
    has(r, "large.yaml", "  layers: 8\n");
    has(r, "small.yaml", "  layers: 4\n");
    run_end(r);
}

/* The comment above a key is its row of options.def; a file that is there stays. */
TEST(each_key_is_explained_and_no_file_is_overwritten)
{
    run_case *r = run_begin();
    RUN(r, 2, "init: run.yaml exists already and is left as it is", "init text.txt"); /* run_begin's */
    has(r, "run.yaml", "gpt2-tiny");
    RUN(r, 0, "", "init text.txt --out=k.yaml");
    orth_config cfg;
    char path[256];
    snprintf(path, sizeof path, "%s/k.yaml", r->dir);
    RUN(r, 2, "which data?", "init --out=no.yaml");
    RUN(r, 2, "can be read once", "init - --out=no.yaml");
    assert_false(run_has(r, "no.yaml"));
    CHECK_OK(r->ctx, orth_config_init(r->ctx, &cfg));
    CHECK_OK(r->ctx, orth_config_load(r->ctx, &cfg, path));
    char *all = run_read(r, "k.yaml", NULL);
    int keys = 0;
    for (int id = 0; id < ORTH_NUM_OPTIONS; id++) {
        const orth_option *o = orth_option_get((orth_option_id)id);
        char first[32];
        snprintf(first, sizeof first, "  # %.20s", o->help);
        if (cfg.place[id] && !strstr(all, first))
            fail_msg("%s: \"%s\" is not in k.yaml", o->path, first);
        keys += cfg.place[id] != NULL;
    }
    assert_true(keys > 12);
    free(all);
    orth_config_release(r->ctx, &cfg);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_run_files_train_on_text_jsonl_and_shards),
        cmocka_unit_test(its_commands_can_be_pasted_whatever_the_name),
        cmocka_unit_test(any_name_is_one_for_a_run_file),
        cmocka_unit_test(a_key_that_is_given_stays_and_the_others_follow_it),
        cmocka_unit_test(any_single_key_is_followed),
        cmocka_unit_test(what_train_would_refuse_of_the_data_is_refused),
        cmocka_unit_test(more_text_gets_a_larger_model),
        cmocka_unit_test(each_key_is_explained_and_no_file_is_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
