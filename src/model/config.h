/* config.h -- the dimensions of a model. Plain data; filled by presets, options or a config.json. */
#ifndef ORTH_MODEL_CONFIG_H
#define ORTH_MODEL_CONFIG_H

#include "base/ctx.h"

typedef enum { ORTH_FAMILY_GPT2 = 0, ORTH_FAMILY_LLAMA } orth_family;

/* GPT2: learned positions, LayerNorm, GELU (by tanh or erf), biases everywhere, tied head.
 * LLAMA: RoPE, RMSNorm, SwiGLU, no biases unless asked for; Qwen2 (qkv_bias) and Qwen3 (qk_norm),
 * Mistral are settings of it. */
typedef struct {
    orth_family family;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_seq;
    double norm_eps;
    double rope_theta;
    double rope_factor;             /* Llama-3 scaling; 1: none */
    double rope_low_freq, rope_high_freq;
    int64_t rope_original_seq;
    bool tied;                      /* head.weight is embed.weight */
    bool qkv_bias, out_bias, mlp_bias;
    bool qk_norm;
    bool gelu_erf;                  /* GPT2: GELU by erf instead of its tanh form */
    double init_std;                /* 0.02; output projections get init_std/sqrt(2*layers) */
    double dropout;                 /* of what is added to the residual stream */
    double embed_dropout, attn_dropout; /* of embeddings; of attention probabilities */
} orth_model_config;

/* "gpt2", "llama". ORTH_ERR_ARG for another name. */
const char *orth_family_name(orth_family family);
orth_status orth_family_from_name(orth_ctx *ctx, const char *name, orth_family *out);

/* What a family fixes (biases, norm epsilon, tying, RoPE) with sizes of zero: the start for a model
 * given by its dimensions. kv_heads, head_dim and ffn that are still 0 after the caller filled the
 * others in come from orth_model_config_complete: heads, hidden/heads, and 4*hidden (GPT2) or
 * 8/3*hidden rounded up to a multiple of 256 (LLAMA). */
void orth_model_config_defaults(orth_family family, orth_model_config *out);
void orth_model_config_complete(orth_model_config *c);

/* ORTH_ERR_ARG naming the nearest preset when `name` is unknown. Table: presets.def. */
orth_status orth_model_preset(orth_ctx *ctx, const char *name, orth_model_config *out);
/* Names of the presets in the order of presets.def; NULL past the last. */
const char *orth_model_preset_name(int index);

/* Checks all rules between dimensions; ORTH_ERR_ARG with the first that is broken, in words. */
orth_status orth_model_config_check(orth_ctx *ctx, const orth_model_config *c);

/* The registry: every parameter of a model, in one fixed order (embedding, layers, final norm, head).
 *
 *   embed.weight [V,C]                        pos.weight [max_seq,C] (GPT2)
 *   layers.I.attn_norm.gain [C] (.shift GPT2) layers.I.attn.qkv.weight [R,C] (.bias [R])
 *   layers.I.attn.q_norm.gain, .k_norm.gain [D] (qk_norm)
 *   layers.I.attn.out.weight [C,H*D] (.bias)  layers.I.mlp_norm.gain [C] (.shift)
 *   layers.I.mlp.up.weight [F,C] (.bias)      (GPT2)
 *   layers.I.mlp.gate_up.weight [2F,C] (.bias) (LLAMA; rows gate 0, up 0, gate 1, up 1, ...)
 *   layers.I.mlp.down.weight [C,F] (.bias)    final_norm.gain (.shift)
 *   head.weight [V,C] (untied)
 * Row order of qkv: kernels/ops.def. All weights are stored [out, in]. */
typedef enum { ORTH_INIT_ZERO, ORTH_INIT_ONE, ORTH_INIT_NORMAL } orth_init;

typedef struct {
    char name[64];
    int32_t num_dims;
    int64_t dim[2];
    orth_init init;
    double init_std;
    bool decay;                     /* weight decay applies: matrices and embeddings */
    bool matrix;                    /* kept in the compute type beside its fp32 master */
    int32_t layer;                  /* -1: outside the layers */
} orth_param;

int64_t orth_model_num_params(const orth_model_config *c);            /* tensors */
/* ORTH_ERR_ARG for an index out of [0, num_params). `c` has passed orth_model_config_check. */
orth_status orth_model_param(orth_ctx *ctx, const orth_model_config *c, int64_t index, orth_param *out);
/* Index of the parameter of that name, -1 if the model has none. */
int64_t orth_model_param_find(const orth_model_config *c, const char *name);
int64_t orth_param_elems(const orth_param *p);
int64_t orth_model_num_elems(const orth_model_config *c);             /* parameters counted once */

#endif
