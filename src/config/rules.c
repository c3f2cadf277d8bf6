/* rules.c -- the rules between options, in one list. What holds for a single value is in its row. */
#include <inttypes.h>
#include <string.h>

#include "config/config.h"
#include "base/text.h"
#include "model/factors.h"

/* "run.yaml:3:9: " for the first of the two options that was given, "" when both are defaults. */
static const char *place_of(const orth_config *c, orth_option_id a, orth_option_id b)
{
    return c->place[a] ? c->place[a] : c->place[b] ? c->place[b] : "defaults";
}

#define BREAKS(ctx, c, a, b, ...) breaks((ctx), place_of((c), ORTH_OPT_##a, ORTH_OPT_##b), __LINE__, __VA_ARGS__)

static orth_status __attribute__((format(printf, 4, 5)))
breaks(orth_ctx *ctx, const char *place, int line, const char *fmt, ...)
{
    char text[ORTH_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return orth_fail(ctx, ORTH_ERR_ARG, __FILE__, line, "%s: %s", place, text);
}

static orth_status micro_batch_divides(orth_ctx *ctx, const orth_config *c)
{
    if (c->train_global_batch % c->train_micro_batch == 0)
        return ORTH_OK;
    return BREAKS(ctx, c, train_micro_batch, train_global_batch,
                  "train.micro_batch=%" PRId64 " does not divide train.global_batch=%" PRId64,
                  c->train_micro_batch, c->train_global_batch);
}

static orth_status steps_or_epochs(orth_ctx *ctx, const orth_config *c)
{
    if (c->train_epochs == 0 || !ORTH_CONFIG_IS_SET(c, train, steps))
        return ORTH_OK;
    return BREAKS(ctx, c, train_epochs, train_steps, "train.epochs=%g and train.steps=%" PRId64 " both say how long to train: "
                  "give one of them (train.epochs=0 takes it back)", c->train_epochs, c->train_steps);
}

static bool is_fast(const orth_config *c)
{
    return c->numerics_mode == ORTH_numerics_mode_fast;
}

static orth_status parts_are_a_power_of_two(orth_ctx *ctx, const orth_config *c)
{
    if (is_fast(c) || (c->numerics_parts & (c->numerics_parts - 1)) == 0)
        return ORTH_OK;
    return BREAKS(ctx, c, numerics_parts, numerics_parts, "numerics.parts=%" PRId64 " is not a power of two",
                  c->numerics_parts);
}

static orth_status sequence_holds_its_parts(orth_ctx *ctx, const orth_config *c)
{
    if (is_fast(c) || c->data_seq_len >= c->numerics_parts)
        return ORTH_OK;
    return BREAKS(ctx, c, data_seq_len, numerics_parts,
                  "data.seq_len=%" PRId64 " is less than numerics.parts=%" PRId64 "; numerics.parts=1 "
                  "allows any length, without tp and cp", c->data_seq_len, c->numerics_parts);
}

static orth_status sequence_fits_the_model(orth_ctx *ctx, const orth_config *c)
{
    if (!ORTH_CONFIG_IS_SET(c, model, max_seq) || c->data_seq_len <= c->model_max_seq)
        return ORTH_OK;
    return BREAKS(ctx, c, data_seq_len, model_max_seq,
                  "data.seq_len=%" PRId64 " exceeds model.max_seq=%" PRId64, c->data_seq_len,
                  c->model_max_seq);
}

static orth_status rings_are_fast(orth_ctx *ctx, const orth_config *c)
{
    if (c->comm_algorithm != ORTH_comm_algorithm_ring || is_fast(c))
        return ORTH_OK;
    return BREAKS(ctx, c, comm_algorithm, numerics_mode, "comm.algorithm=ring needs numerics.mode=fast: its sums begin at "
                  "another rank for each slice");
}

static orth_status rounded_gradients_are_fast(orth_ctx *ctx, const orth_config *c)
{
    const char *type = orth_option_choice(ORTH_OPT_precision_grad_reduce, (int)c->precision_grad_reduce);
    if (c->precision_grad_reduce == ORTH_precision_grad_reduce_fp32)
        return ORTH_OK;
    if (!is_fast(c))
        return BREAKS(ctx, c, precision_grad_reduce, numerics_mode, "precision.grad_reduce=%s needs numerics.mode=fast: what a rank's sum is "
                      "rounded to depends on how many ranks there are", type);
    if (c->precision_grad_reduce == ORTH_precision_grad_reduce_int8 &&
        (c->comm_algorithm == ORTH_comm_algorithm_ring || c->comm_algorithm == ORTH_comm_algorithm_tree))
        return BREAKS(ctx, c, precision_grad_reduce, comm_algorithm, "precision.grad_reduce=int8 needs comm.algorithm=auto or direct, not %s, which "
                      "passes on sums in fp32", orth_option_choice(ORTH_OPT_comm_algorithm, (int)c->comm_algorithm));
    return ORTH_OK;
}

static orth_status reuse_needs_one_stage(orth_ctx *ctx, const orth_config *c)
{
    if (c->parallel_max_reuse_distance == 0 || c->parallel_pp == 1)
        return ORTH_OK;
    return BREAKS(ctx, c, parallel_max_reuse_distance, parallel_pp, "parallel.max_reuse_distance with parallel.pp=%" PRId64 ": in a pipeline other "
                  "micro-batches come between the forward and the backward of a layer", c->parallel_pp);
}

int orth_config_zero_stage(const orth_config *c)
{
    switch (c->parallel_zero) {
    case ORTH_parallel_zero_0:
    case ORTH_parallel_zero_NO_SHARD: return 0;
    case ORTH_parallel_zero_1: return 1;
    case ORTH_parallel_zero_2:
    case ORTH_parallel_zero_SHARD_GRAD_OP:
    case ORTH_parallel_zero__HYBRID_SHARD_ZERO2: return 2;
    default: return 3;
    }
}

static bool shards_parameters(const orth_config *c)
{
    return orth_config_zero_stage(c) == 3;
}

static orth_status only_zero_3_gathers(orth_ctx *ctx, const orth_config *c)
{
    const char *zero = orth_option_choice(ORTH_OPT_parallel_zero, (int)c->parallel_zero);
    if (shards_parameters(c))
        return ORTH_OK;
    if (c->parallel_gather_unit != ORTH_parallel_gather_unit_layer)
        return BREAKS(ctx, c, parallel_gather_unit, parallel_zero, "parallel.gather_unit=%s with parallel.zero=%s: only zero=3 gathers parameters for "
                      "each use", orth_option_choice(ORTH_OPT_parallel_gather_unit, (int)c->parallel_gather_unit), zero);
    if (c->parallel_max_reuse_distance > 0)
        return BREAKS(ctx, c, parallel_max_reuse_distance, parallel_zero, "parallel.max_reuse_distance=%" PRId64 " with parallel.zero=%s: only zero=3 "
                      "gathers parameters for each use", c->parallel_max_reuse_distance, zero);
    if (c->parallel_max_live > 0)
        return BREAKS(ctx, c, parallel_max_live, parallel_zero, "parallel.max_live=%" PRId64 " with parallel.zero=%s: only zero=3 gathers parameters for "
                      "each use", c->parallel_max_live, zero);
    return ORTH_OK;
}

static orth_status units_have_a_size(orth_ctx *ctx, const orth_config *c)
{
    const bool sized = c->parallel_gather_unit == ORTH_parallel_gather_unit_layers || c->parallel_gather_unit == ORTH_parallel_gather_unit_elements;
    const char *unit = orth_option_choice(ORTH_OPT_parallel_gather_unit, (int)c->parallel_gather_unit);
    if (sized && c->parallel_gather_size == 0)
        return BREAKS(ctx, c, parallel_gather_unit, parallel_gather_size, "parallel.gather_unit=%s needs parallel.gather_size: how many make a unit", unit);
    if (!sized && c->parallel_gather_size > 0)
        return BREAKS(ctx, c, parallel_gather_size, parallel_gather_unit, "parallel.gather_size=%" PRId64 " with parallel.gather_unit=%s: it is the "
                      "size of a unit of layers or elements", c->parallel_gather_size, unit);
    return ORTH_OK;
}

static orth_status two_betas(orth_ctx *ctx, const orth_config *c)
{
    if (c->optimizer_betas.n == 2)
        return ORTH_OK;
    return BREAKS(ctx, c, optimizer_betas, optimizer_betas, "optimizer.betas holds %d numbers, not 2",
                  c->optimizer_betas.n);
}

/* The optimizer computes in fp32. */
static orth_status small_values_are_more_than_zero(orth_ctx *ctx, const orth_config *c)
{
    if ((float)c->optimizer_eps == 0 && c->optimizer_name != ORTH_optimizer_name_sgd)
        return BREAKS(ctx, c, optimizer_eps, optimizer_name, "optimizer.eps=%g is 0 in fp32: it must be more, or a weight whose gradient was always 0 "
                      "would become 0/0", c->optimizer_eps);
    if ((float)c->train_clip_norm == 0 && c->train_clip_norm != 0)
        return BREAKS(ctx, c, train_clip_norm, train_clip_norm, "train.clip_norm=%g is 0 in fp32, which would be no clipping: give 0 for that, or more",
                      c->train_clip_norm);
    return ORTH_OK;
}

/* The first word that is wrong; NULL: none. */
static const char *wrong_factor(const orth_strings *words, const char **why)
{
    for (int32_t i = 0; i < words->n; i++)
        if ((*why = orth_factor_word_check(words->v[i])))
            return words->v[i];
    return NULL;
}

static orth_status factors_are_well_formed(orth_ctx *ctx, const orth_config *c)
{
    const char *why = NULL, *word = wrong_factor(&c->optimizer_lr_factors, &why);
    if (word)
        return BREAKS(ctx, c, optimizer_lr_factors, optimizer_lr_factors, "optimizer.lr_factors: '%s' %s", word, why);
    word = wrong_factor(&c->optimizer_weight_decay_factors, &why);
    if (word)
        return BREAKS(ctx, c, optimizer_weight_decay_factors, optimizer_weight_decay_factors, "optimizer.weight_decay_factors: '%s' %s", word, why);
    return ORTH_OK;
}

static orth_status freezing_names_something(orth_ctx *ctx, const orth_config *c)
{
    for (int32_t i = 0; i < c->optimizer_freeze.n; i++)
        if (strcmp(c->optimizer_freeze.v[i], "") == 0 || strcmp(c->optimizer_freeze.v[i], "!") == 0)
            return BREAKS(ctx, c, optimizer_freeze, optimizer_freeze, "optimizer.freeze: '%s' is no pattern of names", c->optimizer_freeze.v[i]);
    return ORTH_OK;
}

bool orth_config_keeps_no_moments(const orth_config *c)
{
    return c->optimizer_name == ORTH_optimizer_name_sgd && c->optimizer_momentum == 0;
}

static orth_status nesterov_is_for_sgd(orth_ctx *ctx, const orth_config *c)
{
    if (c->optimizer_nesterov && orth_config_keeps_no_moments(c))
        return BREAKS(ctx, c, optimizer_nesterov, optimizer_momentum, "optimizer.nesterov=true needs optimizer.momentum, which is 0");
    if (!c->optimizer_nesterov || c->optimizer_name == ORTH_optimizer_name_sgd)
        return ORTH_OK;
    return BREAKS(ctx, c, optimizer_nesterov, optimizer_name,
                  "optimizer.nesterov=true needs optimizer.name=sgd, not %s",
                  orth_option_choice(ORTH_OPT_optimizer_name, (int)c->optimizer_name));
}

static orth_status pieces_are_of_fp32(orth_ctx *ctx, const orth_config *c)
{
    if (c->precision_fp32_products != ORTH_precision_fp32_products_bf16x6 ||
        c->precision_compute == ORTH_precision_compute_fp32)
        return ORTH_OK;
    return BREAKS(ctx, c, precision_fp32_products, precision_compute,
                  "precision.fp32_products=bf16x6 is for precision.compute=fp32, which is %s: nothing is multiplied in fp32",
                  orth_option_choice(ORTH_OPT_precision_compute, (int)c->precision_compute));
}

orth_option_precision_loss_scale orth_config_loss_scale(const orth_config *cfg)
{
    if (cfg->precision_loss_scale != ORTH_precision_loss_scale_auto)
        return cfg->precision_loss_scale;
    return cfg->precision_compute == ORTH_precision_compute_fp16 ? ORTH_precision_loss_scale_dynamic : ORTH_precision_loss_scale_none;
}

static orth_status masters_are_of_a_type_that_is_computed_in(orth_ctx *ctx, const orth_config *c)
{
    if (c->precision_master == ORTH_precision_master_fp32 || c->precision_compute == ORTH_precision_compute_bf16)
        return ORTH_OK;
    return BREAKS(ctx, c, precision_master, precision_compute, "precision.master=bf16 needs precision.compute=bf16, not %s: without a "
                  "master the weights themselves are updated", orth_option_choice(ORTH_OPT_precision_compute, (int)c->precision_compute));
}

static orth_status quantised_products_have_what_they_need(orth_ctx *ctx, const orth_config *c)
{
    if (c->precision_products == ORTH_precision_products_same)
        return ORTH_OK;
    const char *name = orth_option_choice(ORTH_OPT_precision_products, (int)c->precision_products);
    if (c->precision_compute == ORTH_precision_compute_fp16)
        return BREAKS(ctx, c, precision_products, precision_compute, "precision.products=%s needs precision.compute=bf16 or fp32, not fp16: gradients that "
                      "overflow would be made the largest number, and the loss scale would not fall", name);
    if (c->memory_ffn_chunk_rows > 0)
        return BREAKS(ctx, c, precision_products, memory_ffn_chunk_rows, "precision.products=%s needs memory.ffn_chunk_rows=0: the rows of a chunk "
                      "would have scales of their own", name);
    if (c->memory_packed_weights)
        return BREAKS(ctx, c, precision_products, memory_packed_weights, "precision.products=%s needs memory.packed_weights=false: products read "
                      "quantised weights, which are not packed", name);
    return ORTH_OK;
}

/* A chunk's gradients are complete with its backward, the others' with the products that zb-v makes later, for two chunks of layers: in which order
 * depends on the number of micro-batches, and fast mode reduces them in that order. */
static orth_status gradients_are_complete_in_one_order(orth_ctx *ctx, const orth_config *c)
{
    bool equal = true;
    for (int32_t r = 1; r < c->parallel_dp_share.n; r++)
        equal = equal && c->parallel_dp_share.v[r] == c->parallel_dp_share.v[0];
    if (equal || c->memory_ffn_chunk_rows == 0 || strcmp(c->parallel_pipeline, "zb-v") != 0 || !is_fast(c))
        return ORTH_OK;
    return BREAKS(ctx, c, memory_ffn_chunk_rows, parallel_dp_share, "memory.ffn_chunk_rows=%" PRId64 " with parallel.pipeline=zb-v and unequal parallel.dp_share "
                  "needs numerics.mode=reproducible or ffn_chunk_rows=0: ranks with other numbers of micro-batches complete gradients in another order",
                  c->memory_ffn_chunk_rows);
}

static orth_status moments_in_8_bits_are_two(orth_ctx *ctx, const orth_config *c)
{
    if (c->precision_moments != ORTH_precision_moments_8bit || c->optimizer_name != ORTH_optimizer_name_sgd)
        return ORTH_OK;
    return BREAKS(ctx, c, precision_moments, optimizer_name,
                  "precision.moments=8bit needs optimizer.name=adamw or adam, not sgd: each block has scales of two moments");
}

static orth_status scaled_updates_can_be_left_out(orth_ctx *ctx, const orth_config *c)
{
    const orth_option_precision_loss_scale kind = orth_config_loss_scale(c);
    if (kind == ORTH_precision_loss_scale_none || strcmp(c->parallel_pipeline, "pipedream") != 0)
        return ORTH_OK;
    return BREAKS(ctx, c, precision_loss_scale, parallel_pipeline,
                  "precision.loss_scale=%s with parallel.pipeline=pipedream: an asynchronous update cannot be left out when gradients "
                  "overflow", orth_option_choice(ORTH_OPT_precision_loss_scale, (int)kind));
}

static orth_status the_scale_begins_above_its_least(orth_ctx *ctx, const orth_config *c)
{
    if (orth_config_loss_scale(c) != ORTH_precision_loss_scale_dynamic || c->precision_loss_scale_start >= c->precision_loss_scale_least)
        return ORTH_OK;
    return BREAKS(ctx, c, precision_loss_scale_start, precision_loss_scale_least,
                  "precision.loss_scale_start=%g is less than precision.loss_scale_least=%g", c->precision_loss_scale_start,
                  c->precision_loss_scale_least);
}

static orth_status recomputed_ops_are_named(orth_ctx *ctx, const orth_config *c)
{
    const bool wanted = c->memory_recompute == ORTH_memory_recompute_ops || c->memory_recompute == ORTH_memory_recompute_keep;
    const char *name = orth_option_choice(ORTH_OPT_memory_recompute, (int)c->memory_recompute);
    if (wanted && c->memory_recompute_ops.n == 0)
        return BREAKS(ctx, c, memory_recompute, memory_recompute_ops, "memory.recompute=%s needs memory.recompute_ops", name);
    if (!wanted && c->memory_recompute_ops.n > 0)
        return BREAKS(ctx, c, memory_recompute_ops, memory_recompute,
                      "memory.recompute_ops needs memory.recompute=ops or keep, not %s", name);
    return ORTH_OK;
}

static orth_status recomputed_layers_are_of_full(orth_ctx *ctx, const orth_config *c)
{
    const bool given = ORTH_CONFIG_IS_SET(c, memory, recompute_layers) && c->memory_recompute_layers > 1;
    if (c->memory_recompute == ORTH_memory_recompute_full ||
        (!given && c->memory_recompute_method == ORTH_memory_recompute_method_uniform))
        return ORTH_OK;
    return breaks(ctx, place_of(c, given ? ORTH_OPT_memory_recompute_layers : ORTH_OPT_memory_recompute_method, ORTH_OPT_memory_recompute), __LINE__,
                  "memory.recompute_layers and memory.recompute_method need memory.recompute=full, not %s",
                  orth_option_choice(ORTH_OPT_memory_recompute, (int)c->memory_recompute));
}

static orth_status inputs_are_split_where_all_ranks_have_them(orth_ctx *ctx, const orth_config *c)
{
    const bool keeps_inputs = c->memory_recompute == ORTH_memory_recompute_full || c->memory_recompute == ORTH_memory_recompute_sqrt;
    if (!c->memory_recompute_split)
        return ORTH_OK;
    if (!keeps_inputs)
        return BREAKS(ctx, c, memory_recompute_split, memory_recompute, "memory.recompute_split needs memory.recompute=full or sqrt, not %s",
                      orth_option_choice(ORTH_OPT_memory_recompute, (int)c->memory_recompute));
    if (c->parallel_tp == 1)
        return BREAKS(ctx, c, memory_recompute_split, parallel_tp, "memory.recompute_split needs parallel.tp above 1");
    if (c->parallel_sequence_parallel)
        return BREAKS(ctx, c, memory_recompute_split, parallel_sequence_parallel,
                      "memory.recompute_split: parallel.sequence_parallel=true splits the inputs of layers already");
    return ORTH_OK;
}

static orth_status recompute_limit_is_of_auto(orth_ctx *ctx, const orth_config *c)
{
    const bool is_auto = c->memory_recompute == ORTH_memory_recompute_auto;
    if (c->memory_recompute_limit > 0 && !is_auto)
        return BREAKS(ctx, c, memory_recompute_limit, memory_recompute, "memory.recompute_limit needs memory.recompute=auto, not %s",
                      orth_option_choice(ORTH_OPT_memory_recompute, (int)c->memory_recompute));
    if (is_auto && c->memory_recompute_limit == 0 && c->comm_backend == ORTH_comm_backend_mpi)
        return BREAKS(ctx, c, memory_recompute, comm_backend, "memory.recompute=auto with comm.backend=mpi needs "
                      "memory.recompute_limit: all hosts must choose alike");
    return ORTH_OK;
}

bool orth_config_offloads(const orth_config *c)
{
    return c->memory_offload_optimizer != ORTH_memory_offload_optimizer_none ||
           c->memory_offload_activations != ORTH_memory_offload_activations_none;
}

bool orth_config_offloads_to_file(const orth_config *c)
{
    return c->memory_offload_optimizer == ORTH_memory_offload_optimizer_file ||
           c->memory_offload_activations == ORTH_memory_offload_activations_file ||
           c->memory_offload_params == ORTH_memory_offload_params_file || c->memory_offload_gradients == ORTH_memory_offload_gradients_file;
}

static orth_status offload_has_what_it_speaks_of(orth_ctx *ctx, const orth_config *c)
{
    if (!orth_config_offloads(c) && !c->on_devices && c->memory_limit_device > 0)
        return BREAKS(ctx, c, memory_limit_device, memory_offload_optimizer,
                      "memory.limit_device needs memory.offload_optimizer or memory.offload_activations, host or file: without, all memory of "
                      "this machine is one, see memory.limit");
    if (!orth_config_offloads(c) && c->memory_limit_host > 0)
        return BREAKS(ctx, c, memory_limit_host, memory_offload_optimizer,
                      "memory.limit_host needs memory.offload_optimizer or memory.offload_activations, host or file: without, all memory is "
                      "one, see memory.limit");
    if (!orth_config_offloads_to_file(c) && c->memory_limit_file > 0)
        return BREAKS(ctx, c, memory_limit_file, memory_offload_optimizer,
                      "memory.limit_file needs memory.offload_optimizer=file, or another of memory.offload_*");
    return ORTH_OK;
}

/* The optimizer works in the host's memory, so what it reads and writes may be there. */
static orth_status offload_begins_with_the_optimizer(orth_ctx *ctx, const orth_config *c)
{
    const bool none = c->memory_offload_optimizer == ORTH_memory_offload_optimizer_none;
    const bool params = c->memory_offload_params != ORTH_memory_offload_params_none;
    if (none && params)
        return BREAKS(ctx, c, memory_offload_params, memory_offload_optimizer,
                      "memory.offload_params=%s needs memory.offload_optimizer=host or file, not none: weights are updated where they are",
                      orth_option_choice(ORTH_OPT_memory_offload_params, (int)c->memory_offload_params));
    if (none && c->memory_offload_gradients != ORTH_memory_offload_gradients_none)
        return BREAKS(ctx, c, memory_offload_gradients, memory_offload_optimizer,
                      "memory.offload_gradients=%s needs memory.offload_optimizer=host or file, not none: the optimizer reads them there",
                      orth_option_choice(ORTH_OPT_memory_offload_gradients, (int)c->memory_offload_gradients));
    if (c->memory_offload_ratio < 1 && (params || c->memory_offload_gradients != ORTH_memory_offload_gradients_none))
        return BREAKS(ctx, c, memory_offload_ratio, memory_offload_params,
                      "memory.offload_ratio=%g needs memory.offload_params=none and memory.offload_gradients=none: the device updates the other parameters, "
                      "with their weights and gradients", c->memory_offload_ratio);
    if (params && strcmp(c->parallel_pipeline, "pipedream") == 0)
        return BREAKS(ctx, c, memory_offload_params, parallel_pipeline,
                      "memory.offload_params=%s does not go with parallel.pipeline=pipedream, which keeps several versions of the weights",
                      orth_option_choice(ORTH_OPT_memory_offload_params, (int)c->memory_offload_params));
    return ORTH_OK;
}

/* Ranks of a context-parallel group attend block by block to the keys they gathered. */
static orth_status full_attention_is_on_one_rank(orth_ctx *ctx, const orth_config *c)
{
    if (c->model_attention != ORTH_model_attention_full || c->parallel_cp == 1)
        return ORTH_OK;
    return BREAKS(ctx, c, model_attention, parallel_cp,
                  "model.attention=full needs parallel.cp=1, not %" PRId64 ": context parallelism is blocked",
                  c->parallel_cp);
}

static orth_status a_weight_for_each_path(orth_ctx *ctx, const orth_config *c)
{
    double sum = 0;
    if (c->data_weights.n == 0)
        return ORTH_OK;
    if (c->data_weights.n != c->data_path.n)
        return BREAKS(ctx, c, data_weights, data_path, "data.weights holds %d numbers for %d data.path",
                      c->data_weights.n, c->data_path.n);
    for (int i = 0; i < c->data_weights.n; i++)
        sum += c->data_weights.v[i];
    if (sum > 0)
        return ORTH_OK;
    return BREAKS(ctx, c, data_weights, data_path, "data.weights are all 0: one must be more");
}

/* FSDP's names say whether shards have replicas; so does parallel.shard_group. */
static orth_status sharding_by_name_fits_its_group(orth_ctx *ctx, const orth_config *c)
{
    const orth_option_parallel_zero zero = c->parallel_zero;
    const char *name = orth_option_choice(ORTH_OPT_parallel_zero, (int)zero);
    bool hybrid = zero == ORTH_parallel_zero_HYBRID_SHARD || zero == ORTH_parallel_zero__HYBRID_SHARD_ZERO2;
    bool plain = zero == ORTH_parallel_zero_FULL_SHARD || zero == ORTH_parallel_zero_SHARD_GRAD_OP;
    bool replicas = c->parallel_shard_group != 0 && c->parallel_shard_group != c->parallel_dp;
    if (hybrid && c->parallel_shard_group == 0)
        return BREAKS(ctx, c, parallel_zero, parallel_shard_group,
                      "parallel.zero=%s needs parallel.shard_group: the ranks that share one set of shards, those of a "
                      "host for example", name);
    if (plain && replicas)
        return BREAKS(ctx, c, parallel_shard_group, parallel_zero,
                      "parallel.shard_group=%" PRId64 " with parallel.zero=%s, which shards over all of dp: with replicas "
                      "of the shards it is %s", c->parallel_shard_group, name,
                      zero == ORTH_parallel_zero_FULL_SHARD ? "HYBRID_SHARD" : "_HYBRID_SHARD_ZERO2");
    return ORTH_OK;
}

static orth_status the_run_folder_has_a_name(orth_ctx *ctx, const orth_config *c)
{
    if (*c->checkpoint_dir)
        return ORTH_OK;
    return BREAKS(ctx, c, checkpoint_dir, checkpoint_dir, "checkpoint.dir is empty: the run folder needs a name");
}

static orth_status files_have_a_folder(orth_ctx *ctx, const orth_config *c)
{
    if (!orth_config_offloads_to_file(c) || *c->memory_offload_dir)
        return ORTH_OK;
    return BREAKS(ctx, c, memory_offload_dir, memory_offload_dir, "memory.offload_dir is empty: what is offloaded to a file needs a folder");
}

orth_status orth_config_check(orth_ctx *ctx, const orth_config *cfg)
{
    static orth_status (*const rules[])(orth_ctx *, const orth_config *) = {
        micro_batch_divides, parts_are_a_power_of_two, sequence_holds_its_parts, sequence_fits_the_model, two_betas, nesterov_is_for_sgd,
        a_weight_for_each_path, rings_are_fast, full_attention_is_on_one_rank, sharding_by_name_fits_its_group,
        recomputed_ops_are_named, recomputed_layers_are_of_full, recompute_limit_is_of_auto, offload_has_what_it_speaks_of, offload_begins_with_the_optimizer,
        inputs_are_split_where_all_ranks_have_them,
        the_run_folder_has_a_name, pieces_are_of_fp32, factors_are_well_formed, freezing_names_something, rounded_gradients_are_fast,
        reuse_needs_one_stage, only_zero_3_gathers, units_have_a_size, steps_or_epochs, masters_are_of_a_type_that_is_computed_in, quantised_products_have_what_they_need,
        moments_in_8_bits_are_two, small_values_are_more_than_zero, gradients_are_complete_in_one_order, scaled_updates_can_be_left_out, the_scale_begins_above_its_least,
        files_have_a_folder,
    };
    for (int i = 0; i < ORTH_COUNT(rules); i++)
        ORTH_TRY(rules[i](ctx, cfg));
    return ORTH_OK;
}

/* ---- keys without effect ---- */

static bool optimizer_stays(const orth_config *c)
{
    return c->memory_offload_optimizer == ORTH_memory_offload_optimizer_none;
}

static bool activations_stay(const orth_config *c)
{
    return c->memory_offload_activations == ORTH_memory_offload_activations_none;
}

static bool has_no_file(const orth_config *c)
{
    return !orth_config_offloads_to_file(c);
}

static bool is_not_delayed(const orth_config *c)
{
    return c->precision_products != ORTH_precision_products_fp8_delayed;
}

static bool keeps_fp32(const orth_config *c)
{
    return c->precision_master != ORTH_precision_master_bf16 &&
           (c->precision_moments != ORTH_precision_moments_bf16 || orth_config_keeps_no_moments(c));
}

static bool scales_no_loss(const orth_config *c)
{
    return orth_config_loss_scale(c) == ORTH_precision_loss_scale_none;
}

static bool scale_stays(const orth_config *c)
{
    return orth_config_loss_scale(c) != ORTH_precision_loss_scale_dynamic;
}

static bool fetches_nothing(const orth_config *c)
{
    return !shards_parameters(c) && c->memory_offload_params == ORTH_memory_offload_params_none;
}

static bool keeps_parameters(const orth_config *c)
{
    return !shards_parameters(c);
}

static bool waits_for_calls(const orth_config *c)
{
    return !c->comm_overlap;
}

static bool brings_nothing_early(const orth_config *c)
{
    return c->comm_prefetch == 0;
}

static bool holds_one_block(const orth_config *c)
{
    return c->parallel_max_reuse_distance == 0 && (c->comm_prefetch == 0 || !c->comm_overlap);
}

static bool has_one_replica(const orth_config *c)
{
    return c->parallel_dp <= 1;
}

static bool decays_nothing(const orth_config *c)
{
    return c->optimizer_weight_decay == 0;
}

static bool scales_no_lr(const orth_config *c)
{
    return c->optimizer_lr_scaling == ORTH_optimizer_lr_scaling_none;
}

static bool is_sgd(const orth_config *c)
{
    return c->optimizer_name == ORTH_optimizer_name_sgd;
}

static bool is_not_sgd(const orth_config *c)
{
    return !is_sgd(c);
}

static bool lr_is_constant(const orth_config *c)
{
    return c->schedule_name == ORTH_schedule_name_constant;
}

static bool evaluates_at_the_end(const orth_config *c)
{
    return c->train_eval_every == 0;
}

static bool keeps_sequences_whole(const orth_config *c)
{
    return c->parallel_cp == 1;
}

static bool recomputes_no_layers(const orth_config *c)
{
    return c->memory_recompute != ORTH_memory_recompute_full;
}

static const struct {
    orth_option_id key;
    bool (*is_idle)(const orth_config *c);
    const char *why;
} idle[] = {
    {ORTH_OPT_memory_offload_ratio, optimizer_stays, "memory.offload_optimizer=none"},
    {ORTH_OPT_memory_offload_sub_group, optimizer_stays, "memory.offload_optimizer=none"},
    {ORTH_OPT_memory_offload_min_bytes, activations_stay, "memory.offload_activations=none"},
    {ORTH_OPT_memory_offload_dir, has_no_file, "nothing is offloaded to a file"},
    {ORTH_OPT_memory_offload_io, has_no_file, "nothing is offloaded to a file"},
    {ORTH_OPT_memory_recompute_method, recomputes_no_layers, "it is of memory.recompute=full"},
    {ORTH_OPT_precision_amax_history_len, is_not_delayed, "it is of precision.products=fp8_delayed"},
    {ORTH_OPT_precision_amax_compute_algo, is_not_delayed, "it is of precision.products=fp8_delayed"},
    {ORTH_OPT_precision_fp8_margin, is_not_delayed, "it is of precision.products=fp8_delayed"},
    {ORTH_OPT_precision_moments, orth_config_keeps_no_moments, "optimizer.name=sgd with optimizer.momentum=0 keeps none"},
    {ORTH_OPT_precision_rounding, keeps_fp32, "neither masters nor moments are in bf16"},
    {ORTH_OPT_precision_loss_scale_start, scales_no_loss, "the loss is not scaled (precision.loss_scale)"},
    {ORTH_OPT_precision_loss_scale_growth, scale_stays, "it is of precision.loss_scale=dynamic"},
    {ORTH_OPT_precision_loss_scale_backoff, scale_stays, "it is of precision.loss_scale=dynamic"},
    {ORTH_OPT_precision_loss_scale_interval, scale_stays, "it is of precision.loss_scale=dynamic"},
    {ORTH_OPT_precision_loss_scale_least, scale_stays, "it is of precision.loss_scale=dynamic"},
    {ORTH_OPT_comm_prefetch, fetches_nothing, "it is of parallel.zero=3 and memory.offload_params"},
    {ORTH_OPT_comm_prefetch_elems, fetches_nothing, "it is of parallel.zero=3 and memory.offload_params"},
    {ORTH_OPT_comm_prefetch, waits_for_calls, "comm.overlap=false"},
    {ORTH_OPT_comm_prefetch_elems, brings_nothing_early, "comm.prefetch=0"},
    {ORTH_OPT_parallel_max_live, holds_one_block, "nothing is gathered ahead, and no layer stays whole (parallel.max_reuse_distance)"},
    {ORTH_OPT_parallel_reshard_after_forward, keeps_parameters, "it is of parallel.zero=3"},
    {ORTH_OPT_precision_grad_reduce, has_one_replica, "parallel.dp=1"},
    {ORTH_OPT_optimizer_weight_decay_factors, decays_nothing, "optimizer.weight_decay=0"},
    {ORTH_OPT_optimizer_momentum, is_not_sgd, "it is of optimizer.name=sgd"},
    {ORTH_OPT_optimizer_lr_base_batch, scales_no_lr, "it is of optimizer.lr_scaling=linear"},
    {ORTH_OPT_optimizer_betas, is_sgd, "optimizer.name=sgd"},
    {ORTH_OPT_optimizer_eps, is_sgd, "optimizer.name=sgd"},
    {ORTH_OPT_schedule_min_lr_ratio, lr_is_constant, "schedule.name=constant"},
    {ORTH_OPT_schedule_decay_steps, lr_is_constant, "schedule.name=constant"},
    {ORTH_OPT_train_eval_batches, evaluates_at_the_end, "train.eval_every=0: the evaluation at the end scores all that is held out"},
    {ORTH_OPT_parallel_cp_kind, keeps_sequences_whole, "parallel.cp=1"},
    {ORTH_OPT_numerics_parts, is_fast, "numerics.mode=fast"},
};

bool orth_config_is_idle(const orth_config *cfg, orth_option_id id)
{
    for (int i = 0; i < ORTH_COUNT(idle); i++)
        if (idle[i].key == id && idle[i].is_idle(cfg))
            return true;
    return false;
}

/* A run.yaml that a run wrote gives every key, most of them their defaults. */
static orth_status tell(orth_ctx *ctx, const orth_config *cfg, const orth_config *defaults, orth_option_id id, const char *why)
{
    if (!cfg->place[id])
        return ORTH_OK;
    char *given = orth_option_text(ctx, cfg, id), *usual = given ? orth_option_text(ctx, defaults, id) : NULL;
    if (usual && strcmp(given, usual) != 0)
        orth_log(ctx, ORTH_LOG_INFO, "config", "%s: %s=%s has no effect: %s", cfg->place[id], orth_option_get(id)->path, ORTH_SHOWN(given), why);
    const orth_status s = usual ? ORTH_OK : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, usual);
    orth_mem_free(ctx, given);
    return s;
}

orth_status orth_config_tell_key_idle(orth_ctx *ctx, const orth_config *cfg, orth_option_id id, const char *why)
{
    orth_config defaults;
    ORTH_TRY(orth_config_init(ctx, &defaults));
    const orth_status s = tell(ctx, cfg, &defaults, id, why);
    orth_config_release(ctx, &defaults);
    return s;
}

orth_status orth_config_tell_idle(orth_ctx *ctx, const orth_config *cfg)
{
    orth_config defaults;
    ORTH_TRY(orth_config_init(ctx, &defaults));
    orth_status s = ORTH_OK;
    for (int i = 0; s == ORTH_OK && i < ORTH_COUNT(idle); i++)
        if (idle[i].is_idle(cfg))
            s = tell(ctx, cfg, &defaults, idle[i].key, idle[i].why);
    orth_config_release(ctx, &defaults);
    return s;
}
