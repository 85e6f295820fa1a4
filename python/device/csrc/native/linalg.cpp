// Linear algebra by a library of the device's: cuSOLVER or hipSOLVER. PyTorch's own operators check, allocate and
// compose; the library does the steps at the bottom, which PyTorch has as stubs. Where there's no library, and for what
// it doesn't do, PyTorch's CPU kernels compute the whole operator.
#include "native/native.h"

#include <array>

#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/_linalg_det_native.h>
#include <ATen/ops/_linalg_eigh_native.h>
#include <ATen/ops/_linalg_slogdet_native.h>
#include <ATen/ops/_linalg_solve_ex_native.h>
#include <ATen/ops/_linalg_svd_native.h>
#include <ATen/ops/cholesky_inverse_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/geqrf_native.h>
#include <ATen/ops/linalg_cholesky_ex_native.h>
#include <ATen/ops/linalg_householder_product_native.h>
#include <ATen/ops/linalg_inv_ex_native.h>
#include <ATen/ops/linalg_lstsq_native.h>
#include <ATen/ops/linalg_lu_factor_ex_native.h>
#include <ATen/ops/linalg_lu_native.h>
#include <ATen/ops/linalg_lu_solve_native.h>
#include <ATen/ops/linalg_qr_native.h>
#include <ATen/ops/linalg_solve_triangular_native.h>
#include <ATen/ops/lu_unpack_native.h>
#include <ATen/ops/ormqr_native.h>
#include <ATen/ops/zeros_like.h>
#if __has_include(<ATen/ops/cholesky_native.h>) // PyTorch before 2.14 has this name of linalg_cholesky
#include <ATen/ops/cholesky_native.h>
#endif

#include "native/checks.h"
#include "native/copy.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

using at::Tensor;
using at::native::TransposeType;

// Refused is thrown where the library doesn't do a step. The operator that it's a part of is the CPU's then.
struct Refused {};

// LinalgColumns are the matrices of a tensor as the library takes them, with dense columns.
struct LinalgColumns {
  chorus_columns view{};
  int64_t rows = 0, columns = 0, count = 1;

  // A tensor of vectors has one column.
  explicit LinalgColumns(const Tensor& t, bool vectors = false) {
    int64_t inner = vectors ? 1 : 2, dims = t.dim();
    if (dims < inner)
      throw Refused{};
    rows = t.size(dims - inner);
    columns = vectors ? 1 : t.size(dims - 1);
    int64_t step = t.stride(dims - inner);
    view.ptr = const_cast<void*>(t.const_data_ptr());
    view.pitch = vectors || columns == 1 ? std::max(rows, int64_t(1)) : t.stride(dims - 1);
    if ((rows > 1 && step != 1) || view.pitch < rows)
      throw Refused{};
    for (int64_t d = dims - inner; d-- > 0;) { // batches have one distance
      if (t.size(d) == 1)
        continue;
      if (count == 1)
        view.next = t.stride(d);
      else if (t.stride(d) != view.next * count)
        throw Refused{};
      count *= t.size(d);
    }
  }
};

// column_major is a copy with dense columns.
Tensor column_major(const Tensor& t) {
  return t.mT().clone(at::MemoryFormat::Contiguous).mT();
}

// Step is a step of the library on the matrices of a tensor.
class Step {
 public:
  Step(int32_t kind, const Tensor& a) : type_(a.scalar_type()), index_(a.device().index()), a_(a) {
    step_.size = sizeof step_;
    step_.kind = kind;
    step_.dtype = dtype_of(type_);
    step_.rows = a_.rows, step_.columns = a_.columns, step_.count = a_.count;
    step_.a = &a_.view;
  }

  chorus_solve* operator->() {
    return &step_;
  }

  const chorus_columns* matrix(const Tensor& t, bool vectors = false) {
    TORCH_INTERNAL_ASSERT(used_ < others_.size());
    LinalgColumns c(t, vectors);
    if (c.count != a_.count)
      throw Refused{};
    others_[used_] = c.view;
    return &others_[used_++];
  }
  const chorus_columns* vectors(const Tensor& t) {
    return matrix(t, true);
  }

