// Addresses of a window for allocations. A new one lies behind the last, until the window is over: a pointer that is
// used after its memory was freed points to nothing. Between allocations there is at least a page of nothing.
#pragma once

#include <map>

#include "executor.h"

namespace emulated {

class Allocator {
  public:
	Allocator() = default;
	// offset is where in a page allocations begin: device's are aligned to that, and no more.
	Allocator(uintptr_t base, size_t window, uint64_t capacity, size_t offset)
	    : capacity(capacity), base(base), window(window), offset(offset), next(base) {}

	uint64_t used = 0, capacity = 0;

	static size_t pages(size_t bytes) { return (bytes + page - 1) / page * page; }

	// take returns 0 if there is no room.
	uintptr_t take(size_t bytes) {
		if (bytes == 0 || bytes > capacity || bytes > capacity - used)
			return 0;
		size_t room = pages(offset + bytes) + page;
		if (uintptr_t at = between(next, base + window, room); at || (at = between(base, base + window, room))) {
			taken[at + offset] = bytes;
			used += bytes;
			next = at + room;
			return at + offset;
		}
		return 0;
	}

	// give returns the size of an allocation that is over; 0 if there is none.
	size_t give(uintptr_t at) {
		auto i = taken.find(at);
		if (i == taken.end())
			return 0;
		size_t bytes = i->second;
		used -= bytes;
		taken.erase(i);
		return bytes;
	}

	bool holds(uintptr_t at, size_t bytes) const {
		auto i = taken.upper_bound(at);
		if (i == taken.begin())
			return false;
		--i;
		return at - i->first <= i->second && bytes <= i->second - (at - i->first);
	}

  private:
	static constexpr size_t page = 4096;

	uintptr_t between(uintptr_t from, uintptr_t to, size_t room) const {
		auto i = taken.upper_bound(from);
		if (i != taken.begin()) {
			auto before = std::prev(i);
			from = std::max(from, before->first - offset + pages(offset + before->second) + page);
		}
		for (;; ++i) {
			uintptr_t end = i == taken.end() ? to : i->first - offset;
			if (from + room <= end)
				return from;
			if (i == taken.end())
				return 0;
			from = std::max(from, i->first - offset + pages(offset + i->second) + page);
		}
	}

	uintptr_t base = 0;
	size_t window = 0, offset = 0;
	uintptr_t next = 0;
	std::map<uintptr_t, size_t> taken;
};

} // namespace emulated
