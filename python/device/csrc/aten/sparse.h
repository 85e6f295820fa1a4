// Sparse tensors, whose indices and values are tensors of the device. PyTorch's functions that are made of operators on
// these run as they are; the fallback runs the others.
#pragma once

#include <array>
#include <functional>

#include <ATen/core/Tensor.h>

namespace chorus {

// is_sparse says whether a tensor is sparse, in any layout.
bool is_sparse(const at::Tensor& t);

// sparse_parts are a sparse tensor's indices and its values, which are the last: two parts in coordinates, and three
// compressed. A tensor in coordinates has an undefined one first.
std::array<at::Tensor, 3> sparse_parts(const at::Tensor& t);

// with_parts is a sparse tensor like another one, in which f of each part replaces it. It's on the parts' device.
at::Tensor with_parts(const at::Tensor& like, const std::function<at::Tensor(const at::Tensor&)>& f);

// become_sparse gives a sparse tensor the sizes of another one, and these parts.
void become_sparse(const at::Tensor& t, const at::Tensor& as, const std::array<at::Tensor, 3>& parts);

} // namespace chorus
