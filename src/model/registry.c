/* registry.c -- every parameter of a model, in one fixed order. See config.h.
 *
 * The order is: what comes before the layers, the layers, what comes after. A section is listed into
 * a short array on the stack, so that any index is found without walking the model or allocating.
 */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_SECTION 16

typedef struct {
    const char *name;       /* within its section */
    int64_t rows, cols;     /* cols = 0: a vector */
    orth_init init;
    double init_std;
} entry;

typedef struct {
    entry e[MAX_SECTION];
    int n;
} section;

static void add_matrix(section *s, const char *name, int64_t rows, int64_t cols, double init_std)
{
    s->e[s->n++] = (entry){name, rows, cols, ORTH_INIT_NORMAL, init_std};
}

static void add_vector(section *s, bool present, const char *name, int64_t elems, orth_init init)
{
    if (present)
        s->e[s->n++] = (entry){name, elems, 0, init, 0.0};
}

static section before_layers(const orth_model_config *c)
{
    section s = {.n = 0};
    add_matrix(&s, "embed.weight", c->vocab, c->hidden, c->init_std);
    if (c->family == ORTH_FAMILY_GPT2)
        add_matrix(&s, "pos.weight", c->max_seq, c->hidden, c->init_std);
    return s;
}

/* Projections that write to the residual stream start smaller, so that its variance does not grow
 * with depth (GPT-2, section 2.3). */
static section one_layer(const orth_model_config *c)
{
    const bool gpt2 = c->family == ORTH_FAMILY_GPT2;
    const int64_t C = c->hidden, F = c->ffn, D = c->head_dim, R = (c->heads + 2 * c->kv_heads) * D;
    const double out_std = c->init_std / sqrt(2.0 * (double)c->layers);
    section s = {.n = 0};
    add_vector(&s, true, "attn_norm.gain", C, ORTH_INIT_ONE);
    add_vector(&s, gpt2, "attn_norm.shift", C, ORTH_INIT_ZERO);
    add_matrix(&s, "attn.qkv.weight", R, C, c->init_std);
    add_vector(&s, c->qkv_bias, "attn.qkv.bias", R, ORTH_INIT_ZERO);
    add_vector(&s, c->qk_norm, "attn.q_norm.gain", D, ORTH_INIT_ONE);
    add_vector(&s, c->qk_norm, "attn.k_norm.gain", D, ORTH_INIT_ONE);
    add_matrix(&s, "attn.out.weight", C, c->heads * D, out_std);
    add_vector(&s, c->out_bias, "attn.out.bias", C, ORTH_INIT_ZERO);
    add_vector(&s, true, "mlp_norm.gain", C, ORTH_INIT_ONE);
    add_vector(&s, gpt2, "mlp_norm.shift", C, ORTH_INIT_ZERO);
    add_matrix(&s, gpt2 ? "mlp.up.weight" : "mlp.gate_up.weight", gpt2 ? F : 2 * F, C, c->init_std);
    add_vector(&s, c->mlp_bias, gpt2 ? "mlp.up.bias" : "mlp.gate_up.bias", gpt2 ? F : 2 * F, ORTH_INIT_ZERO);
    add_matrix(&s, "mlp.down.weight", C, F, out_std);
    add_vector(&s, c->mlp_bias, "mlp.down.bias", C, ORTH_INIT_ZERO);
    return s;
}

static section after_layers(const orth_model_config *c)
{
    section s = {.n = 0};
    add_vector(&s, true, "final_norm.gain", c->hidden, ORTH_INIT_ONE);
    add_vector(&s, c->family == ORTH_FAMILY_GPT2, "final_norm.shift", c->hidden, ORTH_INIT_ZERO);
    if (!c->tied)
        add_matrix(&s, "head.weight", c->vocab, c->hidden, c->init_std);
    return s;
}

static orth_param param_from(const entry *e, int64_t layer)
{
    const bool matrix = e->cols > 0;
    orth_param p = {
        .num_dims = matrix ? 2 : 1,
        .dim = {e->rows, matrix ? e->cols : 1},
        .init = e->init,
        .init_std = e->init_std,
        .decay = matrix,
        .matrix = matrix,
        .layer = (int32_t)layer,
    };
    if (layer < 0)
        snprintf(p.name, sizeof p.name, "%s", e->name);
    else
        snprintf(p.name, sizeof p.name, "layers.%" PRId64 ".%s", layer, e->name);
    return p;
}

int64_t orth_model_num_params(const orth_model_config *c)
{
    return before_layers(c).n + c->layers * one_layer(c).n + after_layers(c).n;
}

orth_status orth_model_param(orth_ctx *ctx, const orth_model_config *c, int64_t index, orth_param *out)
{
    const section head = before_layers(c), layer = one_layer(c), tail = after_layers(c);
    const int64_t in_layers = c->layers * layer.n, n = head.n + in_layers + tail.n;
    if (index < 0 || index >= n)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "parameter %" PRId64 " is not one of the model's %" PRId64, index,
                         n);
    const int64_t i = index - head.n;
    if (i < 0)
        *out = param_from(&head.e[index], -1);
    else if (i < in_layers)
        *out = param_from(&layer.e[i % layer.n], i / layer.n);
    else
        *out = param_from(&tail.e[i - in_layers], -1);
    return ORTH_OK;
}

static int section_find(const section *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->e[i].name, name) == 0)
            return i;
    return -1;
}

/* Reads "layers.I." strictly (digits, no leading zero); returns the rest of the name or NULL. */
static const char *parse_layer(const char *name, int64_t *out)
{
    if (strncmp(name, "layers.", 7) != 0)
        return NULL;
    const char *p = name + 7;
    int64_t value = 0;
    if (p[0] == '0' && p[1] != '.')
        return NULL;
    for (; *p >= '0' && *p <= '9' && value < ((int64_t)1 << 40); p++)
        value = 10 * value + (*p - '0');
    if (p == name + 7 || *p != '.')
        return NULL;
    *out = value;
    return p + 1;
}

int64_t orth_model_param_find(const orth_model_config *c, const char *name)
{
    const section head = before_layers(c), layer = one_layer(c), tail = after_layers(c);
    int64_t number = 0;
    const char *rest = parse_layer(name, &number);
    if (rest) {
        int i = section_find(&layer, rest);
        return i < 0 || number >= c->layers ? -1 : head.n + number * layer.n + i;
    }
    int i = section_find(&head, name);
    if (i >= 0)
        return i;
    i = section_find(&tail, name);
    return i < 0 ? -1 : head.n + c->layers * layer.n + i;
}

int64_t orth_param_elems(const orth_param *p)
{
    return p->num_dims == 2 ? p->dim[0] * p->dim[1] : p->dim[0];
}

static int64_t section_elems(const section *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->e[i].rows * (s->e[i].cols > 0 ? s->e[i].cols : 1);
    return n;
}

int64_t orth_model_num_elems(const orth_model_config *c)
{
    const section head = before_layers(c), layer = one_layer(c), tail = after_layers(c);
    return section_elems(&head) + c->layers * section_elems(&layer) + section_elems(&tail);
}
