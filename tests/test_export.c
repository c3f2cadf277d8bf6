/* test_export.c -- runs written as configurations of DeepSpeed, Accelerate, Megatron-LM and NeMo: they mean the same when they are read again, and
 * what cannot be said there is named. */
#include "import_case.h"
#include "tools/import_impl.h"

/* Lines of keys that were lost; those of defaults that are in the file have a test of their own. */
static void keep_lost(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    if (!strstr(text, "defaults of Orthant"))
        keep_line(user, rank, level, component, text);
}

/* Writes c for the tool; what the log says of keys that were lost. */
static void write_on_nodes(orth_ctx *ctx, const orth_config *c, orth_tool tool, const char *path, int64_t ranks_of_a_node, said *lost)
{
    lost->text[0] = '\0';
    const orth_log_sink before = ctx->log;
    ctx->log = (orth_log_sink){.write = keep_lost, .user = lost, .level = ORTH_LOG_INFO};
    const orth_status s = orth_export(ctx, c, tool, path, ranks_of_a_node);
    ctx->log = before;
    CHECK_OK(ctx, s);
}

static void write_as(orth_ctx *ctx, const orth_config *c, orth_tool tool, const char *path, said *lost)
{
    write_on_nodes(ctx, c, tool, path, 0, lost);
}

TEST(a_configuration_that_was_read_is_written_as_one_that_means_the_same)
{
    static const struct {
        orth_tool tool;
        const char *source, *lost;
    } all[] = {
        {ORTH_TOOL_megatron, FIXTURE("llama2-7b.sh"), ""},
        {ORTH_TOOL_nemo, FIXTURE("llama2-7b-nemo.yaml"), ""},
        {ORTH_TOOL_deepspeed, FIXTURE("ds_config.json"), ""},
        {ORTH_TOOL_accelerate, FIXTURE("accelerate_fsdp.yaml"), ""},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(all); i++) {
        char path[128];
        said lost;
        orth_config c, back;
        snprintf(path, sizeof path, "/tmp/orthant-test-%ld-export", (long)getpid());
        open_import(ctx, &c, all[i].tool, all[i].source);
        if (!ORTH_CONFIG_IS_SET(&c, model, layers))
            CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.preset", "llama3-8b"));
        write_as(ctx, &c, all[i].tool, path, &lost);
        assert_string_equal(lost.text, all[i].lost);
        open_import(ctx, &back, all[i].tool, path);
        for (int id = 0; id < ORTH_NUM_OPTIONS; id++) { /* keys that were read have the same values again */
            if (!c.place[id] || id == ORTH_OPT_model_preset)
                continue;
            char *a = orth_option_text(ctx, &c, (orth_option_id)id), *b = orth_option_text(ctx, &back, (orth_option_id)id);
            if (strcmp(a, b) != 0)
                fail_msg("%s: %s=%s came back as %s", all[i].source, orth_option_get((orth_option_id)id)->path, a, b);
            orth_mem_free(ctx, a);
            orth_mem_free(ctx, b);
        }
        orth_config_release(ctx, &c);
        orth_config_release(ctx, &back);
        unlink(path);
    }
    test_ctx_free(ctx);
}

