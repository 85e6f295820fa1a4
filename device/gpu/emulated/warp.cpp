// Shuffles, votes and synchronizations of warps: all lanes of the mask come, or it's an error.
#include "worker.h"

#include <algorithm>

namespace emulated {

namespace {

const char *name_of(Ask ask) {
	switch (ask) {
	case Ask::all:
	case Ask::any:
	case Ask::ballot:
	case Ask::active:
		return "a vote";
	case Ask::sync:
		return "a synchronization of the warp";
	default:
		return "a shuffle";
	}
}

// source_of is the lane whose value a shuffle gets.
int source_of(const Lane &l, int at) {
	int first = at & ~(l.width - 1), source = at;
	switch (l.ask) {
	case Ask::index:
		return first + (l.from & (l.width - 1));
	case Ask::up:
		source = at - l.from;
		break;
	case Ask::down:
		source = at + l.from;
		break;
	default:
		source = at ^ l.from;
	}
	return source < first || source >= first + l.width ? at : source;
}

} // namespace

// settle_warp lets a warp's lanes go on if all have come that should. With the last chance, those that haven't won't.
bool Worker::settle_warp(size_t warp, bool last_chance) {
	size_t low = warp * run->warp, count = std::min(lanes.size() - low, (size_t)run->warp);
	uint64_t waiting = 0, alive = 0;
	for (size_t k = 0; k < count; k++) {
		waiting |= (uint64_t)(lanes[low + k].state == Lane::at_warp) << k;
		alive |= (uint64_t)(lanes[low + k].state != Lane::ended) << k;
	}
	bool on = false;
	for (uint64_t left = waiting; left != 0 && !faulty;) {
		size_t at = (size_t)__builtin_ctzll(left);
		Lane &first = lanes[low + at];
		uint64_t existing = count == 64 ? ~0ull : (1ull << count) - 1;
		uint64_t mask = first.ask == Ask::active ? waiting : first.mask == 0 ? alive : first.mask & existing, with = 0;
		for (size_t k = 0; k < count; k++) {
			Lane &l = lanes[low + k];
			if (mask >> k & 1 && l.state == Lane::at_warp && l.ask == first.ask && l.mask == first.mask)
				with |= 1ull << k;
		}
		left &= ~(with | 1ull << at);
		if (first.ask == Ask::active)
			mask = with;
		if (with != mask) {
			if (last_chance) {
				size_t missing = (size_t)__builtin_ctzll(mask & ~with);
				Lane &l = lanes[low + missing];
				std::string state = l.state == Lane::ended ? "has ended" : "waits at " + module().line_of(l.site);
				record(Fault::launch_failed, first, module().line_of(first.site),
				    std::string(name_of(first.ask)) + ", to which lane " + std::to_string(missing) +
				        " of its warp doesn't come: that " + state);
			}
			continue;
		}
		uint64_t votes = 0, values[64];
		for (size_t k = 0; k < count; k++)
			if (mask >> k & 1) {
				values[k] = lanes[low + k].value;
				votes |= (uint64_t)(values[k] != 0) << k;
			}
		for (size_t k = 0; k < count; k++) {
			if (!(mask >> k & 1))
				continue;
			Lane &l = lanes[low + k];
			l.state = Lane::ready;
			switch (l.ask) {
			case Ask::all:
				l.value = votes == mask;
				break;
			case Ask::any:
				l.value = votes != 0;
				break;
			case Ask::ballot:
			case Ask::active:
				l.value = votes;
				break;
			case Ask::sync:
				break;
			default: {
				int source = source_of(l, (int)k);
				if (source < (int)count && mask >> source & 1)
					l.value = values[source];
				else
					l.value = 0xfff8dead7ff8deadull; // no value: a NaN in both types
			}
			}
		}
		if (first.ask == Ask::sync)
			warp_begin[warp] = ++clocks[warp];
		on = true;
	}
	return on;
}

} // namespace emulated
