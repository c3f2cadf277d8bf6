/* sampler.h -- which tokens are in training sequence number i: a pure function of (seed, i).
 *
 * A corpus is cut into windows: window w has inputs [w*T, w*T+T) and targets [w*T+1, w*T+T+1) of the
 * stream, so an epoch scores each target once. An epoch visits all windows in an order of its own, a
 * bijection computed from (seed, corpus, epoch) without memory: a Feistel network over Z_a x Z_b with
 * a*b >= W and cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
 * Several corpora are blended by rounding: of the first i sequences, a corpus got its share of i to
 * within 1/2 per level of a binary tree over the corpora, and how many of i each got is known without
 * counting. Whole weights are kept as they are, others as integers of 2^-30 of their sum.
 * So any rank makes any sequence alone, and resuming from an index is exact: there is no state, and
 * a const sampler may be used by many threads, each with its own ctx.
 *
 * T tokens of a sequence are stored in fold order (tensor/parts.h): row s holds position
 * orth_fold_pos(T, parts, s).
 */
#ifndef ORTH_DATA_SAMPLER_H
#define ORTH_DATA_SAMPLER_H

#include "data/corpus.h"

typedef struct {
    const orth_corpus *const *corpora;  /* [num_corpora], outlive the sampler */
    const double *weights;              /* [num_corpora] >= 0, any sum > 0; NULL: by number of windows */
    int num_corpora;
    int64_t seq_len;                    /* T */
    uint64_t seed;
    bool doc_mask;   /* doc[] = start of the token's document; weight 0 where the target is of the next one */
    bool natural;    /* validation: one pass in order, no blending (corpora one after the other); the last
                        window of a corpus is filled up with token 0 and weight 0: all targets count once */
} orth_sampler_options;

typedef struct orth_sampler orth_sampler;

/* Where the rows of sequences go; NULL: not wanted. Row r of the request goes to element r. */
typedef struct {
    int32_t *tokens;    /* inputs */
    int32_t *targets;
    float *weights;     /* 1 or 0 */
    int32_t *pos;       /* position in the sequence, 0..T-1 (not restarted by documents) */
    int32_t *doc;       /* position where the row's document starts; 0 without doc_mask */
} orth_sample;

/* Which storage rows, and how they are folded. */
typedef struct {
    int parts;                      /* numerics.parts, 1: natural order */
    int64_t row_begin, row_end;     /* a context-parallel rank takes its rows only; 0, T: all */
} orth_sample_rows;

/* ORTH_ERR_ARG if a corpus is shorter than seq_len + 1 tokens (natural: than 2), with both numbers;
 * weights not finite or negative, or all 0; ORTH_ERR_NOMEM. */
orth_status orth_sampler_create(orth_ctx *ctx, orth_sampler **out, const orth_sampler_options *options);
void orth_sampler_destroy(orth_ctx *ctx, orth_sampler *s); /* NULL is fine */

int64_t orth_sampler_seq_len(const orth_sampler *s);
/* Windows of all corpora: sequences of one pass. Natural samplers end there, others go on for ever. */
int64_t orth_sampler_num_windows(const orth_sampler *s);

/* Sequence number `index` >= 0 of the run. ORTH_ERR_ARG for an index outside of a natural pass or rows
 * outside of the sequence, ORTH_ERR_DATA for a damaged token. Allocates nothing. */
orth_status orth_sampler_fill(orth_ctx *ctx, const orth_sampler *s, const orth_sample *out, int64_t index,
                              const orth_sample_rows *rows);

/* Sum of the weights of sequences [first, first+n) (an integer; no token is read): what the token-weighted
 * loss of a global batch is divided by. Same errors as fill. */
orth_status orth_sampler_weight(orth_ctx *ctx, const orth_sampler *s, int64_t *out, int64_t first, int64_t n);

/* Where a sequence comes from, for metrics, `inspect` and tests. */
typedef struct {
    int corpus;
    int64_t epoch;      /* of that corpus */
    int64_t window;
} orth_sample_origin;
orth_sample_origin orth_sampler_origin(const orth_sampler *s, int64_t index);

/* Element k of the permutation of [0, n) named by (seed, corpus, epoch). n >= 1. */
int64_t orth_permute(uint64_t seed, int corpus, int64_t epoch, int64_t n, int64_t k);

#endif
