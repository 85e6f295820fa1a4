// Operators on single elements that a program writes itself, as text.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chorus {

// jitted computes a user's function of tensors, which are broadcast and have their common type, and of numbers.
// docs/kernels.md describes the text. A function that doesn't compile is an error with the lines that the compiler
// names.
std::vector<at::Tensor> jitted(
    const std::string& text, int64_t results, const std::vector<at::Tensor>& tensors,
    const std::vector<at::Scalar>& numbers);

} // namespace chorus
