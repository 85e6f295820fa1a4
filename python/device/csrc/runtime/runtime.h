// The type of device that this process has plugged into PyTorch, its devices, and which is current.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "runtime/library.h"

namespace chorus {

using c10::DeviceIndex;

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr int kMostDevices = 16;

struct Device {
  chorus_device handle = 0;
  chorus_stream default_stream = 0;
  int priorities = 1;
  bool views = false;    // this process can access its memory, at other addresses
  bool blocking = false; // each operator waits for its work
};

// plug sets the name of the device, the drivers that may have it, and the path of the library with the drivers. The
// library is loaded at the first use: a process that has only imported PyTorch may fork, and Go doesn't work in a forked
// child. It's called once. Signal handlers run in the main thread.
void plug(
    const std::string& path, const std::string& name, const std::vector<std::string>& drivers, uint64_t main_thread);
const std::string& name();

// compile_by sets the command whose process compiles kernels of OpenCL. It's called before the library is loaded.
void compile_by(const std::vector<std::string>& command);

// driver is the first driver that has a device; without any, the first. It loads the library.
const std::string& driver();

// need_library loads the library, unless it's there already.
void need_library();

// count is the number of devices. If that can't be determined it's 0, with one warning; if none of several drivers has
// a device it's 0, and in_range throws the reasons. It loads the library.
DeviceIndex count() noexcept;

// device opens a device of the driver; the index must be one.
const Device& device(DeviceIndex index);

// initialized says whether a device was opened. loaded says whether the library was loaded; a child forked afterwards
// can't use it.
bool initialized() noexcept;
bool loaded() noexcept;

// in_range returns the index, and throws unless there is such a device.
DeviceIndex in_range(int64_t index);

DeviceIndex current() noexcept;
void set_current(DeviceIndex index);
DeviceIndex exchange_current(DeviceIndex index);

// index_of is the index of a device; without one, the current device's.
inline DeviceIndex index_of(c10::Device d) {
  return d.has_index() ? d.index() : current();
}

// Current makes a device the thread's current one for a scope.
class Current {
 public:
  explicit Current(DeviceIndex index) : outer_(exchange_current(index)) {}
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  DeviceIndex outer_;
};

// Unlocked releases the GIL for a scope in which the host waits, if the thread holds it.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  void* state_ = nullptr;
};

// awaited waits for the object of a handle, and throws its error. The two functions of the library wait in the same
// way, but blocks lets signal handlers run meanwhile. It's used in the thread in which Python runs signal handlers, and
// a handler's exception is thrown: Ctrl-C ends a wait.
void awaited(chorus_status (*waits)(uint64_t), chorus_status (*blocks)(uint64_t), uint64_t handle);

// await_device waits for all work of a device, and throws its error.
void await_device(DeviceIndex index);

// Locked takes the GIL for a scope if the thread doesn't hold it: for functions of the library that may wait, which
// release it meanwhile themselves.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int state_ = -1;
};

} // namespace chorus