  void info(const Tensor& t) {
    if (!t.is_contiguous() || t.numel() != a_.count || t.scalar_type() != at::kInt)
      throw Refused{};
    step_.info = t.mutable_data_ptr();
  }

  void run() {
    chorus_status status = lib.solve_run(current_handle(index_), &step_);
    if (status == CHORUS_UNSUPPORTED)
      throw Refused{};
    check(status);
  }

 private:
  chorus_solve step_{};
  c10::ScalarType type_;
  DeviceIndex index_;
  LinalgColumns a_;
  std::array<chorus_columns, 4> others_{};
  size_t used_ = 0;
};

// ---- PyTorch's stubs ----

void cholesky_step(const Tensor& input, const Tensor& info, bool upper) {
  Step step(CHORUS_CHOLESKY, input);
  step->upper = upper;
  step.info(info);
  step.run();
}

void lu_step(const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots) {
  if (!compute_pivots)
    throw Refused{};
  Step step(CHORUS_LU, input);
  step->pivots = step.vectors(pivots);
  step.info(infos);
  step.run();
}

int32_t op_of(TransposeType trans) {
  return trans == TransposeType::NoTranspose ? CHORUS_AS_IS
      : trans == TransposeType::Transpose    ? CHORUS_TRANSPOSE
                                             : CHORUS_CONJUGATE_TRANSPOSE;
}

void lu_solve_step(const Tensor& lu, const Tensor& pivots, const Tensor& b, TransposeType trans) {
  Tensor a = lu, p = pivots;
  c10::SmallVector<int64_t, 5> batch(b.sizes().begin(), b.sizes().end() - 2);
  if (a.sizes().slice(0, size_t(a.dim()) - 2) != at::IntArrayRef(batch)) { // one for several right sides
    auto sizes = batch;
    sizes.push_back(a.size(-2)), sizes.push_back(a.size(-1));
    a = column_major(a.expand(sizes));
    sizes.pop_back();
    p = p.expand(sizes).contiguous();
  }
  Step step(CHORUS_LU_SOLVE, a);
  step->b = step.matrix(b);
  step->pivots = step.vectors(p.contiguous());
  step->others = b.size(-1);
  step->op = op_of(trans);
  step.run();
}

// The triangle and the operation are those of A's memory, read by columns: rows of A, if these lie side by side.
void triangular_step(
    const Tensor& a, const Tensor& b, bool left, bool upper, TransposeType trans, bool unitriangular) {
  bool by_rows = a.stride(-1) == 1 && a.stride(-2) >= a.size(-1) && a.size(-2) > 1;
  Step step(CHORUS_TRIANGULAR, by_rows ? a.mT() : a);
  step->b = step.matrix(b);
  step->others = b.size(left ? -1 : -2);
  step->op = op_of(trans);
  step->right = !left;
  step->upper = upper;
  step->unit = unitriangular;
  step.run();
}

void qr_step(const Tensor& input, const Tensor& tau) {
  Step step(CHORUS_QR, input);
  step->factors = step.vectors(tau);
  step.run();
}

Tensor& qr_vectors_step(Tensor& result, const Tensor& tau) {
  if (tau.size(-1) == 0)
    throw Refused{};
  Step step(CHORUS_QR_VECTORS, result);
  step->factors = step.vectors(tau);
  step->others = tau.size(-1);
  step.run();
  return result;
}

// spread is a tensor of matrices, or of vectors, with the batches of another one.
Tensor spread(const Tensor& t, const Tensor& like, int64_t inner) {
  at::DimVector sizes(like.sizes().begin(), like.sizes().end() - 2);
  if (t.sizes().slice(0, size_t(t.dim() - inner)) == at::IntArrayRef(sizes))
    return t;
  sizes.append(t.sizes().end() - inner, t.sizes().end());
  return inner == 1 ? t.expand(sizes).contiguous() : column_major(t.expand(sizes));
}

