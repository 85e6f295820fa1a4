// Checks of the tensors that kernels are given.
#pragma once

#include <algorithm>
#include <cmath>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>

#include "native/native.h"

namespace chorus {

// given_result says whether kernels can write a given result: a tensor of the device whose elements have a place each.
inline bool given_result(const at::Tensor& out) {
  return out.device().type() == kType && dtype_of(out.scalar_type()) != 0 &&
      at::has_internal_overlap(out) == at::MemOverlap::No;
}

// overlap says whether two tensors may share elements that aren't in the same place of both.
inline bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_alias_of(b))
    return false;
  at::MemOverlapStatus status = at::get_overlap_status(a, b);
  return status != at::MemOverlapStatus::No && status != at::MemOverlapStatus::Full;
}

// apart says whether two tensors share no element.
inline bool apart(const at::Tensor& a, const at::Tensor& b) {
  return !a.is_alias_of(b) || at::get_overlap_status(a, b) == at::MemOverlapStatus::No;
}

// holds_whole says whether an integer that is exact in float64 is one of a type.
inline bool holds_whole(c10::ScalarType type, double whole) {
  if (type == at::kByte)
    return whole >= 0 && whole <= 255;
  int bits = std::min(int(8 * c10::elementSize(type)) - 1, 53);
  return std::fabs(whole) < std::ldexp(1.0, bits);
}

// wrapped counts a dimension of so many from the front; false: there is none of that number.
inline bool wrapped(int64_t& dim, int64_t dims) {
  if (dim < -dims || dim >= dims)
    return false;
  dim = dim < 0 ? dim + dims : dim;
  return true;
}

// with_dimension is a tensor of at least one dimension.
inline at::Tensor with_dimension(const at::Tensor& t) {
  return t.dim() == 0 ? t.unsqueeze(0) : t;
}

} // namespace chorus
