/* timeline.c -- see timeline.h. */
#include "plan/timeline.h"

#include <math.h>

#include "plan/memory.h"
#include "program/ir/live.h"

enum { ROW_ACTIONS = 0, ROW_COMPUTE = 1, ROW_GROUPS = 2, ROW_QUEUES = ROW_GROUPS + ORTH_NUM_GROUPS };

static const char *const phase_names[ORTH_NUM_PHASES] = {"forward", "backward", "update"};

static void name_rows(orth_ctx *ctx, orth_trace *t, int rank, const char *name, const orth_program *p)
{
    bool used[ORTH_NUM_GROUPS] = {false};
    for (int32_t i = 0; i < p->num_instrs; i++)
        if (orth_op_is_comm(p->instrs[i].op) && p->instrs[i].queue == 0)
            used[p->instrs[i].attr->group] = true;
    orth_trace_group(ctx, t, rank, name);
    orth_trace_row(ctx, t, rank, ROW_ACTIONS, "schedule");
    orth_trace_row(ctx, t, rank, ROW_COMPUTE, "compute");
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (used[g])
            orth_trace_row(ctx, t, rank, ROW_GROUPS + g, orth_group_name((orth_group)g));
    for (int q = 1; q < p->num_queues; q++) {
        char queue[48], beside[64];
        orth_queue_name(&p->queues[q], queue, sizeof queue);
        snprintf(beside, sizeof beside, "beside: %s", queue);
        orth_trace_row(ctx, t, rank, ROW_QUEUES + q, beside);
    }
}

/* "linear L3 mb2" */
static void add_instr(orth_ctx *ctx, orth_trace *t, int rank, const orth_program *p, int32_t i, int64_t begin, int64_t end)
{
    const orth_instr *n = &p->instrs[i];
    const int row = n->queue > 0             ? ROW_QUEUES + n->queue
                    : orth_op_is_comm(n->op) ? ROW_GROUPS + (int)n->attr->group
                                             : ROW_COMPUTE;
    char name[64], detail[96];
    size_t at = (size_t)snprintf(name, sizeof name, "%s", orth_op_name(n->op));
    if (n->layer >= 0)
        at += (size_t)snprintf(name + at, sizeof name - at, " L%d", (int)n->layer);
    if (n->micro_batch >= 0)
        snprintf(name + at, sizeof name - at, " mb%d", (int)n->micro_batch);
    snprintf(detail, sizeof detail, "instruction %d, %s, layer %d, micro-batch %d", (int)i, phase_names[n->phase],
             (int)n->layer, (int)n->micro_batch);
    orth_trace_span(ctx, t, rank, row, name, phase_names[n->phase], begin, end, detail);
}

void orth_timeline_actions(const orth_program *p, const int64_t *clock, int64_t origin, orth_span *spans,
                           int32_t num_actions)
{
    for (int32_t a = 0; a < num_actions; a++)
        spans[a] = (orth_span){0, 0};
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        /* What other queues do may begin before the action, and end after it. */
        const bool message = orth_op_is_comm(n->op) &&
                             (n->attr->group == ORTH_GROUP_PP || n->attr->group == ORTH_GROUP_PP_BACK);
        if (n->action < 0 || n->action >= num_actions || n->queue > 0 || message)
            continue;
        if (spans[n->action].end <= 0)
            spans[n->action].start = 1e-9 * (double)(orth_clock_begin(clock, i) - origin);
        spans[n->action].end = 1e-9 * (double)(orth_clock_end(clock, i) - origin);
    }
}

/* "F3", "B0" */
static void add_action(orth_ctx *ctx, orth_trace *t, int rank, const orth_action_list *list, int32_t a,
                       const orth_span *span)
{
    const orth_action *x = &list->actions[a];
    char name[32], detail[96];
    if (span->end <= span->start)
        return;
    snprintf(name, sizeof name, "%c%d", orth_action_letter(x->kind), (int)x->micro_batch);
    snprintf(detail, sizeof detail, "action %d: %s of micro-batch %d on chunk %d", (int)a, orth_action_name(x->kind),
             (int)x->micro_batch, (int)x->chunk);
    orth_trace_span(ctx, t, rank, ROW_ACTIONS, name, orth_action_name(x->kind), llround(1e9 * span->start),
                    llround(1e9 * span->end), detail);
}

