/* estimate.h -- the step of a system that is not Orthant, on described hardware: from the same block graphs and schedules as Orthant's
 * programs, priced before they are lowered, with the few constants of software.h for what that system does otherwise.
 *
 * A chunk of layers takes the sum of its nodes (device_time.h; ops between products by their bytes) and of its tensor-parallel
 * calls (link_time.h), which are exposed but for what software.calls says; or what the host takes for its ops, if that is longer. What is recomputed is added to the backward. orth_schedule_simulate makes a step of the chunks.
 * Data-parallel communication hides behind the last backward as far as software.overlap says; ZeRO 3 behind the computing of each
 * micro-batch. The update moves its bytes. Memory: parameters, gradients and optimizer as the recipe says, what the backward reads of the
 * forward, the logits; and what the system keeps in copies. All of it is an estimate.
 */
#ifndef ORTH_PLAN_ESTIMATE_H
#define ORTH_PLAN_ESTIMATE_H

#include "model/config.h"
#include "plan/hardware.h"
#include "plan/software.h"

typedef enum {
    ORTH_AGAIN_NONE = 0,
    ORTH_AGAIN_FULL,      /* each layer, from its input */
    ORTH_AGAIN_CORE,      /* attention without its products with weights ("selective" of Megatron-LM) */
    ORTH_AGAIN_OPS,       /* every second product and all between products */
    ORTH_AGAIN_BLOCKS,    /* some layers */
    ORTH_AGAIN_ACTIVATION /* of the feed-forward layer */
} orth_again;

/* Bytes of a parameter on a rank that has all of them. */
typedef struct {
    double param, grad, optimizer;
} orth_state_bytes;

/* Bytes of parameters, gradients and optimizer on a rank, of `elems` parameters under ZeRO `stage` over n ranks (Rajbhandari et al.
 * 2020, arXiv:1910.02054, section 5). */
typedef struct {
    double params, grads, optimizer;
} orth_states;
orth_states orth_states_of(const orth_state_bytes *r, double elems, int stage, double n);

typedef struct {
    orth_model_config model;
    int64_t seq_len, micro_batch, num_micro_batches;
    int32_t tp, pp, chunks, dp, cp, zero;   /* chunks: of a stage */
    bool sequence_parallel, hybrid_shards, fused_attention, fp8, offload_optimizer;
    bool keeps_masks;                       /* of hidden dropout, a byte an element, which others draw again */
    bool hides_calls;                       /* tensor-parallel calls go on beside the products of other rows */
    orth_again recompute;
    const char *schedule;                   /* of schedules.def; "zb-2p": no bubble, whatever memory it takes */
    orth_state_bytes recipe;
    double reduced_bytes;                   /* of a gradient when it is sent */
} orth_job;

typedef struct {
    double step_s;
    double forward_s, backward_s, bubble_s, data_parallel_s, update_s; /* of a step; the first two of the busiest stage */
    double layer_forward_s, layer_backward_s;  /* of a micro-batch */
    double products_s, attention_s, rows_s;    /* of a step, by kernels; rows: what is between products */
    double flops;                              /* of the model in a step, attention by halves (causal), all devices */
    double hardware_flops;
    double params_bytes, grads_bytes, optimizer_bytes; /* of the worst rank, */
    double activation_bytes;                   /* what the backward needs, by theory, */
    double temporary_bytes, peak_bytes;        /* and what a system has besides; all together */
} orth_estimate;

/* ORTH_ERR_ARG where the model cannot be cut so, ORTH_ERR_NOMEM. */
orth_status orth_estimate_step(orth_ctx *ctx, const orth_job *job, const orth_hardware *h, const orth_software *software,
                               const orth_system *system, const orth_device_shares *shares, orth_estimate *out);

#endif
