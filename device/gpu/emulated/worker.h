// A thread of the host that runs blocks, one after another, whose threads are fibers.
#pragma once

#include "executor.h"
#include "fiber.h"
#include "module.h"
#include "shadow.h"

#include <map>

namespace emulated {

// A Run is a launch under way.
struct Run {
	const Launch *launch;
	const Memory *memory;
	uint64_t number;               // of the launch
	int warp;                      // lanes
	std::atomic<uint64_t> next{0}; // block
	uint64_t blocks;
	std::atomic<bool> failed{false};
	std::mutex mutex;
	Outcome outcome; // of the first that failed
};

// Ask is what a lane asks of its warp.
enum class Ask { index, up, down, by_xor, all, any, ballot, active, sync };

// A Lane is a thread of the running block.
struct Lane {
	enum { ready, running, at_barrier, at_warp, ended } state = ready;
	Fiber *fiber = nullptr;
	Dim index;
	uintptr_t site; // where it waits
	Ask ask;
	uint64_t mask, value;
	int from, width;
};

// A Doubt is a write that races with another access, and is none if it hasn't changed the bytes: several threads may
// write the same value.
struct Doubt {
	static constexpr size_t most = 16;
	uintptr_t at = 0, site = 0;
	size_t bytes = 0; // 0: there is none
	unsigned char before[most];
	std::string what;
};

class Worker {
  public:
	static Worker &mine();                       // of the calling thread
	static Worker *running() { return at_work; } // null unless the calling thread runs a kernel
	~Worker();

	void work(Run &run); // until no block is left

	// For the functions that kernels call.
	unsigned place(int what) const { return places[what]; }
	void wait_for_block(uintptr_t site);
	uint64_t wait_for_warp(Ask ask, uint64_t mask, uint64_t value, int from, int width, uintptr_t site);
	[[noreturn]] void fail(Fault fault, uintptr_t site, const std::string &what);
	[[noreturn]] void fail_in(Fault fault, const std::string &where, const std::string &what);

	// For the checks of accesses.
	void doubt(uintptr_t at, size_t bytes, uintptr_t site, const std::string &what); // before the write
	void settle_doubt() {                                                            // after it
		if (last_doubt.bytes > 0)
			settle_write();
	}
	bool on_stack(uintptr_t at) const { return at - fiber->low < Fiber::stack_bytes; }
	Shadow *shadow_of(uintptr_t at, size_t bytes) { // null if it's outside of what kernels may touch
		Shadow *s = found[at >> 12 & (most_found - 1)];
		return s != nullptr && version == run->memory->version() && s->has(at, bytes) ? s : look_up(at, bytes);
	}
	Tag tag(const Shadow *s, bool atomic) const { return tags[s->of_block] | (Tag)atomic << 2; }
	bool same_warp(Tag other) const { return thread_of(other) >> warp_shift == warp; }
	bool ordered(Tag other) const { // before what the running thread does, if that is of the same block
		return clock_of(other) < (spread_of(other) <= Spread::warp && same_warp(other) ? own_begin : block_begin);
	}
	std::string named(const Shadow *s, Tag other) const;
	const Module &module() const { return *run->launch->function->module; }
	bool is_argument(uintptr_t at) const { // in the packed list, from which they are passed
		return at - (uintptr_t)run->launch->arguments < run->launch->function->argument_bytes;
	}
	void *dynamic_memory();

	Lane *lane = nullptr; // that runs
	Fiber *fiber = nullptr;

  private:
	static constexpr size_t most_found = 16; // ranges, by the page in which they were found
	static constinit thread_local Worker *at_work;

	Shadow *look_up(uintptr_t at, size_t bytes);
	void enter(Lane *l); // before it runs
	void forget();       // what was found
	static void fiber_main();
	void settle_write();
	void block(uint64_t number);
	void prepare_shared();
	void resume(Fiber *f);
	void suspend();
	void start();
	bool settle(); // what the threads wait for; false if nothing can go on
	bool settle_warp(size_t warp, bool last_chance);
	void reset();
	void record(Fault fault, const Lane &l, const std::string &where, const std::string &what);

	Run *run = nullptr;
	Dim block_index;
	std::vector<Lane> lanes;
	size_t next = 0, ended = 0;
	bool faulty = false;
	Doubt last_doubt;
	Context scheduler;
	std::vector<std::unique_ptr<Fiber>> fibers;
	std::vector<Fiber *> idle;

	// Of the lane that runs: its indexes, with the block's, and the sizes; its tags in the devices' memory and in shared
	// memory, and the block's; its warp, and when that has last synchronized.
	unsigned places[12];
	Tag tags[2], block_tags[2];
	unsigned warp, warp_shift, own_begin;

	std::vector<unsigned> clocks, warp_begin; // of each warp: now, and when it has last synchronized
	unsigned block_begin = 0;                 // the clock when the block last did

	std::shared_ptr<const Ranges> ranges;
	uint64_t version = 0; // of ranges
	Shadow *found[most_found];
	std::unique_ptr<Shadow> static_shared, dynamic_shared;
	const Module *shared_of = nullptr; // whose static_shared is
	std::vector<char> dynamic;
	uint64_t blocks = 0; // that it has run
};

} // namespace emulated
