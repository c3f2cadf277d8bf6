/* gpt2.c -- the GPT-2 layer. Source: Radford et al., "Language models are unsupervised multitask
 * learners", 2019: pre-norm, GELU (in its tanh form, or by erf), biases everywhere. */
#include "model/layer.h"

void orth_gpt2_layer(orth_layer_builder *b)
{
    orth_value x = b->g->input;

    orth_normed n1 = orth_layer_norm(b, ORTH_WEIGHT_attn_norm_gain, ORTH_WEIGHT_attn_norm_shift, x, ORTH_NO_VALUE);
    orth_value a = orth_layer_dropout(b, orth_layer_attention(b, n1.y), ORTH_SITE_ATTENTION_OUT);

    orth_normed n2 = orth_layer_norm(b, ORTH_WEIGHT_mlp_norm_gain, ORTH_WEIGHT_mlp_norm_shift, a, x);
    const orth_act gelu = b->c->gelu_erf ? ORTH_ACT_GELU_ERF : ORTH_ACT_GELU_TANH;
    orth_value e = orth_layer_enter(b, n2.y);
    const int32_t first = b->g->num_nodes;
    orth_value u = orth_layer_column(b, ORTH_WEIGHT_up, ORTH_WEIGHT_up_bias, e, gelu);
    orth_value m = orth_layer_row(b, ORTH_WEIGHT_down, ORTH_WEIGHT_down_bias, u);
    orth_layer_in_chunks(b, first);
    b->g->output = orth_layer_add(b, orth_layer_dropout(b, m, ORTH_SITE_MLP_OUT), n2.sum);
}
