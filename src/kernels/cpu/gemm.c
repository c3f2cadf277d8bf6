/* gemm.c -- orth_gemm: packs and multiplies, shared out over the pool.
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
#include <sched.h>

#include "base/pool.h"
#include "kernels/cpu/gemm_plan.h"
#include "kernels/gemm_library.h"

typedef struct {
    orth_gemm_plan plan;
    char *workspace;
    _Atomic int32_t *packed;        /* [num_stages] packing tasks that are done */
    _Atomic int32_t *computed;      /* [num_stages] computing tasks that are done */
    _Atomic int32_t *progress;      /* [num_tiles] stages that this tile task has behind it */
} gemm_run;

/* Where a stage lies. */
typedef struct {
    int64_t index, k, n, m;         /* number of the stage; of its K stage, N chunk, M chunk */
    char *b;                        /* packed */
} gemm_stage;

static void wait_until(const _Atomic int32_t *counter, int32_t value)
{
    for (int spins = 0; atomic_load_explicit(counter, memory_order_acquire) < value; spins++) {
        if (spins > 256)
            sched_yield();          /* more threads than cores: let the other one finish */
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

static void count_up(_Atomic int32_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel);
}

static gemm_stage stage_at(const gemm_run *run, int64_t index)
{
    const orth_gemm_plan *p = &run->plan;
    gemm_stage s = {.index = index, .k = index % p->k_stages};
    s.n = index / p->k_stages % p->n_chunks;
    s.m = index / p->k_stages / p->n_chunks;
    s.b = run->workspace + p->b_at + p->b_slot_bytes * (size_t)(index % p->b_slots);
    return s;
}

/* ---- packing ---- */

/* Neighbouring panels of one operand. */
typedef struct {
    orth_gemm_pack_fn pack;
    const char *src;
    char *dst;
    int64_t lane_stride, k_stride, num_lanes;
    int64_t first_panel, num_panels;
    int width;
} pack_operand;

static pack_operand operand_a(const orth_gemm_plan *p, char *dst, int64_t first_panel, int64_t num_panels)
{
    const orth_gemm_desc *g = p->g;
    return (pack_operand){p->kernels->pack_a, g->a, dst, g->a_row, g->a_col, g->M, first_panel, num_panels,
                          p->kernels->mr};
}

static pack_operand operand_b(const orth_gemm_plan *p, char *dst, int64_t first_panel, int64_t num_panels)
{
    const orth_gemm_desc *g = p->g;
    return (pack_operand){p->kernels->pack_b, g->b, dst, g->b_col, g->b_row, g->N, first_panel, num_panels,
                          p->kernels->nr};
}

/* Panels [begin, end) of the operand, blocks [block, block_end). Panels of a block lie side by
 * side, blocks after each other. */
static void pack_panels(const orth_gemm_plan *p, const pack_operand *o, int64_t begin, int64_t end,
                        int64_t block, int64_t block_end)
{
    const size_t size = orth_dtype_bytes(p->g->in_type);
    const size_t panel_bytes = (size_t)(4 * p->block_rows * o->width);
    const int64_t lane = (o->first_panel + begin) * o->width;
    const int64_t lanes =
        ORTH_MIN(o->num_lanes, (o->first_panel + ORTH_MIN(end, o->num_panels)) * o->width) - lane;
    for (int64_t i = 0; block + i < block_end && lanes > 0; i++) {
        const orth_gemm_block b = orth_gemm_block_at(p, block + i);
        char *dst = o->dst + panel_bytes * (size_t)(i * o->num_panels + begin);
        for (const orth_gemm_segment *s = b.segment; s < b.segment + b.num_segments; s++)
            o->pack(dst + 4 * s->row * o->width, panel_bytes,
                    o->src + (size_t)(lane * o->lane_stride + s->k0 * o->k_stride) * size, o->lane_stride,
                    o->k_stride, lanes, s->len);
    }
}

static void pack_task(gemm_run *run, int64_t stage_index, int64_t i)
{
    const orth_gemm_plan *p = &run->plan;
    const gemm_stage s = stage_at(run, stage_index);
    const int64_t block = s.k * p->stage_blocks, block_end = ORTH_MIN(block + p->stage_blocks, p->num_blocks);
    if (p->b_slots > 1 || s.index == 0) {
        /* The slot was last used two stages ago. */
        for (int64_t q = 0; q + 2 <= s.index; q++)
            wait_until(&run->computed[q], (int32_t)p->num_tiles);
        const pack_operand o = operand_b(p, s.b, s.n * p->n_chunk, p->n_chunk);
        pack_panels(p, &o, i * p->b_group, (i + 1) * p->b_group, block, block_end);
    }
    count_up(&run->packed[s.index]);
}

/* ---- computing ---- */

/* The sums of one tile: [own_slots] that are used within a block, and [kept_slots] from block to block. */
typedef struct {
    float *own, *kept;
} gemm_sums;

/* One block on one tile, which begins at t; leaves the sums of the last block in slot 0 of its own. */
static void run_tile(const orth_gemm_plan *p, const orth_gemm_block *block, orth_gemm_tile t, gemm_sums sums,
                     bool is_last)
{
    const orth_gemm_kernels *kr = p->kernels;
    const int64_t k_bytes = (int64_t)orth_dtype_bytes(p->g->in_type), slot = kr->mr * kr->nr;
    const orth_gemm_tile begin = t;
    const orth_gemm_place place = block->place;
    float *kept = sums.kept + place.slot * slot, *chain = kept + place.num_older * slot;
    float *joined = is_last ? sums.own : kept;
    for (int i = 0; i < block->num_segments; i++) {
        const orth_gemm_segment *s = &block->segment[i];
        t.a = begin.a + (p->a_stride ? s->k0 * k_bytes : 4 * s->row * kr->mr);
        t.b = begin.b + 4 * s->row * kr->nr;
        t.ahead = begin.ahead + s->row * t.ahead_step;
        t.num_rows = s->num_rows;
        t.from = block->resumes ? chain : NULL;
        t.to = sums.own + s->place.slot * slot;
        t.older = t.to;
        t.num_older = s->place.num_older;
        if (!block->ends)
            t.to = chain;
        else if (i == block->num_segments - 1 && place.num_older == 0)
            t.to = joined;
        kr->tile(&t);
    }
    if (block->ends && place.num_older > 0) {
        t.num_rows = 0;
        t.from = sums.own;
        t.older = kept;
        t.num_older = place.num_older;
        t.to = joined;
        kr->tile(&t);
    }
}

/* What one computing task works on: panels [i, i + num_i) x [j, j + num_j) of the stage. */
typedef struct {
    gemm_stage stage;
    int64_t i, num_i, j, num_j;
    char *a;                        /* one block of its rows, packed */
    gemm_sums sums;
} gemm_part;

/* Asks for memory that is used soon, so that it is in the L2 by then. */
static void expect(const void *at, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i += 64)
        __builtin_prefetch((const char *)at + i, 0, 2);
    __builtin_prefetch((const char *)at + num_bytes - 1, 0, 2);
}