/* A file of Accelerate says nothing of the optimizer, the schedule and the clipping, which one of DeepSpeed has. */
TEST(defaults_of_orthant_that_are_written_for_another_program_are_named)
{
    orth_ctx *ctx = test_ctx(1);
    char path[128];
    said lines = {""};
    orth_config c;
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-defaults", (long)getpid());
    open_import(ctx, &c, ORTH_TOOL_accelerate, FIXTURE("accelerate_fsdp.yaml"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.preset", "llama3-8b"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "optimizer.lr", "0.001"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "train.clip_norm", "0.5"));
    const orth_log_sink before = ctx->log;
    ctx->log = (orth_log_sink){.write = keep_line, .user = &lines, .level = ORTH_LOG_INFO};
    const orth_status s = orth_export(ctx, &c, ORTH_TOOL_deepspeed, path, 0);
    ctx->log = before;
    CHECK_OK(ctx, s);
    const char *line = strstr(lines.text, "defaults of Orthant are in it, as nothing gave them: ");
    assert_non_null(line);
    assert_non_null(strstr(line, "optimizer.name=adamw"));
    assert_non_null(strstr(line, "schedule.name=cosine"));
    assert_null(strstr(line, "optimizer.lr"));
    assert_null(strstr(line, "train.clip_norm"));
    orth_config_release(ctx, &c);
    unlink(path);
    test_ctx_free(ctx);
}

/* Chunks of a run without a pipeline are one, however it is split. */
TEST(a_run_without_a_pipeline_has_no_split_of_stages_to_lose)
{
    static const char *const keys[] = {"parallel.pp=1", "parallel.stage_split=even", "parallel.stage_split=cost", "parallel.stage_layers=[32]"};
    static const orth_tool tools[] = {ORTH_TOOL_megatron, ORTH_TOOL_nemo, ORTH_TOOL_deepspeed, ORTH_TOOL_accelerate};
    orth_ctx *ctx = test_ctx(1);
    for (int t = 0; t < ORTH_COUNT(tools); t++)
        for (int i = 0; i < ORTH_COUNT(keys); i++) {
            char path[128], key[64];
            orth_config c;
            said lost;
            snprintf(path, sizeof path, "/tmp/orthant-test-%ld-stages", (long)getpid());
            snprintf(key, sizeof key, "%.*s", (int)strcspn(keys[i], "="), keys[i]);
            CHECK_OK(ctx, orth_config_init(ctx, &c));
            CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.preset", "llama3-8b"));
            CHECK_OK(ctx, orth_config_set(ctx, &c, "test", key, keys[i] + strlen(key) + 1));
            write_as(ctx, &c, tools[t], path, &lost);
            if (strstr(lost.text, "parallel.stage_split") || (orth_tool_has_model(tools[t]) && strstr(lost.text, "parallel.stage_")))
                fail_msg("%s, %s: lost is\n%s", orth_tool_id(tools[t]), keys[i], lost.text);
            orth_config_release(ctx, &c);
            unlink(path);
        }
    test_ctx_free(ctx);
}

/* From one program to another: what only one of the two can say is named. */
TEST(what_another_program_cannot_say_is_named)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    said lost;
    char path[128];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-export", (long)getpid());
    open_import(ctx, &c, ORTH_TOOL_megatron, FIXTURE("llama2-7b.sh"));
    write_as(ctx, &c, ORTH_TOOL_deepspeed, path, &lost);
    assert_non_null(strstr(lost.text, "parallel.pp=2 has no counterpart there: /tmp/"));
    assert_non_null(strstr(lost.text, "memory.recompute=selective has no counterpart there"));
    assert_null(strstr(lost.text, "parallel.tp="));
    assert_null(strstr(lost.text, "optimizer."));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "precision.moments", "8bit"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "memory.offload_activations", "host"));
    write_as(ctx, &c, ORTH_TOOL_megatron, path, &lost);
    assert_non_null(strstr(lost.text, "precision.moments=\"8bit\" has no counterpart there"));
    assert_null(strstr(lost.text, "memory.offload_activations"));
    char *text;
    size_t size;
    CHECK_OK(ctx, orth_file_read(ctx, path, &text, &size));
    assert_non_null(strstr(text, "--fine-grained-activation-offloading")); /* not the row that any number of layers fits */
    assert_null(strstr(text, "--cpu-offloading-num-layers"));
    orth_mem_free(ctx, text);
    orth_tool tool;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "--as=megatrn: must be one of deepspeed, accelerate, megatron, nemo", orth_tool_from_id(ctx, "megatrn", &tool));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "/dev/null: must be a file", orth_export(ctx, &c, ORTH_TOOL_megatron, "/dev/null", 0));
    CHECK_FAILS(ctx, ORTH_ERR_IO, "/tmp/no-such-folder/x", orth_export(ctx, &c, ORTH_TOOL_megatron, "/tmp/no-such-folder/x", 0));
    orth_config_release(ctx, &c);
    unlink(path);
    test_ctx_free(ctx);
}

/* Whether what c is written as for the tool has these words, and not those. */
static void check_written(orth_ctx *ctx, const char *keys, orth_tool tool, const char *const *has, const char *const *lacks, const char *lost_has)
{
    char path[128], line[512], *text, *end = NULL;
    orth_config c;
    said lost;
    size_t size;
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-written", (long)getpid());
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.preset", "llama3-8b"));
    snprintf(line, sizeof line, "%s", keys);
    for (char *word = strtok_r(line, " ", &end); word; word = strtok_r(NULL, " ", &end)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", word, value));
    }
    write_as(ctx, &c, tool, path, &lost);
    snprintf(line, sizeof line, "%s", keys);
    for (char *word = strtok_r(line, "= ", &end); word && !lost_has; word = strtok_r(NULL, "= ", &end))
        if (strchr(word, '.') && strstr(lost.text, word))
            fail_msg("%s: lost is\n%s", keys, lost.text);
    CHECK_OK(ctx, orth_file_read(ctx, path, &text, &size));
    for (int i = 0; i < 6 && has && has[i]; i++)
        if (!strstr(text, has[i]))
            fail_msg("%s: '%s' is not in\n%s", keys, has[i], text);
    for (int i = 0; i < 6 && lacks && lacks[i]; i++)
        if (strstr(text, lacks[i]))
            fail_msg("%s: '%s' is in\n%s", keys, lacks[i], text);
    if (lost_has && !strstr(lost.text, lost_has))
        fail_msg("%s: lost is\n%s, wanted '%s'", keys, lost.text, lost_has);
    orth_mem_free(ctx, text);
    orth_config_release(ctx, &c);
    unlink(path);
}

