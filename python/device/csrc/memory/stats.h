// Statistics of the caching allocators.
#pragma once

#include <map>
#include <string>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/runtime.h"

namespace chorus {

using Figures = std::map<std::string, int64_t>;

// figures are a device's statistics by PyTorch's names, such as "allocated_bytes.all.current".
Figures figures(DeviceIndex index);

// host_figures are those of pinned memory, such as "active_bytes.current"; empty before a device was opened.
Figures host_figures();

// host_stats and stats_of are the same in the types of PyTorch's allocators.
at::HostStats host_stats();
c10::CachingDeviceAllocator::DeviceStats stats_of(DeviceIndex index);

} // namespace chorus
