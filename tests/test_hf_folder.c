/* test_hf_folder.c -- folders of Hugging Face in the program: settings that come with weights, there and back. */
#include "run_case.h"

#include "engine.h"

static void check_config(run_case *r, const char *folder, const char *text)
{
    char name[128];
    snprintf(name, sizeof name, "%s/config.json", folder);
    char *all = run_read(r, name, NULL);
    if (!strstr(all, text))
        fail_msg("%s does not have %s:\n%.2000s", name, text, all);
    free(all);
}

#define GPT2 "train run.yaml model.preset=gpt2-tiny train.steps=1"

TEST(a_run_from_weights_has_their_dropouts_unless_others_are_given)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", GPT2 " model.dropout=0.125 model.attn_dropout=0.25 model.embed_dropout=0 checkpoint.dir=a");
    RUN(r, 0, "parameters", "ckpt export a e");
    static const char *const rates[] = {"\"attn_pdrop\": 0.25", "\"embd_pdrop\": 0.0", "\"resid_pdrop\": 0.125"};
    for (int i = 0; i < 3; i++)
        check_config(r, "e", rates[i]);
    RUN(r, 0, "parameters", "ckpt import e i");
    RUN(r, 0, "saved", "train run.yaml model.preset=gpt2-tiny --init=i train.steps=1 checkpoint.dir=b");
    assert_null(strstr(r->out, "dropout"));
    for (int i = 0; i < 3; i++)
        check_config(r, "b/checkpoints/step-00000001", rates[i]);
    RUN(r, 0, "dropout of residuals, embeddings and attention is 0.375, 0, 0.375 as given; the weights in",
        "train run.yaml model.preset=gpt2-tiny --init=e train.steps=1 model.dropout=0.375 model.embed_dropout=0 checkpoint.dir=c");
    check_config(r, "c/checkpoints/step-00000001", "\"attn_pdrop\": 0.375");
    check_config(r, "c/checkpoints/step-00000001", "\"embd_pdrop\": 0.0");
    run_end(r);
}

/* model.dropout is not set here: a resumed run can only have them from its checkpoint. */
TEST(a_resumed_run_keeps_the_dropouts_of_its_weights)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", GPT2 " model.dropout=0.2 model.attn_dropout=0 checkpoint.dir=a");
    RUN(r, 0, "saved", "train run.yaml model.preset=gpt2-tiny --init=a train.steps=4 checkpoint.dir=b");
    RUN(r, 0, "saved", "train run.yaml model.preset=gpt2-tiny --init=a train.steps=2 checkpoint.dir=c");
    RUN(r, 0, "saved", "train run.yaml model.preset=gpt2-tiny train.steps=4 checkpoint.dir=c --resume");
    char *whole = run_metrics(r, "b"), *resumed = run_metrics(r, "c");
    const char *last = strstr(whole, "{\"step\": 4"), *also = strstr(resumed, "{\"step\": 4");
    assert_true(last && also);
    assert_int_equal(strncmp(strstr(last, "loss"), strstr(also, "loss"), 60), 0);
    free(whole);
    free(resumed);
    run_end(r);
}

/* A new tokenizer's tokens mean something else than those that the weights were trained on. */
TEST(a_run_from_weights_has_their_tokenizer)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", GPT2 " data.tokenizer=auto checkpoint.dir=a");
    RUN(r, 0, "saved", "help >/dev/null; (cat text.txt; echo quite another text, of other words; cat text.txt) >other.txt; "
        "%s train run.yaml data.tokenizer=auto data.path=other.txt --init=a train.steps=1 checkpoint.dir=b", ORTH_BINARY);
    assert_null(strstr(r->out, "training a tokenizer"));
    size_t n;
    char *own = run_read(r, "a/checkpoints/step-00000001/tokenizer.json", &n), *also = run_read(r, "b/checkpoints/step-00000001/tokenizer.json", &n);
    assert_string_equal(own, also);
    free(own);
    free(also);
    RUN(r, 5, ", the one of the weights in a/checkpoints/step-00000001 is ", "train run.yaml data.tokenizer=bytes --init=a checkpoint.dir=c");
    RUN(r, 5, "made its shards", "help >/dev/null; %s data prepare --tokenizer=bytes --out=p text.txt; %s train run.yaml data.tokenizer=auto data.path=p "
        "--init=a checkpoint.dir=c", ORTH_BINARY, ORTH_BINARY);
    RUN(r, 2, "w: has no tokenizer.json: data.tokenizer must name", "help >/dev/null; cp -r a/checkpoints/step-00000001 w; rm w/tokenizer.json; "
        "%s train run.yaml data.tokenizer=auto data.path=other.txt --init=w checkpoint.dir=c", ORTH_BINARY);
    RUN(r, 0, "saved", "train run.yaml data.tokenizer=a/checkpoints/step-00000001/tokenizer.json --init=w train.steps=1 checkpoint.dir=c");
    run_end(r);
}

