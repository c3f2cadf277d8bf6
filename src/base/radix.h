/* radix.h -- sorts by whole numbers, digit by digit: linear in what is sorted. */
#ifndef ORTH_BASE_RADIX_H
#define ORTH_BASE_RADIX_H

#include <stdint.h>

typedef struct {
    uint64_t key;
    int32_t value;   /* the caller's */
} orth_keyed;

/* Ascending keys; equal ones keep their order. room [n] is written, too. Returns where the sorted ones are: v or room. */
orth_keyed *orth_radix_sort(orth_keyed *v, orth_keyed *room, int32_t n);

#endif
