// The figures of the caching allocator.
#pragma once

#include <map>
#include <string>

#include <c10/core/CachingDeviceAllocator.h>

#include "runtime.h"

namespace chorus {

// figures are a device's by PyTorch's names, such as "allocated_bytes.all.current".
std::map<std::string, int64_t> figures(DeviceIndex index);

// stats_of are the same as PyTorch's allocators have them.
c10::CachingDeviceAllocator::DeviceStats stats_of(DeviceIndex index);

} // namespace chorus
