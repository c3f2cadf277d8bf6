/* test_import.c -- runs from configurations of DeepSpeed, Accelerate, Megatron-LM and NeMo: what becomes of their keys, and which are refused. */
#include "import_case.h"

/* ---- the table ---- */

TEST(each_row_names_a_key_and_a_value_that_there_are)
{
    static const struct {
        const char *path, *key, *value;
    } rows[] = {
#define SAME(tool, path, key) {path, key, NULL},
#define READ(tool, path, value, key, here) {path, key, here},
#define ELEMS(tool, path, key) {path, key, NULL},
#define GIVES(tool, path, value, key, here) {path, key, here},
#define PART(tool, path, part, key) {path, key, NULL},
#define PART_AT(tool, path, value, part, key) {path, key, NULL},
#include "config/imports.def"
    };
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    for (int i = 0; i < ORTH_COUNT(rows); i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(rows[i].key, " ,="), rows[i].key); /* of a part words follow */
        if (orth_option_find(key) < 0)
            fail_msg("%s: there is no key %s", rows[i].path, key);
        if (rows[i].value && *rows[i].value)
            CHECK_OK(ctx, orth_config_set(ctx, &c, rows[i].path, key, rows[i].value));
    }
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

/* ---- configurations ---- */

TEST(a_deepspeed_configuration_becomes_the_keys_that_mean_the_same)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    open_import(ctx, &c, ORTH_TOOL_deepspeed, FIXTURE("ds_config.json"));
    assert_true(c.train_global_batch == 128 && c.train_micro_batch == 2 && c.parallel_dp == 8 && c.parallel_zero == ORTH_parallel_zero_3);
    assert_true(c.comm_bucket_mb == 1908 && !c.comm_overlap && c.parallel_keep_whole == 1000 && c.train_clip_norm == 0.5);
    assert_true(c.precision_compute == ORTH_precision_compute_bf16 && c.optimizer_lr == 3e-4 && c.optimizer_betas.v[1] == 0.95);
    assert_true(c.schedule_name == ORTH_schedule_name_cosine && c.schedule_warmup_steps == 100 && c.train_steps == 2000);
    assert_true(c.memory_offload_optimizer == ORTH_memory_offload_optimizer_host && c.memory_offload_sub_group == 100000000);
    assert_true(c.memory_offload_activations == ORTH_memory_offload_activations_none && !c.memory_recompute_split);
    assert_false(ORTH_CONFIG_IS_SET(&c, optimizer, weight_decay)); /* auto: the default stays */
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(a_deepspeed_configuration_that_contradicts_itself_is_refused)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}", "bf16.enabled and fp16.enabled are both true"},
        {"{\"bfloat16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}", "fp16.enabled and bfloat16.enabled are both true"},
        {"{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1}", "=1 x train.micro_batch=4 does not divide the batch of a step, train.global_batch=10"},
        {"{\"optimizer\": {\"type\": \"Lamb\"}}", "optimizer.type=Lamb: there are Adam, AdamW and SGD"},
        {"{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"disk\"}}}", "offload_optimizer.device=disk: there are cpu, nvme and none"},
        {"{\"zero_optimization\": {\"stage\": 7}}", "zero_optimization.stage: parallel.zero=7: must be one of"},
        {"{\"zero_optimization\": {\"reduce_bucket_size\": -1}}", "reduce_bucket_size=-1: must be a number of elements"},
        {"{\"train_batch_size\": [1]}", "train.global_batch"},
        {"{\"train_batch_size\": {\"a\": 1}}", "-import: train_batch_size: must be a value, not a section"},
        {"{\"zero_optimization\": {\"stage\": null}}", "-import: zero_optimization.stage=null: there are 0, 1, 2 and 3"},
        {"{\"zero_optimization\": 3}", "-import: zero_optimization=3: it is a section: {stage: 3}"},
        {"{\"zero_optimization\": \"3\"}", "-import: zero_optimization=3: it is a section: {stage: 3}"},
        {"{\"zero_optimization\": null}", "-import: zero_optimization=null: it is a section: {stage: 3}"},
        {"{\"zero_optimization\": [3]}", "-import: zero_optimization=[3]: it is a section: {stage: 3}"},
        {"{\"bf16\": {\"enabled\": \"yes\"}}", "-import: bf16.enabled=yes: must be true or false"},
        {"{\"bf16\": {\"enabled\": null}}", "-import: bf16.enabled=null: must be true or false"},
        {"{\"fp16\": {\"enabled\": [true]}}", "-import: fp16.enabled=[true]: must be true or false"},
        {"{\"fp16\": {\"enabled\": {}}}", "-import: fp16.enabled: must be a value, not a section"},
        {"{\"fp16\": {\"enabled\": 2}}", "-import: fp16.enabled=2: must be true or false"},
        {"{\"bfloat16\": {\"enabled\": \"on\"}}", "-import: bfloat16.enabled=on: must be true or false"},
        {"{\"bfloat16\": true}", "it is a section: {enabled: true}"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        file_fails(ctx, ORTH_TOOL_deepspeed, bad[i].text, bad[i].message);
    test_ctx_free(ctx);
}

