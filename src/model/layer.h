/* layer.h -- the vocabulary in which a family describes its layer. Used by gpt2.c and llama.c. */
#ifndef ORTH_MODEL_LAYER_H
#define ORTH_MODEL_LAYER_H

#include "model/blocks.h"

typedef struct {
    orth_graph *g;
    const orth_model_config *c;
    const orth_model_shape *s;
    int64_t N;          /* rows: B*T */
} orth_layer_builder;

typedef struct {
    orth_value y, sum;
} orth_normed;

orth_attr orth_layer_attr(const orth_layer_builder *b);
/* y = norm(x + res); sum = x + res (x itself without res). */
orth_normed orth_layer_norm(orth_layer_builder *b, const char *name, orth_value x, orth_value res);
/* y = act(x w^T + bias); `in` and `out` are the canonical parts of the two dims. */
orth_value orth_layer_linear(orth_layer_builder *b, const char *name, bool bias, orth_value x, int64_t K,
                             int64_t O, orth_act act, orth_split in, orth_split out);
/* The attention sublayer after its norm: qkv product, [QK-norm, rotation,] attention, output product. */
orth_value orth_layer_attention(orth_layer_builder *b, orth_value x);
orth_value orth_layer_dropout(orth_layer_builder *b, orth_value x, int32_t site);
orth_value orth_layer_add(orth_layer_builder *b, orth_value a, orth_value c);

/* Parts of a feature dimension of `units` units of `unit` elements. */
orth_split orth_layer_split(const orth_layer_builder *b, int64_t units, int64_t unit);

/* One per family: from g->input to g->output. */
void orth_gpt2_layer(orth_layer_builder *b);
void orth_llama_layer(orth_layer_builder *b);

#endif
