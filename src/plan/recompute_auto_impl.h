/* recompute_auto_impl.h -- what the two files of memory.recompute=auto share: recompute_choices.c lists what can be chosen, and
 * recompute_auto.c compiles and chooses. */
#ifndef ORTH_PLAN_RECOMPUTE_AUTO_IMPL_H
#define ORTH_PLAN_RECOMPUTE_AUTO_IMPL_H

#include "plan/again_sets.h"
#include "plan/recompute_auto.h"

/* What is made again in the layers of a stage. */
typedef struct {
    uint64_t *marks;           /* [layers of the stage] */
    orth_again_cost cost;      /* of a micro-batch */
    int32_t rank;              /* between equal costs */
    size_t bound;              /* no rank's worth less; 0: not known yet, or nothing is */
    bool bounded, compiled;
    size_t worst, total;       /* when it is compiled: of the largest rank, of all */
    int worst_rank;
    double flops;              /* of all ranks */
    bool groups;               /* inputs of some layers only are kept */
    bool named;                /* every layer has the set of a policy that has a name */
} again_choice;

/* The ranks at one place of the pipeline. */
typedef struct {
    int place;
    again_choice *choices;     /* [num], those that keep every layer's input first, in either part by cost */
    int32_t num, num_ordered;  /* those from num_ordered on have groups beside layers with any set, or the set of a named policy: what they cost is known
                                  when compiled */
    int64_t num_instrs;
    orth_saved saved;
    orth_again_set sets[ORTH_AGAIN_SETS];
    int32_t num_sets;
    size_t constant;           /* bytes of the first class's largest rank that are not transient */
    bool leaves;               /* activations are offloaded */
    bool exact;                /* a program with the same set in all layers computes what the sum of costs says: no layer is made again in chunks anyway */
    double flops_of_cost;      /* FLOPs of all ranks in a step for one of a cost, once a choice showed it; 0: not known yet */
} again_stage;

struct orth_again_search {
    orth_programs_spec spec;   /* its choice is `trial` */
    orth_programs programs;    /* of the run with nothing made again */
    orth_arena arena;
    uint64_t *trial;           /* [layers of the model] */
    again_stage *stages;
    int num_stages;
};

/* Fills the choices of a stage whose saved tensors are known. layer: the graph of one of its layers. ORTH_ERR_NOMEM. */
orth_status again_list_choices(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer);

#endif
