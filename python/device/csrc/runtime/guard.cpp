// A device's implementation of PyTorch's guards, torch.Stream, torch.Event and torch.accelerator.
#include "runtime/guard.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "native/index_errors.h"
#include "runtime/autograd_shutdown.h"
#include "runtime/event.h"
#include "runtime/stream.h"
#include "runtime/version.h"

namespace chorus {

namespace {

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kType;
  }

  c10::Device exchangeDevice(c10::Device d) const override {
    return c10::Device(kType, exchange_current(index_of(own(d))));
  }

  c10::Device getDevice() const override {
    return c10::Device(kType, current());
  }

  void setDevice(c10::Device d) const override {
    begin_thread(); // autograd's threads call this first
    set_current(index_of(own(d)));
  }

  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.has_index() && d.index() >= 0 && d.index() < count())
      set_current(d.index());
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return count();
  }

  c10::Stream getStream(c10::Device d) const override {
    return current_stream(index_of(own(d)));
  }

  c10::Stream getDefaultStream(c10::Device d) const override {
    return default_stream(index_of(own(d)));
  }

  c10::Stream getStreamFromGlobalPool(c10::Device d, bool high) const override {
    return pooled_stream(index_of(own(d)), high ? -1 : 0);
  }

  c10::Stream getNewStream(c10::Device d, int priority) const override {
    return pooled_stream(index_of(own(d)), priority);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    return exchange_stream(stream);
  }

  void* getStreamNativeHandle(const c10::Stream stream) const CHORUS_LATER {
    return reinterpret_cast<void*>(uintptr_t(native_handle(stream)));
  }

  bool queryStream(const c10::Stream& stream) const override {
    return ready(lib.stream_query(handle_of(stream)));
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    waits("synchronize", "it waits for a stream");
    await(handle_of(stream));
    check_indexes(stream.device_index(), handle_of(stream));
  }

  bool isStreamCapturing(const c10::Stream& stream) const CHORUS_LATER {
    return capturing(handle_of(stream));
  }

  void synchronizeDevice(const c10::DeviceIndex index) const override {
    await_device(index);
    check_indexes(index, 0);
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    destroy(event);
  }

  void record(
      void** event, const c10::Stream& stream, const c10::DeviceIndex index, const c10::EventFlag flag) const override {
    chorus::record(event, stream, index, flag == c10::EventFlag::BACKEND_DEFAULT);
  }

  void block(void* event, const c10::Stream& stream) const override {
    chorus::wait(stream, event);
  }

  bool queryEvent(void* event) const override {
    return query(event);
  }

  void synchronizeEvent(void* event) const override {
    synchronize(event);
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return elapsed(start, end);
  }

  void recordDataPtrOnStream(const c10::DataPtr& p, const c10::Stream& stream) const override {
    static_cast<c10::DeviceAllocator*>(c10::GetAllocator(kType))->recordStream(p, stream);
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const CHORUS_LATER {
    return c10::DeviceCapability();
  }

 private:
  static c10::Device own(c10::Device d) {
    TORCH_CHECK(d.type() == kType, "expected a device of ", name(), ", not ", d);
    return d;
  }
};

} // namespace

void register_guard() {
  c10::impl::DeviceGuardImplRegistrar registered(kType, new Guard);
}

} // namespace chorus
