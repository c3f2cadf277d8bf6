/* gemm_plan.c -- cuts a product into pieces that fit the caches.
 *
 *   block    the number of packed rows (kc) is as large as possible while 8 rows of A stay in L1 and a panel of B stays in L2:
 *            the tile takes a quarter of what the L2 delivers. The longer a block, the fewer times the sums of
 *            a tile go out and come back: that costs more than the L1 would save. (Not with AMX, which wants 64 bytes
 *            a cycle: there a panel of B stays in L1, and all rows of a task pass it before the next block.)
 *            Cuts long leaves into equal pieces, or takes a power of two of short ones, so that a block leaves one
 *            finished subtree of the aligned tree behind.
 *   stage    (chunk of M) x (chunk of N) x (run of blocks), in which tasks are independent. Stages go through
 *            K first, then N, then M.
 *
 * Where A is used as it lies (K is contiguous and the kernel takes it so), or has few rows, a task is one panel of B
 * with all rows of the chunk: its thread packs the panel into its own L2, and A streams past (gemm_panels.c).
 * A stage is one block, so that the part of A it reads stays in the L3.
 *
 * Elsewhere (gemm_stages.c) B is packed for all threads, a stage at a time, so that it fits the L3 twice: one is
 * computed on while the next is packed. A task takes part of the stage's rows, all its columns if there are rows
 * enough for all threads, and packs its rows of A by itself, for all blocks of the stage, into a buffer that never
 * leaves its L2: A is used by few columns, so a way through the L3 would cost more. Its columns are drawn in parts,
 * so that threads without a task can help at the end.
 *
 * Where B is packed beforehand (gemm_packed.c), for many products, both ways find their panels there.
 *
 * None of this shows in the result: it decides when a chain is continued, never its order.
 */
#include "kernels/cpu/gemm_plan.h"

#define STAGE_ROWS 1024             /* packed rows of a stage, at most: a task has few rows if they are long */
#define THIN_ROWS 192               /* of a block of few rows of C, whose panel of B stays in L1 */
#define CHUNK_ROWS 1024             /* rows of C in a stage */
#define CHUNK_COLUMNS 2048          /* columns, where K takes several stages */
#define CHUNK_BYTES (6 << 20)       /* packed B of a stage */
#define PART_ROWS 128               /* rows of a task of one panel that are drawn at once */
#define TASK_BYTES (1 << 20)        /* packed A of a task */
#define TASK_M_MIN 32
#define PART_COLUMNS 128            /* columns of a task that are drawn at once */
#define PACK_COLUMNS 96             /* columns that are packed at once, at least */
#define PACKS_PER_THREAD 2

static int64_t packed_rows(const orth_gemm_kernels *kr, int64_t len)
{
    return orth_round_up(orth_div_up(len, kr->unit) * kr->planes, kr->align);
}

/* Most subtrees that wait while the last of n leaves of a tree is at work, or an earlier one. */
static int slots_before(int64_t n)
{
    int slots = 0;
    for (int64_t i = 1; i < n; i = 2 * i + 1)
        slots++;
    return slots;
}

static void plan_k(orth_gemm_plan *p)
{
    const orth_gemm_desc *g = p->g;
    const orth_gemm_kernels *kr = p->kernels;
    int64_t longest = 0;
    for (int64_t i = 0, begin = 0; i < p->num_leaves && g->K > 0; i++) {
        int64_t end = orth_split_bound(&g->split, i + 1);
        longest = ORTH_MAX(longest, end - begin);
        begin = end;
    }
    const int64_t rows = packed_rows(kr, longest), kc = p->thin ? ORTH_MIN(kr->kc, THIN_ROWS) : kr->kc;
    p->adds_pieces = g->interval > 0 && longest > g->interval;
    p->pieces = ORTH_MAX(1, p->adds_pieces ? orth_div_up(longest, g->interval) : orth_div_up(rows, kc));
    p->piece_len = p->adds_pieces ? g->interval : packed_rows(kr, orth_div_up(longest, p->pieces)) / kr->planes * kr->unit;
    p->group = 1;
    while (p->pieces == 1 && p->group < ORTH_GEMM_MAX_GROUP && p->group < p->num_leaves &&
           2 * p->group * rows <= kc)
        p->group *= 2;
    p->num_blocks = p->pieces > 1 ? p->num_leaves * p->pieces : orth_div_up(p->num_leaves, p->group);
    p->block_rows = p->pieces > 1 ? p->piece_len / kr->unit * kr->planes : p->group * rows;
    p->own_slots = 1 + slots_before(p->pieces > 1 ? 1 : ORTH_MIN(p->group, p->num_leaves));
    p->kept_slots = p->pieces > 1 ? 1 + slots_before(p->num_leaves) : slots_before(p->num_blocks);
    const int64_t total = p->num_blocks * p->block_rows;
    if (p->by_panel)
        p->k_stages = p->thin ? 1 : p->num_blocks;
    else
        p->k_stages = ORTH_MAX(1, orth_div_up(total, STAGE_ROWS));
    p->stage_blocks = orth_div_up(p->num_blocks, p->k_stages);
    p->k_stages = orth_div_up(p->num_blocks, p->stage_blocks);
}

