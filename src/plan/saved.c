/* saved.c -- see saved.h. */
#include "plan/saved.h"

#include <stdlib.h>

#include "program/ir/cost.h"
#include "program/passes/place.h"

#define MAX_MOMENTS 1024

/* A buffer that a forward node of a layer made for the backward: between two instructions nobody reads it. */
typedef struct {
    int32_t at;        /* instruction */
    int32_t layer;     /* place in the rank's list of layers */
    int32_t node;
    int64_t bytes;     /* more, or less, that wait from here on */
} event;

typedef struct {
    int32_t node, layer;       /* -1: no forward node of a layer made it */
    int32_t micro_batch;
    int32_t last_forward, first_backward;
} made;

static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static int descending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static bool is_of_layer(const orth_instr *n, const orth_saved *s)
{
    return n->block == ORTH_BLOCK_LAYER && n->node >= 0 && n->node < s->num_nodes && n->phase == ORTH_PHASE_FORWARD;
}

static void list_layers(const orth_compile_spec *spec, orth_saved *s)
{
    for (int32_t l = 0; l < spec->num_layers; l++) {
        bool here = !spec->chunks;
        for (int32_t c = 0; c < spec->num_chunks && !here; c++)
            here = l >= spec->chunks[c].first_layer && l < spec->chunks[c].first_layer + spec->chunks[c].num_layers;
        if (here)
            s->layers[s->num_layers++] = l;
    }
}

static int32_t place_of(const orth_saved *s, int32_t layer)
{
    int32_t i = 0;
    while (s->layers[i] != layer)
        i++;
    return i;
}

/* Costs of the first layer and micro-batch, of which the others are like. */
static void add_cost(orth_saved *s, const orth_instr *n)
{
    if (n->layer != s->layers[0] || n->micro_batch != 0)
        return;
    const orth_cost c = orth_instr_cost(n);
    s->cost[n->node].flops += c.hardware_flops;
    s->cost[n->node].moved += c.bytes;
}

/* Who made each transient buffer, and when it is not read. A layer's output is kept for the next one, whose input it is. */
static void find_makers(const orth_program *p, const orth_graph *layer, orth_saved *s, made *m)
{
    const int32_t output = layer->values[layer->output].producer;
    for (int32_t b = 0; b < p->num_buffers; b++)
        m[b] = (made){.node = -1, .last_forward = -1, .first_backward = -1};
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (is_of_layer(n, s))
            add_cost(s, n);
        for (int k = 0; k < orth_instr_num_operands(n); k++) {
            const int32_t b = orth_instr_operand(n, k)->buffer;
            if (b < 0 || p->buffers[b].persistent)
                continue;
            if (k >= n->num_in && is_of_layer(n, s) && n->node != output && m[b].node < 0)
                m[b] = (made){n->node, place_of(s, n->layer), n->micro_batch, i, -1};
            if (n->phase == ORTH_PHASE_FORWARD)
                m[b].last_forward = i;
            else if (m[b].first_backward < 0)
                m[b].first_backward = i;
        }
    }
}

/* Of the layer that keeps the most, as layers below frozen parameters keep less; of the first micro-batch, of which the others are like.
 * sum: room for [num_nodes], 0. */
static void add_kept(const orth_program *p, orth_saved *s, const made *m, int64_t *sum)
{
    for (int32_t b = 0; b < p->num_buffers; b++)
        if (m[b].node >= 0 && m[b].layer == 0 && m[b].micro_batch == 0)
            s->bytes[m[b].node] += orth_round_up((int64_t)p->buffers[b].bytes, ORTH_PLACE_ALIGN);
    for (int32_t l = 0; l < s->num_layers; l++) {
        for (int32_t b = 0; b < p->num_buffers; b++)
            if (m[b].node >= 0 && m[b].layer == l && m[b].micro_batch == 0 && m[b].first_backward >= 0)
                sum[m[b].node] += orth_round_up((int64_t)p->buffers[b].bytes, ORTH_PLACE_ALIGN);
        for (int32_t n = 0; n < s->num_nodes; n++) {
            s->kept[n] = ORTH_MAX(s->kept[n], sum[n]);
            sum[n] = 0;
        }
    }
}

/* Returns how many events there are. */
static int32_t list_events(const orth_program *p, const made *m, event *events)
{
    int32_t n = 0;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        if (m[b].node < 0 || m[b].first_backward < 0)
            continue;
        const int64_t bytes = orth_round_up((int64_t)p->buffers[b].bytes, ORTH_PLACE_ALIGN);
        events[n++] = (event){m[b].last_forward, m[b].layer, m[b].node, bytes};
        events[n++] = (event){m[b].first_backward, m[b].layer, m[b].node, -bytes};
    }
    qsort(events, (size_t)n, sizeof *events, by_time);
    return n;
}

