// The user's process: its connection to the server, and what is known here without asking it.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "settings.h"

#ifdef EMULATED_CUDA
#define EXPORT(cuda, hip) extern "C" __attribute__((visibility("default"))) Result cuda
#else
#define EXPORT(cuda, hip) extern "C" __attribute__((visibility("default"))) Result hip
#endif

namespace emulated {

// Each function of the libraries counts its calls, which emulated_gpu_calls tells.
#define COUNT \
	static std::atomic<uint64_t> &count = calls_of(__func__); \
	count++
std::atomic<uint64_t> &calls_of(const char *function);

#ifdef EMULATED_CUDA
constexpr Dialect dialect = Dialect::cuda;
#else
constexpr Dialect dialect = Dialect::hip;
#endif

using Handle = uint64_t;

// Exchange is what a call says and gets.
struct Exchange {
	Request request{};
	Reply reply{};
	std::string payload; // both ways

	template <typename... W> explicit Exchange(Call call, W... words) {
		request.call = call;
		size_t i = 0;
		((request.words[i++] = uint64_t(words)), ...);
	}
};

struct Allocation {
	size_t bytes;
	int device; // -1: pinned memory
};

struct Signature {
	std::vector<Parameter> parameters;
	size_t static_shared, local;
	int registers, max_threads;
};

// Current is a thread's: CUDA's contexts, HIP's device, the mode of captures.
struct Current {
	std::vector<int> contexts;
	int device = 0;
	int mode = mode_global;
};
extern thread_local Current current;

class Client {
  public:
	static Client &the(); // never destroyed: other threads may call during the process's exit

	const Settings settings;

	Result start();
	Result call(Exchange &x);
	Result call(Exchange &&x) { return call(x); }
	Result idle(Handle stream = 0); // waits for what a stream has to do now, or the current device
	Result copy(uintptr_t to, uintptr_t from, size_t bytes, Handle stream);

	// place is the allocation that has an address; bytes is 0 if there is none.
	std::pair<uintptr_t, Allocation> place(uintptr_t address);
	void add(uintptr_t base, Allocation a);
	bool remove(uintptr_t base, bool pinned, Allocation &was);

	std::mutex mutex; // of the rest
	std::map<Handle, Signature> functions;
	std::vector<int> retained; // how often each primary context is
	bool peers[most_devices][most_devices] = {};

  private:
	Client();
	Result launch_server();
	void errands();
	Result pageable(Call how, uintptr_t device, char *host, size_t bytes, Handle stream);
	bool outside(uintptr_t p, size_t bytes, bool &device, bool &pinned);

	std::mutex starting, calling;
	int calls = -1, functions_socket = -1, process = 0;
	std::atomic<bool> dead{false};
	Board *board = nullptr;
	std::mutex slotting;
	std::condition_variable slot_free;
	unsigned busy = 0; // a bit for each slot
	std::mutex placing;
	std::map<uintptr_t, Allocation> places;
};

// device is the current one; false if there is none.
bool current_device(int &device);

} // namespace emulated
