/* peak.h -- what is in a rank's memory when most is: buffers, the largest first, and activations by layer and op. */
#ifndef ORTH_PLAN_PEAK_H
#define ORTH_PLAN_PEAK_H

#include "base/json_out.h"
#include "program/ir/program.h"

/* When most is live: the instruction during which that is. */
typedef struct {
    orth_op op;
    orth_phase phase;
    int32_t layer, micro_batch;  /* -1: of none */
} orth_peak_moment;
orth_peak_moment orth_peak_moment_of(const orth_program *p, orth_space space);
/* "backward, layer 3, micro-batch 0", and as an object of JSON. */
void orth_peak_add_moment(orth_ctx *ctx, orth_text *out, const orth_peak_moment *m);
void orth_peak_moment_json(orth_json_out *j, const char *key, const orth_peak_moment *m);

/* Rows for people, about rank `rank`'s placed program p: the `rows` largest buffers of each space in which it has an arena, and the
 * activations among all by layer and by op. Failures are noted in *out. */
void orth_peak_add_text(orth_ctx *ctx, orth_text *out, const orth_program *p, bool on_devices, int rank, int rows);

/* The same as JSON: an object for each space, into an array (docs/formats/run.md). */
void orth_peak_add_json(orth_json_out *j, const orth_program *p, bool on_devices, int rank, int rows);
#endif
