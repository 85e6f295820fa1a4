// Copies between tensors of the device, of the host, and of several devices.
#pragma once

#include <ATen/core/Tensor.h>

namespace chorus {

// copy_from is PyTorch's _copy_from. One of the tensors is the device's, and self can be expanded to the sizes of dst.
// The host waits for copies to or from its memory, unless they needn't block and that is pinned.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking);

} // namespace chorus
