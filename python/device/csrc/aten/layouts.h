// Tensors that aren't plain. The CPU has separate kernels for quantized tensors and for nested strided ones, which run
// on the device's memory like all others. sparse.h has those that aren't strided.
#pragma once

#include <ATen/core/Tensor.h>

namespace chorus {

bool nested(const c10::TensorImpl* t);

// stand_in makes a tensor with the layout of another one, in another storage. The key is that storage's: CPU, Meta or
// PrivateUse1.
at::Tensor stand_in(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKey key);

// requantize gives a tensor the scale of another, if that is quantized.
void requantize(const at::Tensor& tensor, const at::Tensor& as);

} // namespace chorus
