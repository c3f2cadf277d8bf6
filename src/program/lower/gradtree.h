/* gradtree.h -- which finished partial sums each new partial gradient is added to.
 *
 * Leaves (sequences, or parts of sequences) arrive in ascending order, in aligned runs of a power
 * of two. The stack of unfinished nodes works as a binary counter: a run that meets a node of its
 * own size to its left merges with it, and so on upwards; the last run of the step also takes what
 * is left, from the top of the stack down: the aligned tree of tensor/parts.h. Leaves that begin elsewhere than at 0
 * (`next` set before the first run), or have no last run, end as the largest nodes of that tree that they contain.
 *
 *     run 0   run 1        run 2   run 3
 *     [0]     [0]+r1 = [0] [0][1]  [0] = [0] + ([1] + r3)        [slot]
 */
#ifndef ORTH_PROGRAM_GRADTREE_H
#define ORTH_PROGRAM_GRADTREE_H

#include <stdbool.h>
#include <stdint.h>

/* A step has at most 2^24 leaves over all ranks (a rule of parallel/layout_rules.c). From this follow the sizes of all
 * arrays for addends and slots:
 *  - a run merges with at most one node of each size, so it has at most 24 addends; one more joins the two sums of a
 *    tied parameter;
 *  - the slots of leaves that begin at 0 have falling sizes; where leaves begin elsewhere, sizes rise and then fall. */
#define ORTH_GRADTREE_MAX_LOG2 24
#define ORTH_GRADTREE_MAX_LEAVES ((int64_t)1 << ORTH_GRADTREE_MAX_LOG2)
#define ORTH_GRADTREE_MAX_ADDENDS (ORTH_GRADTREE_MAX_LOG2 + 1)
#define ORTH_GRADTREE_MAX_DEPTH (2 * (ORTH_GRADTREE_MAX_LOG2 + 1))

typedef struct {
    int64_t next;                          /* leaf at which the next run begins */
    int32_t depth;
    int64_t size[ORTH_GRADTREE_MAX_DEPTH]; /* leaves of the unfinished node in each slot */
} orth_gradtree;

/* Size of the aligned run that starts at leaf `begin`, at most `end - begin`. */
int64_t orth_gradtree_run(int64_t begin, int64_t end);

/* Adds a run of `size` leaves. Writes the slots to add, in order, to addends[0 .. *num_addends) and
 * returns the slot that receives the result (it is the last addend's, if there is one). */
int32_t orth_gradtree_push(orth_gradtree *t, int64_t size, bool last, int32_t *addends, int32_t *num_addends);

/* The same where the order does not matter: all is added to slot 0. */
int32_t orth_gradtree_push_running(orth_gradtree *t, int64_t size, int32_t *addends, int32_t *num_addends);

#endif
