// Operators that are made of others, which have kernels. PyTorch has kernels of its own for them on the CPU.
#include "native/composed.h"

#include <cmath>

#include <ATen/ops/_cdist_backward.h>
#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_channel_shuffle_native.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "native/draws.h"

namespace chorus {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// equal(self, other)
bool equal(NativeCall& call) {
  const at::Tensor &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor();
  if (!there(a) || !there(b) || a.scalar_type() != b.scalar_type())
    return false;
  call.truth = a.sizes() == b.sizes() && (a.numel() == 0 || at::eq(a, b).all().item<bool>());
  return true;
}

// trace(self)
bool trace(NativeCall& call) {
  const at::Tensor& self = call.arguments[0].toTensor();
  if (!there(self) || self.dim() != 2 || self.scalar_type() == at::kBool)
    return false;
  return settle(call, at::sum(self.diagonal()));
}

// vdot(self, other)
bool vdot(NativeCall& call) {
  const at::Tensor &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor();
  if (!there(a) || !there(b) || a.dim() != 1 || a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() ||
      a.scalar_type() == at::kBool)
    return false;
  return settle(call, at::dot(a.conj(), b));
}

// addr(self, vec1, vec2, *, beta, alpha)
bool addr(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor &self = a[0].toTensor(), &x = a[1].toTensor(), &y = a[2].toTensor();
  c10::ScalarType type = self.scalar_type();
  if (!there(self) || !there(x) || !there(y) || x.dim() != 1 || y.dim() != 1 || x.scalar_type() != type ||
      y.scalar_type() != type || type == at::kBool || self.dim() > 2)
    return false;
  at::DimVector sizes{x.size(0), y.size(0)};
  for (int64_t k = 1; k <= self.dim(); k++)
    if (self.size(-k) != 1 && self.size(-k) != sizes[size_t(2 - k)])
      return false;
  at::Scalar beta = a[3].toScalar(), alpha = a[4].toScalar();
  chorus_number n;
  if (!number_of(beta, type, n) || !number_of(alpha, type, n))
    return false;
  return settle(call, at::native::math_addr(self, x, y, beta, alpha), a.size() > 5 ? &a[5] : nullptr);
}

// addbmm(self, batch1, batch2, *, beta, alpha): the sum over batches is one product of wider matrices.
template <bool in_place>
bool addbmm(NativeCall& call) {
  Arguments v = call.arguments;
  const at::Tensor &self = v[0].toTensor(), &a = v[1].toTensor(), &b = v[2].toTensor();
  c10::ScalarType type = self.scalar_type();
  if (!there(self) || !there(a) || !there(b) || a.dim() != 3 || b.dim() != 3 || a.scalar_type() != type ||
      b.scalar_type() != type || type == at::kBool || a.size(0) != b.size(0) || a.size(2) != b.size(1) ||
      self.dim() > 2)
    return false;
  at::DimVector sizes{a.size(1), b.size(2)};
  if (in_place && self.sizes() != at::IntArrayRef(sizes))
    return false;
  for (int64_t k = 1; k <= self.dim(); k++)
    if (self.size(-k) != 1 && self.size(-k) != sizes[size_t(2 - k)])
      return false;
  at::Tensor result = at::addmm(
      self, a.transpose(0, 1).reshape({a.size(1), -1}), b.reshape({-1, b.size(2)}), v[3].toScalar(), v[4].toScalar());
  return settle(call, result, in_place ? &v[0] : v.size() > 5 ? &v[5] : nullptr);
}

// linalg_cross.out(self, other, *, dim, out)
bool cross(NativeCall& call) {
  const at::Tensor &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor(),
                   &out = call.arguments[3].toTensor();
  int64_t dim = call.arguments[2].toInt();
  if (!there(a) || !there(b) || !given_result(out) || a.scalar_type() != b.scalar_type() || a.dim() != b.dim() ||
      out.scalar_type() != a.scalar_type() || a.scalar_type() == at::kBool || !wrapped(dim, a.dim()) ||
      a.size(dim) != 3 || b.size(dim) != 3)
    return false;
  at::Tensor product = at::mul(at::roll(a, 2, dim), at::roll(b, 1, dim));
  return settle(call, at::addcmul(product, at::roll(a, 1, dim), at::roll(b, 2, dim), -1), &call.arguments[3]);
}

// unfold_backward(grad_in, input_sizes, dim, size, step): windows that don't overlap are added at once.
bool unfold_backward(NativeCall& call) {
  const at::Tensor& grad = call.arguments[0].toTensor();
  at::DimVector sizes(call.arguments[1].toDimVector());
  int64_t dim = call.arguments[2].toInt(), size = call.arguments[3].toInt(), step = call.arguments[4].toInt();
  if (!there(grad) || sizes.empty() || !wrapped(dim, int64_t(sizes.size())) || size < 1 || step < 1 ||
      grad.dim() != int64_t(sizes.size()) + 1)
    return false;
  at::Tensor result = at::zeros(sizes, grad.options());
  int64_t windows = grad.size(dim), apart = (size + step - 1) / step;
  for (int64_t first = 0; first < std::min(apart, windows); first++) {
    int64_t n = (windows - first + apart - 1) / apart; // of those that don't overlap
    at::Tensor to = result.narrow(dim, first * step, (n - 1) * apart * step + size).unfold(dim, size, apart * step);
    to.add_(grad.slice(dim, first, windows, apart));
  }
  return settle(call, result);
}

// repeat_interleave.Tensor(repeats, output_size)
bool repeat_interleave(NativeCall& call) {
  const at::Tensor& repeats = call.arguments[0].toTensor();
  c10::ScalarType type = repeats.scalar_type();
  if (!there(repeats) || repeats.dim() != 1 || repeats.numel() == 0 || (type != at::kLong && type != at::kInt) ||
      repeats.min().item<int64_t>() < 0)
    return false;
  at::Tensor ends = repeats.cumsum(0);
  int64_t n = ends[-1].item<int64_t>();
  if (!call.arguments[1].isNone() && call.arguments[1].toInt() != n)
    return false;
  at::Tensor places = at::arange(n, ends.options());
  return settle(call, at::searchsorted(ends, places, /*out_int32=*/type == at::kInt, /*right=*/true));
}

// nonzero_static(self, *, size, fill_value)
bool nonzero_static(NativeCall& call) {
  const at::Tensor& self = call.arguments[0].toTensor();
  int64_t size = call.arguments[1].toInt();
  if (!there(self) || size < 0)
    return false;
  at::Tensor places = at::nonzero(self);
  at::Tensor result = at::full({size, self.dim()}, call.arguments[2].toInt(), places.options());
  int64_t n = std::min(size, places.size(0));
  result.narrow(0, 0, n).copy_(places.narrow(0, 0, n));
  return settle(call, result);
}

// tril_indices and triu_indices(row, col, offset, *, dtype, layout, device, pin_memory)
template <bool lower>
bool triangle(NativeCall& call) {
  Arguments a = call.arguments;
  int64_t rows = a[0].toInt(), columns = a[1].toInt(), offset = a[2].toInt();
  c10::ScalarType type = a[3].isNone() ? at::kLong : a[3].toScalarType();
  if (rows < 0 || columns < 0 || (!a[4].isNone() && a[4].toLayout() != at::kStrided) ||
      (type != at::kLong && type != at::kInt))
    return false;
  at::Tensor all = at::ones({rows, columns}, at::TensorOptions(c10::Device(kType, call.index)).dtype(at::kBool));
  at::Tensor places = at::nonzero(lower ? all.tril(offset) : all.triu(offset)).t();
  return settle(call, places.to(type).contiguous());
}

// logspace.out(start, end, steps, base, *, out) of real numbers. Integers are those of float64, without fractions.
bool logspace(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor& out = a[4].toTensor();
  at::Scalar start = a[0].toScalar(), end = a[1].toScalar();
  int64_t n = a[2].toInt();
  double base = a[3].toDouble();
  bool whole = at::isIntegralType(out.scalar_type(), /*includeBool=*/false);
  if (!given_result(out) || !(whole || out.is_floating_point()) || n < 0 || start.isComplex() || end.isComplex())
    return false;
  if (whole) {
    if (!(base > 0))
      return false;
    for (at::Scalar* s : {&start, &end}) {
      double number = std::trunc(s->toDouble());
      // Of numbers that a type doesn't hold PyTorch has the error, or whatever the CPU makes of them.
      if (!holds_whole(out.scalar_type(), number) || !holds_whole(out.scalar_type(), std::trunc(std::pow(base, number))))
        return false;
      *s = number;
    }
  }
  at::Tensor powers = at::linspace(start, end, n, out.options().dtype(at::kDouble)), exact = at::pow(base, powers);
  if (whole && base == std::trunc(base)) // a device's power may be a little less than the integer
    exact = at::where(powers.eq(powers.round()), exact.round(), exact);
  return settle(call, exact.to(out.scalar_type()), &a[4]);
}

// shortened is a tensor whose slices along a dimension have a norm of at most so much.
at::Tensor shortened(const at::Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& most) {
  at::DimVector others;
  for (int64_t d = 0; d < self.dim(); d++)
    if (d != dim)
      others.push_back(d);
  at::ScalarType parts = computed_in(c10::toRealValueType(self.scalar_type()));
  at::Tensor norm = at::linalg_vector_norm(self.to(self.is_complex() ? self.scalar_type() : parts), p, others, true);
  at::Tensor longer = norm.gt(most); // not a norm that is NaN
  at::Tensor factor = norm.add(1e-7).reciprocal_().mul_(most).masked_fill_(longer.logical_not_(), 1);
  return self.mul(factor).to(self.scalar_type());
}

// renorm.out(self, p, dim, maxnorm, *, out)
bool renorm(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor& self = a[0].toTensor();
  int64_t dim = a[2].toInt();
  at::Scalar p = a[1].toScalar(), most = a[3].toScalar();
  if (!there(self) || self.dim() < 2 || self.numel() == 0 || !wrapped(dim, self.dim()) || p.isComplex() ||
      most.isComplex() || !(p.toDouble() > 0) || !(most.toDouble() >= 0) || !given_result(a[4].toTensor()) ||
      (!self.is_floating_point() && !self.is_complex()))
    return false;
  return settle(call, shortened(self, p, dim, most), &a[4]);
}

// embedding_renorm_(self, indices, max_norm, norm_type)
bool embedding_renorm(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor &self = a[0].toTensor(), &indices = a[1].toTensor();
  double most = a[2].toDouble(), p = a[3].toDouble();
  if (!there(self) || !there(indices) || self.dim() != 2 || !self.is_floating_point() || self.numel() == 0 ||
      indices.numel() == 0 || (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt) ||
      !given_result(self) || !(p > 0) || !(most >= 0))
    return false;
  at::Tensor rows = std::get<0>(at::_unique2(indices.reshape({-1}))).to(at::kLong);
  self.index_copy_(0, rows, shortened(self.index_select(0, rows), p, 0, most));
  return settle(call, self);
}

// upper is true for the pairs of different rows, each once, in the order of pdist.
at::Tensor upper(const at::Tensor& self) {
  return at::ones({self.size(0), self.size(0)}, self.options().dtype(at::kBool)).triu_(1);
}

bool paired(const at::Tensor& self) {
  return there(self) && (self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble) && self.dim() == 2 &&
      self.is_contiguous() && self.size(0) > 1 && self.size(1) > 0;
}

// _pdist_forward(self, p)
bool pdist(NativeCall& call) {
  const at::Tensor& self = call.arguments[0].toTensor();
  if (!paired(self))
    return false;
  at::Tensor all = at::_cdist_forward(self, self, call.arguments[1].toDouble(), std::nullopt);
  return settle(call, all.masked_select(upper(self)));
}

// _pdist_backward(grad, self, p, pdist)
bool pdist_backward(NativeCall& call) {
  const at::Tensor& self = call.arguments[1].toTensor();
  if (!paired(self))
    return false;
  at::Tensor mask = upper(self);
  auto matrix = [&](const at::Tensor& pairs) {
    at::Tensor half = at::zeros(mask.sizes(), pairs.options()).masked_scatter_(mask, pairs.contiguous());
    return half.add(half.t());
  };
  for (size_t k : {0, 3}) {
    const at::Tensor& t = call.arguments[k].toTensor();
    if (!there(t) || t.scalar_type() != self.scalar_type() || t.numel() != self.size(0) * (self.size(0) - 1) / 2)
      return false;
  }
  return settle(call, at::_cdist_backward(
      matrix(call.arguments[0].toTensor()), self, self, call.arguments[2].toDouble(),
      matrix(call.arguments[3].toTensor())));
}

// rrelu_with_noise(self, noise, lower, upper, training, generator), its form in place, and the one with out: without
// training all slopes are the middle one.
template <bool in_place, bool given>
bool rrelu(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor& self = a[0].toTensor();
  if (a[4].toBool()) {
    const Native* draw =
        draw_of({in_place ? "aten::rrelu_with_noise_" : "aten::rrelu_with_noise", given ? "out" : ""});
    return draw && draw->run(call);
  }
  at::Scalar lower = a[2].toScalar(), upper = a[3].toScalar();
  if (!there(self) || !self.is_floating_point() || !a[1].toTensor().defined() ||
      !(lower.toDouble() <= upper.toDouble()))
    return false;
  at::Tensor result = at::leaky_relu(self, (lower.toDouble() + upper.toDouble()) / 2);
  return settle(call, result, in_place ? &a[0] : given ? &a[6] : nullptr);
}

// pixel_shuffle(self, upscale_factor) and the like, as PyTorch composes them for other devices
template <at::Tensor (*f)(const at::Tensor&, int64_t)>
bool shuffle(NativeCall& call) {
  const at::Tensor& self = call.arguments[0].toTensor();
  return there(self) && settle(call, f(self, call.arguments[1].toInt()));
}

} // namespace

