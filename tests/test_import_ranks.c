/* test_import_ranks.c -- what configurations of other programs say of ranks: how many there are, the batch of each, and what they shard, gather and
 * reduce. */
#include "import_case.h"

/* ---- how many, and their batches ---- */

TEST(the_cluster_gives_the_ranks_where_nothing_else_does)
{
    static const struct {
        const char *text;
        int64_t tp, dp, batch; /* batch 0: the default */
    } cases[] = {{"{\"zero_optimization\": {\"stage\": 2}}", 1, 8, 0},
                 {"{\"zero_optimization\": {\"stage\": 1}}", 2, 4, 0},
                 {"{\"zero_optimization\": {\"stage\": 1}}", 3, 1, 0}, /* does not divide: told later */
                 {"{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 3}", 1, 8, 48},
                 {"{\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 3}", 1, 4, 24}};
    orth_ctx *ctx = test_ctx(1);
    char path[128];
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        c.parallel_tp = cases[i].tp;
        CHECK_OK(ctx, orth_import(ctx, &c, ORTH_TOOL_deepspeed, import_file(ctx, cases[i].text, path), 8));
        assert_int_equal(c.parallel_dp, cases[i].dp);
        assert_true(cases[i].batch == 0 || c.train_global_batch == cases[i].batch);
        orth_config_release(ctx, &c);
    }
    unlink(path);
    test_ctx_free(ctx);
}

TEST(accumulation_steps_of_deepspeed_decide_the_batch_or_are_said_not_to)
{
    static const struct {
        const char *text, *keys;
        int64_t batch, dp;
        const char *line;
    } cases[] = {
        {"{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 4}", "parallel.dp=8", 32, 8, "is train.global_batch=32"},
        {"{\"gradient_accumulation_steps\": 4}", "parallel.dp=2 train.micro_batch=3", 24, 2, "is train.global_batch=24"},
        {"{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 4}", "parallel.dp=8 train.global_batch=64", 64, 8,
         "gradient_accumulation_steps is not used: steps follow from"},
        {"{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 4}", "", 8, 1, "is not used: the number of ranks is not given"},
        {"{\"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": 4}", "parallel.dp=8", 8, 8,
         "is not used: train.micro_batch is not given"},
        {"{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 4}", "parallel.dp=2", 16, 2,
         "is not used: the command line gives parallel.dp"},
        {"{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 2}", "parallel.dp=8", 64, 8, "gradient_accumulation_steps is train.micro_batch=4"},
        {"{\"train_batch_size\": 64}", "parallel.dp=8", 64, 8, "no gradient accumulation is train.micro_batch=8"},
        {"{\"train_micro_batch_size_per_gpu\": 4}", "parallel.dp=8", 32, 8, "no gradient accumulation is train.global_batch=32"},
        {"{\"train_batch_size\": 64}", "", 64, 1, "is train.global_batch=64"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, ORTH_TOOL_deepspeed, cases[i].text, cases[i].keys, &lines);
        if (c.train_global_batch != cases[i].batch || c.parallel_dp != cases[i].dp || !strstr(lines.text, cases[i].line))
            fail_msg("%s %s: a batch of %lld, %lld ranks, and\n%s", cases[i].text, cases[i].keys, (long long)c.train_global_batch,
                     (long long)c.parallel_dp, lines.text);
        orth_config_release(ctx, &c);
    }
    static const char huge[] = "{\"train_micro_batch_size_per_gpu\": 1000000, \"gradient_accumulation_steps\": 1e15}";
    char path[128];
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", "parallel.dp", "8"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "must be at most 1000000000 sequences", orth_import(ctx, &c, ORTH_TOOL_deepspeed, import_file(ctx, huge, path), 0));
    orth_config_release(ctx, &c);
    static const char odd[] = "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 5}";
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "gradient_accumulation_steps=5 x 8 data-parallel ranks do not divide the batch of a step, 64",
                orth_import(ctx, &c, ORTH_TOOL_deepspeed, import_file(ctx, odd, path), 8));
    unlink(path);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* 8, the default of train.global_batch, is no multiple of 16 ranks. */
