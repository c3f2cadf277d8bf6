/* registry.c -- see registry.h.
 *
 * The sections of a model are lists of rows on the stack, so that any parameter is found without walking the model or
 * allocating.
 */
#include "model/registry.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- the words of weights.def ---- */

#define SHAPE_MATRIX(rows, cols) {2, {rows, cols}}
#define SHAPE_VECTOR(n) {1, {n, 1}}
#define INIT_NORMAL(std) {ORTH_INIT_NORMAL, std}
#define INIT_ONE {ORTH_INIT_ONE, 0}
#define INIT_ZERO {ORTH_INIT_ZERO, 0}
#define SPLIT_WHOLE {ORTH_CUT_WHOLE, ORTH_SPLIT_EVEN, 0, 0, 0}
#define SPLIT_ROWS(units, unit) {ORTH_CUT_ROWS, ORTH_SPLIT_EVEN, units, unit, 1}
#define SPLIT_COLS(units, unit) {ORTH_CUT_COLS, ORTH_SPLIT_EVEN, units, unit, 1}
#define SPLIT_QKV_ROWS {ORTH_CUT_ROWS, ORTH_SPLIT_QKV, H, D, G}
#define HF_NONE {.transposed = false}
#define HF_SAME(a) {.part = {{a, ORTH_HF_ALL}}}
#define HF_NO_PREFIX(a) {.part = {{a, ORTH_HF_ALL}}, .no_prefix = true}
#define HF_TRANSPOSED(a) {.part = {{a, ORTH_HF_ALL}}, .transposed = true}
#define HF_QKV(a) {.part = {{a, ORTH_HF_QKV}}}
#define HF_QKV_TRANSPOSED(a) {.part = {{a, ORTH_HF_QKV}}, .transposed = true}
#define HF_Q_K_V(a, b, c) {.part = {{a, ORTH_HF_Q}, {b, ORTH_HF_K}, {c, ORTH_HF_V}}}
#define HF_GATE_UP(a, b) {.part = {{a, ORTH_HF_GATE}, {b, ORTH_HF_UP}}}

