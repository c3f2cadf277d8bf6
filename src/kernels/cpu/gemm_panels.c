/* gemm_panels.c -- products whose A lies ready: each thread packs the panel of B that it uses, into its own L2, unless it
 * was packed beforehand.
 *
 * A task is a panel of B, one block of K; its rows of C are drawn in parts. Who has drawn the task draws
 * its parts too, and at the end of the list those who find no task draw parts of the tasks still at work,
 * with a packed panel of their own: what one thread has left when the others are done is less than a part.
 * A task waits for the same columns one block earlier, which were drawn before: no deadlock.
 *
 * B comes from memory once, and is asked for while the last tiles of the task before are computed: not
 * earlier, since the rows of A that pass through the L2 would push it out again.
 */
#include "base/pool.h"
#include "kernels/cpu/gemm_work.h"

#define MAX_SOON 64                 /* tiles of 48 columns need 8 */

/* All of A, of which there are few rows. */
static void pack_whole_a(void *arg, int64_t index, int worker)
{
    orth_gemm_run *run = arg;
    const orth_gemm_plan *p = &run->plan;
    (void)worker;
    char *dst = run->workspace + p->a_at + 4 * (size_t)(index * p->block_rows * p->m_panels * p->kernels->mr);
    const orth_gemm_operand o = orth_gemm_operand_a(p, dst, 0, p->m_panels);
    orth_gemm_pack(p, &o, 0, p->m_panels, index, index + 1);
}

/* The task of the list that this thread probably draws next. */
static int64_t next_task(const orth_gemm_plan *p, int64_t task)
{
    return ORTH_MIN(task + p->num_threads, p->num_stages * p->num_tasks - 1);
}

/* Patterns that ask for a panel that is packed, which takes nr/8 tiles. Returns how many. */
static int packed_patterns(const orth_gemm_plan *p, const char *panel, orth_gemm_ahead soon[MAX_SOON])
{
    const int num = p->kernels->nr / 8;
    for (int i = 0; i < num; i++)
        soon[i] = (orth_gemm_ahead){panel + i * (p->block_rows / 2) * 64, 64, 512};
    return num;
}

/* Patterns that ask for the part of B that `task` reads. Returns how many. */
static int soon_patterns(const orth_gemm_plan *p, int64_t task, orth_gemm_ahead soon[MAX_SOON])
{
    const orth_gemm_desc *g = p->g;
    const orth_gemm_stage s = orth_gemm_stage_at(p, task / p->num_tasks);
    const int64_t size = (int64_t)orth_dtype_bytes(g->in_type), rows = 2 * p->kernels->unit;
    const int64_t n0 = (s.n * p->n_chunk + task % p->num_tasks) * p->kernels->nr;
    const int64_t lanes = ORTH_MIN(p->kernels->nr, g->N - n0);
    if (g->b_packed)
        return packed_patterns(p, orth_gemm_packed_at(p, s.k, s.n * p->n_chunk + task % p->num_tasks), soon);
    orth_gemm_block block;
    orth_gemm_block_at(p, s.k, &block);
    const int64_t k0 = block.segment[0].k0;
    const char *at = (const char *)g->b + (n0 * g->b_col + k0 * g->b_row) * size;
    int num = 0;
    if (g->b_row == 1)
        for (int64_t w = 0; w < lanes; w += 8)
            soon[num++] = (orth_gemm_ahead){at + w * g->b_col * size, g->b_col * size, 64};
    else if (g->b_col == 1)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t line = 0; line < lanes * size; line += 64)
                soon[num++] = (orth_gemm_ahead){at + r * g->b_row * size + line, rows * g->b_row * size,
                                                8 * rows * g->b_row * size};
    return num;
}

