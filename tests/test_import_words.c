/* test_import_words.c -- runs from the arguments of Megatron-LM and from scripts that hold them. */
#include "import_case.h"

TEST(a_script_of_megatron_becomes_the_keys_that_mean_the_same)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    orth_model_config m;
    open_import(ctx, &c, ORTH_TOOL_megatron, FIXTURE("llama2-7b.sh"));
    assert_true(c.parallel_tp == 4 && c.parallel_pp == 2 && c.parallel_dp == 4 && c.parallel_cp == 1 && c.parallel_zero == ORTH_parallel_zero_1);
    assert_true(c.parallel_virtual_stages == 2 && c.parallel_sequence_parallel && c.comm_overlap);
    assert_string_equal(c.parallel_pipeline, "interleaved");
    assert_true(c.train_micro_batch == 1 && c.train_global_batch == 256 && c.train_steps == 100000 && c.data_seq_len == 4096);
    assert_true(c.precision_compute == ORTH_precision_compute_bf16 && c.memory_recompute == ORTH_memory_recompute_selective);
    assert_true(c.optimizer_lr == 3e-4 && c.schedule_name == ORTH_schedule_name_cosine && c.schedule_warmup_steps == 2000);
    assert_true(c.schedule_min_lr_ratio == 0.1 && c.optimizer_betas.v[1] == 0.95 && c.checkpoint_every_steps == 1000);
    CHECK_OK(ctx, orth_describe_model(ctx, &c, &m));
    assert_int_equal(orth_model_num_elems(&m), 6738415616); /* as published of Llama 2 7B */
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(recipes_of_megatron_are_quantised_products)
{
    static const struct {
        const char *words;
        int products; /* -1: refused */
    } cases[] = {
        {"--fp8-format hybrid --fp8-recipe tensorwise", ORTH_precision_products_fp8_tensor},
        {"--fp8-format e4m3 --fp8-recipe blockwise", ORTH_precision_products_fp8_block},
        {"--fp8-format e4m3 --fp8-recipe mxfp8", ORTH_precision_products_mxfp8},
        {"--fp4-format e2m1", ORTH_precision_products_nvfp4},
        {"--fp4-format e2m1 --fp4-recipe nvfp4", ORTH_precision_products_nvfp4},
        {"--fp8-recipe mxfp8", ORTH_precision_products_same}, /* without a format nothing is quantised there */
        {"--fp8-format hybrid", ORTH_precision_products_fp8_delayed},
        {"--fp8-format hybrid --fp8-recipe delayed", ORTH_precision_products_fp8_delayed},
        {"--fp8-format hybrid --fp8-recipe mxfp8", -1},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        char words[600];
        snprintf(words, sizeof words, "--num-layers=12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
                 "--micro-batch-size 4 --global-batch-size 8 --bf16 --lr 1.5e-4 --train-iters 100 --tokenizer-type GPT2BPETokenizer %s", cases[i].words);
        if (cases[i].products < 0) {
            fails(ctx, ORTH_TOOL_megatron, words, "there are delayed and tensorwise with hybrid, blockwise and mxfp8 with e4m3");
            continue;
        }
        open_import(ctx, &c, ORTH_TOOL_megatron, words);
        assert_int_equal(c.precision_products, cases[i].products);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(one_run_in_the_words_of_megatron_and_of_nemo_is_one_configuration)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config a, b;
    open_import(ctx, &a, ORTH_TOOL_megatron, FIXTURE("llama2-7b.sh"));
    open_import(ctx, &b, ORTH_TOOL_nemo, FIXTURE("llama2-7b-nemo.yaml"));
    CHECK_OK(ctx, orth_config_set(ctx, &b, "test", "checkpoint.every_steps", "1000")); /* a number of validations there */
    char *of_a = orth_config_yaml(ctx, &a), *of_b = orth_config_yaml(ctx, &b);
    assert_string_equal(of_a, of_b);
    orth_mem_free(ctx, of_a);
    orth_mem_free(ctx, of_b);
    orth_config_release(ctx, &a);
    orth_config_release(ctx, &b);
    test_ctx_free(ctx);
}

TEST(arguments_without_a_file_have_the_defaults_of_megatron)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    orth_model_config m;
    open_import(ctx, &c, ORTH_TOOL_megatron, "--num-layers=12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
                "--micro-batch-size 4 --global-batch-size 8 --fp16 --lr 1.5e-4 --train-samples 4000 --lr-decay-samples 1600 --lr-warmup-fraction .01 "
                "--tokenizer-type GPT2BPETokenizer");
    assert_true(c.precision_compute == ORTH_precision_compute_fp16 && !c.comm_overlap && c.model_dropout == 0.1 && c.model_attn_dropout == 0.1);
    assert_true(c.train_steps == 500 && c.schedule_name == ORTH_schedule_name_linear && c.schedule_warmup_steps == 2 && c.schedule_decay_steps == 198);
    assert_true(c.optimizer_weight_decay == 0.01 && c.optimizer_betas.v[1] == 0.999 && c.schedule_min_lr_ratio == 0);
    CHECK_OK(ctx, orth_describe_model(ctx, &c, &m));
    assert_true(m.family == ORTH_FAMILY_GPT2 && m.tied && m.qkv_bias && m.ffn == 3072 && m.vocab == 50304); /* a multiple of 128 */
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(what_a_run_file_says_is_not_replaced_by_a_default_of_megatron)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "run.yaml:1:1", "optimizer.weight_decay", "0.3"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "run.yaml:2:1", "optimizer.betas", "[0.8, 0.7]"));
    CHECK_OK(ctx, orth_import(ctx, &c, ORTH_TOOL_megatron, "--tensor-model-parallel-size 2 --nproc_per_node 8", 0));
    assert_true(c.optimizer_weight_decay == 0.3 && c.optimizer_betas.v[0] == 0.8 && c.parallel_tp == 2 && c.parallel_dp == 4);
    assert_false(ORTH_CONFIG_IS_SET(&c, model, dropout)); /* the arguments have no model */
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(arguments_of_megatron_that_cannot_be_are_refused_with_key_and_rule)
{
    static const struct {
        const char *words, *message;
    } bad[] = {
        {"--bf16 --fp16", "--megatron: bf16 and fp16 are both true"},
        {"--train-samples 800 --train-iters 100", "--megatron: train_samples and train_iters are both given: Megatron-LM takes one of the two"},
        {"--train-samples 800 --lr-decay-iters 100", "train_samples and lr_decay_iters are both given"},
        {"--lr-decay-samples 800 --train-iters 100", "train_iters and lr_decay_samples are both given"},
        {"--num-layers-per-virtual-pipeline-stage 2 --num-virtual-stages-per-pipeline-rank 2",
         "num_layers_per_virtual_pipeline_stage and num_virtual_stages_per_pipeline_rank are both given"},
        {"--recompute-activations --recompute-method block", "recompute_method=block: Megatron-LM has no method of selective recomputation"},
        {"--num-experts 8", "--megatron: num_experts=8: a mixture of experts"},
        {"--num-layers 12 --swiglu", "a block with SwiGLU, LayerNorm and positions 'learned_absolute'"},
        {"--num-layers twelve", "--megatron: num_layers: model.layers=twelve: must be a whole number"},
        {"--num-layers 12 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 5", "12 layers are no multiple of 5 layers x 2"},
        {"--nproc_per_node 8 --nnodes 3 --tensor-model-parallel-size 5", "3 nodes have 24 ranks, which tensor x pipeline x context parallel ranks = 5 do"},
        {"--lr 1e-4 --min-lr 1e-3", "min_lr=0.001: is more than the learning rate"},
        {"--optimizer lion", "optimizer=lion: there are adam and sgd"},
        {"--context-parallel-size 2 --cp-comm-type a2a+p2p", "cp_comm_type=a2a+p2p: there are p2p"},
        {"--lr-decay-iters 10 --lr-warmup-iters 20", "lr_decay_iters=10: must be more than the warm-up"},
        {"--nproc_per_node 8 --num-distributed-optimizer-instances 3", "=3 does not divide the data-parallel ranks, parallel.dp=8"},
        {"--fp8-format hybrid --no-fp8-wgrad", "no_fp8_wgrad=true: gradients of weights in bf16 beside fp8"},
        {"--lr \"1e-4", "a quote \" without its end"},
        {"--", "holds no argument"},
        {"no-such-file", "--megatron=no-such-file: there is no such file"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        fails(ctx, ORTH_TOOL_megatron, bad[i].words, bad[i].message);
    file_fails(ctx, ORTH_TOOL_megatron, "A=1\nX=(\n  --num-layers\n  --lr x # a comment\n)\n", "-import:3: num_layers: model.layers=true");
    file_fails(ctx, ORTH_TOOL_megatron, "TP=two\npython a.py \\\n  --tensor-model-parallel-size ${TP}\n", "-import:3: tensor_model_parallel_size: parallel.tp=two");
    file_fails(ctx, ORTH_TOOL_nemo, "model: {num_layers: 4, normalization: batchnorm}\n", "a block with GELU, batchnorm and positions");
    file_fails(ctx, ORTH_TOOL_nemo, "trainer:\n  precision: fp4\n", "-import:2:14: trainer.precision=fp4: there are 32, bf16 and 16");
    file_fails(ctx, ORTH_TOOL_nemo, "model: {fp8: true, fp8_wgrad: false}\n", "model.fp8_wgrad=false: gradients of weights in bf16 beside fp8");
    file_fails(ctx, ORTH_TOOL_accelerate, "mixed_precision: fp8\nfp8_config:\n  override_linear_precision: true\n", "some products in bf16 beside fp8");
    file_fails(ctx, ORTH_TOOL_nemo, "- a\n", "a configuration is a mapping");
    test_ctx_free(ctx);
}

/* A shell takes these words out of a command, or puts others in their place, before the program sees them. */
TEST(words_of_the_shell_behind_a_key_are_not_its_value)
{
#define OVERLAP "python p.py --overlap-grad-reduce "
#define IS_ON "overlap_grad_reduce is comm.overlap=true\n"
    static const struct {
        const char *text, *line, *other; /* both are said */
    } cases[] = {
        {OVERLAP "2>&1 | tee log.txt\n", IS_ON, ""},
        {OVERLAP "> log.txt --seed 7 2> errors.txt\n", IS_ON, "seed is train.seed=7\n"},
        {OVERLAP "&>>log.txt &\nSEED=7\npython --seed $SEED", IS_ON, "seed is train.seed=7\n"},
        {OVERLAP "&& echo done\n", IS_ON, ""},
        {OVERLAP "; python --seed 7;\n", IS_ON, "seed is train.seed=7\n"},
        {OVERLAP "# --seed 8\n  --lr 1e-4 # a comment; it's one | 2\n", IS_ON, "lr is optimizer.lr=1e-4\n"},
        {"python --seed 7|tee log.txt\n", "seed is train.seed=7\n", ""},
        {"python --lr 1e-4>log.txt\n", "lr is optimizer.lr=1e-4\n", ""},
        {"python --seed 7 >log.txt <in.txt\n", "seed is train.seed=7\n", ""},
        {"python --tokenizer-model <path> --seed 7\n", "seed is train.seed=7\n", ""},
        {"python --tokenizer-model 'a|b>c' --seed 7\n", "seed is train.seed=7\n", "tokenizer_model is not used"},
        {"DATA_ARGS=(\n --seed 7 # of ours (a test)\n --lr 1e-4\n)\n" OVERLAP "${DATA_ARGS[@]}\n", IS_ON, "lr is optimizer.lr=1e-4\n"},
        {"DATA_ARGS=(--seed 7)\n" OVERLAP "\"${DATA_ARGS[@]}\" --lr 1e-4", IS_ON, "seed is train.seed=7\n"},
        {"DATA_ARGS=\"\n --seed 7\n\"\n" OVERLAP "$DATA_ARGS\n", IS_ON, "seed is train.seed=7\n"},
        {"SEED_ARG=--seed\n" OVERLAP "$SEED_ARG 7\n", IS_ON, "seed is train.seed=7\n"},
        {"NONE=\n" OVERLAP "$NONE\n", IS_ON, ""},
        {"SEEDS=(7)\npython --seed ${SEEDS[@]}\n", "seed is train.seed=7\n", ""},
        {"if [ -n \"$S\" ]; then\n  T=\"--train-samples 80\"\nelse\n  T=\"--train-iters 10\"\nfi\npython --global-batch-size 8 $T\n", "train_iters is train.steps=10\n",
         ":2: train_samples and train_iters are both in the script: Megatron-LM takes one of the two"},
        {"N=\"$(nvidia-smi --list-gpus | wc -l)\"\npython --seed 7 --tokenizer-model $N", "seed is train.seed=7\n", "tokenizer_model is not used"},
        {OVERLAP "$DATA_ARGS\n", IS_ON, ":1: $DATA_ARGS is not used: it is not set here, and arguments in it are not read"},
        {OVERLAP "\"$@\"\n", IS_ON, ":1: $@ is not used: it is not set here"},
        {"python --bf16 ${MODEL_ARGS[@]}\n", "bf16 is precision.compute=bf16\n", ":1: ${MODEL_ARGS[@]} is not used"},
        {"MORE=$@\npython --seed 7 $MORE\n", "seed is train.seed=7\n", ":2: $MORE is not used: it is not set here"},
        {"python --global-batch-size ${GBS:-128}\n", "global_batch_size is train.global_batch=128\n", ""},
        {"python --global-batch-size=\"${GBS:-${BATCH-64}}\"\n", "global_batch_size is train.global_batch=64\n", ""},
        {"GBS=${GBS:-128}\npython --global-batch-size $GBS\n", "global_batch_size is train.global_batch=128\n", ""},
        {"GBS=256\npython --global-batch-size ${GBS:-128}\n", "global_batch_size is train.global_batch=256\n", ""},
        {"MODE=${1:-a}; N=$(nvidia-smi -L | wc -l)\npython --nproc_per_node $N --seed 7\n", "seed is train.seed=7\n", ""},
        {"export A=1 GBS=256; python --global-batch-size $GBS --seed 7", "global_batch_size is train.global_batch=256\n", "seed is train.seed=7\n"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, ORTH_TOOL_megatron, cases[i].text, "", &lines);
        if (!strstr(lines.text, cases[i].line) || !strstr(lines.text, cases[i].other))
            fail_msg("%s: wanted '%s' and '%s' in\n%s", cases[i].text, cases[i].line, cases[i].other, lines.text);
        orth_config_release(ctx, &c);
    }
    file_fails(ctx, ORTH_TOOL_megatron, "python --global-batch-size ${GBS}\n",
               "global_batch_size=${GBS}: it is a word of the shell, whose value is not known here: give train.global_batch");
    file_fails(ctx, ORTH_TOOL_megatron, "GBS=$1\npython --global-batch-size ${GBS:-8}\n",
               "global_batch_size=${GBS:-8}: it is a word of the shell, whose value is not known here");
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_script_of_megatron_becomes_the_keys_that_mean_the_same),
        cmocka_unit_test(recipes_of_megatron_are_quantised_products),
        cmocka_unit_test(one_run_in_the_words_of_megatron_and_of_nemo_is_one_configuration),
        cmocka_unit_test(arguments_without_a_file_have_the_defaults_of_megatron),
        cmocka_unit_test(what_a_run_file_says_is_not_replaced_by_a_default_of_megatron),
        cmocka_unit_test(arguments_of_megatron_that_cannot_be_are_refused_with_key_and_rule),
        cmocka_unit_test(words_of_the_shell_behind_a_key_are_not_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