static const struct {
    const char *name;
    orth_weight_section section;
} fixed[ORTH_NUM_WEIGHTS] = {
#define WEIGHT(id, name, section, present, shape, type, init, decay, split, reduce, leaf, gpt2, llama) \
    [ORTH_WEIGHT_##id] = {name, ORTH_SECTION_##section},
#include "model/weights.def"
#undef WEIGHT
};

bool orth_weight_present(const orth_model_config *c, orth_weight_id id)
{
    const bool gpt2 = c->family == ORTH_FAMILY_GPT2;
    switch (id) {
#define WEIGHT(id, name, section, present, shape, type, init, decay, split, reduce, leaf, gpt2_, llama_) \
    case ORTH_WEIGHT_##id: return present;
#include "model/weights.def"
#undef WEIGHT
    case ORTH_WEIGHT_NONE:
    case ORTH_NUM_WEIGHTS: break;
    }
    return false;
}

/* Projections that write to the residual stream start smaller, so that its variance does not grow
 * with depth (GPT-2, section 2.3). */
orth_weight orth_weight_get(const orth_model_config *c, orth_weight_id id)
{
    const int64_t C = c->hidden, H = c->heads, KV = c->kv_heads, D = c->head_dim, F = c->ffn, V = c->vocab, S = c->max_seq;
    const int64_t R = (H + 2 * KV) * D, G = H / ORTH_MAX(KV, 1);
    const double std = c->init_std, out_std = std / sqrt(2.0 * (double)c->layers);
    switch (id) {
#define WEIGHT(id, name, section, present, shape, type, init, decay, split, reduce, leaf, gpt2, llama)                \
    case ORTH_WEIGHT_##id:                                                                                            \
        return (orth_weight){name, ORTH_SECTION_##section, SHAPE_##shape, ORTH_WEIGHT_##type, INIT_##init,            \
                             ORTH_WEIGHT_##decay, SPLIT_##split, ORTH_REDUCE_##reduce, ORTH_LEAF_##leaf,              \
                             {[ORTH_FAMILY_GPT2] = HF_##gpt2, [ORTH_FAMILY_LLAMA] = HF_##llama}};
#include "model/weights.def"
#undef WEIGHT
    case ORTH_WEIGHT_NONE:
    case ORTH_NUM_WEIGHTS: break;
    }
    return (orth_weight){.name = ""};
}

bool orth_weight_moments_8bit(const orth_weight *w)
{
    return w->type == ORTH_WEIGHT_COMPUTE && w->section != ORTH_SECTION_BEFORE;
}

/* ---- the registry ---- */

typedef struct {
    orth_weight_id id[ORTH_NUM_WEIGHTS];
    int32_t n;
} section;

typedef struct {
    section before, layer, after;
} sections;

static sections sections_of(const orth_model_config *c)
{
    sections all = {.before.n = 0};
    section *const by_section[] = {[ORTH_SECTION_BEFORE] = &all.before, [ORTH_SECTION_ATTENTION] = &all.layer,
                                   [ORTH_SECTION_FEED_FORWARD] = &all.layer, [ORTH_SECTION_AFTER] = &all.after};
    for (int id = 1; id < ORTH_NUM_WEIGHTS; id++) {
        section *s = by_section[fixed[id].section];
        if (orth_weight_present(c, (orth_weight_id)id))
            s->id[s->n++] = (orth_weight_id)id;
    }
    return all;
}

static orth_param param_of(const orth_model_config *c, orth_weight_id id, int64_t layer)
{
    const orth_weight w = orth_weight_get(c, id);
    orth_param p = {.weight = id, .layer = (int32_t)layer, .num_dims = w.shape.num_dims,
                    .dim = {w.shape.dim[0], w.shape.dim[1]}, .init = w.init.kind, .init_std = w.init.std};
    if (layer < 0)
        snprintf(p.name, sizeof p.name, "%s", w.name);
    else
        snprintf(p.name, sizeof p.name, "layers.%" PRId64 ".%s", layer, w.name);
    return p;
}

int64_t orth_model_num_params(const orth_model_config *c)
{
    const sections s = sections_of(c);
    return s.before.n + c->layers * s.layer.n + s.after.n;
}

orth_status orth_model_param(orth_ctx *ctx, const orth_model_config *c, int64_t index, orth_param *out)
{
    const sections s = sections_of(c);
    const int64_t in_layers = c->layers * s.layer.n, n = s.before.n + in_layers + s.after.n;
    if (index < 0 || index >= n)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "parameter %" PRId64 " is not one of the model's %" PRId64, index,
                         n);
    const int64_t i = index - s.before.n;
    if (i < 0)
        *out = param_of(c, s.before.id[index], -1);
    else if (i < in_layers)
        *out = param_of(c, s.layer.id[i % s.layer.n], i / s.layer.n);
    else
        *out = param_of(c, s.after.id[i - in_layers], -1);
    return ORTH_OK;
}

static int32_t place_in(const section *s, orth_weight_id id)
{
    int32_t i = 0;
    while (i < s->n && s->id[i] != id)
        i++;
    return i;
}

int64_t orth_model_param_index(const orth_model_config *c, orth_weight_id id, int64_t layer)
{
    const sections s = sections_of(c);
    switch (fixed[id].section) {
    case ORTH_SECTION_BEFORE: return place_in(&s.before, id);
    case ORTH_SECTION_ATTENTION:
    case ORTH_SECTION_FEED_FORWARD: return s.before.n + layer * s.layer.n + place_in(&s.layer, id);
    case ORTH_SECTION_AFTER: return s.before.n + c->layers * s.layer.n + place_in(&s.after, id);
    }
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
    int64_t layer = -1;
    const char *rest = parse_layer(name, &layer);
    for (int id = 1; id < ORTH_NUM_WEIGHTS; id++) {
        const bool in_layers = orth_section_in_layer(fixed[id].section);
        if (in_layers == (rest != NULL) && layer < c->layers && orth_weight_present(c, (orth_weight_id)id) &&
            strcmp(fixed[id].name, rest ? rest : name) == 0)
            return orth_model_param_index(c, (orth_weight_id)id, layer);
    }
    return -1;
}

int64_t orth_param_elems(const orth_param *p)
{
    return p->num_dims == 2 ? p->dim[0] * p->dim[1] : p->dim[0];
}

int32_t orth_param_hf_name(const orth_model_config *c, const orth_param *p, int part, char *out)
{
    const bool gpt2 = c->family == ORTH_FAMILY_GPT2;
    const orth_weight w = orth_weight_get(c, p->weight);
    const orth_hf_names *names = &w.hf[c->family];
    const char *name = part < ORTH_HF_MAX_PARTS ? names->part[part].name : NULL;
    const char *prefix = names->no_prefix ? "" : gpt2 ? "transformer." : "model.";
    if (!name)
        return -1;
    if (p->layer < 0)
        snprintf(out, ORTH_HF_NAME, "%s%s", prefix, name);
    else
        snprintf(out, ORTH_HF_NAME, "%s%s.%d.%s", prefix, gpt2 ? "h" : "layers", (int)p->layer, name);
    return (int32_t)strlen(prefix);
}

int64_t orth_model_num_elems(const orth_model_config *c)
{
    int64_t n = 0;
    for (int id = 1; id < ORTH_NUM_WEIGHTS; id++) {
        if (!orth_weight_present(c, (orth_weight_id)id))
            continue;
        const orth_weight w = orth_weight_get(c, (orth_weight_id)id);
        n += w.shape.dim[0] * w.shape.dim[1] * (orth_section_in_layer(w.section) ? c->layers : 1);
    }
    return n;
}
