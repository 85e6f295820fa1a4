// A rank of a library that lives in PyTorch, measured from a loop in C++, so that no
// call pays for Python. torch.py sets the library up, then calls serve.
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/extension.h>

#include "worker.h"

static at::Tensor of_burst;   // what this burst's rounds work on, in place
static at::Tensor of_barrier; // one element
static void (*all_reduce)(at::Tensor &);

static void prepare(const struct burst *b) {
	of_burst = at::from_blob(b->in, {(int64_t)b->count}, at::kFloat);
}

static int call(const struct burst *b) {
	if (b->op != ALL_REDUCE || !b->in_place)
		return -1;
	all_reduce(of_burst);
	return 0;
}

static void barrier() { all_reduce(of_barrier); }

static c10::intrusive_ptr<c10d::ProcessGroup> group;

static void gloo(at::Tensor &t) {
	std::vector<at::Tensor> one{t};
	group->allreduce(one)->wait();
}

static int64_t vllm_handle;

static void vllm(at::Tensor &t) {
	static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("_C::shm_allreduce", "").typed<void(int64_t, at::Tensor &)>();
	op.call(vllm_handle, t);
}

static void deepspeed(at::Tensor &t) {
	static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("deepspeed::inference_all_reduce_", "").typed<at::Tensor &(at::Tensor &)>();
	op.call(t);
}

// serve_library measures gloo (handle is nothing), vllm (handle is its manager's) or deepspeed.
static int serve_library(const std::string &name, int64_t handle, const std::string &group_name, int rank, int size, const std::string &socket) {
	if (name == "gloo") {
		group = c10d::resolve_process_group(group_name);
		all_reduce = gloo;
	} else if (name == "vllm") {
		vllm_handle = handle;
		all_reduce = vllm;
	} else {
		all_reduce = deepspeed;
	}
	c10::InferenceMode no_autograd;
	of_barrier = at::zeros({8}, at::kFloat);
	struct library lib = {};
	lib.rank = rank;
	lib.size = size;
	lib.call = call;
	lib.barrier = barrier;
	lib.prepare = prepare;
	return serve(&lib, socket.c_str());
}

PYBIND11_MODULE(chorus_compare, m) {
	m.def("serve", &serve_library, py::call_guard<py::gil_scoped_release>());
}
