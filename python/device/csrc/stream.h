// Streams: PyTorch names them by device and ID, the library by a handle.
#pragma once

#include <string>

#include <c10/core/Stream.h>

#include "runtime.h"

namespace chorus {

// The library's ID of a device's default stream, which is 0 in PyTorch.
inline constexpr int64_t kDefaultID = 13;

// handle_of finds the stream that PyTorch means. ID 0 is the device's default stream.
chorus_stream handle_of(const c10::Stream& stream);

// current_handle is the thread's current stream of a device.
chorus_stream current_handle(DeviceIndex index);

c10::Stream current_stream(DeviceIndex index);
c10::Stream default_stream(DeviceIndex index);
c10::Stream pooled_stream(DeviceIndex index, int priority);
c10::Stream exchange_stream(const c10::Stream& stream);

// adopted_stream is one that somebody else in the process has made with the driver, which calls it native; until it's
// abandoned, which the thread's current stream can't be. native_handle is what the driver calls any stream.
c10::Stream adopted_stream(DeviceIndex index, uint64_t native);
void abandon(const c10::Stream& stream);
uint64_t native_handle(const c10::Stream& stream);

// await waits until a stream's work is done, and throws what it has failed with.
void await(chorus_stream stream);

bool capturing(chorus_stream stream);

// enter makes what the calling thread does a stream's next work, until it leaves. It waits for what the stream has,
// which can't be captured: why says what keeps the work from being enqueued.
void enter(chorus_stream stream, const char* name, const std::string& why);

// Turn leaves, at its end, a stream that was entered; 0 is none.
class Turn {
 public:
  explicit Turn(chorus_stream entered) : stream_(entered) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  chorus_stream stream_;
};

} // namespace chorus