/* The layers of a chunk: theirs are all the same where no word says it, ours are balanced with the head, which counts for two layers of this model. */
TEST(stages_of_different_sizes_are_written_or_named)
{
    static const struct {
        orth_tool tool;
        const char *keys, *has, *lacks, *lost; /* NULL: any */
    } cases[] = {
        {ORTH_TOOL_megatron, "parallel.pp=2", "--decoder-first-pipeline-num-layers 17\n  --decoder-last-pipeline-num-layers 15\n", NULL, NULL},
        {ORTH_TOOL_megatron, "parallel.pp=4 parallel.stage_layers=[9,9,9,5]", "--decoder-last-pipeline-num-layers 5\n", "--decoder-first", NULL},
        {ORTH_TOOL_megatron, "parallel.pp=4 parallel.stage_layers=[7,8,8,9]", "--decoder-first-pipeline-num-layers 7\n  --decoder-last-pipeline-num-layers 9\n", NULL, NULL},
        {ORTH_TOOL_megatron, "parallel.pp=4 parallel.stage_layers=[8,8,8,8]", NULL, "--decoder-", NULL},
        {ORTH_TOOL_megatron, "parallel.pp=4 parallel.stage_layers=[9,8,9,6]", NULL, "--decoder-", "parallel.stage_layers=[9, 8, 9, 6] has no counterpart there: "},
        {ORTH_TOOL_megatron, "parallel.pp=4 parallel.stage_split=even", NULL, "--decoder-", NULL},
        {ORTH_TOOL_nemo, "parallel.pp=2 parallel.stage_split=even", "pipeline_model_parallel_size: 2", NULL, NULL},
        {ORTH_TOOL_nemo, "parallel.pp=2", NULL, NULL, "parallel.stage_layers=[17, 15] has no counterpart there: "},
        {ORTH_TOOL_nemo, "parallel.pp=2 parallel.stage_layers=[16,16]", "pipeline_model_parallel_size: 2", NULL, NULL},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        const char *has[6] = {cases[i].has}, *lacks[6] = {cases[i].lacks};
        check_written(ctx, cases[i].keys, cases[i].tool, has, lacks, cases[i].lost);
    }
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.preset", "llama3-8b"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.layers", "31"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.pp", "4"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "model.layers=31 is no multiple of parallel.pp=4, which nemo refuses", orth_export(ctx, &c, ORTH_TOOL_nemo, "/tmp/orthant-test-stages", 0));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.layers", "34"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.pp", "2"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.virtual_stages", "2"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "model.layers=34 is no multiple of parallel.pp * virtual_stages=4, which nemo refuses", orth_export(ctx, &c, ORTH_TOOL_nemo, "/tmp/orthant-test-stages", 0));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.virtual_stages", "1"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.pp", "4"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.layers", "31"));
    CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.stage_layers", "[9, 7, 8, 7]"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "which megatron refuses where others than the first and the last stage differ", orth_export(ctx, &c, ORTH_TOOL_megatron, "/tmp/orthant-test-stages", 0));
    assert_int_equal(access("/tmp/orthant-test-stages", F_OK), -1);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* What their own parsers want: arguments.py of Megatron-LM asserts these, DeepSpeed's schedules take these. */
