#include "memory/staging.h"

#include <array>
#include <atomic>
#include <mutex>

namespace chorus {

namespace {

// Lane is a stream of a device that is used only for these copies.
struct Lane {
  std::mutex mutex; // one copy at a time, so that its error goes to its caller
  chorus_stream stream = 0;
  std::atomic<int64_t> bytes{0};
};
std::array<Lane, kMostDevices> lanes;

} // namespace

void stage(DeviceIndex index, void* to, const void* from, size_t bytes) {
  chorus_device handle = device(index).handle;
  Unlocked unlocked;
  Lane& lane = lanes[index];
  std::lock_guard<std::mutex> lock(lane.mutex);
  if (!lane.stream)
    check(lib.stream_create(handle, 0, &lane.stream));
  check(lib.stream_copy(lane.stream, to, from, int64_t(bytes)));
  if (lib.stream_await(lane.stream, 0) != CHORUS_OK) {
    Locked locked;
    check(lib.stream_recover(lane.stream, 0)); // throws the error, and clears it for the next copy
  }
  lane.bytes += int64_t(bytes);
}

int64_t staged(DeviceIndex index) {
  return lanes[index].bytes;
}

} // namespace chorus
