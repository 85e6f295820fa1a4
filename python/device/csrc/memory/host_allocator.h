// Pinned host memory, which copies of the device need not wait for.
#pragma once

#include <c10/core/Allocator.h>

namespace chorus {

c10::Allocator* host_allocator();

// pinned says whether an address lies in such memory.
bool pinned(const void* data);

} // namespace chorus
