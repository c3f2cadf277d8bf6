/* param.h -- what a program knows of a parameter: its shape on this rank, its split, its gradient.
 *
 * The model states each of these facts once, in a row of model/weights.def, from which these descriptions are made.
 */
#ifndef ORTH_PROGRAM_PARAM_H
#define ORTH_PROGRAM_PARAM_H

#include "tensor/parts.h"
#include "base/ctx.h"
#include "kernels/moments8.h"
#include "kernels/op.h"

/* The ranks whose parts of a gradient are summed, apart from tensor parallelism, whose sums are nodes of the graph. 0 is
 * no rule. A parameter that few ranks hold (an expert) will have a rule, and a group, of its own. */
typedef enum {
    ORTH_REDUCE_DENSE = 1      /* all ranks with other sequences (dp), or with other tokens of them (cp) */
} orth_reduce_rule;

/* What the backward pass of a block makes of a gradient before it is summed over sequences. 0 is no rule. */
typedef enum {
    ORTH_LEAF_TOKENS = 1,      /* a sum over the rows of any aligned run of sequences, by one instruction (linear_dw,
                                  embed_bwd); over cp it is summed afterwards */
    ORTH_LEAF_SEQUENCE         /* one vector for each sequence (norms, biases), which nodes of the graph sum over tp and
                                  cp; tree_acc adds them up */
} orth_leaf_rule;

typedef struct {
    const char *name;
    int32_t num_dims;
    int64_t dim[2];              /* on this rank */
    float lr_factor, decay_factor; /* of the step's learning rate and weight decay */
    bool matrix;                 /* kept in the compute type beside its fp32 master */
    bool moments_8bit;           /* its moments are codes and scales (kernels/moments8.h) */
    bool feed_forward;           /* of a layer: of its feed-forward half, else of its attention */
    bool frozen;                 /* it is never updated: it has no gradient and no optimizer state, and is kept in the type that the
                                    kernels read (lower/frozen.h) */
    orth_reduce_rule reduce;
    orth_leaf_rule leaf;
    /* The dim that tensor parallelism may split, and its canonical parts: of all ranks together, and the
     * first of them that is on this one. */
    int32_t split_dim;           /* -1: none */
    orth_split split;
    int32_t first_part, num_parts; /* on this rank; split.parts: all */
    int64_t replica_rows, replica_first; /* rows before them that count as another rank's; the first, in the whole */
    int64_t whole_cols;          /* dim 1 of the whole parameter (1 for vectors) */
} orth_param_desc;

/* The parts of the split dim that are on this rank, as the attribute of a kernel that sums over them. */
static inline orth_split orth_param_split_here(const orth_param_desc *p)
{
    orth_split s = p->split;
    s.of = s.parts;
    s.first = p->first_part;
    s.parts = p->num_parts;
    return s;
}

/* The parts of the columns of a matrix that blocks of moments do not cross. */
static inline orth_split orth_param_moment_split(const orth_param_desc *p)
{
    return p->split_dim == 1 ? orth_param_split_here(p) : ORTH_SPLIT_WHOLE(p->dim[1]);
}

/* The scales of its moments in 8 bits as a parameter: as many columns as each row has scales, cut where its own are. */
static inline orth_param_desc orth_param_scales(const orth_param_desc *p)
{
    const orth_split own = orth_param_moment_split(p);
    const int64_t each = ORTH_BLOCK_SCALES * orth_moment_part_blocks(&own), parts = own.of ? own.of : own.parts;
    orth_param_desc s = *p;
    s.dim[1] = each * own.parts;
    s.whole_cols = each * parts;
    if (p->split_dim == 1)
        s.split = (orth_split){ORTH_SPLIT_EVEN, (int32_t)parts, parts, each, 1, 0, 0};
    return s;
}

/* Where the elements of parameter `index` on this rank, from `first` on, lie in the whole. */
static inline orth_elem_place orth_param_place(const orth_param_desc *p, int64_t index, int64_t first)
{
    const int64_t begin = p->split_dim < 0 ? 0 : orth_split_bound(&p->split, p->first_part), cols = p->num_dims > 1 ? p->dim[1] : 1;
    return (orth_elem_place){.param = index, .first = first, .cols = cols, .whole_cols = p->split_dim == 1 ? p->whole_cols : cols,
                             .row = p->split_dim == 0 ? begin : 0, .col = p->split_dim == 1 ? begin : 0,
                             .replica_rows = p->split_dim == 0 ? p->replica_rows : 0, .replica_first = p->replica_first};
}

#endif
