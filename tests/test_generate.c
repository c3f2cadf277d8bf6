/* test_generate.c -- sampling: its log-probabilities are those of eval bit for bit, and what is chosen. */
#include <jansson.h>
#include <math.h>

#include "data/data.h"
#include "run_case.h"
#include "train/eval.h"
#include "tools/generate.h"
#include "tools/model_file.h"

#define T 100         /* longer than what a generator takes at once */
#define SEQUENCES 3

/* What eval says of the held-out text, and the text itself. */
typedef struct {
    int64_t n;
    int32_t tokens[SEQUENCES][T], targets[SEQUENCES][T];
    float weights[SEQUENCES][T], logprobs[SEQUENCES][T];
} scored;

static void note(void *user, int64_t sequence, int64_t pos, int32_t target, float weight, float logprob)
{
    scored *s = user;
    assert_int_equal(target, s->targets[sequence][pos]);
    s->weights[sequence][pos] = weight;
    s->logprobs[sequence][pos] = logprob;
    s->n++;
}

static scored *score_text(run_case *r, const orth_model_file *f, const char *shards)
{
    orth_dataset *d;
    orth_sampler *sampler;
    orth_evaluator e;
    orth_eval_result result;
    CHECK_OK(r->ctx, orth_dataset_open(r->ctx, &d, shards));
    const orth_corpus *corpus = &d->valid;
    orth_sampler_options o = {.corpora = &corpus, .num_corpora = 1, .seq_len = T, .natural = true};
    CHECK_OK(r->ctx, orth_sampler_create(r->ctx, &sampler, &o));
    scored *s = calloc(1, sizeof *s);
    for (int i = 0; i < SEQUENCES; i++) {
        const orth_sample sample = {.tokens = s->tokens[i], .targets = s->targets[i]};
        const orth_sample_rows rows = {.parts = 1, .row_begin = 0, .row_end = T};
        CHECK_OK(r->ctx, orth_sampler_fill(r->ctx, sampler, &sample, i, &rows));
    }
    CHECK_OK(r->ctx, orth_evaluator_create(r->ctx, &e, &f->run, &f->model));
    CHECK_OK(r->ctx, orth_model_file_fill(r->ctx, f, &e.compiled, e.executor));
    CHECK_OK(r->ctx, orth_evaluator_run(r->ctx, &e, sampler, 0, SEQUENCES, NULL, note, s, &result));
    assert_int_equal(s->n, SEQUENCES * T);
    orth_evaluator_destroy(r->ctx, &e);
    orth_sampler_destroy(r->ctx, sampler);
    orth_dataset_close(r->ctx, d);
    return s;
}

static orth_generator *generator(run_case *r, const orth_model_file *f, int64_t max_tokens)
{
    orth_generator *g;
    CHECK_OK(r->ctx, orth_generator_create(r->ctx, &g, f, max_tokens));
    return g;
}

/* Feeds a sequence in pieces of `piece` tokens; after each, the next target must score as in eval. */
static void check_pieces(run_case *r, const orth_model_file *f, const scored *s, int sequence, int64_t piece,
                         const char *what)
{
    orth_generator *g = generator(r, f, T);
    for (int64_t at = 0; at < T; at += piece) {
        int64_t n = ORTH_MIN(piece, T - at), last = at + n - 1;
        float logprob;
        CHECK_OK(r->ctx, orth_generator_feed(r->ctx, g, s->tokens[sequence] + at, n));
        CHECK_OK(r->ctx, orth_generator_score(r->ctx, g, s->targets[sequence][last], &logprob));
        float want = s->logprobs[sequence][last];
        if (s->weights[sequence][last] > 0 && memcmp(&logprob, &want, 4) != 0)
            fail_msg("%s, pieces of %d, position %d: %a, eval has %a", what, (int)piece, (int)last,
                     (double)logprob, (double)want);
    }
    orth_generator_destroy(r->ctx, g);
}

