// Copies between the host and the memory of a device that the host can't access.
#pragma once

#include "runtime/runtime.h"

namespace chorus {

// stage copies between a device and the host, or within the device, in a stream's order, and returns when the stream's
// work is done.
void stage(DeviceIndex index, chorus_stream stream, void* to, const void* from, size_t bytes);

// await_copy waits for a stream that copies from or to memory of the host, and throws its error. If the user interrupts
// the program, it throws that when the copy has ended, since the memory may be freed then.
void await_copy(chorus_stream stream);

// staged is the number of bytes copied in this way since the process began.
int64_t staged(DeviceIndex index);

} // namespace chorus