TEST(words_without_which_the_other_program_refuses_its_file_are_written_too)
{
    static const struct {
        orth_tool tool;
        const char *keys, *has[7], *lacks[7], *lost;
    } cases[] = {
        {ORTH_TOOL_megatron, "memory.recompute=full", {"--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"}, {NULL}, NULL},
        {ORTH_TOOL_megatron, "memory.recompute=full memory.recompute_method=block memory.recompute_layers=4",
         {"--recompute-method block", "--recompute-num-layers 4"}, {NULL}, NULL},
        {ORTH_TOOL_megatron, "memory.recompute=selective memory.recompute_method=block", {"--recompute-activations"}, {"--recompute-method"}, NULL},
        {ORTH_TOOL_megatron, "precision.moments=bf16 parallel.zero=1 parallel.dp=2 train.global_batch=2",
         {"--use-precision-aware-optimizer", "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16", "--use-distributed-optimizer"}, {NULL}, NULL},
        {ORTH_TOOL_megatron, "parallel.zero=2 parallel.dp=2 train.global_batch=2",
         {"--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads\n", "--ckpt-format fsdp_dtensor"}, {NULL}, NULL},
        {ORTH_TOOL_megatron, "parallel.zero=3 parallel.dp=2 train.global_batch=2", {"--data-parallel-sharding-strategy optim_grads_params"}, {"torch-fsdp2"}, NULL},
        {ORTH_TOOL_deepspeed, "precision.grad_reduce=int8 numerics.mode=fast parallel.dp=2 train.global_batch=2",
         {"\"zero_quantized_gradients\": true"}, {"zero_quantized_weights"}, NULL},
        {ORTH_TOOL_megatron, "memory.offload_activations=host", {"--fine-grained-activation-offloading", "--offload-modules core_attn attn_proj"}, {NULL}, NULL},
        {ORTH_TOOL_megatron, "schedule.name=wsd train.steps=1000",
         {"--lr-decay-style WSD", "--lr-wsd-decay-iters 200", "--lr-wsd-decay-style linear"}, {"--lr-decay-iters"}, "schedule.decay_steps=auto"},
        {ORTH_TOOL_megatron, "schedule.name=wsd train.steps=1000 schedule.decay_steps=50", {"--lr-wsd-decay-iters 50"}, {NULL}, NULL},
        {ORTH_TOOL_megatron, "parallel.pp=2 parallel.pipeline=interleaved parallel.virtual_stages=3 train.global_batch=2", {"--pipeline-model-parallel-size 2"},
         {"virtual"}, "parallel.virtual_stages=3 has no counterpart"},
        {ORTH_TOOL_deepspeed, "memory.recompute_split=true", {"\"partition_activations\": true"}, {NULL}, "memory.recompute_split=true has no counterpart"},
        {ORTH_TOOL_nemo, "memory.offload_activations=host", {"cpu_offloading: true", "cpu_offloading_num_layers: 31"}, {NULL}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=0 precision.compute=bf16", {"name: \"fused_adam\"", "megatron_amp_O2: true", "fsdp: false"}, {"sharding"}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=1 parallel.dp=2 train.global_batch=2 precision.compute=bf16",
         {"name: \"distributed_fused_adam\"", "megatron_amp_O2: true", "fsdp: false"}, {"sharding"}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=2 parallel.dp=2 train.global_batch=2 precision.compute=bf16",
         {"name: \"fused_adam\"", "megatron_amp_O2: false", "fsdp: true", "fsdp_sharding_strategy: \"grad\""}, {NULL}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=3 parallel.dp=2 train.global_batch=2 precision.compute=bf16",
         {"name: \"fused_adam\"", "megatron_amp_O2: false", "fsdp: true", "fsdp_sharding_strategy: \"full\""}, {NULL}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=0 precision.compute=fp32", {"name: \"fused_adam\"", "megatron_amp_O2: false"}, {NULL}, NULL},
        {ORTH_TOOL_deepspeed, "schedule.name=linear schedule.warmup_steps=10 schedule.min_lr_ratio=0", {"WarmupDecayLR", "\"warmup_max_lr\": 0.0006"}, {"cos_min_ratio"}, NULL},
        {ORTH_TOOL_deepspeed, "schedule.name=linear schedule.warmup_steps=10", {"WarmupDecayLR"}, {NULL}, "schedule.min_lr_ratio=0.1 has no counterpart"},
        {ORTH_TOOL_deepspeed, "schedule.name=cosine schedule.warmup_steps=0", {"WarmupCosineLR", "\"cos_min_ratio\": 0.1", "\"warmup_num_steps\": 2"}, {"warmup_max_lr"},
         "schedule.warmup_steps=0 has no counterpart"},
        {ORTH_TOOL_deepspeed, "precision.compute=bf16", {"\"communication_data_type\": \"fp32\"", "\"grad_accum_dtype\": \"fp32\""}, {NULL}, NULL},
        {ORTH_TOOL_deepspeed, "precision.compute=fp16", {"\"communication_data_type\": \"fp32\""}, {"grad_accum_dtype"}, NULL},
        {ORTH_TOOL_deepspeed, "precision.compute=fp32", {"optimizer"}, {"data_type"}, NULL},
        {ORTH_TOOL_deepspeed, "schedule.name=wsd", {"optimizer"}, {"scheduler"}, "schedule.name=wsd has no counterpart"},
        {ORTH_TOOL_deepspeed, "parallel.zero=2", {"\"reduce_bucket_size\": 6553600"}, {"sub_group_size"}, NULL}, /* its own defaults are 5e8 and 1e9 */
        {ORTH_TOOL_deepspeed, "memory.offload_optimizer=host", {"\"sub_group_size\": 4194304", "\"ratio\": 1"}, {"nvme_path"}, NULL},
        {ORTH_TOOL_megatron, "parallel.zero=1", {"--ddp-bucket-size 6553600", "--overlap-grad-reduce"}, {"offload"}, NULL},
        {ORTH_TOOL_deepspeed, "memory.offload_activations=host", {"optimizer"}, {"cpu_checkpointing"}, "memory.offload_activations=host has no counterpart"},
        {ORTH_TOOL_deepspeed, "memory.recompute=full memory.offload_activations=host", {"\"cpu_checkpointing\": true"}, {NULL}, "memory.recompute=full has no counterpart"},
        {ORTH_TOOL_accelerate, "parallel.zero=3 memory.offload_optimizer=host memory.offload_params=host memory.offload_gradients=host",
         {"fsdp_offload_params: true"}, {NULL}, NULL},
        {ORTH_TOOL_accelerate, "parallel.zero=3 memory.offload_optimizer=host", {"fsdp_offload_params: false"}, {NULL}, "memory.offload_optimizer=host has no counterpart"},
        {ORTH_TOOL_accelerate, "parallel.zero=0 memory.recompute=full", {"MULTI_GPU"}, {"fsdp_config"}, "memory.recompute=full has no counterpart"},
        {ORTH_TOOL_nemo, "parallel.zero=1 precision.compute=bf16 precision.grad_reduce=bf16 numerics.mode=fast", {"grad_sync_dtype: \"bf16\""}, {"fsdp_grad"}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=3 precision.compute=bf16 precision.grad_reduce=bf16 numerics.mode=fast",
         {"fsdp_grad_reduce_dtype: \"bf16\""}, {"grad_sync_dtype"}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=2 precision.compute=bf16", {"fsdp_grad_reduce_dtype: 32"}, {"grad_sync_dtype"}, NULL},
        {ORTH_TOOL_nemo, "parallel.zero=0 precision.compute=bf16 precision.grad_reduce=bf16 numerics.mode=fast", {"fused_adam"}, {"grad_sync_dtype"},
         "precision.grad_reduce=bf16 has no counterpart"},
        {ORTH_TOOL_accelerate, "precision.compute=bf16 precision.products=fp8_delayed precision.amax_history_len=32",
         {"mixed_precision: \"fp8\"", "fp8_config:", "amax_history_len: 32", "backend: \"TE\""}, {"bf16"}, NULL},
        {ORTH_TOOL_accelerate, "precision.compute=fp32 precision.products=fp8_delayed", {"mixed_precision: \"no\""}, {"fp8_config"},
         "precision.products=fp8_delayed has no counterpart"},
        {ORTH_TOOL_accelerate, "train.clip_norm=0.5", {"distributed_type"}, {"gradient_clipping"}, "train.clip_norm=0.5 has no counterpart"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        check_written(ctx, cases[i].keys, cases[i].tool, cases[i].has, cases[i].lacks, cases[i].lost);
    test_ctx_free(ctx);
}

/* What is written is read as the same groups, or the group is named as lost. */
TEST(groups_of_shards_are_written_in_the_words_of_the_other_program)
{
    static const struct {
        orth_tool tool;
        const char *zero, *dp, *group, *of_host, *word;
        int64_t back; /* the group that is read back */
        int64_t of_a_node;
    } cases[] = {
        {ORTH_TOOL_accelerate, "3", "16", "8", "0", "fsdp_sharding_strategy: \"HYBRID_SHARD\"\n", 8},
        {ORTH_TOOL_accelerate, "2", "16", "4", "4", "fsdp_sharding_strategy: \"HYBRID_SHARD_ZERO2\"\n", 4},
        {ORTH_TOOL_accelerate, "3", "16", "4", "0", "fsdp_sharding_strategy: \"FULL_SHARD\"\n", 0}, /* machines have 8 ranks */
        {ORTH_TOOL_accelerate, "3", "8", "4", "0", "fsdp_sharding_strategy: \"FULL_SHARD\"\n", 0}, /* there is one machine */
        {ORTH_TOOL_accelerate, "3", "16", "4", "0", "num_machines: 4\n", 4, 4}, /* of the cluster's nodes */
        {ORTH_TOOL_deepspeed, "3", "16", "4", "0", "\"mics_shard_size\": 4", 4},
        {ORTH_TOOL_deepspeed, "3", "16", "0", "0", "\"stage\": 3", 0},
        {ORTH_TOOL_deepspeed, "2", "16", "4", "0", "\"stage\": 2", 0},
    };
    orth_ctx *ctx = test_ctx(1);
    char path[128], *text;
    size_t size;
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-groups", (long)getpid());
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c, back;
        said lost;
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "model.preset", "llama3-8b"));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.zero", cases[i].zero));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.dp", cases[i].dp));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "train.global_batch", "16"));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.shard_group", cases[i].group));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.ranks_per_host", cases[i].of_host));
        write_on_nodes(ctx, &c, cases[i].tool, path, cases[i].of_a_node, &lost);
        CHECK_OK(ctx, orth_file_read(ctx, path, &text, &size));
        CHECK_OK(ctx, orth_config_init(ctx, &back));
        CHECK_OK(ctx, orth_import(ctx, &back, cases[i].tool, path, 16));
        const bool kept = c.parallel_shard_group == cases[i].back, named = strstr(lost.text, "parallel.shard_group=") != NULL;
        const orth_layout l = orth_setup_layout(&back);
        if (!strstr(text, cases[i].word) || strstr(text, "reshard") || l.shard_group != cases[i].back || l.zero != cases[i].zero[0] - '0' || kept == named)
            fail_msg("case %d: zero=%d shard_group=%d, lost is\n%sof\n%s", i, (int)l.zero, (int)l.shard_group, lost.text, text);
        orth_mem_free(ctx, text);
        orth_config_release(ctx, &c);
        orth_config_release(ctx, &back);
    }
    file_fails(ctx, ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": \"many\"}}", "mics_shard_size: parallel.shard_group=many");
    unlink(path);
    test_ctx_free(ctx);
}

