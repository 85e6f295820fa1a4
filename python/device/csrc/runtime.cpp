#include "runtime.h"

#include <Python.h>

#include <array>
#include <atomic>
#include <mutex>

#include <c10/util/Exception.h>

namespace chorus {

namespace {

std::string type_name, driver_name;
std::array<Device, kMostDevices> devices;
std::array<std::once_flag, kMostDevices> opening;
std::atomic<bool> opened{false};
thread_local DeviceIndex current_index = 0;

void open(DeviceIndex index) {
  Device& d = devices[index];
  std::string full = driver_name + ":" + std::to_string(index);
  chorus_device handle = 0;
  check(lib.device_open(full.c_str(), &handle));
  chorus_device_info info{};
  info.size = sizeof info;
  check(lib.device_get(handle, &info));
  d.priorities = info.priorities;
  check(lib.stream_default(handle, &d.default_stream));
  d.handle = handle;
  opened = true;
}

} // namespace

void plug(const std::string& name, const std::string& driver) {
  TORCH_CHECK(
      type_name.empty(), "PyTorch has one place for a device from outside, and '", type_name,
      "' has taken it in this process: '", name, "' can't have it as well");
  type_name = name;
  driver_name = driver;
}

const std::string& name() {
  return type_name;
}

DeviceIndex count() noexcept {
  static DeviceIndex n = [] {
    int32_t n = 0;
    if (type_name.empty())
      return DeviceIndex(0);
    if (lib.device_count(driver_name.c_str(), &n) != CHORUS_OK) {
      try {
        TORCH_WARN("no ", type_name, " device can be used: ", lib.last_error()->message);
      } catch (...) { // a warning that was made an error
      }
      return DeviceIndex(0);
    }
    return DeviceIndex(std::min(n, int32_t(kMostDevices)));
  }();
  return n;
}

const Device& device(DeviceIndex index) {
  const Device& d = devices[in_range(index)];
  std::call_once(opening[index], open, index);
  return d;
}

bool initialized() noexcept {
  return opened;
}

DeviceIndex in_range(int64_t index) {
  TORCH_CHECK(
      index >= 0 && index < count(), "The device index is out of range. It must be in [0, ", int(count()),
      "), but got ", index, ".");
  return DeviceIndex(index);
}

DeviceIndex current() noexcept {
  return current_index;
}

void set_current(DeviceIndex index) {
  if (index != current_index)
    current_index = in_range(index);
}

DeviceIndex exchange_current(DeviceIndex index) {
  DeviceIndex outer = current_index;
  set_current(index);
  return outer;
}

Current::~Current() {
  current_index = outer_;
}

Unlocked::Unlocked() {
  if (Py_IsInitialized() && PyGILState_Check())
    state_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  if (state_)
    PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

} // namespace chorus
