#include "shadow.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace emulated {

Shadow::Shadow(Range r, bool written, bool shared) : range(r), of_block(shared) {
	size_t in_bits = (r.bytes / 8 + 4096) & ~(size_t)4095;
	mapped_bytes = in_bits + 2 * sizeof(Tag) * r.bytes;
	mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		throw std::bad_alloc();
	bits = (uint8_t *)mapped;
	writers = (Tag *)(bits + in_bits);
	readers = writers + r.bytes;
	if (written)
		std::memset(bits, 0xff, r.bytes / 8 + 1);
}

Shadow::~Shadow() { munmap(mapped, mapped_bytes); }

void Shadow::set_valid(uintptr_t at, size_t bytes, bool valid) {
	size_t k = at - range.base, end = k + bytes;
	auto one = [&](size_t i, uint8_t mask) {
		if (valid)
			__atomic_fetch_or(&bits[i], mask, __ATOMIC_RELAXED);
		else
			__atomic_fetch_and(&bits[i], (uint8_t)~mask, __ATOMIC_RELAXED);
	};
	while (k < end && (k % 8 != 0 || end - k < 8)) {
		size_t upto = std::min(end, (k / 8 + 1) * 8);
		one(k / 8, (uint8_t)((0xffu >> (8 - (upto - k))) << (k % 8)));
		k = upto;
	}
	if (k == end)
		return;
	std::memset(bits + k / 8, valid ? 0xff : 0, (end - k) / 8);
	if (end % 8 != 0)
		one(end / 8, (uint8_t)(0xffu >> (8 - end % 8)));
}

void Shadow::copy_valid(uintptr_t to, const Shadow *from, uintptr_t at, size_t bytes) {
	size_t shift = at - from->range.base, k = to - range.base;
	if (shift % 8 == k % 8 && bytes >= 16) { // whole bytes of bits
		size_t head = (8 - k % 8) % 8, whole = (bytes - head) / 8;
		copy_valid(to, from, at, head);
		std::memmove(bits + (k + head) / 8, from->bits + (shift + head) / 8, whole);
		size_t done = head + whole * 8;
		copy_valid(to + done, from, at + done, bytes - done);
		return;
	}
	std::vector<bool> kept(bytes);
	for (size_t i = 0; i < bytes; i++)
		kept[i] = from->valid(at + i);
	for (size_t i = 0; i < bytes; i++)
		set_valid(to + i, 1, kept[i]);
}

Shadow *find(const Ranges &ranges, uintptr_t at) {
	auto after = std::upper_bound(ranges.begin(), ranges.end(), at,
	    [](uintptr_t a, const std::shared_ptr<Shadow> &s) { return a < s->range.base; });
	if (after == ranges.begin())
		return nullptr;
	Shadow *s = (after - 1)->get();
	return s->has(at, 1) ? s : nullptr;
}

std::shared_ptr<const Ranges> Memory::now() const {
	std::lock_guard<std::mutex> locked(mutex);
	return ranges;
}

void Memory::add(Range range, bool written) {
	auto shadow = std::make_shared<Shadow>(range, written);
	std::lock_guard<std::mutex> locked(mutex);
	auto changed = std::make_shared<Ranges>(*ranges);
	auto at = std::upper_bound(changed->begin(), changed->end(), range.base,
	    [](uintptr_t a, const std::shared_ptr<Shadow> &s) { return a < s->range.base; });
	changed->insert(at, shadow);
	ranges = changed;
	changes++;
}

void Memory::remove(Range range) {
	std::lock_guard<std::mutex> locked(mutex);
	auto changed = std::make_shared<Ranges>(*ranges);
	changed->erase(std::remove_if(changed->begin(), changed->end(),
	                   [&](const std::shared_ptr<Shadow> &s) { return s->range.base == range.base; }),
	    changed->end());
	ranges = changed;
	changes++;
}

void Memory::written(Range range) {
	std::shared_ptr<const Ranges> all = now();
	for (uintptr_t at = range.base, end = at + range.bytes; at < end;) {
		Shadow *s = emulated::find(*all, at);
		if (s == nullptr)
			return;
		size_t n = std::min(end, s->range.base + s->range.bytes) - at;
		s->set_valid(at, n, true);
		at += n;
	}
}

void Memory::copied(uintptr_t to, uintptr_t from, size_t bytes) {
	std::shared_ptr<const Ranges> all = now();
	Shadow *a = emulated::find(*all, to), *b = emulated::find(*all, from);
	if (a == nullptr)
		return;
	if (b == nullptr || !b->has(from, bytes) || !a->has(to, bytes))
		written({to, bytes});
	else
		a->copy_valid(to, b, from, bytes);
}

} // namespace emulated
