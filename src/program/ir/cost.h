/* cost.h -- what an instruction costs: FLOPs and bytes, from its shapes alone.
 *
 * FLOPs count multiply and add of matrix products and attention; pointwise work counts as bytes only.
 * Attention is causal: half of the square. `model` leaves out what is computed again (probabilities
 * in the backward of blocked attention, recomputed layers): model FLOPs over time over peak is MFU,
 * hardware FLOPs HFU. Per token this gives 6N + 6*L*H*D*T with N the weights of all products
 * (Chowdhery et al., PaLM, arXiv:2204.02311, appendix B, with half of its attention term, which is not causal).
 */
#ifndef ORTH_PROGRAM_COST_H
#define ORTH_PROGRAM_COST_H

#include "program/ir/program.h"

typedef struct {
    double model_flops, hardware_flops;
    double bytes;      /* of all operands, each read or written once */
    double terms;      /* matrix products: that each element of the output is the sum of; 0: no product */
} orth_cost;

orth_cost orth_instr_cost(const orth_instr *i);
/* Sum over all instructions: one step of this rank. */
orth_cost orth_program_cost(const orth_program *p);
/* Of the instructions that differ between the ranks that share the program (passes/views.h). */
orth_cost orth_program_cost_of_own(const orth_program *p);

#endif
