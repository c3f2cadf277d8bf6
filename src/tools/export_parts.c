/* export_parts.c -- the other way round of import_parts.c: values there that follow from several keys here. */
#include "tools/export_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "train/lr.h"
#include "train/setup.h"

#define RANKS_OF_A_NODE 8      /* where neither parallel.ranks_per_host nor a cluster says it */

static const char *int_text(orth_exporter *x, int64_t v)
{
    return orth_arena_printf(x->ctx, &x->out.arena, "%" PRId64, v);
}

static const char *real_text(orth_exporter *x, double v)
{
    return orth_arena_printf(x->ctx, &x->out.arena, "%.15g", v);
}

static const char *yes_if(bool b)
{
    return b ? "true" : NULL;
}

/* Accelerate's processes are the data-parallel ranks. */
static int64_t num_ranks(const orth_exporter *x)
{
    if (x->out.tool == ORTH_TOOL_accelerate)
        return x->cfg->parallel_dp;
    const orth_layout layout = orth_setup_layout(x->cfg);
    return orth_layout_ranks(&layout);
}

static int64_t ranks_of_a_node(const orth_exporter *x)
{
    const int64_t ranks = num_ranks(x), given = x->cfg->parallel_ranks_per_host;
    const int64_t most = given > 0 ? given : x->ranks_of_a_node > 0 ? x->ranks_of_a_node : RANKS_OF_A_NODE;
    return ranks > most && ranks % most == 0 ? most : ranks;
}

static const char *accumulation(orth_exporter *x)
{
    const orth_config *c = x->cfg;
    return int_text(x, c->train_global_batch / (c->train_micro_batch * c->parallel_dp));
}

static const char *cp_kind(const orth_config *c)
{
    static const char *const there[] = {[ORTH_parallel_cp_kind_ring] = "p2p", [ORTH_parallel_cp_kind_all_gather] = "all_gather",
                                        [ORTH_parallel_cp_kind_all_to_all] = "a2a"};
    return c->parallel_cp > 1 ? there[c->parallel_cp_kind] : NULL;
}

static const char *scale(orth_exporter *x, orth_import_part part)
{
    const orth_config *c = x->cfg;
    const bool fixed = orth_config_loss_scale(c) == ORTH_precision_loss_scale_static;
    int power;
    if (c->precision_compute != ORTH_precision_compute_fp16 || fixed != (part == ORTH_PART_static_scale))
        return NULL;
    if (part != ORTH_PART_scale_power)
        return real_text(x, c->precision_loss_scale_start);
    return frexp(c->precision_loss_scale_start, &power) == 0.5 ? int_text(x, power - 1) : NULL;
}

/* Theirs are all of one size. */
static const char *layers_of_chunk(orth_exporter *x)
{
    const int64_t chunks = x->cfg->parallel_pp * x->cfg->parallel_virtual_stages;
    return x->cfg->model_layers % chunks == 0 ? int_text(x, x->cfg->model_layers / chunks) : NULL;
}

static const char *prefetch_elems(orth_exporter *x)
{
    const orth_config *c = x->cfg;
    if (c->comm_prefetch > 0 && c->comm_prefetch_elems == 0)
        return NULL;
    return int_text(x, c->comm_prefetch > 0 ? c->comm_prefetch_elems : 0);
}

/* How FSDP wraps, where parameters are gathered for each use. */
static const char *wrapping(orth_exporter *x, orth_import_part part)
{
    static const char *const policies[] = {
        [ORTH_parallel_gather_unit_layer] = "TRANSFORMER_BASED_WRAP", [ORTH_parallel_gather_unit_half] = "TRANSFORMER_BASED_WRAP",
        [ORTH_parallel_gather_unit_layers] = "TRANSFORMER_BASED_WRAP", [ORTH_parallel_gather_unit_elements] = "SIZE_BASED_WRAP",
        [ORTH_parallel_gather_unit_model] = "NO_WRAP"};
    const orth_config *c = x->cfg;
    if (part == ORTH_PART_wrap)
        return policies[c->parallel_gather_unit];
    if (part == ORTH_PART_wrap_elems)
        return c->parallel_gather_unit == ORTH_parallel_gather_unit_elements ? int_text(x, c->parallel_gather_size) : NULL;
    if (c->parallel_gather_unit != ORTH_parallel_gather_unit_half)
        return NULL;
    if (c->model_family != ORTH_model_family_llama)
        return "GPT2Attention,GPT2MLP";
    const bool qwen2 = c->model_qkv_bias && !c->model_out_bias && !c->model_mlp_bias;
    return c->model_qk_norm ? "Qwen3Attention,Qwen3MLP" : qwen2 ? "Qwen2Attention,Qwen2MLP" : "LlamaAttention,LlamaMLP";
}

