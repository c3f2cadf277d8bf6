/* programs.h -- the programs of all ranks of a layout, each compiled once.
 *
 * Of every class of ranks (parallel/classes.h) one program is compiled, placed and checked, when somebody asks for it first, and
 * kept. The plan, the check of all ranks together, the simulation, timelines and the ranks that run read these. Ranks of a class at
 * other tensor-parallel positions have other numbers in attributes, with which they cannot run the same program: one more is compiled for
 * each such position when its first rank is about to run.
 *
 *   dp=4 tp=4, 16 ranks  --plan-->  2 classes, 2 programs  --run-->  4 programs, each of which 4 ranks share
 */
#ifndef ORTH_PLAN_PROGRAMS_H
#define ORTH_PLAN_PROGRAMS_H

#include <pthread.h>

#include "parallel/classes.h"
#include "program/check/check_ranks.h"
#include "program/passes/place.h"

/* A compiled, checked and placed program with the graphs that its names live in. */
typedef struct {
    orth_model_blocks blocks;
    orth_program program;
    bool shared;              /* the blocks are those of another, which outlives this */
} orth_compiled;

/* ORTH_ERR_ARG, ORTH_ERR_NOMEM. On failure there is nothing to release. */
orth_status orth_compiled_build(orth_ctx *ctx, const orth_model_config *model, const orth_model_shape *shape,
                                orth_compiled *out);
/* For a rank with num_threads threads, which workspaces depend on, instead of those of ctx. memory: of orth_place, or NULL. */
orth_status orth_compiled_build_for(orth_ctx *ctx, const orth_model_config *model, const orth_model_shape *shape,
                                    int num_threads, orth_place_memory *memory, orth_compiled *out);
void orth_compiled_release(orth_compiled *u);

/* What programs are compiled from. */
typedef struct {
    const orth_partition *partition;    /* these two outlive the programs */
    const orth_model_config *model;
    orth_model_shape step;            /* what is the same on all ranks of a training step */
    orth_model_shape eval;            /* and of an evaluation, which reads the weights of the step */
    bool evaluates;
    int num_threads;                  /* of a rank */
    size_t first_rank_bytes;          /* that rank 0 needs beside its program */
    size_t rank_limit, total_limit;   /* for recomputation AUTO (plan/recompute_auto.h): bytes of each rank (of its device, where the
                                         run offloads), and of all; 0: none */
    size_t space_limit[ORTH_NUM_SPACES]; /* for the same, of a run that offloads: bytes of all ranks in the host's memory, and in files; 0: none. That
                                            of a device is rank_limit */
    const char *limit_of;             /* what sets rank_limit, for messages; NULL: memory.recompute_limit */
    bool least_if_none;               /* where nothing keeps these limits: the choice that needs the least, instead of an error */
} orth_programs_spec;

/* The programs of a rank of a run: its training step and, of a run that evaluates, an evaluation, for which the memory of
 * the step makes room (orth_place_reserve). */
typedef struct {
    orth_model_shape shape;   /* of the step */
    orth_compiled step, eval;
    bool evaluates;
} orth_rank_programs;

/* Compiles those of one rank. memory: of orth_place, or NULL. chunks [num_chunks of the schedule]: room, outlives the programs. */
orth_status orth_rank_programs_build(orth_ctx *ctx, const orth_programs_spec *spec, int rank, orth_place_memory *memory,
                                     orth_chunk *chunks, orth_rank_programs *out);
void orth_rank_programs_release(orth_rank_programs *u);

typedef struct {
    orth_programs_spec spec;
    orth_ctx *ctx;                  /* that of orth_programs_make, which outlives the ranks that ask */
    orth_classes classes;
    orth_place_memory places;
    orth_rank_programs **of;        /* [num_ranks] at the lowest of the ranks that share them; NULL: not compiled yet */
    orth_arena arena;
    pthread_mutex_t lock;           /* on what is compiled while ranks run */
} orth_programs;

/* ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_programs_make(orth_ctx *ctx, orth_programs *out, const orth_programs_spec *spec);
void orth_programs_release(orth_ctx *ctx, orth_programs *p);

/* The training step of the rank's class, bound to the rank's shards until the next call for a rank of its class. By one thread at
 * a time. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_programs_of(orth_ctx *ctx, orth_programs *p, int rank, const orth_compiled **out);

/* What `rank` runs, which the caller releases before p. All that ranks have in common lies in p, and is only read: graphs, instructions,
 * events, operands, offsets; with shards a rank has copies of what it binds to its own (orth_program_share). The threads of a run may
 * call it at once, and nobody calls anything else meanwhile. chunks: as above. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_programs_take(orth_ctx *ctx, orth_programs *p, int rank, orth_chunk *chunks, orth_rank_programs *out);

/* For check and simulation; points to p. */
orth_rank_source orth_programs_source(orth_programs *p);

/* A layout of a model, checked before a byte moves: the programs of all ranks together (program/check/check_ranks.h). `shape`: what
 * is the same on all ranks. ORTH_ERR_INTERNAL with the first broken rule, naming ranks, instructions, ops and buffers;
 * ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_check_layout(orth_ctx *ctx, const orth_partition *partition, const orth_model_config *model,
                              const orth_model_shape *shape);

#endif
