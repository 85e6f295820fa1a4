#include "client.h"

#include <climits>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <linux/futex.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>

#include "socket.h"

extern char **environ;

namespace emulated {

thread_local Current current;

Client &Client::the() {
	static Client *client = new Client;
	return *client;
}

Client::Client() : retained(most_devices) {}

bool current_device(int &device) {
	if (dialect == Dialect::hip) {
		device = current.device;
		return true;
	}
	if (current.contexts.empty())
		return false;
	device = current.contexts.back();
	return true;
}

// start starts the server once for the process. A process made by fork has no GPU, as with the real libraries.
Result Client::start() {
	std::lock_guard lock(starting);
	if (calls < 0)
		return launch_server();
	return process == getpid() ? success : not_initialized;
}

static bool map_at(uintptr_t base, size_t bytes, int protection, int flags, int fd) {
	void *at = reinterpret_cast<void *>(base);
	return mmap(at, bytes, protection, flags | MAP_FIXED_NOREPLACE | MAP_NORESERVE, fd, 0) == at;
}

Result Client::launch_server() {
	auto failed = [](const char *what) {
		fprintf(stderr, "emulated GPU: %s: %s\n", what, strerror(errno));
		return no_device;
	};
	// An access to a device's memory in this process faults.
	size_t bytes = settings.devices * window;
	if (!map_at(device_window(dialect, 0), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1))
		return failed("the addresses of its memory are in use");
	int pinned = memfd_create("emulated-gpu-pinned", MFD_CLOEXEC),
	    shared = memfd_create("emulated-gpu-board", MFD_CLOEXEC);
	if (pinned < 0 || shared < 0 || ftruncate(pinned, pinned_window) != 0 || ftruncate(shared, board_bytes) != 0)
		return failed("memory for both processes");
	if (!map_at(pinned_base(dialect), pinned_window, PROT_NONE, MAP_SHARED, pinned))
		return failed("the addresses of pinned memory are in use");
	void *at = mmap(nullptr, board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
	if (at == MAP_FAILED)
		return failed("memory for both processes");
	board = static_cast<Board *>(at);
	int call[2], errand[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, call) != 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, errand) != 0)
		return failed("sockets");

	Dl_info self;
	if (!dladdr(reinterpret_cast<void *>(&map_at), &self))
		return failed("where this library is");
	std::string program = self.dli_fname;
	program = program.substr(0, program.rfind('/') + 1) + "emulated-gpu";
	std::string family = dialect == Dialect::cuda ? "cuda" : "hip";
	char *arguments[] = {program.data(), family.data(), nullptr};
	// Descriptors of this process may have the numbers that the server's get: all move up first.
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	int from[] = {call[1], errand[1], pinned, shared};
	for (int i = 0; i < 4; i++)
		posix_spawn_file_actions_adddup2(&actions, from[i], 500 + i);
	for (int i = 0; i < 4; i++) {
		posix_spawn_file_actions_adddup2(&actions, 500 + i, fd_calls + i);
		posix_spawn_file_actions_addclose(&actions, 500 + i);
	}
	pid_t child;
	int e = posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	for (int fd : from)
		close(fd);
	if (e != 0) {
		errno = e;
		return failed(program.c_str());
	}
	calls = call[0], functions_socket = errand[0], process = getpid();
	std::thread(&Client::errands, this).detach();
	return success;
}

Result Client::call(Exchange &x) {
	if (calls < 0 || process != getpid())
		return not_initialized;
	if (dead)
		return unknown;
	x.request.bytes = uint32_t(x.payload.size());
	x.request.thread = int32_t(syscall(SYS_gettid));
	x.request.capture_mode = current.mode;
	current_device(x.request.device);
	std::lock_guard lock(calling);
	bool done = send_all(calls, &x.request, sizeof x.request) && send_all(calls, x.payload.data(), x.payload.size()) &&
	    receive_all(calls, &x.reply, sizeof x.reply);
	if (done) {
		x.payload.resize(x.reply.bytes);
		done = receive_all(calls, x.payload.data(), x.payload.size());
	}
	if (!done) {
		dead = true;
		return unknown;
	}
	return Result(x.reply.result);
}

// errands runs functions of the host, one after the other, as CUDA does.
void Client::errands() {
	for (Errand e; receive_all(functions_socket, &e, sizeof e);) {
		auto a = reinterpret_cast<void *>(e.a), b = reinterpret_cast<void *>(e.b);
		switch (e.kind) {
		case 0:
			reinterpret_cast<void (*)(void *)>(a)(b);
			break;
		case 1:
			memcpy(slot_data(board, slots), a, e.bytes);
			break;
		case 2:
			memcpy(a, slot_data(board, slots), e.bytes);
			break;
		case 3:
			memmove(a, b, e.bytes);
			break;
		}
		if (char done = 1; !send_all(functions_socket, &done, 1))
			break;
	}
	dead = true;
}

