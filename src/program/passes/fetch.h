/* fetch.h -- parameters and sums of gradients that are kept in another space come before what reads them has its turn. */
#ifndef ORTH_PROGRAM_FETCH_H
#define ORTH_PROGRAM_FETCH_H

#include "program/ir/comm_policy.h"
#include "program/ir/program.h"

/* Rewrites a compiled program that is not placed yet. What a block copies from another space (lower/far.c) is started where the block
 * policy->prefetch blocks earlier copies its own, or later, so that what is copied ahead stays within policy->prefetch_elems; one block
 * earlier yet where ZeRO 3 gathers what is copied. A partial sum of a gradient is started while the product adds to the one before it, within a
 * micro-batch. With policy->prefetch = 0 all stand where they are. ORTH_ERR_NOMEM. */
orth_status orth_fetch_ahead(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy);

#endif
