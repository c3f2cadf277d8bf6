/* test_vjp.c -- the backward graphs that vjp.c derives, against finite differences.
 *
 * Every block of every model family is run node by node with the plain kernels. Its scalar is
 * L = sum of c*output in double (of the losses themselves for the head). For each parameter and for the
 * input: the derivative of L along a random direction, by a central difference of fourth order, must
 * be the scalar product of that direction with the derived gradient.
 */
#include <math.h>

#include "model/blocks.h"
#include "test.h"

#define B 2
#define T 12
#define VOCAB 37

typedef struct {
    orth_ctx *ctx;
    orth_model_config model;
    orth_model_shape shape;
    orth_model_blocks blocks;
    const orth_graph *g;
    const char *name;
    orth_tensor *value;      /* [num_values] */
    orth_step_values step;
} bench;

static orth_tensor tensor_of(const orth_value_info *v)
{
    orth_tensor t = {NULL, v->dtype, v->num_dims, {1, 1, 1, 1}};
    for (int i = 0; i < v->num_dims; i++)
        t.dim[i] = v->dim[i];
    t.data = calloc(1, orth_tensor_bytes(&t) + 64);
    return t;
}

static void fill_data(bench *b, const orth_value_info *v, orth_tensor *t)
{
    int32_t *ints = t->data;
    float *reals = t->data;
    for (int64_t i = 0; i < orth_tensor_elems(t); i++) {
        int64_t pos = orth_fold_pos(T, b->shape.parts, i % T);
        switch (v->slot) {
        case ORTH_DATA_TOKENS: ints[i] = (int32_t)test_rand_int(1, (uint64_t)i, 0, VOCAB - 1); break;
        case ORTH_DATA_TARGETS: ints[i] = (int32_t)test_rand_int(2, (uint64_t)i, 0, VOCAB - 1); break;
        case ORTH_DATA_POSITIONS: ints[i] = (int32_t)pos; break;
        case ORTH_DATA_DOC_STARTS: ints[i] = (int32_t)(pos / 5 * 5); break;
        case ORTH_DATA_WEIGHTS: reals[i] = i % 5 != 2; break;
        case ORTH_DATA_SEQ: ints[i] = (int32_t)i; break;
        default: break;
        }
    }
    if (v->slot == ORTH_DATA_ROPE_TABLE)
        orth_model_rope_table(&b->model, t->data, T);
    if (v->slot == ORTH_DATA_STEP)
        memcpy(t->data, &b->step, sizeof b->step);
}

/* Parameters and the input at random (gains around 1), the gradient that enters at random. */
static void open_graph(bench *b, const orth_graph *g, const char *name)
{
    b->g = g;
    b->name = name;
    b->value = calloc((size_t)g->num_values, sizeof *b->value);
    b->step = (orth_step_values){.seed = 9, .step = 1, .loss_scale = 1};
    for (int32_t v = 0; v < g->num_values; v++) {
        const orth_value_info *info = &g->values[v];
        orth_tensor *t = &b->value[v];
        *t = tensor_of(info);
        bool gain = info->kind == ORTH_VALUE_PARAM && strstr(info->name, "gain");
        float scale = info->kind == ORTH_VALUE_PARAM && info->num_dims == 2 ? 0.3f : gain ? 0.4f : 1.0f;
        if (info->kind == ORTH_VALUE_PARAM || info->kind == ORTH_VALUE_INPUT)
            for (int64_t i = 0; i < orth_tensor_elems(t); i++)
                ((float *)t->data)[i] = (float)gain + scale * test_rand((uint64_t)v + 10, (uint64_t)i);
        if (info->kind == ORTH_VALUE_DATA)
            fill_data(b, info, t);
    }
}

static void close_graph(bench *b)
{
    for (int32_t v = 0; v < b->g->num_values; v++)
        free(b->value[v].data);
    free(b->value);
}

static void run_nodes(bench *b, int32_t first, int32_t end)
{
    const orth_tensor absent = {0};
    for (int32_t i = first; i < end; i++) {
        const orth_node *n = &b->g->nodes[i];
        orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
        for (int k = 0; k < n->num_in; k++)
            in[k] = n->in[k] == ORTH_NO_VALUE ? absent : b->value[n->in[k]];
        for (int k = 0; k < n->num_out; k++)
            out[k] = n->out[k] == ORTH_NO_VALUE ? absent : b->value[n->out[k]];
        orth_op_call call = {.in = in, .out = out, .num_in = n->num_in, .num_out = n->num_out, .attr = &n->attr};
        CHECK_OK(b->ctx, orth_kernels_ref()[n->op](b->ctx, &call));
    }
}

static double loss(bench *b)
{
    run_nodes(b, 0, b->g->num_forward);
    const orth_tensor *out = &b->value[b->g->output];
    const float *c = b->g->output_grad == ORTH_NO_VALUE ? NULL : b->value[b->g->output_grad].data;
    double sum = 0;
    for (int64_t i = 0; i < orth_tensor_elems(out); i++)
        sum += (c ? (double)c[i] : 1.0) * (double)((const float *)out->data)[i];
    return sum;
}

/* L at `from` + h*direction. */
static double loss_at(bench *b, orth_tensor *t, const float *from, const float *direction, double h)
{
    float *x = t->data;
    for (int64_t i = 0; i < orth_tensor_elems(t); i++)
        x[i] = (float)((double)from[i] + h * (double)direction[i]);
    double l = loss(b);
    memcpy(x, from, orth_tensor_bytes(t));
    return l;
}

