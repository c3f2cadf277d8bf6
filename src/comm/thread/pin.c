/* pin.c -- which cores a rank runs on, by hwloc. Without hwloc nothing is bound. */
#include "comm/thread/group.h"

#if ORTH_HAVE_HWLOC

#include <hwloc.h>

comm_topology *comm_topology_load(void)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t) != 0)
        return NULL;
    if (hwloc_topology_load(t) != 0) {
        hwloc_topology_destroy(t);
        return NULL;
    }
    return (comm_topology *)t;
}

void comm_topology_free(comm_topology *t)
{
    if (t)
        hwloc_topology_destroy((hwloc_topology_t)t);
}

void comm_topology_bind(comm_topology *topology, int first_core, int num_cores)
{
    hwloc_topology_t t = (hwloc_topology_t)topology;
    hwloc_cpuset_t set = hwloc_bitmap_alloc();
    if (!set)
        return;
    for (int i = 0; i < num_cores; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)(first_core + i));
        if (core)
            hwloc_bitmap_or(set, set, core->cpuset);
    }
    /* A refusal (a container's mask) leaves the rank where the system puts it, which works as well. */
    if (!hwloc_bitmap_iszero(set))
        hwloc_set_cpubind(t, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
}

#else

comm_topology *comm_topology_load(void)
{
    return NULL;
}

void comm_topology_free(comm_topology *t)
{
    (void)t;
}

void comm_topology_bind(comm_topology *t, int first_core, int num_cores)
{
    (void)t, (void)first_core, (void)num_cores;
}

#endif