// other becomes Q * other, or other * Q, or that with Q's adjoint.
void qr_product_step(const Tensor& input, const Tensor& tau, const Tensor& other, bool left, bool adjoint) {
  if (tau.size(-1) == 0 || other.numel() == 0)
    throw Refused{};
  Tensor a = input.narrow(-1, 0, tau.size(-1)), order = spread(a, other, 2);
  Step step(CHORUS_QR_PRODUCT, order);
  step->b = step.matrix(other);
  step->factors = step.vectors(spread(tau, other, 1));
  step->others = other.size(left ? -1 : -2);
  step->op = !adjoint ? CHORUS_AS_IS : input.is_complex() ? CHORUS_CONJUGATE_TRANSPOSE : CHORUS_TRANSPOSE;
  step->right = !left;
  step.run();
}

// Least squares by QR, as PyTorch's CUDA has them: b's first rows become the solution, and those below it what is left
// of a column.
void least_squares_step(
    const Tensor& a, Tensor& b, Tensor&, Tensor&, Tensor&, double, std::string) {
  int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  Tensor qr = m < n ? column_major(a.mH()) : a;
  at::DimVector sizes(a.sizes().begin(), a.sizes().end() - 2);
  sizes.push_back(k);
  Tensor tau = at::empty(sizes, a.options());
  qr_step(qr, tau);
  Tensor r = spread(qr, b, 2).narrow(-2, 0, k), x = b.narrow(-2, 0, k);
  if (m < n) {
    triangular_step(
        r, x, true, true, a.is_complex() ? TransposeType::ConjTranspose : TransposeType::Transpose, false);
    b.narrow(-2, m, n - m).zero_();
    qr_product_step(qr, tau, b, true, false);
  } else {
    qr_product_step(qr, tau, b, true, true);
    triangular_step(r, x, true, true, TransposeType::NoTranspose, false);
  }
}

// A factor whose diagonal has a 0 is the CPU's, which has the error.
Tensor& cholesky_inverse_step(Tensor& result, Tensor&, bool upper) {
  if (result.diagonal(0, -2, -1).eq(0).any().item<bool>())
    throw Refused{};
  Tensor inverse = column_major(at::zeros_like(result));
  inverse.diagonal(0, -2, -1).fill_(1);
  Step step(CHORUS_CHOLESKY_SOLVE, result);
  step->b = step.matrix(inverse);
  step->others = result.size(-1);
  step->upper = upper;
  step.run();
  result.copy_(inverse);
  return result;
}

// Pivots are exchanges, one after the other: the host's work, on a few integers.
void unpack_pivots_step(at::TensorIterator& iter, int64_t exchanges, int64_t rows) {
  const Tensor& given = iter.tensor(0);
  Tensor order = given.cpu(), pivots = iter.tensor(1).cpu();
  auto* to = order.mutable_data_ptr<int64_t>();
  const auto* from = pivots.const_data_ptr<int32_t>();
  for (int64_t batch = 0; batch < pivots.numel() / exchanges; batch++)
    for (int64_t i = 0; i < exchanges; i++) {
      int64_t other = from[batch * exchanges + i] - 1;
      TORCH_CHECK(
          other >= 0 && other < rows, "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.",
          "Did you properly pass the result of lu_factor?");
      std::swap(to[batch * rows + i], to[batch * rows + other]);
    }
  given.copy_(order);
}

void eigen_step(const Tensor& values, const Tensor& vectors, const Tensor& infos, bool upper, bool compute_vectors) {
  Step step(CHORUS_EIGEN, vectors);
  step->values = step.vectors(values);
  step->upper = upper;
  step->vectors = compute_vectors;
  step.info(infos);
  step.run();
}

// Of a matrix with more columns than rows the conjugate transpose is decomposed.
void svd_step(
    const Tensor& a, bool full_matrices, bool compute_uv, const std::optional<c10::string_view>&, const Tensor& u,
    const Tensor& s, const Tensor& vh, const Tensor& info) {
  bool wide = a.size(-2) < a.size(-1);
  Tensor lost = column_major(wide ? a.mH() : a), left = u, right = vh;
  Step step(CHORUS_SVD, lost);
  step->values = step.vectors(s);
  step->vectors = compute_uv;
  step->all = full_matrices;
  if (compute_uv) {
    auto dense = [](const Tensor& t) { return at::empty_like(t.mT(), at::MemoryFormat::Contiguous).mT(); };
    if (wide)
      left = dense(vh.mT()), right = dense(u.mT());
    else
      right = dense(vh);
    step->u = step.matrix(left);
    step->v = step.matrix(right);
  }
  step.info(info);
  step.run();
  if (!compute_uv)
    return;
  if (wide)
    u.copy_(right.mH()), vh.copy_(left.mH());
  else
    vh.copy_(right);
}

