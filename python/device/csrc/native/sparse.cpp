// Operators on sparse tensors: what PyTorch hasn't composed of others for all devices.
#include "native/kernels.h"

#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sparse_mask_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/zeros.h>

#include "aten/sparse.h"
#include "native/composed.h"

namespace chorus {

namespace {

using at::Tensor;
using Arguments = c10::ArrayRef<c10::IValue>;

// in_coordinates says whether a tensor is the device's, in coordinates, of a type that kernels have.
bool in_coordinates(const Tensor& t) {
  return there(t) && t.is_sparse();
}

bool is_plain(const Tensor& t) {
  return there(t) && t.layout() == c10::kStrided;
}

Tensor new_coordinates(const Tensor& like, const Tensor& places, const Tensor& values, bool coalesced) {
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      like.sparse_dim(), like.dense_dim(), like.sizes(), places, values,
      like.options().dtype(values.scalar_type()), coalesced);
}

// in_one_line are the places of elements as numbers, in the order of the tensor's elements.
Tensor in_one_line(const Tensor& places, at::IntArrayRef sizes) {
  Tensor line = places.size(0) == 0 ? at::zeros({places.size(1)}, places.options()) : places.select(0, 0);
  for (int64_t d = 1; d < places.size(0); d++)
    line = line.mul(sizes[size_t(d)]).add_(places.select(0, d));
  return line.contiguous();
}

// with_sums has one element for each place that a tensor has, in their order.
Tensor with_sums(const Tensor& self) {
  Tensor places = self._indices(), values = self._values();
  if (self._nnz() < 2)
    return new_coordinates(self, places.clone(), values.clone(), true);
  auto [sorted, order] = in_one_line(places, self.sizes()).sort(/*stable=*/true, 0, false);
  Tensor line, run;
  std::tie(line, run, std::ignore) = at::unique_consecutive(sorted, /*return_inverse=*/true, false, std::nullopt);
  at::DimVector sizes(values.sizes());
  sizes[0] = line.size(0);
  Tensor sums = at::zeros(sizes, values.options()).index_add_(0, run, values.index_select(0, order));
  std::vector<Tensor> rows(size_t(places.size(0)));
  for (size_t d = rows.size(); d-- > 0;) {
    int64_t size = self.size(int64_t(d));
    rows[d] = d > 0 ? line.remainder(size) : line;
    line = line.div(size, "floor");
  }
  return new_coordinates(self, rows.empty() ? places.narrow(1, 0, sizes[0]) : at::stack(rows), sums, true);
}

// _coalesce(self)
bool coalesce(NativeCall& call) {
  const Tensor& self = call.arguments[0].toTensor();
  return in_coordinates(self) && settle(call, with_sums(self));
}

// places_of are the indices of a tensor in coordinates, by dimension.
c10::List<std::optional<Tensor>> places_of(const Tensor& t) {
  c10::List<std::optional<Tensor>> all;
  for (const Tensor& line : t._indices().unbind(0))
    all.push_back(line);
  return all;
}

// add.out(self, other, *, alpha, out): a tensor in coordinates, to a plain one or to another in coordinates
bool sum_with_coordinates(NativeCall& call) {
  Arguments a = call.arguments;
  const Tensor &self = a[0].toTensor(), &other = a[1].toTensor(), &out = a[3].toTensor();
  at::Scalar alpha = a[2].toScalar();
  c10::ScalarType type = other.scalar_type();
  if (!in_coordinates(other) || !there(self) || !there(out) || self.scalar_type() != type ||
      out.scalar_type() != type || self.sizes() != other.sizes() || alpha.isComplex() > other.is_complex() ||
      (alpha.isFloatingPoint() && c10::isIntegralType(type, true)) || self.layout() != out.layout())
    return false;
  Tensor values = other._values();
  if (!alpha.equal(1))
    values = values.mul(alpha).to(type);
  if (self.layout() == c10::kStrided) {
    if (!given_result(out) || (out.sizes() != self.sizes() && out.numel() > 0) || other.sparse_dim() == 0)
      return false;
    if (!out.is_same(self)) {
      out.resize_(self.sizes());
      out.copy_(self);
    }
    if (other._nnz() > 0 && values.numel() > 0)
      out.index_put_(places_of(other), values, /*accumulate=*/true);
    call.results.push_back(out);
    return true;
  }
  if (!in_coordinates(self) || self.sparse_dim() != other.sparse_dim() || type == at::kBool)
    return false;
  bool sorted = self.is_coalesced() && other.is_coalesced();
  Tensor sum = new_coordinates(
      self, at::cat({self._indices(), other._indices()}, 1), at::cat({self._values(), values}, 0), false);
  if (sorted)
    sum = with_sums(sum);
  become_sparse(out, sum, sparse_parts(sum));
  call.results.push_back(out);
  return true;
}

// mul.out(self, other, *, out) of a tensor in coordinates and a plain one, which has its sizes or none
bool product_of_coordinates(NativeCall& call) {
  Tensor self = call.arguments[0].toTensor(), other = call.arguments[1].toTensor();
  const Tensor& out = call.arguments[2].toTensor();
  if (!self.is_sparse())
    std::swap(self, other);
  if (!in_coordinates(self) || !in_coordinates(out) || other.layout() != c10::kStrided ||
      !dtype_of(other.scalar_type()) || at::result_type(self, other) != out.scalar_type())
    return false;
  Tensor values = self._values(), places = self._indices();
  if (other.dim() == 0)
    values = values.mul(other);
  else if (is_plain(other) && other.sizes() == self.sizes() && self.sparse_dim() > 0)
    values = self._nnz() > 0 ? values.mul(other.index(places_of(self))) : values.clone();
  else
    return false;
  bool again = out.is_same(self);
  Tensor product = new_coordinates(
      self, again ? places : places.clone(), values.to(out.scalar_type()), self.is_coalesced());
  become_sparse(out, product, sparse_parts(product));
  call.results.push_back(out);
  return true;
}

// sparse_mask(self, mask) of a plain tensor, as PyTorch composes it
bool masked_by_places(NativeCall& call) {
  const Tensor &self = call.arguments[0].toTensor(), &mask = call.arguments[1].toTensor();
  if (!is_plain(self) || !there(mask) || (mask.is_sparse() && !mask.is_coalesced()))
    return false;
  c10::DispatchKey key = mask.is_sparse() ? c10::DispatchKey::SparseCPU : c10::DispatchKey::SparseCsrCPU;
  return settle(call, at::_ops::sparse_mask::redispatch(c10::DispatchKeySet(key), self, mask));
}

// CompressedRows are those of a matrix.
struct CompressedRows {
  Tensor starts, places, values;
  bool distinct = true; // no element has another one's place
};

// sorted_rows are the rows of a matrix whose elements have these rows and columns, in any order.
CompressedRows sorted_rows(const Tensor& row, const Tensor& column, const Tensor& values, int64_t rows) {
  auto [sorted, order] = row.contiguous().sort(/*stable=*/true, 0, false);
  bool narrow = row.scalar_type() == at::kInt;
  return {at::_convert_indices_from_coo_to_csr(sorted, rows, narrow), column.index_select(0, order),
          values.index_select(0, order)};
}

// rows_of are the rows of a matrix, or its columns; false: it's none in a layout that kernels have.
bool rows_of(const Tensor& t, bool columns, CompressedRows& rows) {
  if (t.dim() != 2 || !there(t) || t.dense_dim() != 0)
    return false;
  auto [lines, places, values] = sparse_parts(t);
  if (t.is_sparse()) {
    if (t.sparse_dim() != 2)
      return false;
    if (t.is_coalesced() && !columns) {
      rows = {at::_convert_indices_from_coo_to_csr(places.select(0, 0).contiguous(), t.size(0)), places.select(0, 1),
              values};
      return true;
    }
    rows = sorted_rows(places.select(0, columns), places.select(0, !columns), values, t.size(columns));
    rows.distinct = t.is_coalesced();
    return true;
  }
  if ((t.layout() != c10::kSparseCsr && t.layout() != c10::kSparseCsc) || lines.dim() != 1)
    return false;
  if ((t.layout() == c10::kSparseCsc) == columns) {
    rows = {lines, places, values};
    return true;
  }
  Tensor both = at::_convert_indices_from_csr_to_coo(lines, places, lines.scalar_type() == at::kInt, false);
  rows = sorted_rows(both.select(0, 1), both.select(0, 0), values, t.size(columns));
  return true;
}

// SparseProduct is addmm(self, mat1, mat2, *, beta, alpha), its forms in place and with out, and addmv.out, of a sparse
// matrix and a plain one.
class SparseProduct final : public Native {
 public:
  explicit SparseProduct(const c10::OperatorHandle& op)
      : where_(op.schema()), beta_(where_.named("beta")), alpha_(where_.named("alpha")),
        vector_(op.operator_name().name == "aten::addmv") {}

