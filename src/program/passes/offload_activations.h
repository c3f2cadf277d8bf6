/* offload_activations.h -- the pass that lets activations leave the device while nobody reads them (memory.offload_activations).
 *
 *     compute     forward 0 | forward 1 | forward 2 | ...        | backward 2 | backward 1 | backward 0
 *     copy out              | of 0      | of 1      | ...
 *     copy in                                       ...     of 1 |            | of 0       |
 *
 * A buffer of a finished program that nobody names for long becomes several: one on the device up to its last use before the gap,
 * one in the host's memory or in a file for the gap, one on the device from the first use behind it. Which layout, schedule or
 * policy of recomputation made the gap does not matter: a saved activation, the input of a layer that is made again, and a
 * gradient that a split schedule keeps for its weight gradients are all the same here.
 *
 * Distances are measured in computing: one *stretch* is what the forward of a layer takes of a micro-batch, in FLOPs. A copy out is
 * started behind the last use, and its source keeps its room for one stretch; a copy in is started one stretch before the first
 * use. So a layer's activations travel while the next layer computes, and about one layer's are on their way in each direction. A gap
 * shorter than three stretches stays as it is: of less, more would be spent on the way than away. To a file bytes go through the
 * host's memory, with a stretch for each of the two copies, so that a gap has five.
 *
 * Source: Rhu et al., "vDNN", arXiv:1602.08124; Rajbhandari et al., "ZeRO-Infinity", arXiv:2104.07857, section 5.
 */
#ifndef ORTH_PROGRAM_OFFLOAD_ACTIVATIONS_H
#define ORTH_PROGRAM_OFFLOAD_ACTIVATIONS_H

#include "program/ir/program.h"

/* Activations of at least min_bytes go to space `to`, HOST or FILE; the program's own is another. After orth_overlap, before
 * orth_place. ORTH_ERR_NOMEM. */
orth_status orth_offload_activations(orth_ctx *ctx, orth_program *p, orth_space to, size_t min_bytes);

#endif
