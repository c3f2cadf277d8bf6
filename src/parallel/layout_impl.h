/* layout_impl.h -- shares of the batch, for layout.c and layout_rules.c; others see layout.h. */
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

#endif
