/* op_times.h -- what ops and collectives take on a machine that was measured (`orthant doctor --calibrate`), as sums of terms.
 *
 * The time of an op is the sum of its terms, each times a coefficient of the op that was fitted to measured times:
 *   products            1, elements of the first factor, of the second (0: it is packed), of the result and its addends, of a result
 *                       with an activation, FLOPs
 *   attention           1, bytes, scores (FLOPs over head dim), FLOPs
 *   all others          1, bytes, bytes beyond ORTH_OP_CACHED_BYTES
 * So a product of few rows, whose weight is read and packed for little work, takes longer for each of its FLOPs than a large one.
 * There is a set of coefficients for each compute type, on one thread while the other cores are busy, too, and on all threads.
 * Coefficients are in ns per unit of the term, and at least 0.
 */
#ifndef ORTH_PLAN_OP_TIMES_H
#define ORTH_PLAN_OP_TIMES_H

#include "comm/comm.h"
#include "program/ir/cost.h"

#define ORTH_OP_TERMS 6
#define ORTH_CALL_TERMS 3
#define ORTH_OP_CACHED_BYTES 4194304.0

typedef enum { ORTH_TIMES_FP32_ONE = 0, ORTH_TIMES_FP32_ALL, ORTH_TIMES_BF16_ONE, ORTH_TIMES_BF16_ALL, ORTH_NUM_TIMES } orth_times_set;

/* A row that is all zero was not measured. */
typedef struct {
    double of[ORTH_NUM_TIMES][ORTH_NUM_OPS][ORTH_OP_TERMS];
    double call[ORTH_NUM_COMM_KINDS][ORTH_CALL_TERMS];  /* 1, members of the group, bytes that the member copies */
} orth_op_times;

void orth_op_terms(const orth_instr *n, double terms[ORTH_OP_TERMS]);
/* bytes: that the member sends, or receives as a message. */
void orth_call_terms(int members, double bytes, double terms[ORTH_CALL_TERMS]);

/* Seconds of a computing instruction of a run in this compute type, on so many of `cores` threads. Between one and all threads
 * by a power of their number. 0: the op was not measured. */
double orth_op_seconds(const orth_op_times *t, bool bf16, int num_threads, int cores, const orth_instr *n);
/* Of a call of one member; 0: its kind was not measured. */
double orth_call_seconds(const orth_op_times *t, orth_comm_kind kind, int members, double bytes);

/* The coefficients, none of them negative, with the least sum of squared errors over times, of times [num] that have these terms [num][n]: the sum
 * of all times is then met. What is more than `outlier` times the fitted time is left out, and the rest fitted again. n <= ORTH_OP_TERMS. */
void orth_fit_terms(int n, int num, const double *terms, const double *times, double outlier, double *coefficients);

#endif
