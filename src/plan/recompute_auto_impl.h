/* recompute_auto_impl.h -- what the files of memory.recompute=auto share: recompute_choices.c lists what can be chosen, recompute_auto_stage.c
 * compiles and chooses for a stage, and recompute_auto.c for all stages. */
#ifndef ORTH_PLAN_RECOMPUTE_AUTO_IMPL_H
#define ORTH_PLAN_RECOMPUTE_AUTO_IMPL_H

#include "plan/again_sets.h"
#include "plan/recompute_auto.h"

/* What is made again in the layers of a stage. */
typedef struct {
    uint64_t *marks;           /* [layers of the stage] */
    orth_again_cost cost;      /* of a micro-batch */
    int32_t rank;              /* between equal costs */
    orth_again_bytes bound;    /* it needs no less; 0: not known yet, or nothing is */
    bool bounded, compiled;
    orth_again_bytes bytes;    /* when it is compiled */
    int worst_rank;
    double flops;              /* of all ranks */
    bool groups;               /* inputs of some layers only are kept */
    bool named;                /* every layer has the set of a policy that has a name */
} again_choice;

/* Ranks of a stage that share a program. */
typedef struct {
    orth_saved saved;
    size_t constant;           /* bytes of the first one that are not transient */
    int num_ranks;
} again_class;

/* The ranks at one place of the pipeline. */
typedef struct {
    int place;
    again_choice *choices;     /* [num], those that keep every layer's input first, in either part by cost */
    int32_t num, num_ordered;  /* those from num_ordered on have groups beside layers with any set, or the set of a named policy: what they cost is known
                                  when compiled */
    int64_t num_instrs;
    orth_saved saved;          /* of the first class */
    again_class *classes;      /* [num_classes] */
    int num_classes;
    size_t transient, constant; /* bytes of all ranks without files, of a run that makes nothing again: transient ones, and the others, once that is compiled */
    orth_again_set sets[ORTH_AGAIN_SETS];
    int32_t num_sets;
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
    again_choice **picks, **best; /* [num_stages] of each stage: what is looked at, and of what was looked at and fits that which computes the least */
    int num_stages;
};

/* Fills the choices of a stage whose saved tensors are known. layer: the graph of one of its layers. ORTH_ERR_NOMEM. */
orth_status again_list_choices(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_graph *layer);

/* Of a stage whose `place` and `leaves` are set: what lower bounds start from, and its choices. ORTH_ERR_NOMEM, and what compiling returns, here and below. */
orth_status again_make_stage(orth_ctx *ctx, orth_again_search *s, again_stage *st);
orth_status again_compile(orth_ctx *ctx, orth_again_search *s, again_stage *st, again_choice *c);
/* What it needs at least, [ORTH_AGAIN_LIMITS], and how many FLOPs it adds at least, both before it is compiled; how many it adds. Of a stage of which the
 * choice that makes nothing again is compiled. */
const size_t *again_lower_bounds(const again_stage *st, again_choice *c);
double again_least_added(const again_stage *st, const again_choice *c);
double again_added_flops(const again_stage *st, const again_choice *c);

/* Here and below a limit that there is not is SIZE_MAX. */
bool again_is_within(const size_t of[ORTH_AGAIN_LIMITS], const orth_again_bytes *limits);
/* The choice that fits and computes the least, of equal ones the first; NULL: none fits. */
orth_status again_choose_stage(orth_ctx *ctx, orth_again_search *s, again_stage *st, const orth_again_bytes *limits, again_choice **out);
/* Of the choices whose ranks keep `rank`, of which there is one, that with the least of `which`; of equal ones that which computes the least. */
orth_status again_choose_least(orth_ctx *ctx, orth_again_search *s, again_stage *st, orth_again_limit which, size_t rank, again_choice **out);

#endif