/* The most that lives from one time with events to the next. Returns how many such times there are. */
static int32_t find_peaks(const event *events, int32_t n, const int64_t *live, int32_t num_instrs, int64_t *peaks)
{
    int32_t num = 0, e = 0;
    for (int32_t i = 0; i < num_instrs; i++) {
        if (i == 0 || (e < n && events[e].at == i))
            peaks[num++] = 0;
        while (e < n && events[e].at == i)
            e++;
        peaks[num - 1] = ORTH_MAX(peaks[num - 1], live[i]);
    }
    return num;
}

typedef struct {
    const event *events;
    int32_t num_events;
    const int64_t *peaks;
    int64_t least;             /* peaks below it are left out */
    int32_t num_instrs;
} moments;

static void take_moments(const moments *t, orth_saved *s, int64_t *now)
{
    const int64_t row = (int64_t)s->num_layers * s->num_nodes;
    int32_t e = 0, at = 0;
    for (int32_t i = 0; i < t->num_instrs && s->num_moments < MAX_MOMENTS; i++) {
        if (i > 0 && (e >= t->num_events || t->events[e].at != i))
            continue;
        for (; e < t->num_events && t->events[e].at == i; e++)
            now[t->events[e].layer * s->num_nodes + t->events[e].node] += t->events[e].bytes;
        if (t->peaks[at] >= t->least) {
            memcpy(s->waiting + s->num_moments * row, now, (size_t)row * sizeof *now);
            s->live[s->num_moments++] = t->peaks[at];
        }
        at++;
    }
}

static orth_status allocate(orth_ctx *ctx, orth_arena *arena, const orth_compile_spec *spec, orth_saved *s)
{
    s->num_nodes = spec->layers[0].graph->num_forward;
    s->layers = ORTH_ARENA_ARRAY(ctx, arena, int32_t, spec->num_layers);
    s->cost = ORTH_ARENA_ARRAY(ctx, arena, orth_again_cost, s->num_nodes);
    s->kept = ORTH_ARENA_ARRAY(ctx, arena, int64_t, s->num_nodes);
    s->bytes = ORTH_ARENA_ARRAY(ctx, arena, int64_t, s->num_nodes);
    s->live = ORTH_ARENA_ARRAY(ctx, arena, int64_t, MAX_MOMENTS);
    if (!s->layers || !s->cost || !s->kept || !s->bytes || !s->live)
        return ORTH_ERR_NOMEM;
    list_layers(spec, s);
    s->waiting = ORTH_ARENA_ARRAY(ctx, arena, int64_t, (int64_t)MAX_MOMENTS * s->num_layers * s->num_nodes);
    return s->waiting ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* What is copied from another space comes and goes at other times in another program (lower/far.c). */
static void leave_out_copies(const orth_program *p, int64_t *live)
{
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *x = &p->buffers[b];
        if (x->copy_of == 0 || x->space != p->space || x->alias >= 0)
            continue;
        for (int32_t i = x->first; i >= 0 && i <= x->last; i++)
            live[i] -= orth_round_up((int64_t)x->bytes, ORTH_PLACE_ALIGN);
    }
}

static void find_moments(const orth_program *p, orth_saved *s, const made *m, event *events, int64_t *live, int64_t *peaks,
                         int64_t *now)
{
    add_kept(p, s, m, now);
    const int32_t num_events = list_events(p, m, events);
    orth_place_live(p, p->space, live);
    leave_out_copies(p, live);
    const int32_t n = find_peaks(events, num_events, live, p->num_instrs, peaks);
    moments t = {.events = events, .num_events = num_events, .peaks = peaks, .num_instrs = p->num_instrs};
    if (n > MAX_MOMENTS) {
        int64_t *sorted = live; /* not needed any more, and as long */
        memcpy(sorted, peaks, (size_t)n * sizeof *sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, descending);
        t.least = sorted[MAX_MOMENTS - 1];
    }
    take_moments(&t, s, now);
}

orth_status orth_saved_find(orth_ctx *ctx, orth_arena *arena, const orth_program *p, const orth_compile_spec *spec, orth_saved *out)
{
    *out = (orth_saved){0};
    ORTH_TRY(allocate(ctx, arena, spec, out));
    const int64_t row = (int64_t)out->num_layers * out->num_nodes;
    made *m = ORTH_NEW_ARRAY(ctx, made, p->num_buffers + 1);
    event *events = ORTH_NEW_ARRAY(ctx, event, 2 * (int64_t)p->num_buffers + 1);
    int64_t *live = ORTH_NEW_ARRAY(ctx, int64_t, 2 * (int64_t)p->num_instrs + 2);
    int64_t *now = ORTH_NEW_ARRAY(ctx, int64_t, row + 1);
    const bool enough = m && events && live && now;
    if (enough) {
        find_makers(p, spec->layers[0].graph, out, m);
        find_moments(p, out, m, events, live, live + p->num_instrs + 1, now);
    }
    orth_mem_free(ctx, m);
    orth_mem_free(ctx, events);
    orth_mem_free(ctx, live);
    orth_mem_free(ctx, now);
    return enough ? ORTH_OK : ORTH_ERR_NOMEM;
}
