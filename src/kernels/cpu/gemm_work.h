/* gemm_work.h -- what both ways of cutting a product do: packing panels, and multiplying rows of tiles. */
#ifndef ORTH_KERNELS_CPU_GEMM_WORK_H
#define ORTH_KERNELS_CPU_GEMM_WORK_H

#include "kernels/cpu/gemm_plan.h"

#define ORTH_GEMM_MAX_PREFETCHES (4 + ORTH_GEMM_MAX_ADDENDS)

typedef struct {
    orth_gemm_plan plan;
    char *workspace;
    _Atomic int32_t *progress;      /* [num_tasks] parts of tasks of this place that are done, over all stages */
    _Atomic int32_t *taken;         /* [num_stages * num_tasks] parts of a task that are drawn */
    _Atomic int32_t *packed;        /* [num_stages] packing tasks that are done (stages) */
    _Atomic int32_t *computed;      /* [num_stages] parts of computing tasks that are done (stages) */
} orth_gemm_run;

/* Where a stage lies. */
typedef struct {
    int64_t index, k, n, m;         /* number of the stage; of its K stage, N chunk, M chunk */
} orth_gemm_stage;

orth_gemm_stage orth_gemm_stage_at(const orth_gemm_plan *p, int64_t index);

/* The sums of one tile: [own_slots] that are used within a block, and [kept_slots] from block to block. */
typedef struct {
    float *own, *kept;
} orth_gemm_sums;

/* Of this worker; kept in place `keeper`. */
orth_gemm_sums orth_gemm_sums_at(const orth_gemm_run *run, int worker, int64_t keeper);

/* Neighbouring panels of one operand. */
typedef struct {
    orth_gemm_pack_fn pack;
    const char *src;
    char *dst;
    int64_t lane_stride, k_stride, num_lanes;
    int64_t first_panel, num_panels;
    int width;
} orth_gemm_operand;

orth_gemm_operand orth_gemm_operand_a(const orth_gemm_plan *p, char *dst, int64_t first, int64_t num);
orth_gemm_operand orth_gemm_operand_b(const orth_gemm_plan *p, char *dst, int64_t first, int64_t num);

/* Packs panels [begin, end) of the operand, blocks [block, block_end). Panels of a block lie side by side,
 * blocks after each other. */
void orth_gemm_pack(const orth_gemm_plan *p, const orth_gemm_operand *o, int64_t begin, int64_t end,
                    int64_t block, int64_t block_end);

/* Tiles under each other: one panel of columns, one block of K. */
typedef struct {
    const orth_gemm_block *block;
    bool is_last;                   /* of the blocks: the epilogue follows */
    int64_t m_panel, num_m, n_panel; /* in panels of the whole product; those past its edges are left out */
    const char *a;                  /* packed, from m_panel on; unused where A is not packed */
    const char *b;
    orth_gemm_sums sums;            /* of the first tile */
    orth_gemm_ahead ahead;          /* during the first tile */
    int64_t ahead_step;             /* from tile to tile */
    const orth_gemm_prefetch *prefetches;   /* [num_prefetches] from the first row of the first tile on */
    int num_prefetches;
    int64_t turn, turns;            /* which share of its rows a tile asks for */
    const orth_gemm_ahead *soon;    /* [num_soon] during the last tiles, instead; reversed */
    int num_soon;
} orth_gemm_column;

/* What the epilogue of rows m0.. of panel n_panel reads and writes, and slots of sums from `kept` on, or NULL.
 * Returns how many. */
int orth_gemm_prefetches(const orth_gemm_plan *p, int64_t m0, int64_t n_panel, bool epilogue, const float *kept,
                     orth_gemm_prefetch prefetches[ORTH_GEMM_MAX_PREFETCHES]);

/* Block `block` of panel `panel` of a B that is packed beforehand. */
static inline const char *orth_gemm_packed_at(const orth_gemm_plan *p, int64_t block, int64_t panel)
{
    return (const char *)p->g->b_packed + orth_gemm_panel_b_bytes(p) * (size_t)(block * p->n_panels + panel);
}

void orth_gemm_column_run(const orth_gemm_plan *p, const orth_gemm_column *c);

void orth_gemm_wait_until(const _Atomic int32_t *counter, int32_t value);
int32_t orth_gemm_count_up(_Atomic int32_t *counter); /* returns what it was */

/* A part of a task that nobody has drawn; num_parts if there is none. */
int64_t orth_gemm_draw_part(orth_gemm_run *run, int64_t task);

/* Which part of a task its part-th draw takes. Threads begin at different ones, since they share an operand, and reading
 * the same lines of it at the same time makes both of them wait. */
int64_t orth_gemm_part_at(const orth_gemm_plan *p, int64_t task, int64_t part);

/* Offers run_task the tasks that may still be at work at the end of the list. */
void orth_gemm_help(orth_gemm_run *run, void (*run_task)(orth_gemm_run *run, int64_t task, int worker), int worker);

/* The two ways (gemm_plan.c); the counters are zero. */
void orth_gemm_run_stages(orth_ctx *ctx, orth_gemm_run *run);
void orth_gemm_run_panels(orth_ctx *ctx, orth_gemm_run *run);

#endif
