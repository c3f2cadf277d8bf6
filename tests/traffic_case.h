/* traffic_case.h -- what was planned of communication and what was counted, compared. */
#ifndef ORTH_TESTS_TRAFFIC_CASE_H
#define ORTH_TESTS_TRAFFIC_CASE_H

#include <inttypes.h>
#include <stdio.h>

#include "plan/traffic.h"

/* How a rank's communicators, all alike, move data. */
static inline orth_comm_method traffic_method(orth_comm *const comms[ORTH_NUM_GROUPS])
{
    orth_comm_method m = {.shares_memory = true};
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        m = comms[g] ? orth_comm_method_of(comms[g]) : m;
    return m;
}

/* Sent in all groups and kinds. */
static inline int64_t traffic_bytes(const orth_traffic *t)
{
    int64_t sum = 0;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
            sum += t->sent[g][k];
    return sum;
}

/* First difference in words, into out. `counted` is of so many steps. False: there is none. */
static inline bool traffic_differs(const orth_traffic *planned, const orth_traffic *counted, int steps, char *out, size_t size)
{
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++) {
            const int64_t want[] = {planned->calls[g][k] * steps, planned->ideal[g][k] * steps, planned->sent[g][k] * steps};
            const int64_t got[] = {counted->calls[g][k], counted->ideal[g][k], counted->sent[g][k]};
            if (memcmp(want, got, sizeof got) == 0)
                continue;
            snprintf(out, size, "%s %s: planned %" PRId64 " calls, %" PRId64 " bytes by a ring, %" PRId64 " sent; counted %" PRId64
                     ", %" PRId64 ", %" PRId64, orth_group_name((orth_group)g), orth_comm_kind_name((orth_comm_kind)k), want[0],
                     want[1], want[2], got[0], got[1], got[2]);
            return true;
        }
    }
    return false;
}

#endif
