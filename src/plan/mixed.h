/* mixed.h -- a cluster of several groups of nodes, each with devices of its own kind.
 *
 *   groups:
 *     fast: {hardware: h100, nodes: 2}
 *     slow: {hardware: a100-80gb, nodes: 2, devices: 4}
 *   between: {GBps: 50, latency_us: 10}
 *
 * `hardware` is a description of configs/hardware/ or a file; `devices` replaces its devices of a node; `between` is the link of each node to
 * nodes of other groups. Ranks fill the groups in the order of the file, node after node.
 *
 * The orth_hardware of such a cluster has the best figures of all groups, so that lower bounds read off it hold (bounds.h); its price is the
 * mean of a device, its rate of failures that of all. What a rank takes is read off the hardware of its group.
 *
 * A call with members in several groups takes as long as it would if all members were in the slowest of these groups, and their network no
 * faster than the link between groups: the steps of a ring or a tree wait for each other.
 */
#ifndef ORTH_PLAN_MIXED_H
#define ORTH_PLAN_MIXED_H

#include "plan/link_time.h"

#define ORTH_MAX_DEVICE_GROUPS 8

typedef struct {
    char name[ORTH_DESCRIBED_TEXT_MAX], hardware[256]; /* hardware: as the file names its description */
    int64_t nodes, first, num_devices; /* its ranks begin with `first` */
    orth_hardware own, far;            /* far: in calls with members in other groups, too */
} orth_device_group;

struct orth_mixed {
    int num_groups;
    orth_device_group group[ORTH_MAX_DEVICE_GROUPS];
};

/* Whether the text describes groups. */
bool orth_mixed_is(orth_ctx *ctx, const char *text, size_t num_bytes);
/* Reads it; out->mixed is for orth_hardware_release. ORTH_ERR_ARG with the file, the key and the rule. */
orth_status orth_mixed_parse(orth_ctx *ctx, orth_hardware *out, const char *name, const char *text, size_t num_bytes);

/* Warns of prices and rates of failures that the description of one group has and that of another lacks: they are means over all devices, so the
 * cluster has none. */
void orth_mixed_warn(orth_ctx *ctx, const orth_hardware *h);

/* The group of a rank; 0 where there is one kind of devices. */
int orth_mixed_group_of(const orth_hardware *h, int rank);
/* The node of a rank, numbered over all groups. */
int orth_mixed_node_of(const orth_hardware *h, int rank);
/* The description of a rank's device, which is h where there is one kind. */
const orth_hardware *orth_mixed_device(const orth_hardware *h, int rank);

/* How the members of a communicator lie on the groups. */
typedef struct {
    int num;                           /* groups that have members */
    const orth_hardware *hardware[ORTH_MAX_DEVICE_GROUPS];
    orth_link_place place[ORTH_MAX_DEVICE_GROUPS]; /* n and num_nodes: of all members */
} orth_mixed_place;
orth_mixed_place orth_mixed_place_of(const orth_hardware *h, const int *ranks, int n);

/* orth_link_seconds on the slowest of the groups. */
double orth_mixed_link_seconds(const orth_mixed_place *p, orth_comm_kind kind, double bytes);

/* What part of that time the links inside of a node, and a device's part of the network, are busy, of the slowest group. */
void orth_mixed_link_load(const orth_mixed_place *p, orth_comm_kind kind, double bytes, double *node, double *network);

#endif