/* ---- runs that are drawn ---- */

/* Values that a drawn run may have of a key, of which it has one or leaves the key out. */
static const struct {
    const char *key, *values[7];
} drawn[] = {
    {"model.preset", {"llama3-8b", "gpt2-124m", "qwen3-0.6b"}},
    {"parallel.dp", {"2", "4", "16"}},
    {"parallel.tp", {"2", "4"}},
    {"parallel.pp", {"2", "3"}},
    {"parallel.cp", {"2"}},
    {"parallel.cp_kind", {"ring", "all_gather", "all_to_all"}},
    {"parallel.zero", {"0", "1", "2", "3", "3"}},
    {"parallel.shard_group", {"0", "2", "4"}},
    {"parallel.sequence_parallel", {"true", "false"}},
    {"parallel.keep_whole", {"0", "100000"}},
    {"parallel.max_reuse_distance", {"0", "1000000"}},
    {"parallel.max_live", {"0", "1000000000"}},
    {"parallel.gather_unit", {"layer", "half", "model"}},
    {"parallel.reshard_after_forward", {"true", "false"}},
    {"parallel.pipeline", {"1f1b", "interleaved", "gpipe"}},
    {"parallel.virtual_stages", {"1", "2"}},
    {"train.micro_batch", {"1", "2"}},
    {"train.global_batch", {"32", "64", "192"}},
    {"train.steps", {"50", "1000"}},
    {"train.clip_norm", {"0", "0.5", "1.0"}},
    {"train.seed", {"1", "1234"}},
    {"optimizer.name", {"adamw", "adam", "sgd"}},
    {"optimizer.lr", {"1e-5", "0.0006", "0.001"}},
    {"optimizer.betas", {"[0.9, 0.95]", "[0.9, 0.999]", "[0.8, 0.95]"}},
    {"optimizer.eps", {"1e-8", "1e-6"}},
    {"optimizer.weight_decay", {"0", "0.01", "0.1"}},
    {"optimizer.momentum", {"0", "0.9", "0.95"}},
    {"schedule.name", {"constant", "linear", "cosine", "wsd"}},
    {"schedule.warmup_steps", {"0", "1", "20"}},
    {"schedule.min_lr_ratio", {"0", "0.1", "0.5"}},
    {"schedule.decay_steps", {"auto", "30"}},
    {"precision.compute", {"fp32", "bf16", "bf16", "fp16"}},
    {"precision.products", {"same", "fp8_tensor", "fp8_block", "mxfp8", "nvfp4", "fp8_delayed"}},
    {"precision.amax_history_len", {"1", "1024"}},
    {"precision.amax_compute_algo", {"max", "most_recent"}},
    {"precision.fp8_margin", {"0", "1"}},
    {"precision.master", {"fp32", "bf16"}},
    {"precision.moments", {"fp32", "bf16", "8bit"}},
    {"precision.grad_reduce", {"fp32", "bf16", "int8"}},
    {"precision.loss_scale", {"auto", "none", "static", "dynamic"}},
    {"precision.loss_scale_start", {"1024", "65536", "1000"}},
    {"precision.loss_scale_interval", {"500", "2000"}},
    {"precision.loss_scale_least", {"1", "0.5"}},
    {"memory.recompute", {"none", "selective", "full", "full", "sqrt", "all"}},
    {"memory.recompute_method", {"uniform", "block"}},
    {"memory.recompute_layers", {"1", "4"}},
    {"memory.recompute_split", {"true", "false"}},
    {"memory.offload_optimizer", {"none", "host", "host", "file"}},
    {"memory.offload_params", {"none", "host", "file"}},
    {"memory.offload_gradients", {"none", "host", "file"}},
    {"memory.offload_ratio", {"1.0", "0.5", "0.3"}},
    {"memory.offload_sub_group", {"4194304", "1000000000"}},
    {"memory.offload_activations", {"none", "host", "file"}},
    {"memory.offload_dir", {".", "/local"}},
    {"comm.bucket_mb", {"0", "25", "200"}},
    {"comm.overlap", {"true", "false"}},
    {"comm.prefetch", {"0", "1", "3", "1000"}},
    {"comm.prefetch_elems", {"0", "50000000"}},
    {"numerics.mode", {"fast", "fast", "reproducible"}},
};