static int64_t num_machines(const orth_exporter *x)
{
    return num_ranks(x) / ranks_of_a_node(x);
}

/* FSDP's groups are the data-parallel ranks of a machine; others have no name there. */
static const char *hybrid(const orth_exporter *x)
{
    const orth_config *c = x->cfg;
    const int64_t machines = num_machines(x);
    if (machines == 1 || c->parallel_shard_group == 0 || c->parallel_shard_group * machines != c->parallel_dp)
        return NULL;
    return c->parallel_zero == ORTH_parallel_zero_3 ? "HYBRID_SHARD" : c->parallel_zero == ORTH_parallel_zero_2 ? "HYBRID_SHARD_ZERO2" : NULL;
}

/* Its fused Adam. SGD has no name that is read back. */
static const char *optimizer_of_nemo(const orth_config *c)
{
    if (c->optimizer_name == ORTH_optimizer_name_sgd)
        return NULL;
    return c->parallel_zero == ORTH_parallel_zero_1 ? "distributed_fused_adam" : "fused_adam";
}

/* FSDP has all that it shards in the host's memory, or nothing. */
static const char *offload_all(const orth_config *c)
{
    return c->memory_offload_optimizer == ORTH_memory_offload_optimizer_host && c->memory_offload_params == ORTH_memory_offload_params_host &&
           c->memory_offload_gradients == ORTH_memory_offload_gradients_host ? "true" : "false";
}

/* The words of NeMo's distributed optimizers and of its FSDP; replicas are summed in fp32. */
static const char *grad_sync(const orth_config *c, bool of_fsdp)
{
    const bool bf16 = c->precision_grad_reduce == ORTH_precision_grad_reduce_bf16, fsdp = c->parallel_zero >= ORTH_parallel_zero_2;
    if (c->precision_grad_reduce == ORTH_precision_grad_reduce_int8 || c->parallel_zero == ORTH_parallel_zero_0 || fsdp != of_fsdp)
        return NULL;
    return bf16 ? "bf16" : of_fsdp ? "32" : "fp32";
}

/* DeepSpeed's copies are of the inputs that recomputation keeps. */
static const char *checkpoints_on_host(const orth_config *c)
{
    const bool host = c->memory_offload_activations == ORTH_memory_offload_activations_host;
    return host && c->memory_recompute != ORTH_memory_recompute_none ? "true" : NULL;
}

static const char *of_zero_3(orth_exporter *x, orth_import_part part)
{
    const orth_config *c = x->cfg;
    if (c->parallel_zero != ORTH_parallel_zero_3)
        return NULL;
    switch (part) {
    case ORTH_PART_keep_whole: return ORTH_CONFIG_IS_SET(c, parallel, keep_whole) ? int_text(x, c->parallel_keep_whole) : NULL;
    case ORTH_PART_reuse: return int_text(x, c->parallel_max_reuse_distance);
    case ORTH_PART_mics: return c->parallel_shard_group > 0 ? int_text(x, c->parallel_shard_group) : NULL;
    case ORTH_PART_live: return c->parallel_max_live > 0 ? int_text(x, c->parallel_max_live) : NULL;
    case ORTH_PART_prefetch_elems: return prefetch_elems(x);
    default: return wrapping(x, part);
    }
}

static const char *recompute_method(const orth_config *c)
{
    if (c->memory_recompute != ORTH_memory_recompute_full)
        return NULL;
    return orth_option_choice(ORTH_OPT_memory_recompute_method, (int)c->memory_recompute_method);
}

