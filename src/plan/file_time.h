/* file_time.h -- what files of offload take: bytes of a step, and their time at a node's rates.
 *
 * The local disks of a node are shared by its ranks, each of which has an equal part, as it has of the node's network cards (link_time.h). A
 * rank has one queue for its file, so reads and writes of a rank follow each other.
 */
#ifndef ORTH_PLAN_FILE_TIME_H
#define ORTH_PLAN_FILE_TIME_H

#include "plan/hardware.h"
#include "program/ir/program.h"

typedef struct {
    int64_t read, written;
} orth_file_moves;

/* Bytes a second. */
typedef struct {
    double read, write;
    bool assumed;            /* the description of the hardware does not say: ORTH_FILE_ASSUMED_GBPS */
} orth_file_rates;

#define ORTH_FILE_ASSUMED_GBPS 3 /* of each device, or of a host: one NVMe disk of a usual kind */

/* Of a step. */
orth_file_moves orth_file_moves_of(const orth_program *p);

/* What one of `sharers` ranks of a node has. */
orth_file_rates orth_file_rates_of(const orth_hardware *h, int64_t sharers);
orth_file_rates orth_file_rates_times(const orth_file_rates *r, double factor);

/* Of a copy to or from a file. */
double orth_file_seconds(const orth_file_rates *r, const orth_program *p, const orth_instr *n);
/* The least that so many bytes take. */
double orth_file_floor(const orth_file_rates *r, const orth_file_moves *m);

#endif
