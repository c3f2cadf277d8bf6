/* radix.c -- see radix.h. From the lowest digit to the highest; those in which no two keys differ are left out. */
#include "base/radix.h"

enum { DIGIT = 11, NUM_DIGITS = 1 << DIGIT };

static void sort_by_digit(const orth_keyed *from, orth_keyed *to, int32_t n, int shift)
{
    int32_t first[NUM_DIGITS + 1] = {0};
    for (int32_t k = 0; k < n; k++)
        first[(from[k].key >> shift) % NUM_DIGITS + 1]++;
    for (int d = 0; d < NUM_DIGITS; d++)
        first[d + 1] += first[d];
    for (int32_t k = 0; k < n; k++)
        to[first[(from[k].key >> shift) % NUM_DIGITS]++] = from[k];
}

orth_keyed *orth_radix_sort(orth_keyed *v, orth_keyed *room, int32_t n)
{
    uint64_t differs = 0;
    for (int32_t k = 1; k < n; k++)
        differs |= v[k].key ^ v[0].key;
    for (int shift = 0; shift < 64; shift += DIGIT) {
        if ((differs >> shift) % NUM_DIGITS == 0)
            continue;
        sort_by_digit(v, room, n, shift);
        orth_keyed *sorted = room;
        room = v;
        v = sorted;
    }
    return v;
}
