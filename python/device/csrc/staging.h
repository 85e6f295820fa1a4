// Copies by which the host gets at the memory of a device that it can't touch, and gives back what it has computed
// there.
#pragma once

#include "runtime.h"

namespace chorus {

// stage copies between a device and the host, or within the device, and returns when that is done. It's beside all
// streams: whoever calls it has entered the one that the memory is used on.
void stage(DeviceIndex index, void* to, const void* from, size_t bytes);

// staged is how many bytes were copied so since the process began.
int64_t staged(DeviceIndex index);

} // namespace chorus
