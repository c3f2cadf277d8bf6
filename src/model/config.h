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

/* "gpt2", "llama". */
const char *orth_family_name(orth_family family);

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

#endif
