/* rewrite.h -- what the passes stand on: the old list of a program, which of its instructions use which buffer, and a new list.
 *
 *     orth_rewrite_begin    the program's list becomes r->old, with its uses; the program has an empty list
 *     decide                by r->old and r->uses
 *     orth_rewrite_reach    the new list has come to where old instruction i stood: of each i, in order, and of the end
 *     orth_program_append   old instructions, changed ones and new ones, in the new order
 *     orth_rewrite_end      the old list is gone
 *
 * A pass may add buffers. It leaves r->old as it is: the new list shares its operands.
 */
#ifndef ORTH_PROGRAM_REWRITE_H
#define ORTH_PROGRAM_REWRITE_H

#include "program/ir/program.h"

/* An operand in a buffer. */
typedef struct {
    int32_t instr;          /* in the old list */
    bool writes;            /* else it reads */
} orth_use;

typedef struct {
    orth_ctx *ctx;
    orth_program *p;
    orth_instr *old;        /* [num] */
    int32_t num;
    orth_use *uses;         /* those of buffer b in ascending order: [first_use[b], first_use[b + 1]) */
    int32_t *first_use;     /* [buffers of the old list + 1] */
    int32_t *at;            /* [num + 1] what was the end of the new list when it came to i: for orth_instr.until */
} orth_rewrite;

/* ORTH_ERR_NOMEM; there is nothing to end then, and the program is not to be used. */
orth_status orth_rewrite_begin(orth_ctx *ctx, orth_program *p, orth_rewrite *r);
void orth_rewrite_reach(orth_rewrite *r, int32_t i);
/* `until` of the new list, so far numbers in the old one, become its own. Returns what orth_program_done does. */
orth_status orth_rewrite_end(orth_rewrite *r);

/* Where in `uses` those of the buffer behind instruction i begin. */
int32_t orth_uses_behind(const orth_rewrite *r, int32_t buffer, int32_t i);

/* The first instruction behind i that conflicts with it: one of both writes bytes that the other names. r->num: there is none. */
int32_t orth_conflict_behind(const orth_rewrite *r, int32_t i);
/* The last instruction before i that writes a buffer that i reads, or names one that i writes; -1. Buffers count as a whole:
 * an empty piece of one is made before it is used, too. */
int32_t orth_conflict_before(const orth_rewrite *r, int32_t i);

#endif