void add_composed() {
  add_encoder();
  add_margins();
  add_weights();
  add_composed("equal", equal);
  add_composed("trace", trace);
  add_composed("vdot", vdot);
  add_composed("addr", addr);
  add_composed("addr.out", addr);
  add_composed("addbmm", addbmm<false>);
  add_composed("addbmm_", addbmm<true>);
  add_composed("addbmm.out", addbmm<false>);
  add_composed("linalg_cross.out", cross);
  add_composed("unfold_backward", unfold_backward);
  add_composed("repeat_interleave.Tensor", repeat_interleave);
  add_composed("nonzero_static", nonzero_static);
  add_composed("tril_indices", triangle<true>);
  add_composed("triu_indices", triangle<false>);
  add_composed("logspace.out", logspace);
  add_composed("renorm.out", renorm);
  add_composed("embedding_renorm_", embedding_renorm);
  add_composed("_pdist_forward", pdist);
  add_composed("_pdist_backward", pdist_backward);
  add_composed("rrelu_with_noise", rrelu<false, false>);
  add_composed("rrelu_with_noise_", rrelu<true, false>);
  add_composed("rrelu_with_noise.out", rrelu<false, true>);
  add_composed("pixel_shuffle", shuffle<at::native::math_pixel_shuffle>);
  add_composed("pixel_unshuffle", shuffle<at::native::math_pixel_unshuffle>);
  add_composed("channel_shuffle", shuffle<at::native::math_channel_shuffle>);
}

} // namespace chorus
