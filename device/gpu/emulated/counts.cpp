// How often each function of the libraries has been called.
#include "client.h"

using namespace emulated;

namespace {

struct Counts {
	std::mutex mutex;
	std::map<std::string, std::atomic<uint64_t>> of;
};

Counts &counts() { // never destroyed: other threads may call during the process's exit
	static Counts *all = new Counts;
	return *all;
}

} // namespace

std::atomic<uint64_t> &emulated::calls_of(const char *function) {
	std::lock_guard lock(counts().mutex);
	return counts().of[function];
}

// emulated_gpu_calls is a number for a test: how often this process has called a function, or any with null. That of
// "copies that wait" is of those among the copies.
extern "C" __attribute__((visibility("default"))) uint64_t emulated_gpu_calls(const char *function) {
	std::lock_guard lock(counts().mutex);
	uint64_t n = 0;
	for (auto &[name, calls] : counts().of)
		if (function == nullptr ? name.find(' ') == std::string::npos : name == function)
			n += calls;
	return n;
}