static const char *of_layout(orth_exporter *x, orth_import_part part)
{
    const orth_config *c = x->cfg;
    const bool chunks = c->parallel_virtual_stages > 1 && c->parallel_pp > 1, fsdp = c->parallel_zero >= ORTH_parallel_zero_2;
    switch (part) {
    case ORTH_PART_nodes: return int_text(x, num_machines(x));
    case ORTH_PART_ranks_a_node: return int_text(x, ranks_of_a_node(x));
    case ORTH_PART_accumulation: return accumulation(x);
    case ORTH_PART_replicas: return c->parallel_shard_group > 0 ? int_text(x, c->parallel_dp / c->parallel_shard_group) : NULL;
    case ORTH_PART_hybrid: return hybrid(x);
    case ORTH_PART_fsdp: return fsdp ? "true" : "false";
    case ORTH_PART_fsdp_shards: return !fsdp ? NULL : c->parallel_zero == ORTH_parallel_zero_3 ? "full" : "grad";
    case ORTH_PART_nemo_optim: return optimizer_of_nemo(c);
    case ORTH_PART_mics:
    case ORTH_PART_keep_whole:
    case ORTH_PART_reuse:
    case ORTH_PART_live:
    case ORTH_PART_prefetch_elems:
    case ORTH_PART_wrap:
    case ORTH_PART_wrap_classes:
    case ORTH_PART_wrap_elems: return of_zero_3(x, part);
    case ORTH_PART_sequence_parallel: return yes_if(c->parallel_sequence_parallel);
    case ORTH_PART_cp_kind: return cp_kind(c);
    case ORTH_PART_first_stage: return orth_export_end(x, true);
    case ORTH_PART_last_stage: return orth_export_end(x, false);
    case ORTH_PART_layers_of_chunk: return chunks ? layers_of_chunk(x) : NULL;
    case ORTH_PART_sharding: return c->parallel_zero > ORTH_parallel_zero_1 ? orth_import_sharding[c->parallel_zero] : NULL; /* else another word */
    case ORTH_PART_recompute_method: return recompute_method(c);
    case ORTH_PART_recompute_layers: return c->memory_recompute == ORTH_memory_recompute_full ? int_text(x, c->memory_recompute_layers) : NULL;
    case ORTH_PART_host_checkpoints: return checkpoints_on_host(c);
    case ORTH_PART_split_inputs: return yes_if(c->memory_recompute_split);
    case ORTH_PART_offload_all: return offload_all(c);
    case ORTH_PART_offload_ratio: return c->memory_offload_optimizer != ORTH_memory_offload_optimizer_none ? real_text(x, c->memory_offload_ratio) : NULL;
    case ORTH_PART_chunks: return chunks && x->out.tool == ORTH_TOOL_nemo ? int_text(x, c->parallel_virtual_stages) : NULL;
    default: return NULL;
    }
}

bool orth_export_is_fp8_autocast(const orth_config *c)
{
    return c->precision_compute == ORTH_precision_compute_bf16 && c->precision_products == ORTH_precision_products_fp8_delayed;
}

