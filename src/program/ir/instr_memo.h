/* instr_memo.h -- what was found out about an instruction, for others like it.
 *
 * A program has hundreds of instructions of each node: one op with the same attributes on operands of the same shapes, for other layers
 * and micro-batches. What follows from op, attributes and shapes alone is found once.
 */
#ifndef ORTH_PROGRAM_INSTR_MEMO_H
#define ORTH_PROGRAM_INSTR_MEMO_H

#include "program/ir/program.h"

#define ORTH_MEMO_SLOTS 256

/* Zeroed it is empty. It points to instructions, which outlive it and do not change meanwhile. */
typedef struct {
    const orth_instr *of[ORTH_MEMO_SLOTS];
} orth_instr_memo;

static inline bool orth_operands_alike(const orth_operand *a, const orth_operand *b)
{
    return (a->buffer < 0) == (b->buffer < 0) && a->num_dims == b->num_dims && a->dtype == b->dtype && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

static inline bool orth_instrs_alike(const orth_instr *a, const orth_instr *b)
{
    bool alike = a->op == b->op && a->attr == b->attr && a->num_in == b->num_in && a->num_out == b->num_out && a->recomputed == b->recomputed;
    for (int k = 0; alike && k < orth_instr_num_operands(a); k++)
        alike = orth_operands_alike(orth_instr_operand(a, k), orth_instr_operand(b, k));
    return alike;
}

/* The slot of n. *known: it was that of an instruction like n before, and what the caller keeps for it holds of n; else it is n's from now on. */
static inline int orth_instr_memo_find(orth_instr_memo *m, const orth_instr *n, bool *known)
{
    const orth_operand *o = orth_instr_num_operands(n) > 0 ? orth_instr_operand(n, 0) : &orth_operand_absent;
    const uint64_t hash = ((uint64_t)(uintptr_t)n->attr / 64 + 31 * (uint64_t)n->op + 1021 * (uint64_t)(n->node + 1) + 7919 * (uint64_t)o->dim[0] +
                           65537 * (uint64_t)o->dim[1]) * 0x9e3779b97f4a7c15u;
    const int slot = (int)(hash >> 56) % ORTH_MEMO_SLOTS;
    *known = m->of[slot] && orth_instrs_alike(m->of[slot], n);
    m->of[slot] = n;
    return slot;
}

#endif
