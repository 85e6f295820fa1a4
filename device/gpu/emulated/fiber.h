// Fibers: threads of a kernel, each with a stack of its own, between which a thread of the host switches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace emulated {

// A Context is where something goes on: its stack, which has its registers.
struct Context {
	void *stack = nullptr;
};

// switch_to keeps the running context in from, and goes on with to.
extern "C" void emulated_switch_to(Context *from, const Context *to);

// A Fiber has a stack with an inaccessible page below.
class Fiber {
  public:
	Fiber();
	~Fiber();
	Fiber(const Fiber &) = delete;
	Fiber &operator=(const Fiber &) = delete;

	void begin(void (*main)()); // the context is at the begin of main, which doesn't return

	Context context;
	uintptr_t low, high; // of the stack

	static constexpr size_t stack_bytes = 256 << 10;
};

} // namespace emulated