static const char *of_training(orth_exporter *x, orth_import_part part)
{
    const orth_config *c = x->cfg;
    const bool adam = c->optimizer_name != ORTH_optimizer_name_sgd, wsd = c->schedule_name == ORTH_schedule_name_wsd;
    const bool delayed = c->precision_products == ORTH_precision_products_fp8_delayed;
    switch (part) {
    case ORTH_PART_amp_o2: /* FSDP refuses it */
        return c->precision_compute != ORTH_precision_compute_fp32 && c->parallel_zero < ORTH_parallel_zero_2 ? "true" : "false";
    case ORTH_PART_grad_sync: return grad_sync(c, false);
    case ORTH_PART_fsdp_grad_sync: return grad_sync(c, true);
    case ORTH_PART_bf16: return yes_if(c->precision_compute == ORTH_precision_compute_bf16);
    case ORTH_PART_fp16: return yes_if(c->precision_compute == ORTH_precision_compute_fp16);
    case ORTH_PART_fp8_autocast: return orth_export_is_fp8_autocast(c) ? "fp8" : NULL;
    case ORTH_PART_fp8_format: return orth_import_fp8[c->precision_products].format;
    case ORTH_PART_fp8_recipe: return orth_import_fp8[c->precision_products].recipe;
    case ORTH_PART_amax_history: return delayed ? int_text(x, c->precision_amax_history_len) : NULL;
    case ORTH_PART_amax_algo: return delayed ? orth_option_choice(ORTH_OPT_precision_amax_compute_algo, (int)c->precision_amax_compute_algo) : NULL;
    case ORTH_PART_static_scale:
    case ORTH_PART_first_scale:
    case ORTH_PART_scale_power: return scale(x, part);
    case ORTH_PART_decay_steps:
        return !wsd && ORTH_CONFIG_IS_SET(c, schedule, decay_steps) ? int_text(x, c->schedule_decay_steps + c->schedule_warmup_steps) : NULL;
    case ORTH_PART_wsd_steps: return wsd ? int_text(x, orth_lr_decay_steps(c)) : NULL;
    case ORTH_PART_ds_warmup: return wsd ? NULL : int_text(x, ORTH_MAX(2, c->schedule_warmup_steps)); /* it refuses 0, and takes 1 as 2 */
    case ORTH_PART_ds_lr: return real_text(x, c->optimizer_lr);
    case ORTH_PART_ds_peak: return wsd || c->schedule_name == ORTH_schedule_name_cosine ? NULL : real_text(x, c->optimizer_lr);
    case ORTH_PART_cosine_end: return c->schedule_name == ORTH_schedule_name_cosine ? real_text(x, c->schedule_min_lr_ratio) : NULL;
    case ORTH_PART_min_lr: return real_text(x, c->schedule_min_lr_ratio * c->optimizer_lr);
    case ORTH_PART_beta1: return adam ? real_text(x, c->optimizer_betas.v[0]) : NULL;
    case ORTH_PART_beta2: return adam ? real_text(x, c->optimizer_betas.v[1]) : NULL;
    default: return NULL; /* samples and shares: steps are written */
    }
}

/* Only Llama 3.1's way has a word there. */
static bool scales_rope(const orth_config *c)
{
    return c->model_rope_factor > 1 && c->model_rope_low_freq == 1 && c->model_rope_high_freq == 4 && c->model_rope_original_seq == 8192;
}

static const char *of_model(orth_exporter *x, orth_import_part part)
{
    const orth_config *c = x->cfg;
    const bool llama = c->model_family == ORTH_model_family_llama, nemo = x->out.tool == ORTH_TOOL_nemo, grouped = c->model_kv_heads != c->model_heads;
    switch (part) {
    case ORTH_PART_swiglu: return yes_if(llama);
    case ORTH_PART_activation: return llama ? "fast-swiglu" : "gelu";
    case ORTH_PART_norm: return llama ? (nemo ? "rmsnorm" : "RMSNorm") : nemo ? "layernorm" : "LayerNorm";
    case ORTH_PART_positions: return llama ? "rope" : "learned_absolute";
    case ORTH_PART_rope_scaling: return yes_if(scales_rope(c));
    case ORTH_PART_rope_factor: return scales_rope(c) ? real_text(x, c->model_rope_factor) : NULL;
    case ORTH_PART_no_bias: return yes_if(!c->model_out_bias && !c->model_mlp_bias);
    case ORTH_PART_bias: return c->model_out_bias ? "true" : "false";
    case ORTH_PART_qkv_bias: return yes_if(c->model_qkv_bias && !c->model_out_bias);
    case ORTH_PART_ffn: return int_text(x, c->model_ffn);
    case ORTH_PART_group_query: return yes_if(grouped);
    case ORTH_PART_query_groups: return grouped ? int_text(x, c->model_kv_heads) : NULL;
    case ORTH_PART_vocab: return int_text(x, c->model_vocab);
    case ORTH_PART_vocab_multiple: return "1"; /* it is a multiple of what it has to be already */
    default: return NULL; /* rotary: positions say it; tokenizer: the size of the vocabulary does */
    }
}

