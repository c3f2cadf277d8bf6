/* llama.c -- the Llama layer and its relatives (Mistral, Qwen2, Qwen3 are settings of it).
 * Source: Touvron et al., "LLaMA", arXiv:2302.13971: pre-norm with RMSNorm, rotary positions, SwiGLU;
 * grouped-query attention as in arXiv:2305.13245. */
#include "model/layer.h"

void orth_llama_layer(orth_layer_builder *b)
{
    const orth_model_config *c = b->c;
    orth_value x = b->g->input;

    orth_normed n1 = orth_layer_norm(b, "attn_norm", x, ORTH_NO_VALUE);
    orth_value a = orth_layer_dropout(b, orth_layer_attention(b, n1.y), ORTH_SITE_ATTENTION_OUT);

    orth_normed n2 = orth_layer_norm(b, "mlp_norm", a, x);
    orth_split ffn = orth_layer_split(b, c->ffn, 1);
    orth_value h = orth_layer_column(b, "mlp.gate_up", c->mlp_bias, orth_layer_enter(b, n2.y), ORTH_ACT_NONE,
                                     orth_layer_split(b, c->ffn, 2));
    orth_value u = orth_graph_temp(b->g, "swiglu", b->s->compute, b->N, orth_layer_length(b, ffn));
    orth_attr attr = orth_layer_attr_inside(b);
    orth_graph_add(b->g, ORTH_OP_swiglu, &attr, 1, &h, 1, &u);
    orth_value m = orth_layer_row(b, "mlp.down", c->mlp_bias, u, ffn);
    b->g->output = orth_layer_add(b, orth_layer_dropout(b, m, ORTH_SITE_MLP_OUT), n2.sum);
}