  bool run(NativeCall& call) const override {
    Arguments a = call.arguments;
    Tensor c = a[0].toTensor(), sparse = a[1].toTensor(), b = a[2].toTensor();
    bool second = !is_sparse(sparse); // it's the sparse one
    if (second)
      std::swap(sparse, b);
    c10::ScalarType type = sparse.scalar_type();
    if (!is_plain(b) || !is_plain(c) || b.scalar_type() != type || c.scalar_type() != type || type == at::kBool ||
        b.dim() != (vector_ ? 1 : 2) || (second && sparse.is_sparse()) || sparse.dim() != 2)
      return false;
    if (vector_)
      b = b.unsqueeze(1);
    if (second ? b.size(1) != sparse.size(0) : b.size(0) != sparse.size(1))
      return false;
    at::DimVector sizes{second ? b.size(0) : sparse.size(0), second ? sparse.size(1) : b.size(1)};
    at::DimVector given(sizes);
    if (vector_)
      given.pop_back();
    chorus_number alpha{}, beta{};
    c10::ScalarType compute = computed_in(type);
    if (c.dim() > int64_t(given.size()) || !number_of(a[size_t(alpha_)].toScalar(), compute, alpha) ||
        !number_of(a[size_t(beta_)].toScalar(), compute, beta))
      return false;
    for (int64_t k = 1; k <= c.dim(); k++)
      if (c.size(-k) != 1 && c.size(-k) != given[given.size() - size_t(k)])
        return false;
    Tensor out = where_.in_place  ? c
        : where_.outs.empty() ? at::empty(given, b.options())
                              : a[size_t(where_.outs[0])].toTensor();
    if (!is_plain(out) || !given_result(out) || out.scalar_type() != type || out.is_alias_of(b) || overlap(c, out) ||
        (out.sizes() != at::IntArrayRef(given) && (out.numel() > 0 || where_.in_place)))
      return false;
    CompressedRows rows;
    if (!rows_of(sparse, second, rows) || out.is_alias_of(rows.values))
      return false;
    if (out.sizes() != at::IntArrayRef(given))
      out.resize_(given);
    call.results.push_back(out);
    c = c.expand(given);
    if (vector_) {
      c = c.unsqueeze(1);
      out = out.unsqueeze(1);
    } else if (second) {
      c = c.t();
      out = out.t();
      b = b.t();
    }
    if (out.numel() == 0 || multiply(call.index, out, rows, b.resolve_conj(), c, alpha, beta))
      return true;
    call.results.clear();
    return false;
  }