// ---- operators ----

// Fresh is a structured operator of PyTorch's whose results are new tensors.
template <typename Operator>
struct Fresh final : Operator {
  std::array<Tensor, 4> results;

#if __has_include(<ATen/core/Dimname.h>) // PyTorch before 2.13 has named dimensions
  void set_output_raw_strided(
      int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::TensorOptions options,
      at::DimnameList) override {
    place(i, sizes, strides, options);
  }
  void set_output_strided(
      int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::TensorOptions options,
      at::DimnameList) override {
    place(i, sizes, strides, options);
  }
#else
  void set_output_raw_strided(
      int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::TensorOptions options) override {
    place(i, sizes, strides, options);
  }
  void set_output_strided(
      int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::TensorOptions options) override {
    place(i, sizes, strides, options);
  }
#endif

  void place(int64_t i, c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions& options) {
    results[size_t(i)] = strides.empty() ? at::empty(sizes, options) : at::empty_strided(sizes, strides, options);
  }

  const Tensor& maybe_get_output(int64_t i) override {
    return results[size_t(i)];
  }
};

using Factors = c10::SmallVector<Tensor, 4>;

// structured computes a structured operator of PyTorch's with n results.
template <typename Operator, size_t n, typename... A>
Factors structured(const A&... arguments) {
  Fresh<Operator> op;
  op.meta(arguments...);
  auto& r = op.results;
  if constexpr (n == 1)
    op.impl(arguments..., r[0]);
  else if constexpr (n == 2)
    op.impl(arguments..., r[0], r[1]);
  else if constexpr (n == 3)
    op.impl(arguments..., r[0], r[1], r[2]);
  else
    op.impl(arguments..., r[0], r[1], r[2], r[3]);
  return Factors(r.begin(), r.begin() + n);
}

using Arguments = c10::ArrayRef<c10::IValue>;

class LinearAlgebra final : public Native {
 public:
  // The operator has so many arguments before given results.
  LinearAlgebra(size_t inputs, Factors (*compute)(Arguments), bool by_library = true)
      : inputs_(inputs), compute_(compute), by_library_(by_library) {}

  bool run(NativeCall& call) const override {
    for (const c10::IValue& v : call.arguments.slice(0, inputs_)) {
      if (!v.isTensor())
        continue;
      const Tensor& t = v.toTensor();
      c10::ScalarType type = t.scalar_type();
      if (t.is_cpu() || t.numel() == 0 || t.dim() == 0 ||
          (type != at::kFloat && type != at::kDouble && type != at::kComplexFloat && type != at::kComplexDouble &&
           type != at::kInt)) // pivots
        return false;
    }
    if ((by_library_ && lib.solve_get(device(call.index).handle, 1) != CHORUS_OK) ||
        capturing(current_handle(call.index)))
      return false;
    Factors results;
    try {
      results = compute_(call.arguments);
    } catch (const Refused&) {
      return false;
    }
    for (size_t i = 0; inputs_ + i < call.arguments.size(); i++) {
      const Tensor& given = call.arguments[inputs_ + i].toTensor();
      const Tensor& from = results[i];
      if (!given_result(given) || given.scalar_type() != from.scalar_type() ||
          (given.sizes() != from.sizes() && given.numel() > 0))
        return false;
    }
    for (size_t i = 0; inputs_ + i < call.arguments.size(); i++) {
      const Tensor& given = call.arguments[inputs_ + i].toTensor();
      if (given.sizes() != results[i].sizes()) {
        given.resize_(results[i].sizes());
        given.as_strided_(results[i].sizes(), results[i].strides());
      }
      given.copy_(results[i]);
      results[i] = given;
    }
    for (Tensor& t : results)
      call.results.push_back(std::move(t));
    return true;
  }