/* Cuts `panels` into equal chunks of at most `most`. */
static void cut(int64_t panels, int64_t most, int64_t *chunk, int64_t *chunks)
{
    *chunks = ORTH_MAX(1, orth_div_up(panels, ORTH_MAX(1, most)));
    *chunk = ORTH_MAX(1, orth_div_up(panels, *chunks));
    *chunks = ORTH_MAX(1, orth_div_up(panels, *chunk));
}

static void plan_tasks(orth_gemm_plan *p)
{
    const orth_gemm_kernels *kr = p->kernels;
    const int64_t m_min = ORTH_MAX(1, TASK_M_MIN / kr->mr);
    const int64_t fit = TASK_BYTES / (4 * ORTH_MAX(1, p->stage_blocks * p->block_rows) * kr->mr);
    int64_t m_most = ORTH_MAX(1, ORTH_MIN(kr->task_m / kr->mr, fit));
    p->n_task = p->n_chunk;
    for (;;) {
        cut(p->m_chunk, m_most, &p->m_task, &p->m_tasks);
        p->num_tasks = p->m_tasks * orth_div_up(p->n_chunk, p->n_task);
        if (p->num_tasks >= p->num_threads)
            break;
        if (p->m_task > m_min)
            m_most = (p->m_task + 1) / 2;
        else if (p->n_task > 1)
            p->n_task = (p->n_task + 1) / 2;
        else if (p->m_task > 1)
            m_most = (p->m_task + 1) / 2;
        else
            break;
    }
    p->n_part = ORTH_MIN(p->n_task, ORTH_MAX(1, PART_COLUMNS / kr->nr));
    p->num_parts = orth_div_up(p->n_task, p->n_part);
}

/* B is read in runs of memory as long as can be: all of K of some columns; or, if it is columns that lie side by side,
 * all columns of some rows, if that makes tasks enough. */
static void plan_packs(orth_gemm_plan *p)
{
    if (p->g->b_packed)
        return;
    p->b_group = ORTH_MAX(1, PACK_COLUMNS / p->kernels->nr);
    p->b_blocks = p->stage_blocks;
    if (p->g->b_col == 1 && p->g->b_row != 1) {
        const int64_t groups = orth_div_up(PACKS_PER_THREAD * p->num_threads, p->stage_blocks);
        p->b_group = ORTH_MAX(p->b_group, orth_div_up(p->n_chunk, groups));
        p->b_blocks = 1;
    }
    p->num_packs = orth_div_up(p->n_chunk, p->b_group) * orth_div_up(p->stage_blocks, p->b_blocks);
}

static void plan_panels(orth_gemm_plan *p)
{
    p->n_task = 1;
    p->num_tasks = p->n_chunk;
    p->m_task = p->thin ? p->m_chunk : ORTH_MIN(p->m_chunk, ORTH_MAX(1, PART_ROWS / p->kernels->mr));
    p->num_parts = p->m_tasks = orth_div_up(p->m_chunk, p->m_task);
}

static void plan_workspace(orth_gemm_plan *p)
{
    const orth_gemm_kernels *kr = p->kernels;
    const size_t num_threads = (size_t)p->num_threads;
    const int64_t panel_b = (int64_t)orth_gemm_panel_b_bytes(p), panel_a = 4 * p->block_rows * kr->mr;
    const int64_t counters = (p->num_stages + 1) * p->num_tasks + (p->by_panel ? 0 : 2 * p->num_stages);
    size_t a_bytes, b_bytes;
    if (p->by_panel) {
        p->b_slot_bytes = (size_t)orth_round_up(panel_b, 64);
        a_bytes = p->thin ? (size_t)orth_round_up(p->num_blocks * p->m_panels * panel_a, 64) : 0;
        b_bytes = p->g->b_packed ? 0 : num_threads * p->b_slot_bytes;
    } else {
        p->b_slots = p->g->b_packed ? 0 : p->k_stages == 1 && p->n_chunks == 1 ? 1 : 2;
        p->a_slot_bytes = (size_t)orth_round_up(p->stage_blocks * panel_a * p->m_task, 64);
        p->b_slot_bytes = (size_t)orth_round_up(p->stage_blocks * panel_b * p->n_chunk, 64);
        a_bytes = num_threads * p->a_slot_bytes;
        b_bytes = (size_t)p->b_slots * p->b_slot_bytes;
    }
    p->own_bytes = (size_t)orth_round_up(4 * p->own_slots * kr->mr * kr->nr, 64);
    p->tile_kept_bytes = (size_t)orth_round_up(4 * p->kept_slots * kr->mr * kr->nr, 64);
    const int64_t columns = p->by_panel || p->k_stages > 1 ? p->n_task : 1;
    p->task_kept_bytes = p->tile_kept_bytes * (size_t)((p->by_panel ? p->m_chunk : p->m_task) * columns);
    const size_t keepers = p->k_stages == 1 ? num_threads : (size_t)p->num_tasks;
    p->counters_at = 0;
    p->a_at = (size_t)orth_round_up(4 * counters, 64);
    p->b_at = p->a_at + a_bytes;
    p->own_at = p->b_at + b_bytes;
    p->kept_at = p->own_at + num_threads * p->own_bytes;
    p->total_bytes = p->kept_at + keepers * p->task_kept_bytes;
}

