/* fuzz_schedule.c -- schedules as text: any bytes give a schedule or an error with a message, and what was
 * accepted can be simulated, and reads back from its own text. */
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/draw.h"
#include "../schedule_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void use(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s)
{
    orth_schedule again;
    orth_sim sim;
    orth_text text = {0};
    orth_chunk_times *t = ORTH_ARENA_ARRAY(ctx, arena, orth_chunk_times, s->num_chunks);
    for (int c = 0; c < s->num_chunks; c++)
        t[c] = (orth_chunk_times){{1, 2, 1, 1}, 0.5, 0.5};
    require(orth_schedule_simulate(ctx, arena, s, t, &sim) == ORTH_OK);
    orth_schedule_draw(ctx, &text, s, &sim, 0, 20);
    orth_schedule_report(ctx, &text, s, &sim);
    orth_mem_free(ctx, text.s);
    const char *written = schedule_text(ctx, arena, s);
    require(orth_schedule_parse(ctx, arena, &again, "again", written, strlen(written), s->num_ranks, 0,
                                s->num_micro_batches) == ORTH_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx ctx;
    orth_arena arena = {0};
    orth_schedule s;
    memset(&ctx, 0, sizeof ctx); /* no pool: nothing here computes */
    const orth_status status = orth_schedule_parse(&ctx, &arena, &s, "fuzz", (const char *)data, size, 0, 0, 0);
    require((status == ORTH_OK) == (ctx.error.message[0] == '\0'));
    if (status == ORTH_OK)
        use(&ctx, &arena, &s);
    orth_arena_release(&ctx, &arena);
    require(ctx.heap_bytes == 0);
    return 0;
}
