/* memory.h -- bytes of memory by space and class, planned or counted: their sums, and the `memory` object of plan.json and
 * memory.json (docs/formats/run.md). */
#ifndef ORTH_PLAN_MEMORY_H
#define ORTH_PLAN_MEMORY_H

#include "base/json_out.h"
#include "program/ir/program.h"

/* Bytes of each class in each space. */
typedef struct {
    size_t of[ORTH_NUM_SPACES][ORTH_NUM_CLASSES];
} orth_memory;

/* What a rank has outside of its arenas. */
typedef enum {
    ORTH_OUTSIDE_COMM_SCRATCH = 0, /* heap: sums and blocks on their way (comm/comm.h) */
    ORTH_OUTSIDE_LOADER,           /* heap: sequences of this step and the next (data/loader.h) */
    ORTH_OUTSIDE_FILE_BUFFERS,     /* pages: of transfers to and from its file (base/scratch.h) */
    ORTH_OUTSIDE_STACKS,           /* of its computing threads and of the loader's; planned: an allowance */
    ORTH_NUM_OUTSIDE
} orth_outside_kind;
typedef struct {
    size_t of[ORTH_NUM_OUTSIDE];
} orth_outside;
const char *orth_outside_name(orth_outside_kind k);
/* {"comm_scratch": ..., ...} */
void orth_outside_json(orth_json_out *j, const char *key, const orth_outside *o);

/* An arena over the step. */
typedef struct {
    size_t between_steps;    /* persistent buffers */
    size_t peak;             /* live when most is */
    size_t reserved;         /* mapped: with gaps between buffers, and room for an evaluation */
} orth_arena_use;
/* What JSON calls space s, where kernels work in `kernels`. A program that offloads nothing has one space, which it calls the host's; of a plan for devices
 * (on_devices) that is the device's memory, and is named so. */
const char *orth_memory_space_name(orth_space s, orth_space kernels, bool on_devices);

/* {"host": {"between_steps": ..., ...}} of the spaces that have bytes. */
void orth_arenas_json(orth_json_out *j, const char *key, const orth_arena_use a[ORTH_NUM_SPACES], bool on_devices);

size_t orth_memory_of_class(const orth_memory *m, orth_class c);
size_t orth_memory_of_space(const orth_memory *m, orth_space s);
/* Where kernels work: on the device, once something is elsewhere; else in the host's memory, which is all. */
orth_space orth_memory_of_kernels(const orth_memory *m);

/* {"params": ..., "total": ..., "spaces": {"host": {"params": ..., "total": ...}}}: sums over spaces, then each space that has bytes. */
void orth_memory_json(orth_json_out *j, const char *key, const orth_memory *m, bool on_devices);

/* Rows for people: a section for each space that has bytes, headed "memory of WHOSE" and, where there are several, the space. */
void orth_memory_add_rows(orth_ctx *ctx, orth_text *out, const orth_memory *m, const char *whose);
#endif