 private:
  bool multiply(
      DeviceIndex index, const Tensor& out, const CompressedRows& rows, const Tensor& b, const Tensor& c,
      const chorus_number& alpha, const chorus_number& beta) const {
    Tensor values = rows.values.resolve_conj();
    kernels::SparseMatmul kernel{
        .out = out, .starts = rows.starts, .columns = rows.places, .values = values, .b = b, .alpha = alpha,
        .beta = beta};
    bool zero = beta.is_integer ? beta.integer == 0 : beta.real == 0 && beta.imag == 0;
    if (!zero)
      kernel.c = Input(c);
    if (rows.distinct) // a library may add them, in an order that varies
      kernel.library = at::globalContext().deterministicAlgorithms() ? 1 : 2;
    return kernel.run(index);
  }

  const FormArguments where_;
  const int beta_, alpha_;
  const bool vector_;
};

// compress makes a compressed matrix one of the other layout: of rows or of columns.
bool compress(NativeCall& call, c10::Layout layout) {
  const Tensor& self = call.arguments[0].toTensor();
  CompressedRows rows;
  if (is_plain(self) || self.is_sparse() || self.layout() == layout || !rows_of(self, layout == c10::kSparseCsc, rows))
    return false;
  return settle(call, at::_sparse_compressed_tensor_unsafe(
      rows.starts, rows.places, rows.values, self.sizes(), self.options().layout(layout)));
}

// _to_sparse_csr and _to_sparse_csc(self, dense_dim) of compressed matrices
template <c10::Layout layout>
bool to_compressed(NativeCall& call) {
  return call.arguments[1].isNone() && compress(call, layout);
}

// _to_sparse(self, *, layout, blocksize, dense_dim), likewise
bool to_layout(NativeCall& call) {
  Arguments a = call.arguments;
  if (a[1].isNone() || !a[2].isNone() || !a[3].isNone())
    return false;
  c10::Layout layout = a[1].toLayout();
  return (layout == c10::kSparseCsr || layout == c10::kSparseCsc) && compress(call, layout);
}

// _convert_indices_from_coo_to_csr.out(self, size, *, out_int32, out)
bool line_starts(NativeCall& call) {
  const Tensor &self = call.arguments[0].toTensor(), &out = call.arguments[3].toTensor();
  int64_t lines = call.arguments[1].toInt();
  if (!is_plain(self) || self.dim() != 1 || (self.scalar_type() != at::kLong && self.scalar_type() != at::kInt) ||
      lines < 0 || out.scalar_type() != (call.arguments[2].toBool() ? at::kInt : at::kLong))
    return false;
  if (self.numel() == 0)
    return settle(call, at::zeros({lines + 1}, out.options()), &call.arguments[3]);
  Tensor all = at::arange(lines + 1, self.options());
  return settle(
      call, at::searchsorted(self.contiguous(), all, /*out_int32=*/out.scalar_type() == at::kInt), &call.arguments[3]);
}

// _convert_indices_from_csr_to_coo.out(crow_indices, col_indices, *, out_int32, transpose, out)
bool line_numbers(NativeCall& call) {
  Arguments a = call.arguments;
  const Tensor &starts = a[0].toTensor(), &places = a[1].toTensor(), &out = a[4].toTensor();
  if (!is_plain(starts) || !is_plain(places) || starts.dim() != 1 || places.dim() != 1 || starts.size(0) == 0 ||
      (starts.scalar_type() != at::kLong && starts.scalar_type() != at::kInt) ||
      places.scalar_type() != starts.scalar_type() || out.scalar_type() != (a[2].toBool() ? at::kInt : at::kLong))
    return false;
  if (places.numel() == 0)
    return settle(call, at::empty({2, 0}, out.options()), &a[4]);
  Tensor all = at::arange(places.size(0), starts.options()), ends = starts.slice(0, 1).contiguous();
  Tensor line = at::searchsorted(ends, all, /*out_int32=*/out.scalar_type() == at::kInt, /*right=*/true);
  Tensor column = places.to(out.scalar_type());
  return settle(call, a[3].toBool() ? at::stack({column, line}) : at::stack({line, column}), &a[4]);
}

} // namespace

void add_sparse() {
  add_composed("_convert_indices_from_coo_to_csr.out", line_starts);
  add_composed("_convert_indices_from_csr_to_coo.out", line_numbers);
  auto composed = [](const char* name, Composed::Function f) {
    add_sparse_native(schema_of(name), std::make_unique<Composed>(f));
  };
  composed("_coalesce", coalesce);
  composed("add.out", sum_with_coordinates);
  composed("mul.out", product_of_coordinates);
  composed("sparse_mask", masked_by_places);
  composed("_to_sparse", to_layout);
  composed("_to_sparse_csr", to_compressed<c10::kSparseCsr>);
  composed("_to_sparse_csc", to_compressed<c10::kSparseCsc>);
  for (const char* name : {"addmm", "addmm_", "addmm.out", "addmv.out"}) {
    if (auto op = schema_of(name))
      add_sparse_native(*op, std::make_unique<SparseProduct>(*op));
  }
}

} // namespace chorus
