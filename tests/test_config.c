/* test_config.c -- run files: values, places, messages, and back to text. */
#include "test.h"

#include "config/config.h"

static orth_status parse(orth_ctx *ctx, orth_config *cfg, const char *text)
{
    CHECK_OK(ctx, orth_config_init(ctx, cfg));
    return orth_config_parse(ctx, cfg, "run.yaml", text, strlen(text));
}

TEST(the_run_file_of_the_design_is_read)
{
    static const char text[] =
        "model:    {preset: gpt2-124m}       # or family, layers, hidden\n"
        "data:     {path: corpus.txt, tokenizer: auto, seq_len: 1024}\n"
        "train:    {steps: 200, global_batch: 32, micro_batch: 4, seed: 1, clip_norm: 1.0}\n"
        "optimizer: {name: adamw, lr: 6.0e-4, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}\n"
        "schedule: {name: cosine, warmup_steps: 20, min_lr_ratio: 0.1}\n"
        "parallel: {dp: 1, tp: 1, pp: 1, cp: 1, zero: 0, shard_group: 0, sequence_parallel: false,\n"
        "           pipeline: 1f1b, virtual_stages: 1}\n"
        "memory:   {recompute: none, offload_optimizer: none, offload_params: none, offload_gradients: none, offload_activations: none, limit: auto}\n"
        "precision: {compute: bf16, master: fp32, moments: fp32, grad_reduce: fp32, loss_scale: none}\n"
        "comm:     {backend: thread, bucket_mb: 25, overlap: true, compress: none}\n"
        "numerics: {mode: reproducible, parts: 8}\n"
        "checkpoint: {dir: runs/demo, every_steps: 100, keep: 3, async: true}\n"
        "cluster:  {name: this-machine}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, parse(ctx, &c, text));
    CHECK_OK(ctx, orth_config_check(ctx, &c));
    assert_string_equal(c.model_preset, "gpt2-124m");
    assert_int_equal(c.data_path.n, 1);
    assert_string_equal(c.data_path.v[0], "corpus.txt");
    assert_int_equal(c.train_micro_batch, 4);
    assert_true(c.optimizer_lr == 6.0e-4 && c.optimizer_betas.n == 2 && c.optimizer_betas.v[1] == 0.95);
    assert_int_equal(c.precision_compute, ORTH_precision_compute_bf16);
    assert_string_equal(c.place[ORTH_OPT_train_steps], "run.yaml:3:19");
    assert_true(ORTH_CONFIG_IS_SET(&c, train, seed));
    assert_false(ORTH_CONFIG_IS_SET(&c, train, log_every) || ORTH_CONFIG_IS_SET(&c, memory, limit));
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(a_dump_reads_back_as_the_same_values)
{
    static const char text[] =
        "model: {layers: 3, tied: false, dropout: 0.1}\n"
        "data:\n  path: [a b.txt, \"tab\\there\", 'true', \"\\u00e9\"]\n  weights: [0.1, 0.2, 3e-7, 1]\n"
        "  separator: \"# \\\"q\\\" \\\\ :\"\n"
        "optimizer: {lr: 0.1234567890123456789}\nmemory: {limit: 1.5GiB}\nparallel: {zero: 2}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config a, b;
    CHECK_OK(ctx, parse(ctx, &a, text));
    assert_int_equal(a.memory_limit, 3LL << 29);
    char *first = orth_config_yaml(ctx, &a);
    CHECK_OK(ctx, parse(ctx, &b, first));
    char *second = orth_config_yaml(ctx, &b);
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "zero: 2\n"));
    assert_true(a.optimizer_lr == b.optimizer_lr && a.data_weights.v[2] == b.data_weights.v[2]);
    for (int i = 0; i < a.data_path.n; i++)
        assert_string_equal(a.data_path.v[i], b.data_path.v[i]);
    assert_string_equal(a.data_separator, b.data_separator);
    assert_false(ORTH_CONFIG_IS_SET(&b, model, hidden)); /* auto stays auto */
    assert_true(ORTH_CONFIG_IS_SET(&b, model, tied));
    orth_mem_free(ctx, first);
    orth_mem_free(ctx, second);
    orth_config_release(ctx, &a);
    orth_config_release(ctx, &b);
    test_ctx_free(ctx);
}

