// The allocator of device memory, as PyTorch asks it.
#pragma once

#include <c10/core/Allocator.h>

namespace chorus {

c10::Allocator* device_allocator();

} // namespace chorus