Result Client::idle(Handle stream) {
	Exchange fence(Call::fence, stream);
	if (Result r = call(fence); r != success)
		return r;
	for (int i = 0;; i++) {
		Result r = call(Exchange(Call::passed, fence.reply.words[0]));
		if (r != not_ready)
			return r;
		usleep(i < 20 ? 20 : 200);
	}
}

std::pair<uintptr_t, Allocation> Client::place(uintptr_t address) {
	std::lock_guard lock(placing);
	auto i = places.upper_bound(address);
	if (i == places.begin())
		return {0, {0, -1}};
	--i;
	if (address - i->first >= i->second.bytes)
		return {0, {0, -1}};
	return *i;
}

void Client::add(uintptr_t base, Allocation a) {
	std::lock_guard lock(placing);
	places[base] = a;
}

bool Client::remove(uintptr_t base, bool pinned, Allocation &was) {
	std::lock_guard lock(placing);
	auto i = places.find(base);
	if (i == places.end() || (i->second.device < 0) != pinned)
		return false;
	was = i->second;
	places.erase(i);
	return true;
}

// outside reports whether a side of a copy leaves its allocation, or is an address of devices without one.
bool Client::outside(uintptr_t p, size_t bytes, bool &device, bool &pinned) {
	auto [base, a] = place(p);
	device = a.bytes > 0 && a.device >= 0, pinned = a.bytes > 0 && a.device < 0;
	if (a.bytes > 0)
		return bytes > a.bytes - (p - base);
	return (p >= windows(dialect) && p < device_window(dialect, settings.devices)) ||
	    (p >= pinned_base(dialect) && p < pinned_base(dialect) + pinned_window);
}

// copy waits where memory isn't pinned, and between memory of the host, as CUDA's does.
Result Client::copy(uintptr_t to, uintptr_t from, size_t bytes, Handle stream) {
	bool device[2], pinned[2];
	if (outside(to, bytes, device[0], pinned[0]) || outside(from, bytes, device[1], pinned[1]))
		return invalid_value;
	if (bytes == 0)
		return success;
	bool host = !device[0] && !device[1];
	if (!host && (device[0] || pinned[0]) && (device[1] || pinned[1]))
		return call(Exchange(Call::copy, to, from, bytes, stream));
	Exchange state(Call::stream_capturing, stream);
	if (Result r = call(state); r != success)
		return r;
	if (state.reply.words[0] != capture_none)
		return call(Exchange(Call::copy_later, to, from, bytes, stream,
		    host            ? way_host
		        : device[0] ? way_in
		                    : way_out));
	static std::atomic<uint64_t> &count = calls_of("copies that wait");
	count++;
	if (host) {
		if (Result r = idle(stream); r != success)
			return r;
		memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
		return success;
	}
	for (size_t at = 0; at < bytes; at += slot_bytes) {
		size_t n = std::min(slot_bytes, bytes - at);
		auto memory = reinterpret_cast<char *>(device[0] ? from : to) + at;
		Result r =
		    pageable(device[0] ? Call::copy_in : Call::copy_out, (device[0] ? to : from) + at, memory, n, stream);
		if (r != success)
			return r;
	}
	return success;
}

// pageable copies as much as a slot takes, behind the stream's work.
Result Client::pageable(Call how, uintptr_t device, char *host, size_t bytes, Handle stream) {
	unsigned mine = 0;
	{
		std::unique_lock lock(slotting);
		slot_free.wait(lock, [&] { return busy != (1u << slots) - 1; });
		while (busy >> mine & 1)
			mine++;
		busy |= 1u << mine;
	}
	Slot &slot = board->slot[mine];
	char *data = slot_data(board, mine);
	if (how == Call::copy_in)
		memcpy(data, host, bytes);
	slot.done = 0;
	Result r = how == Call::copy_in ? call(Exchange(how, device, mine, bytes, stream))
	                                : call(Exchange(how, mine, device, bytes, stream));
	while (r == success && slot.done == 0) {
		timespec most{0, 100'000'000};
		syscall(SYS_futex, &slot.done, FUTEX_WAIT, 0, &most, nullptr, 0);
		if (dead)
			r = unknown;
	}
	if (r == success && (r = Result(slot.result)) == success && how == Call::copy_out)
		memcpy(host, data, bytes);
	std::lock_guard lock(slotting);
	busy &= ~(1u << mine);
	slot_free.notify_one();
	return r;
}

} // namespace emulated
