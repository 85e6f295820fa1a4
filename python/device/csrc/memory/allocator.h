// The allocator of device memory behind PyTorch's interface.
#pragma once

#include <utility>

#include <c10/core/Allocator.h>

#include "runtime/runtime.h"

namespace chorus {

c10::Allocator* device_allocator();

// memory_info is how many bytes of a device are free, and how many it has.
std::pair<size_t, size_t> memory_info(DeviceIndex index);

} // namespace chorus
