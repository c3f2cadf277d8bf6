/* gemm_work.c -- packing and tiles; see gemm_work.h. */
#include "kernels/cpu/gemm_work.h"

#include <sched.h>

void orth_gemm_wait_until(const _Atomic int32_t *counter, int32_t value)
{
    for (int spins = 0; atomic_load_explicit(counter, memory_order_acquire) < value; spins++) {
        if (spins > 256)
            sched_yield();          /* more threads than cores: let the other one finish */
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

int32_t orth_gemm_count_up(_Atomic int32_t *counter)
{
    return atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel);
}

orth_gemm_stage orth_gemm_stage_at(const orth_gemm_plan *p, int64_t index)
{
    return (orth_gemm_stage){.index = index,
                             .k = index % p->k_stages,
                             .n = index / p->k_stages % p->n_chunks,
                             .m = index / p->k_stages / p->n_chunks};
}

orth_gemm_sums orth_gemm_sums_at(const orth_gemm_run *run, int worker, int64_t keeper)
{
    const orth_gemm_plan *p = &run->plan;
    char *own = run->workspace + p->own_at + p->own_bytes * (size_t)worker;
    char *kept = run->workspace + p->kept_at + p->task_kept_bytes * (size_t)keeper;
    return (orth_gemm_sums){(float *)(void *)own, (float *)(void *)kept};
}

/* ---- packing ---- */

orth_gemm_operand orth_gemm_operand_a(const orth_gemm_plan *p, char *dst, int64_t first, int64_t num)
{
    const orth_gemm_desc *g = p->g;
    return (orth_gemm_operand){p->kernels->pack_a, g->a, dst, g->a_row, g->a_col, g->M, first, num,
                               p->kernels->mr};
}

orth_gemm_operand orth_gemm_operand_b(const orth_gemm_plan *p, char *dst, int64_t first, int64_t num)
{
    const orth_gemm_desc *g = p->g;
    return (orth_gemm_operand){p->kernels->pack_b, g->b, dst, g->b_col, g->b_row, g->N, first, num,
                               p->kernels->nr};
}

void orth_gemm_pack(const orth_gemm_plan *p, const orth_gemm_operand *o, int64_t begin, int64_t end,
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

/* ---- tiles ---- */

/* One block on one tile, which begins at t; leaves the sums of the last block in slot 0 of its own. */
static void run_tile(const orth_gemm_plan *p, const orth_gemm_block *block, orth_gemm_tile t,
                     orth_gemm_sums sums, bool is_last)
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
        t.ahead.at = begin.ahead.at + s->row / 16 * t.ahead.step;
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

void orth_gemm_column_run(const orth_gemm_plan *p, const orth_gemm_column *c)
{
    const orth_gemm_kernels *kr = p->kernels;
    const int64_t n0 = c->n_panel * kr->nr, num = ORTH_MIN(c->num_m, p->m_panels - c->m_panel);
    orth_gemm_sums sums = c->sums;
    orth_gemm_tile tile = {.a_stride = p->a_stride, .b = c->b, .n = (int)ORTH_MIN(kr->nr, p->g->N - n0)};
    for (int64_t i = 0; i < num && tile.n > 0; i++) {
        const int64_t m0 = (c->m_panel + i) * kr->mr;
        tile.m = (int)ORTH_MIN(kr->mr, p->g->M - m0);
        tile.a = p->a_stride ? (const char *)p->g->a + m0 * p->a_stride : c->a + 4 * i * p->block_rows * kr->mr;
        tile.ahead = c->ahead;
        tile.ahead.at += i * c->ahead_step;
        if (num - 1 - i < c->num_soon)
            tile.ahead = c->soon[num - 1 - i];
        if (p->kept_slots)
            expect((char *)sums.kept + p->tile_kept_bytes, p->tile_kept_bytes);
        if (c->is_last)
            expect_epilogue(p->g, m0, n0, tile.m, tile.n);
        run_tile(p, c->block, tile, sums, c->is_last);
        if (c->is_last)
            kr->finish(p->g, sums.own, kr->nr, m0, n0, tile.m, tile.n);
        sums.kept += p->tile_kept_bytes / 4;
    }
}