/* What the epilogue of a tile reads and writes. */
static void expect_epilogue(const orth_gemm_desc *g, int64_t m0, int64_t n0, int m, int n)
{
    const size_t size = orth_dtype_bytes(g->c_type);
    for (int64_t at = m0 * g->c_row + n0; m > 0; m--, at += g->c_row) {
        expect((const char *)g->c + (size_t)at * size, (size_t)n * size);
        if (g->act_grad_of)
            expect((const char *)g->act_grad_of + (size_t)at * size, (size_t)n * size);
        for (int i = 0; i < g->num_addends; i++)
            expect(g->addend[i] + at, (size_t)n * sizeof(float));
    }
}

static void compute_block(const orth_gemm_plan *p, const gemm_part *t, int64_t index)
{
    const gemm_stage *s = &t->stage;
    const orth_gemm_kernels *kr = p->kernels;
    const int64_t local = index - s->k * p->stage_blocks, first = s->m * p->m_chunk + t->i;
    const size_t panel_bytes = 4 * (size_t)(p->block_rows * kr->nr);
    const pack_operand o = operand_a(p, t->a, first, t->num_i);
    const orth_gemm_block block = orth_gemm_block_at(p, index);
    const bool is_last = index == p->num_blocks - 1;
    gemm_sums sums = t->sums;
    if (!p->a_stride)
        pack_panels(p, &o, 0, t->num_i, index, index + 1);
    for (int64_t j = t->j; j < t->j + t->num_j; j++) {
        const char *b = s->b + panel_bytes * (size_t)(local * p->n_chunk + j);
        const int64_t n0 = (s->n * p->n_chunk + j) * kr->nr;
        /* While a panel of B is used, the rows of A take turns in asking for the next one. */
        orth_gemm_tile tile = {.b = b, .n = (int)ORTH_MIN(kr->nr, p->g->N - n0),
                               .ahead_step = orth_div_up(4 * kr->nr, t->num_i)};
        for (int64_t i = 0; i < t->num_i && tile.n > 0; i++) {
            const int64_t m0 = (first + i) * kr->mr;
            tile.m = (int)ORTH_MIN(kr->mr, p->g->M - m0);
            if (tile.m <= 0)
                break;
            tile.a = p->a_stride ? (const char *)p->g->a + m0 * p->a_stride
                                 : t->a + 4 * i * p->block_rows * kr->mr;
            tile.a_stride = p->a_stride;
            tile.ahead = b + panel_bytes + i * p->block_rows * tile.ahead_step;
            if (p->kept_slots)
                expect((char *)sums.kept + p->tile_kept_bytes, p->tile_kept_bytes);
            if (is_last)
                expect_epilogue(p->g, m0, n0, tile.m, tile.n);
            run_tile(p, &block, tile, sums, is_last);
            if (is_last)
                kr->finish(p->g, sums.own, kr->nr, m0, n0, tile.m, tile.n);
            sums.kept += p->tile_kept_bytes / 4;
        }
    }
}

