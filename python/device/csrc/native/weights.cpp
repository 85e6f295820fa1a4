// Operators that models apply to their weights: weights of a norm of their own, and those that are as if quantized.
#include "native/composed.h"

#include <cmath>

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/round.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

namespace chorus {

namespace {

// normed says whether the kernels have a weight v of norms g along a dimension, and which dimensions the norms are of.
bool normed(const at::Tensor& v, const at::Tensor& g, int64_t dim, at::DimVector& others) {
  if (!there(v) || !there(g) || !v.is_floating_point() || v.scalar_type() == at::kHalf ||
      g.scalar_type() != v.scalar_type() || v.numel() == 0 || v.dim() < 1 || (dim != 0 && dim != v.dim() - 1) ||
      g.numel() != v.size(dim))
    return false;
  for (int64_t d = 0; d < v.dim(); d++)
    if (d != dim)
      others.push_back(d);
  return true;
}

// along is a tensor of numbers for a dimension, with the dimensions of another tensor.
at::Tensor along(const at::Tensor& t, const at::Tensor& like, int64_t dim) {
  at::DimVector sizes(size_t(like.dim()), 1);
  sizes[size_t(dim)] = like.size(dim);
  return t.reshape(sizes);
}

// sum_of sums up all dimensions but one, if there are others.
at::Tensor sum_of(const at::Tensor& t, const at::DimVector& others) {
  return others.empty() ? t : t.sum(others, true);
}

// _weight_norm_interface(v, g, dim) is v * g / norm of v, and these norms, which have 32 bits at least.
bool weight_norm(NativeCall& call) {
  const at::Tensor &v = call.arguments[0].toTensor(), &g = call.arguments[1].toTensor();
  int64_t dim = call.arguments[2].toInt();
  at::DimVector others;
  if (!normed(v, g, dim, others))
    return false;
  at::ScalarType exact = computed_in(v.scalar_type());
  at::Tensor x = v.contiguous().to(exact);
  at::Tensor norms = others.empty() ? x.abs() : at::linalg_vector_norm(x, 2, others, true);
  at::Tensor w = x.mul(along(g.to(exact), v, dim).div(norms)).to(v.scalar_type());
  call.results = {w, norms.reshape(g.sizes())};
  return true;
}

// _weight_norm_interface_backward(grad_w, saved_v, saved_g, saved_norms, dim)
bool weight_norm_backward(NativeCall& call) {
  const auto& a = call.arguments;
  const at::Tensor &grad = a[0].toTensor(), &v = a[1].toTensor(), &g = a[2].toTensor(), &saved = a[3].toTensor();
  int64_t dim = a[4].toInt();
  at::DimVector others;
  if (!normed(v, g, dim, others) || !there(grad) || !there(saved) || grad.sizes() != v.sizes() ||
      saved.numel() != g.numel())
    return false;
  at::ScalarType exact = computed_in(v.scalar_type());
  at::Tensor x = v.contiguous().to(exact), y = grad.contiguous().to(exact), norms = along(saved.to(exact), v, dim);
  at::Tensor of_norms = sum_of(x.mul(y), others).div(norms);
  at::Tensor of_v = y.sub(x.mul(of_norms.div(norms))).mul(along(g.to(exact), v, dim).div(norms));
  call.results = {of_v.to(v.scalar_type()), of_norms.reshape(g.sizes()).to(g.scalar_type())};
  return true;
}

// quantized is a tensor as if it had been integers from first to last, and where those didn't have to be cut off. Places
// that aren't known become the first one.
bool quantized(
    NativeCall& call, const at::Tensor& self, const at::Tensor& places, const at::Tensor& known, const at::Tensor& zeros,
    const at::Tensor& scales, int64_t first, int64_t last) {
  at::Tensor whole = at::where(known, at::round(places), -INFINITY).add(zeros);
  at::Tensor mask = whole.ge(double(first)).logical_and_(whole.le(double(last)));
  call.results = {whole.clamp(double(first), double(last)).sub(zeros).mul(scales).to(self.scalar_type()), mask};
  return true;
}

bool may_be_quantized(const at::Tensor& self, int64_t first, int64_t last) {
  return there(self) && self.is_floating_point() && self.scalar_type() != at::kDouble && self.is_contiguous() &&
      first <= last && first > -(1 << 24) && last < 1 << 24;
}

// fake_quantize_per_tensor_affine_cachemask(self, scale, zero_point, quant_min, quant_max)
bool fake_quantize(NativeCall& call) {
  const auto& a = call.arguments;
  const at::Tensor& self = a[0].toTensor();
  float scale = float(a[1].toDouble());
  int64_t zero = a[2].toInt(), first = a[3].toInt(), last = a[4].toInt();
  if (!may_be_quantized(self, first, last) || zero < first || zero > last)
    return false;
  at::Tensor places = self.to(at::kFloat).mul(double(1.0f / scale));
  auto number = [&](double n) { return at::scalar_tensor(n, places.options()); };
  return quantized(
      call, self, places, places.eq(places), number(double(zero)), number(double(scale)), first, last);
}

// fake_quantize_per_channel_affine_cachemask(self, scale, zero_point, axis, quant_min, quant_max)
bool fake_quantize_channels(NativeCall& call) {
  const auto& a = call.arguments;
  const at::Tensor &self = a[0].toTensor(), &scale = a[1].toTensor(), &zero = a[2].toTensor();
  int64_t axis = a[3].toInt(), first = a[4].toInt(), last = a[5].toInt();
  if (!may_be_quantized(self, first, last) || !there(scale) || !there(zero) || axis < 0 || axis >= self.dim() ||
      scale.scalar_type() != at::kFloat || zero.scalar_type() != at::kInt || scale.dim() != 1 || zero.dim() != 1 ||
      scale.numel() != self.size(axis) || zero.numel() != self.size(axis) || self.numel() == 0 ||
      zero.lt(first).logical_or_(zero.gt(last)).any().item<bool>())
    return false; // of which the CPU's kernel has the error
  at::Tensor scales = along(scale, self, axis), places = self.to(at::kFloat).mul(scales.reciprocal());
  return quantized( // the CPU's kernel makes them integers of 64 bits
      call, self, places, places.abs().lt(0x1p63), along(zero.to(at::kFloat), self, axis), scales, first, last);
}

// __lshift__(self, other) and the like, of integers
template <bool left, bool in_place>
bool shift(NativeCall& call) {
  at::Tensor self = call.arguments[0].toTensor();
  const c10::IValue& by = call.arguments[1];
  auto whole = [](const at::Tensor& t) { return at::isIntegralType(t.scalar_type(), /*includeBool=*/false); };
  if (!there(self) || !whole(self))
    return false;
  at::Tensor result;
  if (by.isTensor()) {
    const at::Tensor& n = by.toTensor();
    if (!whole(n) || (in_place && at::result_type(self, n) != self.scalar_type()))
      return false;
    result = left ? self.bitwise_left_shift(n) : self.bitwise_right_shift(n);
  } else if (!by.isInt()) {
    return false;
  } else {
    result = left ? self.bitwise_left_shift(by.toScalar()) : self.bitwise_right_shift(by.toScalar());
  }
  if (in_place && result.sizes() != self.sizes())
    return false;
  return settle(call, result, in_place ? &call.arguments[0] : nullptr);
}

} // namespace

void add_weights() {
  add_composed("_weight_norm_interface", weight_norm);
  add_composed("_weight_norm_interface_backward", weight_norm_backward);
  add_composed("fake_quantize_per_tensor_affine_cachemask", fake_quantize);
  add_composed("fake_quantize_per_channel_affine_cachemask", fake_quantize_channels);
  for (const char* by : {".Tensor", ".Scalar"}) {
    add_composed((std::string("__lshift__") + by).c_str(), shift<true, false>);
    add_composed((std::string("__rshift__") + by).c_str(), shift<false, false>);
    add_composed((std::string("__ilshift__") + by).c_str(), shift<true, true>);
    add_composed((std::string("__irshift__") + by).c_str(), shift<false, true>);
  }
}

} // namespace chorus