/* Stages of other sizes than one are refused by those who have a pipeline; a test of its own says where. */
static bool has_remainder(orth_ctx *ctx, const orth_config *c)
{
    orth_model_config m;
    CHECK_OK(ctx, orth_describe_model(ctx, c, &m));
    return m.layers % c->parallel_pp != 0;
}

/* Draws a run into c, which is open; false: its keys contradict each other. */
static bool draw_run(orth_ctx *ctx, orth_config *c, uint64_t seed)
{
    for (int i = 0; i < ORTH_COUNT(drawn); i++) {
        int n = 0;
        while (n < ORTH_COUNT(drawn[i].values) && drawn[i].values[n])
            n++;
        const int64_t at = test_rand_int(seed, (uint64_t)i, i ? -n : 0, n - 1); /* half of the keys are left out, the model never */
        if (at >= 0)
            CHECK_OK(ctx, orth_config_set(ctx, c, "drawn", drawn[i].key, drawn[i].values[at]));
    }
    const int64_t group = c->parallel_shard_group;
    if (c->train_global_batch % (c->train_micro_batch * c->parallel_dp) != 0 || (group > 0 && c->parallel_dp % group != 0))
        return false;
    const bool valid = orth_config_check(ctx, c) == ORTH_OK;
    orth_ctx_clear_error(ctx);
    return valid;
}

