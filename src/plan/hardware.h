/* hardware.h -- a cluster as described by a file: devices, the links between them, prices.
 *
 * hardware.def has a row for each key. Nothing is measured when a file is used: the same file gives the same answer everywhere. `like: h100` takes
 * what a file leaves out from another description, in place of the defaults. A file with a section `host` describes a machine of thread ranks by
 * measured times (plan/host.h).
 */
#ifndef ORTH_PLAN_HARDWARE_H
#define ORTH_PLAN_HARDWARE_H

#include "plan/described.h"
#include "plan/op_times.h"
#include "tensor/tensor.h"

typedef struct orth_mixed orth_mixed;
typedef enum { ORTH_TOPOLOGY_SWITCH = 0, ORTH_TOPOLOGY_MESH, ORTH_TOPOLOGY_TORUS, ORTH_TOPOLOGY_BUS } orth_topology;

/* One field per row, <section>_<key>: device_memory_GiB (double), device_name (text). */
typedef struct {
#define HW_TEXT(section, key, needed, help) char section##_##key[ORTH_DESCRIBED_TEXT_MAX];
#define HW_NUM(section, key, needed, default_, min, max, unit, help) double section##_##key;
#include "plan/hardware.def"
    char like[ORTH_DESCRIBED_TEXT_MAX]; /* the description that has what this one leaves out; "": none */
    char file[128];           /* the description's, for messages; "" of a cluster of groups */
    orth_topology topology;
    bool has_network, has_host;
    bool has_on_demand;       /* price.on_demand is given, maybe as 0 */
    int64_t num_devices;      /* of the cluster; 0: as many as are asked for */
    orth_isa isa;             /* of the host's kernels */
    orth_op_times times;      /* of a host; zero: not measured */
    orth_mixed *mixed;        /* of a cluster of groups with other devices (mixed.h); NULL: one kind */
} orth_hardware;

/* Reads a description. ORTH_ERR_ARG with FILE:LINE:COLUMN, the key, the value and the rule. What is read is released with
 * orth_hardware_release; copies of it share what it holds. */
orth_status orth_hardware_parse(orth_ctx *ctx, orth_hardware *out, const char *name, const char *text, size_t num_bytes);

void orth_hardware_release(orth_ctx *ctx, orth_hardware *h);

/* The cluster that a word names: "h100-512" (512 devices of configs/hardware/h100.yaml, which the program holds), "h100"
 * (as many as are asked for), "mine.yaml" or "mine.yaml-64" (a file; one of groups says itself how many). ORTH_ERR_ARG for an unknown
 * name, with those that there are, a file that cannot be read, or a number of devices that is not one. Released with orth_hardware_release. */
orth_status orth_hardware_find(orth_ctx *ctx, orth_hardware *out, const char *word);
/* The same of one kind of devices; groups are not read then, but told. */
orth_status orth_hardware_find_kind(orth_ctx *ctx, orth_hardware *out, const char *word, bool *has_groups);

/* Whether such a word says how many devices there are, as "h100-512" does. *stem: the length of what stands before, "h100". */
bool orth_hardware_names_count(const char *word, size_t *stem);

/* Whether a word, with or without a number of devices, is the name of a description that the program holds, or of a .yaml file. */
bool orth_hardware_is_name(const char *word);

/* The names of the descriptions that the program holds, with commas between. */
void orth_hardware_names(char *out, size_t size);

/* The descriptions that the program holds; NULL after the last. */
typedef struct {
    const char *name, *text;  /* "h100", the text of configs/hardware/h100.yaml */
} orth_hardware_file;
const orth_hardware_file *orth_hardware_files(void);

/* Sets the number of devices that a layout needs. ORTH_ERR_ARG if the cluster has another number, or several nodes without a
 * network. */
orth_status orth_hardware_use(orth_ctx *ctx, orth_hardware *h, int64_t num_ranks);

/* Bytes of a device's memory that a run may take: all but what is reserved. */
double orth_hardware_room(const orth_hardware *h);

/* FLOP/s of one device for products of this type, the mean of groups; ORTH_ERR_ARG if the file, or that of a group, does not say. */
orth_status orth_hardware_peak(orth_ctx *ctx, const orth_hardware *h, orth_dtype dtype, double *flops);

#endif
