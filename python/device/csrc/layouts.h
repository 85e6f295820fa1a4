// Tensors that aren't plain ones. The CPU has kernels of their own for those that are quantized, or nested and strided:
// they run on the device's memory as all others do. Sparse tensors are refused where they are made.
#pragma once

#include <ATen/core/Tensor.h>

namespace chorus {

bool nested(const c10::TensorImpl* t);

// stand_in makes a tensor that lies in another storage as one does in its own. The key is that storage's: CPU, Meta or
// PrivateUse1.
at::Tensor stand_in(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKey key);

// requantize gives a tensor the scale of another, if that is quantized.
void requantize(const at::Tensor& tensor, const at::Tensor& as);

} // namespace chorus
