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
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "gradient_accumulation_steps=5 x parallel.dp=8 does not divide the batch of a step, train.global_batch=64",
                orth_import(ctx, &c, ORTH_TOOL_deepspeed, import_file(ctx, odd, path), 8));
    unlink(path);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* Megatron-LM and NeMo refuse to run without one; of Megatron-LM a micro-batch alone is a batch of one step. */
TEST(a_batch_of_megatron_or_nemo_says_no_micro_batch)
{
    static const struct {
        orth_tool tool;
        const char *text, *keys;
        int64_t batch, micro;
        const char *line;
    } cases[] = {
        {ORTH_TOOL_megatron, "--global-batch-size 1024\n", "parallel.dp=8", 1024, 1,
         "no key gives train.micro_batch, and a run there needs one: 1 is the default"},
        {ORTH_TOOL_nemo, "model: {global_batch_size: 1024}\n", "parallel.dp=8", 1024, 1, "no key gives train.micro_batch, and a run there needs one: 1 is"},
        {ORTH_TOOL_megatron, "--global-batch-size 1024\n", "parallel.dp=8 train.micro_batch=4", 1024, 4, "global_batch_size is train.global_batch=1024"},
        {ORTH_TOOL_megatron, "--micro-batch-size 4\n", "parallel.dp=8", 32, 4, "no gradient accumulation is train.global_batch=32"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, cases[i].tool, cases[i].text, cases[i].keys, &lines);
        const bool needs_one = strstr(lines.text, "needs one") != NULL;
        if (c.train_global_batch != cases[i].batch || c.train_micro_batch != cases[i].micro || !strstr(lines.text, cases[i].line) || needs_one != (i < 2))
            fail_msg("%s %s: a batch of %lld, micro-batches of %lld, and\n%s", cases[i].text, cases[i].keys, (long long)c.train_global_batch,
                     (long long)c.train_micro_batch, lines.text);
        orth_config_release(ctx, &c);
    }
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

/* A launcher decides them; where the command line here gives them, nothing of the launcher's counts. */
TEST(ranks_that_are_not_known_are_said_not_to_be_used)
{
    static const struct {
        orth_tool tool;
        const char *text, *keys, *line;
    } cases[] = {
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes $NNODES", "", "nnodes is not used: it is no number: give parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes $NNODES", "", "nproc_per_node is not used: the number of nodes is not known: give parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes nan", "", "nnodes is not used: it is no number: give parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 1:4", "",
         "nnodes is not used: it is a range, and a plan is of one number of ranks: give parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 1:4", "parallel.dp=4", "nnodes is not used: the command line gives parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes $NNODES", "parallel.dp=4", "nnodes is not used: the command line gives parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node $N --nnodes 2", "", "nnodes is not used: the number of ranks of a node is not known: give parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node gpu", "parallel.dp=4", "nproc_per_node is not used: the command line gives parallel.dp"},
        {ORTH_TOOL_megatron, "--nproc_per_node 7 --tensor-model-parallel-size 2", "parallel.dp=4",
         "nproc_per_node is not used: the command line gives parallel.dp"},
        {ORTH_TOOL_megatron, "--nnodes 2", "", "nnodes is not used: the number of ranks of a node is not known: give parallel.dp"},
        {ORTH_TOOL_nemo, "trainer: {devices: -1, num_nodes: 2}\n", "", "trainer.devices is not used: -1 is all devices of a node: give parallel.dp"},
        {ORTH_TOOL_nemo, "trainer: {devices: auto, num_nodes: 2}\n", "", "trainer.num_nodes is not used: the number of ranks of a node is not known"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, cases[i].tool, cases[i].text, cases[i].keys, &lines);
        if (!strstr(lines.text, cases[i].line) || c.parallel_dp != (*cases[i].keys ? 4 : 1))
            fail_msg("%s %s: %lld ranks, and\n%s", cases[i].text, cases[i].keys, (long long)c.parallel_dp, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* What decides is said, not what else would. */
TEST(beside_ranks_that_are_not_known_the_cluster_decides)
{
    static const struct {
        const char *text;
        int64_t devices, dp;
        const char *line;
    } cases[] = {
        {"--nproc_per_node 8 --nnodes $NNODES", 16, 16, "nnodes is not used: it is no number: the cluster decides"},
        {"--nproc_per_node 8 --nnodes $NNODES", 16, 16, "nproc_per_node is not used: the number of nodes is not known: the cluster decides"},
        {"--nproc_per_node 8 --nnodes 1:4 --tensor-model-parallel-size 3", 16, 1, "one number of ranks: give parallel.dp"},
        {"--nproc_per_node 8 --nnodes 2:2", 8, 16, "nproc_per_node is parallel.dp=16"},
        {"--nproc_per_node 8 --nnodes 1:1", 0, 8, "nproc_per_node is parallel.dp=8"},
        {"--nproc_per_node 8 --nnodes 1:11", 0, 1, "nnodes is not used: it is a range"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines = {.text = ""};
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        const orth_log_sink before = ctx->log;
        ctx->log = (orth_log_sink){.write = keep_line, .user = &lines, .level = ORTH_LOG_INFO};
        const orth_status s = orth_import(ctx, &c, ORTH_TOOL_megatron, cases[i].text, cases[i].devices);
        ctx->log = before;
        CHECK_OK(ctx, s);
        if (!strstr(lines.text, cases[i].line) || c.parallel_dp != cases[i].dp)
            fail_msg("%s: %lld ranks, and\n%s", cases[i].text, (long long)c.parallel_dp, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(numbers_of_ranks_and_sequences_that_cannot_be_are_refused_with_file_key_value_and_rule)
{
    static const struct {
        orth_tool tool;
        const char *text, *keys, *message;
    } cases[] = {
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 0x2", "", "--megatron: nnodes=0x2: must be a number of at least 1"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 0:0", "", "--megatron: nnodes=0:0: must be a number of at least 1"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 1000001:1000001", "", "nnodes=1000001: must be at most 1000000"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 1e1", "", "--megatron: nnodes=1e1: must be a whole number, written in digits"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 1.5", "", "--megatron: nnodes=1.5: must be a whole number, written in digits"},
        {ORTH_TOOL_megatron, "--nproc_per_node 0x8", "", "nproc_per_node=0x8: must be a number of at least 1"},
        {ORTH_TOOL_megatron, "--nproc_per_node 8 --nnodes 1000001", "", "nnodes=1000001: must be at most 1000000"},
        {ORTH_TOOL_deepspeed, "{\"train_batch_size\": 63}", "parallel.dp=8",
         "-import: parallel.dp=8 does not divide the batch of a step, train.global_batch=63"},
        {ORTH_TOOL_deepspeed, "{\"train_micro_batch_size_per_gpu\": 1000000}", "parallel.dp=8000",
         "-import: train.micro_batch=1000000 x parallel.dp=8000: a step must be at most 1000000000 sequences"},
        {ORTH_TOOL_deepspeed, "{\"train_micro_batch_size_per_gpu\": 1000000, \"gradient_accumulation_steps\": 400}", "parallel.dp=8",
         "-import: gradient_accumulation_steps=400 x train.micro_batch=1000000 x parallel.dp=8: a step must be at most 1000000000 sequences"},
        {ORTH_TOOL_accelerate, "num_processes: 8000\n", "train.micro_batch=1000000",
         "-import: train.micro_batch=1000000 x parallel.dp=8000: a step must be at most 1000000000 sequences"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        char path[128], key[64];
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        snprintf(key, sizeof key, "%.*s", (int)strcspn(cases[i].keys, "="), cases[i].keys);
        if (*key)
            CHECK_OK(ctx, orth_config_set(ctx, &c, "command line", key, cases[i].keys + strlen(key) + 1));
        const bool is_words = cases[i].tool == ORTH_TOOL_megatron;
        CHECK_FAILS(ctx, ORTH_ERR_ARG, cases[i].message,
                    orth_import(ctx, &c, cases[i].tool, is_words ? cases[i].text : import_file(ctx, cases[i].text, path), 0));
        if (!is_words)
            unlink(path);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

static void freeze_behind_ranks(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)rank, (void)level, (void)component;
    orth_ctx *ctx = user;
    ctx->frozen = ctx->frozen || strstr(text, "is parallel.dp=8") != NULL;
}

/* Wherever a chunk of the importer's arena ends, no message is made of a text that there was no memory for. */
TEST(without_memory_a_batch_that_cannot_be_fails_for_the_memory)
{
    orth_ctx *ctx = test_ctx(1);
    int without = 0;
    for (int pad = 0; pad < 9000; pad += 64) {
        orth_config c;
        char text[10000], path[128];
        snprintf(text, sizeof text, "{\"x\": \"%0*d\", \"train_batch_size\": 63}", pad, 0);
        import_file(ctx, text, path);
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        const orth_log_sink before = ctx->log;
        ctx->log = (orth_log_sink){.write = freeze_behind_ranks, .user = ctx, .level = ORTH_LOG_INFO};
        const orth_status s = orth_import(ctx, &c, ORTH_TOOL_deepspeed, path, 8);
        ctx->log = before;
        assert_true(ctx->frozen && s != ORTH_OK);
        ctx->frozen = false;
        assert_int_equal(s, ctx->error.code);
        without += s == ORTH_ERR_NOMEM;
        orth_ctx_clear_error(ctx);
        orth_config_release(ctx, &c);
        unlink(path);
    }
    assert_true(without > 0);
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
        cmocka_unit_test(a_batch_of_megatron_or_nemo_says_no_micro_batch),
        cmocka_unit_test(without_a_batch_of_a_step_each_rank_has_one_micro_batch),
        cmocka_unit_test(ranks_that_are_not_known_are_said_not_to_be_used),
        cmocka_unit_test(beside_ranks_that_are_not_known_the_cluster_decides),
        cmocka_unit_test(numbers_of_ranks_and_sequences_that_cannot_be_are_refused_with_file_key_value_and_rule),
        cmocka_unit_test(without_memory_a_batch_that_cannot_be_fails_for_the_memory),
        cmocka_unit_test(hybrid_sharding_of_fsdp_has_a_replica_on_each_machine),
        cmocka_unit_test(what_deepspeed_says_of_gathered_parameters_counts_under_stage_3),
        cmocka_unit_test(what_fsdp_wraps_is_gathered_together),
        cmocka_unit_test(quantised_gradients_of_deepspeed_are_reduced_in_int8),
        cmocka_unit_test(what_a_configuration_leaves_out_of_the_reduction_is_what_the_other_program_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
