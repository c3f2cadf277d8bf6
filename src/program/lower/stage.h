/* stage.h -- what compile.c keeps of the chunks of a rank, and which blocks of a chunk are made again (stage.c). */
#ifndef ORTH_PROGRAM_STAGE_H
#define ORTH_PROGRAM_STAGE_H

#include "program/lower/build.h"

/* What one micro-batch leaves behind in a chunk between its forward and its backward. */
typedef struct {
    orth_block_env embed, final;
    orth_block_env *layers;     /* [num_layers of the chunk] */
    orth_operand normed;   /* output of the final norm */
    orth_operand *parts;   /* [num_layers] of inputs, what this rank keeps; NULL: inputs are not split */
    orth_operand handed, handed_back; /* to a chunk on the same rank: activation up, gradient down */
} orth_chunk_state;

typedef struct {
    orth_builder *b;
    const orth_chunk *chunks;
    int32_t num_chunks;
    orth_chunk_state *states;   /* [num_chunks][num_micro_batches] */
    const bool **again;    /* [layers of the model] nodes of each (recompute.h); NULL: everything is kept */
    const bool *all;       /* marks for any graph: all nodes */
} orth_stage;

/* memory.recompute=all: the layers of a chunk are one group, with the embedding and the final norm. */
bool orth_stage_is_one_group(const orth_stage *st);
/* Decides which nodes are made again, before the first action. false: no memory. */
bool orth_stage_mark(orth_stage *st);
/* Before the forward of layer l of the chunk, whose input is x. */
void orth_stage_keep_part(orth_stage *st, const orth_chunk *c, orth_chunk_state *m, int32_t l, orth_operand x);
/* After the forward of a chunk. */
void orth_stage_forget(orth_stage *st, const orth_chunk *c, orth_chunk_state *m);
/* Before the backward of layer l of the chunk: where it is the last of its group, the group's input is gathered, if it was split, and
 * the layers before it in the group are made again, so that its input is there. The others find theirs. */
void orth_stage_make_group(orth_stage *st, const orth_chunk *c, orth_chunk_state *m, int32_t l);
/* One group: the final norm waits for the backward, for which all layers are made again. */
void orth_stage_make_final(orth_stage *st, const orth_chunk *c, orth_chunk_state *m);

#endif
