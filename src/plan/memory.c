/* memory.c -- see memory.h. */
#include "plan/memory.h"

const char *orth_outside_name(orth_outside_kind k)
{
    static const char *const names[ORTH_NUM_OUTSIDE] = {"comm_scratch", "loader", "file_buffers", "stacks"};
    return names[k];
}

void orth_outside_json(orth_json_out *j, const char *key, const orth_outside *o)
{
    orth_json_open(j, key, '{');
    for (int k = 0; k < ORTH_NUM_OUTSIDE; k++)
        orth_json_print(j, orth_outside_name((orth_outside_kind)k), "%zu", o->of[k]);
    orth_json_close(j, '}');
}

const char *orth_memory_space_name(orth_space s, orth_space kernels, bool on_devices)
{
    return orth_space_name(on_devices && s == kernels ? ORTH_SPACE_DEVICE : s);
}

void orth_arenas_json(orth_json_out *j, const char *key, const orth_arena_use a[ORTH_NUM_SPACES], bool on_devices)
{
    const orth_space kernels = a[ORTH_SPACE_DEVICE].reserved > 0 ? ORTH_SPACE_DEVICE : ORTH_SPACE_HOST;
    orth_json_open(j, key, '{');
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        if (a[s].reserved == 0)
            continue;
        orth_json_open(j, orth_memory_space_name((orth_space)s, kernels, on_devices), '{');
        orth_json_print(j, "between_steps", "%zu", a[s].between_steps);
        orth_json_print(j, "peak", "%zu", a[s].peak);
        orth_json_print(j, "reserved", "%zu", a[s].reserved);
        orth_json_close(j, '}');
    }
    orth_json_close(j, '}');
}

size_t orth_memory_of_class(const orth_memory *m, orth_class c)
{
    size_t sum = 0;
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        sum += m->of[s][c];
    return sum;
}

size_t orth_memory_of_space(const orth_memory *m, orth_space s)
{
    size_t sum = 0;
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        sum += m->of[s][c];
    return sum;
}

orth_space orth_memory_of_kernels(const orth_memory *m)
{
    return orth_memory_of_space(m, ORTH_SPACE_DEVICE) > 0 ? ORTH_SPACE_DEVICE : ORTH_SPACE_HOST;
}

/* "params": ..., "total": ... */
static void add_classes(orth_json_out *j, const size_t bytes[ORTH_NUM_CLASSES])
{
    size_t total = 0;
    for (int c = 0; c < ORTH_NUM_CLASSES; c++) {
        orth_json_print(j, orth_class_name((orth_class)c), "%zu", bytes[c]);
        total += bytes[c];
    }
    orth_json_print(j, "total", "%zu", total);
}

void orth_memory_json(orth_json_out *j, const char *key, const orth_memory *m, bool on_devices)
{
    size_t sums[ORTH_NUM_CLASSES];
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        sums[c] = orth_memory_of_class(m, (orth_class)c);
    orth_json_open(j, key, '{');
    add_classes(j, sums);
    orth_json_open(j, "spaces", '{');
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        if (orth_memory_of_space(m, (orth_space)s) == 0)
            continue;
        orth_json_open(j, orth_memory_space_name((orth_space)s, orth_memory_of_kernels(m), on_devices), '{');
        add_classes(j, m->of[s]);
        orth_json_close(j, '}');
    }
    orth_json_close(j, '}');
    orth_json_close(j, '}');
}

void orth_memory_add_rows(orth_ctx *ctx, orth_text *out, const orth_memory *m, const char *whose)
{
    int used = 0;
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        used += orth_memory_of_space(m, (orth_space)s) > 0;
    for (int s = 0; s < ORTH_NUM_SPACES; s++) {
        const size_t total = orth_memory_of_space(m, (orth_space)s);
        if (total == 0)
            continue;
        orth_text_addf(ctx, out, "memory of %s%s%s\n", whose, used > 1 ? ", space " : "", used > 1 ? orth_space_name((orth_space)s) : "");
        for (int c = 0; c < ORTH_NUM_CLASSES; c++)
            orth_text_addf(ctx, out, "  %-12s %14zu B %9.3f GiB\n", orth_class_name((orth_class)c), m->of[s][c], (double)m->of[s][c] / 0x1p30);
        if (used > 1)
            orth_text_addf(ctx, out, "  %-12s %14zu B %9.3f GiB\n", "its total", total, (double)total / 0x1p30);
    }
}
