/* layout_impl.h -- what layout.c, layout_rules.c and layout_limits.c share; others see layout.h. */
#ifndef ORTH_PARALLEL_LAYOUT_IMPL_H
#define ORTH_PARALLEL_LAYOUT_IMPL_H

#include "parallel/layout.h"

#define ORTH_MAX_SHARE 1000

static inline bool orth_is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static inline bool orth_layout_is_good_share(double share)
{
    return share >= 1 && share <= ORTH_MAX_SHARE && share == (double)(int64_t)share;
}

/* Shares are given: whole numbers up to ORTH_MAX_SHARE, one for each dp rank. */
bool orth_layout_has_good_shares(const orth_layout *l);
/* All of them; they are good. */
int64_t orth_layout_sum_of_shares(const orth_layout *l);
/* Also where none are given. */
bool orth_layout_shares_are_equal(const orth_layout *l);

int64_t orth_layout_num_shares(const orth_layout *l); /* dp ranks whose shares may differ */

/* ---- rules ---- */

/* Who asks, and where a rule says why it does not hold. */
typedef struct {
    const orth_layout *l;
    const orth_model_dims *d;
    char *why;
    size_t size;
} judge;

/* Writes `text` to j->why, with the values in place of {}, and the name of the schedule in place of {@}. Returns false. */
bool orth_layout_say(const judge *j, const char *text, const int64_t *values);

/* The condition, or its text; whole numbers follow for the {} of the text. */
#define NEED(j, condition, ...) ((condition) || SAY((j), __VA_ARGS__, 0))
#define SAY(j, text, ...) orth_layout_say((j), (text), (const int64_t[]){__VA_ARGS__})

/* layout_limits.c */
bool orth_layout_ranks_are_plannable(const judge *j);
bool orth_layout_micro_batches_are_countable(const judge *j);
bool orth_layout_leaves_are_countable(const judge *j);
bool orth_layout_program_is_not_too_long(const judge *j);
bool orth_layout_uneven_ranks_are_few(const judge *j);
bool orth_layout_uneven_ranks_have_queues(const judge *j);

#endif
