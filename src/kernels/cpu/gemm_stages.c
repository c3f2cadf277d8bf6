/* gemm_stages.c -- products whose A is packed: B is packed for all threads, stage by stage.
 *
 * The tasks of all stages (gemm_plan.c) form one list, drawn in order by one counter:
 *
 *   pack 0 | half of compute 0 | pack 1 | other half | half of compute 1 | pack 2 | ...
 *
 * A task may have to wait for others (a stage computes when it is packed; a slot is packed anew when
 * the stage that used it is done), but only for tasks earlier in the list. Those are running or done,
 * so there is no deadlock for any number of threads, and since they were drawn long ago waiting is
 * rare: no barriers, and no thread idles while another finishes a stage.
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
    const int64_t block = s.k * p->stage_blocks, block_end = ORTH_MIN(block + p->stage_blocks, p->num_blocks);
    if (packing_stage(p, stage_index) != stage_index)
        return;
    /* The slot was last used two stages ago. */
    for (int64_t q = 0; q + 2 <= s.index; q++)
        orth_gemm_wait_until(&run->computed[q], (int32_t)p->num_tasks);
    const orth_gemm_operand o = orth_gemm_operand_b(p, packed_b(run, s.index), s.n * p->n_chunk, p->n_chunk);
    orth_gemm_pack(p, &o, i * p->b_group, (i + 1) * p->b_group, block, block_end);
    orth_gemm_count_up(&run->packed[s.index]);
}

/* What one computing task works on: panels [i, i + num_i) x [j, j + num_j) of the stage. */
typedef struct {
    orth_gemm_stage stage;
    int64_t i, num_i, j, num_j;
    char *a;                        /* one block of its rows, packed */
    const char *b;                  /* the stage, packed */
    orth_gemm_sums sums;
} stage_task;

static void compute_block(const orth_gemm_plan *p, const stage_task *t, int64_t index)
{
    const orth_gemm_stage *s = &t->stage;
    const int64_t local = index - s->k * p->stage_blocks, first = s->m * p->m_chunk + t->i;
    const int64_t panel_bytes = 4 * p->block_rows * p->kernels->nr;
    const orth_gemm_operand o = orth_gemm_operand_a(p, t->a, first, t->num_i);
    const orth_gemm_block block = orth_gemm_block_at(p, index);
    orth_gemm_pack(p, &o, 0, t->num_i, index, index + 1);
    orth_gemm_column column = {.block = &block, .is_last = index == p->num_blocks - 1, .m_panel = first,
                               .num_m = t->num_i, .a = t->a, .sums = t->sums};
    /* While a panel of B is used, the rows of A take turns in asking for the next one: 2 of its rows a line. */
    const int64_t share = orth_div_up(8 * p->kernels->nr, t->num_i);
    column.ahead_step = p->block_rows / 2 * share;
    for (int64_t j = t->j; j < t->j + t->num_j; j++) {
        column.n_panel = s->n * p->n_chunk + j;
        column.b = t->b + panel_bytes * (local * p->n_chunk + j);
        column.ahead = (orth_gemm_ahead){column.b + panel_bytes, share, 8 * share};
        orth_gemm_column_run(p, &column);
        column.sums.kept += p->tile_kept_bytes / 4 * (size_t)t->num_i;
    }
}

static void compute_task(orth_gemm_run *run, int64_t stage_index, int64_t index, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    stage_task t = {.stage = orth_gemm_stage_at(p, stage_index), .b = packed_b(run, stage_index)};
    t.i = index % p->m_tasks * p->m_task;
    t.j = index / p->m_tasks * p->n_task;
    t.num_i = ORTH_MIN(p->m_task, p->m_chunk - t.i);
    t.num_j = ORTH_MIN(p->n_task, p->n_chunk - t.j);
    t.a = run->workspace + p->a_at + p->a_slot_bytes * (size_t)worker;
    t.sums = orth_gemm_sums_at(run, worker, p->k_stages > 1 ? index : worker);
    const int64_t block = t.stage.k * p->stage_blocks;
    orth_gemm_wait_until(&run->packed[packing_stage(p, stage_index)], (int32_t)p->num_packs);
    if (p->k_stages > 1)
        orth_gemm_wait_until(&run->progress[index], (int32_t)stage_index);
    for (int64_t b = block; b < ORTH_MIN(block + p->stage_blocks, p->num_blocks); b++)
        compute_block(p, &t, b);
    if (p->k_stages > 1)
        orth_gemm_count_up(&run->progress[index]);
    orth_gemm_count_up(&run->computed[stage_index]);
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
    if (i >= half && i < half + p->num_packs) {
        if (stage + 1 < p->num_stages)
            pack_task(run, stage + 1, i - half);
        return;
    }
    if (p->kernels->enter)
        p->kernels->enter();
    compute_task(run, stage, i < half ? i : i - p->num_packs, worker);
    if (p->kernels->leave)
        p->kernels->leave();
}

void orth_gemm_run_stages(orth_ctx *ctx, orth_gemm_run *run)
{
    const orth_gemm_plan *p = &run->plan;
    orth_pool_run(ctx->pool, p->num_packs + p->num_stages * (p->num_packs + p->num_tasks), list_task, run);
}
