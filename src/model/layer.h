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
} orth_layer_builder;

typedef struct {
    orth_value y, sum;
} orth_normed;

orth_layer_builder orth_layer_begin(const orth_model_config *c, const orth_model_shape *s);
orth_attr orth_layer_attr_inside(const orth_layer_builder *b);
orth_attr orth_layer_attr_outside(const orth_layer_builder *b);

/* Outside. y = norm(x + res); sum = x + res (x itself without res). */
orth_normed orth_layer_norm(orth_layer_builder *b, const char *name, orth_value x, orth_value res);
/* Which dropout of a block: part of what its random numbers are drawn for. */
enum { ORTH_SITE_EMBED, ORTH_SITE_ATTENTION_OUT, ORTH_SITE_MLP_OUT, ORTH_SITE_ATTENTION };
orth_value orth_layer_dropout(orth_layer_builder *b, orth_value x, int32_t site);
orth_value orth_layer_add(orth_layer_builder *b, orth_value a, orth_value c);

/* From outside to inside. */
orth_value orth_layer_enter(orth_layer_builder *b, orth_value x);
/* Column-parallel product, inside: y = act(x w^T + bias), this rank's outputs. `out`: canonical parts of
 * the whole output dim. */
orth_value orth_layer_column(orth_layer_builder *b, const char *name, bool bias, orth_value x, orth_act act,
                             orth_split out);
/* Row-parallel product, from inside to outside: y = x w^T summed over ranks, + bias. `in`: canonical parts of
 * the whole input dim. */
orth_value orth_layer_row(orth_layer_builder *b, const char *name, bool bias, orth_value x, orth_split in);
/* The attention sublayer after its norm: qkv product, [QK-norm, rotation,] attention, output product. */
orth_value orth_layer_attention(orth_layer_builder *b, orth_value x);

/* Parts of a feature dimension of `units` units of `unit` elements. */
orth_split orth_layer_split(const orth_layer_builder *b, int64_t units, int64_t unit);
/* This rank's share of a split dimension: its parts, counted from 0; and its length, replicas of k and v included. */
orth_split orth_layer_local(const orth_layer_builder *b, orth_split whole);
int64_t orth_layer_length(const orth_layer_builder *b, orth_split whole);
/* First index of this rank's share. */
int64_t orth_layer_first(const orth_layer_builder *b, orth_split whole);

/* One per family: from g->input to g->output. */
void orth_gpt2_layer(orth_layer_builder *b);
void orth_llama_layer(orth_layer_builder *b);

#endif