static void check_gradient(bench *b, orth_value v, const float *grad)
{
    orth_tensor *t = &b->value[v];
    int64_t n = orth_tensor_elems(t);
    float *from = malloc((size_t)n * 4), *d = malloc((size_t)n * 4);
    const double h = 1.0 / 128;
    double norm = 0;
    memcpy(from, t->data, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        norm += (double)grad[i] * grad[i];
    norm = sqrt(norm);
    assert_true(isfinite(norm) && norm > 1e-3);
    for (int k = 0; k < 5; k++) { /* random signs; last, along the gradient */
        double want = 0;
        for (int64_t i = 0; i < n; i++) {
            d[i] = k < 4 ? (test_rand(90 + (uint64_t)k, (uint64_t)i) < 0 ? -1.0f : 1.0f)
                         : (float)(grad[i] / norm * fmin(sqrt((double)n), 8.0));
            want += (double)d[i] * (double)grad[i];
        }
        double near = loss_at(b, t, from, d, h) - loss_at(b, t, from, d, -h);
        double far = loss_at(b, t, from, d, 2 * h) - loss_at(b, t, from, d, -2 * h);
        double got = (8 * near - far) / (12 * h);
        if (!(fabs(got - want) <= 2e-3 * norm + 1e-3))
            fail_msg("%s: %s along direction %d: derived %.6g, by differences %.6g (gradient's norm %.4g)",
                     b->name, b->g->values[v].name, k, want, got, norm);
    }
    free(from);
    free(d);
}

static int check_graph(bench *b, const orth_graph *g, const char *name)
{
    int checked = 0;
    open_graph(b, g, name);
    loss(b);
    run_nodes(b, g->num_forward, g->num_nodes);
    /* The differences run the forward nodes only: what the backward ones made stays. */
    if (g->input != ORTH_NO_VALUE) {
        check_gradient(b, g->input, b->value[g->input_grad].data);
        checked++;
    }
    for (int32_t i = g->num_forward; i < g->num_nodes; i++) {
        const orth_node *n = &g->nodes[i];
        for (orth_value v = 0; n->param >= 0 && v < g->num_values; v++) {
            if (g->values[v].kind != ORTH_VALUE_PARAM || g->values[v].slot != n->param)
                continue;
            check_gradient(b, v, b->value[n->out[n->param_out]].data);
            checked++;
        }
    }
    assert_int_equal(checked, g->num_params + (g->input != ORTH_NO_VALUE));
    close_graph(b);
    return checked;
}

static void check_model(const char *preset, int parts, double dropout, bool doc_mask, bool full, bool biases)
{
    bench b = {.ctx = test_ctx(1)};
    CHECK_OK(b.ctx, orth_model_preset(b.ctx, preset, &b.model));
    b.model.hidden = 24;
    b.model.head_dim = 8;
    b.model.heads = b.model.family == ORTH_FAMILY_GPT2 ? 3 : 4;
    b.model.kv_heads = b.model.family == ORTH_FAMILY_GPT2 ? 3 : 2;
    b.model.ffn = 40;
    b.model.vocab = VOCAB;
    b.model.max_seq = T + 3;
    b.model.dropout = b.model.attn_dropout = dropout;
    b.model.embed_dropout = dropout / 2;
    b.model.gelu_erf = b.model.family == ORTH_FAMILY_GPT2 && dropout > 0;
    if (biases)
        b.model.qkv_bias = b.model.out_bias = b.model.mlp_bias = true;
    CHECK_OK(b.ctx, orth_model_config_check(b.ctx, &b.model));
    b.shape = (orth_model_shape){.mode = ORTH_MODE_TRAIN, .num_seqs = B, .seq_len = T, .num_micro_batches = 1,
                                 .parts = parts, .compute = ORTH_F32, .doc_mask = doc_mask,
                                 .attention_full = full, .optimizer = ORTH_OP_adamw};
    CHECK_OK(b.ctx, orth_model_blocks_build(b.ctx, &b.model, &b.shape, &b.blocks));
    check_graph(&b, &b.blocks.embed, "embed");
    check_graph(&b, &b.blocks.layer, preset);
    check_graph(&b, &b.blocks.final, "final norm");
    check_graph(&b, &b.blocks.head, "head");
    orth_model_blocks_release(&b.blocks);
    test_ctx_free(b.ctx);
}

TEST(a_gpt2_block_has_the_gradient_of_its_function)
{
    check_model("gpt2-tiny", 1, 0, false, false, false);
    check_model("gpt2-tiny", 4, 0.2, true, false, false);
    check_model("gpt2-tiny", 4, 0, true, true, false);
}

TEST(a_llama_block_has_the_gradient_of_its_function)
{
    check_model("llama-tiny", 1, 0, false, false, false);
    check_model("llama-tiny", 4, 0.2, true, false, true);
    check_model("llama-tiny", 2, 0, false, true, false);
}

TEST(a_qwen3_block_has_the_gradient_of_its_function)
{
    check_model("qwen3-tiny", 1, 0, false, false, false);
    check_model("qwen3-tiny", 4, 0.1, true, false, false);
}

TEST(an_op_without_a_product_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_graph g;
    orth_graph_init(ctx, &g);
    const int64_t dim[] = {4, 8};
    g.input = orth_graph_add_value(&g, ORTH_VALUE_INPUT, 0, ORTH_F32, "x", 2, dim);
    g.output = orth_graph_temp(&g, "y", ORTH_BF16, 4, 8);
    orth_graph_add(&g, ORTH_OP_cast, &(orth_attr){0}, 1, &g.input, 1, &g.output);
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "op cast has no vector-Jacobian product",
                orth_graph_differentiate(&g, true));
    orth_graph_release(&g);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt2_block_has_the_gradient_of_its_function),
        cmocka_unit_test(a_llama_block_has_the_gradient_of_its_function),
        cmocka_unit_test(a_qwen3_block_has_the_gradient_of_its_function),
        cmocka_unit_test(an_op_without_a_product_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
