/* fetch.h -- parameters that are kept in another space come before the block that reads them has its turn. */
#ifndef ORTH_PROGRAM_FETCH_H
#define ORTH_PROGRAM_FETCH_H

#include "program/ir/comm_policy.h"
#include "program/ir/program.h"

/* Rewrites a compiled program that is not placed yet. What a block copies from another space (lower/far.c) is started where the block
 * policy->prefetch blocks earlier copies its own, or later, so that what is copied ahead stays within policy->prefetch_bytes; one block
 * earlier yet where ZeRO 3 gathers what is copied. ORTH_ERR_NOMEM. */
orth_status orth_fetch_ahead(orth_ctx *ctx, orth_program *p, const orth_comm_policy *policy);

#endif
