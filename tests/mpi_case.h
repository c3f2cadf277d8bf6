/* mpi_case.h -- tests that start processes of MPI: whether this build and machine can, and the front of such a command. */
#ifndef ORTH_TESTS_MPI_CASE_H
#define ORTH_TESTS_MPI_CASE_H

#include "comm/comm.h"
#include "test.h"

/* mpirun, ended after so many seconds. There are more processes than cores: those that wait let others run. */
#define MPIRUN(seconds)                                                                                  \
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout " #seconds " mpirun --oversubscribe " \
    "--mca btl_vader_single_copy_mechanism none --mca mpi_yield_when_idle 1 "

static inline bool mpi_can_run(void)
{
    if (orth_comm_backend_built(ORTH_BACKEND_MPI) && system("command -v mpirun >/dev/null 2>&1") == 0)
        return true;
    printf("skipped: MPI is not in this build, or mpirun is missing\n");
    return false;
}

#endif
