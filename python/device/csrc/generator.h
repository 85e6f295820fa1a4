// Random numbers of a device.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "runtime.h"

namespace chorus {

// default_generator is a device's own. The reference is good as long as the process.
const at::Generator& default_generator(DeviceIndex index);

// new_generator is another one of a device.
at::Generator new_generator(DeviceIndex index);

// draws makes a stream's next work draw from a generator of the device, after what others draw that were asked before:
// numbers are the same whatever streams are used, and however fast they are.
void draws(const at::Generator& generator, chorus_stream stream);

// use_philox has all generators draw what PyTorch's would on CUDA, or again what it does on the CPU. They begin anew
// from their seeds.
void use_philox(bool on);

// draw fills a tensor's memory, which has no gaps, from a generator of its device, or from the device's own, as r says.
void draw(const at::Tensor& self, chorus_random r, const std::optional<at::Generator>& generator);

// host_generator is what CPU kernels draw from for a generator of the device: the same sequence.
at::Generator host_generator(const at::Generator& generator);

} // namespace chorus
