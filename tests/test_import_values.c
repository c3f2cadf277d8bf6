/* test_import_values.c -- values that no key takes, in configurations of other programs: each is refused with file, key, value and rule. A key that
 * changes nothing is said not to be used. */
#include "import_case.h"

typedef struct {
    orth_tool tool;
    const char *text;    /* of Megatron-LM: the words themselves */
    const char *message;
} refused;

static void all_fail(const refused *cases, int num)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < num; i++) {
        if (cases[i].tool == ORTH_TOOL_megatron)
            fails(ctx, cases[i].tool, cases[i].text, cases[i].message);
        else
            file_fails(ctx, cases[i].tool, cases[i].text, cases[i].message);
    }
    test_ctx_free(ctx);
}

/* C reads 0x10, 1e1, nan and inf as numbers, PyYAML reads 010 as eight, and each program has its own idea of the rest. */
TEST(a_number_of_another_program_is_decimal_and_a_whole_one_has_digits_only)
{
    static const refused cases[] = {
        {ORTH_TOOL_megatron, "--num-layers 1e1", "--megatron: num_layers: model.layers=1e1: must be a whole number, written in digits"},
        {ORTH_TOOL_megatron, "--fp16 --loss-scale-window 1.5", "loss_scale_window: precision.loss_scale_interval=1.5: must be a whole number"},
        {ORTH_TOOL_megatron, "--fp16 --loss-scale-window 0x10", "loss_scale_window: precision.loss_scale_interval=0x10: must be a whole number"},
        {ORTH_TOOL_megatron, "--tensor-model-parallel-size $TP",
         "tensor_model_parallel_size=$TP: it is a word of the shell, whose value is not known here: give parallel.tp on the command line"},
        {ORTH_TOOL_megatron, "--lr-decay-style $STYLE", "lr_decay_style=$STYLE: it is a word of the shell, whose value is not known here: give schedule.name"},
        {ORTH_TOOL_megatron, "--seed +7", "seed: train.seed=+7: must be a whole number, written in digits"},
        {ORTH_TOOL_megatron, "--micro-batch-size null", "micro_batch_size: train.micro_batch=null: must be a whole number, written in digits"},
        {ORTH_TOOL_megatron, "--ddp-bucket-size 0x10", "ddp_bucket_size=0x10: must be a number of elements"},
        {ORTH_TOOL_megatron, "--ddp-bucket-size 1e6", "ddp_bucket_size=1e6: must be a number of elements"},
        {ORTH_TOOL_megatron, "--train-samples 1e3", "train_samples=1e3: must be a whole number, written in digits"},
        {ORTH_TOOL_megatron, "--train-samples 10000000000000000", "train_samples=10000000000000000: must be at most 1e+15"},
        {ORTH_TOOL_megatron, "--train-iters 1000 --lr-warmup-fraction 0x1", "lr_warmup_fraction=0x1: must be a number of at least 0"},
        {ORTH_TOOL_megatron, "--train-iters 1000 --lr-warmup-fraction 1e14", "lr_warmup_fraction=1e14: must be at most 1"},
        {ORTH_TOOL_megatron, "--lr 1 --min-lr 0x0", "min_lr=0x0: must be a number of at least 0"},
        {ORTH_TOOL_megatron, "--adam-beta1 '0.9, 0.5'", "adam_beta1=0.9, 0.5: must be a number of at least 0"},
        {ORTH_TOOL_deepspeed, "{\"gradient_accumulation_steps\": \"0x4\", \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1}",
         "gradient_accumulation_steps=0x4: must be a number of at least 1"},
        {ORTH_TOOL_deepspeed, "{\"train_batch_size\": \"1e1\"}", "train_batch_size: train.global_batch=1e1: must be a whole number, written in digits"},
        {ORTH_TOOL_deepspeed, "{\"train_batch_size\": \"None\"}", "train_batch_size: train.global_batch=null: must be a whole number, written in digits"},
        {ORTH_TOOL_deepspeed, "{\"train_batch_size\": \"\"}", "train_batch_size: train.global_batch=: must be a whole number, written in digits"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"0x10\"}}",
         "zero_optimization.reduce_bucket_size=0x10: must be a number of elements"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"stage3_prefetch_bucket_size\": 1.5}}",
         "zero_optimization.stage3_prefetch_bucket_size=1.5: must be a whole number, written in digits"},
        {ORTH_TOOL_deepspeed, "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 5000}}", "fp16.initial_scale_power=5000: must be at most 100"},
        {ORTH_TOOL_accelerate, "num_processes: 1e1\n", "num_processes: parallel.dp=1e1: must be a whole number, written in digits"},
        {ORTH_TOOL_accelerate, "num_processes: 010\n", "num_processes: parallel.dp=010: begins with 0, and YAML reads it as octal"},
        {ORTH_TOOL_accelerate, "gradient_clipping: 010\n", "gradient_clipping: train.clip_norm=010: begins with 0, and YAML reads it as octal"},
        {ORTH_TOOL_accelerate, "num_processes: [[8]]\n", "-import:1:16: num_processes: parallel.dp=[...]: must be a whole number, written in digits"},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: {fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 1e8}\n",
         "fsdp_min_num_params=1e8: must be a whole number, written in digits"},
        {ORTH_TOOL_nemo, "model: {num_layers: [{a: 1}]}\n", "model.num_layers: model.layers=[...]: must be a whole number, written in digits"},
    };
    all_fail(cases, ORTH_COUNT(cases));
}

