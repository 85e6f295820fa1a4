// A rank of oneCCL, started as an MPI program: mpirun -n 2 ccl SOCKET.
#include <mpi.h>
#include <oneapi/ccl.hpp>

#include "worker.h"

// oneCCL's static library calls a profiler through these pointers, if they are set; only Intel's
// compiler brings the library that defines them.
extern "C" {
void *__itt_string_handle_create_ptr__3_0, *__itt_task_begin_ptr__3_0, *__itt_task_end_ptr__3_0,
	*__itt_metadata_add_ptr__3_0, *__itt_thread_set_name_ptr__3_0, *__itt_event_create_ptr__3_0,
	*__itt_event_start_ptr__3_0, *__itt_event_end_ptr__3_0, *__itt_domain_create_ptr__3_0;
}

static ccl::communicator *world;

static int call(const struct burst *b) {
	switch (b->op) {
	case ALL_REDUCE: ccl::allreduce(b->in, b->out, b->count, ccl::reduction::sum, *world).wait(); break;
	case BARRIER: ccl::barrier(*world).wait(); break;
	default: return -1;
	}
	return 0;
}

static void barrier() { ccl::barrier(*world).wait(); }

int main(int argc, char **argv) {
	ccl::init();
	MPI_Init(&argc, &argv);
	struct library lib = {};
	lib.call = call;
	lib.barrier = barrier;
	MPI_Comm_rank(MPI_COMM_WORLD, &lib.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &lib.size);
	ccl::kvs::address_type address;
	ccl::shared_ptr_class<ccl::kvs> kvs;
	if (lib.rank == 0) {
		kvs = ccl::create_main_kvs();
		address = kvs->get_address();
	}
	MPI_Bcast(address.data(), (int)address.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
	if (lib.rank != 0)
		kvs = ccl::create_kvs(address);
	int failed = 0;
	{
		auto c = ccl::create_communicator(lib.size, lib.rank, kvs);
		world = &c;
		failed = argc != 2 || serve(&lib, argv[1]);
	}
	MPI_Finalize();
	return failed;
}
