// The elements of a tensor, without the memory between them.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/runtime.h"

namespace chorus {

// Reach is the part of its storage, in bytes, that a tensor's elements span.
struct Reach {
  size_t from, to;
};
Reach reach_of(const c10::TensorImpl* t);

// bytes_of is where a storage's memory begins.
char* bytes_of(const c10::Storage& storage);

// send_elements copies a tensor of the host to one of a device with the same layout, in the order of the current stream.
// It writes to no memory between the elements, which may be another tensor's. The process can't touch the device's memory.
void send_elements(DeviceIndex index, const at::Tensor& host, const at::Tensor& device);

} // namespace chorus
