#include "worker.h"

#include <algorithm>
#include <cstring>

namespace emulated {

namespace {

constexpr size_t most_dynamic = 228 << 10; // bytes of a block

std::string text_of(Dim d) {
	return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

Dim index_of(uint64_t number, Dim of) {
	return {(unsigned)(number % of.x), (unsigned)(number / of.x % of.y), (unsigned)(number / of.x / of.y)};
}

} // namespace

constinit thread_local Worker *Worker::at_work = nullptr;

Worker &Worker::mine() {
	static thread_local Worker w;
	return w;
}

Worker::~Worker() = default;

void Worker::work(Run &r) {
	run = &r;
	version = 0;
	forget();
	prepare_shared();
	warp_shift = (unsigned)__builtin_ctz((unsigned)r.warp);
	const Dim &threads = r.launch->block, &grid = r.launch->grid;
	places[6] = threads.x, places[7] = threads.y, places[8] = threads.z;
	places[9] = grid.x, places[10] = grid.y, places[11] = grid.z;
	for (uint64_t b; !r.failed && (b = r.next++) < r.blocks;)
		block(b);
	at_work = nullptr;
	run = nullptr;
}

// prepare_shared finds the thread's copy of the module's shared memory.
void Worker::prepare_shared() {
	Range range = module().shared_memory();
	if (range.bytes == 0)
		static_shared.reset();
	else if (static_shared == nullptr || static_shared->range.base != range.base ||
	    static_shared->range.bytes != range.bytes)
		static_shared = std::make_unique<Shadow>(range, false, true);
	size_t bytes = run->launch->dynamic_shared;
	if (bytes == 0)
		dynamic_shared.reset();
	else if (dynamic_shared == nullptr || dynamic_shared->range.bytes != bytes) {
		dynamic.resize(most_dynamic + 128);
		uintptr_t base = ((uintptr_t)dynamic.data() + 127) & ~(uintptr_t)127;
		dynamic_shared = std::make_unique<Shadow>(Range{base, bytes}, false, true);
	}
}

void *Worker::dynamic_memory() { return dynamic_shared == nullptr ? nullptr : (void *)dynamic_shared->range.base; }

void Worker::block(uint64_t number) {
	const Launch &l = *run->launch;
	size_t count = (size_t)l.block.x * l.block.y * l.block.z, warps = (count + run->warp - 1) / run->warp;
	block_index = index_of(number, l.grid);
	places[3] = block_index.x, places[4] = block_index.y, places[5] = block_index.z;
	blocks++;
	block_tags[false] = tag_of(run->number % 0xfffff + 1, number, 0, 0, false);
	block_tags[true] = tag_of(blocks % 0xfffff + 1, 0, 0, 0, false);
	lanes.assign(count, Lane());
	clocks.assign(warps, 0), warp_begin.assign(warps, 0);
	block_begin = 0;
	next = ended = 0;
	faulty = false;
	last_doubt.bytes = 0;
	if (static_shared != nullptr)
		static_shared->set_valid(static_shared->range.base, static_shared->range.bytes, false);
	if (l.dynamic_shared > 0)
		dynamic_shared->set_valid(dynamic_shared->range.base, l.dynamic_shared, false);
	do {
		while (next < count && !faulty)
			start();
		for (size_t k = 0; k < count && !faulty; k++)
			if (lanes[k].state == Lane::ready && lanes[k].fiber != nullptr) {
				enter(&lanes[k]);
				resume(lane->fiber);
			}
	} while (!faulty && ended < count && settle());
	if (faulty)
		reset();
}

// start has a fiber run threads that haven't begun, until one of them waits.
void Worker::start() {
	if (idle.empty()) {
		fibers.push_back(std::make_unique<Fiber>());
		fibers.back()->begin(fiber_main);
		idle.push_back(fibers.back().get());
	}
	Fiber *f = idle.back();
	idle.pop_back();
	resume(f);
}

void Worker::resume(Fiber *f) {
	fiber = f;
	at_work = this;
	emulated_switch_to(&scheduler, &f->context);
	at_work = nullptr;
}

void Worker::suspend() {
	Fiber *f = fiber;
	emulated_switch_to(&f->context, &scheduler);
}

void Worker::fiber_main() {
	for (;;) {
		Worker &w = *at_work;
		const Launch &l = *w.run->launch;
		while (w.next < w.lanes.size()) {
			size_t k = w.next++;
			Lane &lane = w.lanes[k];
			lane.fiber = w.fiber, lane.state = Lane::running, lane.index = index_of(k, l.block);
			w.enter(&lane);
			l.function->call(l.arguments);
			w.settle_doubt();
			w.lane->state = Lane::ended;
			w.ended++;
		}
		w.idle.push_back(w.fiber);
		w.suspend();
	}
}

// reset leaves a block that has failed, with all of its fibers.
void Worker::reset() {
	idle.clear();
	for (auto &f : fibers) {
		f->begin(fiber_main);
		idle.push_back(f.get());
	}
}

void Worker::enter(Lane *l) {
	size_t k = (size_t)(l - lanes.data());
	lane = l;
	places[0] = l->index.x, places[1] = l->index.y, places[2] = l->index.z;
	warp = (unsigned)k >> warp_shift;
	own_begin = warp_begin[warp];
	Tag own = tag_of(0, 0, (unsigned)k, clocks[warp], false);
	tags[false] = block_tags[false] | own, tags[true] = block_tags[true] | own;
}

void Worker::wait_for_block(uintptr_t site) {
	settle_doubt();
	Lane *l = lane;
	l->state = Lane::at_barrier, l->site = site;
	suspend();
	l->state = Lane::running;
}

uint64_t Worker::wait_for_warp(Ask ask, uint64_t mask, uint64_t value, int from, int width, uintptr_t site) {
	settle_doubt();
	Lane *l = lane;
	unsigned at = (unsigned)((size_t)(l - lanes.data()) % run->warp);
	if (mask != 0 && !(mask >> at & 1))
		fail(Fault::launch_failed, site, "the mask of lanes doesn't have the one that calls, " + std::to_string(at));
	if (width <= 0 || width > run->warp || (width & (width - 1)) != 0)
		fail(Fault::launch_failed, site, "a shuffle over " + std::to_string(width) + " lanes");
	l->state = Lane::at_warp, l->site = site, l->ask = ask, l->mask = mask, l->value = value, l->from = from;
	l->width = width;
	suspend();
	l->state = Lane::running;
	return l->value;
}

// settle lets threads go on whose wait is over. If nothing is left that could end a wait, it's an error.
bool Worker::settle() {
	bool on = false;
	for (size_t w = 0; w < clocks.size(); w++)
		on = settle_warp(w, false) || on;
	if (on || faulty)
		return !faulty;
	size_t waiting = 0;
	Lane *first = nullptr, *other = nullptr, *gone = nullptr;
	for (Lane &l : lanes) {
		if (l.state == Lane::at_barrier) {
			waiting++;
			if (first == nullptr)
				first = &l;
			else if (l.site != first->site && other == nullptr)
				other = &l;
		} else if (l.state == Lane::ended && gone == nullptr)
			gone = &l;
	}
	if (waiting < lanes.size()) {
		for (size_t w = 0; w < clocks.size() && !faulty; w++)
			settle_warp(w, true);
		if (!faulty && first != nullptr) {
			std::string what = "a barrier that not all threads of the block reach";
			if (gone != nullptr)
				what += ": thread " + text_of(gone->index) + " has ended";
			record(Fault::launch_failed, *first, module().line_of(first->site), what);
		}
		return false;
	}
	if (other != nullptr) { // compilers may have made two of one, and not say of which
		std::string here = module().known_line_of(first->site), there = module().known_line_of(other->site);
		if (here != there && !here.empty() && !there.empty()) {
			record(Fault::launch_failed, *first, here,
			    "a barrier, while thread " + text_of(other->index) + " is at another: " + there);
			return false;
		}
	}
	unsigned clock = *std::max_element(clocks.begin(), clocks.end()) + 1;
	clocks.assign(clocks.size(), clock), warp_begin.assign(clocks.size(), clock);
	block_begin = clock;
	for (Lane &l : lanes)
		l.state = Lane::ready;
	return true;
}

// fail ends the block: the thread that runs doesn't go on, nor do the others.
void Worker::fail(Fault fault, uintptr_t site, const std::string &what) {
	fail_in(fault, module().line_of(site), what);
}

void Worker::fail_in(Fault fault, const std::string &where, const std::string &what) {
	record(fault, *lane, where, what);
	suspend();
	__builtin_unreachable();
}

void Worker::doubt(uintptr_t at, size_t bytes, uintptr_t site, const std::string &what) {
	last_doubt.at = at, last_doubt.bytes = bytes, last_doubt.site = site, last_doubt.what = what;
	std::memcpy(last_doubt.before, (const void *)at, bytes);
}

void Worker::settle_write() {
	size_t bytes = last_doubt.bytes;
	last_doubt.bytes = 0;
	if (std::memcmp(last_doubt.before, (const void *)last_doubt.at, bytes) != 0)
		fail(Fault::launch_failed, last_doubt.site, last_doubt.what);
}

// record notes what ended the block.
void Worker::record(Fault fault, const Lane &l, const std::string &where, const std::string &what) {
	std::string text = "kernel " + run->launch->function->about.name + ", block " + text_of(block_index) + ", thread " +
	    text_of(l.index) + ", " + where + ": " + what;
	std::lock_guard<std::mutex> locked(run->mutex);
	if (!run->failed)
		run->outcome = {fault, text};
	run->failed = faulty = true;
}

void Worker::forget() { std::fill(found, found + most_found, nullptr); }

Shadow *Worker::look_up(uintptr_t at, size_t bytes) {
	uint64_t v = run->memory->version();
	if (v != version) {
		ranges = run->memory->now();
		version = v;
		forget();
	}
	Shadow *s = nullptr;
	for (Shadow *shared : {static_shared.get(), dynamic_shared.get()})
		if (shared != nullptr && shared->has(at, 1))
			s = shared;
	if (s == nullptr)
		s = find(*ranges, at);
	if (s == nullptr || !s->has(at, bytes))
		return nullptr;
	return found[at >> 12 & (most_found - 1)] = s;
}

std::string Worker::named(const Shadow *s, Tag other) const {
	std::string thread = "thread " + text_of(index_of(thread_of(other), run->launch->block));
	switch (spread_of(other)) {
	case Spread::grid:
		return "threads of several blocks";
	case Spread::block:
	case Spread::warp:
		thread += " and others";
		break;
	case Spread::thread:
		break;
	}
	if (block_of(other) != block_of(tag(s, false))) {
		uint64_t blocks = run->blocks;
		std::string number = text_of(index_of(block_of(other), run->launch->grid));
		return thread + " of block " + number + (blocks > 0x8000 ? " (or 32,768 later)" : "");
	}
	return thread;
}

} // namespace emulated
