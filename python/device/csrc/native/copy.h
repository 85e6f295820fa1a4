// Copies between tensors of a device, by its kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/runtime.h"

namespace chorus {

// has_natives says whether the devices compute operators by kernels.
bool has_natives();

// copy_op is the number of a copy as an operation on elements.
int32_t copy_op();

// copy_native enqueues a copy to a tensor of the same sizes and device, with conversion. It returns false if no kernel
// covers it.
bool copy_native(DeviceIndex index, const at::Tensor& from, const at::Tensor& to);

// fill_native enqueues setting all elements to a number.
bool fill_native(DeviceIndex index, const at::Tensor& to, const at::Scalar& number);

} // namespace chorus
