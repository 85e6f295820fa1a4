// Kernels that a compiler made, on streams of the device.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chorus {

// Argument is one of a kernel: a tensor, whose first element's address it is given, or a number.
using Argument = std::variant<at::Tensor, int64_t, double>;

// launch enqueues a kernel, a void(void**), on the current stream of its tensors' device. It reads each argument at an
// address: a pointer, an int64_t or a float. Tensors of the host are read as they are now.
void launch(uintptr_t kernel, const std::string& name, const std::vector<Argument>& arguments);

} // namespace chorus
