// Averages of windows of integers.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace chorus {

// AverageWindows are those of avg_pool2d and avg_pool3d, with a number for each dimension of space.
struct AverageWindows {
  at::DimVector window, stride, padding;
  bool padded; // elements of the padding count
  std::optional<int64_t> divisor;
};

// average_whole writes the averages of an image's windows, without fractions, as PyTorch's CPU kernel has them; false
// if it leaves that to the CPU's kernel.
bool average_whole(const at::Tensor& self, at::Tensor& out, const AverageWindows& w);

} // namespace chorus
