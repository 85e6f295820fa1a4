// Hooks of the type of device for PyTorch's device-agnostic code.
#include "runtime/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "aten/factory_ops.h"
#include "memory/host_allocator.h"
#include "runtime/generator.h"
#include "runtime/runtime.h"

namespace chorus {

namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override {
    device(current());
  }

  bool hasPrimaryContext(DeviceIndex) const override {
    return true;
  }

  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return count() > 0;
  }

  DeviceIndex deviceCount() const override {
    return count();
  }

  void setCurrentDevice(DeviceIndex index) const override {
    set_current(index);
  }

  DeviceIndex getCurrentDevice() const override {
    return current();
  }

  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return exchange_current(index);
  }

  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override {
    return index < 0 || index >= count() ? current() : exchange_current(index);
  }

  at::Allocator* getPinnedMemoryAllocator() const override {
    return host_allocator();
  }

  bool isPinnedPtr(const void* data) const override {
    return pinned(data);
  }

  at::Device getDeviceFromPtr(void* data) const override {
    chorus_attributes at{};
    at.size = sizeof at;
    chorus_status status = lib.attributes_of(device(current()).handle, data, &at);
    TORCH_CHECK(status == CHORUS_OK && at.kind == 2, "failed to get device from pointer");
    return at::Device(kType, DeviceIndex(at.index));
  }

  const at::Generator& getDefaultGenerator(DeviceIndex index) const override {
    return default_generator(index);
  }

  at::Generator getNewGenerator(DeviceIndex index) const override {
    return new_generator(index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_bytes(storage.unsafeGetStorageImpl(), bytes);
  }
};

} // namespace

void register_hooks() {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
}

} // namespace chorus
