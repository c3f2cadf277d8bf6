/* compile.c -- see compile.h. */
#include "program/compile.h"

#include "program/passes/fetch.h"
#include "program/passes/keep_packed.h"
#include "program/passes/offload_activations.h"
#include "program/passes/overlap.h"

orth_status orth_compile(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out)
{
    const orth_offload *o = &spec->offload;
    ORTH_TRY(orth_lower(ctx, spec, out));
    if (spec->keep_packed)
        ORTH_TRY(orth_keep_packed(ctx, out));
    if (o->params != ORTH_TIER_NONE || o->gradients != ORTH_TIER_NONE)
        ORTH_TRY(orth_fetch_ahead(ctx, out, &spec->comm));
    if (spec->comm.overlap)
        ORTH_TRY(orth_overlap(ctx, out, &spec->comm));
    if (o->activations != ORTH_TIER_NONE && spec->mode == ORTH_MODE_TRAIN)
        ORTH_TRY(orth_offload_activations(ctx, out, orth_tier_space(o->activations), (size_t)o->min_bytes));
    return ORTH_OK;
}