TEST(gelu_by_erf_is_trained_exported_and_taken_from_weights)
{
    run_case *r = run_begin();
    char tanh_loss[64], *at;
    RUN(r, 0, "saved", GPT2 " checkpoint.dir=t");
    RUN(r, 0, "loss_hex", "eval t --json");
    assert_non_null(at = strstr(r->out, "0x1."));
    snprintf(tanh_loss, sizeof tanh_loss, "%.14s", at);
    RUN(r, 0, "saved", GPT2 " model.gelu_erf=true checkpoint.dir=a");
    RUN(r, 0, "loss_hex", "eval a --json");
    assert_null(strstr(r->out, tanh_loss));
    RUN(r, 0, "gelu_erf", "ckpt inspect a");
    RUN(r, 0, "parameters", "ckpt export a e");
    check_config(r, "e", "\"activation_function\": \"gelu\"");
    RUN(r, 0, "saved", "train run.yaml model.preset= --init=e train.steps=1 checkpoint.dir=b");
    check_config(r, "b/checkpoints/step-00000001", "\"activation_function\": \"gelu\"");
    RUN(r, 2, "model.gelu_erf=false: the weights in e have true",
        "train run.yaml model.preset=gpt2-tiny --init=e model.gelu_erf=false checkpoint.dir=d");
    RUN(r, 2, "gelu_erf=true: family llama", "train run.yaml model.preset=llama-tiny model.gelu_erf=true checkpoint.dir=d");
    run_end(r);
}

TEST(weights_of_another_model_than_the_preset_and_its_keys_are_refused)
{
    run_case *r = run_begin();
    RUN(r, 0, "saved", "train run.yaml model.preset=llama-tiny model.ffn=320 model.rope_theta=77777 train.steps=1 checkpoint.dir=a");
    RUN(r, 2, "model.preset=llama-tiny and the keys beside it make ffn=192: the weights in a/checkpoints/step-00000001 have 320",
        "train run.yaml model.preset=llama-tiny --init=a checkpoint.dir=b");
    RUN(r, 2, "model.preset=llama-tiny and the keys beside it make rope_theta=10000: ", "train run.yaml model.preset=llama-tiny model.ffn=320 --init=a checkpoint.dir=b");
    RUN(r, 2, "model.preset=gpt2-tiny and the keys beside it make family=gpt2: ", "train run.yaml model.preset=gpt2-tiny --init=a checkpoint.dir=b");
    RUN(r, 0, "saved", "train run.yaml model.preset=llama-tiny model.ffn=320 model.rope_theta=77777 --init=a train.steps=1 checkpoint.dir=b");
    RUN(r, 0, "saved", "train run.yaml model.preset=llama-tiny train.steps=1 checkpoint.dir=c");
    RUN(r, 2, "make qk_norm=true: the weights in c/checkpoints/step-00000001 have false: give that, or no preset",
        "train run.yaml model.preset=qwen3-tiny model.head_dim=16 model.tied=false model.norm_eps=1e-5 --init=c checkpoint.dir=d");
    run_end(r);
}

TEST(an_export_whose_type_cannot_hold_a_weight_is_refused)
{
    run_case *r = run_begin();
    RUN(r, 0, "parameters", "train run.yaml model.preset=gpt2-tiny train.steps=1; %s ckpt export a e", ORTH_BINARY);
    size_t n;
    char *bytes = run_read(r, "e/model.safetensors", &n);
    const float big = 70000;
    memcpy(bytes + n - sizeof big, &big, sizeof big);
    run_write(r, "e/model.safetensors", bytes, n);
    free(bytes);
    RUN(r, 2, " is 70000, beyond the largest fp16: bf16 and fp32 hold it", "help >/dev/null; %s ckpt import e i && %s ckpt export i f --dtype=fp16", ORTH_BINARY, ORTH_BINARY);
    RUN(r, 0, "parameters in bf16", "ckpt export i f --dtype=bf16");
    run_end(r);
}

