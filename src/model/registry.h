/* registry.h -- the weights of a model: the rows of weights.def, and the registry made of them.
 *
 * The registry is every parameter of a model in one fixed order: the rows before the layers, for each layer those of a layer,
 * the rows after. A parameter's number in it is its identity in programs, checkpoints and initial weights.
 * Row order of fused weights: kernels/ops.def. All weights are stored [out, in].
 */
#ifndef ORTH_MODEL_REGISTRY_H
#define ORTH_MODEL_REGISTRY_H

#include "model/config.h"
#include "program/ir/param.h"

/* In each of these 0 is no value: a fact that was left out is not taken for one. */
typedef enum {
    ORTH_WEIGHT_NONE = 0,
#define WEIGHT(id, ...) ORTH_WEIGHT_##id,
#include "model/weights.def"
#undef WEIGHT
    ORTH_NUM_WEIGHTS
} orth_weight_id;

typedef enum { ORTH_SECTION_BEFORE = 1, ORTH_SECTION_ATTENTION, ORTH_SECTION_FEED_FORWARD, ORTH_SECTION_AFTER } orth_weight_section;
static inline bool orth_section_in_layer(orth_weight_section s)
{
    return s == ORTH_SECTION_ATTENTION || s == ORTH_SECTION_FEED_FORWARD;
}
typedef enum { ORTH_WEIGHT_COMPUTE = 1, ORTH_WEIGHT_FP32 } orth_weight_type;
typedef enum { ORTH_INIT_ZERO = 1, ORTH_INIT_ONE, ORTH_INIT_NORMAL } orth_init;
typedef enum { ORTH_WEIGHT_DECAY = 1, ORTH_WEIGHT_NO_DECAY } orth_weight_decay;
typedef enum { ORTH_CUT_WHOLE = 1, ORTH_CUT_ROWS, ORTH_CUT_COLS } orth_weight_cut;

/* Which rows of a fused weight a tensor of Hugging Face's holds. */
typedef enum {
    ORTH_HF_ALL = 1, ORTH_HF_Q, ORTH_HF_K, ORTH_HF_V,
    ORTH_HF_QKV,                  /* all queries, all keys, all values: GPT-2's c_attn */
    ORTH_HF_GATE, ORTH_HF_UP
} orth_hf_rows;

#define ORTH_HF_MAX_PARTS 3

/* Hugging Face's tensors of a weight. */
typedef struct {
    struct {
        const char *name;         /* without the prefix; NULL: there are no more parts */
        orth_hf_rows rows;
    } part[ORTH_HF_MAX_PARTS];
    bool transposed;              /* stored [in, out] */
    bool no_prefix;
} orth_hf_names;

/* A row of weights.def, for one model. */
typedef struct {
    const char *name;             /* within its section */
    orth_weight_section section;
    struct {
        int32_t num_dims;
        int64_t dim[2];           /* of the whole weight; a vector: {n, 1} */
    } shape;
    orth_weight_type type;
    struct {
        orth_init kind;
        double std;
    } init;
    orth_weight_decay decay;
    struct {
        orth_weight_cut cut;
        orth_split_kind kind;     /* with `units`, `unit` and `group` as in orth_split */
        int64_t units, unit, group;
    } split;
    orth_reduce_rule reduce;
    orth_leaf_rule leaf;
    orth_hf_names hf[2];          /* by orth_family */
} orth_weight;

orth_weight orth_weight_get(const orth_model_config *c, orth_weight_id id);
/* Whether the model has the weight. */
bool orth_weight_present(const orth_model_config *c, orth_weight_id id);

/* Whether precision.moments=8bit keeps its moments in 8 bits: matrices but embeddings, whose rare rows the largest of a block would
 * hide; what they leave in fp32 are all vectors, too. */
bool orth_weight_moments_8bit(const orth_weight *w);

/* A parameter: a weight outside the layers, or that of one layer. */
typedef struct {
    char name[64];
    orth_weight_id weight;
    int32_t layer;                /* -1: outside the layers */
    int32_t num_dims;
    int64_t dim[2];
    orth_init init;
    double init_std;
} orth_param;

int64_t orth_model_num_params(const orth_model_config *c);            /* tensors */
/* ORTH_ERR_ARG for an index out of [0, num_params). `c` has passed orth_model_config_check. */
orth_status orth_model_param(orth_ctx *ctx, const orth_model_config *c, int64_t index, orth_param *out);
/* Index of the parameter of that name, -1 if the model has none. */
int64_t orth_model_param_find(const orth_model_config *c, const char *name);
/* Index of a weight that the model has; layer: of a weight of the layers, else not read. */
int64_t orth_model_param_index(const orth_model_config *c, orth_weight_id id, int64_t layer);
int64_t orth_param_elems(const orth_param *p);
/* Hugging Face's name of tensor `part` of a parameter, with its prefix ("transformer.", "model."), in out[ORTH_HF_NAME]. Returns the
 * characters of the prefix; -1: the parameter has no such part. */
#define ORTH_HF_NAME 96
int32_t orth_param_hf_name(const orth_model_config *c, const orth_param *p, int part, char *out);
int64_t orth_model_num_elems(const orth_model_config *c);             /* parameters counted once */

#endif
