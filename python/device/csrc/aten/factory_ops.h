// The operators that create tensors on a device: the minimum that a device needs.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/runtime.h"

namespace chorus {

at::Tensor empty(
    c10::IntArrayRef size, c10::ScalarType dtype, DeviceIndex index,
    std::optional<c10::MemoryFormat> format = std::nullopt);

// resize_bytes gives a storage of the device another size, and keeps the contents that fit.
void resize_bytes(c10::StorageImpl* storage, size_t bytes);

// place is the device of PyTorch's tensor options. It must be one of these devices; the options must be strided and not
// pinned.
DeviceIndex place(
    std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory);

} // namespace chorus