static const char *const flavours[] = {
    "", "precision.compute=bf16", "numerics.parts=1", "precision.compute=bf16 numerics.parts=1",
    "run.backend=ref", "model.attention=full", "model.attention=full precision.compute=bf16",
    "precision.fp32_products=bf16x6",
};

TEST(log_probabilities_are_those_of_eval)
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny"};
    static const int64_t pieces[] = {1, 3, 64, 65, T};
    run_case *r = run_begin();
    char shards[256], run[256];
    snprintf(shards, sizeof shards, "%s/shards", r->dir);
    for (int p = 0; p < 3; p++) {
        for (int k = 0; k < ORTH_COUNT(flavours); k++) {
            orth_model_file f;
            if (!run_can(flavours[k]))
                continue;
            RUN(r, 0, "saved",
                "train run.yaml model.preset=%s data.seq_len=%d train.steps=2 train.global_batch=2 checkpoint.dir=m%d-%d %s",
                presets[p], T, p, k, flavours[k]);
            snprintf(run, sizeof run, "%s/m%d-%d", r->dir, p, k);
            CHECK_OK(r->ctx, orth_model_file_open(r->ctx, &f, run));
            CHECK_OK(r->ctx, orth_setup_products(r->ctx, &f.run));
            scored *s = score_text(r, &f, shards);
            for (int i = 0; i < ORTH_COUNT(pieces); i++)
                check_pieces(r, &f, s, i % SEQUENCES, pieces[i], r->out);
            free(s);
            orth_model_file_close(r->ctx, &f);
        }
    }
    run_end(r);
}

/* ---- choosing ---- */

#define VOCAB RUN_VOCAB

static void all_scores(run_case *r, orth_generator *g, double p[VOCAB])
{
    for (int32_t t = 0; t < VOCAB; t++) {
        float logprob;
        CHECK_OK(r->ctx, orth_generator_score(r->ctx, g, t, &logprob));
        p[t] = exp((double)logprob);
    }
}

static int rank_of(const double p[VOCAB], int32_t token)
{
    int rank = 0;
    for (int32_t t = 0; t < VOCAB; t++)
        rank += p[t] > p[token];
    return rank;
}