/* What is wrong, and where: the message as a user reads it after "orthant: ". */
TEST(texts_are_read_in_every_style)
{
    static const char *const styles[][2] = {
        {"plain\n    over lines", "plain over lines"},
        {"'it''s'", "it's"},
        {"''", ""},
        {"'''''''''''''''''''''''''''''''''''''x'", "''''''''''''''''''x"},
        {"\"\\t\\u00e9\\\"\\t\\t\\t\\t\\t\\t\\t\\t\\t\"", "\t\u00e9\"\t\t\t\t\t\t\t\t\t"},
        {"|\n    one\n    two\n", "one\ntwo\n"},
        {">-\n    one\n    two\n\n    three\n", "one two\nthree"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(styles); i++) {
        orth_config c;
        char text[200];
        snprintf(text, sizeof text, "data:\n  separator: %s\n", styles[i][0]);
        CHECK_OK(ctx, parse(ctx, &c, text));
        assert_string_equal(c.data_separator, styles[i][1]);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(messages_name_the_place_the_value_and_the_rule)
{
    static const struct { const char *text, *message; } cases[] = {
        {"train: {step: 5}", "run.yaml:1:9: unknown key 'train.step'; did you mean 'train.steps'?"},
        {"train:\n  steps: 5\nlr: 1", "run.yaml:3:1: unknown key 'lr'; did you mean 'optimizer.lr'?"},
        {"trian: {steps: 5}", "run.yaml:1:1: unknown key 'trian'; did you mean 'train'?"},
        {"zebra: 1", "run.yaml:1:1: unknown key 'zebra'; `orthant help options` lists all keys"},
        {"train: {steps: ten}", "run.yaml:1:16: train.steps=ten: must be a whole number"},
        {"train: {steps: 1.5}", "train.steps=1.5: must be a whole number"},
        {"train: {steps: 99999999999999999999}", "train.steps=99999999999999999999: must be at most 1e+15"},
        {"optimizer: {lr: 1e400}", "optimizer.lr=1e400: must be between 0 and 1000"},
        {"train: {steps: [1]}", "run.yaml:1:16: train.steps=[...]: takes one value, not a list"},
        {"train: {steps: {a: 1}}", "train.steps takes a value, not a mapping"},
        {"train: {steps: }", "train.steps has no value"},
        {"train: {global_batch: 0}", "train.global_batch=0: must be between 1 and 1000000000"},
        {"train: {steps: -1}", "train.steps=-1: must be 0 or more"},
        {"train:\n  steps: 1\n  steps: 2",
         "run.yaml:3:3: duplicate key 'train.steps', first given in line 2"},
        {"train: {}\ntrain: {}", "run.yaml:2:1: duplicate key 'train', first given in line 1"},
        {"model: {dropout: nan}", "model.dropout=nan: must be a number"},
        {"model: {dropout: 2}", "model.dropout=2: must be between 0 and 0.99"},
        {"model: {tied: yes}", "model.tied=yes: must be true or false"},
        {"precision: {grad_reduce: int4}", "precision.grad_reduce=int4: must be one of fp32, bf16, int8"},
        {"optimizer: {name: adamv}", "optimizer.name=adamv: must be one of adamw, adam, sgd; did you mean 'adamw'?"},
        {"precision: {compute: FP16}", "precision.compute=FP16: must be one of fp32, bf16, fp16; did you mean 'fp16'?"},
        {"precision: {compute: bfloat16}", "fp16; did you mean 'bf16'?"},
        {"precision: {compute: torch.float16}", "did you mean 'fp16'?"},
        {"precision: {compute: 16-mixed}", "did you mean 'fp16'?"},
        {"precision: {master: bfloat16}", "precision.master=bfloat16: must be one of fp32, bf16; did you mean 'bf16'?"},
        {"precision: {compute: fp8}", "fp16; 'fp8' is precision.compute=bf16 with precision.products=fp8_tensor, fp8_block, mxfp8 or fp8_delayed"},
        {"precision: {compute: bf16-true}", "'bf16-true' is precision.compute=bf16 with precision.master=bf16 and precision.moments=bf16"},
        {"precision: {compute: int8}", "'int8' is a value of precision.grad_reduce"},
        {"memory: {recompute: Full}", "did you mean 'full'?"},
        {"memory: {limit: lots}", "memory.limit=lots: must be auto or a size such as 8GB, 500MiB"},
        {"train: 5", "run.yaml:1:8: train takes keys"},
        {"- a", "run.yaml:1:1: a run file is a mapping"},
        {"data: {path: [a, [b]]}", "a list holds single values only"},
        {"a: &x 1\nb: *x", "run.yaml:1:1: unknown key 'a'"},
        {"train: &x {steps: 1}", "anchors and aliases are not accepted"},
        {"train: {steps: *x}", "anchors and aliases are not accepted"},
        {"train: {steps: !!int 1}", "tags are not accepted"},
        {"train: {steps: 1", "run.yaml:2:1: is not YAML: while parsing a flow mapping, did not find expected ',' or '}'"},
        {"train:\n\tsteps: 1",
         "run.yaml:2:1: is not YAML: while scanning for the next token, found character that cannot start any token"},
        {"", "run.yaml:1:1: is empty"},
        {"# nothing\n", "is empty"},
        {"train: {steps: 1}\n---\ntrain: {steps: 2}\n", "holds more than one document"},
        {"data: {separator: \"a\\0b\"}", "zero byte"},
        {"train: {steps: 1}\n%YAML 1.2\n", "run.yaml:3:1: is not YAML: did not find expected <document start>"},
        {"train: \x01", "run.yaml:1:8: byte 0x01 is not accepted"},
        {"train: \xff", "is not UTF-8"},
        {"? {a: 1}\n: 2", "a key must be a word"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        CHECK_FAILS(ctx, ORTH_ERR_ARG, cases[i].message, parse(ctx, &c, cases[i].text));
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(rules_between_options_are_told_in_words)
{
    static const struct { const char *text, *message; } cases[] = {
        {"train: {global_batch: 32, micro_batch: 3}",
         "run.yaml:1:40: train.micro_batch=3 does not divide train.global_batch=32"},
        {"numerics: {parts: 6}", "numerics.parts=6 is not a power of two"},
        {"optimizer: {betas: [0.9]}", "optimizer.betas holds 1 numbers, not 2"},
        {"memory: {recompute: keep}", "memory.recompute=keep needs memory.recompute_ops"},
        {"memory: {recompute_ops: [norm]}", "memory.recompute_ops needs memory.recompute=ops or keep, not none"},
        {"memory: {recompute: auto, recompute_split: true}", "memory.recompute_split needs memory.recompute=full or sqrt, not auto"},
        {"memory: {recompute: full, recompute_split: true}", "memory.recompute_split needs parallel.tp above 1"},
        {"memory: {recompute: full, recompute_split: true}\nparallel: {tp: 2, sequence_parallel: true}",
         "parallel.sequence_parallel=true splits the inputs of layers already"},
        {"memory: {recompute: full, recompute_limit: 1GB}", "memory.recompute_limit needs memory.recompute=auto, not full"},
        {"comm: {backend: mpi}\nmemory: {recompute: auto}", "memory.recompute=auto with comm.backend=mpi needs memory.recompute_limit"},
        {"memory: {recompute_method: block}", ":1:28: memory.recompute_layers and memory.recompute_method need memory.recompute=full, not none"},
        {"memory: {recompute: sqrt, recompute_layers: 2}", "memory.recompute_layers and memory.recompute_method need memory.recompute=full, not sqrt"},
        {"optimizer: {eps: 0}", "run.yaml:1:18: optimizer.eps=0 is 0 in fp32: it must be more"},
        {"optimizer: {eps: 1e-50}", "optimizer.eps=1e-50 is 0 in fp32"},
        {"train: {clip_norm: 1e-50}", "train.clip_norm=1e-50 is 0 in fp32, which would be no clipping"},
        {"optimizer: {nesterov: true}", "optimizer.nesterov=true needs optimizer.name=sgd, not adamw"},
        {"optimizer: {name: sgd, momentum: 0, nesterov: true}", "optimizer.nesterov=true needs optimizer.momentum, which is 0"},
        {"optimizer: {lr_factors: [\"*.bias=0.5\", embed]}", "run.yaml:1:25: optimizer.lr_factors: 'embed' is not PATTERN=FACTOR"},
        {"precision: {grad_reduce: bf16}", "precision.grad_reduce=bf16 needs numerics.mode=fast"},
        {"precision: {grad_reduce: int8}", "precision.grad_reduce=int8 needs numerics.mode=fast"},
        {"precision: {grad_reduce: int8}\nnumerics: {mode: fast}\ncomm: {algorithm: ring}", "precision.grad_reduce=int8 needs comm.algorithm=auto or direct, not ring"},
        {"precision: {grad_reduce: int8}\nnumerics: {mode: fast}\ncomm: {algorithm: tree}", "precision.grad_reduce=int8 needs comm.algorithm=auto or direct, not tree"},
        {"parallel: {zero: 3, dp: 2, pp: 2, max_reuse_distance: 10}", "parallel.max_reuse_distance with parallel.pp=2: in a pipeline"},
        {"parallel: {zero: 2, dp: 2, gather_unit: half}", "run.yaml:1:41: parallel.gather_unit=half with parallel.zero=2: only zero=3 gathers parameters"},
        {"parallel: {zero: SHARD_GRAD_OP, dp: 2, max_reuse_distance: 5}", "parallel.max_reuse_distance=5 with parallel.zero=SHARD_GRAD_OP: only zero=3"},
        {"parallel: {zero: 2, dp: 2, max_live: 10}", "parallel.max_live=10 with parallel.zero=2: only zero=3 gathers parameters"},
        {"parallel: {zero: 3, dp: 2, gather_unit: layers}", "parallel.gather_unit=layers needs parallel.gather_size"},
        {"parallel: {zero: 3, dp: 2, gather_unit: model, gather_size: 3}", "parallel.gather_size=3 with parallel.gather_unit=model"},
        {"optimizer: {lr_factors: =1}", "'=1' is not PATTERN=FACTOR"},
        {"optimizer: {freeze: [embed.*, \"!\"]}", "run.yaml:1:21: optimizer.freeze: '!' is no pattern of names"},
        {"optimizer: {weight_decay_factors: a=1x}", "optimizer.weight_decay_factors: 'a=1x' does not end with a number"},
        {"optimizer: {weight_decay_factors: a=}", "'a=' does not end with a number"},
        {"optimizer: {lr_factors: a=-1}", "'a=-1' has a factor that is not between 0 and 1000"},
        {"optimizer: {lr_factors: a=nan}", "'a=nan' has a factor that is not between"},
        {"data: {path: [a, b], weights: [1]}", "data.weights holds 1 numbers for 2 data.path"},
        {"data: {path: [a, b], weights: [0, 0]}", "data.weights are all 0"},
        {"parallel: {dp: 4, zero: HYBRID_SHARD}", "run.yaml:1:25: parallel.zero=HYBRID_SHARD needs parallel.shard_group: the "
         "ranks that share one set of shards"},
        {"parallel: {dp: 4, zero: FULL_SHARD, shard_group: 2}", "run.yaml:1:50: parallel.shard_group=2 with "
         "parallel.zero=FULL_SHARD, which shards over all of dp: with replicas of the shards it is HYBRID_SHARD"},
        {"parallel: {dp: 4, zero: SHARD_GRAD_OP, shard_group: 1}", "it is _HYBRID_SHARD_ZERO2"},
        {"data: {seq_len: 4}", "data.seq_len=4 is less than numerics.parts=8"},
        {"model: {attention: full}\nparallel: {cp: 2}", "run.yaml:1:20: model.attention=full needs parallel.cp=1, not 2"},
        {"precision: {moments: 8bit}\noptimizer: {name: sgd}", "precision.moments=8bit needs optimizer.name=adamw or adam, not sgd"},
        {"precision: {products: mxfp8, compute: fp16}", "precision.products=mxfp8 needs precision.compute=bf16 or fp32, not fp16"},
        {"numerics: {mode: fast}\nparallel: {pp: 2, dp: 2, dp_share: [3, 1], pipeline: zb-v, virtual_stages: 2}\nmemory: {ffn_chunk_rows: 1}",
         "memory.ffn_chunk_rows=1 with parallel.pipeline=zb-v and unequal parallel.dp_share needs numerics.mode=reproducible"},
        {"precision: {products: fp8_tensor}\nmemory: {ffn_chunk_rows: 64}", "precision.products=fp8_tensor needs memory.ffn_chunk_rows=0"},
        {"precision: {products: fp8_block}\nmemory: {packed_weights: true}", "precision.products=fp8_block needs memory.packed_weights=false"},
        {"precision: {master: bf16}", "precision.master=bf16 needs precision.compute=bf16, not fp32"},
        {"precision: {loss_scale: static}\nparallel: {pipeline: pipedream, pp: 2}", "precision.loss_scale=static with parallel.pipeline=pipedream"},
        {"precision: {loss_scale: dynamic, loss_scale_start: 8, loss_scale_least: 16}", "loss_scale_start=8 is less than precision.loss_scale_least=16"},
        {"precision: {compute: bf16, fp32_products: bf16x6}", "run.yaml:1:43: precision.fp32_products=bf16x6 is for "
         "precision.compute=fp32"},
        {"memory: {offload_optimizer: file, offload_dir: \"\"}", "run.yaml:1:48: memory.offload_dir is empty: what is offloaded to a file needs a folder"},
        {"memory: {offload_activations: file, offload_dir: \"\"}", "memory.offload_dir is empty"},
        {"train: {steps: 5, epochs: 1.5}", "run.yaml:1:27: train.epochs=1.5 and train.steps=5 both say how long to train"},
        {"model: {max_seq: 64}\ndata: {seq_len: 65}", "data.seq_len=65 exceeds model.max_seq=64"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        CHECK_OK(ctx, parse(ctx, &c, cases[i].text));
        CHECK_FAILS(ctx, ORTH_ERR_ARG, cases[i].message, orth_config_check(ctx, &c));
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(words_of_the_command_line_replace_what_the_file_says)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, parse(ctx, &c, "train: {steps: 5}\nmodel: {layers: 2}"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", "memory.offload_sub_group", "2.5e9"));
    assert_true(c.memory_offload_sub_group == 2500000000);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "train.steps=1.5e0: must be a whole number", orth_config_set(ctx, &c, "command line", "train.steps", "1.5e0"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "train.steps=1e19: must be", orth_config_set(ctx, &c, "command line", "train.steps", "1e19"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", "train.steps", "7"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", "data.path", "[a.txt, 'b c.txt']"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", "checkpoint.dir", "odd: [name] # x"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", "model.layers", "auto"));
    assert_int_equal(c.train_steps, 7);
    assert_int_equal(c.data_path.n, 2);
    assert_string_equal(c.data_path.v[1], "b c.txt");
    assert_string_equal(c.checkpoint_dir, "odd: [name] # x");
    assert_false(ORTH_CONFIG_IS_SET(&c, model, layers));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "command line: train.steps=x: must be a whole number",
                orth_config_set(ctx, &c, "command line", "train.steps", "x"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "command line: unknown key 'train.stepz'; did you mean 'train.steps'?",
                orth_config_set(ctx, &c, "command line", "train.stepz", "1"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "command line: optimizer.betas=[0.9, 0.95: is not YAML",
                orth_config_set(ctx, &c, "command line", "optimizer.betas", "[0.9, 0.95"));
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* Nesting and length are bounded before they cost anything. */
/* FSDP's name of what is gathered together is taken; a class that is not known is answered with those that are. */
TEST(classes_that_fsdp_wraps_are_values_of_the_unit_of_gathering)
{
    static const struct { const char *name; orth_option_parallel_gather_unit unit; } cases[] = {
        {"LlamaDecoderLayer", ORTH_parallel_gather_unit_layer}, {"GPT2Block", ORTH_parallel_gather_unit_layer}, {"Qwen3MLP", ORTH_parallel_gather_unit_half}};
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.gather_unit", cases[i].name));
        assert_int_equal(c.parallel_gather_unit, cases[i].unit);
    }
    assert_int_equal(orth_config_set(ctx, &c, "test", "parallel.gather_unit", "LamaDecoderLayer"), ORTH_ERR_ARG);
    assert_non_null(strstr(ctx->error.message, "must be one of layer, half, layers, elements, model, or by the names of other programs GPT2Block, "));
    assert_non_null(strstr(ctx->error.message, "TransformerLayer"));
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(switches_of_other_programs_are_accepted)
{
    static const struct { const char *text; orth_option_memory_recompute want; } cases[] = {
        {"gradient_checkpointing: true", ORTH_memory_recompute_full}, {"memory: {gradient_checkpointing: true}", ORTH_memory_recompute_full},
        {"memory: {recompute: gradient_checkpointing}", ORTH_memory_recompute_full},
        {"gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}", ORTH_memory_recompute_full},
        {"use_reentrant: true", ORTH_memory_recompute_none}, {"memory: {recompute: sqrt, use_reentrant: true}", ORTH_memory_recompute_sqrt}};
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        CHECK_OK(ctx, parse(ctx, &c, cases[i].text));
        assert_int_equal(c.memory_recompute, cases[i].want);
        orth_config_release(ctx, &c);
    }
    CHECK_OK(ctx, parse(ctx, &c, "memory: {offload_optimizer: nvme, offload_params: cpu}"));
    assert_true(c.memory_offload_optimizer == ORTH_memory_offload_optimizer_file && c.memory_offload_params == ORTH_memory_offload_params_host);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* Whichever came last would count. */
TEST(a_key_that_a_file_gives_by_two_names_is_refused)
{
    static const char *const texts[] = {"memory: {recompute: full}\ngradient_checkpointing: false",
                                        "gradient_checkpointing: true\nmemory: {recompute: selective}"};
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    for (int i = 0; i < ORTH_COUNT(texts); i++) {
        assert_int_equal(parse(ctx, &c, texts[i]), ORTH_ERR_ARG);
        assert_non_null(strstr(ctx->error.message, "memory.recompute is set at "));
        assert_non_null(strstr(ctx->error.message, ", too, by another name: give it once"));
        orth_ctx_clear_error(ctx);
        orth_config_release(ctx, &c);
    }
    CHECK_OK(ctx, parse(ctx, &c, "memory: {recompute: full}")); /* a word replaces what a file says */
    CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", "gradient_checkpointing", "false"));
    assert_int_equal(c.memory_recompute, ORTH_memory_recompute_none);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(hostile_files_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    size_t n = (1u << 20) + 1;
    char *text = calloc(1, n + 1);
    orth_config c;
    memset(text, '[', 100000);
    assert_int_equal(parse(ctx, &c, text), ORTH_ERR_ARG);
    orth_ctx_clear_error(ctx);
    orth_config_release(ctx, &c);
    memset(text, '{', 100000);
    assert_int_equal(parse(ctx, &c, text), ORTH_ERR_ARG);
    orth_ctx_clear_error(ctx);
    orth_config_release(ctx, &c);
    memset(text, '#', n);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "a run file has at most", parse(ctx, &c, text));
    orth_config_release(ctx, &c);
    free(text);
    test_ctx_free(ctx);
}

TEST(reading_survives_every_failed_allocation)
{
    orth_ctx *ctx = test_ctx(1);
    static const char text[] = "train: {steps: 5}\ndata: {path: [a, b]}";
    for (int n = 1, ok = 0; !ok; n++) {
        orth_faults faults = {.alloc = n};
        orth_config c;
        ctx->faults = &faults;
        orth_status s = orth_config_init(ctx, &c);
        if (s == ORTH_OK) {
            s = orth_config_parse(ctx, &c, "run.yaml", text, strlen(text));
            orth_config_release(ctx, &c);
        }
        ctx->faults = NULL;
        ok = s == ORTH_OK;
        assert_true(ok || s == ORTH_ERR_NOMEM);
        orth_ctx_clear_error(ctx);
        assert_true(n < 1000);
    }
    test_ctx_free(ctx);
}

TEST(every_row_has_a_default_within_its_range_and_a_help_text)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const orth_option *o = orth_option_get((orth_option_id)i);
        assert_int_equal(orth_option_find(o->path), i);
        assert_true(o->help[0] != '\0');
    }
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c)); /* parses each default by its row */
    CHECK_OK(ctx, orth_config_check(ctx, &c));
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* Plans of changed runs are made of a run's own keys: every choice of every key is one that can be set again. */
TEST(what_a_run_was_given_can_be_given_to_another)
{
    orth_ctx *ctx = test_ctx(1);
    for (int id = 0; id < ORTH_NUM_OPTIONS; id++) {
        const orth_option *o = orth_option_get((orth_option_id)id);
        for (int k = 0; o->type == ORTH_TYPE_ENUM && o->choices[k]; k++) {
            orth_config a, b;
            int choice;
            CHECK_OK(ctx, orth_config_init(ctx, &a));
            CHECK_OK(ctx, orth_config_init(ctx, &b));
            CHECK_OK(ctx, orth_config_set(ctx, &a, "test", o->path, o->choices[k]));
            CHECK_OK(ctx, orth_config_override(ctx, &b, &a));
            memcpy(&choice, (const char *)&b + o->offset, sizeof choice);
            assert_int_equal(choice, k);
            orth_config_release(ctx, &a);
            orth_config_release(ctx, &b);
        }
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_run_file_of_the_design_is_read),
        cmocka_unit_test(a_dump_reads_back_as_the_same_values),
        cmocka_unit_test(texts_are_read_in_every_style),
        cmocka_unit_test(messages_name_the_place_the_value_and_the_rule),
        cmocka_unit_test(rules_between_options_are_told_in_words),
        cmocka_unit_test(words_of_the_command_line_replace_what_the_file_says),
        cmocka_unit_test(classes_that_fsdp_wraps_are_values_of_the_unit_of_gathering),
        cmocka_unit_test(switches_of_other_programs_are_accepted),
        cmocka_unit_test(a_key_that_a_file_gives_by_two_names_is_refused),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(reading_survives_every_failed_allocation),
        cmocka_unit_test(every_row_has_a_default_within_its_range_and_a_help_text),
        cmocka_unit_test(what_a_run_was_given_can_be_given_to_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
