/* pin.c -- which cores a rank runs on. Nothing here needs memory: hwloc, which would know the same, crashes where an allocation fails. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include "base/machine.h"
#include "comm/thread/group.h"

_Static_assert(CPU_SETSIZE <= COMM_MAX_CPUS, "room for all CPUs of a set");

static int by_core(const void *a, const void *b)
{
    const comm_cpu *x = a, *y = b;
    if (x->package != y->package)
        return x->package < y->package ? -1 : 1;
    return x->core != y->core ? (x->core < y->core ? -1 : 1) : (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

void comm_cores_find(comm_cores *c)
{
    cpu_set_t set;
    c->num_cpus = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return; /* of a machine with more CPUs than the set has */
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set))
            continue;
        comm_cpu *of = &c->cpus[c->num_cpus++];
        of->cpu = cpu;
        orth_machine_core(cpu, &of->package, &of->core);
    }
    qsort(c->cpus, (size_t)c->num_cpus, sizeof *c->cpus, by_core);
}

void comm_cores_bind(const comm_cores *c, int first_core, int num_cores)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0, at = -1; i < c->num_cpus; i++) {
        const comm_cpu *of = &c->cpus[i];
        at += i == 0 || of->package != of[-1].package || of->core != of[-1].core;
        if (at >= first_core && at < first_core + num_cores)
            CPU_SET(of->cpu, &set);
    }
    /* A refusal (a container's mask) leaves the rank where the system puts it, which works as well. */
    if (CPU_COUNT(&set) > 0)
        sched_setaffinity(0, sizeof set, &set);
}
