/* print.h -- a program as text, for people. */
#ifndef ORTH_PROGRAM_PRINT_H
#define ORTH_PROGRAM_PRINT_H

#include <stdio.h>

#include "program/ir/program.h"

/* One line per instruction: number, phase, micro-batch, layer, outputs = op(inputs), arena offset of the
 * first output, its queue if that is not the one of computing, the events that it waits for. layer >= -1: only instructions of
 * this layer (num_layers: final norm and head; -1: embedding and update); micro_batch >= 0: only of this micro-batch;
 * ORTH_PRINT_ALL: no filter. */
#define ORTH_PRINT_ALL (-2)
void orth_print_program(FILE *out, const orth_program *p, int32_t layer, int32_t micro_batch);

/* The memory map: persistent bytes per class, then a bar of live transient bytes for each of about
 * `rows` stretches of the step, with the buffer that is largest there. */
orth_status orth_print_memory(FILE *out, const orth_program *p, int rows);

#endif