TEST(an_optimizer_and_a_schedule_of_no_key_are_named_as_defaults_of_orthant)
{
    static const char schedule[] = "no key gives schedule.name: cosine is the default of Orthant";
    static const char optimizer[] = "no key gives optimizer.name: adamw is the default of Orthant";
    static const struct {
        orth_tool tool;
        const char *text, *keys;
        bool has_optimizer, has_schedule; /* a line of it */
    } cases[] = {
        {ORTH_TOOL_deepspeed, "{\"optimizer\": {\"type\": \"AdamW\"}}", "", false, true},
        {ORTH_TOOL_deepspeed, "{\"scheduler\": {\"type\": \"WarmupLR\"}}", "", true, false},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 2}}", "schedule.name=wsd", true, false},
        {ORTH_TOOL_accelerate, "mixed_precision: bf16\n", "", true, true},
        {ORTH_TOOL_megatron, "--lr 1e-4", "", false, false}, /* it has defaults of its own */
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, cases[i].tool, cases[i].text, cases[i].keys, &lines);
        if ((strstr(lines.text, optimizer) != NULL) != cases[i].has_optimizer || (strstr(lines.text, schedule) != NULL) != cases[i].has_schedule)
            fail_msg("%s %s:\n%s", cases[i].text, cases[i].keys, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

#define EIGHT "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --vocab-size 128"
TEST(activations_of_a_part_of_the_layers_do_not_count_as_those_of_all)
{
    static const struct {
        const char *text;
        int64_t offload;
        const char *line;
    } cases[] = {
        {EIGHT " --cpu-offloading-num-layers 7", ORTH_memory_offload_activations_host, "cpu_offloading_num_layers is memory.offload_activations=host"},
        {EIGHT " --cpu-offloading --cpu-offloading-num-layers 8", ORTH_memory_offload_activations_host, "is memory.offload_activations=host"},
        {EIGHT " --cpu-offloading-num-layers 3", ORTH_memory_offload_activations_none,
         "cpu_offloading_num_layers is not used: the activations of 3 of 8 layers do not leave alone"},
        {EIGHT " --cpu-offloading-num-layers ${N}", ORTH_memory_offload_activations_none, "cpu_offloading_num_layers is not used"},
        {"--cpu-offloading-num-layers 3", ORTH_memory_offload_activations_none, "cpu_offloading_num_layers is not used: the number of layers is not given"},
        {EIGHT " --cpu-offloading-num-layers 0", ORTH_memory_offload_activations_none, "cpu_offloading_num_layers is memory.offload_activations=none"},
        {EIGHT " --cpu-offloading", ORTH_memory_offload_activations_none, "cpu_offloading is not used: cpu_offloading_num_layers says"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, ORTH_TOOL_megatron, cases[i].text, "", &lines);
        if ((int64_t)c.memory_offload_activations != cases[i].offload || !strstr(lines.text, cases[i].line))
            fail_msg("%s:\n%s", cases[i].text, lines.text);
        orth_config_release(ctx, &c);
    }
    orth_config c;
    said lines;
    import_beside(ctx, &c, ORTH_TOOL_megatron, "--cpu-offloading-num-layers 31", "model.preset=llama3-8b", &lines);
    assert_int_equal(c.memory_offload_activations, ORTH_memory_offload_activations_host);
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(partitioned_activations_of_deepspeed_count_where_there_are_some_to_partition)
{
#define PARTITION "{\"activation_checkpointing\": {\"partition_activations\": true}}"
    static const struct {
        const char *text, *keys;
        bool split;
        const char *line;
    } cases[] = {
        {PARTITION, "", false, "partition_activations is not used: there is no tensor parallelism"},
        {PARTITION, "parallel.tp=2", false, "partition_activations is not used: no layer keeps its input alone"},
        {PARTITION, "memory.recompute=full", false, "is not used: there is no tensor parallelism"},
        {PARTITION, "memory.recompute=full parallel.tp=2 parallel.sequence_parallel=true", false, "is not used: parallel.sequence_parallel=true"},
        {PARTITION, "memory.recompute=full parallel.tp=2", true, "is memory.recompute_split=true"},
        {"{\"activation_checkpointing\": {\"partition_activations\": false}}", "", false, "is memory.recompute_split=false"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, ORTH_TOOL_deepspeed, cases[i].text, cases[i].keys, &lines);
        if (c.memory_recompute_split != cases[i].split || !strstr(lines.text, cases[i].line))
            fail_msg("%s %s: %d, and\n%s", cases[i].text, cases[i].keys, (int)c.memory_recompute_split, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(copies_of_checkpoints_on_the_host_count_where_there_are_checkpoints)
{
    static const struct {
        const char *text, *keys;
        int64_t place;
        const char *line;
    } cases[] = {
        {"{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}", "", ORTH_memory_offload_activations_none, "cpu_checkpointing is not used: nothing is recomputed"},
        {"{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}", "memory.recompute=full", ORTH_memory_offload_activations_host, "is memory.offload_activations=host"},
        {"{\"activation_checkpointing\": {\"cpu_checkpointing\": false}}", "memory.recompute=full", ORTH_memory_offload_activations_none, "is memory.offload_activations=none"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, ORTH_TOOL_deepspeed, cases[i].text, cases[i].keys, &lines);
        if (c.memory_offload_activations != cases[i].place || !strstr(lines.text, cases[i].line))
            fail_msg("%s %s: %d, and\n%s", cases[i].text, cases[i].keys, (int)c.memory_offload_activations, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* A model or layout that is not here is refused, its off value is not; old names of settings count; of an unknown key nothing is claimed. */
TEST(what_another_program_has_and_this_one_has_not_is_refused_and_old_names_count)
{
#define NO_VOCAB                                                                                                                                 \
    "--num-layers 10 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --swiglu --normalization RMSNorm "     \
    "--position-embedding-type rope --disable-bias-linear --micro-batch-size 1 "
#define MODEL NO_VOCAB "--vocab-size 500 "
    static const struct {
        orth_tool tool;
        const char *text, *line; /* NULL: refused with */
        const char *why;
    } cases[] = {
        {ORTH_TOOL_megatron, "--multi-latent-attention", NULL, "multi-latent attention, which this version does not have"},
        {ORTH_TOOL_megatron, "--mtp-num-layers 1", NULL, "layers that predict further tokens"},
        {ORTH_TOOL_megatron, "--mtp-num-layers 0", "mtp_num_layers is not used: one token is predicted", NULL},
        {ORTH_TOOL_megatron, MODEL "--rope-scaling-factor 16", "rope_scaling_factor is not used: use_rope_scaling is not given", NULL},
        {ORTH_TOOL_megatron, MODEL "--use-rope-scaling", "use_rope_scaling is model.rope_factor=8", NULL},
        {ORTH_TOOL_megatron, MODEL "--use-rope-scaling --rope-scaling-factor 32", "rope_scaling_factor is model.rope_factor=32", NULL},
        {ORTH_TOOL_megatron, MODEL "--use-rope-scaling", "use_rope_scaling is model.rope_original_seq=8192", NULL},
        {ORTH_TOOL_megatron, MODEL "--group-query-attention", "num_query_groups by default is model.kv_heads=1", NULL},
        {ORTH_TOOL_megatron, MODEL "--group-query-attention --num-query-groups 2", "num_query_groups is model.kv_heads=2", NULL},
        {ORTH_TOOL_megatron, NO_VOCAB "--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B",
         "the size of the vocabulary is missing: 4096 tokens are assumed; give model.vocab", NULL},
        {ORTH_TOOL_megatron, NO_VOCAB "--tokenizer-type HuggingFaceTokenizer --padded-vocab-size 128257", "padded_vocab_size is model.vocab=128257\n", NULL},
        {ORTH_TOOL_megatron, MODEL "--padded-vocab-size 513", "vocab_size is not used: padded_vocab_size is given", NULL},
        {ORTH_TOOL_megatron, MODEL "--padded-vocab-size many", NULL, "padded_vocab_size: model.vocab=many: must be a whole number"},
        {ORTH_TOOL_megatron, "--rotary-seq-len-interpolation-factor 4", "is not used: positions are not interpolated here", NULL},
        {ORTH_TOOL_nemo, "model:\n  seq_len_interpolation_factor: 4\n", "is not used: positions are not interpolated here", NULL},
        {ORTH_TOOL_megatron, "--window-size 1024,0", NULL, "attention within a window"},
        {ORTH_TOOL_megatron, "--hybrid-attention-ratio 0.1", NULL, "layers of several kinds"},
        {ORTH_TOOL_megatron, "--pipeline-model-parallel-layout Ettt|tttL", NULL, "give parallel.stage_layers"},
        {ORTH_TOOL_megatron, "--decoder-first-pipeline-num-layers 3", "is not used: there is no pipeline", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 3", NULL, "num_layers=10: must be a multiple of pipeline ranks x chunks of each = 3"},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1", "parallel.virtual_stages=5", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 4", "parallel.stage_layers=[4, 3, 3]", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 3 --decoder-last-pipeline-num-layers 2", "parallel.stage_layers=[4, 4, 2]", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 1",
         "parallel.stage_layers=[3, 3, 3, 1]", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 4",
         "parallel.stage_layers=[6, 4]", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 5", NULL,
         "decoder_first_pipeline_num_layers=6 and decoder_last_pipeline_num_layers=5 must be together the 10 layers of two stages"},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 3", NULL, "of 10 layers 7 are left"},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 9", NULL, "of 10 layers 1 are left"},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
         "parallel.stage_layers=[2, 3, 3, 2]", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 2 --account-for-loss-in-pipeline-split false", "num_layers is model.layers=10", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
         "--num-layers-per-virtual-pipeline-stage 3", "a pipeline rank has one chunk", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 2 --vocab-size 200000", "layers of stages is parallel.stage_split=even", NULL},
        {ORTH_TOOL_megatron, MODEL "--nnodes 1:4 --pipeline-model-parallel-size 2", "num_layers is model.layers=10", NULL},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 2 --account-for-loss-in-pipeline-split", NULL, "10 layers and what counts as one are 11"},
        {ORTH_TOOL_megatron, MODEL "--pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split --decoder-first-pipeline-num-layers 1", NULL,
         "one of the two says how many layers a stage has"},
        {ORTH_TOOL_megatron, "--steps-per-sunday 3", "is not used: no such key is known here; what it changes is not in the plan", NULL},
        {ORTH_TOOL_nemo, "model: {expert_model_parallel_size: 4}", NULL, "a mixture of experts"},
        {ORTH_TOOL_nemo, "model: {expert_model_parallel_size: 1}", "is not used: there are no experts", NULL},
        {ORTH_TOOL_nemo, "model: {window_size: [1024, 0]}", NULL, "attention within a window"},
        {ORTH_TOOL_nemo, "trainer: {precision: bf16-mixed}\nmodel: {fsdp: false}\n", "without model.megatron_amp_O2 weights are in fp32 there", NULL},
        {ORTH_TOOL_nemo, "trainer: {precision: bf16-mixed}\nmodel: {megatron_amp_O2: false}\n", "megatron_amp_O2 is not used: weights are in fp32 there", NULL},
        {ORTH_TOOL_nemo, "trainer: {precision: bf16-mixed}\nmodel: {megatron_amp_O2: true}\n", "megatron_amp_O2 is not used: weights are in precision.compute", NULL},
        {ORTH_TOOL_nemo, "model: {fsdp: true, optim: {name: fused_adam}}\n", "fsdp is parallel.zero=3", NULL},
        {ORTH_TOOL_nemo, "model: {fsdp: true, fsdp_sharding_strategy: grad}\n", "fsdp_sharding_strategy is parallel.zero=2", NULL},
        {ORTH_TOOL_nemo, "model: {fsdp: false, optim: {name: distributed_fused_adam}}\n", "optim.name is parallel.zero=1", NULL},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": true}", "zero_optimization is parallel.zero=1", NULL},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}", "cpu_offload is memory.offload_optimizer=host", NULL},
        {ORTH_TOOL_deepspeed, "{\"bfloat16\": {\"enabled\": true}}", "bfloat16.enabled is precision.compute=bf16", NULL},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {}}", "bf16 is not used: without its key enabled it is off", NULL},
        {ORTH_TOOL_deepspeed, "{\"fp16\": {\"loss_scale_window\": 100}}", "fp16 is not used: without its key enabled it is off", NULL},
        {ORTH_TOOL_deepspeed, "{\"bf16\": {\"enabled\": \"auto\"}}", "bf16.enabled is not used: it is auto", NULL},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {}}", "zero_optimization is not used: without its key stage nothing is sharded", NULL},
        {ORTH_TOOL_deepspeed, "{\"optimizer\": {\"type\": \"adamw\"}}", "optimizer.type is optimizer.name=adamw", NULL},
        {ORTH_TOOL_deepspeed, "{\"optimizer\": {\"type\": \"ADAM\"}}", "optimizer.type is optimizer.name=adamw", NULL},
        {ORTH_TOOL_deepspeed, "{\"optimizer\": {\"type\": \"sgd\"}}", "optimizer.type is optimizer.name=sgd", NULL},
        {ORTH_TOOL_deepspeed, "{\"bf16\": true}", NULL, "it is a section: {enabled: true}"},
        {ORTH_TOOL_deepspeed, "{\"sequence_parallel_size\": 2}", NULL, "give parallel.cp with parallel.cp_kind=all_to_all"},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: {fsdp_reshard_after_forward: NO_SHARD}\n", "is parallel.zero=0", NULL},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: {fsdp_reshard_after_forward: SHARDS}\n", NULL, "there are true, false, FULL_SHARD"},
        {ORTH_TOOL_accelerate, "parallelism_config: {parallelism_config_tp_size: 2}\n", NULL, "give parallel.dp, parallel.tp"},
        {ORTH_TOOL_accelerate, "parallelism_config: {parallelism_config_tp_size: 1}\n", "is not used: one is none", NULL},
        {ORTH_TOOL_accelerate, "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, offload_param_device: cpu, offload_optimizer_device: cpu}\n",
         "deepspeed_config.offload_param_device is memory.offload_params=host", NULL},
        {ORTH_TOOL_accelerate, "distributed_type: MULTI_GPU\ndeepspeed_config: {zero_stage: 3}\n",
         "deepspeed_config is not used: distributed_type=MULTI_GPU, and Accelerate reads this section with distributed_type=DEEPSPEED only", NULL},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nmegatron_lm_config: {megatron_lm_tp_degree: 2}\n",
         "megatron_lm_config is not used: distributed_type=FSDP, and", NULL},
        {ORTH_TOOL_accelerate, "distributed_type: MEGATRON_LM\nmegatron_lm_config: {megatron_lm_tp_degree: 2}\n",
         "megatron_lm_tp_degree is not used: give the arguments of Megatron-LM themselves", NULL},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: {fsdp_activation_checkpointing: maybe}\n", NULL,
         "fsdp_config.fsdp_activation_checkpointing=maybe: must be true or false"},
        {ORTH_TOOL_accelerate, "distributed_type: FSDP\nfsdp_config: {fsdp_offload_params: maybe}\n", NULL,
         "fsdp_config.fsdp_offload_params=maybe: must be true or false"},
        {ORTH_TOOL_accelerate, "fsdp_config: {fsdp_forward_prefetch: true}\n", "fsdp_forward_prefetch is not used: comm.prefetch says how many blocks", NULL},
        {ORTH_TOOL_accelerate, "fsdp_config: {fsdp_use_orig_params: true}\n", "fsdp_use_orig_params is not used: weights keep their names and shapes", NULL},
        {ORTH_TOOL_accelerate, "compute_environment: LOCAL_MACHINE\n", "compute_environment is not used: no number depends on where", NULL},
        {ORTH_TOOL_megatron, "--main-grads-dtype bf16", "main_grads_dtype is not used: gradients are summed in fp32", NULL},
        {ORTH_TOOL_accelerate, "fsdp_config: {fsdp_backward_prefetch: BACKWARD_POST}\n", "its value BACKWARD_POST is not known here", NULL},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        if (!cases[i].line) {
            file_fails(ctx, cases[i].tool, cases[i].text, cases[i].why);
            continue;
        }
        import_beside(ctx, &c, cases[i].tool, cases[i].text, "", &lines);
        if (!strstr(lines.text, cases[i].line))
            fail_msg("%s: wanted '%s' in\n%s", cases[i].text, cases[i].line, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* Accelerate's launcher looks at the section of the kind of run that distributed_type names; a questionnaire leaves others behind. */
TEST(a_section_of_accelerate_counts_for_its_own_kind_of_run)
{
    static const char *const places[] = {"distributed_type: %s\nnum_processes: 4\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: true}\n",
                                         "num_processes: 4\nfsdp_config: {fsdp_offload_params: true, fsdp_sharding_strategy: FULL_SHARD}\ndistributed_type: %s\n"};
    static const struct {
        const char *type;
        int zero;
    } kinds[] = {{"FSDP", 3}, {"MULTI_GPU", 0}, {"DEEPSPEED", 0}, {"'NO'", 0}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(places); i++)
        for (int k = 0; k < ORTH_COUNT(kinds); k++) {
            orth_config c;
            said lines;
            char text[256];
            snprintf(text, sizeof text, places[i], kinds[k].type);
            import_beside(ctx, &c, ORTH_TOOL_accelerate, text, "", &lines);
            const bool leaves = c.memory_offload_params == ORTH_memory_offload_params_host, fsdp = kinds[k].zero == 3;
            const bool once = count_lines(lines.text, "fsdp_config is not used: distributed_type=") == 1;
            if ((int)c.parallel_zero != kinds[k].zero || c.parallel_dp != 4 || leaves != fsdp || once == fsdp)
                fail_msg("%s: zero=%d, and\n%s", text, (int)c.parallel_zero, lines.text);
            orth_config_release(ctx, &c);
        }
    test_ctx_free(ctx);
}

/* Accelerate makes such a configuration of its section (DeepSpeedPlugin of its utils/dataclasses.py). */
TEST(a_section_of_deepspeed_in_a_file_of_accelerate_means_what_the_file_of_deepspeed_means)
{
    static const struct {
        const char *section, *file, *keys;
    } cases[] = {
        {"mixed_precision: bf16\ndeepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 4, gradient_clipping: 0.5, offload_optimizer_device: cpu, "
         "offload_param_device: none, zero3_init_flag: true, zero3_save_16bit_model: true, deepspeed_multinode_launcher: standard}\n",
         "{\"bf16\": {\"enabled\": true}, \"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", \"gradient_accumulation_steps\": 4, "
         "\"gradient_clipping\": 0.5, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": \"none\"}}}",
         "train.micro_batch=2"},
        {"mixed_precision: bf16\ndeepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 4, gradient_clipping: auto}\n",
         "{\"bf16\": {\"enabled\": true}, \"gradient_accumulation_steps\": 4, \"gradient_clipping\": \"auto\", \"zero_optimization\": {\"stage\": 2}}", "train.micro_batch=3"},
        {"mixed_precision: fp16\ndeepspeed_config: {zero_stage: 1, gradient_accumulation_steps: 2}\n",
         "{\"fp16\": {\"enabled\": true}, \"gradient_accumulation_steps\": 2, \"zero_optimization\": {\"stage\": 1}}", "train.global_batch=64 train.micro_batch=4"},
        {"mixed_precision: 'no'\ndeepspeed_config: {zero_stage: 3, gradient_accumulation_steps: auto}\n",
         "{\"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": {\"stage\": 3}}", ""},
        {"mixed_precision: bf16\ndeepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 1, offload_optimizer_device: nvme, offload_optimizer_nvme_path: /a, "
         "offload_param_device: cpu, offload_param_nvme_path: none}\n",
         "{\"bf16\": {\"enabled\": true}, \"gradient_accumulation_steps\": 1, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", "
         "\"nvme_path\": \"/a\"}, \"offload_param\": {\"device\": \"cpu\"}}}", "train.micro_batch=1"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config section, file;
        said lines;
        char text[1024], keys[128];
        snprintf(text, sizeof text, "distributed_type: DEEPSPEED\nnum_processes: 8\n%s", cases[i].section);
        snprintf(keys, sizeof keys, "parallel.dp=8 %s", cases[i].keys);
        import_beside(ctx, &file, ORTH_TOOL_deepspeed, cases[i].file, keys, &lines);
        import_beside(ctx, &section, ORTH_TOOL_accelerate, text, cases[i].keys, &lines);
        for (int id = 0; id < ORTH_NUM_OPTIONS; id++) {
            char *a = orth_option_text(ctx, &section, (orth_option_id)id), *b = orth_option_text(ctx, &file, (orth_option_id)id);
            const bool alone = id == ORTH_OPT_precision_compute; /* a file of DeepSpeed without a type says none, and that of Accelerate fp32 */
            if (strcmp(a, b) != 0 || (!section.place[id] != !file.place[id] && !alone))
                fail_msg("%s: %s=%s, of DeepSpeed's own file %s", text, orth_option_get((orth_option_id)id)->path, a, b);
            orth_mem_free(ctx, a);
            orth_mem_free(ctx, b);
        }
        if (i < 2)
            assert_int_equal(section.train_global_batch, 8 * 4 * section.train_micro_batch);
        orth_config_release(ctx, &section);
        orth_config_release(ctx, &file);
    }
    orth_config c; /* what is in a file of its own is not guessed */
    said lines;
    import_beside(ctx, &c, ORTH_TOOL_accelerate, "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config: {deepspeed_config_file: ds.json}\n", "", &lines);
    assert_true(!ORTH_CONFIG_IS_SET(&c, precision, grad_reduce) && !ORTH_CONFIG_IS_SET(&c, comm, overlap));
    assert_non_null(strstr(lines.text, "deepspeed_config_file is not used: give that file itself, plan --deepspeed"));
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(a_number_of_recomputed_layers_counts_with_full_recomputation)
{
    static const struct {
        orth_tool tool;
        const char *text;
        int64_t layers;
        const char *line;
    } cases[] = {
        {ORTH_TOOL_nemo, "model: {activations_checkpoint_granularity: selective, activations_checkpoint_num_layers: 0}", 1, "is not used: it is of full"},
        {ORTH_TOOL_nemo, "model: {activations_checkpoint_granularity: full, activations_checkpoint_num_layers: 2}", 2, "is memory.recompute_layers=2"},
        {ORTH_TOOL_nemo, "model: {activations_checkpoint_granularity: null, activations_checkpoint_method: block, activations_checkpoint_num_layers: 2}", 1,
         "activations_checkpoint_method is not used: it is of full recomputation\n"},
        {ORTH_TOOL_nemo, "model: {activations_checkpoint_granularity: selective, activations_checkpoint_method: uniform, activations_checkpoint_num_layers: 2}", 1,
         "activations_checkpoint_num_layers is not used: it is of full recomputation\n"},
        {ORTH_TOOL_nemo, "model: {activations_checkpoint_granularity: full, activations_checkpoint_method: block, activations_checkpoint_num_layers: 2}", 2,
         "activations_checkpoint_method is memory.recompute_method=block"},
        {ORTH_TOOL_megatron, "--recompute-method block --recompute-num-layers 3", 1, "recompute_method is not used: it is of full"},
        {ORTH_TOOL_megatron, "--recompute-granularity selective --recompute-num-layers 3", 1, "recompute_num_layers is not used: it is of full"},
        {ORTH_TOOL_megatron, "--recompute-granularity full --recompute-num-layers 3", 3, "is memory.recompute_layers=3"},
        {ORTH_TOOL_megatron, "--optimizer-cpu-offload --optimizer-offload-fraction 0.5", 1, "optimizer_offload_fraction is memory.offload_ratio=0.5"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}}}", 1,
         "ratio is memory.offload_ratio=0.3"},
        {ORTH_TOOL_deepspeed, "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}, \"offload_param\": {\"device\": \"cpu\"}}}", 1,
         "ratio is not used: weights or gradients leave"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, cases[i].tool, cases[i].text, "", &lines);
        if (c.memory_recompute_layers != cases[i].layers || !strstr(lines.text, cases[i].line))
            fail_msg("%s: %d, and\n%s", cases[i].text, (int)c.memory_recompute_layers, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* Words of Megatron-LM without a history mean its own defaults; Accelerate's file is that of its documentation. */
TEST(delayed_scaling_is_read_with_its_history)
{
    static const struct {
        orth_tool tool;
        const char *text;
        int history, algo, margin;
    } cases[] = {
        {ORTH_TOOL_megatron, "--fp8-format hybrid\n", 1, ORTH_precision_amax_compute_algo_most_recent, 0},
        {ORTH_TOOL_megatron, "--fp8-format hybrid --fp8-margin 2 --fp8-amax-history-len 16 --fp8-amax-compute-algo max\n", 16,
         ORTH_precision_amax_compute_algo_max, 2},
        {ORTH_TOOL_nemo, "model: {fp8: true, fp8_hybrid: true, fp8_margin: 1, fp8_interval: 1, fp8_amax_history_len: 512, fp8_amax_compute_algo: max}\n",
         512, ORTH_precision_amax_compute_algo_max, 1},
        {ORTH_TOOL_accelerate, "mixed_precision: fp8\nfp8_config:\n  amax_compute_algo: most_recent\n  amax_history_len: 32\n  backend: TE\n  fp8_format: HYBRID\n"
                               "  interval: 1\n  margin: 0\n  override_linear_precision: false\n  use_autocast_during_eval: false\n",
         32, ORTH_precision_amax_compute_algo_most_recent, 0},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        import_text(ctx, &c, cases[i].tool, cases[i].text);
        assert_int_equal(c.precision_products, ORTH_precision_products_fp8_delayed);
        assert_true(c.precision_amax_history_len == cases[i].history && c.precision_fp8_margin == cases[i].margin);
        assert_int_equal(c.precision_amax_compute_algo, cases[i].algo);
        orth_config_release(ctx, &c);
    }
    orth_config c;
    said lines;
    import_beside(ctx, &c, ORTH_TOOL_accelerate, "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: fp8\n", "", &lines);
    assert_true(c.precision_compute == ORTH_precision_compute_bf16 && c.precision_products == ORTH_precision_products_fp8_delayed);
    assert_true(c.precision_grad_reduce == ORTH_precision_grad_reduce_bf16 && c.precision_amax_compute_algo == ORTH_precision_amax_compute_algo_most_recent);
    assert_null(strstr(lines.text, "all else is fp32"));
    orth_config_release(ctx, &c);
    file_fails(ctx, ORTH_TOOL_nemo, "model: {fp8: true, fp8_e4m3: true}\n", "E4M3 for gradients, too, under delayed scaling");
    file_fails(ctx, ORTH_TOOL_accelerate, "mixed_precision: fp8\nfp8_config: {backend: MSAMP}\n", "there is the recipe of TE");
    test_ctx_free(ctx);
}

/* Their programs take fp8 without a 16-bit type: that is done, and said. */
TEST(fp8_products_beside_nothing_in_16_bits_are_said)
{
    static const struct {
        orth_tool tool;
        const char *text, *keys;
        const char *line; /* NULL: none */
    } cases[] = {
        {ORTH_TOOL_megatron, "--fp8-format hybrid\n", "", "fp8_format=hybrid: products are fp8_delayed, and all else is fp32"},
        {ORTH_TOOL_megatron, "--fp8-format e4m3 --fp8-recipe mxfp8\n", "", "fp8_format=e4m3: products are mxfp8, and all else is fp32"},
        {ORTH_TOOL_megatron, "--fp8-format hybrid --bf16\n", "", NULL},
        {ORTH_TOOL_megatron, "--fp8-format hybrid\n", "precision.compute=bf16", NULL},
        {ORTH_TOOL_megatron, "--fp8-recipe delayed\n", "", NULL},
        {ORTH_TOOL_nemo, "trainer: {precision: 32}\nmodel: {fp8: true}\n", "", "model.fp8=true: products are fp8_delayed, and all else is fp32"},
        {ORTH_TOOL_nemo, "trainer: {precision: bf16-mixed}\nmodel: {fp8: true}\n", "", NULL},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, cases[i].tool, cases[i].text, cases[i].keys, &lines);
        if (cases[i].line ? !strstr(lines.text, cases[i].line) : strstr(lines.text, "all else is fp32") != NULL)
            fail_msg("%s%s: said is\n%s", cases[i].text, cases[i].keys, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(a_configuration_of_accelerate_becomes_the_keys_that_mean_the_same)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config c;
    open_import(ctx, &c, ORTH_TOOL_accelerate, FIXTURE("accelerate_fsdp.yaml"));
    assert_true(c.parallel_dp == 4 && c.parallel_zero == ORTH_parallel_zero_2 && c.precision_compute == ORTH_precision_compute_bf16);
    assert_true(c.memory_recompute == ORTH_memory_recompute_full && c.comm_prefetch == 1);
    assert_true(c.memory_offload_params == ORTH_memory_offload_params_none);
    file_fails(ctx, ORTH_TOOL_accelerate, "num_processes: many\n", "-import:1:16: num_processes: parallel.dp=many: must be a whole number");
    file_fails(ctx, ORTH_TOOL_nemo, "model: {activations_checkpoint_granularity: some}\n", "activations_checkpoint_granularity=some: there are selective and full");
    file_fails(ctx, ORTH_TOOL_accelerate, "mixed_precision: fp4\n", "mixed_precision=fp4: there are no, bf16, fp16 and fp8");
    orth_config_release(ctx, &c);
    test_ctx_free(ctx);
}

TEST(a_schedule_of_another_program_has_its_ends)
{
    static const struct {
        orth_tool tool;
        const char *source;
        int64_t warmup, decay; /* -1: not set */
        double end;
        int zero;
    } cases[] = {
        {ORTH_TOOL_megatron, "--train-iters 1000 --lr 1e-3 --lr-decay-style WSD --lr-wsd-decay-iters 100 --lr-warmup-iters 5", 5, 100, 0, 0},
        {ORTH_TOOL_megatron, "--train-iters 1000 --lr 1e-3 --lr-decay-style WSD --lr-decay-iters 1000 --lr-wsd-decay-iters 100", 0, 100, 0, 0},
        {ORTH_TOOL_megatron, "--train-samples 8000 --global-batch-size 8 --lr 1e-3 --lr-decay-style WSD --lr-wsd-decay-samples 80", 0, 10, 0, 0},
        {ORTH_TOOL_megatron, "--data-parallel-sharding-strategy optim_grads --use-megatron-fsdp --use-distributed-optimizer", 0, -1, 0.1, 2},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        open_import(ctx, &c, cases[i].tool, cases[i].source);
        assert_int_equal(c.schedule_warmup_steps, cases[i].warmup);
        assert_true(cases[i].decay < 0 || c.schedule_decay_steps == cases[i].decay);
        assert_int_equal(orth_setup_layout(&c).zero, cases[i].zero);
        orth_config_release(ctx, &c);
    }
    file_fails(ctx, ORTH_TOOL_megatron, "ARGS=(--data-parallel-sharding-strategy all)\n", "there are no_shard, optim, optim_grads and optim_grads_params");
    test_ctx_free(ctx);
}

/* lr_schedules.py of DeepSpeed: WarmupLR and WarmupDecayLR set the rate of each step themselves, from warmup_max_lr=0.001. */
TEST(the_rate_of_a_schedule_of_deepspeed_is_the_one_it_trains_with)
{
#define WITH_RATE(type, params) "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4}}, " WITHOUT_RATE(type, params)
#define WITHOUT_RATE(type, params) "\"scheduler\": {\"type\": \"" type "\", \"params\": {" params "\"warmup_num_steps\": 5}}}"
    static const struct {
        const char *text, *keys;
        double lr;
        const char *line, *other;
    } cases[] = {
        {WITH_RATE("WarmupLR", "\"warmup_max_lr\": 1e-4, "), "", 1e-4, "scheduler.params.warmup_max_lr is optimizer.lr=0.0001",
         "optimizer.params.lr is not used: WarmupLR trains with scheduler.params.warmup_max_lr, 0.0001"},
        {WITH_RATE("WarmupDecayLR", "\"warmup_min_lr\": 0, "), "", 1e-3, "scheduler.type is optimizer.lr=0.001",
         "optimizer.params.lr is not used: WarmupDecayLR trains with scheduler.params.warmup_max_lr, 0.001 where it is not given"},
        {WITH_RATE("WarmupLR", "\"warmup_max_lr\": \"auto\", "), "", 3e-4, "optimizer.params.lr is optimizer.lr=0.0003", "warmup_max_lr is not used: it is auto"},
        {WITH_RATE("WarmupCosineLR", "\"warmup_max_lr\": 1e-4, "), "", 3e-4, "optimizer.params.lr is optimizer.lr=0.0003",
         "warmup_max_lr is not used: only WarmupLR and WarmupDecayLR have a rate of their own"},
        {"{" WITHOUT_RATE("WarmupLR", "\"warmup_min_lr\": 1e-6, \"warmup_type\": \"log\", "), "", 1e-3, "scheduler.type is optimizer.lr=0.001",
         "warmup_type is not used: the warm-up is a line"},
        {"{" WITHOUT_RATE("WarmupLR", ""), "optimizer.lr=2e-4", 2e-4, "scheduler.type is schedule.name=constant", "schedule.warmup_steps=5"},
        {WITH_RATE("WarmupLR", "\"warmup_max_lr\": 1e-4, "), "optimizer.lr=2e-4", 2e-4, "warmup_max_lr is not used: the command line gives optimizer.lr", ""},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_config c;
        said lines;
        import_beside(ctx, &c, ORTH_TOOL_deepspeed, cases[i].text, cases[i].keys, &lines);
        if (c.optimizer_lr != cases[i].lr || !strstr(lines.text, cases[i].line) || !strstr(lines.text, cases[i].other))
            fail_msg("%s: %g, and\n%s", cases[i].text, c.optimizer_lr, lines.text);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_names_a_key_and_a_value_that_there_are),
        cmocka_unit_test(delayed_scaling_is_read_with_its_history),
        cmocka_unit_test(a_deepspeed_configuration_becomes_the_keys_that_mean_the_same),
        cmocka_unit_test(a_deepspeed_configuration_that_contradicts_itself_is_refused),
        cmocka_unit_test(an_optimizer_and_a_schedule_of_no_key_are_named_as_defaults_of_orthant),
        cmocka_unit_test(activations_of_a_part_of_the_layers_do_not_count_as_those_of_all),
        cmocka_unit_test(partitioned_activations_of_deepspeed_count_where_there_are_some_to_partition),
        cmocka_unit_test(copies_of_checkpoints_on_the_host_count_where_there_are_checkpoints),
        cmocka_unit_test(what_another_program_has_and_this_one_has_not_is_refused_and_old_names_count),
        cmocka_unit_test(a_section_of_accelerate_counts_for_its_own_kind_of_run),
        cmocka_unit_test(a_section_of_deepspeed_in_a_file_of_accelerate_means_what_the_file_of_deepspeed_means),
        cmocka_unit_test(a_number_of_recomputed_layers_counts_with_full_recomputation),
        cmocka_unit_test(fp8_products_beside_nothing_in_16_bits_are_said),
        cmocka_unit_test(a_configuration_of_accelerate_becomes_the_keys_that_mean_the_same),
        cmocka_unit_test(a_schedule_of_another_program_has_its_ends),
        cmocka_unit_test(the_rate_of_a_schedule_of_deepspeed_is_the_one_it_trains_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
