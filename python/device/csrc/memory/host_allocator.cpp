#include "memory/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include "memory/stats.h"
#include "runtime/runtime.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

void unpin(void* p) {
  lib.unpin(p); // refused only in a child made by fork
}

// The library caches pinned memory, and records by itself which copies use it.
class HostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    if (n == 0)
      return c10::DataPtr(nullptr, c10::DeviceType::CPU);
    void* p = nullptr;
    check(lib.pin(device(current()).handle, int64_t(n), &p));
    return c10::DataPtr(p, p, &unpin, c10::DeviceType::CPU);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &unpin;
  }

  void copy_data(void* to, const void* from, size_t n) const override {
    default_copy_data(to, from, n);
  }

  bool record_event(void*, void*, c10::Stream) override {
    return true; // the copy has recorded the use
  }

  void empty_cache() override {
    if (!initialized())
      return;
    Locked locked; // the library releases the GIL while it waits
    check(lib.device_empty_host_cache(device(current()).handle));
  }

  at::HostStats get_stats() override {
    return host_stats();
  }

  void reset_accumulated_stats() override {
    if (initialized())
      check(lib.device_reset_accumulated_host_stats(device(current()).handle));
  }

  void reset_peak_stats() override {
    if (initialized())
      check(lib.device_reset_peak_host_stats(device(current()).handle));
  }
};

HostAllocator* instance() {
  static auto* allocator = new HostAllocator;
  return allocator;
}

} // namespace

c10::Allocator* host_allocator() {
  static bool registered = [] {
    at::setHostAllocator(kType, instance());
    return true;
  }();
  (void)registered;
  return instance();
}

bool pinned(const void* data) {
  if (!data || !initialized())
    return false;
  chorus_attributes at{};
  at.size = sizeof at;
  return lib.attributes_of(device(current()).handle, data, &at) == CHORUS_OK && at.kind == 1;
}

} // namespace chorus
