/* check_layout.h -- a layout of a model, checked before a byte moves.
 *
 * The programs of all ranks are compiled, only those that differ and one at a time, and looked at together
 * (program/check/check_ranks.h). 1,024 ranks take seconds: see tests/test_check.c.
 */
#ifndef ORTH_PARALLEL_CHECK_LAYOUT_H
#define ORTH_PARALLEL_CHECK_LAYOUT_H

#include "parallel/classes.h"
#include "program/check/check_ranks.h"

/* `shape` says what is the same on all ranks (mode, sequence length, types, optimizer); the rest of it is
 * filled in for each rank by orth_spread_shape. Local: one rank does it, or each. ORTH_ERR_INTERNAL with the
 * first broken rule, naming ranks, instructions, ops and buffers; ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_check_layout(orth_ctx *ctx, const orth_spread *spread, const orth_model_config *model,
                              const orth_model_shape *shape);

/* Hands fn the programs of all ranks, one at a time and only while it runs: of each class (classes.h) that of its lowest rank.
 * What fn returns. */
typedef orth_status (*orth_programs_fn)(orth_ctx *ctx, void *user, const orth_rank_source *source);
orth_status orth_with_programs(orth_ctx *ctx, const orth_spread *spread, const orth_model_config *model,
                               const orth_model_shape *shape, orth_programs_fn fn, void *user);

#endif
