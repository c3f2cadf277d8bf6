/* bench_collectives_mpi.c -- Open MPI's own all-reduce, for bench/collectives.sh to set beside ours.
 *
 *   mpirun -n RANKS bench_collectives_mpi BYTES...
 *
 * In place, fp32 sum. Prints per size: "all_reduce BYTES BEST_US", the best of repeated calls on rank 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int a = 1; a < argc; a++) {
        const long long bytes = atoll(argv[a]);
        const long long fit = (256ll << 20) / bytes;
        const int repeats = fit < 3 ? 3 : fit > 400 ? 400 : (int)fit;
        float *x = malloc((size_t)bytes);
        double best = 1e9;
        if (!x)
            return 1;
        memset(x, 0, (size_t)bytes);
        MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < repeats; i++) {
            const double start = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            const double took = MPI_Wtime() - start;
            best = took < best ? took : best;
        }
        if (rank == 0)
            printf("all_reduce %lld %.2f\n", bytes, best * 1e6);
        free(x);
    }
    MPI_Finalize();
    return 0;
}
