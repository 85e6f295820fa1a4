// Copies between the host and the memory of a device that the host can't access.
#pragma once

#include "runtime/runtime.h"

namespace chorus {

// stage copies between a device and the host, or within the device, in a stream's order, and returns when the stream's
// work is done.
void stage(DeviceIndex index, chorus_stream stream, void* to, const void* from, size_t bytes);

// staged is the number of bytes copied in this way since the process began.
int64_t staged(DeviceIndex index);

} // namespace chorus
