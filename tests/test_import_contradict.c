/* test_import_contradict.c -- two keys of another program's configuration that say different things of one setting. */
#include "import_case.h"

#define ZERO(words) "{\"zero_optimization\": {" words "}}"
#define FSDP_OF(words) "distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {" words "}\n"

/* Whatever the order of the keys. */
TEST(keys_that_say_different_things_are_refused_and_those_of_which_one_prevails_are_not)
{
    static const struct {
        orth_tool tool;
        const char *text;    /* of Megatron-LM: the words themselves */
        const char *message; /* NULL: it is read, and says `line` */
        const char *line;
    } cases[] = {
        {ORTH_TOOL_accelerate, FSDP_OF("fsdp_reshard_after_forward: false, fsdp_sharding_strategy: FULL_SHARD"),
         "fsdp_config.fsdp_reshard_after_forward=false and fsdp_config.fsdp_sharding_strategy=FULL_SHARD contradict each other: one is parallel.zero=2, the other 3", NULL},
        {ORTH_TOOL_accelerate, FSDP_OF("fsdp_sharding_strategy: FULL_SHARD, fsdp_reshard_after_forward: false"),
         "fsdp_config.fsdp_sharding_strategy=FULL_SHARD and fsdp_config.fsdp_reshard_after_forward=false contradict each other: one is parallel.zero=3, the other 2", NULL},
        {ORTH_TOOL_accelerate, FSDP_OF("fsdp_sharding_strategy: HYBRID_SHARD_ZERO2, fsdp_reshard_after_forward: true"), "one is parallel.zero=3, the other 2", NULL},
        {ORTH_TOOL_accelerate, FSDP_OF("fsdp_sharding_strategy: FULL_SHARD, fsdp_reshard_after_forward: true"), NULL, "is parallel.zero=3"},
        {ORTH_TOOL_accelerate, FSDP_OF("fsdp_sharding_strategy: HYBRID_SHARD, fsdp_reshard_after_forward: FULL_SHARD"), NULL, "is parallel.zero=3"},
        {ORTH_TOOL_accelerate, FSDP_OF("fsdp_version: 2, fsdp_reshard_after_forward: false, fsdp_sharding_strategy: FULL_SHARD"), NULL,
         "fsdp_sharding_strategy is not used: Accelerate goes by fsdp_config.fsdp_reshard_after_forward"},
        {ORTH_TOOL_accelerate, FSDP_OF("fsdp_sharding_strategy: FULL_SHARD, fsdp_reshard_after_forward: false, fsdp_version: 2"), NULL,
         "fsdp_sharding_strategy is not used: Accelerate goes by fsdp_config.fsdp_reshard_after_forward"},
        {ORTH_TOOL_accelerate, "gradient_clipping: 1.0\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2, gradient_clipping: 0.5}\n",
         "one is train.clip_norm=1, the other 0.5", NULL},
        {ORTH_TOOL_deepspeed, ZERO("\"stage\": 2, \"cpu_offload\": true, \"offload_optimizer\": {\"device\": \"none\"}"),
         "zero_optimization.cpu_offload=true and zero_optimization.offload_optimizer.device=none contradict each other: one is memory.offload_optimizer=host, the other none",
         NULL},
        {ORTH_TOOL_deepspeed, ZERO("\"offload_optimizer\": {\"device\": \"cpu\"}, \"cpu_offload\": false, \"stage\": 2"), "contradict each other", NULL},
        {ORTH_TOOL_deepspeed, ZERO("\"stage\": 2, \"cpu_offload\": true, \"offload_optimizer\": {\"device\": \"cpu\"}"), NULL, "memory.offload_optimizer=host"},
        {ORTH_TOOL_deepspeed, ZERO("\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/a\"}, \"offload_param\": "
                                   "{\"device\": \"nvme\", \"nvme_path\": \"/b\"}"),
         "zero_optimization.offload_optimizer.nvme_path=/a and zero_optimization.offload_param.nvme_path=/b contradict each other: one is memory.offload_dir=", NULL},
        {ORTH_TOOL_deepspeed, ZERO("\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/a\"}, \"offload_param\": "
                                   "{\"device\": \"nvme\", \"nvme_path\": \"/a\"}"), NULL, "memory.offload_dir=/a"},
        {ORTH_TOOL_deepspeed, ZERO("\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/a\"}, \"offload_param\": "
                                   "{\"device\": \"cpu\", \"nvme_path\": \"/b\"}"), NULL, "offload_param.nvme_path is not used: DeepSpeed goes by"},
        {ORTH_TOOL_deepspeed, ZERO("\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"nvme_path\": \"/b\"}, \"offload_optimizer\": "
                                   "{\"device\": \"nvme\", \"nvme_path\": \"/a\"}"), NULL, "offload_optimizer.nvme_path is memory.offload_dir=/a"},
        {ORTH_TOOL_deepspeed, ZERO("\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"nvme_path\": \"/b\"}, \"offload_optimizer\": "
                                   "{\"device\": \"cpu\", \"nvme_path\": \"/a\"}"), NULL, "offload_param.nvme_path is not used: DeepSpeed goes by"},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": false}, \"bfloat16\": {\"enabled\": true}}",
         "bfloat16.enabled=true and bf16.enabled=false contradict each other: one is precision.compute=bf16, the other not", NULL},
        {ORTH_TOOL_deepspeed, "{\"bfloat16\": {\"enabled\": false}, \"bf16\": {\"enabled\": true}}",
         "bf16.enabled=true and bfloat16.enabled=false contradict each other: one is precision.compute=bf16, the other not", NULL},
        {ORTH_TOOL_deepspeed, "{\"bfloat16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}", NULL, "precision.compute=bf16"},
        {ORTH_TOOL_deepspeed, "{\"bfloat16\": {\"enabled\": \"auto\"}, \"bf16\": {\"enabled\": true}}", NULL, "precision.compute=bf16"},
        {ORTH_TOOL_deepspeed, "{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": false}}", NULL, "precision.compute=fp16"},
        {ORTH_TOOL_deepspeed, "{\"communication_data_type\": \"fp32\", \"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true}}", NULL,
         "communication_data_type is not used: DeepSpeed goes by zero_optimization.zero_quantized_gradients"},
        {ORTH_TOOL_megatron, "--use-torch-fsdp2 --use-distributed-optimizer",
         "use_torch_fsdp2=true and use_distributed_optimizer=true contradict each other: one is parallel.zero=3, the other 1", NULL},
        {ORTH_TOOL_megatron, "--bf16 --fp4-format e2m1 --fp8-format hybrid", "one is precision.products=nvfp4, the other fp8_delayed", NULL},
        {ORTH_TOOL_megatron, "--lr-warmup-iters 10 --lr-warmup-fraction 0.01 --train-iters 5000", "one is schedule.warmup_steps=10, the other 50", NULL},
        {ORTH_TOOL_megatron, "--lr-warmup-iters 0 --lr-warmup-fraction 0.01 --train-iters 5000", NULL, "schedule.warmup_steps=50"},
        {ORTH_TOOL_megatron, "--lr-warmup-fraction 0.01 --lr-warmup-samples 0 --train-iters 5000", NULL, "schedule.warmup_steps=50"},
        {ORTH_TOOL_megatron, "--lr-warmup-iters 10 --lr-warmup-samples 0 --train-iters 5000", NULL, "schedule.warmup_steps=10"},
        {ORTH_TOOL_megatron, "--data-parallel-sharding-strategy optim_grads --use-distributed-optimizer", NULL,
         "use_distributed_optimizer is not used: Megatron-LM goes by data_parallel_sharding_strategy"},
        {ORTH_TOOL_megatron, "--recompute-granularity full --recompute-activations", NULL, "recompute_granularity is not used: Megatron-LM goes by recompute_activations"},
        {ORTH_TOOL_megatron, "--cpu-offloading-num-layers 0 --fine-grained-activation-offloading", NULL, "is memory.offload_activations=host"},
        {ORTH_TOOL_megatron, "--lr 1e-3 --lr 2e-3", NULL, "lr is optimizer.lr=2e-3"}, /* the parser of arguments takes the last, too */
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        const bool words = cases[i].tool == ORTH_TOOL_megatron;
        orth_config c;
        said lines;
        if (cases[i].message && words) {
            fails(ctx, cases[i].tool, cases[i].text, cases[i].message);
        } else if (cases[i].message) {
            file_fails(ctx, cases[i].tool, cases[i].text, cases[i].message);
        } else {
            import_beside(ctx, &c, cases[i].tool, cases[i].text, "", &lines);
            if (!strstr(lines.text, cases[i].line) || strstr(lines.text, "contradict"))
                fail_msg("%s: wanted '%s' in\n%s", cases[i].text, cases[i].line, lines.text);
            orth_config_release(ctx, &c);
        }
    }
    test_ctx_free(ctx);
}

/* Of a script all branches are read; and what the command line says is not asked of the file. */
TEST(keys_of_a_script_that_contradict_each_other_are_said_and_those_beside_the_command_line_are_not)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    said lines;
    import_beside(ctx, &c, ORTH_TOOL_megatron, "--use-torch-fsdp2 --use-distributed-optimizer", "", &lines);
    assert_non_null(strstr(lines.text, "contradict each other: one is parallel.zero=3, the other 1; all branches of a script are read here, and the last counts"));
    assert_int_equal(c.parallel_zero, ORTH_parallel_zero_1);
    orth_config_release(ctx, &c);
    import_beside(ctx, &c, ORTH_TOOL_accelerate, FSDP_OF("fsdp_reshard_after_forward: false, fsdp_sharding_strategy: FULL_SHARD"), "parallel.zero=2", &lines);
    assert_int_equal(c.parallel_zero, ORTH_parallel_zero_2);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_say_different_things_are_refused_and_those_of_which_one_prevails_are_not),
        cmocka_unit_test(keys_of_a_script_that_contradict_each_other_are_said_and_those_beside_the_command_line_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
