#include "native/ordered.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include "native/kernels.h"

namespace chorus {

namespace {

// numbers are those of the places, in their order; -1: there's no such place.
at::Tensor numbers(const Places& places, const at::TensorOptions& options) {
  at::Tensor all, none;
  for (const Places::Index& x : places.indexes) {
    at::Tensor index = x.tensor.to(at::kLong), outside = (index < (x.wraps ? -x.size : 0)).logical_or(index >= x.size);
    if (x.wraps)
      index = at::where(index < 0, index + x.size, index);
    index = index * x.stride;
    all = all.defined() ? all + index : index;
    none = none.defined() ? none.logical_or(outside) : outside;
  }
  int64_t dims = int64_t(places.sizes.size());
  for (int64_t d = 0; d < dims; d++)
    if (int64_t stride = places.strides[size_t(d)]; stride != 0) {
      at::DimVector shape(size_t(dims), 1);
      shape[size_t(d)] = places.sizes[size_t(d)];
      all = all + (at::arange(shape[size_t(d)], options) * stride).view(shape);
    }
  return at::where(none, at::scalar_tensor(-1, options), all).expand(places.sizes).reshape({-1});
}

} // namespace

bool adds_in_order(c10::ScalarType type) {
  return at::globalContext().deterministicAlgorithms() && (c10::isFloatingType(type) || c10::isComplexType(type));
}

at::Tensor without_gaps(const at::Tensor& out) {
  return at::empty(out.sizes(), out.options().dtype(computed_in(out.scalar_type())));
}

bool add_in_order(
    const NativeCall& call, const at::Tensor& out, at::Tensor sums, const Places& places, const at::Tensor& source,
    void* bad) {
  if (out.is_complex())
    return false; // the CPU's kernel adds in order
  at::Tensor at = numbers(places, out.options().dtype(at::kLong));
  at::Tensor added = source.to(sums.scalar_type()).expand(places.sizes).reshape({-1, 1});
  sums = sums.view({-1, 1});
  // The gradient of an embedding is such sums: a sort by indexes, which keeps the order, and sums of each one's elements.
  kernels::EmbeddingBackward kernel{
      .out = sums, .grad = added, .indexes = at, .padding = -1, .by_frequency = false, .bad = bad};
  if (!kernel.run(call.index))
    return false;
  at::Tensor to = out;
  to.add_(sums.masked_fill(sums == 0, -0.0).view(out.sizes())); // which leaves other elements as they are, -0 too
  return true;
}

} // namespace chorus
