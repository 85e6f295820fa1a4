// Random numbers of a device.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "runtime.h"

namespace chorus {

// default_generator is a device's own. The reference is valid for the life of the process.
const at::Generator& default_generator(DeviceIndex index);

// new_generator makes another generator of a device.
at::Generator new_generator(DeviceIndex index);

// draws makes a stream's next work draw from a generator of the device, after draws that were issued before on other
// streams. So the numbers don't depend on the streams that are used, or on their speed.
void draws(const at::Generator& generator, chorus_stream stream);

// use_philox makes all generators draw the numbers of PyTorch's CUDA generators, or again those of its CPU generators.
// They restart from their seeds.
void use_philox(bool on);

// draw fills a tensor's memory, which has no gaps, from a generator of its device, or from the device's own, as r says.
void draw(const at::Tensor& self, chorus_random r, const std::optional<at::Generator>& generator);

// host_generator is the CPU generator that draws the sequence of a generator of the device, for CPU kernels.
at::Generator host_generator(const at::Generator& generator);

} // namespace chorus
