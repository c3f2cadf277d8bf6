/* peak.c -- see peak.h. */
#include "plan/peak.h"

#include "plan/memory.h"
#include "program/ir/live.h"

/* One space at its fullest. */
typedef struct {
    const orth_program *p;
    orth_space space;
    orth_live_buffer *live;  /* [num] */
    int32_t num;
    size_t bytes;            /* their sum */
    size_t by_op[ORTH_NUM_OPS];
    size_t *by_layer;        /* [num_layers + 2] from layer -1 on */
    int32_t num_layers;
} peak;

static int32_t layer_of(const orth_program *p, const orth_live_buffer *b)
{
    return b->made_by < 0 ? -1 : p->instrs[b->made_by].layer;
}

/* Activations that instructions make, by who made them; the step's data, which is persistent, is no layer's. */
static void sort_activations(peak *x)
{
    for (int32_t i = 0; i < x->num; i++) {
        const orth_live_buffer *b = &x->live[i];
        x->bytes += b->bytes;
        if (x->p->buffers[b->buffer].cls != ORTH_CLASS_ACTIVATIONS || b->made_by < 0)
            continue;
        x->by_op[x->p->instrs[b->made_by].op] += b->bytes;
        x->by_layer[layer_of(x->p, b) + 1] += b->bytes;
    }
}

static orth_status find(orth_ctx *ctx, const orth_program *p, orth_space space, peak *x)
{
    *x = (peak){.p = p, .space = space};
    for (int32_t i = 0; i < p->num_instrs; i++)
        x->num_layers = ORTH_MAX(x->num_layers, p->instrs[i].layer + 1);
    x->by_layer = ORTH_NEW_ARRAY(ctx, size_t, x->num_layers + 2);
    if (!x->by_layer)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_live_during(ctx, p, space, p->peak_instr[space], &x->live, &x->num));
    sort_activations(x);
    return ORTH_OK;
}

static void release(orth_ctx *ctx, peak *x)
{
    orth_mem_free(ctx, x->live);
    orth_mem_free(ctx, x->by_layer);
}

static const char *phase_name(orth_phase p)
{
    static const char *const names[ORTH_NUM_PHASES] = {"forward", "backward", "update"};
    return names[p];
}

static orth_peak_moment moment_of(const orth_instr *n)
{
    return (orth_peak_moment){n->op, n->phase, n->layer, n->micro_batch};
}

orth_peak_moment orth_peak_moment_of(const orth_program *p, orth_space space)
{
    return moment_of(&p->instrs[p->peak_instr[space]]);
}

/* ---- for people ---- */

void orth_peak_add_moment(orth_ctx *ctx, orth_text *out, const orth_peak_moment *m)
{
    orth_text_addf(ctx, out, "%s", phase_name(m->phase));
    if (m->layer >= 0)
        orth_text_addf(ctx, out, ", layer %d", (int)m->layer);
    if (m->micro_batch >= 0)
        orth_text_addf(ctx, out, ", micro-batch %d", (int)m->micro_batch);
}

static void add_place(orth_ctx *ctx, orth_text *out, const orth_instr *n)
{
    const orth_peak_moment m = moment_of(n);
    orth_peak_add_moment(ctx, out, &m);
}

static void add_buffer_row(orth_ctx *ctx, orth_text *out, const peak *x, const orth_live_buffer *b)
{
    const orth_buffer *buf = &x->p->buffers[b->buffer];
    orth_text_addf(ctx, out, "  %14zu B  %-11s  %-28s ", b->bytes, orth_class_name(buf->cls), buf->name);
    if (b->made_by < 0) {
        orth_text_add(ctx, out, "always\n");
        return;
    }
    orth_text_addf(ctx, out, "%s, ", orth_op_name(x->p->instrs[b->made_by].op));
    add_place(ctx, out, &x->p->instrs[b->made_by]);
    orth_text_add(ctx, out, "\n");
}

static void add_sums(orth_ctx *ctx, orth_text *out, const peak *x)
{
    orth_text_add(ctx, out, "activations by op:");
    for (int k = 0; k < ORTH_NUM_OPS; k++)
        if (x->by_op[k] > 0)
            orth_text_addf(ctx, out, " %s %zu", orth_op_name((orth_op)k), x->by_op[k]);
    orth_text_add(ctx, out, "\nactivations by layer:");
    for (int32_t k = 0; k <= x->num_layers; k++)
        if (x->by_layer[k] > 0)
            orth_text_addf(ctx, out, " %d: %zu", (int)k - 1, x->by_layer[k]);
    orth_text_add(ctx, out, "\n");
}

