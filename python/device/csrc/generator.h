// Random numbers of a device.
#pragma once

#include <ATen/core/Generator.h>

#include "runtime.h"

namespace chorus {

// default_generator is a device's own. The reference is good as long as the process.
const at::Generator& default_generator(DeviceIndex index);

// new_generator is another one of a device.
at::Generator new_generator(DeviceIndex index);

// host_generator is what CPU kernels draw from for a generator of the device: the same sequence.
at::Generator host_generator(const at::Generator& generator);

} // namespace chorus
