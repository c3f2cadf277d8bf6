/* llama.c -- the Llama layer and its relatives (Mistral, Qwen2, Qwen3 are settings of it).
 * Source: Touvron et al., "LLaMA", arXiv:2302.13971: pre-norm with RMSNorm, rotary positions, SwiGLU;
 * grouped-query attention as in arXiv:2305.13245. */
#include "model/layer.h"

void orth_llama_layer(orth_layer_builder *b)
{
    orth_value x = b->g->input;

    orth_normed n1 = orth_layer_norm(b, ORTH_WEIGHT_attn_norm_gain, ORTH_WEIGHT_NONE, x, ORTH_NO_VALUE);
    orth_value a = orth_layer_dropout(b, orth_layer_attention(b, n1.y), ORTH_SITE_ATTENTION_OUT);

    orth_normed n2 = orth_layer_norm(b, ORTH_WEIGHT_mlp_norm_gain, ORTH_WEIGHT_NONE, a, x);
    orth_value e = orth_layer_enter(b, n2.y);
    const int32_t first = b->g->num_nodes;
    orth_value h = orth_layer_column(b, ORTH_WEIGHT_gate_up, ORTH_WEIGHT_gate_up_bias, e, ORTH_ACT_NONE);
    orth_value u = orth_graph_temp(b->g, "swiglu", b->s->compute, b->N, orth_layer_weight(b, ORTH_WEIGHT_down).dim[1]);
    orth_attr attr = orth_layer_attr_inside(b);
    orth_graph_add(b->g, ORTH_OP_swiglu, &attr, 1, &h, 1, &u);
    orth_value m = orth_layer_row(b, ORTH_WEIGHT_down, ORTH_WEIGHT_down_bias, u);
    orth_layer_in_chunks(b, first);
    b->g->output = orth_layer_add(b, orth_layer_dropout(b, m, ORTH_SITE_MLP_OUT), n2.sum);
}
