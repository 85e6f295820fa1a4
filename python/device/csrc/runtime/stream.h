// Streams. PyTorch identifies a stream by device and ID, the library by a handle.
#pragma once

#include <mutex>
#include <string>

#include <c10/core/Stream.h>

#include "runtime/runtime.h"

namespace chorus {

// The library's ID of a device's default stream, which is 0 in PyTorch.
inline constexpr int64_t kDefaultID = 13;

// handle_of is the library's handle of a PyTorch stream. ID 0 is the device's default stream.
chorus_stream handle_of(const c10::Stream& stream);

// current_handle is the thread's current stream of a device.
chorus_stream current_handle(DeviceIndex index);

c10::Stream current_stream(DeviceIndex index);
c10::Stream default_stream(DeviceIndex index);
c10::Stream pooled_stream(DeviceIndex index, int priority);
c10::Stream exchange_stream(const c10::Stream& stream);

// adopted_stream is a stream that another library of the process has made with the driver; native is the driver's
// handle. It's valid until it's abandoned, which is refused for the thread's current stream. native_handle is the
// driver's handle of any stream.
c10::Stream adopted_stream(DeviceIndex index, uint64_t native);
void abandon(const c10::Stream& stream);
uint64_t native_handle(const c10::Stream& stream);

// await waits until a stream's work is done, and throws its error.
void await(chorus_stream stream);

bool capturing(chorus_stream stream);

// SyncDebug is what happens where the host waits for a stream: in operators and copies that can't be enqueued, and in
// a stream's synchronize. A process has one.
enum class SyncDebug { none, warning, error };
void set_sync_debug(SyncDebug mode);
SyncDebug sync_debug();

// waits tells the program that what it has called waits for a stream, as the mode says; what is its name.
void waits(const char* what, const std::string& why);

// try_enter makes the calling thread run a stream's next work itself, until it leaves, if the stream is idle. It isn't
// tried while waits are looked for: then all streams are treated as busy, so that the answer doesn't depend on time.
bool try_enter(chorus_stream stream, const char* name);

// enter makes the calling thread run a stream's next work itself, until it leaves. It waits for the stream's earlier
// work, so it can't be captured: why is the reason why the work can't be enqueued.
void enter(chorus_stream stream, const char* name, const std::string& why);

// Drained waits for a stream's work, so that the host can do the next by copies, which are a whole for other threads that
// do the same. The stream isn't held: a driver may serialize streams, so that a copy on another one would wait for ever.
// It can't be captured, for the reason why.
class Drained {
 public:
  Drained(chorus_stream stream, const char* name, const std::string& why);

 private:
  std::unique_lock<std::recursive_mutex> lock_; // a CPU kernel may call operators
};

// Turn leaves an entered stream in its destructor; 0 is none.
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
