/* Repeated all-reduce of arrays of 32-bit floats; rank 0 prints the bytes and seconds of each.
 * Usage: reduce BYTES CALLS [BYTES CALLS ...]
 *
 * Peer of the figure `leo-fig12`, which compiles this file with mpicc. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Input value `i` of rank `rank` in call `call`. */
static float value(int rank, long i, int call)
{
	return (float)((i * 7 + rank * 131 + call) % 2003) * 0.37f;
}

static void sum(long values, int calls, int rank, int ranks)
{
	float *part = malloc(sizeof(float) * values), *sums = malloc(sizeof(float) * values);
	if (values <= 0 || !part || !sums)
		MPI_Abort(MPI_COMM_WORLD, 2);
	/* The first call connects and touches the memory, and is not measured. */
	for (int call = 0; call <= calls; call++) {
		for (long i = 0; i < values; i++)
			part[i] = value(rank, i, call);
		MPI_Barrier(MPI_COMM_WORLD);
		double began = MPI_Wtime();
		MPI_Allreduce(part, sums, values, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		double took = MPI_Wtime() - began, longest;
		MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		for (long i = 0; i < values; i++) {
			float right = 0;
			for (int r = 0; r < ranks; r++)
				right += value(r, i, call);
			if (fabsf(sums[i] - right) > 1e-5f * right)
				MPI_Abort(MPI_COMM_WORLD, 3);
		}
		if (rank == 0 && call > 0)
			printf("%ld %.9f\n", values * (long)sizeof(float), longest);
	}
	free(part);
	free(sums);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 1; i + 1 < argc; i += 2)
		sum(atol(argv[i]) / (long)sizeof(float), atoi(argv[i + 1]), rank, ranks);
	MPI_Finalize();
	return 0;
}
