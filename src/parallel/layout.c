/* layout.c -- the arithmetic of a layout: ranks, parts, shares of the batch. layout_rules.c says which are
 * valid. */
#include "parallel/layout_impl.h"

const orth_layout orth_layout_defaults = {
    .dp = 1, .tp = 1, .pp = 1, .cp = 1, .pipeline = "1f1b", .virtual_stages = 1, .global_batch = 1,
    .micro_batch = 1, .seq_len = 1, .parts = 8, .reproducible = true,
};

int64_t orth_layout_ranks(const orth_layout *l)
{
    return l->dp * l->tp * l->pp * l->cp;
}

bool orth_layout_has_good_shares(const orth_layout *l)
{
    bool good = l->dp_share && l->num_dp_share == l->dp;
    for (int64_t r = 0; good && r < l->dp; r++)
        good = orth_layout_is_good_share(l->dp_share[r]);
    return good;
}

int64_t orth_layout_sum_of_shares(const orth_layout *l)
{
    int64_t sum = 0;
    for (int64_t r = 0; r < l->dp; r++)
        sum += (int64_t)l->dp_share[r];
    return sum;
}

int64_t orth_layout_share(const orth_layout *l, int64_t dp_rank)
{
    if (!orth_layout_has_good_shares(l))
        return l->global_batch / l->dp;
    return l->global_batch * (int64_t)l->dp_share[dp_rank] / orth_layout_sum_of_shares(l);
}

bool orth_layout_shares_are_equal(const orth_layout *l)
{
    for (int64_t r = 1; orth_layout_has_good_shares(l) && r < l->dp; r++)
        if (l->dp_share[r] != l->dp_share[0])
            return false;
    return true;
}

int64_t orth_layout_num_shares(const orth_layout *l)
{
    return orth_layout_has_good_shares(l) ? l->dp : 1;
}

bool orth_layout_deals_state(const orth_layout *l)
{
    return l->zero > 0 || l->owner;
}

bool orth_layout_is_uneven(const orth_layout *l)
{
    return l->dp > 1 && l->zero < 2 &&
           (!orth_layout_shares_are_equal(l) || (l->reproducible && !orth_is_power_of_two(orth_layout_share(l, 0))));
}

bool orth_layout_exchanges_nodes(const orth_layout *l)
{
    return l->reproducible && orth_layout_is_uneven(l);
}

int64_t orth_layout_micro_batches(const orth_layout *l, int64_t dp_rank)
{
    return orth_layout_share(l, dp_rank) / l->micro_batch;
}

static int64_t even(int64_t n)
{
    return n % 2 == 0 ? n : 2 * n;
}

int64_t orth_layout_fast_parts(const orth_layout *l)
{
    return l->cp > 1 ? l->cp * even(l->tp) : l->tp;
}