 private:
  const size_t inputs_;
  Factors (*const compute_)(Arguments);
  const bool by_library_;
};

Factors cholesky_solve(Arguments a) {
  const Tensor &b = a[0].toTensor(), &factor = a[1].toTensor();
  Tensor x = column_major(b), f = column_major(factor);
  Step step(CHORUS_CHOLESKY_SOLVE, f);
  step->b = step.matrix(x);
  step->others = x.size(-1);
  step->upper = a[2].toBool();
  step.run();
  return {x};
}

Factors svd(Arguments a) {
  std::optional<c10::string_view> driver;
  if (!a[3].isNone())
    driver = a[3].toStringView();
  return structured<at::native::structured__linalg_svd_out, 3>(
      a[0].toTensor(), a[1].toBool(), a[2].toBool(), driver);
}

// Of operators that aren't structured the form without a given result calls the other one, by the dispatcher. So the
// latter is called here.

Factors geqrf(Arguments a) {
  const Tensor& in = a[0].toTensor();
  Tensor r = at::empty({0}, in.options()), tau = at::empty({0}, in.options());
  at::native::geqrf_out(in, r, tau);
  return {r, tau};
}

Factors householder_product(Arguments a) {
  const Tensor& in = a[0].toTensor();
  Tensor q = at::empty({0}, in.options());
  at::native::linalg_householder_product_out(in, a[1].toTensor(), q);
  return {q};
}

Factors ormqr(Arguments a) {
  const Tensor& other = a[2].toTensor();
  Tensor product = at::empty({0}, other.options());
  at::native::ormqr_out(a[0].toTensor(), a[1].toTensor(), other, a[3].toBool(), a[4].toBool(), product);
  return {product};
}

Factors cholesky_inverse(Arguments a) {
  const Tensor& factor = a[0].toTensor();
  Tensor inverse = at::empty({0}, factor.options());
  at::native::cholesky_inverse_out(factor, a[1].toBool(), inverse);
  return {inverse};
}

// Without a name the driver is that of PyTorch's CUDA, gels. The others are LAPACK's.
Factors lstsq(Arguments a) {
  const Tensor& b = a[1].toTensor();
  std::optional<c10::string_view> driver;
  if (!a[3].isNone()) {
    if (a[3].toStringRef() != "gels")
      throw Refused{};
    driver = "gels";
  }
  std::optional<double> rcond = a[2].toOptional<double>();
  auto empty = [&](c10::ScalarType type) { return at::empty({0}, b.options().dtype(type)); };
  c10::ScalarType real = c10::toRealValueType(b.scalar_type());
  Tensor x = empty(b.scalar_type()), residuals = empty(real), rank = empty(at::kLong), values = empty(real);
  at::native::linalg_lstsq_out(a[0].toTensor(), b, rcond, driver, x, residuals, rank, values);
  return {x, residuals, rank, values};
}

Factors solve_triangular(Arguments a) {
  const Tensor& b = a[1].toTensor();
  Tensor x = at::empty({0}, b.options());
  at::native::linalg_solve_triangular_out(a[0].toTensor(), b, a[2].toBool(), a[3].toBool(), a[4].toBool(), x);
  return {x};
}

} // namespace

void add_lu_unpack() {
  auto compute = [](Arguments a) {
    return structured<at::native::structured_lu_unpack_out, 3>(
        a[0].toTensor(), a[1].toTensor(), a[2].toBool(), a[3].toBool());
  };
  for (const char* name : {"lu_unpack", "lu_unpack.out"})
    add_native(schema_of(name), std::make_unique<LinearAlgebra>(4, compute, /*by_library=*/false));
}

