/* op_times.c -- see op_times.h. */
#include "plan/op_times.h"

#include <math.h>

static void product_terms(const orth_instr *n, double flops, double t[ORTH_OP_TERMS])
{
    const double out = (double)orth_operand_elems(&n->out[0]);
    const bool finishes = n->attr->act != ORTH_ACT_NONE;
    t[1] = (double)orth_operand_elems(&n->in[0]);
    t[2] = orth_instr_reads_packed(n) ? 0 : (double)orth_operand_elems(&n->in[ORTH_IN_WEIGHT]);
    t[3] = out * (1 + n->attr->num_addends);
    t[4] = finishes ? out : 0;
    t[5] = flops;
}

void orth_op_terms(const orth_instr *n, double t[ORTH_OP_TERMS])
{
    const orth_cost c = orth_instr_cost(n);
    memset(t, 0, ORTH_OP_TERMS * sizeof *t);
    t[0] = 1;
    if (orth_op_family_of(n->op) == ORTH_OPS_PRODUCT) {
        product_terms(n, c.hardware_flops, t);
        return;
    }
    t[1] = c.bytes;
    t[2] = c.hardware_flops > 0 ? c.hardware_flops / n->attr->head_dim : fmax(0, c.bytes - ORTH_OP_CACHED_BYTES);
    t[3] = c.hardware_flops;
}

void orth_call_terms(int members, double bytes, double t[ORTH_CALL_TERMS])
{
    t[0] = 1;
    t[1] = members;
    t[2] = bytes;
}

static double sum(const double *coefficients, const double *terms, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += coefficients[i] * terms[i];
    return s;
}

double orth_op_seconds(const orth_op_times *t, bool bf16, int num_threads, int cores, const orth_instr *n)
{
    const orth_times_set one = bf16 ? ORTH_TIMES_BF16_ONE : ORTH_TIMES_FP32_ONE;
    double terms[ORTH_OP_TERMS];
    orth_op_terms(n, terms);
    const double single = 1e-9 * sum(t->of[one][n->op], terms, ORTH_OP_TERMS);
    const double all = 1e-9 * sum(t->of[one + 1][n->op], terms, ORTH_OP_TERMS);
    if (num_threads <= 1 || cores <= 1)
        return single;
    if (all == 0) /* measured on one thread only, as ops of tensor parallelism are */
        return single / num_threads;
    if (single == 0)
        return all;
    return single * pow(all / single, fmin(1, log(num_threads) / log(cores)));
}

double orth_call_seconds(const orth_op_times *t, orth_comm_kind kind, int members, double bytes)
{
    double terms[ORTH_CALL_TERMS];
    orth_call_terms(members, bytes, terms);
    return 1e-9 * sum(t->call[kind], terms, ORTH_CALL_TERMS);
}

/* ---- fitting ---- */

#define SWEEPS 20000

/* Least |A x - y|^2 over x >= 0 by coordinate descent, where A^T A = q and A^T y = b: each coordinate in turn is set to its best value. */
static void descend(int n, double q[ORTH_OP_TERMS][ORTH_OP_TERMS], const double *b, double *x)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double moved = 0;
        for (int i = 0; i < n; i++) {
            double rest = b[i];
            for (int j = 0; j < n; j++)
                rest -= j == i ? 0 : q[i][j] * x[j];
            const double next = q[i][i] > 0 ? fmax(0, rest / q[i][i]) : 0;
            moved = fmax(moved, fabs(next - x[i]) * sqrt(q[i][i]));
            x[i] = next;
        }
        if (moved < 1e-12 * sqrt(fmax(b[0], 1)))
            return;
    }
}

void orth_fit_terms(int n, int num, const double *terms, const double *times, double outlier, double *x)
{
    for (int pass = 0; pass < 3; pass++) {
        double q[ORTH_OP_TERMS][ORTH_OP_TERMS] = {{0}}, b[ORTH_OP_TERMS] = {0};
        for (int k = 0; k < num; k++) {
            const double *t = terms + (size_t)k * (size_t)n;
            if (pass > 0 && times[k] > outlier * sum(x, t, n))
                continue;
            for (int i = 0; i < n; i++) {
                b[i] += t[i];
                for (int j = 0; j < n; j++)
                    q[i][j] += t[i] * t[j] / times[k];
            }
        }
        for (int i = 0; i < n; i++)
            x[i] = 0;
        descend(n, q, b, x);
    }
}
