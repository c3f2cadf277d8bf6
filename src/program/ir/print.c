/* print.c -- see print.h. */
#include "program/ir/print.h"

#include <inttypes.h>

#include "program/ir/live.h"

static void print_operand(FILE *out, const orth_program *p, const orth_operand *o, bool with_type)
{
    if (o->buffer < 0) {
        fprintf(out, "-");
        return;
    }
    fprintf(out, "%s", p->buffers[o->buffer].name);
    if (o->byte_offset > 0)
        fprintf(out, "+%zu", o->byte_offset / orth_dtype_bytes(o->dtype));
    fprintf(out, "[");
    for (int i = 0; i < o->num_dims; i++)
        fprintf(out, "%s%" PRId64, i ? "," : "", o->dim[i]);
    fprintf(out, "]");
    if (with_type)
        fprintf(out, "%s", orth_dtype_name(o->dtype));
}

static void print_attr(FILE *out, const orth_instr *n)
{
    static const char *const acts[] = {"", " gelu_tanh", " gelu", " silu"};
    int64_t leaves = orth_split_leaves(&n->attr->split);
    bool product = orth_op_family_of(n->op) == ORTH_OPS_PRODUCT;
    if (product && leaves > 1)
        fprintf(out, " parts=%" PRId64, leaves);
    if (product)
        fprintf(out, "%s", acts[n->attr->act]);
    if (product && n->attr->recipe != ORTH_RECIPE_none)
        fprintf(out, " %s", orth_recipe_of(n->attr->recipe)->name);
    if (n->attr->num_addends > 0)
        fprintf(out, " addends=%d", n->attr->num_addends);
    if (orth_op_is_comm(n->op))
        fprintf(out, " %s", orth_group_name(n->attr->group));
}

static void print_place(FILE *out, const orth_instr *n)
{
    if (n->micro_batch >= 0)
        fprintf(out, "mb%-3d ", n->micro_batch);
    else
        fprintf(out, "      ");
    fprintf(out, n->layer >= 0 ? "L%-3d " : "     ", n->layer);
}

/* "  in dp", "  after compute 17, pp to 1 3" */
static void print_events(FILE *out, const orth_program *p, const orth_instr *n)
{
    char name[48];
    if (n->queue > 0) {
        orth_queue_name(&p->queues[n->queue], name, sizeof name);
        fprintf(out, "  in %s", name);
    }
    for (int k = 0; k < n->num_waits; k++) {
        orth_queue_name(&p->queues[n->waits[k].queue], name, sizeof name);
        fprintf(out, "%s %s %d", k ? "," : "  after", name, (int)n->waits[k].count);
    }
}

static void print_instr(FILE *out, const orth_program *p, int32_t i)
{
    static const char phases[] = {'F', 'B', 'U'};
    const orth_instr *n = &p->instrs[i];
    fprintf(out, "%6d %c ", i, phases[n->phase]);
    print_place(out, n);
    bool first = true;
    for (int k = 0; k < n->num_out; k++) {
        if (n->out[k].buffer < 0)
            continue;
        fprintf(out, "%s", first ? "" : ", ");
        print_operand(out, p, &n->out[k], true);
        first = false;
    }
    fprintf(out, " = %s(", orth_op_name(n->op));
    for (int k = 0; k < n->num_in; k++) {
        fprintf(out, "%s", k ? ", " : "");
        print_operand(out, p, &n->in[k], false);
    }
    fprintf(out, ")");
    print_attr(out, n);
    if (n->num_out > 0 && n->out[0].buffer >= 0) {
        const orth_buffer *b = &p->buffers[n->out[0].buffer];
        fprintf(out, "  %s@%zu", b->space == ORTH_SPACE_HOST ? "" : orth_space_name(b->space), orth_buffer_begin(p, b) + n->out[0].byte_offset);
    }
    print_events(out, p, n);
    fprintf(out, "\n");
}

void orth_print_program(FILE *out, const orth_program *p, int32_t layer, int32_t micro_batch)
{
    fprintf(out, "# number phase(F forward, B backward, U update) micro-batch layer  outputs = op(inputs) @arena offset  in queue  "
                 "after so many instructions of other queues\n");
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if ((layer != ORTH_PRINT_ALL && n->layer != layer) ||
            (micro_batch != ORTH_PRINT_ALL && n->micro_batch != micro_batch))
            continue;
        print_instr(out, p, i);
    }
}

static bool is_counted(const orth_buffer *b, orth_space space)
{
    return !b->persistent && b->space == space && b->alias < 0 && b->first >= 0;
}

/* The largest transient buffer of a space that lives while instruction `at` runs. */
static const char *largest_at(const orth_program *p, orth_space space, int32_t at)
{
    const orth_buffer *largest = NULL;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        if (is_counted(buf, space) && buf->first <= at && buf->last >= at && buf->bytes > (largest ? largest->bytes : 0))
            largest = buf;
    }
    return largest ? largest->name : "";
}

#define BAR_WIDTH 48

static orth_status print_space(FILE *out, const orth_program *p, orth_space space, int rows)
{
    const double mib = 1 << 20;
    const double height = (double)p->transient_bytes[space];
    fprintf(out, "%s arena: %.2f MiB\n", orth_space_name(space), (double)p->space_bytes[space] / mib);
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        fprintf(out, "  %-12s %12.2f MiB\n", orth_class_name((orth_class)c), (double)p->class_bytes[space][c] / mib);
    fprintf(out, "  of these %.2f MiB are the region of transient buffers, at offset %zu; when most of it is in use, it holds\n",
            height / mib, p->transient_offset[space]);
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        if (p->transient_class[space][c] > 0)
            fprintf(out, "  %-12s %12.2f MiB\n", orth_class_name((orth_class)c), (double)p->transient_class[space][c] / mib);
    fputc('\n', out);
    orth_live_bytes *live;
    ORTH_TRY(orth_live_over_step(p->ctx, p, space, &live));
    const int32_t stride = ORTH_MAX(1, p->num_instrs / ORTH_MAX(rows, 1));
    for (int32_t i = 0; i < p->num_instrs; i += stride) {
        int32_t at = i;
        for (int32_t k = i; k < ORTH_MIN(i + stride, p->num_instrs); k++)
            at = orth_live_sum(&live[k]) >= orth_live_sum(&live[at]) ? k : at;
        const orth_instr *n = &p->instrs[at];
        const double most = (double)orth_live_sum(&live[at]);
        const int bar = height > 0 ? (int)(most / height * BAR_WIDTH + 0.5) : 0;
        fprintf(out, "%6d %-18s ", at, orth_op_name(n->op));
        print_place(out, n);
        fputc('|', out);
        for (int k = 0; k < BAR_WIDTH; k++)
            fputc(k < bar ? '#' : ' ', out);
        fprintf(out, "| %9.2f MiB  %s\n", most / mib, largest_at(p, space, at));
    }
    orth_mem_free(p->ctx, live);
    return ORTH_OK;
}

orth_status orth_print_memory(FILE *out, const orth_program *p, int rows)
{
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        if (p->space_bytes[s] > 0)
            ORTH_TRY(print_space(out, p, (orth_space)s, rows));
    return ORTH_OK;
}
