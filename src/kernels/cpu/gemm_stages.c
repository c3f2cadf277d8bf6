/* gemm_stages.c -- products whose A is packed: B is packed for all threads, stage by stage, or was beforehand.
 *
 * The tasks of all stages (gemm_plan.c) form one list, drawn in order by one counter:
 *
 *   pack 0 | half of compute 0 | pack 1 | other half | half of compute 1 | pack 2 | ... | help
 *
 * A computing task is drawn in parts by the thread that has it, and at the end by all. A task may have
 * to wait for others (a stage computes when it is packed; a slot is packed anew when the stage that used
 * it is done), but only for tasks earlier in the list. Those are running or done, so there is no deadlock
 * for any number of threads, and since they were drawn long ago waiting is rare: no barriers, and no
 * thread idles while another finishes a stage.
 */
#include "base/pool.h"
#include "kernels/cpu/gemm_work.h"

static char *packed_b(const orth_gemm_run *run, int64_t stage_index)
{
    const orth_gemm_plan *p = &run->plan;
    return run->workspace + p->b_at + p->b_slot_bytes * (size_t)(stage_index % p->b_slots);
}

/* The stage that packs what a stage computes with: with one slot all use what the first has packed. */
static int64_t packing_stage(const orth_gemm_plan *p, int64_t stage_index)
{
    return p->b_slots > 1 ? stage_index : 0;
}

static void pack_task(orth_gemm_run *run, int64_t stage_index, int64_t i)
{
    const orth_gemm_plan *p = &run->plan;
    const orth_gemm_stage s = orth_gemm_stage_at(p, stage_index);
    const int64_t groups = orth_div_up(p->n_chunk, p->b_group), group = i % groups, run_of_blocks = i / groups;
    const int64_t first = s.k * p->stage_blocks, begin = run_of_blocks * p->b_blocks;
    const int64_t end = ORTH_MIN(begin + p->b_blocks, ORTH_MIN(p->stage_blocks, p->num_blocks - first));
    if (packing_stage(p, stage_index) != stage_index)
        return;
    /* The slot was last used two stages ago. */
    for (int64_t q = 0; q + 2 <= s.index; q++)
        orth_gemm_wait_until(&run->computed[q], (int32_t)(p->num_tasks * p->num_parts));
    const int64_t block_bytes = (int64_t)orth_gemm_panel_b_bytes(p) * p->n_chunk;
    const orth_gemm_operand o = orth_gemm_operand_b(p, packed_b(run, s.index) + begin * block_bytes, s.n * p->n_chunk,
                                                    p->n_chunk);
    orth_gemm_pack(p, &o, group * p->b_group, (group + 1) * p->b_group, first + begin, first + end);
    orth_gemm_count_up(&run->packed[s.index]);
}

/* What one computing task works on: panels [i, i + num_i) x [j, j + num_j) of the stage. */
typedef struct {
    orth_gemm_stage stage;
    int64_t place;                  /* number of the task within its stage */
    int64_t i, num_i, j, num_j;
    int64_t block, num_blocks;      /* of K */
    char *a;                        /* its rows, packed by this worker */
    const char *b;                  /* the stage, packed */
    int64_t b_panels;               /* from block to block */
    orth_gemm_sums sums;            /* of its first column; of each column anew, if not kept from stage to stage */
} stage_task;

static stage_task task_at(orth_gemm_run *run, int64_t task, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    const int64_t place = task % p->num_tasks;
    stage_task t = {.stage = orth_gemm_stage_at(p, task / p->num_tasks), .place = place};
    t.i = place % p->m_tasks * p->m_task;
    t.j = place / p->m_tasks * p->n_task;
    t.num_i = ORTH_MIN(p->m_task, p->m_chunk - t.i);
    t.num_j = ORTH_MIN(p->n_task, p->n_chunk - t.j);
    t.block = t.stage.k * p->stage_blocks;
    t.num_blocks = ORTH_MIN(p->stage_blocks, p->num_blocks - t.block);
    t.a = run->workspace + p->a_at + p->a_slot_bytes * (size_t)worker;
    t.b = p->g->b_packed ? orth_gemm_packed_at(p, t.block, t.stage.n * p->n_chunk) : packed_b(run, t.stage.index);
    t.b_panels = p->g->b_packed ? p->n_panels : p->n_chunk;
    t.sums = orth_gemm_sums_at(run, worker, p->k_stages > 1 ? place : worker);
    return t;
}

/* What a block asks for: kernels that ask on their way do it during all blocks, for their own epilogue and the sums
 * of the next column; others before each tile, for its epilogue and the sums of the next tile. */