static gemm_sums sums_at(const gemm_run *run, int worker, int64_t keeper)
{
    const orth_gemm_plan *p = &run->plan;
    char *own = run->workspace + p->own_at + p->own_bytes * (size_t)worker;
    char *kept = run->workspace + p->kept_at + p->task_kept_bytes * (size_t)keeper;
    return (gemm_sums){(float *)(void *)own, (float *)(void *)kept};
}

static void compute_task(gemm_run *run, int64_t stage_index, int64_t index, int worker)
{
    const orth_gemm_plan *p = &run->plan;
    gemm_part t = {.stage = stage_at(run, stage_index)};
    t.i = index % p->m_tasks * p->m_task;
    t.j = index / p->m_tasks * p->n_task;
    t.num_i = ORTH_MIN(p->m_task, p->m_chunk - t.i);
    t.num_j = ORTH_MIN(p->n_task, p->n_chunk - t.j);
    t.a = run->workspace + p->a_at + p->a_slot_bytes * (size_t)worker;
    t.sums = sums_at(run, worker, p->k_stages > 1 ? index : worker);
    const int64_t block = t.stage.k * p->stage_blocks;
    wait_until(&run->packed[stage_index], (int32_t)p->num_packs);
    if (p->k_stages > 1)
        wait_until(&run->progress[index], (int32_t)stage_index);
    for (int64_t b = block; b < ORTH_MIN(block + p->stage_blocks, p->num_blocks); b++)
        compute_block(p, &t, b);
    if (p->k_stages > 1)
        count_up(&run->progress[index]);
    count_up(&run->computed[stage_index]);
}