TEST(choices_obey_temperature_top_k_top_p_and_seed)
{
    run_case *r = run_begin();
    orth_model_file f;
    char run[256];
    int32_t token, again;
    float logprob;
    double p[VOCAB], sum = 0;
    RUN(r, 0, "saved", "train run.yaml train.steps=60 optimizer.lr=5e-3");
    snprintf(run, sizeof run, "%s/a", r->dir);
    CHECK_OK(r->ctx, orth_model_file_open(r->ctx, &f, run));
    orth_generator *g = generator(r, &f, 20);
    orth_sample_options o = {.temperature = 1, .top_p = 1, .seed = 1};
    CHECK_FAILS(r->ctx, ORTH_ERR_ARG, "an empty prompt",
                orth_generator_sample(r->ctx, g, &o, &token, &logprob));
    CHECK_OK(r->ctx, orth_generator_feed(r->ctx, g, (const int32_t[]){70, 75, 80}, 3));
    CHECK_FAILS(r->ctx, ORTH_ERR_ARG, "not in the model's vocabulary",
                orth_generator_feed(r->ctx, g, (const int32_t[]){VOCAB}, 1));
    CHECK_FAILS(r->ctx, ORTH_ERR_ARG, "room for 20",
                orth_generator_feed(r->ctx, g, (const int32_t[18]){1}, 18));
    all_scores(r, g, p);
    for (int i = 0; i < VOCAB; i++)
        sum += p[i];
    assert_true(fabs(sum - 1) < 1e-5);

    o.temperature = 0;
    CHECK_OK(r->ctx, orth_generator_sample(r->ctx, g, &o, &token, &logprob));
    assert_int_equal(rank_of(p, token), 0);
    assert_true(exp((double)logprob) == p[token]);
    o = (orth_sample_options){.temperature = 1, .top_k = 1, .top_p = 1, .seed = 7};
    CHECK_OK(r->ctx, orth_generator_sample(r->ctx, g, &o, &again, &logprob));
    assert_int_equal(again, token);
    o = (orth_sample_options){.temperature = 1, .top_p = 1e-6, .seed = 7};
    CHECK_OK(r->ctx, orth_generator_sample(r->ctx, g, &o, &again, &logprob));
    assert_int_equal(again, token);

    /* Many seeds: never outside of the k likeliest, nor of the nucleus; frequencies as the model has them. */
    int hits[VOCAB] = {0}, draws = 4000;
    double left_out = 0;
    for (int t = 0; t < VOCAB; t++)
        if (rank_of(p, t) >= 5)
            left_out += p[t];
    for (int i = 0; i < draws; i++) {
        o = (orth_sample_options){.temperature = 1, .top_k = 5, .top_p = 1, .seed = (uint64_t)i};
        CHECK_OK(r->ctx, orth_generator_sample(r->ctx, g, &o, &token, &logprob));
        assert_true(rank_of(p, token) < 5);
        hits[token]++;
        CHECK_OK(r->ctx, orth_generator_sample(r->ctx, g, &o, &again, &logprob));
        assert_int_equal(again, token);
    }
    for (int t = 0; t < VOCAB; t++) {
        double want = rank_of(p, t) < 5 ? p[t] / (1 - left_out) : 0;
        if (fabs((double)hits[t] / draws - want) > 5 * sqrt(want * (1 - want) / draws) + 1e-9)
            fail_msg("token %d: drawn %d of %d times, probability %.4f", t, hits[t], draws, want);
    }
    for (int i = 0; i < 500; i++) {
        double before = 0;
        o = (orth_sample_options){.temperature = 1, .top_p = 0.5, .seed = (uint64_t)i};
        CHECK_OK(r->ctx, orth_generator_sample(r->ctx, g, &o, &token, &logprob));
        for (int t = 0; t < VOCAB; t++)
            before += rank_of(p, t) < rank_of(p, token) ? p[t] : 0;
        assert_true(before < 0.5 + 1e-6);
    }
    orth_generator_destroy(r->ctx, g);
    orth_model_file_close(r->ctx, &f);
    run_end(r);
}

TEST(the_program_prints_the_same_text_for_the_same_seed_and_stops_where_told)
{
    run_case *r = run_begin();
    char first[4096];
    RUN(r, 0, "saved", "train run.yaml train.steps=60 optimizer.lr=5e-3");
    RUN(r, 0, "the ", "generate a --prompt='the ' --tokens=60 --seed=5");
    snprintf(first, sizeof first, "%.4000s", r->out);
    RUN(r, 0, first, "generate a --prompt='the ' --tokens=60 --seed=5 run.threads=2");
    RUN(r, 0, "the ", "generate a --prompt='the ' --tokens=60 --seed=6");
    assert_string_not_equal(r->out, first);
    /* The stop text is part of what was sampled; its last token is printed whole. */
    for (int from = 4; from < 12; from++) {
        RUN(r, 0, "the ", "generate a --prompt='the ' --tokens=60 --seed=5 --stop='%.5s'", first + from);
        size_t n = strlen(r->out) - 1;
        if (n < (size_t)from + 5 || n > (size_t)from + 15 || memcmp(r->out, first, n) != 0)
            fail_msg("stop='%.5s': %s", first + from, r->out);
    }
    RUN(r, 2, "the prompt's 1 tokens and --tokens=300 exceed the model's longest sequence of 256", "generate a --tokens=300");
    RUN(r, 2, " tokens, the model's longest sequence 256, what follows included", "generate a --prompt=\"$(head -c 2000 text.txt)\"");
    /* A sample does not depend on those before it. */
    RUN(r, 0, "the ", "generate a --prompt='the ' --tokens=60 --seed=3 --samples=3");
    const char *last = strstr(strstr(r->out, "\n---\n") + 5, "\n---\n");
    assert_string_equal(last + 5, first);
    RUN(r, 2, "--samples", "generate a --samples=0");
    RUN(r, 0, "", "generate a --tokens=3 --logprobs --temperature=0");
    assert_non_null(strstr(r->out, "0x1."));
    run_end(r);
}

