/* link_time.c -- see link_time.h. */
#include "plan/link_time.h"

#include <math.h>

orth_link_place orth_link_place_in_order(const orth_hardware *h, const int *ranks, int n, int first, bool *ascends)
{
    const int devices = (int)h->node_devices, pod = (int)h->network_pod_nodes;
    orth_link_place p = {.n = n, .fewest = n};
    int here = 0, node = -1;
    *ascends = true;
    for (int i = 0; i < n; i++) {
        const int at = (ranks[i] - first) / devices;
        p.leaves_pod = p.leaves_pod || (pod > 0 && i > 0 && at / pod != node / pod);
        p.fewest = at == node || i == 0 ? p.fewest : ORTH_MIN(p.fewest, here);
        here = at == node ? here + 1 : 1;
        p.num_nodes += at != node;
        *ascends = *ascends && at >= node;
        node = at;
        p.per_node = ORTH_MAX(p.per_node, here);
    }
    p.fewest = ORTH_MIN(p.fewest, here);
    return p;
}

/* Canonical order ascends along each axis, and so do nodes, but for wraps. */
orth_link_place orth_link_place_of(const orth_hardware *h, const int *ranks, int n)
{
    bool ascends;
    orth_link_place p = orth_link_place_in_order(h, ranks, n, 0, &ascends);
    if (!ascends) {
        p.num_nodes = ORTH_MIN(p.num_nodes, (n + p.per_node - 1) / p.per_node);
        p.fewest = 0;
    }
    p.same_node = p.num_nodes <= 1;
    return p;
}

/* What the links of `k` members of a node give each of them. */
static double inside(const orth_hardware *h, int k)
{
    const double b = 1e9 * h->node_GBps * h->node_share;
    switch (h->topology) {
    case ORTH_TOPOLOGY_MESH: return b * fmax(k - 1, 1) / fmax(h->node_devices - 1, 1);
    case ORTH_TOPOLOGY_TORUS: return b / 3;          /* two of six links lie along a ring */
    case ORTH_TOPOLOGY_BUS: return k > 2 ? b / 2 : b;
    default: return b;
    }
}

/* A device's part of the network cards of its node. */
static double outside(const orth_hardware *h, bool leaves_pod)
{
    return 1e9 * h->network_GBps * h->network_share * h->network_nics / h->node_devices / (leaves_pod ? h->network_taper : 1);
}

typedef struct {
    double n, k, nodes;   /* members, the most on a node, nodes */
    double few;           /* the fewest on a node */
    double b, c, a, A;    /* see link_time.h */
} links;

static links links_of(const orth_hardware *h, const orth_link_place *p)
{
    return (links){.n = p->n, .k = p->per_node, .few = p->fewest > 0 ? p->fewest : p->per_node, .nodes = p->num_nodes, .b = inside(h, p->per_node),
                   .c = p->num_nodes > 1 ? outside(h, p->leaves_pod) : INFINITY, .a = 1e-6 * h->node_latency_us,
                   .A = 1e-6 * (p->num_nodes > 1 ? h->network_latency_us : h->node_latency_us)};
}

/* Of a ring: bytes enter each node once. */
static double width(const links *l)
{
    return l->nodes > 1 ? fmin(l->k > 1 ? l->b : INFINITY, l->few * l->c) : l->b;
}

/* An all_gather or a reduce_scatter. */
static double ring_pass(const links *l, double bytes)
{
    return (l->n - 1) / l->n * bytes / width(l) + (l->nodes - 1) * l->A + (l->n - l->nodes) * l->a;
}

/* Of the tensor, what comes to a node from the others, of the one with the fewest members. */
static double from_others(const links *l)
{
    return l->few < l->k ? (l->n - l->few) / l->n : (l->nodes - 1) / l->nodes;
}

static double layered_pass(const links *l, double bytes)
{
    if (l->nodes <= 1 || l->k <= 1)
        return INFINITY;
    return from_others(l) * bytes / l->few / l->c + (l->nodes - 1) * l->A + (l->k - 1) / l->k * bytes / l->b +
           (l->k - 1) * l->a;
}

static double log_2(double x)
{
    return ceil(log2(fmax(x, 1)));
}

static double steps_of_a_tree(const links *l)
{
    return (l->nodes > 1 ? log_2(l->nodes) * l->A : 0) + log_2(l->k) * l->a;
}

/* Down or up a tree in many pieces, at the width of the narrowest link. Inner members receive and send twice what leaves
 * do, so that not all of it is used. */
