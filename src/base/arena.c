/* arena.c -- see arena.h. */
#include "base/arena.h"

#define FIRST_BYTES ((size_t)8 << 10) /* of the first chunk; each next one has twice as much: chunks are cleared, and most arenas are small */
#define MOST_BYTES ((size_t)256 << 10)
#define ALIGN 64

struct orth_arena_chunk {
    orth_arena_chunk *next;
    size_t used, size;
    _Alignas(ALIGN) char data[];
};

void *orth_arena_alloc(orth_ctx *ctx, orth_arena *a, size_t num_bytes)
{
    size_t need = (num_bytes + ALIGN - 1) / ALIGN * ALIGN;
    orth_arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < need) {
        size_t size = ORTH_MAX(need, c ? ORTH_MIN(2 * c->size, MOST_BYTES) : FIRST_BYTES);
        c = orth_mem_alloc(ctx, sizeof *c + size);
        if (!c)
            return NULL;
        c->size = size;
        c->next = a->chunks;
        a->chunks = c;
    }
    void *p = c->data + c->used;
    c->used += need;
    return p;
}

char *orth_arena_printf(orth_ctx *ctx, orth_arena *a, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *text = orth_arena_alloc(ctx, a, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

void orth_arena_release(orth_ctx *ctx, orth_arena *a)
{
    for (orth_arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        orth_mem_free(ctx, c);
    }
    a->chunks = NULL;
}