/* Whether a row of the tool says this key with this value by itself. */
static bool has_words(orth_tool tool, const char *key, const char *value)
{
    const orth_import_row *row;
    for (int i = 0; (row = orth_import_row_at(i)); i++) {
        const bool any = row->kind == ORTH_ROW_SAME, one = row->kind == ORTH_ROW_GIVES || row->kind == ORTH_ROW_READ;
        if (row->tool == tool && (any || one) && strcmp(row->key, key) == 0 && (any || strcmp(row->text, value) == 0))
            return true;
    }
    return false;
}

/* Whether a key that has words there cannot be said in this run all the same. */
static bool is_not_said(const orth_config *c, orth_tool tool, const char *key)
{
    const bool fsdp = c->parallel_zero >= ORTH_parallel_zero_2, offload = strncmp(key, "memory.offload_", 15) == 0;
    const bool has_total = c->schedule_name == ORTH_schedule_name_linear || c->schedule_name == ORTH_schedule_name_cosine;
    const bool all_leave = c->memory_offload_optimizer == ORTH_memory_offload_optimizer_host &&
                           c->memory_offload_params == ORTH_memory_offload_params_host && c->memory_offload_gradients == ORTH_memory_offload_gradients_host;
    switch (tool) {
    case ORTH_TOOL_deepspeed:
        if (strcmp(key, "train.steps") == 0) /* only of these schedules */
            return !has_total;
        return strncmp(key, "precision.loss_scale", 20) == 0 && c->precision_compute != ORTH_precision_compute_fp16; /* its section is fp16 */
    case ORTH_TOOL_accelerate:
        if ((strncmp(key, "precision.amax_", 15) == 0 || strcmp(key, "precision.fp8_margin") == 0) && c->precision_compute != ORTH_precision_compute_bf16)
            return true; /* its fp8 is beside bf16 */
        return (offload && !(fsdp && all_leave)) || !fsdp; /* all leave or none; without FSDP there are no other keys */
    case ORTH_TOOL_megatron: return strcmp(key, "memory.recompute_split") == 0 && c->memory_recompute != ORTH_memory_recompute_full; /* sqrt is not there */
    case ORTH_TOOL_nemo:
    case ORTH_NUM_TOOLS: break;
    }
    return false;
}

