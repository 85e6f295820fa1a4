// Memory, copies and fills.
#include <cstring>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server.h"

namespace emulated {

Result Server::allocate(Message &m) {
	Device *d = device(m.request);
	if (!d)
		return invalid_context;
	if (m[0] == 0)
		return invalid_value;
	uintptr_t at = d->memory.take(m[0]);
	if (!at)
		return out_of_memory;
	executor->allocated({at, m[0]}, false);
	m.out(0) = at;
	return success;
}

// punch gives the pages of freed memory back.
static void punch(int file, uintptr_t base, uintptr_t at, size_t bytes) {
	uintptr_t first = at / 4096 * 4096, end = Allocator::pages(at + bytes);
	fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(first - base), off_t(end - first));
}

Result Server::release(uintptr_t at) {
	for (unsigned i = 0; i < settings.devices; i++)
		if (size_t bytes = devices[i].memory.give(at)) {
			executor->freed({at, bytes});
			punch(devices[i].memory_file, device_window(dialect, i), at, bytes);
			return success;
		}
	return invalid_value;
}

Result Server::pin(Message &m) {
	uintptr_t at = pins.take(m[0]);
	if (!at)
		return out_of_memory;
	executor->allocated({at, m[0]}, true); // the host writes to it unseen
	m.out(0) = at;
	return success;
}

Result Server::unpin(uintptr_t at) {
	size_t bytes = pins.give(at);
	if (bytes == 0)
		return invalid_value;
	executor->freed({at, bytes});
	punch(fd_pinned, pinned_base(dialect), at, bytes);
	return success;
}

// memory reports whether bytes are within an allocation.
bool Server::memory(uintptr_t at, size_t bytes) const {
	for (unsigned i = 0; i < settings.devices; i++)
		if (devices[i].memory.holds(at, bytes))
			return true;
	return pins.holds(at, bytes);
}

void Server::moved(uintptr_t to, uintptr_t from, size_t bytes) {
	memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
	if (pinned(from))
		executor->written({to, bytes});
	else if (!pinned(to))
		executor->copied(to, from, bytes);
}

Result Server::copy(uint64_t to, uint64_t from, size_t bytes, Handle stream) {
	if (!memory(to, bytes) || !memory(from, bytes))
		return invalid_value;
	return enqueue(stream, node_copy, [=, this] { moved(to, from, bytes); });
}

// copy_slot copies to or from pageable memory, by a slot for which the caller waits.
Result Server::copy_slot(Message &m, bool in) {
	uint64_t to = m[0], from = m[1], bytes = m[2];
	uint64_t slot = in ? from : to, at = in ? to : from;
	Stream *s = find(streams, m[3]);
	if (slot >= slots || bytes > slot_bytes || !memory(at, bytes))
		return invalid_value;
	if (!s)
		return invalid_handle;
	if (s->capture)
		return capture_unsupported;
	int device = s->device;
	auto waiting = s->waiting;
	++*waiting;
	s->queue->push([=, this] {
		auto memory = reinterpret_cast<char *>(at);
		char *data = slot_data(board, unsigned(slot));
		Slot &answer = board->slot[slot];
		if ((answer.result = devices[device].lost) == success) {
			memcpy(in ? memory : data, in ? data : memory, bytes);
			if (in)
				executor->written({at, bytes});
		}
		--*waiting;
		answer.done = 1;
		syscall(SYS_futex, &answer.done, FUTEX_WAKE, 1, nullptr, nullptr, 0);
	});
	return success;
}

// copy_later is a node of a graph that copies pageable memory, which the user's process does at each run.
Result Server::copy_later(Message &m) {
	uint64_t to = m[0], from = m[1], bytes = m[2], way = m[4];
	if ((way == way_in && !memory(to, bytes)) || (way == way_out && !memory(from, bytes)))
		return invalid_value;
	return enqueue(m[3], node_copy, [=, this] {
		std::lock_guard lock(on_errand);
		if (way == way_host)
			return errand(3, to, from, bytes);
		char *data = slot_data(board, slots);
		for (uint64_t at = 0; at < bytes; at += slot_bytes) {
			uint64_t n = std::min<uint64_t>(slot_bytes, bytes - at);
			if (way == way_in) {
				errand(1, from + at, 0, n);
				memcpy(reinterpret_cast<void *>(to + at), data, n);
			} else {
				memcpy(data, reinterpret_cast<void *>(from + at), n);
				errand(2, to + at, 0, n);
			}
		}
		if (way == way_in)
			executor->written({to, bytes});
	});
}

Result Server::fill(Message &m) {
	uint64_t at = m[0], value = m[1], bytes = m[2];
	if (!memory(at, bytes))
		return invalid_value;
	return enqueue(m[3], node_fill, [=, this] {
		memset(reinterpret_cast<void *>(at), int(value), bytes);
		executor->written({at, bytes});
	});
}

} // namespace emulated