#define TREE_SHARE 0.85
static double tree_pass(const links *l, double bytes)
{
    return bytes / (TREE_SHARE * width(l)) + steps_of_a_tree(l);
}

static orth_link_busy direct_busy(const links *l, double bytes)
{
    return (orth_link_busy){l->k > 1 ? (l->k - 1) / l->n * bytes / l->b : 0, l->nodes > 1 ? (l->n - l->few) / l->n * bytes / l->c : 0};
}

/* Each member's own block to all others, at once. */
static double direct_pass(const links *l, double bytes)
{
    const orth_link_busy busy = direct_busy(l, bytes);
    return fmax(busy.network_s, busy.node_s) + steps_of_a_tree(l);
}

double orth_link_seconds(const orth_hardware *h, orth_comm_kind kind, double bytes, const orth_link_place *p, orth_link_algo *algo)
{
    const links l = links_of(h, p);
    double t[ORTH_NUM_LINK_ALGOS] = {INFINITY, INFINITY, INFINITY, INFINITY};
    int best = ORTH_LINK_DIRECT;
    if (p->n < 2)
        return 0;
    switch (kind) {
    case ORTH_COMM_ALL_REDUCE:
        t[ORTH_LINK_RING] = 2 * ring_pass(&l, bytes);
        t[ORTH_LINK_TREE] = 2 * tree_pass(&l, bytes);
        t[ORTH_LINK_HIERARCHICAL] = 2 * layered_pass(&l, bytes);
        break;
    case ORTH_COMM_ALL_GATHER:
    case ORTH_COMM_REDUCE_SCATTER:
        t[ORTH_LINK_RING] = ring_pass(&l, bytes);
        t[ORTH_LINK_HIERARCHICAL] = layered_pass(&l, bytes);
        t[ORTH_LINK_DIRECT] = direct_pass(&l, bytes);
        break;
    case ORTH_COMM_BROADCAST:
        t[ORTH_LINK_TREE] = tree_pass(&l, bytes);
        break;
    case ORTH_COMM_ALL_TO_ALL:
        t[ORTH_LINK_DIRECT] = direct_pass(&l, bytes);
        break;
    case ORTH_COMM_BARRIER:
        t[ORTH_LINK_TREE] = 2 * steps_of_a_tree(&l);
        break;
    default: /* a message */
        t[ORTH_LINK_DIRECT] = p->same_node ? bytes / inside(h, 2) + 1e-6 * h->node_latency_us
                                           : bytes / fmin(outside(h, p->leaves_pod), 1e9 * h->network_GBps * h->network_share) +
                                                 1e-6 * h->network_latency_us;
    }
    for (int i = 0; i < ORTH_NUM_LINK_ALGOS; i++)
        if (t[i] < t[best])
            best = i;
    if (algo)
        *algo = (orth_link_algo)best;
    return t[best];
}

static orth_link_busy busy_by(const links *l, orth_link_algo algo, double bytes)
{
    const bool out = l->nodes > 1, in = l->k > 1;
    const double around = (l->n - 1) / l->n * bytes;
    switch (algo) {
    case ORTH_LINK_RING: return (orth_link_busy){in ? around / l->b : 0, out ? around / (l->few * l->c) : 0};
    case ORTH_LINK_TREE: return (orth_link_busy){in ? bytes / l->b : 0, out ? bytes / (l->few * l->c) : 0};
    case ORTH_LINK_HIERARCHICAL: return (orth_link_busy){(l->k - 1) / l->k * bytes / l->b, from_others(l) * bytes / l->few / l->c};
    default: return direct_busy(l, bytes);
    }
}

orth_link_busy orth_link_busy_in(const orth_hardware *h, orth_comm_kind kind, double bytes, const orth_link_place *p)
{
    const links l = links_of(h, p);
    orth_link_algo algo;
    if (p->n < 2 || kind == ORTH_COMM_BARRIER)
        return (orth_link_busy){0, 0};
    orth_link_seconds(h, kind, bytes, p, &algo);
    if (kind == ORTH_COMM_SEND || kind == ORTH_COMM_RECV)
        return p->same_node ? (orth_link_busy){bytes / inside(h, 2), 0}
                            : (orth_link_busy){0, bytes / fmin(outside(h, p->leaves_pod), 1e9 * h->network_GBps * h->network_share)};
    orth_link_busy once = busy_by(&l, algo, bytes);
    if (kind == ORTH_COMM_ALL_REDUCE)
        once = (orth_link_busy){2 * once.node_s, 2 * once.network_s};
    return once;
}
