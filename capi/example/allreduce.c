// All-reduce from C. Every rank runs this program:
//
//	sh capi/build.sh libchorus.so
//	cc -Icapi -o allreduce capi/example/allreduce.c -L. -lchorus -Wl,-rpath,'$ORIGIN'
//	chorus run --nproc-per-node 2 ./allreduce
//
// With an argument, rank 0 asks for another size than the others, to show an error.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chorus.h"

// check ends the program with all that is known of a failure.
static void check(chorus_status status, const char *what) {
	if (status == CHORUS_OK)
		return;
	const chorus_error *e = chorus_last_error();
	fprintf(stderr, "%s: status %d: %s\n", what, status, e->message);
	if (status == CHORUS_MISMATCH)
		fprintf(stderr, "rank %d calls %s, rank %d calls %s\n", e->rank_a, e->op_a, e->rank_b, e->op_b);
	for (int i = 0; i < e->n_missing; i++)
		fprintf(stderr, "rank %d is missing\n", e->missing[i]);
	exit(1);
}

int main(int argc, char **argv) {
	(void)argv;
	if (chorus_abi_version() >> 16 != CHORUS_ABI_MAJOR) {
		fprintf(stderr, "libchorus.so is of another ABI than chorus.h\n");
		return 1;
	}
	// Rank, world size and where to meet come from the launcher's environment.
	chorus_comm_options options = {.size = sizeof options, .rank = -1, .abort_on_error = -1};
	chorus_comm comm;
	check(chorus_comm_create(&options, &comm), "create");
	chorus_comm_info info = {.size = sizeof info};
	check(chorus_comm_get(comm, &info), "get");

	enum { N = 1 << 20 };
	float *x; // memory that the other ranks of this host can map
	check(chorus_alloc(N * sizeof *x, 0, (void **)&x), "alloc");
	for (int i = 0; i < N; i++)
		x[i] = (float)(info.rank + 1);
	int64_t n = argc > 1 && info.rank == 0 ? N / 2 : N;
	chorus_op op = {.size = sizeof op, .kind = CHORUS_ALL_REDUCE, .dtype = CHORUS_FLOAT32, .reduction = CHORUS_SUM,
			.in = x, .in_count = n, .out = x, .out_count = n};
	op.site = chorus_site(__FILE__, __LINE__, __func__); // so that chorus explain can say where
	check(chorus_submit(comm, &op, NULL), "all_reduce");
	printf("rank %d of %d: the sum of all ranks is %g\n", info.rank, info.world_size, x[N / 2]);

	check(chorus_comm_finalize(comm, 0), "finalize");
	check(chorus_comm_release(comm), "release");
	check(chorus_free(x), "free");
	return 0;
}
