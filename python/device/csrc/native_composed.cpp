// Operators that are made of others, which have kernels. PyTorch has kernels of its own for them on the CPU.
#include "native.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/full.h>
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
#include <ATen/ops/zeros.h>

#include "native_checks.h"
#include "native_copy.h"

namespace chorus {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Composed is an operator that a function computes by others. The function returns false, and has changed nothing, for
// what it doesn't cover: then the CPU's kernel has the result, or the error.
class Composed final : public Native {
 public:
  using Function = bool (*)(NativeCall&);

  explicit Composed(Function f) : f_(f) {}

  bool run(NativeCall& call) const override {
    return f_(call);
  }

 private:
  const Function f_;
};

// there says whether a tensor is the device's, of a type that kernels have.
bool there(const at::Tensor& t) {
  return t.defined() && !t.is_cpu() && dtype_of(t.scalar_type()) != 0;
}

// settle makes a result the operator's: the given one, or a new one.
bool settle(NativeCall& call, at::Tensor result, const c10::IValue* given = nullptr) {
  if (!given) {
    call.results.push_back(std::move(result));
    return true;
  }
  const at::Tensor& out = given->toTensor();
  if (!given_result(out) || out.scalar_type() != result.scalar_type())
    return false;
  if (out.sizes() != result.sizes()) {
    if (out.numel() > 0)
      return false;
    out.resize_(result.sizes());
  }
  if (!copy_native(call.index, result, out))
    return false;
  call.results.push_back(out);
  return true;
}

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

// logspace.out(start, end, steps, base, *, out) of floating-point numbers
bool logspace(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor& out = a[4].toTensor();
  at::Scalar start = a[0].toScalar(), end = a[1].toScalar();
  int64_t n = a[2].toInt();
  if (!given_result(out) || !out.is_floating_point() || n < 0 || start.isComplex() || end.isComplex())
    return false;
  at::Tensor exact = at::pow(a[3].toDouble(), at::linspace(start, end, n, out.options().dtype(at::kDouble)));
  return settle(call, exact.to(out.scalar_type()), &a[4]);
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
  at::DimVector others;
  for (int64_t d = 0; d < self.dim(); d++)
    if (d != dim)
      others.push_back(d);
  at::ScalarType parts = computed_in(c10::toRealValueType(self.scalar_type()));
  at::Tensor norm = at::linalg_vector_norm(self.to(self.is_complex() ? self.scalar_type() : parts), p, others, true);
  at::Tensor factor = norm.add(1e-7).reciprocal_().mul_(most).masked_fill_(norm.le(most), 1);
  return settle(call, self.mul(factor).to(self.scalar_type()), &a[4]);
}

// pixel_shuffle(self, upscale_factor) and the like, as PyTorch composes them for other devices
template <at::Tensor (*f)(const at::Tensor&, int64_t)>
bool shuffle(NativeCall& call) {
  const at::Tensor& self = call.arguments[0].toTensor();
  return there(self) && settle(call, f(self, call.arguments[1].toInt()));
}

} // namespace

void add_composed() {
  auto composed = [](const char* name, Composed::Function f) {
    add_native(schema_of(name), std::make_unique<Composed>(f));
  };
  composed("equal", equal);
  composed("trace", trace);
  composed("vdot", vdot);
  composed("addr", addr);
  composed("addr.out", addr);
  composed("addbmm", addbmm<false>);
  composed("addbmm_", addbmm<true>);
  composed("addbmm.out", addbmm<false>);
  composed("linalg_cross.out", cross);
  composed("unfold_backward", unfold_backward);
  composed("repeat_interleave.Tensor", repeat_interleave);
  composed("nonzero_static", nonzero_static);
  composed("tril_indices", triangle<true>);
  composed("triu_indices", triangle<false>);
  composed("logspace.out", logspace);
  composed("renorm.out", renorm);
  composed("pixel_shuffle", shuffle<at::native::math_pixel_shuffle>);
  composed("pixel_unshuffle", shuffle<at::native::math_pixel_unshuffle>);
  composed("channel_shuffle", shuffle<at::native::math_channel_shuffle>);
}

} // namespace chorus