TEST(without_a_batch_of_a_step_each_rank_has_one_micro_batch)
{
    static const struct {
        orth_tool tool;
        const char *text, *keys;
        int64_t batch;
        bool is_said;
    } cases[] = {
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\n"
         "fsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n", "", 16, true},
        {ORTH_TOOL_accelerate, "distributed_type: MULTI_GPU\nnum_processes: 16\n", "train.micro_batch=2", 32, true},
        {ORTH_TOOL_accelerate, "distributed_type: MULTI_GPU\nnum_processes: 16\n", "train.global_batch=64", 64, false},
        {ORTH_TOOL_accelerate, "mixed_precision: bf16\n", "", 8, false}, /* no ranks */
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, cases[i].tool, cases[i].text, cases[i].keys, &lines);
        const bool is_said = strstr(lines.text, "no batch of a step, so one micro-batch a rank, is train.global_batch=") != NULL;
        if (c.train_global_batch != cases[i].batch || is_said != cases[i].is_said)
            fail_msg("%s %s: a batch of %lld, and\n%s", cases[i].text, cases[i].keys, (long long)c.train_global_batch, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* ---- what they shard, gather and reduce ---- */

TEST(hybrid_sharding_of_fsdp_has_a_replica_on_each_machine)
{
#define HYBRID(word) "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP\n  fsdp_sharding_strategy: " word "\n"
    static const struct {
        const char *text;
        int zero, group;
        orth_option_parallel_gather_unit unit;
    } cases[] = {
        {HYBRID("HYBRID_SHARD"), 3, 0, ORTH_parallel_gather_unit_model},
        {HYBRID("HYBRID_SHARD") "num_machines: 1\n", 3, 0, ORTH_parallel_gather_unit_model},
        {HYBRID("4") "num_machines: 2\n", 3, 4, ORTH_parallel_gather_unit_model},
        {HYBRID("HYBRID_SHARD_ZERO2") "num_machines: 4\n", 2, 2, ORTH_parallel_gather_unit_layer},
        {HYBRID("5"), 2, 0, ORTH_parallel_gather_unit_layer},
        {HYBRID("FULL_SHARD") "num_machines: 2\n", 3, 0, ORTH_parallel_gather_unit_model},
        {"distributed_type: FSDP\nnum_processes: 4\n", 3, 0, ORTH_parallel_gather_unit_layer}, /* its default */
        {"distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_reshard_after_forward: false\n", 2, 0, ORTH_parallel_gather_unit_layer},
        {"distributed_type: MULTI_GPU\nnum_processes: 4\n", 0, 0, ORTH_parallel_gather_unit_layer},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        import_text(ctx, &c, ORTH_TOOL_accelerate, cases[i].text);
        const orth_layout l = orth_setup_layout(&c);
        if (l.zero != cases[i].zero || l.shard_group != cases[i].group || c.parallel_gather_unit != cases[i].unit)
            fail_msg("%s: zero=%d shard_group=%d", cases[i].text, (int)l.zero, (int)l.shard_group);
        orth_config_release(ctx, &c);
    }
    file_fails(ctx, ORTH_TOOL_accelerate, HYBRID("HYBRID_SHARD") "num_machines: 3\n", "num_machines=3 does not divide the data-parallel ranks, parallel.dp=8");
    file_fails(ctx, ORTH_TOOL_accelerate, "distributed_type: MULTI_GPU\nnum_processes: 7\nnum_machines: 2\n",
               "num_machines=2 does not divide the data-parallel ranks, parallel.dp=7");
    file_fails(ctx, ORTH_TOOL_accelerate, HYBRID("SOME"), "fsdp_sharding_strategy=SOME: there are FULL_SHARD, SHARD_GRAD_OP");
    file_fails(ctx, ORTH_TOOL_accelerate, "distributed_type: TPU\n", "distributed_type=TPU: a run on devices that there are not here");
    test_ctx_free(ctx);
}

TEST(what_deepspeed_says_of_gathered_parameters_counts_under_stage_3)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    import_text(ctx, &c, ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, \"stage3_max_live_parameters\": 5e8, "
                "\"stage3_prefetch_bucket_size\": 1048576, \"stage3_param_persistence_threshold\": 100}}");
    assert_true(c.parallel_max_live == 500000000 && c.parallel_max_reuse_distance == 1000000000 && c.parallel_keep_whole == 100);
    assert_true(c.comm_prefetch == 1000 && c.comm_prefetch_elems == 1048576);
    orth_config_release(ctx, &c);
    import_text(ctx, &c, ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"stage3_max_live_parameters\": 10, \"stage3_max_reuse_distance\": 0, "
                "\"stage3_prefetch_bucket_size\": 0}}");
    assert_true(c.parallel_max_live == 10 && c.parallel_max_reuse_distance == 0 && c.comm_prefetch == 0 && c.comm_prefetch_elems == 0);
    orth_config_release(ctx, &c);
    import_text(ctx, &c, ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 2, \"stage3_max_live_parameters\": 10, \"stage3_max_reuse_distance\": 10, "
                "\"stage3_prefetch_bucket_size\": 10}}");
    assert_true(c.parallel_max_live == 0 && c.parallel_max_reuse_distance == 0 && c.comm_prefetch == 1 && c.comm_prefetch_elems == 0);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(what_fsdp_wraps_is_gathered_together)
{
#define FULL "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_auto_wrap_policy: "
    static const struct {
        const char *text;
        orth_option_parallel_gather_unit unit;
        int64_t size;
    } cases[] = {
        {FULL "TRANSFORMER_BASED_WRAP\n", ORTH_parallel_gather_unit_layer, 0},
        {FULL "TRANSFORMER_BASED_WRAP\n  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n", ORTH_parallel_gather_unit_layer, 0},
        {FULL "TRANSFORMER_BASED_WRAP\n  fsdp_transformer_layer_cls_to_wrap: LlamaAttention, LlamaMLP\n", ORTH_parallel_gather_unit_half, 0},
        {FULL "TRANSFORMER_BASED_WRAP\n  fsdp_min_num_params: 2000\n", ORTH_parallel_gather_unit_layer, 0},
        {FULL "SIZE_BASED_WRAP\n  fsdp_min_num_params: 2000\n", ORTH_parallel_gather_unit_elements, 2000},
        {FULL "SIZE_BASED_WRAP\n", ORTH_parallel_gather_unit_elements, 100000000},
        {FULL "NO_WRAP\n", ORTH_parallel_gather_unit_model, 0},
        {"distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_auto_wrap_policy: NO_WRAP}\n", ORTH_parallel_gather_unit_layer, 0},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        import_text(ctx, &c, ORTH_TOOL_accelerate, cases[i].text);
        if (c.parallel_gather_unit != cases[i].unit || c.parallel_gather_size != cases[i].size)
            fail_msg("%s: unit %d of %lld", cases[i].text, (int)c.parallel_gather_unit, (long long)c.parallel_gather_size);
        orth_config_release(ctx, &c);
    }
    file_fails(ctx, ORTH_TOOL_accelerate, FULL "SOME\n", "fsdp_auto_wrap_policy=SOME: there are TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP and NO_WRAP");
    file_fails(ctx, ORTH_TOOL_accelerate, FULL "TRANSFORMER_BASED_WRAP\n  fsdp_transformer_layer_cls_to_wrap: LlamaMLP,NoSuchClass\n",
               "fsdp_transformer_layer_cls_to_wrap=LlamaMLP,NoSuchClass: NoSuchClass is no layer or half of one that is known here: there are GPT2Block, ");
    file_fails(ctx, ORTH_TOOL_accelerate, FULL "SIZE_BASED_WRAP\n  fsdp_min_num_params: many\n", "fsdp_min_num_params=many: must be a number");
    test_ctx_free(ctx);
}

TEST(quantised_gradients_of_deepspeed_are_reduced_in_int8)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    import_text(ctx, &c, ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true, "
                "\"zero_quantized_weights\": true}}");
    assert_true(c.precision_grad_reduce == ORTH_precision_grad_reduce_int8 && c.numerics_mode == ORTH_numerics_mode_fast);
    orth_config_release(ctx, &c);
    import_text(ctx, &c, ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": false}}");
    assert_true(c.precision_grad_reduce == ORTH_precision_grad_reduce_fp32 && c.numerics_mode == ORTH_numerics_mode_fast);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* DeepSpeed: communication_data_type of its engine, overlap_comm_valid of its zero/config.py. Accelerate: set_mixed_precision of its plugin of FSDP. */
TEST(what_a_configuration_leaves_out_of_the_reduction_is_what_the_other_program_does)
{
    static const struct {
        orth_tool tool;
        const char *text, *keys;
        int64_t type;
        bool overlaps;
    } all[] = {
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 2}}", "", ORTH_precision_grad_reduce_bf16, false},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3}}", "", ORTH_precision_grad_reduce_bf16, true},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": false}}", "",
         ORTH_precision_grad_reduce_bf16, false},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": true}, \"communication_data_type\": \"fp32\"}", "", ORTH_precision_grad_reduce_fp32, false},
        {ORTH_TOOL_deepspeed, "{\"communication_data_type\": \"fp32\", \"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true}}", "",
         ORTH_precision_grad_reduce_int8, true},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true}, \"communication_data_type\": \"fp32\"}", "",
         ORTH_precision_grad_reduce_int8, true},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": true}, \"communication_data_type\": \"fp16\"}", "", ORTH_precision_grad_reduce_fp32, false},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": true}}", "numerics.mode=reproducible", ORTH_precision_grad_reduce_fp32, false},
        {ORTH_TOOL_deepspeed, "{\"fp16\": {\"enabled\": true}}", "", ORTH_precision_grad_reduce_fp32, false},
        {ORTH_TOOL_deepspeed, "{\"train_batch_size\": 8}", "", ORTH_precision_grad_reduce_fp32, false},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\n", "", ORTH_precision_grad_reduce_bf16, true},
        {ORTH_TOOL_accelerate, "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 2\n", "", ORTH_precision_grad_reduce_fp32, true},
        {ORTH_TOOL_megatron, "--bf16 --grad-reduce-in-bf16 --overlap-grad-reduce", "", ORTH_precision_grad_reduce_bf16, true},
        {ORTH_TOOL_megatron, "--bf16 --overlap-grad-reduce", "", ORTH_precision_grad_reduce_fp32, true},
        {ORTH_TOOL_nemo, "model: {optim: {name: distributed_fused_adam, grad_sync_dtype: bf16}}\n", "", ORTH_precision_grad_reduce_bf16, true},
        {ORTH_TOOL_nemo, "model: {optim: {name: distributed_fused_adam}}\n", "", ORTH_precision_grad_reduce_fp32, true},
        {ORTH_TOOL_nemo, "model: {optim: {name: fused_adam, grad_sync_dtype: bf16}}\n", "", ORTH_precision_grad_reduce_fp32, true},
        {ORTH_TOOL_nemo, "model: {fsdp: true, fsdp_grad_reduce_dtype: bf16}\n", "", ORTH_precision_grad_reduce_bf16, true},
        {ORTH_TOOL_nemo, "model: {fsdp: true, fsdp_grad_reduce_dtype: 32, optim: {grad_sync_dtype: bf16}}\n", "", ORTH_precision_grad_reduce_fp32, true},
        {ORTH_TOOL_nemo, "model: {fsdp_grad_reduce_dtype: bf16}\n", "", ORTH_precision_grad_reduce_fp32, true},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(all); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, all[i].tool, all[i].text, all[i].keys, &lines);
        if (c.precision_grad_reduce != all[i].type || c.comm_overlap != all[i].overlaps)
            fail_msg("%s: reduced in %s, overlap %d", all[i].text, orth_option_choice(ORTH_OPT_precision_grad_reduce, (int)c.precision_grad_reduce),
                     c.comm_overlap);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cluster_gives_the_ranks_where_nothing_else_does),
        cmocka_unit_test(accumulation_steps_of_deepspeed_decide_the_batch_or_are_said_not_to),
        cmocka_unit_test(without_a_batch_of_a_step_each_rank_has_one_micro_batch),
        cmocka_unit_test(hybrid_sharding_of_fsdp_has_a_replica_on_each_machine),
        cmocka_unit_test(what_deepspeed_says_of_gathered_parameters_counts_under_stage_3),
        cmocka_unit_test(what_fsdp_wraps_is_gathered_together),
        cmocka_unit_test(quantised_gradients_of_deepspeed_are_reduced_in_int8),
        cmocka_unit_test(what_a_configuration_leaves_out_of_the_reduction_is_what_the_other_program_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
