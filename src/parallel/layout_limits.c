/* layout_limits.c -- rules of layouts (layout_rules.c) that keep a plan to seconds and every array of the compiler to its size. */
#include "model/blocks.h"
#include "parallel/layout_impl.h"
#include "program/lower/gradtree.h"

/* Beyond these a plan would not end in seconds: a step is a program that names each micro-batch of each layer. */
#define MAX_RANKS 65536
#define MAX_MICRO_BATCHES 16384
#define MAX_INSTRS ((int64_t)1 << 21)    /* about, of a rank: 1.5 GB while it is compiled */
#define MAX_STAGES_INSTRS ((int64_t)1 << 23) /* of all stages together, each of which is compiled */
#define MAX_UNEVEN (1 << 17)             /* dp ranks, squared, times layers: each exchanges with every other */

bool orth_layout_ranks_are_plannable(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, orth_layout_ranks(l) <= MAX_RANKS, "dp={} x tp={} x pp={} x cp={} is {} ranks: at most {}", l->dp,
                l->tp, l->pp, l->cp, orth_layout_ranks(l), MAX_RANKS);
}

bool orth_layout_micro_batches_are_countable(const judge *j)
{
    const orth_layout *l = j->l;
    for (int64_t r = 0; r < orth_layout_num_shares(l); r++)
        if (orth_layout_share(l, r) / l->micro_batch > MAX_MICRO_BATCHES)
            return SAY(j, "the {} sequences of a dp rank are {} micro-batches of micro_batch={}: at most {} (a larger micro_batch, or "
                       "more ranks)", orth_layout_share(l, r), orth_layout_share(l, r) / l->micro_batch, l->micro_batch,
                       (int64_t)MAX_MICRO_BATCHES);
    return true;
}

/* The head's weight gradient has the most leaves of all. */
bool orth_layout_leaves_are_countable(const judge *j)
{
    const orth_layout *l = j->l;
    const int64_t leaves = orth_head_leaves(l->seq_len, l->parts);
    return NEED(j, l->global_batch <= ORTH_GRADTREE_MAX_LEAVES / leaves,
                "global_batch={} sequences of {} parts each (numerics.parts, seq_len={}): a step sums up at most {} of them",
                l->global_batch, leaves, l->seq_len, ORTH_GRADTREE_MAX_LEAVES);
}

/* A layer is about 26 instructions a micro-batch, with calls between its ranks 48; a chunk of the head 8. Where rows are
 * exchanged each sequence is an operand, of which 10 are as large as an instruction. */
bool orth_layout_program_is_not_too_long(const judge *j)
{
    const orth_layout *l = j->l;
    const int64_t share = orth_layout_share(l, 0), micro = orth_layout_micro_batches(l, 0);
    const int64_t layers = orth_div_up(j->d->layers, l->pp), tokens = l->seq_len / ORTH_MIN(l->cp, l->seq_len);
    const int64_t chunks = orth_head_chunks(orth_head_leaves(l->seq_len, l->parts), l->micro_batch, tokens, ORTH_HEAD_CHUNK_ROWS);
    const bool calls = l->tp > 1 || l->cp > 1, exchanges = l->cp > 1 || l->sequence_parallel;
    if (share > MAX_INSTRS) /* so that what follows cannot overflow */
        return SAY(j, "the {} sequences of a dp rank are more than {}: its step would be too long a program", share, MAX_INSTRS);
    const int64_t head = share * chunks * 8; /* however micro-batches and stages are cut */
    const int64_t instrs = micro * layers * (calls ? 48 : 26) + head + (exchanges ? share * layers * 2 : 0);
    if (head > MAX_INSTRS)
        return SAY(j, "the {} sequences of a dp rank through {} layers are about {} instructions on a rank: at most {} (a smaller "
                   "global_batch, or more dp ranks)", share, layers, instrs, MAX_INSTRS);
    const int64_t all = (instrs - head) * l->pp + head;
    if (instrs <= MAX_INSTRS && all > MAX_STAGES_INSTRS)
        return SAY(j, "{} micro-batches of {} sequences through {} layers on each of {} stages are about {} instructions: at most {} (fewer and larger "
                   "micro-batches, longer sequences, fewer layers)", micro, l->micro_batch, layers, l->pp, all, MAX_STAGES_INSTRS);
    return NEED(j, instrs <= MAX_INSTRS,
                "{} micro-batches of {} sequences through {} layers are about {} instructions on a rank: at most {} (fewer and larger "
                "micro-batches, more pipeline stages, longer sequences)", micro, l->micro_batch, layers, instrs, MAX_INSTRS);
}

bool orth_layout_uneven_ranks_are_few(const judge *j)
{
    const orth_layout *l = j->l;
    const int64_t layers = orth_div_up(j->d->layers, l->pp);
    return NEED(j, !orth_layout_exchanges_nodes(l) || l->dp <= MAX_UNEVEN / layers / l->dp,
                "dp={} with shares of the batch that are not equal powers of two: each rank exchanges the gradients of its {} layers "
                "with each other, and dp x dp x layers may be at most {} (numerics.mode=fast allows other equal shares)", l->dp, layers,
                MAX_UNEVEN);
}

#define OTHER_QUEUES (3 * ORTH_NUM_GROUPS + 5)   /* calls of each group, both ways; computing, copies both ways, files, the host */

/* A rank has a queue to each of the others, and in a ring one from each, too. */
bool orth_layout_uneven_ranks_have_queues(const judge *j)
{
    const orth_layout *l = j->l;
    const int64_t ring = l->cp > 1 && l->cp_kind == ORTH_CP_RING ? 2 * (l->cp - 1) : 0, most = ORTH_MAX_QUEUES - OTHER_QUEUES - ring + 1;
    return NEED(j, !orth_layout_exchanges_nodes(l) || l->dp <= most,
                "dp={} with shares of the batch that are not equal powers of two: a rank can exchange its gradients with {} others at most "
                "(numerics.mode=fast allows other equal shares)", l->dp, most - 1);
}
