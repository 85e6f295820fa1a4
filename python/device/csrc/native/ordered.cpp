#include "native/ordered.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>

#include "native/kernels.h"

namespace chorus {

namespace {

// WholeRows are places whose indexes are those of the first dims dimensions. Each row has length elements next to each
// other.
struct WholeRows {
  size_t dims;
  int64_t length;
};

// fixed says whether indexes don't differ along a dimension, which is the last but few.
bool fixed(const at::Tensor& index, size_t few) {
  int64_t d = index.dim() - 1 - int64_t(few);
  return d < 0 || index.size(d) == 1 || index.stride(d) == 0;
}

WholeRows whole_rows(const Places& places) {
  size_t all = places.sizes.size();
  WholeRows rows{all, 1};
  for (; rows.dims > 0; rows.dims--) {
    size_t d = rows.dims - 1;
    if (places.sizes[d] > 1 && places.strides[d] != rows.length)
      break;
    if (!std::all_of(places.indexes.begin(), places.indexes.end(), [&](const Places::Index& x) {
          return fixed(x.tensor, all - 1 - d);
        }))
      break;
    rows.length *= places.sizes[d];
  }
  auto multiple = [&](int64_t stride) { return stride % rows.length == 0; };
  bool apart = rows.length > 0 && std::all_of(places.strides.begin(), places.strides.begin() + rows.dims, multiple) &&
      std::all_of(places.indexes.begin(), places.indexes.end(), [&](const Places::Index& x) {
                 return multiple(x.stride);
               });
  return apart ? rows : WholeRows{all, 1};
}

// numbers are those of the rows, in their order; -1: there's no such place.
at::Tensor numbers(const Places& places, const WholeRows& rows, const at::TensorOptions& options) {
  at::Tensor all, none;
  for (const Places::Index& x : places.indexes) {
    at::Tensor index = x.tensor;
    for (size_t d = rows.dims; d < places.sizes.size() && index.dim() > 0; d++)
      index = index.select(-1, 0);
    index = index.to(at::kLong);
    at::Tensor outside = (index < (x.wraps ? -x.size : 0)).logical_or(index >= x.size);
    if (x.wraps)
      index = at::where(index < 0, index + x.size, index);
    index = index * (x.stride / rows.length);
    all = all.defined() ? all + index : index;
    none = none.defined() ? none.logical_or(outside) : outside;
  }
  for (size_t d = 0; d < rows.dims; d++)
    if (int64_t stride = places.strides[d]; stride != 0) {
      at::DimVector shape(rows.dims, 1);
      shape[d] = places.sizes[d];
      all = all + (at::arange(shape[d], options) * (stride / rows.length)).view(shape);
    }
  return at::where(none, at::scalar_tensor(-1, options), all)
      .expand(places.sizes.slice(0, rows.dims))
      .reshape({-1});
}

} // namespace

bool adds_in_order(c10::ScalarType type) {
  return at::globalContext().deterministicAlgorithms() && (c10::isFloatingType(type) || c10::isComplexType(type));
}

at::DimVector gapless(at::IntArrayRef sizes) {
  at::DimVector strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  return strides;
}

at::Tensor without_gaps(const at::Tensor& out) {
  return at::empty(out.sizes(), out.options().dtype(computed_in(out.scalar_type())));
}

bool add_in_order(
    const NativeCall& call, const at::Tensor& out, at::Tensor sums, const Places& places, const at::Tensor& source,
    void* bad) {
  if (out.is_complex())
    return false; // the CPU's kernel adds in order
  WholeRows rows = whole_rows(places);
  at::Tensor at = numbers(places, rows, out.options().dtype(at::kLong));
  at::Tensor added = source.to(sums.scalar_type()).expand(places.sizes).reshape({-1, rows.length});
  sums = sums.view({-1, rows.length});
  // The gradient of an embedding is such sums: a sort by indexes, which keeps the order, and sums of each one's elements.
  kernels::EmbeddingBackward kernel{
      .out = sums, .grad = added, .indexes = at, .padding = -1, .by_frequency = false, .bad = bad};
  if (!kernel.run(call.index))
    return false;
  at::Tensor to = out;
  to.add_(sums.masked_fill(sums == 0, -0.0).view(out.sizes())); // which leaves other elements as they are, -0 too
  return true;
}

bool writes_in_order() {
  return at::globalContext().deterministicAlgorithms();
}

at::Tensor last_written(const Places& places, const at::Tensor& source) {
  bool equal = true; // all elements are one
  for (int64_t d = 0; d < source.dim(); d++)
    equal = equal && (source.size(d) <= 1 || source.stride(d) == 0);
  if (equal || c10::multiply_integers(places.sizes) == 0)
    return source;
  WholeRows rows = whole_rows(places);
  at::Tensor at = numbers(places, rows, source.options().dtype(at::kLong));
  auto [sorted, order] = at::sort(at, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  at::Tensor ends = at::searchsorted(sorted, at, /*out_int32=*/false, /*right=*/true);
  at::Tensor last = order.index_select(0, ends - 1);
  return source.expand(places.sizes).reshape({-1, rows.length}).index_select(0, last).view(places.sizes);
}

} // namespace chorus
