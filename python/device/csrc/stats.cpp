#include "stats.h"

#include <vector>

namespace chorus {

std::map<std::string, int64_t> figures(DeviceIndex index) {
  chorus_device handle = device(index).handle;
  int32_t n = 0;
  check(lib.device_memory_stats(handle, nullptr, 0, &n));
  std::vector<chorus_figure> list(n);
  check(lib.device_memory_stats(handle, list.data(), n, &n));
  std::map<std::string, int64_t> all;
  for (const chorus_figure& f : list)
    all[f.name] = f.value;
  return all;
}

c10::CachingDeviceAllocator::DeviceStats stats_of(DeviceIndex index) {
  std::map<std::string, int64_t> all = figures(index);
  auto figure = [&](const std::string& name) {
    auto at = all.find(name);
    return at == all.end() ? 0 : at->second;
  };
  auto stat = [&](const std::string& name) {
    c10::CachingAllocator::Stat s;
    s.current = figure(name + ".current");
    s.peak = figure(name + ".peak");
    s.allocated = figure(name + ".allocated");
    s.freed = figure(name + ".freed");
    return s;
  };
  auto pools = [&](const std::string& name) {
    return c10::CachingAllocator::StatArray{
        stat(name + ".all"), stat(name + ".small_pool"), stat(name + ".large_pool")};
  };
  c10::CachingDeviceAllocator::DeviceStats s;
  s.allocation = pools("allocation");
  s.segment = pools("segment");
  s.active = pools("active");
  s.inactive_split = pools("inactive_split");
  s.allocated_bytes = pools("allocated_bytes");
  s.reserved_bytes = pools("reserved_bytes");
  s.active_bytes = pools("active_bytes");
  s.inactive_split_bytes = pools("inactive_split_bytes");
  s.requested_bytes = pools("requested_bytes");
  s.oversize_allocations = stat("oversize_allocations");
  s.oversize_segments = stat("oversize_segments");
  s.num_alloc_retries = figure("num_alloc_retries");
  s.num_ooms = figure("num_ooms");
  s.num_sync_all_streams = figure("num_sync_all_streams");
  s.num_device_alloc = figure("num_device_alloc");
  s.num_device_free = figure("num_device_free");
  s.max_split_size = figure("max_split_size");
  return s;
}

} // namespace chorus
