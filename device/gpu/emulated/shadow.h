// The shadow of each byte that kernels may touch: whether it has a value, and who last wrote and read it.
#pragma once

#include "executor.h"

#include <atomic>
#include <mutex>

namespace emulated {

// A Tag says who has accessed a byte. 0 is no access.
//   launch 20 bits, block 15, thread 10, clock 16, atomic 1, spread 2
// The clock of a warp goes on when it synchronizes. The launches of shared memory are the blocks of a worker.
using Tag = uint64_t;
enum class Spread : unsigned { thread, warp, block, grid }; // over which a byte's readers are spread

constexpr Tag tag_of(uint64_t launch, uint64_t block, unsigned thread, unsigned clock, bool atomic) {
	return (launch & 0xfffff) << 44 | (block & 0x7fff) << 29 | (uint64_t)(thread & 0x3ff) << 19 |
	    (uint64_t)(clock & 0xffff) << 3 | (uint64_t)atomic << 2;
}
constexpr uint64_t launch_of(Tag t) { return t >> 44; }
constexpr uint64_t block_of(Tag t) { return t >> 29 & 0x7fff; }
constexpr unsigned thread_of(Tag t) { return t >> 19 & 0x3ff; }
constexpr unsigned clock_of(Tag t) { return t >> 3 & 0xffff; }
constexpr bool atomic_of(Tag t) { return t >> 2 & 1; }
constexpr Spread spread_of(Tag t) { return (Spread)(t & 3); }

// Shadow is that of a range.
class Shadow {
  public:
	Shadow(Range range, bool written, bool of_block = false);
	~Shadow();
	Shadow(const Shadow &) = delete;
	Shadow &operator=(const Shadow &) = delete;

	bool has(uintptr_t at, size_t bytes) const {
		return at - range.base < range.bytes && bytes <= range.bytes - (at - range.base);
	}
	void set_valid(uintptr_t at, size_t bytes, bool valid);
	void give_value(size_t first, size_t bytes) { // to bytes from there on
		for (size_t k = first; k < first + bytes; k++)
			if (!(__atomic_load_n(&bits[k / 8], __ATOMIC_RELAXED) >> (k % 8) & 1))
				__atomic_fetch_or(&bits[k / 8], (uint8_t)(1u << (k % 8)), __ATOMIC_RELAXED);
	}
	bool valid(uintptr_t at) const {
		size_t k = at - range.base;
		return __atomic_load_n(&bits[k / 8], __ATOMIC_RELAXED) >> (k % 8) & 1;
	}
	void copy_valid(uintptr_t to, const Shadow *from, uintptr_t at, size_t bytes);

	const Range range;
	const bool of_block;    // shared memory, which a block has for itself
	uint8_t *bits;          // a bit for each byte, set if that has a value
	Tag *writers, *readers; // one for each byte

  private:
	void *mapped;
	size_t mapped_bytes;
};

// Ranges are those of a moment, in the order of their addresses.
using Ranges = std::vector<std::shared_ptr<Shadow>>;

// Memory is all ranges of a process's devices.
class Memory {
  public:
	void add(Range range, bool written);
	void remove(Range range);
	void written(Range range);
	void copied(uintptr_t to, uintptr_t from, size_t bytes);

	uint64_t version() const { return changes.load(std::memory_order_acquire); }
	std::shared_ptr<const Ranges> now() const;

  private:
	mutable std::mutex mutex;
	std::shared_ptr<const Ranges> ranges = std::make_shared<Ranges>();
	std::atomic<uint64_t> changes{1};
};

// find is the range with an address, or null.
Shadow *find(const Ranges &ranges, uintptr_t at);

} // namespace emulated
