/* gemm_plan.h -- how one product is cut up; see gemm_plan.c for the reasons. Pure arithmetic. */
#ifndef ORTH_KERNELS_CPU_GEMM_PLAN_H
#define ORTH_KERNELS_CPU_GEMM_PLAN_H

#include "kernels/cpu/gemm_kernels.h"

#define ORTH_GEMM_MAX_GROUP 64      /* leaves in a block */

/* Where a finished subtree goes: on top of `slot` older ones, after num_older of them were added to it. */
typedef struct {
    int slot, num_older;
} orth_gemm_place;

/* A run of packed rows of one block that belongs to one leaf. */
typedef struct {
    int64_t k0, len;                /* along K, in elements */
    int64_t row, num_rows;          /* packed rows, within the block */
    orth_gemm_place place;          /* among the subtrees of the block */
} orth_gemm_segment;

/* What is done with one block. The subtrees of whole blocks, or of whole leaves of several blocks, are the
 * leaves of an upper tree: those wait in slots that are kept from block to block. */
typedef struct {
    orth_gemm_segment segment[ORTH_GEMM_MAX_GROUP];
    int num_segments;
    bool resumes, ends;             /* is not the first, is the last block of its leaf of the upper tree */
    orth_gemm_place place;          /* of that leaf */
} orth_gemm_block;

typedef struct {
    const orth_gemm_desc *g;
    const orth_gemm_kernels *kernels;
    /* K: leaves -> blocks -> stages */
    int64_t num_leaves;
    int64_t pieces, piece_len;      /* blocks of a long leaf, and their length in k; or pieces = 1 and */
    bool adds_pieces;               /* each is a chain of its own (orth_gemm_desc.interval), not the next part of one */
    int64_t group;                  /* leaves of a block */
    int64_t num_blocks, block_rows; /* block_rows: room for the packed rows of any block */
    int64_t stage_blocks, k_stages;
    int own_slots, kept_slots;      /* of a tile: within a block; from block to block */
    /* M and N, in panels of mr and nr: chunks -> tasks */
    int64_t m_panels, n_panels;
    int64_t m_chunk, n_chunk, m_chunks, n_chunks;
    int64_t m_task, n_task;         /* of panels: m_task is what is drawn at once of a task's rows */
    int64_t m_tasks;                /* of them side by side in a chunk of M */
    int64_t n_part;                 /* of stages: what is drawn at once of a task's columns */
    int64_t num_parts;              /* of a task, drawn one by one */
    int64_t num_packs, num_tasks;   /* per stage: packing, computing */
    int64_t b_group, b_blocks;      /* panels and blocks that one packing task takes */
    int64_t num_stages;
    int num_threads;
    int64_t a_stride;               /* bytes between rows of an A that is used as it lies; 0: it is packed */
    bool thin;                      /* few rows: A is packed once, whole */
    bool by_panel;                  /* B is packed by the thread that needs it */
    /* workspace, in bytes from its start */
    size_t counters_at, a_at, b_at, own_at, kept_at, total_bytes;
    size_t a_slot_bytes, b_slot_bytes, own_bytes, tile_kept_bytes, task_kept_bytes;
    int b_slots;                    /* of stages; 0: B is packed beforehand */
} orth_gemm_plan;

/* Few rows of C: a panel of B is used once or twice, and its blocks are short. */
static inline bool orth_gemm_is_thin(const orth_gemm_desc *g, const orth_gemm_kernels *kr)
{
    return !g->b_packed && g->M <= 2 * kr->mr;
}

void orth_gemm_plan_make(orth_gemm_plan *p, const orth_gemm_desc *g, const orth_gemm_kernels *kernels,
                         int num_threads);

/* How B is packed beforehand, for products of more rows: K as there, and packing tasks of the whole of it. */
void orth_gemm_plan_packed(orth_gemm_plan *p, const orth_gemm_desc *g, const orth_gemm_kernels *kernels,
                           int num_threads);

/* Of a panel of B, one block of K. B packed beforehand is [num_blocks][n_panels] of them. */
static inline size_t orth_gemm_panel_b_bytes(const orth_gemm_plan *p)
{
    return (size_t)(4 * p->block_rows * p->kernels->nr);
}

void orth_gemm_block_at(const orth_gemm_plan *p, int64_t index, orth_gemm_block *b);

#endif
