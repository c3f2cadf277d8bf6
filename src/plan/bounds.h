/* bounds.h -- what a layout takes at least: lower bounds of a step's time and of a rank's memory, from few small programs, in
 * microseconds. For a search through many layouts, which need not compile what cannot win (tools/search.h).
 *
 *   model of two layers, the layout's tp, cp and micro-batch --plan, clock--> seconds and bytes of a layer, the embedding, the head
 *   these, and the numbers of the layout --closed forms--> bounds
 *
 * The costs of a block are read off the program of a small run, priced as any run on a cluster (cluster.h): there is no second
 * formula for a product or a call. Time: a stage computes all its micro-batches, after the first has come to it, and before the
 * last has gone back; gradients that are reduced once a step are reduced after the last backward has begun; gathers and updates
 * come after the norm of all gradients, or a communicator is busy all the time. Of different devices each data-parallel rank is as slow as the slowest
 * of its stages, and the micro-batches are dealt at best in proportion to how fast they are. Memory: the persistent buffers, and what is kept of the
 * micro-batches that the schedule has under way. What is offloaded takes no memory but the operands of the instruction that has the most, and the weights of
 * two layers, the second of which come ahead; a step takes no less than a rank's copies in one direction at the rate of its link to the host, or those of its file.
 * (Narayanan et al. 2021; Qi et al. 2023; Rajbhandari et al. 2020.)
 */
#ifndef ORTH_PLAN_BOUNDS_H
#define ORTH_PLAN_BOUNDS_H

#include "plan/cluster.h"
#include "plan/mixed.h"

/* Sections of a model on a rank; and learned positions, which the embedding reads, but no tied head has a copy of: parameters alone. */
typedef enum { ORTH_PIECE_EMBED = 0, ORTH_PIECE_LAYER, ORTH_PIECE_HEAD, ORTH_PIECE_POSITIONS, ORTH_NUM_PIECES } orth_piece;

/* Operands that are not where kernels work: persistent ones count where they are anyway, those that are brought with what is transient. */
enum { ORTH_FAR_PARAMS = 1, ORTH_FAR_GRADS = 2, ORTH_NUM_AT_ONCE = 4 };

/* What a section takes on a rank, of one micro-batch where it depends on that. */
typedef struct {
    double forward_s, backward_s;              /* that it holds the rank, calls included */
    double forward_alone_s, backward_alone_s;  /* of these: computing */
    double weights_s, again_s;                 /* of that: products that only weights wait for; forward work that is repeated */
    double elems;                              /* parameters on the rank */
    double params, grads, optimizer;           /* bytes of persistent buffers, nothing sharded */
    double kept, leaves;                       /* bytes kept between forward and backward; of them: that leave if activations do */
    double weights_in[2];                      /* bytes of parameters that the forward, the backward reads */
    double at_once[ORTH_NUM_AT_ONCE];          /* bytes of the operands of an instruction, the most: by what of them comes from elsewhere */
} orth_piece_cost;

typedef struct {
    orth_piece_cost piece[ORTH_NUM_PIECES];
    double update_s;                           /* of an element */
    double host_update_s;                      /* the same where the host updates */
    double slower[ORTH_MAX_DEVICE_GROUPS];     /* computing takes so many times as long, at least, on the devices of each group (orth_bounds.groups) */
} orth_block_costs;

/* What does not depend on the layout. Points to what it is made from. */
typedef struct {
    const orth_model_config *model;
    const orth_hardware *hardware;             /* of one kind of devices */
    const orth_hardware *groups;               /* the cluster, where it has several, of which `hardware` is the best in everything; else NULL */
    const orth_model_shape *step;              /* as in orth_programs_spec */
    orth_arena arena;
    int32_t **cuts;                            /* [layers + 1] by number of chunks: first layer of each; NULL: not asked for yet */
    int32_t **v_flight;                        /* [layers + 1] by stages p: in_flight of zb-v, [2 p + 1 micro-batches][p]; 0, NULL: likewise */
} orth_bounds;

/* h: without groups; out->groups is for the caller to set. ORTH_ERR_ARG where the devices do not have the type of `step`; ORTH_ERR_NOMEM. */
orth_status orth_bounds_make(orth_ctx *ctx, orth_bounds *out, const orth_model_config *model, const orth_hardware *h,
                             const orth_model_shape *step);
void orth_bounds_release(orth_ctx *ctx, orth_bounds *b);

/* Costs of the layouts that have the tp, cp, cp_kind, sequence_parallel, micro_batch and recomputation of `l` and of `step`: compiles
 * and prices a run of two layers. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_block_costs_read(orth_ctx *ctx, const orth_bounds *b, const orth_layout *l, const orth_recompute *recompute,
                                  orth_block_costs *out);

/* Costs that are never more, without a program, from those `one` of a rank with all of the model and the same micro-batch and recomputation:
 * its computing divided by the ranks, which smaller products make no faster by more than a share; calls of the forward at the bandwidth of
 * their links. */
void orth_block_costs_scale(const orth_bounds *b, const orth_block_costs *one, const orth_layout *l, orth_block_costs *out);

typedef struct {
    double step_s, bytes;                      /* bytes: of the rank that needs the most */
    double node_bytes, node_file_bytes;        /* in the host's memory of a node, and on its disks; the mean of all nodes */
} orth_bound;

/* Of a valid layout that keeps elsewhere what `o` says (not what `step` does). ORTH_ERR_NOMEM. */
orth_status orth_bound_of(orth_ctx *ctx, orth_bounds *b, const orth_block_costs *c, const orth_layout *l, const orth_offload *o, orth_bound *out);
/* An estimate, no bound: the most that a node may have in the memory of its host, if all of its ranks are of the fullest stage. ORTH_ERR_NOMEM. */
orth_status orth_bound_host_most(orth_ctx *ctx, orth_bounds *b, const orth_block_costs *c, const orth_layout *l, const orth_offload *o, double *bytes);

#endif
