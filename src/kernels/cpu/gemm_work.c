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

int64_t orth_gemm_draw_part(orth_gemm_run *run, int64_t task)
{
    const int64_t num = run->plan.num_parts;
    /* Looked at first: those who help ask again and again. */
    if (atomic_load_explicit(&run->taken[task], memory_order_relaxed) >= num)
        return num;
    const int64_t part = orth_gemm_count_up(&run->taken[task]);
    return ORTH_MIN(num, part);
}

int64_t orth_gemm_part_at(const orth_gemm_plan *p, int64_t task, int64_t part)
{
    return (part + task % p->num_threads * p->num_parts / p->num_threads) % p->num_parts;
}

void orth_gemm_help(orth_gemm_run *run, void (*run_task)(orth_gemm_run *run, int64_t task, int worker), int worker)
{
    const int64_t num = run->plan.num_stages * run->plan.num_tasks, last = ORTH_MIN(num, run->plan.num_threads);
    for (int64_t i = 0; i < last; i++)
        run_task(run, num - 1 - (worker + i) % last, worker);
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
        orth_gemm_block b;
        orth_gemm_block_at(p, block + i, &b);
        char *dst = o->dst + panel_bytes * (size_t)(i * o->num_panels + begin);
        for (const orth_gemm_segment *s = b.segment; s < b.segment + b.num_segments; s++)
            o->pack(dst + 4 * s->row * o->width, panel_bytes,
                    o->src + (size_t)(lane * o->lane_stride + s->k0 * o->k_stride) * size, o->lane_stride,
                    o->k_stride, lanes, s->len);
    }
}

/* ---- tiles ---- */

/* Slots num-1 .. 0 of those at `slots`. */
static void add_older(orth_gemm_tile *t, const float *slots, int num, int64_t slot)
{
    while (num > 0)
        t->older[t->num_older++] = slots + --num * slot;
}

/* One block on one tile, which begins at t; leaves the sums of the last block in slot 0 of its own. */
static void run_tile(const orth_gemm_plan *p, const orth_gemm_block *block, orth_gemm_tile *t, orth_gemm_sums sums,
                     bool is_last)
{
    const orth_gemm_kernels *kr = p->kernels;
    const int64_t k_bytes = (int64_t)orth_dtype_bytes(p->g->in_type), slot = kr->mr * kr->nr;
    const char *a = t->a, *b = t->b, *ahead = t->ahead.at;
    const int prefetch = t->prefetch;
    const orth_gemm_place place = block->place;
    float *kept = sums.kept + place.slot * slot, *chain = kept + place.num_older * slot;
    for (int i = 0; i < block->num_segments; i++) {
        const orth_gemm_segment *s = &block->segment[i];
        float *own = sums.own + s->place.slot * slot;
        t->a = a + (p->a_stride ? s->k0 * k_bytes : 4 * s->row * kr->mr);
        t->b = b + 4 * s->row * kr->nr;
        t->ahead.at = ahead + s->row / 16 * t->ahead.step;
        t->prefetch = prefetch + (int)s->row / kr->align * t->prefetch_step;
        t->num_rows = s->num_rows;
        t->from = block->resumes && !p->adds_pieces ? chain : NULL;
        t->num_older = 0;
        if (block->resumes && p->adds_pieces)
            t->older[t->num_older++] = chain;
        add_older(t, own, s->place.num_older, slot);
        t->to = block->ends ? own : chain;
        if (block->ends && i == block->num_segments - 1) {
            add_older(t, kept, place.num_older, slot);
            t->to = is_last ? sums.own : kept;
        }
        kr->tile(t);
    }
}

int orth_gemm_prefetches(const orth_gemm_plan *p, int64_t m0, int64_t n_panel, bool epilogue, const float *kept,
                     orth_gemm_prefetch prefetches[ORTH_GEMM_MAX_PREFETCHES])
{
    const orth_gemm_desc *g = p->g;
    const int64_t n0 = n_panel * p->kernels->nr, n = ORTH_MIN(p->kernels->nr, g->N - n0), at = m0 * g->c_row + n0;
    const int64_t size = (int64_t)orth_dtype_bytes(g->c_type), f32 = (int64_t)sizeof(float);
    const int64_t kept_bytes = (int64_t)p->tile_kept_bytes / p->kernels->mr;
    int num = 0;
    if (kept && kept_bytes)
        prefetches[num++] = (orth_gemm_prefetch){(const char *)kept, kept_bytes, kept_bytes};
    if (!epilogue)
        return num;
    const bool past_caches = p->kernels->streams && orth_gemm_past_caches(g);
    const void *of_c_type[] = {past_caches ? NULL : g->c, g->pre, g->act_grad_of};
    for (int i = 0; i < ORTH_COUNT(of_c_type); i++)
        if (of_c_type[i])
            prefetches[num++] = (orth_gemm_prefetch){(const char *)of_c_type[i] + at * size, g->c_row * size, n * size};
    for (int i = 0; i < g->num_addends; i++)
        prefetches[num++] = (orth_gemm_prefetch){(const char *)(g->addend[i] + at), g->c_row * f32, n * f32};
    return num;
}

void orth_gemm_column_run(const orth_gemm_plan *p, const orth_gemm_column *c)
{
    const orth_gemm_kernels *kr = p->kernels;
    const int64_t n0 = c->n_panel * kr->nr, num = ORTH_MIN(c->num_m, p->m_panels - c->m_panel);
    orth_gemm_sums sums = c->sums;
    orth_gemm_tile tile = {.a_stride = p->a_stride, .n = (int)ORTH_MIN(kr->nr, p->g->N - n0), .prefetches = c->prefetches,
                           .num_prefetches = c->num_prefetches};
    const int prefetch = (int)(kr->mr * c->turn / c->turns), prefetch_end = (int)(kr->mr * (c->turn + 1) / c->turns);
    tile.prefetch_step = (int)orth_div_up((prefetch_end - prefetch) * kr->align, ORTH_MAX(1, p->block_rows));
    for (int64_t i = 0; i < num && tile.n > 0; i++) {
        const int64_t m = i * kr->mr, m0 = c->m_panel * kr->mr + m;
        tile.m = (int)ORTH_MIN(kr->mr, p->g->M - m0);
        tile.a = p->a_stride ? (const char *)p->g->a + m0 * p->a_stride : c->a + 4 * m * p->block_rows;
        tile.b = c->b;
        tile.ahead = c->ahead;
        tile.ahead.at += i * c->ahead_step;
        if (num - 1 - i < c->num_soon)
            tile.ahead = c->soon[num - 1 - i];
        tile.prefetch = (int)m + ORTH_MIN(tile.m, prefetch);
        tile.prefetch_end = (int)m + ORTH_MIN(tile.m, prefetch_end);
        for (int r = tile.prefetch; r < tile.prefetch_end && !kr->prefetches; r++)
            orth_gemm_ask(&tile, r);
        run_tile(p, c->block, &tile, sums, c->is_last);
        if (c->is_last)
            kr->finish(p->g, sums.own, kr->nr, m0, n0, tile.m, tile.n);
        sums.kept += p->tile_kept_bytes / 4;
    }
}
