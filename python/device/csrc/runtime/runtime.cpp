#include "runtime/runtime.h"

#include <Python.h>

#include <array>
#include <atomic>
#include <mutex>

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include "native/native.h"

namespace chorus {

namespace {

std::string library_path, type_name;
std::vector<std::string> drivers; // that may have devices
std::string driver_name;          // the first of them that has
std::vector<std::string> compile_command; // whose process compiles kernels of OpenCL
uint64_t signals = 0; // the thread in which Python runs signal handlers
std::string trouble; // why there are no devices
std::array<Device, kMostDevices> devices;
std::array<std::once_flag, kMostDevices> opening;
std::atomic<bool> have_library{false}, opened{false};
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
  d.views = info.views != 0;
  d.blocking = info.blocking != 0;
  check(lib.stream_default(handle, &d.default_stream));
  d.handle = handle;
  opened = true;
  open_native(handle);
}

} // namespace

void plug(
    const std::string& path, const std::string& name, const std::vector<std::string>& drivers, uint64_t main_thread) {
  TORCH_CHECK(!drivers.empty(), "torch.device('", name, "') has no driver");
  TORCH_CHECK(
      type_name.empty(), "PyTorch has one place for a device from outside, and '", type_name,
      "' has taken it in this process: '", name, "' can't have it as well");
  library_path = path;
  type_name = name;
  chorus::drivers = drivers;
  driver_name = drivers.front();
  signals = main_thread;
}

void compile_by(const std::vector<std::string>& command) {
  compile_command = command;
}

const std::string& name() {
  return type_name;
}

const std::string& driver() {
  count();
  return driver_name;
}

void need_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    load(library_path, signals, compile_command);
    have_library = true;
  });
}

// choose finds the first driver that has a device, and the number of its devices. Without any it's 0, and trouble says
// why.
static int32_t choose() {
  int32_t n = 0;
  need_library();
  if (drivers.size() == 1) {
    check(lib.device_count(driver_name.c_str(), &n));
    return n;
  }
  std::string why = "there is no device";
  for (const std::string& candidate : drivers) {
    if (lib.device_count(candidate.c_str(), &n) != CHORUS_OK) {
      why += std::string("; ") + lib.last_error()->message;
    } else if (n == 0) {
      why += "; " + candidate + ": no device";
    } else {
      driver_name = candidate;
      return n;
    }
  }
  trouble = why;
  return 0;
}

DeviceIndex count() noexcept {
  static DeviceIndex n = [] {
    int32_t n = 0;
    if (type_name.empty())
      return DeviceIndex(0);
    std::string failure;
    try {
      n = choose();
    } catch (const c10::Error& e) {
      trouble = failure = e.what_without_backtrace();
    }
    try {
      if (!failure.empty())
        TORCH_WARN("no ", type_name, " device can be used: ", failure);
    } catch (...) { // a warning that Python turned into an error
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

bool loaded() noexcept {
  return have_library;
}

DeviceIndex in_range(int64_t index) {
  DeviceIndex n = count();
  TORCH_CHECK(trouble.empty(), "torch.device('", type_name, "') can't be used: ", trouble);
  TORCH_CHECK(
      index >= 0 && index < n, "The device index is out of range. It must be in [0, ", int(n),
      "), but got ", index, ".");
  return DeviceIndex(index);
}

void await_device(DeviceIndex index) {
  awaited(
      [](uint64_t device) { return lib.device_await(device, 0); },
      [](uint64_t device) { return lib.device_synchronize(device, 0); }, device(index).handle);
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

void awaited(chorus_status (*waits)(uint64_t), chorus_status (*blocks)(uint64_t), uint64_t handle) {
  if (!Py_IsInitialized() || PyThread_get_thread_ident() != signals) {
    Unlocked unlocked;
    return check(waits(handle));
  }
  Locked locked;
  chorus_status status = blocks(handle);
  if (status == CHORUS_INTERRUPTED) {
    python_error raised;
    raised.persist();
    throw raised;
  }
  check(status);
}

Locked::Locked() {
  if (Py_IsInitialized())
    state_ = PyGILState_Ensure();
}

Locked::~Locked() {
  if (state_ >= 0)
    PyGILState_Release(PyGILState_STATE(state_));
}

Unlocked::~Unlocked() {
  if (state_)
    PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

} // namespace chorus
