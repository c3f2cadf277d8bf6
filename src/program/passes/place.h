/* place.h -- exact addresses for every buffer of a program, before anything is allocated: in one arena for each memory space.
 *
 * Persistent buffers come first, class by class; then one region into which transient buffers are
 * packed by their lives (offline dynamic storage allocation: several greedy orders are tried and the
 * smallest kept, until one needs no more than lives at once, or with thousands of buffers less than 1 % more); then the workspace that all instructions of the compute queue share.
 * A chain of buffers is one to both, and is aligned as a whole only.
 * Ops that may work in place (rope, add, dropout) take over the bytes of an operand that dies there.
 */
#ifndef ORTH_PROGRAM_PLACE_H
#define ORTH_PROGRAM_PLACE_H

#include "program/ir/program.h"

/* Placements that were found, for programs whose transient buffers have the same sizes and lives: those of most ranks of a
 * stage. Zeroed it is empty; it forgets the oldest first. */
typedef struct orth_place_found orth_place_found;
typedef struct {
    orth_place_found *found;   /* [ORTH_PLACE_MEMORY]; NULL: nothing yet */
    int64_t num;               /* that there ever were */
} orth_place_memory;
#define ORTH_PLACE_MEMORY 64
void orth_place_forget(orth_ctx *ctx, orth_place_memory *m);

/* Fills lives, aliases, offsets, the sizes of the arenas and what each class takes of them, and the workspace buffer, which
 * depends on the threads and instruction set that the kernels will use. Once per program. Looks for the placement in
 * `memory` (NULL: nowhere), and leaves there what it finds; the result is the same. ORTH_ERR_NOMEM. */
orth_status orth_place(orth_ctx *ctx, orth_program *p, int num_threads, orth_isa isa, orth_place_memory *memory);

/* Bytes of transient buffers of a space that live while each instruction of a placed program runs, with what aligns them:
 * live [num_instrs]. */
void orth_place_live(const orth_program *p, orth_space space, int64_t *live);

/* After the sizes of persistent buffers of a placed program have changed (orth_program_bind): all of them, and the regions behind,
 * move to where orth_place would have put them. */
void orth_place_again(orth_program *p);

/* Makes the regions of p's transient buffers large enough for all of `guest`, a program that runs in them by turns with p
 * (an evaluation between training steps). Both are placed; nothing is mapped yet. */
void orth_place_reserve(orth_program *p, const orth_program *guest);

#endif
