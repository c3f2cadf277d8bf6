/* layer.h -- the vocabulary in which a family describes its layer. Used by gpt2.c, llama.c, blocks.c.
 *
 * Rows: with sequence parallelism, norms, residuals and dropout work on this rank's part of the rows
 * ("outside"), products and attention on all of them ("inside"); orth_layer_enter leads in,
 * orth_layer_row out. Without it, or without tensor parallelism, both are all rows.
 */
#ifndef ORTH_MODEL_LAYER_H
#define ORTH_MODEL_LAYER_H

#include "model/blocks.h"

typedef struct {
    orth_graph *g;
    const orth_model_config *c;
    const orth_model_shape *s;
    int32_t tp;         /* degree of tensor parallelism */
    int32_t kv_ranks;   /* ranks of it that hold the same key and value heads */
    bool sp;            /* sequence parallelism */
    int32_t cp;         /* degree of context parallelism: the rank has 1/cp of the tokens of each sequence, */
    int32_t seq_len;    /* these, in */
    int32_t token_parts; /* this many fold slots */
    int64_t N, outside; /* rows inside and outside */
    int32_t num_products; /* of the layer so far */
} orth_layer_builder;

typedef struct {
    orth_value y, sum;
} orth_normed;

orth_layer_builder orth_layer_begin(const orth_model_config *c, const orth_model_shape *s);
orth_attr orth_layer_attr_inside(const orth_layer_builder *b);
orth_attr orth_layer_attr_outside(const orth_layer_builder *b);

/* What this rank has of a weight of the model; the graph's parameter for it, ORTH_NO_VALUE if the model has no such
 * weight. Shape, type and split come from its row in weights.def: whoever names a weight need not say them. */
orth_param_desc orth_layer_weight(const orth_layer_builder *b, orth_weight_id id);
orth_value orth_layer_param(orth_layer_builder *b, orth_weight_id id);

/* Outside. y = norm(x + res); sum = x + res (x itself without res). */
orth_normed orth_layer_norm(orth_layer_builder *b, orth_weight_id gain, orth_weight_id shift, orth_value x, orth_value res);
/* Which dropout of a block: part of what its random numbers are drawn for. */
enum { ORTH_SITE_EMBED, ORTH_SITE_ATTENTION_OUT, ORTH_SITE_MLP_OUT, ORTH_SITE_ATTENTION, ORTH_NUM_SITES };
_Static_assert(ORTH_NUM_SITES <= ORTH_SITES_PER_LAYER, "each layer has numbers of its own for its dropouts");
orth_value orth_layer_dropout(orth_layer_builder *b, orth_value x, int32_t site);
orth_value orth_layer_add(orth_layer_builder *b, orth_value a, orth_value c);

/* From outside to inside. */
orth_value orth_layer_enter(orth_layer_builder *b, orth_value x);
/* Column-parallel product with a weight that is split by rows, inside: y = act(x w^T + bias), this rank's outputs. */
orth_value orth_layer_column(orth_layer_builder *b, orth_weight_id weight, orth_weight_id bias, orth_value x, orth_act act);
/* Row-parallel product with a weight that is split by columns, from inside to outside: y = x w^T summed over ranks, + bias. */
orth_value orth_layer_row(orth_layer_builder *b, orth_weight_id weight, orth_weight_id bias, orth_value x);
/* From node `first` on to the row product: computed a chunk of rows at a time, where the shape says so. */
void orth_layer_in_chunks(orth_layer_builder *b, int32_t first);
/* The attention sublayer after its norm: qkv product, [QK-norm, rotation,] attention, output product. */
orth_value orth_layer_attention(orth_layer_builder *b, orth_value x);

/* One per family: from g->input to g->output. */
void orth_gpt2_layer(orth_layer_builder *b);
void orth_llama_layer(orth_layer_builder *b);

#endif
