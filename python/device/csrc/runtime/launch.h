// Compiled kernels on streams of the device.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chorus {

// Argument is a kernel's argument: a tensor, passed as the address of its first element, or a number.
using Argument = std::variant<at::Tensor, int64_t, double>;

// device_of is the index of the device that a kernel's tensors are of, but those of the CPU.
c10::DeviceIndex device_of(const std::string& name, const std::vector<Argument>& arguments);

// launch enqueues a kernel, a void(void**), on the current stream of its tensors' device. The kernel gets the address
// of each argument: of a pointer, an int64_t or a float. Tensors of the host are read with their present values. The
// kernel only reads the tensors whose bits are set in constant, by their positions.
void launch(uintptr_t kernel, const std::string& name, const std::vector<Argument>& arguments, uint64_t constant);

} // namespace chorus
