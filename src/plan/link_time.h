/* link_time.h -- what a collective takes over the links of a described cluster.
 *
 * n members lie on `nodes` nodes, k of them on each (where these are not equally many, k is the most for links inside, the fewest for cards). M: bytes of the whole tensor; b: bandwidth of a device inside a node
 * as far as k members can use it (topology); c: of its part of the node's network cards; a, A: latencies of a
 * message inside and between nodes. A ring enters each node once, and the rings of all k members share the cards, so it
 * runs at min(b, k*c).
 *   ring          all_reduce: 2(n-1)/n M / min(b, k*c), 2(n-1) messages; reduce_scatter, all_gather: half of it
 *   tree          all_reduce, broadcast: as many bytes, about 2 log2 n messages
 *   hierarchical  inside the nodes, then between them a k-th of the tensor on each of k rings, then inside again
 *   direct        all_to_all, and small calls: each sends (k-1)/n M at b and (n-k)/n M at c in about log2 n messages
 * The fastest is taken. (Thakur et al. 2005; Patarasu and Yuan 2009.) A send takes one message at the bandwidth of
 * the link between the two. An estimate; at best the bandwidth of the links.
 */
#ifndef ORTH_PLAN_LINK_TIME_H
#define ORTH_PLAN_LINK_TIME_H

#include "comm/comm.h"
#include "plan/hardware.h"

/* How the members of a group lie on the nodes. */
typedef struct {
    int32_t n, per_node, num_nodes;   /* per_node: the most on one */
    int32_t fewest;                   /* on one, whose cards are then the narrowest link; 0: as many on all, or not known */
    bool same_node;                   /* of a message: sender and receiver */
    bool leaves_pod;                  /* its nodes are of several pods (network.pod_nodes) */
} orth_link_place;

typedef enum { ORTH_LINK_RING = 0, ORTH_LINK_TREE, ORTH_LINK_HIERARCHICAL, ORTH_LINK_DIRECT, ORTH_NUM_LINK_ALGOS } orth_link_algo;

/* As ranks[n] follow each other on the nodes of h, the first of which begins with rank `first`: a node that they come back to counts again. same_node is
 * not set. *ascends: they come back to none. */
orth_link_place orth_link_place_in_order(const orth_hardware *h, const int *ranks, int n, int first, bool *ascends);
/* Of global ranks[n], on nodes of h->node_devices consecutive ones. */
orth_link_place orth_link_place_of(const orth_hardware *h, const int *ranks, int n);

/* Seconds of a call over `bytes` bytes: the whole tensor of a collective (what a member has after an all_gather, before a
 * reduce_scatter; what it sends in an all_to_all, its own block included), or the message. 0 for one member.
 * algo: the fastest; may be NULL. */
double orth_link_seconds(const orth_hardware *h, orth_comm_kind kind, double bytes, const orth_link_place *p, orth_link_algo *algo);

/* Seconds that the links of a member are busy in such a call at their full bandwidth, by the algorithm that is taken: those inside of its node,
 * and its part of the network cards. Neither is more than the call takes. */
typedef struct {
    double node_s, network_s;
} orth_link_busy;
orth_link_busy orth_link_busy_in(const orth_hardware *h, orth_comm_kind kind, double bytes, const orth_link_place *p);

#endif
