// Autograd's thread for a device may be the last to drop a backward pass's task, after the caller has gone on. It takes
// the GIL to drop the task's Python objects. If a thread asks for the GIL at the interpreter's end, Python ends the
// thread within frames of C++, and with it the process. So each of these threads gets one more backward pass at the
// end, which has no Python objects.
#include "runtime/autograd_shutdown.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>

#include "runtime/runtime.h"

namespace chorus {

namespace {

const std::thread::id first = std::this_thread::get_id();
std::atomic<bool> others{false};

void pass(DeviceIndex index) {
  at::AutoGradMode on(true);
  at::ones({}, at::Device(kType, index)).set_requires_grad(true).backward();
}

} // namespace

void begin_thread() noexcept {
  if (std::this_thread::get_id() != first)
    others = true;
}

void drain_autograd(double seconds) {
  if (!others || !initialized())
    return;
  auto done = std::make_shared<std::promise<void>>();
  std::thread([done] {
    for (DeviceIndex i = 0; i < count(); i++) {
      try {
        pass(i);
      } catch (const std::exception&) { // the stream has failed, or the device has no memory
      }
    }
    done->set_value();
  }).detach();
  done->get_future().wait_for(std::chrono::duration<double>(seconds));
}

} // namespace chorus
