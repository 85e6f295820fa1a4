// The functions of streams, events, captures and graphs.
#include <cstring>

#include "client.h"

using namespace emulated;

namespace {

Result made(Exchange &&x, Handle *h) {
	int device;
	if (!current_device(device))
		return invalid_context;
	Result r = Client::the().call(x);
	if (r == success)
		*h = x.reply.words[0];
	return r;
}

Result told(Exchange &&x, int *number) {
	Result r = Client::the().call(x);
	*number = int(x.reply.words[0]);
	return r;
}

template <typename... W> Result done(Call call, W... words) { return Client::the().call(Exchange(call, words...)); }

} // namespace

EXPORT(cuStreamCreateWithPriority, hipStreamCreateWithPriority)(Handle *s, unsigned flags, int priority) {
	COUNT;
	if (flags != stream_non_blocking || priority > 0)
		return invalid_value;
	return made(Exchange(Call::stream_create), s);
}
EXPORT(cuStreamDestroy_v2, hipStreamDestroy)(Handle s) {
	COUNT;
	return done(Call::stream_destroy, s);
}
EXPORT(cuStreamQuery, hipStreamQuery)(Handle s) {
	COUNT;
	return done(Call::stream_query, s);
}
EXPORT(cuStreamWaitEvent, hipStreamWaitEvent)(Handle s, Handle e, unsigned) {
	COUNT;
	return done(Call::stream_wait, s, e);
}
EXPORT(cuLaunchHostFunc, hipLaunchHostFunc)(Handle s, void (*f)(void *), void *argument) {
	COUNT;
	return done(Call::host_function, s, reinterpret_cast<uint64_t>(f), reinterpret_cast<uint64_t>(argument));
}

static Result wait_value(Handle s, uintptr_t p, uint32_t value, unsigned flags) {
	auto [base, a] = Client::the().place(p);
	if (flags > wait_equal || p % 4 != 0 || a.bytes == 0 || a.device >= 0)
		return invalid_value;
	return done(Call::wait_value, s, p, value, flags);
}
#ifdef EMULATED_CUDA
EXPORT(cuStreamWaitValue32_v2, )(Handle s, uintptr_t p, uint32_t value, unsigned flags) {
	COUNT;
	return wait_value(s, p, value, flags);
}
#else
EXPORT(, hipStreamWaitValue32)(Handle s, uintptr_t p, uint32_t value, unsigned flags, uint32_t mask) {
	COUNT;
	return mask != 0xffffffff ? invalid_value : wait_value(s, p, value, flags);
}
#endif

EXPORT(cuEventCreate, hipEventCreateWithFlags)(Handle *e, unsigned flags) {
	COUNT;
	if (flags & event_interprocess)
		return not_supported;
	return made(Exchange(Call::event_create, flags), e);
}
EXPORT(cuEventDestroy_v2, hipEventDestroy)(Handle e) {
	COUNT;
	return done(Call::event_destroy, e);
}
EXPORT(cuEventRecord, hipEventRecord)(Handle e, Handle s) {
	COUNT;
	return done(Call::event_record, e, s);
}
EXPORT(cuEventQuery, hipEventQuery)(Handle e) {
	COUNT;
	return done(Call::event_query, e);
}
EXPORT(cuEventElapsedTime, hipEventElapsedTime)(float *ms, Handle start, Handle end) {
	COUNT;
	Exchange x(Call::event_elapsed, start, end);
	Result r = Client::the().call(x);
	*ms = float(double(int64_t(x.reply.words[0])) / 1e6);
	return r;
}

EXPORT(cuStreamIsCapturing, hipStreamIsCapturing)(Handle s, int *status) {
	COUNT;
	return told(Exchange(Call::stream_capturing, s), status);
}
EXPORT(cuStreamBeginCapture_v2, hipStreamBeginCapture)(Handle s, int mode) {
	COUNT;
	return mode < mode_global || mode > mode_relaxed ? invalid_value : done(Call::begin_capture, s, mode);
}
EXPORT(cuStreamEndCapture, hipStreamEndCapture)(Handle s, Handle *graph) {
	COUNT;
	return made(Exchange(Call::end_capture, s), graph);
}
EXPORT(cuGraphDestroy, hipGraphDestroy)(Handle g) {
	COUNT;
	return done(Call::graph_destroy, g);
}

EXPORT(cuGraphGetNodes, hipGraphGetNodes)(Handle g, Handle *nodes, size_t *n) {
	COUNT;
	Exchange x(Call::graph_nodes, g);
	Result r = Client::the().call(x);
	if (r != success)
		return r;
	size_t all = x.reply.words[0];
	if (nodes)
		memcpy(nodes, x.payload.data(), std::min(all, *n) * sizeof(Handle));
	*n = all;
	return success;
}

EXPORT(cuGraphGetEdges, hipGraphGetEdges)(Handle g, Handle *from, Handle *to, size_t *n) {
	COUNT;
	Exchange x(Call::graph_edges, g);
	Result r = Client::the().call(x);
	if (r != success)
		return r;
	size_t all = x.reply.words[0];
	auto pairs = reinterpret_cast<const Handle *>(x.payload.data());
	for (size_t i = 0; from && i < std::min(all, *n); i++)
		from[i] = pairs[2 * i], to[i] = pairs[2 * i + 1];
	*n = all;
	return success;
}

EXPORT(cuGraphNodeGetType, hipGraphNodeGetType)(Handle node, int *type) {
	COUNT;
	return told(Exchange(Call::node_type, node), type);
}

EXPORT(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(Handle *exec, Handle g, unsigned long long) {
	COUNT;
	return made(Exchange(Call::instantiate, g), exec);
}
EXPORT(cuGraphLaunch, hipGraphLaunch)(Handle exec, Handle s) {
	COUNT;
	return done(Call::exec_launch, exec, s);
}
EXPORT(cuGraphExecDestroy, hipGraphExecDestroy)(Handle exec) {
	COUNT;
	return done(Call::exec_destroy, exec);
}
EXPORT(cuGraphExecUpdate, hipGraphExecUpdate)(Handle exec, Handle g, Handle *node, int *why) {
	COUNT;
	Result r = done(Call::exec_update, exec, g);
	*node = 0, *why = r == success ? 0 : 1;
	return r;
}
