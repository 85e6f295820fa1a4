#include "server.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "socket.h"

namespace emulated {

static void *map(uintptr_t at, size_t bytes, int fd) {
	int flags = MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0);
	void *p = mmap(reinterpret_cast<void *>(at), bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (p == MAP_FAILED || (at && p != reinterpret_cast<void *>(at))) {
		perror("emulated GPU: the addresses of its memory");
		exit(1);
	}
	return p;
}

Server::Server(Dialect words) : dialect(words), executor(emulated::executor(words)) {
	board = static_cast<Board *>(map(0, board_bytes, fd_board));
	map(pinned_base(dialect), pinned_window, fd_pinned);
	pins = Allocator(pinned_base(dialect), pinned_window, pinned_window / 2, 0);
	for (unsigned i = 0; i < settings.devices; i++) {
		Device &d = devices[i];
		d.memory_file = memfd_create("emulated-gpu-memory", MFD_CLOEXEC);
		if (d.memory_file < 0 || ftruncate(d.memory_file, window) != 0) {
			perror("emulated GPU: memory");
			exit(1);
		}
		map(device_window(dialect, i), window, d.memory_file);
		d.memory = Allocator(device_window(dialect, i), window, settings.memory, 512);
	}
}

// serve answers calls until the user's process is gone.
int Server::serve() {
	for (Message m; receive_all(fd_calls, &m.request, sizeof m.request);) {
		m.payload.resize(m.request.bytes);
		if (!receive_all(fd_calls, m.payload.data(), m.payload.size()))
			break;
		m.reply = {};
		m.reply.result = answer(m);
		m.reply.bytes = uint32_t(m.payload.size());
		if (!send_all(fd_calls, &m.reply, sizeof m.reply) || !send_all(fd_calls, m.payload.data(), m.payload.size()))
			break;
	}
	return 0;
}

// answer leaves in the payload what the reply has of it.
Result Server::answer(Message &m) {
	Call call = m.request.call;
	bool takes = call == Call::module_load || call == Call::module_function || call == Call::launch;
	if (!takes)
		m.payload.clear();
	if (ends_captures(m.request))
		return capture_unsupported;
	Device *d = device(m.request);
	if (d && d->lost != success && call != Call::stream_capturing && call != Call::memory)
		return Result(d->lost.load());
	switch (call) {
	case Call::allocate:
		return allocate(m);
	case Call::release:
		return release(m[0]);
	case Call::pin:
		return pin(m);
	case Call::unpin:
		return unpin(m[0]);
	case Call::memory:
		if (!d)
			return invalid_context;
		m.out(0) = d->memory.capacity - d->memory.used, m.out(1) = d->memory.capacity;
		return success;
	case Call::fence:
		return fence(m);
	case Call::passed:
		return passed(m[0]);
	case Call::copy:
		return copy(m[0], m[1], m[2], m[3]);
	case Call::copy_in:
		return copy_slot(m, true);
	case Call::copy_out:
		return copy_slot(m, false);
	case Call::copy_later:
		return copy_later(m);
	case Call::fill:
		return fill(m);
	case Call::stream_create:
		return stream_create(m);
	case Call::stream_destroy:
		return stream_destroy(m[0]);
	case Call::stream_query:
		return stream_query(m[0]);
	case Call::stream_device: {
		Stream *s = find(streams, m[0]);
		m.out(0) = s ? uint64_t(s->device) : 0;
		return s ? success : invalid_handle;
	}
	case Call::stream_wait:
		return stream_wait(m[0], m[1]);
	case Call::stream_capturing: {
		Stream *s = find(streams, m[0]);
		m.out(0) = !s || !s->capture ? capture_none : s->capture->invalid ? capture_discarded : capture_active;
		return s ? success : invalid_handle;
	}
	case Call::host_function:
		return host_function(m);
	case Call::wait_value:
		return wait_value(m);
	case Call::event_create:
		return event_create(m);
	case Call::event_destroy:
		return events.erase(m[0]) ? success : invalid_handle;
	case Call::event_record:
		return event_record(m[0], m[1]);
	case Call::event_query:
		return event_query(m[0]);
	case Call::event_elapsed:
		return event_elapsed(m);
	case Call::begin_capture:
		return begin_capture(m);
	case Call::end_capture:
		return end_capture(m);
	case Call::graph_destroy:
		return graphs.erase(m[0]) ? success : invalid_value;
	case Call::graph_nodes:
		return graph_nodes(m);
	case Call::graph_edges:
		return graph_edges(m);
	case Call::node_type:
		return node_type(m);
	case Call::instantiate:
		return instantiate(m);
	case Call::exec_launch:
		return exec_launch(m[0], m[1]);
	case Call::exec_destroy:
		return execs.erase(m[0]) ? success : invalid_value;
	case Call::exec_update:
		return exec_update(m[0], m[1]);
	case Call::module_load:
		return module_load(m);
	case Call::module_unload:
		return module_unload(m[0]);
	case Call::module_function:
		return module_function(m);
	case Call::function_shared:
		return function_shared(m[0], m[1]);
	case Call::launch:
		return launch(m);
	case Call::peer:
		return success;
	}
	return invalid_value;
}

} // namespace emulated

int main(int n, char **arguments) {
	using namespace emulated;
	if (n != 2 || fcntl(fd_calls, F_GETFD) < 0 || fcntl(fd_board, F_GETFD) < 0) {
		fprintf(stderr, "emulated-gpu: the libraries of an emulated GPU start this: run scripts/on-emulated-gpu.sh\n");
		return 2;
	}
	// A ^C is for the user's process. When that ends, its socket does.
	signal(SIGINT, SIG_IGN);
	syscall(SYS_close_range, fd_board + 1, ~0u, 0);
	auto server = new Server(strcmp(arguments[1], "hip") == 0 ? Dialect::hip : Dialect::cuda);
	_exit(server->serve()); // queues may still be at work
}