TEST(numbers_that_their_programs_take_are_taken)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    open_import(ctx, &c, ORTH_TOOL_megatron, "--lr 1e-4 --min-lr 1e-5 --clip-grad .5 --global-batch-size 016 --train-samples 160 --lr-warmup-fraction 1.e-1");
    assert_true(c.optimizer_lr == 1e-4 && c.train_clip_norm == 0.5 && c.train_global_batch == 16 && c.train_steps == 10 && c.schedule_warmup_steps == 1);
    orth_config_release(ctx, &c);
    open_import(ctx, &c, ORTH_TOOL_megatron, "--fp16 --loss-scale-window 500.0 --eval-interval 100 --eval-iters 0");
    assert_true(c.precision_loss_scale_interval == 500 && c.train_eval_every == 0);
    orth_config_release(ctx, &c);
    open_import(ctx, &c, ORTH_TOOL_megatron, "--fp16 --loss-scale-window 1e3 --eval-iters 5 --eval-interval 100");
    assert_true(c.precision_loss_scale_interval == 1000 && c.train_eval_every == 100 && c.train_eval_batches == 5);
    orth_config_release(ctx, &c);
    import_text(ctx, &c, ORTH_TOOL_deepspeed, "{\"train_batch_size\": 1.6e1, "
                "\"gradient_clipping\": \"1e-1\", \"zero_optimization\": {\"reduce_bucket_size\": 5e8}}");
    assert_true(c.train_global_batch == 16 && c.train_clip_norm == 0.1 && c.comm_bucket_mb == 1908);
    orth_config_release(ctx, &c);
    import_text(ctx, &c, ORTH_TOOL_nemo, "trainer: {max_steps: 100_000, gradient_clip_val: 1_0.5}\n"
                "model: {num_layers: 2, hidden_size: 1_024_, num_attention_heads: 4}\n");
    assert_true(c.train_steps == 100000 && c.train_clip_norm == 10.5 && c.model_hidden == 1024);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(a_value_of_another_kind_is_refused_with_file_key_value_and_rule)
{
    static const refused cases[] = {
        {ORTH_TOOL_megatron, "--num-layers 2 --swiglu maybe", "swiglu=maybe: must be true or false"},
        {ORTH_TOOL_megatron, "--num-layers 2 --disable-bias-linear 1", "disable_bias_linear=1: must be true or false"},
        {ORTH_TOOL_megatron, "--sequence-parallel maybe", "sequence_parallel=maybe: must be true or false"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"cpu_offload\": \"yes\"}}",
         "zero_optimization.cpu_offload=yes: must be true or false"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": 1}}",
         "zero_optimization.zero_quantized_gradients=1: must be true or false"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": \"cpu\"}}",
         "zero_optimization.offload_optimizer=cpu: must be a section, not a value"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": [\"/a\"]}}}",
         "memory.offload_dir=[\"/a\"]: takes one value, not a list"},
        {ORTH_TOOL_deepspeed, "{\"optimizer\": \"AdamW\"}", "-import: optimizer=AdamW: must be a section, not a value"},
        {ORTH_TOOL_deepspeed, "{\"scheduler\": []}", "-import: scheduler=[]: must be a section, not a value"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3}, \"zero_optimization.stage\": 1}",
         "zero_optimization.stage=1: is given twice, in a section and by a name with dots"},
        {ORTH_TOOL_deepspeed, "{\"activation_checkpointing\": {\"cpu_checkpointing\": \"yes\"}}",
         "activation_checkpointing.cpu_checkpointing=yes: must be true or false"},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: 3\n", "-import:2:14: fsdp_config=3: must be a section, not a value"},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\nfsdp_config.fsdp_sharding_strategy: NO_SHARD\n",
         "fsdp_config.fsdp_sharding_strategy=NO_SHARD: is given twice"},
        {ORTH_TOOL_nemo, "model: {num_layers: 2, bias: maybe}\n", "model.bias=maybe: must be true or false"},
        {ORTH_TOOL_nemo, "model: {fsdp: 'yes'}\n", "model.fsdp=yes: must be true or false"}, /* a text there, as 1 is a number */
        {ORTH_TOOL_nemo, "model: {fp8: \"yes\"}\n", "model.fp8=yes: must be true or false"},
        {ORTH_TOOL_nemo, "model: {cpu_offloading: 'on'}\n", "model.cpu_offloading=on: must be true or false"},
        {ORTH_TOOL_nemo, "model: {cpu_offloading: oN}\n", "model.cpu_offloading=oN: must be true or false"},
        {ORTH_TOOL_nemo, "model: {cpu_offloading: yES}\n", "model.cpu_offloading=yES: must be true or false"},
        {ORTH_TOOL_nemo, "model: {fp8: True, fp8_wgrad: no}\n", "model.fp8_wgrad=false: gradients of weights in bf16 beside fp8"},
        {ORTH_TOOL_accelerate, "mixed_precision: yes\n", "mixed_precision=true: there are no, bf16, fp16 and fp8"},
        {ORTH_TOOL_accelerate, "mixed_precision: fp8\nfp8_config: {override_linear_precision: [false, Yes, false]}\n",
         "override_linear_precision=[false, true, false]: some products in bf16 beside fp8"},
        {ORTH_TOOL_nemo, "model: {rotary_percentage: 1.1}\n", "model.rotary_percentage=1.1: rotary positions turn the whole head: 1.0"},
        {ORTH_TOOL_nemo, "model: {hidden_size: _64}\n", "model.hidden_size: model.hidden=_64: must be a whole number, written in digits"},
        {ORTH_TOOL_nemo, "model: {hidden_size: '1_024'}\n", "model.hidden_size: model.hidden=1_024: must be a whole number, written in digits"},
        {ORTH_TOOL_nemo, "model: {ffn_dropout: 0.1}\n", "model.ffn_dropout=0.1: there is no dropout inside of the feed-forward: 0"},
        {ORTH_TOOL_nemo, "model: {optim: {betas: {a: 1}}}\n", "model.optim.betas: must be a value, not a section"},
        {ORTH_TOOL_accelerate, "num_processes: {a: 1}\n", "-import:1:20: num_processes: must be a value, not a section"},
        {ORTH_TOOL_nemo, "trainer: 8\n", "-import:1:10: trainer=8: must be a section, not a value"},
    };
    all_fail(cases, ORTH_COUNT(cases));
}

