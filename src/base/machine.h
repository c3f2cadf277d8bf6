/* machine.h -- what this process may use of the machine: cores, memory, caches. Read from the kernel,
 * with the limits of a container (cgroup v2 or v1) where there are any. */
#ifndef ORTH_BASE_MACHINE_H
#define ORTH_BASE_MACHINE_H

#include "base/ctx.h"

typedef struct {
    int level;
    char type[16];             /* "Data", "Instruction", "Unified" */
    int64_t size_bytes;
    int num_cpus;              /* that share it */
} orth_cache;

typedef struct {
    char cpu[96];              /* model name, "" unknown */
    char system[96];           /* operating system, release, architecture */
    int cores;                 /* as orth_machine_cores */
    int online_cpus, numa_nodes;
    double load;               /* threads of all programs that ran or waited for a CPU, mean of the last minute; -1: unknown */
    int64_t memory_total, memory_available;   /* bytes */
    int64_t memory_limit;      /* of the container; 0: none */
    int num_caches;
    orth_cache cache[8];
} orth_machine;

/* CPUs in the affinity mask, or fewer if the container's CPU quota is less; at least 1. */
int orth_machine_cores(void);

/* The CPUs of the calling thread's affinity mask, ascending, if there are exactly n; false otherwise. */
bool orth_machine_cpus(int *cpus, int n);
/* Where a CPU is: its package, and its core, as the number of the first CPU of that core. 0 and the CPU's own where the system does not tell. */
void orth_machine_core(int cpu, int *package, int *core);
/* Bytes that could be allocated now without swapping; 0 if unknown. */
int64_t orth_machine_available_bytes(void);
/* Bytes that this process may still map, whoever has them (`ulimit -v`); INT64_MAX: no such limit. */
int64_t orth_machine_addresses_left(void);
void orth_machine_query(orth_machine *out);
/* Nanoseconds that threads of this process have been ready to run while others had the CPUs: the sum over the threads that there
 * are now. -1: the system does not tell. */
int64_t orth_machine_starved_ns(void);

#endif