void add_linear_algebra() {
  namespace n = at::native;
  auto add = [](const char* name, const char* given, size_t inputs, Factors (*compute)(Arguments)) {
    add_native(schema_of(name), std::make_unique<LinearAlgebra>(inputs, compute));
    if (given != nullptr)
      add_native(schema_of(std::string(name) + "." + given), std::make_unique<LinearAlgebra>(inputs, compute));
  };
  add("linalg_cholesky_ex", "L", 3, [](Arguments a) {
    return structured<n::structured_linalg_cholesky_ex_out, 2>(a[0].toTensor(), a[1].toBool(), a[2].toBool());
  });
#if __has_include(<ATen/ops/cholesky_native.h>)
  add("cholesky", "out", 2, [](Arguments a) { return Factors{n::cholesky(a[0].toTensor(), a[1].toBool())}; });
#endif
  add("_cholesky_solve_helper", nullptr, 3, cholesky_solve);
  add("linalg_lu_factor_ex", "out", 3, [](Arguments a) {
    return structured<n::structured_linalg_lu_factor_ex_out, 3>(a[0].toTensor(), a[1].toBool(), a[2].toBool());
  });
  add("linalg_lu", "out", 2, [](Arguments a) {
    return structured<n::structured_linalg_lu_out, 3>(a[0].toTensor(), a[1].toBool());
  });
  add("linalg_lu_solve", "out", 5, [](Arguments a) {
    return structured<n::structured_linalg_lu_solve_out, 1>(
        a[0].toTensor(), a[1].toTensor(), a[2].toTensor(), a[3].toBool(), a[4].toBool());
  });
  add("_linalg_solve_ex", "result", 4, [](Arguments a) {
    return structured<n::structured__linalg_solve_ex_out, 4>(
        a[0].toTensor(), a[1].toTensor(), a[2].toBool(), a[3].toBool());
  });
  add("linalg_solve_triangular", "out", 5, solve_triangular);
  add("linalg_inv_ex", "inverse", 2, [](Arguments a) {
    return structured<n::structured_linalg_inv_ex_out, 2>(a[0].toTensor(), a[1].toBool());
  });
  add("_linalg_det", "result", 1,
      [](Arguments a) { return structured<n::structured__linalg_det_out, 3>(a[0].toTensor()); });
  add("_linalg_slogdet", "sign", 1,
      [](Arguments a) { return structured<n::structured__linalg_slogdet_out, 4>(a[0].toTensor()); });
  add("linalg_qr", "out", 2, [](Arguments a) {
    return structured<n::structured_linalg_qr_out, 2>(a[0].toTensor(), a[1].toStringView());
  });
  add("geqrf", "a", 1, geqrf);
  add("linalg_householder_product", "out", 2, householder_product);
  add("ormqr", "out", 5, ormqr);
  add("cholesky_inverse", "out", 2, cholesky_inverse);
  add("linalg_lstsq", "out", 4, lstsq);
  add("_linalg_eigh", "eigenvalues", 3, [](Arguments a) {
    return structured<n::structured__linalg_eigh_out, 2>(a[0].toTensor(), a[1].toStringView(), a[2].toBool());
  });
  add("_linalg_svd", "U", 4, svd);
}

} // namespace chorus

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_stub, &chorus::cholesky_step)
REGISTER_PRIVATEUSE1_DISPATCH(lu_factor_stub, &chorus::lu_step)
REGISTER_PRIVATEUSE1_DISPATCH(lu_solve_stub, &chorus::lu_solve_step)
REGISTER_PRIVATEUSE1_DISPATCH(triangular_solve_stub, &chorus::triangular_step)
REGISTER_PRIVATEUSE1_DISPATCH(geqrf_stub, &chorus::qr_step)
REGISTER_PRIVATEUSE1_DISPATCH(orgqr_stub, &chorus::qr_vectors_step)
REGISTER_PRIVATEUSE1_DISPATCH(ormqr_stub, &chorus::qr_product_step)
REGISTER_PRIVATEUSE1_DISPATCH(lstsq_stub, &chorus::least_squares_step)
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_inverse_stub, &chorus::cholesky_inverse_step)
REGISTER_PRIVATEUSE1_DISPATCH(unpack_pivots_stub, &chorus::unpack_pivots_step)
REGISTER_PRIVATEUSE1_DISPATCH(linalg_eigh_stub, &chorus::eigen_step)
REGISTER_PRIVATEUSE1_DISPATCH(svd_stub, &chorus::svd_step)
} // namespace at::native
