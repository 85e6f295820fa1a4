#include "memory/stats.h"

#include <vector>

namespace chorus {

namespace {

template <typename Read>
Figures read(const Read& function, DeviceIndex index) {
  chorus_device handle = device(index).handle;
  int32_t n = 0;
  check(function(handle, nullptr, 0, &n));
  std::vector<chorus_figure> list(n);
  check(function(handle, list.data(), n, &n));
  Figures all;
  for (const chorus_figure& f : list)
    all[f.name] = f.value;
  return all;
}

int64_t figure(const Figures& all, const std::string& name) {
  auto at = all.find(name);
  return at == all.end() ? 0 : at->second;
}

c10::CachingAllocator::Stat stat(const Figures& all, const std::string& name) {
  c10::CachingAllocator::Stat s;
  s.current = figure(all, name + ".current");
  s.peak = figure(all, name + ".peak");
  s.allocated = figure(all, name + ".allocated");
  s.freed = figure(all, name + ".freed");
  return s;
}

c10::CachingAllocator::DurationStat duration(const Figures& all, const std::string& name) {
  c10::CachingAllocator::DurationStat s;
  s.total = figure(all, name + ".total");
  s.max = figure(all, name + ".max");
  s.min = figure(all, name + ".min");
  s.count = figure(all, name + ".count");
  return s;
}

template <typename Stats>
auto set_counts(Stats& s, const Figures& all) -> decltype((void)s.active_requests) {
  s.active_requests = stat(all, "active_requests");
  s.active_bytes = stat(all, "active_bytes");
  s.allocations = stat(all, "allocations");
  s.allocated_bytes = stat(all, "allocated_bytes");
}

// The same under the names of PyTorch 2.9.
template <typename Stats>
auto set_counts(Stats& s, const Figures& all) -> decltype((void)s.reserved_bytes) {
  s.allocation = stat(all, "active_requests");
  s.allocated_bytes = stat(all, "active_bytes");
  s.segment = stat(all, "allocations");
  s.reserved_bytes = stat(all, "allocated_bytes");
}

} // namespace

Figures figures(DeviceIndex index) {
  return read(lib.device_memory_stats, index);
}

Figures host_figures() {
  return initialized() ? read(lib.device_host_stats, current()) : Figures();
}

at::HostStats host_stats() {
  Figures all = host_figures();
  at::HostStats s;
  set_counts(s, all);
  s.host_alloc_time = duration(all, "host_alloc_time");
  s.host_free_time = duration(all, "host_free_time");
  s.num_host_alloc = figure(all, "num_host_alloc");
  s.num_host_free = figure(all, "num_host_free");
  return s;
}

c10::CachingDeviceAllocator::DeviceStats stats_of(DeviceIndex index) {
  Figures all = figures(index);
  auto pools = [&](const std::string& name) {
    return c10::CachingAllocator::StatArray{
        stat(all, name + ".all"), stat(all, name + ".small_pool"), stat(all, name + ".large_pool")};
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
  s.oversize_allocations = stat(all, "oversize_allocations");
  s.oversize_segments = stat(all, "oversize_segments");
  s.num_alloc_retries = figure(all, "num_alloc_retries");
  s.num_ooms = figure(all, "num_ooms");
  s.num_sync_all_streams = figure(all, "num_sync_all_streams");
  s.num_device_alloc = figure(all, "num_device_alloc");
  s.num_device_free = figure(all, "num_device_free");
  s.max_split_size = figure(all, "max_split_size");
  return s;
}

} // namespace chorus
