/* rank_memory.c -- memory.json: what a rank has used, counted in four ways, beside what was planned (docs/formats/run.md). */
#include "train/rank.h"

#include <inttypes.h>

#include "base/files.h"
#include "base/pages.h"
#include "base/pool.h"

/* What a rank hands in. */
typedef struct {
    orth_memory counted;                 /* bytes that instructions were given */
    size_t given[ORTH_NUM_SPACES];       /* bytes of the pages in which they lie */
    size_t touched[ORTH_NUM_SPACES];     /* bytes of the pages of the arena that are in memory */
    size_t mapped[ORTH_NUM_SPACES];
    orth_arena_use arenas[ORTH_NUM_SPACES];
    orth_outside outside;
    orth_file_use file;
    size_t heap_peak, process_heap_peak, resident_peak;
} used;

static orth_status count_arenas(orth_ctx *ctx, const rank_state *s, used *u)
{
    const orth_executor *e = s->trainer.executor;
    size_t above[ORTH_NUM_SPACES] = {0};
    orth_counted counted;
    ORTH_TRY(orth_executor_counted(ctx, e, &counted));
    if (s->has_evaluator)
        ORTH_TRY(orth_executor_counted_above(ctx, s->evaluator.executor, above));
    memcpy(u->counted.of, counted.bytes, sizeof u->counted.of);
    for (int k = 0; k < ORTH_NUM_SPACES; k++) {
        u->counted.of[k][ORTH_CLASS_ACTIVATIONS] += above[k];
        u->given[k] = counted.pages[k];
        u->touched[k] = orth_executor_touched_bytes(e, (orth_space)k);
        u->mapped[k] = orth_executor_mapped_bytes(e, (orth_space)k);
        u->arenas[k] = (orth_arena_use){counted.persistent[k], counted.peak[k], u->mapped[k]};
    }
    u->counted.of[ORTH_SPACE_HOST][ORTH_CLASS_WORKSPACE] += s->saver ? orth_saver_counted(s->saver) : 0;
    return ORTH_OK;
}

static void count_outside(const orth_ctx *ctx, const rank_state *s, used *u)
{
    const orth_ctx *process = s->run->plan.programs.ctx;
    u->outside.of[ORTH_OUTSIDE_COMM_SCRATCH] = orth_comm_scratch_bytes(s->all);
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        u->outside.of[ORTH_OUTSIDE_COMM_SCRATCH] += orth_comm_scratch_bytes(s->comms[g]);
    u->file = orth_executor_file_use(s->trainer.executor);
    u->outside.of[ORTH_OUTSIDE_FILE_BUFFERS] = u->file.room;
    u->outside.of[ORTH_OUTSIDE_LOADER] = (size_t)orth_loader_counted(s->loader);
    u->outside.of[ORTH_OUTSIDE_STACKS] = orth_pool_stack_bytes(ctx->pool) + orth_pages_stack_bytes(orth_loader_thread(s->loader));
    u->heap_peak = (size_t)atomic_load(&ctx->heap_peak);
    u->process_heap_peak = (size_t)atomic_load(&process->heap_peak);
    u->resident_peak = orth_pages_resident_peak_bytes();
}

static void add_pages(orth_json_out *j, const used *u)
{
    orth_json_open(j, "pages", '{');
    for (int k = 0; k < ORTH_NUM_SPACES; k++) {
        if (u->mapped[k] == 0)
            continue;
        orth_json_open(j, orth_space_name((orth_space)k), '{');
        orth_json_print(j, "mapped", "%zu", u->mapped[k]);
        orth_json_print(j, "given", "%zu", u->given[k]);
        orth_json_print(j, "touched", "%zu", u->touched[k]);
        orth_json_close(j, '}');
    }
    orth_json_close(j, '}');
}

static void add_outside(orth_json_out *j, const orth_outside *planned, const orth_outside *counted)
{
    orth_json_open(j, "outside", '{');
    for (int k = 0; k < ORTH_NUM_OUTSIDE; k++) {
        orth_json_open(j, orth_outside_name((orth_outside_kind)k), '{');
        orth_json_print(j, "planned", "%zu", planned->of[k]);
        orth_json_print(j, "counted", "%zu", counted->of[k]);
        orth_json_close(j, '}');
    }
    orth_json_close(j, '}');
}

static void add_rank(orth_json_out *j, int rank, const orth_plan *planned, const used *u)
{
    orth_json_open(j, NULL, '{');
    orth_json_print(j, "rank", "%d", rank);
    orth_memory_json(j, "planned", &planned->memory, false);
    orth_memory_json(j, "memory", &u->counted, false);
    orth_arenas_json(j, "arenas", u->arenas, false);
    add_pages(j, u);
    add_outside(j, &planned->outside, &u->outside);
    if (u->mapped[ORTH_SPACE_FILE] > 0) {
        orth_json_open(j, "file_moved", '{');
        orth_json_print(j, "read", "%" PRId64, u->file.read);
        orth_json_print(j, "written", "%" PRId64, u->file.written);
        orth_json_close(j, '}');
    }
    orth_json_print(j, "heap_peak", "%zu", u->heap_peak);
    orth_json_open(j, "process", '{');
    orth_json_print(j, "heap_peak", "%zu", u->process_heap_peak);
    orth_json_print(j, "resident_peak", "%zu", u->resident_peak);
    orth_json_close(j, '}');
    orth_json_close(j, '}');
}

static orth_status write_all(orth_ctx *ctx, const orth_run *r, const used *all)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    ORTH_TRY(orth_folder_require(ctx, &r->folder));
    orth_json_open(&j, NULL, '{');
    orth_json_print(&j, "page_bytes", "%zu", orth_pages_size());
    orth_json_open(&j, "ranks", '[');
    for (int k = 0; k < r->num_ranks; k++)
        add_rank(&j, k, &r->plan.ranks[k], &all[k]);
    orth_json_close(&j, ']');
    orth_json_print(&j, "live_at_peak", "%s", r->plan.peaks);
    orth_json_close(&j, '}');
    orth_text_add(ctx, &text, "\n");
    char *json = orth_text_take(ctx, &text), *path = orth_path_join(ctx, r->dir, "memory.json");
    const orth_status status = json && path ? orth_file_write(ctx, path, json, strlen(json)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, json);
    orth_mem_free(ctx, path);
    return status;
}

orth_status rank_write_memory(orth_ctx *ctx, rank_state *s)
{
    used mine = {.given = {0}}, *all = orth_mem_alloc(ctx, (size_t)s->run->num_ranks * sizeof mine);
    orth_status status = all ? count_arenas(ctx, s, &mine) : ORTH_ERR_NOMEM;
    orth_progress_part(ctx);
    if (status == ORTH_OK) {
        count_outside(ctx, s, &mine);
        all[0] = mine;
        status = s->all ? orth_all_gather(ctx, s->all, all, &mine, sizeof mine, NULL, ORTH_U8) : ORTH_OK;
    }
    orth_phase_begin(ctx, "writing memory.json");
    if (status == ORTH_OK && s->rank == 0)
        status = write_all(ctx, s->run, all);
    orth_phase_end(ctx);
    orth_mem_free(ctx, all);
    return status;
}