/* As a folder of Transformers, which has no options and may have no tokenizer and rows to spare. */
/* Each token is a line, of three tabs, whatever its bytes. */
TEST(a_line_of_a_token_is_one_line)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml data.path=text.txt data.tokenizer=bytes train.steps=1");
    bool newline = false;
    for (int seed = 1; seed <= 12; seed++) { /* about even chances, so that each has a newline or an end of text soon */
        RUN(r, 0, "", "generate a --logprobs --tokens=200 --top-k=0 --temperature=20 --seed=%d", seed);
        int lines = 0, tabs = 0;
        for (const char *p = r->out; *p; p++) {
            lines += *p == '\n';
            tabs += *p == '\t';
            assert_true(*p == '\n' || *p == '\t' || (*p >= 0x20 && *p < 0x7F));
        }
        assert_int_equal(tabs, 3 * lines);
        newline = newline || strstr(r->out, "\t\\x0a\n");
    }
    assert_true(newline);
    run_end(r);
}

/* Special tokens stand for no bytes. */
TEST(bits_per_byte_of_no_bytes_are_no_number)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    run_write(r, "none.txt", "<|endoftext|><|endoftext|><|endoftext|><|endoftext|>", 52);
    RUN(r, 0, "bits per byte -  (4 targets, 0 bytes, 1 sequences)", "eval a --text=none.txt data.doc_mask=false");
    RUN(r, 0, "\"bits_per_byte\": null", "eval a --text=none.txt data.doc_mask=false --json");
    run_end(r);
}

TEST(options_of_eval_and_generate_replace_those_of_the_weights)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1 data.path=text.txt data.tokenizer=bytes model.vocab=400");
    RUN(r, 0, "", "eval a --text=text.txt --batches=12 --json");
    char own[256];
    snprintf(own, sizeof own, "%.200s", r->out);
    RUN(r, 0, own, "eval a --text=text.txt --batches=12 --json data.tokenizer=bytes");
    /* Documents of a field of JSONL are those of lines of text. */
    static const char lines[] = "the river was on the stone\nthey said each mountain\nwater of the river is long\n";
    static const char jsonl[] = "{\"body\": \"the river was on the stone\"}\n{\"body\": \"they said each mountain\"}\n"
                                "{\"body\": \"water of the river is long\"}\n";
    run_write(r, "few.txt", lines, strlen(lines));
    run_write(r, "few.jsonl", jsonl, strlen(jsonl));
    RUN(r, 0, "loss", "eval a --text=few.txt --document-separator=line --json");
    char as_lines[1024];
    snprintf(as_lines, sizeof as_lines, "%.1000s", r->out);
    RUN(r, 0, as_lines, "eval a --text=few.jsonl --field=body --json");
    RUN(r, 2, "eval: --field and --document-separator say how --text is read", "eval a --field=body");
    RUN(r, 0, "loss", "eval a --text=text.txt --batches=12 --json precision.compute=bf16");
    assert_null(strstr(r->out, own));
    RUN(r, 0, "loss", "eval a --text=text.txt --batches=12 --json train.micro_batch=3"); /* of the run's batch of 6, not the 8 of the defaults */
    RUN(r, 2, "train.micro_batch=4 does not divide train.global_batch=6", "eval a --text=text.txt train.micro_batch=4");
    RUN(r, 0, "loss", "eval a --text=text.txt --batches=12 --json data.separator=blank-line");
    assert_null(strstr(r->out, own));
    RUN(r, 5, "is tokenizer", "eval a --text=text.txt data.tokenizer=shards");
    RUN(r, 0, "loss", "eval a data.path=text.txt data.valid_fraction=0.5");
    run_end(r);
}