const char *orth_export_part(orth_exporter *x, orth_import_part part)
{
    if (part <= ORTH_PART_chunks)
        return of_layout(x, part);
    return part <= ORTH_PART_beta2 ? of_training(x, part) : of_model(x, part);
}

/* Its default sums gradients in the type of the weights. fp16 with sums in fp32 it refuses without ZeRO. */
static orth_status sums_of_deepspeed(orth_exporter *x)
{
    const orth_config *c = x->cfg;
    return c->precision_compute == ORTH_precision_compute_bf16 ? orth_export_add(x, "data_types.grad_accum_dtype", "fp32") : ORTH_OK;
}

/* Without the word its schedules rise along a logarithm. */
static orth_status extras_of_deepspeed(orth_exporter *x)
{
    const orth_config *c = x->cfg;
    ORTH_TRY(sums_of_deepspeed(x));
    if (c->schedule_name == ORTH_schedule_name_wsd)
        return ORTH_OK; /* it has no such schedule */
    return orth_export_add(x, "scheduler.params.warmup_type", "linear");
}

static orth_status extras_of_accelerate(orth_exporter *x)
{
    ORTH_TRY(orth_export_add(x, "compute_environment", "LOCAL_MACHINE"));
    if (orth_export_is_fp8_autocast(x->cfg))
        ORTH_TRY(orth_export_add(x, "fp8_config.backend", "TE")); /* without it, whatever is installed */
    if (orth_export_says(x, "distributed_type"))
        return ORTH_OK;
    if (!orth_export_says(x, "fsdp_config.fsdp_sharding_strategy"))
        return orth_export_add(x, "distributed_type", "MULTI_GPU"); /* FSDP without a strategy shards all */
    ORTH_TRY(orth_export_add(x, "distributed_type", "FSDP"));
    return orth_export_add(x, "fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
}

/* Words without which Megatron-LM refuses others, or does not do what they say (megatron/training/arguments.py, core 0.12 and later). */
static orth_status extras_of_megatron(orth_exporter *x)
{
    const orth_config *c = x->cfg;
    const bool aware = c->precision_moments == ORTH_precision_moments_bf16 || c->memory_offload_optimizer == ORTH_memory_offload_optimizer_host;
    if (aware)
        ORTH_TRY(orth_export_add(x, "use_precision_aware_optimizer", "true"));
    if (c->precision_moments == ORTH_precision_moments_bf16)
        ORTH_TRY(orth_export_add(x, "exp_avg_sq_dtype", "bf16"));
    if (orth_export_says(x, "data_parallel_sharding_strategy")) {
        ORTH_TRY(orth_export_add(x, "use_megatron_fsdp", "true"));
        ORTH_TRY(orth_export_add(x, "ckpt_format", "fsdp_dtensor"));
    }
    if (orth_export_says(x, "fine_grained_activation_offloading"))
        ORTH_TRY(orth_export_add(x, "offload_modules", "core_attn attn_proj attn_norm mlp_norm qkv_linear"));
    return c->schedule_name == ORTH_schedule_name_wsd ? orth_export_add(x, "lr_wsd_decay_style", "linear") : ORTH_OK;
}

/* Offloading there is for all layers but the last, at most. */
static orth_status extras_of_nemo(orth_exporter *x)
{
    const bool leave = x->cfg->memory_offload_activations == ORTH_memory_offload_activations_host;
    return leave ? orth_export_add(x, "model.cpu_offloading_num_layers", int_text(x, x->cfg->model_layers - 1)) : ORTH_OK;
}

orth_status orth_export_extras(orth_exporter *x)
{
    switch (x->out.tool) {
    case ORTH_TOOL_deepspeed: return extras_of_deepspeed(x);
    case ORTH_TOOL_accelerate: return extras_of_accelerate(x);
    case ORTH_TOOL_megatron: return extras_of_megatron(x);
    case ORTH_TOOL_nemo: return extras_of_nemo(x);
    case ORTH_NUM_TOOLS: break;
    }
    return ORTH_OK;
}