/* Each key of c came back, or is named with what it is read as; named is only what has no words there. */
static void check_key(orth_ctx *ctx, const orth_config *c, const orth_config *back, orth_option_id id, orth_tool tool, const char *path, const said *lost)
{
    const char *key = orth_option_get(id)->path;
    char *a = orth_option_text(ctx, c, id), *b = orth_option_text(ctx, back, id), line[256];
    snprintf(line, sizeof line, "%s=%s has no counterpart there: %s is read as %s\n", key, a, path, b);
    const bool named = strstr(lost->text, line) != NULL, scales_nothing = id == ORTH_OPT_precision_loss_scale && orth_config_loss_scale(c) == orth_config_loss_scale(back);
    if (strcmp(a, b) != 0 && !orth_config_is_idle(c, id) && !scales_nothing) {
        if (!named)
            fail_msg("%s: %s=%s came back as %s, and nothing says so", orth_tool_id(tool), key, a, b);
        if (has_words(tool, key, a) && !is_not_said(c, tool, key))
            fail_msg("%s: %s=%s has words there, and came back as %s", orth_tool_id(tool), key, a, b);
    }
    orth_mem_free(ctx, a);
    orth_mem_free(ctx, b);
}

/* ORTH_DRAWS: how many runs for each tool. */
TEST(a_run_that_is_drawn_comes_back_or_is_named_key_by_key)
{
    orth_ctx *ctx = test_ctx(1);
    const uint64_t first = test_seed();
    const int draws = getenv("ORTH_DRAWS") ? atoi(getenv("ORTH_DRAWS")) : 60;
    char path[128];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-drawn", (long)getpid());
    for (int t = 0; t < ORTH_NUM_TOOLS; t++)
        for (uint64_t seed = first * 1000, n = 0; n < (uint64_t)draws; seed++) {
            orth_config c, back;
            said lost;
            CHECK_OK(ctx, orth_config_init(ctx, &c));
            if (draw_run(ctx, &c, seed) && !(orth_tool_has_model((orth_tool)t) && has_remainder(ctx, &c))) {
                write_as(ctx, &c, (orth_tool)t, path, &lost);
                ctx->log.level = ORTH_LOG_ERROR;
                open_import(ctx, &back, (orth_tool)t, path);
                for (int i = 1; i < ORTH_COUNT(drawn); i++)
                    check_key(ctx, &c, &back, (orth_option_id)orth_option_find(drawn[i].key), (orth_tool)t, path, &lost);
                orth_config_release(ctx, &back);
                n++;
            }
            orth_config_release(ctx, &c);
        }
    unlink(path);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_that_was_read_is_written_as_one_that_means_the_same),
        cmocka_unit_test(defaults_of_orthant_that_are_written_for_another_program_are_named),
        cmocka_unit_test(a_run_without_a_pipeline_has_no_split_of_stages_to_lose),
        cmocka_unit_test(what_another_program_cannot_say_is_named),
        cmocka_unit_test(words_without_which_the_other_program_refuses_its_file_are_written_too),
        cmocka_unit_test(stages_of_different_sizes_are_written_or_named),
        cmocka_unit_test(groups_of_shards_are_written_in_the_words_of_the_other_program),
        cmocka_unit_test(a_run_that_is_drawn_comes_back_or_is_named_key_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