static void run_parts(orth_gemm_run *run, int64_t task, int64_t part, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    const orth_gemm_kernels *kr = p->kernels;
    const orth_gemm_stage s = orth_gemm_stage_at(p, task / p->num_tasks);
    const int64_t place = task % p->num_tasks, panel = s.n * p->n_chunk + place;
    char *own = run->workspace + p->b_at + p->b_slot_bytes * (size_t)worker;
    const orth_gemm_operand operand = orth_gemm_operand_b(p, own, panel, 1);
    const char *b = p->g->b_packed ? orth_gemm_packed_at(p, s.k, panel) : own;
    const orth_gemm_sums sums = orth_gemm_sums_at(run, worker, p->k_stages > 1 ? place : worker);
    orth_gemm_block block;
    orth_gemm_block_at(p, s.k, &block);
    const int64_t k_bytes = (int64_t)orth_dtype_bytes(p->g->in_type);
    orth_gemm_ahead soon[MAX_SOON];
    const int num_soon = soon_patterns(p, next_task(p, task), soon);
    orth_gemm_prefetch prefetches[ORTH_GEMM_MAX_PREFETCHES];
    orth_gemm_column column = {.block = &block, .is_last = s.k == p->num_blocks - 1, .n_panel = panel, .b = b,
                               .ahead_step = kr->mr * p->a_stride, .soon = soon, .prefetches = prefetches, .turns = 1};
    if (!p->g->b_packed)
        orth_gemm_pack(p, &operand, 0, 1, s.k, s.k + 1);
    for (; part < p->num_parts; part = orth_gemm_draw_part(run, task)) {
        const int64_t i = orth_gemm_part_at(p, task, part) * p->m_task;
        column.m_panel = s.m * p->m_chunk + i;
        column.num_m = ORTH_MIN(p->m_task, p->m_chunk - i);
        column.sums = sums;
        column.sums.kept += p->tile_kept_bytes / 4 * (size_t)i;
        column.num_prefetches = orth_gemm_prefetches(p, column.m_panel * kr->mr, panel, column.is_last,
                                             column.sums.kept + p->tile_kept_bytes / 4, prefetches);
        column.num_soon = part == p->num_parts - 1 ? num_soon : 0;
        column.ahead = (orth_gemm_ahead){(const char *)p->g->a + (column.m_panel + 1) * column.ahead_step +
                                             block.segment[0].k0 * k_bytes,
                                         p->a_stride, 64};
        orth_gemm_column_run(p, &column);
        orth_gemm_count_up(&run->progress[place]);
    }
}

/* Few rows: one panel of columns, all rows and blocks. */
static void thin_task(orth_gemm_run *run, int64_t panel, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    char *b = run->workspace + p->b_at + p->b_slot_bytes * (size_t)worker;
    const orth_gemm_operand operand = orth_gemm_operand_b(p, b, panel, 1);
    orth_gemm_prefetch prefetches[ORTH_GEMM_MAX_PREFETCHES];
    for (int64_t index = 0; index < p->num_blocks; index++) {
        orth_gemm_block block;
        orth_gemm_block_at(p, index, &block);
        const size_t a_at = p->a_at + 4 * (size_t)(index * p->block_rows * p->m_panels * p->kernels->mr);
        const orth_gemm_column column = {.block = &block, .is_last = index == p->num_blocks - 1,
                                         .num_m = p->m_panels, .n_panel = panel, .a = run->workspace + a_at,
                                         .b = b, .sums = orth_gemm_sums_at(run, worker, worker),
                                         .ahead.at = b, .prefetches = prefetches, .turns = 1,
                                         .num_prefetches = orth_gemm_prefetches(p, 0, panel, index == p->num_blocks - 1,
                                                                        NULL, prefetches)};
        orth_gemm_pack(p, &operand, 0, 1, index, index + 1);
        orth_gemm_column_run(p, &column);
    }
}

static void panel_task(orth_gemm_run *run, int64_t task, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    const int64_t part = orth_gemm_draw_part(run, task);
    if (part == p->num_parts)
        return;
    if (p->k_stages > 1)
        orth_gemm_wait_until(&run->progress[task % p->num_tasks],
                             (int32_t)(task / p->num_tasks * p->num_parts));
    run_parts(run, task, part, worker);
}

static void list_task(void *arg, int64_t index, int worker)
{
    orth_gemm_run *run = arg;
    const orth_gemm_plan *p = &run->plan;
    if (p->kernels->enter)
        p->kernels->enter();
    if (p->thin)
        thin_task(run, index, worker);
    else if (index < p->num_stages * p->num_tasks)
        panel_task(run, index, worker);
    else
        orth_gemm_help(run, panel_task, worker);
    if (p->kernels->leave)
        p->kernels->leave();
}

void orth_gemm_run_panels(orth_ctx *ctx, orth_gemm_run *run)
{
    const orth_gemm_plan *p = &run->plan;
    if (p->thin)
        orth_pool_run(ctx->pool, p->num_blocks, pack_whole_a, run);
    orth_pool_run(ctx->pool, p->num_stages * p->num_tasks + (p->thin ? 0 : p->num_threads), list_task, run);
}
