// A rank of any MPI: mpirun -n 2 mpi SOCKET.
#include <mpi.h>

#include "worker.h"

static int call(const struct burst *b) {
	int n = (int)b->count, m = (int)b->block;
	void *in = b->in_place ? MPI_IN_PLACE : (void *)b->in;
	switch (b->op) {
	case ALL_REDUCE: MPI_Allreduce(in, b->out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case BROADCAST: MPI_Bcast(b->in, n, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
	case ALL_GATHER: MPI_Allgather(in, m, MPI_FLOAT, b->out, m, MPI_FLOAT, MPI_COMM_WORLD); break;
	// In place MPI leaves the result at the start of the buffer, not in this rank's block.
	case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, b->out, m, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
	case ALL_TO_ALL: MPI_Alltoall(in, m, MPI_FLOAT, b->out, m, MPI_FLOAT, MPI_COMM_WORLD); break;
	case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
	default: return -1;
	}
	return 0;
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	struct library lib = {.call = call, .barrier = barrier};
	MPI_Comm_rank(MPI_COMM_WORLD, &lib.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &lib.size);
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int n = 0;
	MPI_Get_library_version(version, &n);
	for (size_t i = 0; i + 1 < sizeof lib.version && version[i] && version[i] != '\n'; i++)
		lib.version[i] = version[i] < ' ' || strchr("\"\\", version[i]) ? ' ' : version[i];
	int failed = argc != 2 || serve(&lib, argv[1]);
	MPI_Finalize();
	return failed;
}
