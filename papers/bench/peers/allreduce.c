/* Repeated all-reduce of arrays of 32-bit integers; rank 0 prints the seconds of each.
 * Usage: allreduce VALUES CALLS
 *
 * Peer of the figure `testbed-allreduce`, which compiles this file with mpicc. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int values = argc > 1 ? atoi(argv[1]) : 0, calls = argc > 2 ? atoi(argv[2]) : 0;
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int *part = malloc(sizeof(int) * values), *sums = malloc(sizeof(int) * values);
	if (values <= 0 || calls <= 0 || !part || !sums)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int i = 0; i < values; i++)
		part[i] = i % 1009;
	/* The first call connects, and is not measured. */
	for (int call = 0; call <= calls; call++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double began = MPI_Wtime();
		MPI_Allreduce(part, sums, values, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		double took = MPI_Wtime() - began, longest;
		MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		for (int i = 0; i < values; i++)
			if (sums[i] != i % 1009 * ranks)
				MPI_Abort(MPI_COMM_WORLD, 3);
		if (rank == 0 && call > 0)
			printf("%.9f\n", longest);
	}
	MPI_Finalize();
	return 0;
}
