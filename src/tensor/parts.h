/* parts.h -- canonical parts: the order of every floating-point sum that a layout may split.
 *
 * A sum over n items that tensor, sequence or context parallelism may spread over ranks is defined
 * as P parts (`numerics.parts`, a power of two). Part i covers [n*i/P, n*(i+1)/P); its items are
 * added as one chain in ascending order, starting from zero; the parts are combined as the aligned
 * binary tree ((p0+p1)+(p2+p3))+... A rank that holds n/t items of n holds P/t whole parts, which
 * are a subtree, so every degree t that divides P gives the same bits.
 *
 * Aligned tree over L leaves, any L: a node of level l covers the leaves [k*2^l, (k+1)*2^l) that
 * exist; a node whose right half has no leaf is its left half. (Equivalently: push leaves one by
 * one; merge equal-sized neighbours as a binary counter does; at the end fold the stack from its
 * top: acc = s[n-1]; then acc = s[i] + acc for i = n-2 .. 0.)
 *
 * Tokens of a sequence are *stored* in fold order, in every layout: storage slot j (of P) holds
 * natural part j/2 for even j and P-(j+1)/2 for odd j: 0, P-1, 1, P-2, ... So the token parts that
 * a rank of a balanced (zigzag) context split holds lie side by side, and form a subtree.
 * P = 1 is the natural order. Only the sampler, attention and rotary tables need to know.
 */
#ifndef ORTH_TENSOR_PARTS_H
#define ORTH_TENSOR_PARTS_H

#include <stdint.h>

/* numerics.parts is at most 64 (config/options.def). In fast mode the parts are the pieces of a sequence that tp x cp ranks
 * make (orth_layout_fast_parts): layouts of published runs have 128. */
#define ORTH_MAX_PARTS 256
#define ORTH_MAX_LEVELS 17 /* of the tree over at most ORTH_MAX_PARTS slots of a sequence, of as many parts of the heads */
_Static_assert(1 << (ORTH_MAX_LEVELS - 1) >= ORTH_MAX_PARTS * ORTH_MAX_PARTS, "a level for each doubling");

static inline int64_t orth_part_begin(int64_t n, int parts, int i)
{
    return n * i / parts;
}

/* Natural part that storage slot `slot` holds. */
static inline int orth_fold_part(int parts, int slot)
{
    return slot % 2 == 0 ? slot / 2 : parts - (slot + 1) / 2;
}

/* Storage rows [begin, end) of slot `slot`, within a sequence of T tokens. */
int64_t orth_fold_begin(int64_t T, int parts, int slot);

/* Storage row of the token at position `pos`, and the other way. 0 <= pos, row < T. */
int64_t orth_fold_row(int64_t T, int parts, int64_t pos);
int64_t orth_fold_pos(int64_t T, int parts, int64_t row);

/* How a contraction of length K is cut into canonical parts. */
typedef enum {
    ORTH_SPLIT_EVEN = 0, /* K = units*unit; part i = units [units*i/parts, units*(i+1)/parts) */
    ORTH_SPLIT_QKV,      /* the rows of a fused qkv weight, see kernels/ops.def; units = query heads,
                            unit = head_dim, group = query heads per kv head; a part that holds the
                            first query head of a group starts with its k and v rows */
    ORTH_SPLIT_TOKENS    /* K = seqs*T stored tokens, each sequence in `parts` fold slots:
                            seqs*parts leaves in storage order; units = T, group = seqs, unit = 1 */
} orth_split_kind;

typedef struct {
    orth_split_kind kind;
    int32_t parts;
    int64_t units, unit;
    int64_t group;
    int32_t first, of;   /* EVEN, QKV: these are parts [first, first+parts) of `of`, and `units` those of all
                            of them; bounds count from the first. of = 0: all */
} orth_split;

#define ORTH_SPLIT_WHOLE(K) ((orth_split){ORTH_SPLIT_EVEN, 1, (K), 1, 1, 0, 0})

/* Number of leaves: parts, or seqs*parts for tokens. */
static inline int64_t orth_split_leaves(const orth_split *s)
{
    return s->kind == ORTH_SPLIT_TOKENS ? s->parts * s->group : s->parts;
}

/* First index of leaf i along K; i = leaves gives K. */
int64_t orth_split_bound(const orth_split *s, int64_t i);

/* QKV: parts from `first` (of all) on may begin within a group of query heads. Who has them needs the group's k and v,
 * too, which count as those of another: the number of these rows; *begin: the first of them in the whole. */
int64_t orth_split_replica(const orth_split *s, int64_t first, int64_t *begin);

#endif
