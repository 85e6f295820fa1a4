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
};

// plug names the device and the driver. It's called once.
void plug(const std::string& name, const std::string& driver);
const std::string& name();

// count is the number of devices, 0 if that can't be told, which is warned of once.
DeviceIndex count() noexcept;

// device opens a device of the driver; the index must be one.
const Device& device(DeviceIndex index);

// initialized says whether one was opened.
bool initialized() noexcept;

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

} // namespace chorus