/* Task `index` of the list at the top of the file. */
static void list_task(void *arg, int64_t index, int worker)
{
    gemm_run *run = arg;
    const orth_gemm_plan *p = &run->plan;
    if (index < p->num_packs) {
        pack_task(run, 0, index);
        return;
    }
    const int64_t per_stage = p->num_packs + p->num_tiles, half = p->num_tiles / 2;
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

/* ---- few rows ---- */

static void thin_pack_a(void *arg, int64_t index, int worker)
{
    gemm_run *run = arg;
    const orth_gemm_plan *p = &run->plan;
    (void)worker;
    char *dst = run->workspace + p->a_at + 4 * (size_t)(index * p->block_rows * p->m_panels * p->kernels->mr);
    const pack_operand o = operand_a(p, dst, 0, p->m_panels);
    pack_panels(p, &o, 0, p->m_panels, index, index + 1);
}

/* One panel of columns, all rows: each block of B is packed into L1 and used at once. */
static void thin_task(void *arg, int64_t index, int worker)
{
    gemm_run *run = arg;
    const orth_gemm_plan *p = &run->plan;
    const orth_gemm_kernels *kr = p->kernels;
    char *packed = run->workspace + p->b_at + p->b_slot_bytes * (size_t)worker;
    const gemm_sums sums = sums_at(run, worker, worker);
    const int64_t n0 = index * kr->nr;
    const int n = (int)ORTH_MIN(kr->nr, p->g->N - n0);
    const pack_operand o = operand_b(p, packed, index, 1);
    if (kr->enter)
        kr->enter();
    for (int64_t block = 0; block < p->num_blocks; block++) {
        const orth_gemm_block b = orth_gemm_block_at(p, block);
        const bool is_last = block == p->num_blocks - 1;
        pack_panels(p, &o, 0, 1, block, block + 1);
        for (int64_t i = 0; i < p->m_panels; i++) {
            const size_t at = 4 * (size_t)((block * p->m_panels + i) * p->block_rows * kr->mr);
            const orth_gemm_tile tile = {.a = run->workspace + p->a_at + at, .b = packed, .ahead = packed,
                                         .m = (int)ORTH_MIN(kr->mr, p->g->M - i * kr->mr), .n = n};
            gemm_sums of_tile = {sums.own, sums.kept + (size_t)i * p->tile_kept_bytes / 4};
            run_tile(p, &b, tile, of_tile, is_last);
            if (is_last)
                kr->finish(p->g, sums.own, kr->nr, i * kr->mr, n0, tile.m, n);
        }
    }
    if (kr->leave)
        kr->leave();
}

/* ---- entry points ---- */

orth_isa orth_gemm_isa(orth_isa isa, orth_dtype in_type)
{
#if defined(__x86_64__)
    if (in_type != ORTH_BF16)
        return ORTH_MIN(isa, ORTH_ISA_AVX512);
    if (isa == ORTH_ISA_AMX && !orth_gemm_amx_selfcheck())
        return ORTH_ISA_AVX512BF16;
    return isa;
#else
    (void)isa;
    (void)in_type;
    return ORTH_ISA_BASE;
#endif
}

const orth_gemm_kernels *orth_gemm_kernels_for(orth_isa isa, orth_dtype in_type)
{
    const bool bf16 = in_type == ORTH_BF16;
    switch (orth_gemm_isa(isa, in_type)) {
#if defined(__x86_64__)
    case ORTH_ISA_AMX: return &orth_gemm_amx_bf16;
    case ORTH_ISA_AVX512BF16: return &orth_gemm_avx512bf16_bf16;
    case ORTH_ISA_AVX512: return bf16 ? &orth_gemm_avx512_bf16 : &orth_gemm_avx512_f32;
    case ORTH_ISA_AVX2: return bf16 ? &orth_gemm_avx2_bf16 : &orth_gemm_avx2_f32;
#endif
    default: return bf16 ? &orth_gemm_base_bf16 : &orth_gemm_base_f32;
    }
}

orth_status orth_gemm(orth_ctx *ctx, const orth_gemm_desc *g, void *workspace)
{
    gemm_run run = {.workspace = workspace};
    orth_gemm_plan *p = &run.plan;
    bool done = g->M == 0 || g->N == 0;
    if (!done)
        ORTH_TRY(orth_gemm_library_run(ctx, g, &done));
    if (done)
        return ORTH_OK;
    orth_gemm_plan_make(p, g, orth_gemm_kernels_for(ctx->isa, g->in_type), orth_pool_num_threads(ctx->pool));
    if (p->thin) {
        orth_pool_run(ctx->pool, p->num_blocks, thin_pack_a, &run);
        orth_pool_run(ctx->pool, p->n_panels, thin_task, &run);
        return ORTH_OK;
    }
    run.packed = (_Atomic int32_t *)(void *)(run.workspace + p->counters_at);
    run.computed = run.packed + p->num_stages;
    run.progress = run.computed + p->num_stages;
    memset(run.workspace + p->counters_at, 0, p->a_at - p->counters_at);
    const int64_t per_stage = p->num_packs + p->num_tiles;
    orth_pool_run(ctx->pool, p->num_packs + p->num_stages * per_stage, list_task, &run);
    return ORTH_OK;
}

size_t orth_gemm_workspace_bytes(const orth_gemm_desc *g, int num_threads, orth_isa isa)
{
    if (g->M == 0 || g->N == 0)
        return 0;
    orth_gemm_plan p;
    orth_gemm_plan_make(&p, g, orth_gemm_kernels_for(isa, g->in_type), num_threads);
    return p.total_bytes;
}