TEST(the_run_file_of_a_run_from_weights_is_one_of_their_model)
{
    run_case *r = run_begin();
    static const char *const models[] = {"model.preset=llama-tiny model.ffn=320 model.rope_theta=77777 model.kv_heads=1",
                                         "model.preset=gpt2-tiny model.layers=3 model.dropout=0.125 model.attn_dropout=0.25"};
    for (int i = 0; i < ORTH_COUNT(models); i++) {
        RUN(r, 0, "saved", "train run.yaml train.steps=1 checkpoint.dir=a%d %s", i, models[i]);
        RUN(r, 0, "saved", "train run.yaml train.steps=1 model.preset= --init=a%d checkpoint.dir=b%d", i, i);
        RUN(r, 0, "saved", "train b%d/run.yaml checkpoint.dir=c%d", i, i);
        assert_null(strstr(r->out, "no effect"));
        /* It goes on by either file, whichever it went on by before; not with another model. */
        RUN(r, 0, "saved", "train b%d/run.yaml train.steps=2 --resume", i);
        RUN(r, 0, "saved", "train run.yaml train.steps=3 model.preset= checkpoint.dir=b%d --resume", i);
        RUN(r, 0, "saved", "train run.yaml train.steps=2 checkpoint.dir=a%d --resume %s", i, models[i]);
        RUN(r, 0, "saved", "train a%d/run.yaml train.steps=3 --resume", i);
        RUN(r, 2, ": model.dropout=0.375: ", "train b%d/run.yaml train.steps=4 model.dropout=0.375 --resume", i);
        RUN(r, 2, ": model.ffn=64: ", "train run.yaml train.steps=4 model.preset= model.ffn=64 checkpoint.dir=b%d --resume", i);
        char name[64], *config[3];
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "%c%d/checkpoints/step-00000001/config.json", "abc"[k], i);
            config[k] = run_read(r, name, NULL);
            assert_string_equal(config[0], config[k]);
        }
        for (int k = 0; k < 3; k++)
            free(config[k]);
    }
    run_end(r);
}

static double graph_rate(const orth_graph *g, orth_op op)
{
    double rate = 0;
    for (int32_t i = 0; i < g->num_forward; i++)
        if (g->nodes[i].op == op && g->nodes[i].attr.dropout > 0)
            rate = g->nodes[i].attr.dropout;
    return rate;
}

TEST(each_dropout_has_its_own_rate_in_the_program)
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny"};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 2 * 3; k++) {
        orth_model_config c;
        orth_model_blocks blocks;
        CHECK_OK(ctx, orth_model_preset(ctx, presets[k % 2], &c));
        double *const rates[] = {&c.dropout, &c.embed_dropout, &c.attn_dropout};
        *rates[k / 2] = 0.25;
        const orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = 1, .seq_len = 16, .num_micro_batches = 1,
                                        .parts = 8, .compute = ORTH_F32, .optimizer = ORTH_OP_adamw};
        CHECK_OK(ctx, orth_model_blocks_build(ctx, &c, &shape, &blocks));
        assert_true(graph_rate(&blocks.layer, ORTH_OP_dropout) == c.dropout);
        assert_true(graph_rate(&blocks.embed, ORTH_OP_dropout) == c.embed_dropout);
        assert_true(graph_rate(&blocks.layer, ORTH_OP_attention) == c.attn_dropout);
        orth_model_blocks_release(&blocks);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_dropout_has_its_own_rate_in_the_program),
        cmocka_unit_test(a_run_from_weights_has_their_dropouts_unless_others_are_given),
        cmocka_unit_test(a_resumed_run_keeps_the_dropouts_of_its_weights),
        cmocka_unit_test(a_run_from_weights_has_their_tokenizer),
        cmocka_unit_test(weights_of_another_model_than_the_preset_and_its_keys_are_refused),
        cmocka_unit_test(an_export_whose_type_cannot_hold_a_weight_is_refused),
        cmocka_unit_test(the_run_file_of_a_run_from_weights_is_one_of_their_model),
        cmocka_unit_test(gelu_by_erf_is_trained_exported_and_taken_from_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
