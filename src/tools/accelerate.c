/* accelerate.c -- see accelerate.h. Source: the documentation of Accelerate, FullyShardedDataParallelPlugin. */
#include "tools/accelerate.h"

#include <string.h>

#include "base/text.h"
#include "base/yaml.h"

/* value NULL: what the file says is the value here; else the row is for this value of the file, and `here` is the value. key NULL: not used, `here`
 * says why. The first row that fits counts. */
static const struct {
    const char *path, *value, *key, *here;
} rows[] = {
    {"num_processes", NULL, "parallel.dp", NULL},
    {"gradient_clipping", NULL, "train.clip_norm", NULL},
    {"mixed_precision", "no", "precision.compute", "fp32"},
    {"mixed_precision", "bf16", "precision.compute", "bf16"},
    {"mixed_precision", "fp16", "precision.compute", "fp16"},
    {"distributed_type", "MULTI_GPU", "parallel.zero", "0"},
    {"distributed_type", "MULTI_CPU", "parallel.zero", "0"},
    {"distributed_type", "NO", "parallel.zero", "0"},
    {"distributed_type", "FSDP", NULL, "fsdp_config says what is sharded"},
    {"distributed_type", "DEEPSPEED", NULL, "give the file of DeepSpeed itself, plan --deepspeed"},
    {"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD", "parallel.zero", "3"},
    {"fsdp_config.fsdp_sharding_strategy", "1", "parallel.zero", "3"},
    {"fsdp_config.fsdp_sharding_strategy", "SHARD_GRAD_OP", "parallel.zero", "2"},
    {"fsdp_config.fsdp_sharding_strategy", "2", "parallel.zero", "2"},
    {"fsdp_config.fsdp_sharding_strategy", "NO_SHARD", "parallel.zero", "0"},
    {"fsdp_config.fsdp_sharding_strategy", "3", "parallel.zero", "0"},
    {"fsdp_config.fsdp_sharding_strategy", NULL, NULL, "give parallel.zero=HYBRID_SHARD and parallel.shard_group, the devices of a node"},
    {"fsdp_config.fsdp_reshard_after_forward", "true", "parallel.zero", "3"},
    {"fsdp_config.fsdp_reshard_after_forward", "false", "parallel.zero", "2"},
    {"fsdp_config.fsdp_activation_checkpointing", "true", "memory.recompute", "full"},
    {"fsdp_config.fsdp_activation_checkpointing", "false", "memory.recompute", "none"},
    {"fsdp_config.fsdp_backward_prefetch", "NO_PREFETCH", "comm.prefetch", "0"},
    {"fsdp_config.fsdp_backward_prefetch", "BACKWARD_PRE", "comm.prefetch", "1"},
    {"fsdp_config.fsdp_offload_params", "false", NULL, "nothing is offloaded"},
    {"fsdp_config.fsdp_offload_params", NULL, NULL, "there is no offload in this version: the plan keeps parameters on the device"},
    {"fsdp_config.fsdp_auto_wrap_policy", NULL, NULL, "parameters are gathered layer by layer"},
    {"deepspeed_config.*", NULL, NULL, "give the file of DeepSpeed itself, plan --deepspeed"},
};

typedef struct {
    orth_config *cfg;
} import;

static orth_yaml_kind kind(void *user, const char *path)
{
    static const char *const sections[] = {"fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config", "dynamo_config", "fp8_config"};
    (void)user;
    for (int i = 0; i < ORTH_COUNT(sections); i++)
        if (strcmp(sections[i], path) == 0)
            return ORTH_YAML_SECTION;
    return strcmp(path, "tpu_env") == 0 ? ORTH_YAML_VALUE : ORTH_YAML_SCALAR; /* that is a list */
}

static int find_row(const char *path, const char *value)
{
    for (int i = 0; i < ORTH_COUNT(rows); i++) {
        const size_t n = strlen(rows[i].path);
        const bool all = rows[i].path[n - 1] == '*';
        if ((all ? strncmp(rows[i].path, path, n - 1) == 0 : strcmp(rows[i].path, path) == 0) && (!rows[i].value || strcmp(rows[i].value, value) == 0))
            return i;
    }
    return -1;
}

static orth_status put(orth_ctx *ctx, void *user, const char *path, const char *place, const orth_written *value)
{
    import *x = user;
    const char *word = value->is_list || value->num_items == 0 ? "" : value->items[0];
    const int row = find_row(path, word);
    if (row < 0 || !rows[row].key) {
        orth_log(ctx, ORTH_LOG_INFO, "import", "%s: %s is not used: %s", ORTH_SHOWN(place), ORTH_SHOWN(path),
                 row < 0 ? "it has no counterpart that changes memory or time" : rows[row].here);
        return ORTH_OK;
    }
    const char *here = rows[row].here ? rows[row].here : word;
    ORTH_TRY(orth_config_set(ctx, x->cfg, place, rows[row].key, here));
    orth_log(ctx, ORTH_LOG_INFO, "import", "%s: %s is %s=%s", ORTH_SHOWN(place), ORTH_SHOWN(path), rows[row].key, ORTH_SHOWN(here));
    return ORTH_OK;
}

/* No key is unknown: those without a row are listed as not used. */
static orth_status unknown(orth_ctx *ctx, void *user, const char *place, const char *path)
{
    (void)user;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: key '%s'", place, path);
}

orth_status orth_accelerate_set(orth_ctx *ctx, orth_config *cfg, const char *path)
{
    import x = {cfg};
    const orth_yaml_schema schema = {"a configuration of Accelerate", "num_processes: 8", kind, put, unknown};
    return orth_yaml_load(ctx, &schema, &x, path);
}
