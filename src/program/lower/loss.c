/* loss.c -- the loss of a step, from the losses of its sequences, along a route of its own (route.h): the same tree as that
 * of the gradients. */
#include "program/lower/build.h"

static void reduce(orth_builder *b, orth_group group, const orth_operand *x)
{
    orth_build_emit(b, ORTH_OP_all_reduce, &(orth_attr){.group = group}, 1, x, 1, x);
}

/* Uneven shares: all ranks get the losses of all sequences. */
static orth_operand gather(orth_builder *b, orth_group group, orth_operand leaves)
{
    orth_operand all = leaves;
    all.dim[0] = 0;
    for (int32_t r = 0; r < orth_build_size(b, group); r++)
        all.dim[0] += b->spec->shares[r];
    all = orth_build_temp(b, "seq_loss.all", all);
    orth_instr *i = orth_build_emit(b, ORTH_OP_all_gather, &(orth_attr){.group = group}, 1, &leaves, 1, &all);
    if (i)
        i->counts = b->spec->shares;
    return all;
}

/* The sum of each of out->dim[0] equal runs of x. */
static void add_runs(orth_builder *b, const orth_operand *x, const orth_operand *out)
{
    const int64_t runs = out->dim[0], run = x->dim[0] / runs;
    for (int64_t j = 0; j < runs; j++) {
        orth_operand of = orth_operand_rows(*x, run * j, run * (j + 1)), sum = orth_operand_rows(*out, j, j + 1);
        orth_build_emit(b, ORTH_OP_tree_acc_f64, &(orth_attr){0}, 1, &of, 1, &sum);
    }
}

void orth_build_loss(orth_builder *b, bool computes)
{
    const orth_compile_spec *s = b->spec;
    orth_operand loss = orth_build_vector(b->loss, ORTH_F64, 0, 1);
    orth_route r;
    if (!computes) {
        orth_build_emit(b, ORTH_OP_zero, &(orth_attr){0}, 0, NULL, 1, &loss);
        return;
    }
    orth_operand x = orth_build_vector(b->seq_loss, ORTH_F64, 0, (int64_t)s->num_micro_batches * s->num_seqs);
    orth_route_make_loss(s, &r);
    for (int i = 0; i < r.num && !b->p->failed; i++) {
        const orth_route_stage *at = &r.stage[i];
        orth_operand sums = loss;
        if (at->op == ORTH_ROUTE_REDUCE) {
            reduce(b, at->over, &x);
        } else if (at->op == ORTH_ROUTE_GATHER) {
            x = gather(b, at->over, x);
        } else {
            if (at->when == ORTH_MOMENT_MICRO_BATCH) {
                sums.dim[0] = s->num_micro_batches;
                sums = orth_build_temp(b, "micro_losses", sums);
            }
            add_runs(b, &x, &sums);
            x = sums;
        }
    }
}
