// The type of device that this process has plugged into PyTorch, its devices, and which is current.
#pragma once

#include <string>

#include <c10/core/Device.h>

#include "library.h"

namespace chorus {

using c10::DeviceIndex;

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr int kMostDevices = 16;

struct Device {
  chorus_device handle = 0;
  chorus_stream default_stream = 0;
  int priorities = 1;
  bool views = false; // this process can touch its memory, by other addresses
};

// plug names the device, its driver, and the library at a path that has it, which is loaded at the first use: processes
// are forked from some that have only imported PyTorch, and Go does not live on in their children. It's called once.
// Handlers of signals run in the main thread.
void plug(const std::string& path, const std::string& name, const std::string& driver, uint64_t main_thread);
const std::string& name();
const std::string& driver();

// need_library loads the library, unless it's there already.
void need_library();

// count is the number of devices, 0 if that can't be told, which is warned of once. It loads the library.
DeviceIndex count() noexcept;

// device opens a device of the driver; the index must be one.
const Device& device(DeviceIndex index);

// initialized says whether one was opened, and loaded whether the library was, which a child made by fork can't use
// then.
bool initialized() noexcept;
bool loaded() noexcept;

// in_range returns the index of one device, and throws unless there is one.
DeviceIndex in_range(int64_t index);

DeviceIndex current() noexcept;
void set_current(DeviceIndex index);
DeviceIndex exchange_current(DeviceIndex index);

// index_of is the device that is meant: the current one if it says no index.
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

// Unlocked gives Python's lock back for a scope in which the host waits, if the thread holds it.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  void* state_ = nullptr;
};

// awaited waits for what a handle stands for, and throws what that fails with. Both functions of the library do the
// same. In the thread in which Python runs the handlers of signals it's the one that blocks, which has them run now and
// then, and what they raise is thrown: Ctrl-C ends a wait.
void awaited(chorus_status (*waits)(uint64_t), chorus_status (*blocks)(uint64_t), uint64_t handle);

// await_device waits for all work of a device, and throws what that has failed with.
void await_device(DeviceIndex index);

// Locked takes Python's lock in a scope if the thread has it not: for functions of the library that may wait, which
// give it back meanwhile themselves.
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
