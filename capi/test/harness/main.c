// The harness: harness SCENARIO RANK SIZE STORE. The Go test beside it builds it and runs its ranks.
#include "harness.h"

int rank, size;
const char *address;

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"operations", operations}, {"errors", errors}, {"windows", windows}, {"memory", memory}, {"forked", forked},
	{"panicked", panicked}, {"cycles", cycles}, {"monitored", monitored}, {"threads", threads}, {"callbacks", callbacks}, {"hosts", hosts},
	{"interrupts", interrupts}, {"hooked", hooked}, {"queued", queued}, {"devices", devices}, {"kernels", kernels}, {"regroup", regroup}, {"wire", wire}, {"bench", bench},
};

chorus_comm join_as(chorus_store store, const char *name, int r, int n, int64_t timeout_ns) {
	chorus_comm_options o = {.size = sizeof o, .rank = r, .world_size = n, .abort_on_error = 0, .name = name, .store = store, .timeout_ns = timeout_ns};
	chorus_comm c;
	OK(chorus_comm_create(&o, &c));
	EXPECT(c != 0);
	return c;
}

chorus_comm join(const char *name, int64_t timeout_ns) {
	chorus_store store;
	OK(chorus_store_open(address, 60 * SECOND, &store));
	chorus_comm c = join_as(store, name, rank, size, timeout_ns);
	OK(chorus_store_release(store)); // a communicator needs it no more
	return c;
}

void leave(chorus_comm c) {
	OK(chorus_comm_finalize(c, 0));
	OK(chorus_comm_release(c));
}

chorus_op reduce_op(int kind, void *in, int64_t in_count, void *out, int64_t out_count) {
	return (chorus_op){.size = sizeof(chorus_op), .kind = kind, .dtype = CHORUS_INT32, .reduction = CHORUS_SUM,
			   .in = in, .in_count = in_count, .out = out, .out_count = out_count};
}

int main(int argc, char **argv) {
	if (argc < 5)
		return 2;
	rank = atoi(argv[2]);
	size = atoi(argv[3]);
	address = argv[4];
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
		if (strcmp(scenarios[i].name, argv[1]) == 0) {
			scenarios[i].run();
			return 0;
		}
	}
	fprintf(stderr, "no scenario %s\n", argv[1]);
	return 2;
}
