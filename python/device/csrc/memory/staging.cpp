#include "memory/staging.h"

#include <array>
#include <atomic>

#include "runtime/stream.h"

namespace chorus {

static std::array<std::atomic<int64_t>, kMostDevices> staged_counts;

void stage(DeviceIndex index, chorus_stream stream, void* to, const void* from, size_t bytes) {
  check(lib.stream_copy(stream, to, from, int64_t(bytes)));
  Unlocked unlocked;
  check(lib.stream_await(stream, 0)); // to the end, also if the user interrupts the program: the caller frees the memory
  staged_counts[index] += int64_t(bytes);
}

void await_copy(chorus_stream stream) {
  try {
    await(stream);
  } catch (...) {
    Unlocked unlocked;
    (void)lib.stream_await(stream, 0);
    throw;
  }
}

int64_t staged(DeviceIndex index) {
  return staged_counts[index];
}

} // namespace chorus
