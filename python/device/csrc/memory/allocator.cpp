#include "memory/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "memory/alloc_sites.h"
#include "memory/block.h"
#include "memory/stats.h"
#include "runtime/version.h"

namespace chorus {

std::pair<size_t, size_t> memory_info(DeviceIndex index) {
  chorus_device_info info{};
  info.size = sizeof info;
  check(lib.device_get(device(index).handle, &info));
  return {size_t(info.free_bytes), size_t(info.total_bytes)};
}

namespace {

// Callers may hold the GIL, so no method waits for the GIL while it holds a lock of the allocator.
class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    DeviceIndex index = current();
    if (n == 0)
      return c10::DataPtr(nullptr, c10::Device(kType, index));
    AllocSites sites;
    Block* block = new_block(index, current_handle(index), n);
    return device_memory(block);
  }

  bool is_simple_data_ptr(const c10::DataPtr& p) const override {
    Block* block = block_of(p);
    return !p.get() || (block && block->memory == p.get());
  }

  void copy_data(void* to, const void* from, size_t n) const override {
    if (n > 0)
      check(lib.stream_copy(current_handle(current()), to, from, int64_t(n)));
  }

  bool initialized() override {
    return chorus::initialized();
  }

  void emptyCache(c10::MempoolId_t) override {
    for (DeviceIndex i = 0; i < count(); i++)
      check(lib.cache_empty(device(i).handle));
  }

  void recordStream(const c10::DataPtr& p, c10::Stream stream) override {
    if (Block* block = block_of(p))
      check(lib.cache_uses(device(block->index).handle, block->memory, handle_of(stream)));
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex index) override {
    return stats_of(index);
  }

  void resetAccumulatedStats(DeviceIndex index) override {
    check(lib.device_reset_accumulated_stats(device(index).handle));
  }

  void resetPeakStats(DeviceIndex index) override {
    check(lib.device_reset_peak_stats(device(index).handle));
  }

  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex index) CHORUS_LATER {
    return memory_info(index);
  }
};

} // namespace

c10::Allocator* device_allocator() {
  static auto* allocator = new Allocator;
  return allocator;
}

} // namespace chorus