/* DeepSpeed reads Hjson. */
TEST(a_configuration_of_deepspeed_may_have_comments_and_commas_at_ends)
{
    static const char *const texts[] = {
        "# of a team\n{\"train_batch_size\": 16, // all\n /* one\n   more, }*/ \"gradient_clipping\": 0.5,\n}\n",
        "\xef\xbb\xbf{\"train_batch_size\": 16, \"gradient_clipping\": 0.5}",
        "{\"#\": \"//, ]\", \"a\": \"\\\"/*\", \"train_batch_size\": 16, \"gradient_clipping\": 0.5, \"b\": [1, 2, /* */ ], } // no newline",
    };
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    for (int i = 0; i < ORTH_COUNT(texts); i++) {
        import_text(ctx, &c, ORTH_TOOL_deepspeed, texts[i]);
        assert_true(c.train_global_batch == 16 && c.train_clip_norm == 0.5);
        orth_config_release(ctx, &c);
    }
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"/* \xc3\xa9\xc3\xa9\n */ {\"a\": /* \xc3\xa9 */ x}", "-import:2:19: not valid JSON: "}, /* a letter of two bytes is one column */
        {"{\"a\": 1,\n\n \"b\": 2,,}", "-import:3:10: not valid JSON: "},
        {"{\"a\": 1} /* no end", "not valid JSON: "},
        {"{\"a\": \"no end, }", "not valid JSON: "},
        {"{\"a\": 1 // , \"b\": 2}", "not valid JSON: "},
        {"\xef\xbb\xbf", "-import: is empty"},
        {"# nothing", "not valid JSON: "},
    };
    for (int i = 0; i < ORTH_COUNT(wrong); i++) {
        char path[128];
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        CHECK_FAILS(ctx, ORTH_ERR_DATA, wrong[i].message, orth_import(ctx, &c, ORTH_TOOL_deepspeed, import_file(ctx, wrong[i].text, path), 0));
        unlink(path);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* PyYAML reads YAML 1.1, where these are booleans unless they are in quotes. */
TEST(words_for_true_and_false_in_yaml_are_switches)
{
    static const char *const on[] = {"yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"};
    static const char *const off[] = {"no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"};
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    char text[128];
    for (int i = 0; i < 2 * ORTH_COUNT(on); i++) {
        const bool is_on = i < ORTH_COUNT(on);
        const char *word = is_on ? on[i] : off[i - ORTH_COUNT(on)];
        snprintf(text, sizeof text, "model: {cpu_offloading: %s, fsdp: %s}\n", word, word);
        import_text(ctx, &c, ORTH_TOOL_nemo, text);
        assert_int_equal(c.memory_offload_activations, is_on ? ORTH_memory_offload_activations_host : ORTH_memory_offload_activations_none);
        assert_int_equal(c.parallel_zero, is_on ? ORTH_parallel_zero_3 : ORTH_parallel_zero_0);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* `no` of the keys whose word it is stays one. */
TEST(mixed_precision_of_accelerate_may_be_no_or_false)
{
    static const char *const words[] = {"no", "'no'", "No", "false", "False", "off"};
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    char text[128];
    for (int i = 0; i < ORTH_COUNT(words); i++) {
        snprintf(text, sizeof text, "distributed_type: NO\ndowncast_bf16: no\nmixed_precision: %s\n", words[i]);
        import_text(ctx, &c, ORTH_TOOL_accelerate, text);
        assert_true(ORTH_CONFIG_IS_SET(&c, precision, compute) && c.precision_compute == ORTH_precision_compute_fp32);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(a_key_that_changes_nothing_is_said_not_to_be_used)
{
    static const struct {
        orth_tool tool;
        const char *text, *keys, *line;
    } cases[] = {
        {ORTH_TOOL_accelerate, "num_machines: 2\n", "", "num_machines is not used: no number depends on the machines without HYBRID_SHARD"},
        {ORTH_TOOL_megatron, "--cpu-offloading-num-layers inf --num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 128", "",
         "cpu_offloading_num_layers is not used: the activations of inf of 8"},
        {ORTH_TOOL_megatron, "--vocab-size many", "", "vocab_size is not used: the number of layers is not given"},
        {ORTH_TOOL_megatron, "--min-lr 1e-5", "", "min_lr is not used: the learning rate is not given"},
        {ORTH_TOOL_megatron, "--lr-wsd-decay-iters 10", "", "lr_wsd_decay_iters is not used: the schedule is not wsd"},
        {ORTH_TOOL_megatron, "--fp8-recipe mxfp8", "", "fp8_recipe is not used: fp8_format is not given"},
        {ORTH_TOOL_megatron, "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-amax-history-len 16", "",
         "fp8_amax_history_len is not used: only delayed scaling has a history"},
        {ORTH_TOOL_megatron, "--fp16 --loss-scale 8 --initial-loss-scale 16", "", "initial_loss_scale is not used: the loss scale is a fixed one"},
        {ORTH_TOOL_megatron, "--cp-comm-type a2a", "", "cp_comm_type is not used: there is no context parallelism"},
        {ORTH_TOOL_megatron, "--optimizer sgd --adam-beta1 0.8", "", "adam_beta1 is not used: SGD has no such moments"},
        {ORTH_TOOL_megatron, "--adam-beta1 0.8", "", "adam_beta1 is optimizer.betas=[0.8, 0.999]"},
        {ORTH_TOOL_deepspeed, "{\"scheduler\": {\"params\": {\"warmup_num_steps\": 5}}}", "",
         "scheduler.params.warmup_num_steps is not used: no schedule is given"},
        {ORTH_TOOL_deepspeed, "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"cos_min_ratio\": 0.1}}}", "",
         "scheduler.params.cos_min_ratio is not used: only WarmupCosineLR has it"},
        {ORTH_TOOL_deepspeed, "{\"optimizer\": \"auto\", \"scheduler\": \"auto\", \"train_batch_size\": \"auto\"}", "", "optimizer is not used: it is auto"},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_min_num_params: 1000}\n", "",
         "fsdp_min_num_params is not used: fsdp_auto_wrap_policy is not given"},
        {ORTH_TOOL_accelerate, "gpu_ids: all\n", "", "gpu_ids is not used: who starts the run says which devices"},
        {ORTH_TOOL_accelerate, "enable_cpu_affinity: false\n", "", "enable_cpu_affinity is not used: who starts the run binds its processes"},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: {fsdp_cpu_offload_pin_memory: true}\n", "",
         "fsdp_cpu_offload_pin_memory is not used: copies are between parts of one memory"},
        {ORTH_TOOL_accelerate, "num_processes: 2\ngradient_accumulation_steps: 4\n", "train.micro_batch=3",
         "gradient_accumulation_steps is train.global_batch=24"},
        {ORTH_TOOL_accelerate, "num_processes: 2\ngradient_accumulation_steps: 4\n", "", "gradient_accumulation_steps is not used: train.micro_batch is not"},
        {ORTH_TOOL_accelerate, "use_cpu: no\n", "", "use_cpu is not used: the plan is for the devices of --cluster"},
        {ORTH_TOOL_accelerate, "downcast_bf16: no\n", "", "downcast_bf16 is not used: it is of TPUs"},
        {ORTH_TOOL_accelerate, "mixed_precision: fp8\nfp8_config: {override_linear_precision: [False, no, false]}\n", "",
         "override_linear_precision is not used: all three products of a linear map are fp8"},
        {ORTH_TOOL_nemo, "model: {ffn_dropout: 0.}\n", "", "model.ffn_dropout is not used: there is none here"},
        {ORTH_TOOL_nemo, "model: {ffn_dropout: .0}\n", "", "model.ffn_dropout is not used: there is none here"},
        {ORTH_TOOL_nemo, "model: {ffn_dropout: 0.00}\n", "", "model.ffn_dropout is not used: there is none here"},
        {ORTH_TOOL_nemo, "model: {rotary_percentage: 1}\n", "", "model.rotary_percentage is not used: it is the whole head here, too"},
        {ORTH_TOOL_megatron, "--rotary-percent 1", "", "rotary_percent is not used: it is the whole head here, too"},
        {ORTH_TOOL_nemo, "trainer: {max_steps: -1}\n", "", "trainer.max_steps is not used: -1 is no limit: give train.steps"},
        {ORTH_TOOL_megatron, "--eval-iters 0", "", "eval_iters is train.eval_every=0"},
        {ORTH_TOOL_megatron, "--eval-interval 100 --eval-iters 0", "", "eval_interval is not used: Megatron-LM goes by eval_iters"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 1e14}}", "",
         "sub_group_size is memory.offload_sub_group=1000000000000, the most that it takes"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 1e18}}", "",
         "sub_group_size is memory.offload_sub_group=1000000000000, the most that it takes"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 1e12}}", "",
         "sub_group_size is memory.offload_sub_group=1000000000000\n"},
        {ORTH_TOOL_nemo, "model: {data: {data_prefix: [[1, a]]}, num_layers: 2, hidden_size: 64, num_attention_heads: 4}\n", "", "data_prefix is not used"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, cases[i].tool, cases[i].text, cases[i].keys, &lines);
        if (!strstr(lines.text, cases[i].line))
            fail_msg("%s: wanted '%s' in\n%s", cases[i].text, cases[i].line, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* Megatron-LM's default of one moment does not count beside those of a run file. */
TEST(one_moment_of_megatron_keeps_the_other_of_a_run_file)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "run.yaml:2:1", "optimizer.betas", "[0.8, 0.7]"));
    CHECK_OK(ctx, orth_import(ctx, &c, ORTH_TOOL_megatron, "--adam-beta1 0.6", 0));
    assert_true(c.optimizer_betas.v[0] == 0.6 && c.optimizer_betas.v[1] == 0.7);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_of_another_program_is_decimal_and_a_whole_one_has_digits_only),
        cmocka_unit_test(numbers_that_their_programs_take_are_taken),
        cmocka_unit_test(a_value_of_another_kind_is_refused_with_file_key_value_and_rule),
        cmocka_unit_test(a_configuration_of_deepspeed_may_have_comments_and_commas_at_ends),
        cmocka_unit_test(words_for_true_and_false_in_yaml_are_switches),
        cmocka_unit_test(mixed_precision_of_accelerate_may_be_no_or_false),
        cmocka_unit_test(a_key_that_changes_nothing_is_said_not_to_be_used),
        cmocka_unit_test(one_moment_of_megatron_keeps_the_other_of_a_run_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
