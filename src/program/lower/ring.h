/* ring.h -- ring_attention and its gradient, expanded: blocks of keys and values travel, two of them at a time.
 *
 * Sequences are cut into 2c blocks of positions, c ranks of CP; rank r holds block r from the front and block 2c-1-r
 * from the back. Each rank visits the blocks that its queries see in ascending order, since that is the order of the
 * sums (kernels/attention.h):
 *
 *   owner of block j  --send, started at once-->  each other rank that sees it, as it gets there
 *   rank r            block j+1 is received while j is computed; o, m, l (backward: dq) are carried
 *   backward          dk, dv of block j: summed over the ranks in their tree, to its owner, while j+1 is computed
 *
 * Blocks from the front are seen by all ranks, block 2c-1-r by ranks 0 .. r: a quarter of the volume of handing
 * everything round is never sent.
 *
 * Blocks do not go from neighbour to neighbour: ranks need unequal time for a block (those from the front, which rank
 * r < c-1 sees with fewer queries), and one that is handed on holds up the next; so each takes them from the owner.
 */
#ifndef ORTH_PROGRAM_RING_H
#define ORTH_PROGRAM_RING_H

#include "program/lower/build.h"

#define ORTH_MAX_RING 16 /* ranks */

/* in: qkv, doc, seq, step. out: o, lse. attr as of attention_part. */
void orth_build_ring_forward(orth_builder *b, const orth_attr *attr, const orth_operand *in, const orth_operand *out);
/* in: do, qkv, o, lse, doc, seq, step. out: dqkv. */
void orth_build_ring_backward(orth_builder *b, const orth_attr *attr, const orth_operand *in, const orth_operand *out);

#endif