void orth_peak_add_text(orth_ctx *ctx, orth_text *out, const orth_program *p, bool on_devices, int rank, int rows)
{
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        peak x = {.live = NULL};
        if (p->space_bytes[s] == 0)
            continue;
        const orth_instr *n = &p->instrs[p->peak_instr[s]];
        out->failed = out->failed || find(ctx, p, (orth_space)s, &x) != ORTH_OK;
        orth_text_addf(ctx, out, "rank %d, %s memory: %zu of %zu B live during instruction %d (%s, ", rank, orth_memory_space_name((orth_space)s, p->space, on_devices),
                       x.bytes, p->space_bytes[s], (int)p->peak_instr[s], orth_op_name(n->op));
        add_place(ctx, out, n);
        orth_text_addf(ctx, out, ")%s\n", x.num > rows ? "; the largest:" : ":");
        for (int32_t i = 0; i < ORTH_MIN(x.num, rows); i++)
            add_buffer_row(ctx, out, &x, &x.live[i]);
        if (!out->failed)
            add_sums(ctx, out, &x);
        release(ctx, &x);
    }
}

/* ---- JSON ---- */

static void add_moment_json(orth_json_out *j, const orth_peak_moment *m)
{
    orth_json_string(j, "op", orth_op_name(m->op));
    orth_json_string(j, "phase", phase_name(m->phase));
    orth_json_print(j, "layer", "%d", (int)m->layer);
    orth_json_print(j, "micro_batch", "%d", (int)m->micro_batch);
}

void orth_peak_moment_json(orth_json_out *j, const char *key, const orth_peak_moment *m)
{
    orth_json_open(j, key, '{');
    add_moment_json(j, m);
    orth_json_close(j, '}');
}

static void add_place_json(orth_json_out *j, const orth_instr *n)
{
    const orth_peak_moment m = moment_of(n);
    add_moment_json(j, &m);
}

static void add_buffer_json(orth_json_out *j, const peak *x, const orth_live_buffer *b)
{
    const orth_buffer *buf = &x->p->buffers[b->buffer];
    orth_json_open(j, NULL, '{');
    orth_json_string(j, "name", buf->name);
    orth_json_string(j, "class", orth_class_name(buf->cls));
    orth_json_print(j, "bytes", "%zu", b->bytes);
    if (b->made_by >= 0)
        add_place_json(j, &x->p->instrs[b->made_by]);
    orth_json_close(j, '}');
}

static void add_sums_json(orth_json_out *j, const peak *x)
{
    orth_json_open(j, "activations_by_op", '{');
    for (int k = 0; k < ORTH_NUM_OPS; k++)
        if (x->by_op[k] > 0)
            orth_json_print(j, orth_op_name((orth_op)k), "%zu", x->by_op[k]);
    orth_json_close(j, '}');
    orth_json_open(j, "activations_by_layer", '{');
    for (int32_t k = 0; k <= x->num_layers; k++) {
        char layer[16];
        snprintf(layer, sizeof layer, "%d", (int)k - 1);
        if (x->by_layer[k] > 0)
            orth_json_print(j, layer, "%zu", x->by_layer[k]);
    }
    orth_json_close(j, '}');
}

/* Of the buffers behind the first `rows`. */
static void add_rest_json(orth_json_out *j, const peak *x, int rows)
{
    size_t bytes = 0;
    for (int32_t i = rows; i < x->num; i++)
        bytes += x->live[i].bytes;
    orth_json_open(j, "others", '{');
    orth_json_print(j, "buffers", "%d", (int)ORTH_MAX(0, x->num - rows));
    orth_json_print(j, "bytes", "%zu", bytes);
    orth_json_close(j, '}');
}

void orth_peak_add_json(orth_json_out *j, const orth_program *p, bool on_devices, int rank, int rows)
{
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        peak x = {.live = NULL};
        if (p->space_bytes[s] == 0)
            continue;
        j->text->failed = j->text->failed || find(j->ctx, p, (orth_space)s, &x) != ORTH_OK;
        orth_json_open(j, NULL, '{');
        orth_json_print(j, "rank", "%d", rank);
        orth_json_string(j, "space", orth_memory_space_name((orth_space)s, p->space, on_devices));
        orth_json_print(j, "instr", "%d", (int)p->peak_instr[s]);
        add_place_json(j, &p->instrs[p->peak_instr[s]]);
        orth_json_print(j, "bytes", "%zu", x.bytes);
        orth_json_open(j, "buffers", '[');
        for (int32_t i = 0; i < ORTH_MIN(x.num, rows); i++)
            add_buffer_json(j, &x, &x.live[i]);
        orth_json_close(j, ']');
        add_rest_json(j, &x, rows);
        if (!j->text->failed)
            add_sums_json(j, &x);
        orth_json_close(j, '}');
        release(j->ctx, &x);
    }
}