/* A is used as it lies where K is contiguous and a dword never reaches past a leaf. */
static int64_t unpacked_stride(const orth_gemm_plan *p)
{
    const orth_gemm_desc *g = p->g;
    const int64_t stride = g->a_row * (int64_t)orth_dtype_bytes(g->in_type);
    if (!p->kernels->unpacked_a || p->thin || g->a_col != 1 || g->K == 0)
        return 0;
    for (int64_t i = 0, begin = 0; i < p->num_leaves; i++) {
        const int64_t end = orth_split_bound(&g->split, i + 1);
        if ((end - begin) % p->kernels->unit)
            return 0;
        begin = end;
    }
    return stride;
}

void orth_gemm_plan_packed(orth_gemm_plan *p, const orth_gemm_desc *g, const orth_gemm_kernels *kr,
                           int num_threads)
{
    *p = (orth_gemm_plan){.g = g, .kernels = kr, .num_threads = num_threads};
    p->n_panels = orth_div_up(g->N, kr->nr);
    p->num_leaves = g->K == 0 ? 1 : orth_split_leaves(&g->split);
    plan_k(p);
    p->n_chunk = p->n_panels;
    p->stage_blocks = p->num_blocks;
    plan_packs(p);
}

void orth_gemm_plan_make(orth_gemm_plan *p, const orth_gemm_desc *g, const orth_gemm_kernels *kr,
                         int num_threads)
{
    *p = (orth_gemm_plan){.g = g, .kernels = kr, .num_threads = num_threads};
    p->m_panels = orth_div_up(g->M, kr->mr);
    p->n_panels = orth_div_up(g->N, kr->nr);
    p->thin = orth_gemm_is_thin(g, kr);
    p->num_leaves = g->K == 0 ? 1 : orth_split_leaves(&g->split);
    p->a_stride = unpacked_stride(p);
    p->by_panel = p->thin || p->a_stride;
    plan_k(p);
    const int64_t fit = CHUNK_BYTES / (4 * ORTH_MAX(1, p->stage_blocks * p->block_rows) * kr->nr);
    const int64_t columns = p->k_stages > 1 ? CHUNK_COLUMNS / kr->nr : p->by_panel ? p->n_panels : fit;
    cut(p->m_panels, CHUNK_ROWS / kr->mr, &p->m_chunk, &p->m_chunks);
    cut(p->n_panels, columns, &p->n_chunk, &p->n_chunks);
    p->num_stages = p->m_chunks * p->n_chunks * p->k_stages;
    if (p->by_panel) {
        plan_panels(p);
    } else {
        plan_tasks(p);
        plan_packs(p);
    }
    plan_workspace(p);
}

/* Leaf i of num: a binary counter of subtrees; the last leaf takes all that is left with it
 * (tensor/parts.h). */
static orth_gemm_place place_leaf(int64_t i, int64_t num)
{
    const int depth = __builtin_popcountll((unsigned long long)i);
    const int num_older = i == num - 1 ? depth : __builtin_ctzll(~(unsigned long long)i);
    return (orth_gemm_place){depth - num_older, num_older};
}

static void piece_of_leaf(const orth_gemm_plan *p, int64_t leaf, int64_t piece, orth_gemm_block *b)
{
    const int64_t begin = orth_split_bound(&p->g->split, leaf), end = orth_split_bound(&p->g->split, leaf + 1);
    const int64_t k0 = ORTH_MIN(end, begin + piece * p->piece_len);
    const int64_t len = ORTH_MIN(end, k0 + p->piece_len) - k0;
    b->num_segments = 1;
    b->resumes = piece > 0;
    b->ends = piece == p->pieces - 1;
    b->place = place_leaf(leaf, p->num_leaves);
    b->segment[0] = (orth_gemm_segment){.k0 = k0, .len = len, .num_rows = packed_rows(p->kernels, len)};
}

void orth_gemm_block_at(const orth_gemm_plan *p, int64_t index, orth_gemm_block *b)
{
    const orth_split *split = &p->g->split;
    if (p->pieces > 1) {
        piece_of_leaf(p, index / p->pieces, index % p->pieces, b);
        return;
    }
    const int64_t first = index * p->group, num = ORTH_MIN(p->group, p->num_leaves - first);
    b->num_segments = (int)num;
    b->resumes = false;
    b->ends = true;
    b->place = place_leaf(index, p->num_blocks);
    int64_t row = 0;
    for (int64_t i = 0, k0 = p->g->K == 0 ? 0 : orth_split_bound(split, first); i < num; i++) {
        const int64_t k1 = p->g->K == 0 ? 0 : orth_split_bound(split, first + i + 1);
        const int64_t num_rows = packed_rows(p->kernels, k1 - k0);
        b->segment[i] = (orth_gemm_segment){k0, k1 - k0, row, num_rows, place_leaf(i, num)};
        row += num_rows;
        k0 = k1;
    }
}