static void expect(const orth_gemm_plan *p, const stage_task *t, int64_t block, orth_gemm_column *c,
                   orth_gemm_prefetch prefetches[ORTH_GEMM_MAX_PREFETCHES])
{
    const bool on_the_way = p->kernels->prefetches, ends_here = t->block + t->num_blocks == p->num_blocks;
    const int64_t tiles = !on_the_way ? 1 : p->k_stages > 1 ? t->num_i : 0;
    const float *kept = tiles ? c->sums.kept + p->tile_kept_bytes / 4 * (size_t)tiles : NULL;
    c->num_prefetches = orth_gemm_prefetches(p, c->m_panel * p->kernels->mr, c->n_panel, on_the_way ? ends_here : c->is_last,
                                     kept, prefetches);
    c->turn = on_the_way ? block : 0;
    c->turns = on_the_way ? t->num_blocks : 1;
}

/* One panel of columns, all rows of the task: block after block, so that a block of the panel stays in L1. */
static void compute_column(const orth_gemm_plan *p, const stage_task *t, int64_t j)
{
    const int64_t panel_a = 4 * p->block_rows * p->kernels->mr, panel_b = (int64_t)orth_gemm_panel_b_bytes(p);
    orth_gemm_prefetch prefetches[ORTH_GEMM_MAX_PREFETCHES];
    orth_gemm_column column = {.m_panel = t->stage.m * p->m_chunk + t->i, .num_m = t->num_i,
                               .n_panel = t->stage.n * p->n_chunk + j, .sums = t->sums,
                               .prefetches = prefetches};
    if (p->k_stages > 1)
        column.sums.kept += p->tile_kept_bytes / 4 * (size_t)(t->num_i * (j - t->j));
    /* While a panel of B is used, the rows of A take turns in asking for the next one: 2 of its rows a line. */
    const int64_t share = orth_div_up(8 * p->kernels->nr, t->num_i);
    column.ahead_step = p->block_rows / 2 * share;
    for (int64_t i = 0; i < t->num_blocks; i++) {
        orth_gemm_block block;
        orth_gemm_block_at(p, t->block + i, &block);
        column.block = &block;
        column.is_last = t->block + i == p->num_blocks - 1;
        column.a = t->a + panel_a * t->num_i * i;
        column.b = t->b + panel_b * (i * t->b_panels + j);
        const char *next = i + 1 < t->num_blocks ? column.b + panel_b * t->b_panels : t->b + panel_b * (j + 1);
        column.ahead = (orth_gemm_ahead){next, share, 8 * share};
        expect(p, t, i, &column, prefetches);
        orth_gemm_column_run(p, &column);
    }
}

/* Draws parts of a task, after `part`, until none is left. */
static void compute_parts(orth_gemm_run *run, int64_t task, int64_t part, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    const stage_task t = task_at(run, task, worker);
    orth_gemm_wait_until(&run->packed[packing_stage(p, t.stage.index)], (int32_t)p->num_packs);
    if (p->k_stages > 1)
        orth_gemm_wait_until(&run->progress[t.place], (int32_t)(t.stage.index * p->num_parts));
    const orth_gemm_operand o = orth_gemm_operand_a(p, t.a, t.stage.m * p->m_chunk + t.i, t.num_i);
    orth_gemm_pack(p, &o, 0, t.num_i, t.block, t.block + t.num_blocks);
    for (; part < p->num_parts; part = orth_gemm_draw_part(run, task)) {
        const int64_t begin = orth_gemm_part_at(p, task, part) * p->n_part;
        const int64_t end = ORTH_MIN(t.num_j, begin + p->n_part);
        for (int64_t j = begin; j < end; j++)
            compute_column(p, &t, t.j + j);
        if (p->k_stages > 1)
            orth_gemm_count_up(&run->progress[t.place]);
        orth_gemm_count_up(&run->computed[t.stage.index]);
    }
}

static void compute_task(orth_gemm_run *run, int64_t task, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    const int64_t part = orth_gemm_draw_part(run, task);
    if (part == p->num_parts)
        return;
    if (p->kernels->enter)
        p->kernels->enter();
    compute_parts(run, task, part, worker);
    if (p->kernels->leave)
        p->kernels->leave();
}

/* Task `index` of the list at the top of the file. */
static void list_task(void *arg, int64_t index, int worker)
{
    orth_gemm_run *run = arg;
    const orth_gemm_plan *p = &run->plan;
    if (index < p->num_packs) {
        pack_task(run, 0, index);
        return;
    }
    const int64_t per_stage = p->num_packs + p->num_tasks, half = p->num_tasks / 2;
    const int64_t stage = (index - p->num_packs) / per_stage, i = (index - p->num_packs) % per_stage;
    if (stage >= p->num_stages)
        orth_gemm_help(run, compute_task, worker);
    else if (i < half || i >= half + p->num_packs)
        compute_task(run, stage * p->num_tasks + (i < half ? i : i - p->num_packs), worker);
    else if (stage + 1 < p->num_stages)
        pack_task(run, stage + 1, i - half);
}

void orth_gemm_run_stages(orth_ctx *ctx, orth_gemm_run *run)
{
    const orth_gemm_plan *p = &run->plan;
    const int64_t stages = p->num_stages * (p->num_packs + p->num_tasks);
    orth_pool_run(ctx->pool, p->num_packs + stages + p->num_threads, list_task, run);
}
