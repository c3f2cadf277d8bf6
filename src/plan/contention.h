/* contention.h -- transfers of one device that share its links.
 *
 * A device has four ports: its links inside of the node and its part of the network cards, each to send and to receive. A transfer asks for a
 * share of each port while it runs alone: what its bytes take at the bandwidth of the port, of the time that it takes. Where the transfers at hand
 * ask for more than a port has, it is shared out fairly (max-min): who asks for less than an equal part gets that, the others share the rest. A
 * transfer runs at the least of what its ports give it. That is how cards and switches serve queues of equal rank, round by round: nobody waits
 * until another transfer has ended, and no bandwidth is idle while somebody asks for it.
 *
 *   a gather that fills the card for 4 ms, begun at 0, and a message of 1 ms, begun at 1 ms:
 *   gather     |==1 ms alone==|==2 ms at half==|==2 ms alone==|   ends at 5 ms
 *   message                   |==2 ms at half==|                  ends at 3 ms
 */
#ifndef ORTH_PLAN_CONTENTION_H
#define ORTH_PLAN_CONTENTION_H

#include "base/arena.h"

typedef enum { ORTH_PORT_NODE_OUT = 0, ORTH_PORT_NODE_IN, ORTH_PORT_NETWORK_OUT, ORTH_PORT_NETWORK_IN, ORTH_NUM_PORTS } orth_port;

/* Of each port, 0 .. 1. */
typedef struct {
    float of[ORTH_NUM_PORTS];
    bool used;                     /* some are not 0 */
} orth_port_load;

typedef struct {
    double begin, seconds;         /* seconds: alone */
    orth_port_load load;
    double end;                    /* out */
    int32_t call;                  /* of the caller */
} orth_transfer;

/* Sets the ends of list[num] on one device, which it sorts by `begin`. */
void orth_contention_run(orth_transfer *list, int32_t num);

#endif
