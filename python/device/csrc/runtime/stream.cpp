#include "runtime/stream.h"

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include <c10/util/Exception.h>

namespace chorus {

namespace {

struct Chosen {
  c10::StreamId id = 0;
  chorus_stream handle = 0; // 0: the default one
};
thread_local std::array<Chosen, kMostDevices> chosen;

// Streams by ID, which live as long as the process.
struct Known {
  std::mutex mutex;
  std::unordered_map<c10::StreamId, chorus_stream> handles;
};
std::array<Known, kMostDevices>& known() {
  static auto* all = new std::array<Known, kMostDevices>;
  return *all;
}

c10::Stream stream_of(DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id);
}

// keep registers a stream of the library by its ID.
c10::Stream keep(DeviceIndex index, chorus_stream handle) {
  chorus_stream_info info{};
  info.size = sizeof info;
  check(lib.stream_get(handle, &info));
  Known& k = known()[index];
  std::lock_guard<std::mutex> lock(k.mutex);
  k.handles[info.id] = handle;
  return stream_of(index, info.id);
}

} // namespace

chorus_stream handle_of(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == kType, "expected a stream of ", name(), ", not of ", stream.device());
  DeviceIndex index = stream.device_index();
  const Device& d = device(index);
  c10::StreamId id = stream.id();
  if (id == 0 || id == kDefaultID)
    return d.default_stream;
  if (chosen[index].id == id)
    return chosen[index].handle;
  Known& k = known()[index];
  std::lock_guard<std::mutex> lock(k.mutex);
  chorus_stream& handle = k.handles[id];
  if (!handle)
    check(lib.stream_of(d.handle, id, &handle));
  return handle;
}

chorus_stream current_handle(DeviceIndex index) {
  const Device& d = device(index);
  chorus_stream handle = chosen[index].handle;
  return handle ? handle : d.default_stream;
}

c10::Stream current_stream(DeviceIndex index) {
  return stream_of(index, chosen[in_range(index)].id);
}

c10::Stream default_stream(DeviceIndex index) {
  return stream_of(in_range(index), 0);
}

c10::Stream pooled_stream(DeviceIndex index, int priority) {
  const Device& d = device(index);
  chorus_stream handle = 0;
  // PyTorch's priorities are CUDA's: lower is more urgent. A driver's levels count upwards.
  int level = std::min(priority < 0 ? -priority : 0, d.priorities - 1);
  check(lib.stream_pooled(d.handle, level, &handle));
  return keep(index, handle);
}

c10::Stream adopted_stream(DeviceIndex index, uint64_t native) {
  chorus_stream handle = 0;
  check(lib.stream_adopt(device(index).handle, native, &handle));
  return keep(index, handle);
}

void abandon(const c10::Stream& stream) {
  chorus_stream handle = handle_of(stream);
  DeviceIndex index = stream.device_index();
  TORCH_CHECK(handle != current_handle(index), "the current stream can't be abandoned");
  {
    Known& k = known()[index];
    std::lock_guard<std::mutex> lock(k.mutex);
    k.handles.erase(stream.id());
  }
  check(lib.stream_release(handle));
}

uint64_t native_handle(const c10::Stream& stream) {
  uint64_t native = 0;
  check(lib.stream_native(handle_of(stream), &native));
  return native;
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  chorus_stream handle = handle_of(stream);
  DeviceIndex index = stream.device_index();
  c10::Stream outer = current_stream(index);
  check(lib.stream_set_current(handle)); // for the communicators of this thread
  chosen[index] = Chosen{stream.id() == kDefaultID ? 0 : stream.id(), handle};
  return outer;
}

void await(chorus_stream stream) {
  awaited(
      [](uint64_t stream) { return lib.stream_await(stream, 0); },
      [](uint64_t stream) { return lib.stream_synchronize(stream, 0); }, stream);
}

bool capturing(chorus_stream stream) {
  chorus_stream_info info{};
  info.size = sizeof info;
  check(lib.stream_get(stream, &info));
  return info.capturing != 0;
}

static std::atomic<SyncDebug> sync_mode{SyncDebug::none};

void set_sync_debug(SyncDebug mode) {
  sync_mode = mode;
}

SyncDebug sync_debug() {
  return sync_mode.load(std::memory_order_relaxed);
}

void waits(const char* what, const std::string& why) {
  SyncDebug mode = sync_debug();
  if (mode == SyncDebug::none)
    return;
  std::string says = "called a synchronizing " + name() + " operation: " + what + ": " + why;
  TORCH_CHECK(mode != SyncDebug::error, says);
  TORCH_WARN(says);
}

bool try_enter(chorus_stream stream, const char* name) {
  return sync_debug() == SyncDebug::none && ready(lib.stream_enter(stream, name));
}

void enter(chorus_stream stream, const char* name, const std::string& why) {
  waits(name, why);
  while (!ready(lib.stream_turn(stream, name))) {
    TORCH_CHECK(!capturing(stream), name, " can't be captured: ", why);
    await(stream);
  }
}

// turn_of is the lock of a stream that the host does work of by copies.
static std::recursive_mutex& turn_of(chorus_stream stream) {
  static std::mutex mutex;
  static auto* all = new std::unordered_map<chorus_stream, std::recursive_mutex>;
  std::lock_guard<std::mutex> lock(mutex);
  return (*all)[stream];
}

Drained::Drained(chorus_stream stream, const char* name, const std::string& why) {
  TORCH_CHECK(!capturing(stream), name, " can't be captured: ", why);
  waits(name, why);
  {
    Unlocked unlocked; // the thread that has the lock may need the GIL for its copies
    lock_ = std::unique_lock<std::recursive_mutex>(turn_of(stream));
  }
  await(stream);
}

Turn::~Turn() {
  if (stream_)
    lib.stream_leave(stream_); // the stream was entered
}

} // namespace chorus