TEST(weights_without_a_tokenizer_are_used_with_one_that_is_given)
{
    run_case *r = run_begin();
    char path[256];
    RUN(r, 0, "saved", "train run.yaml train.steps=1 data.path=text.txt data.tokenizer=bytes model.vocab=400");
    RUN(r, 0, "parameters", "ckpt export a hf");
    snprintf(path, sizeof path, "%s/hf/tokenizer.json", r->dir);
    assert_int_equal(remove(path), 0);
    RUN(r, 0, "parameters", "ckpt import hf imported");
    static const char *const folders[] = {"hf", "imported"};
    for (int i = 0; i < ORTH_COUNT(folders); i++) {
        RUN(r, 5, "no tokenizer.json beside the weights: give data.tokenizer=FILE", "eval %s --text=text.txt", folders[i]);
        RUN(r, 5, "no tokenizer.json beside the weights: give data.tokenizer=FILE", "generate %s", folders[i]);
        RUN(r, 0, "loss", "eval %s --text=text.txt --batches=2 data.tokenizer=bytes", folders[i]);
        RUN(r, 0, "0x1.", "generate %s data.tokenizer=bytes --logprobs --prompt=a=b --seed=%d --top-k=0 --tokens=40", folders[i], i);
        for (char *line = r->out; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
            if (strchr(line, '\t') && atoi(line) > 256)
                fail_msg("a token that the tokenizer does not have: %.20s", line);
    }
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=small train.steps=1 model.vocab=257 model.max_seq=100 data.path=text.txt data.tokenizer=bytes");
    RUN(r, 0, "parameters", "ckpt export small hf2");
    snprintf(path, sizeof path, "%s/hf2/tokenizer.json", r->dir);
    assert_int_equal(remove(path), 0);
    RUN(r, 5, "the model's vocabulary only", "eval hf2 --text=text.txt data.tokenizer=shards");
    RUN(r, 0, "", "generate small --prompt=the");
    run_end(r);
}

/* Each line is read by itself: a program need not hold all of a long text's. */
TEST(with_json_each_line_of_log_probabilities_is_an_object)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml train.steps=1");
    RUN(r, 0, "", "eval a --batches=1 --logprobs > lines");
    RUN(r, 0, "", "eval a --batches=1 --logprobs --json > objects");
    char *lines = run_read(r, "lines", NULL), *objects = run_read(r, "objects", NULL), *at = lines, *next;
    double sum = 0, targets = 0;
    for (char *line = objects; (next = strchr(line, '\n')) != NULL; line = next + 1) {
        *next = '\0';
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        if (json_object_get(o, "loss")) {
            assert_true(next[1] == '\0' && *at == '\0' && json_number_value(json_object_get(o, "targets")) == targets);
            assert_true(fabs(json_number_value(json_object_get(o, "loss")) + sum / targets) < 1e-5);
        } else {
            long long sequence, pos, token;
            double value, exact;
            int n;
            assert_int_equal(sscanf(at, "%lld %lld %lld %lf %la%n", &sequence, &pos, &token, &value, &exact, &n), 5);
            at += n + 1;
            assert_int_equal(json_integer_value(json_object_get(o, "sequence")), sequence);
            assert_int_equal(json_integer_value(json_object_get(o, "position")), pos);
            assert_int_equal(json_integer_value(json_object_get(o, "token")), token);
            assert_true(json_number_value(json_object_get(o, "logprob")) == value);
            assert_true(strtod(json_string_value(json_object_get(o, "logprob_hex")), NULL) == exact);
            sum += exact;
            targets++;
        }
        json_decref(o);
    }
    assert_true(targets > 10);
    free(lines), free(objects);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probabilities_are_those_of_eval),
        cmocka_unit_test(choices_obey_temperature_top_k_top_p_and_seed),
        cmocka_unit_test(a_line_of_a_token_is_one_line),
        cmocka_unit_test(bits_per_byte_of_no_bytes_are_no_number),
        cmocka_unit_test(options_of_eval_and_generate_replace_those_of_the_weights),
        cmocka_unit_test(weights_without_a_tokenizer_are_used_with_one_that_is_given),
        cmocka_unit_test(the_program_prints_the_same_text_for_the_same_seed_and_stops_where_told),
        cmocka_unit_test(with_json_each_line_of_log_probabilities_is_an_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