/* "device memory": bytes of each class, persistent ones included, whenever they change. */
static void add_memory(orth_ctx *ctx, orth_trace *t, int rank, const orth_program *p, bool on_devices, orth_space space, const int64_t *clock, int64_t origin)
{
    const char *series[ORTH_NUM_CLASSES];
    char name[32];
    int64_t now[ORTH_NUM_CLASSES], before[ORTH_NUM_CLASSES] = {-1};
    orth_live_bytes *live;
    if (orth_live_over_step(ctx, p, space, &live) != ORTH_OK) {
        t->text.failed = true;
        return;
    }
    snprintf(name, sizeof name, "%s memory", orth_memory_space_name(space, p->space, on_devices));
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        series[c] = orth_class_name((orth_class)c);
    for (int32_t i = 0; i < p->num_instrs; i++) {
        for (int c = 0; c < ORTH_NUM_CLASSES; c++)
            now[c] = (int64_t)(p->persistent_bytes[space][c] + live[i].of[c]);
        if (memcmp(now, before, sizeof now) != 0)
            orth_trace_counter(ctx, t, rank, name, orth_clock_begin(clock, i) - origin, ORTH_NUM_CLASSES, series, now);
        memcpy(before, now, sizeof now);
    }
    orth_mem_free(ctx, live);
}

void orth_timeline_add(orth_ctx *ctx, orth_trace *t, int rank, const char *name, const orth_program *p, bool on_devices,
                       const orth_action_list *list, const orth_span *spans, const int64_t *clock, int64_t origin)
{
    name_rows(ctx, t, rank, name, p);
    for (int32_t a = 0; a < list->num_actions; a++)
        add_action(ctx, t, rank, list, a, &spans[a]);
    int64_t done[ORTH_MAX_QUEUES] = {0}; /* a queue does one after the other */
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const int32_t q = p->instrs[i].queue;
        const int64_t begin = ORTH_MAX(orth_clock_begin(clock, i) - origin, done[q]);
        done[q] = ORTH_MAX(orth_clock_end(clock, i) - origin, begin);
        add_instr(ctx, t, rank, p, i, begin, done[q]);
    }
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        if (p->space_bytes[s] > 0)
            add_memory(ctx, t, rank, p, on_devices, (orth_space)s, clock, origin);
}

orth_status orth_timeline_bubble(orth_ctx *ctx, const orth_schedule *s, const orth_span *const *spans, orth_bubble *out)
{
    orth_arena arena = {0};
    double **durations = ORTH_ARENA_ARRAY(ctx, &arena, double *, s->num_ranks);
    double first = INFINITY, last = 0, busy = 0;
    orth_sim sim;
    orth_status status = durations ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int r = 0; status == ORTH_OK && r < s->num_ranks; r++) {
        const int32_t n = s->lists[r].num_actions;
        durations[r] = ORTH_ARENA_ARRAY(ctx, &arena, double, n);
        status = durations[r] ? ORTH_OK : ORTH_ERR_NOMEM;
        for (int32_t a = 0; status == ORTH_OK && a < n; a++) {
            durations[r][a] = spans[r][a].end - spans[r][a].start;
            busy += durations[r][a];
            if (spans[r][a].end > 0) {
                first = fmin(first, spans[r][a].start);
                last = fmax(last, spans[r][a].end);
            }
        }
    }
    if (status == ORTH_OK)
        status = orth_schedule_replay(ctx, &arena, s, (const double *const *)durations, &sim);
    if (status == ORTH_OK) {
        out->seconds = last - first;
        out->idle_share = last > first ? 1 - busy / s->num_ranks / (last - first) : 0;
        out->replayed = sim.idle_share;
    }
    orth_arena_release(ctx, &arena);
    return status;
}
