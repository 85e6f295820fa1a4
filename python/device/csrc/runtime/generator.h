// Random numbers of a device.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "runtime/runtime.h"

namespace chorus {

// default_generator is a device's own. The reference is valid for the life of the process.
const at::Generator& default_generator(DeviceIndex index);

// seed_later sets the seed of a device's own generator, or of all devices' with -1, if no generator was made yet; else
// it returns false. It doesn't load the library, so that programs that seed everything may fork.
bool seed_later(DeviceIndex index, uint64_t seed);

// new_generator makes another generator of a device.
at::Generator new_generator(DeviceIndex index);

// draws makes a stream's next work draw from a generator of the device, after draws that were issued before on other
// streams. So the numbers don't depend on the streams that are used, or on their speed.
void draws(const at::Generator& generator, chorus_stream stream);

// use_philox makes all generators draw the numbers of PyTorch's CUDA generators, or again those of its CPU generators.
// They restart from their seeds. It doesn't load the library.
void use_philox(bool on);
bool uses_philox();

// take_numbers takes the next words of CUDA's numbers, for a kernel on the current stream, from a generator of the
// device, or from the device's own.
chorus_draw take_numbers(const std::optional<at::Generator>& generator, DeviceIndex index, uint64_t words);

// draw fills a tensor's memory, which has no gaps, from a generator of its device, or from the device's own, as r says.
void draw(const at::Tensor& self, chorus_random r, const std::optional<at::Generator>& generator);

// host_generator is the CPU generator that draws the sequence of a generator of the device, for CPU kernels; after
// use_philox it's a new one for each call, with a seed from the device's generator.
at::Generator host_generator(const at::Generator& generator);

} // namespace chorus
