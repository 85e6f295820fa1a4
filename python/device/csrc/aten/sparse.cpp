#include "aten/sparse.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <torch/library.h>

#include "aten/boxed.h"
#include "aten/fallback.h"
#include "runtime/runtime.h"

namespace chorus {

namespace {

at::SparseTensorImpl* coo_impl(const at::Tensor& t) {
  return static_cast<at::SparseTensorImpl*>(t.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl* csr_impl(const at::Tensor& t) {
  return static_cast<at::SparseCsrTensorImpl*>(t.unsafeGetTensorImpl());
}

// Functions of one tensor that PyTorch applies to the values, in these forms.
constexpr const char* of_values[] = {
    "_conj_physical", "abs", "angle", "asin", "asinh", "atan", "atanh", "ceil", "conj_physical", "deg2rad", "erf",
    "erfinv", "expm1", "floor", "frac", "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num", "neg",
    "rad2deg", "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"};
constexpr const char* value_forms[] = {"", "_", ".out"};

// Operators that PyTorch has made of others for all devices: in either layout, in coordinates, and compressed.
constexpr const char* of_any[] = {
    "_nnz", "_to_dense", "_to_sparse.sparse_dim", "add.Tensor", "add_.Tensor", "clone", "copy_", "dense_dim",
    "empty.memory_format", "empty_like", "mm", "mm.out", "mul.Tensor", "mul_.Tensor", "resize_as_sparse_",
    "sparse_dim", "sum", "threshold_backward", "threshold_backward.grad_input", "values", "zero_"};
constexpr const char* of_coordinates[] = {
    "_coalesced_", "_dimI", "_dimV", "_indices", "_sparse_broadcast_to", "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors", "_to_sparse", "_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc",
    "_to_sparse_csr", "_values", "any", "cat", "copy_sparse_to_sparse_", "div.Tensor", "div.Tensor_mode", "div.out",
    "div.out_mode", "div_.Tensor", "div_.Tensor_mode", "floor_divide", "floor_divide.out", "floor_divide_.Tensor",
    "indices", "is_coalesced", "mv", "narrow_copy", "native_norm", "native_norm.ScalarOpt_dim_dtype",
    "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "permute", "pow.Tensor_Scalar", "pow.Tensor_Scalar_out",
    "sparse_resize_", "sparse_resize_and_clear_", "sub.Tensor", "sub.out", "sub_.Tensor", "sum.dim_IntList",
    "unsqueeze", "view_as_complex", "view_as_real", "zeros.out"};
constexpr const char* of_compressed[] = {
    "addmm", "ccol_indices", "col_indices", "crow_indices", "fill_.Scalar", "mul.Scalar", "mul.out", "mul_.Scalar",
    "normal_", "resize_", "row_indices", "select.int", "select_copy.int", "sum.dim_IntList"};

// Operators on plain tensors, likewise.
constexpr const char* to_sparse[] = {
    "_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc", "_to_sparse_csr"};

// as_written runs PyTorch's function for tensors of the CPU on those of the device. It touches no elements
// itself.
template <c10::DispatchKey of_cpu>
void as_written(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  DeviceIndex index = -1;
  for (const c10::IValue& v : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (v.isDevice() && v.toDevice().type() == kType)
      index = index_of(v.toDevice());
    each_tensor(v, [&](const at::Tensor& t) {
      if (index < 0 && t.defined() && t.device().type() == kType)
        index = t.device().index();
    });
    if (index >= 0)
      break;
  }
  Current scope(index < 0 ? current() : index);
  op.redispatchBoxed(c10::DispatchKeySet(of_cpu), stack);
}

// Registering registers the CPU's operators for a kind of tensors.
template <c10::DispatchKey of_cpu>
class Registering {
 public:
  Registering(torch::Library& m, c10::DispatchKey of_device) : m_(m), of_device_(of_device) {}

  void all_written(c10::ArrayRef<const char*> names) {
    for (const char* name : names)
      written(std::string(name));
  }

  void written(const std::string& name) {
    if (auto op = missing(name); op && op->hasKernelForDispatchKey(of_cpu))
      m_.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&as_written<of_cpu>>());
  }

  // others gives the rest to the fallback, even what PyTorch can compose of other operators.
  void others() {
    for (const c10::OperatorName& of : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(of_cpu)) {
      std::string name = c10::toString(of);
      if (of.getNamespace() == "aten" && missing(name = name.substr(sizeof("aten::") - 1)))
        m_.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
  }

 private:
  // missing is an operator without a kernel yet.
  std::optional<c10::OperatorHandle> missing(const std::string& name) const {
    size_t dot = name.find('.');
    auto op = c10::Dispatcher::singleton().findOp(
        {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    return op && !op->hasKernelForDispatchKey(of_device_) ? op : std::nullopt;
  }

  torch::Library& m_;
  const c10::DispatchKey of_device_;
};

} // namespace

bool is_sparse(const at::Tensor& t) {
  switch (t.layout()) {
    case c10::kSparse:
    case c10::kSparseCsr:
    case c10::kSparseCsc:
    case c10::kSparseBsr:
    case c10::kSparseBsc:
      return true;
    default:
      return false;
  }
}

std::array<at::Tensor, 3> sparse_parts(const at::Tensor& t) {
  if (t.is_sparse())
    return {at::Tensor(), coo_impl(t)->indices(), coo_impl(t)->values()};
  return {csr_impl(t)->compressed_indices(), csr_impl(t)->plain_indices(), csr_impl(t)->values()};
}

at::Tensor with_parts(const at::Tensor& like, const std::function<at::Tensor(const at::Tensor&)>& f) {
  auto [lines, places, values] = sparse_parts(like);
  at::Tensor made = f(values);
  c10::TensorOptions options = like.options().device(made.device());
  if (!like.is_sparse()) {
    // PyTorch's own functions check the parts if torch.sparse.check_sparse_tensor_invariants is on: by operators, for
    // which a function of the stream can't wait.
    bool here = made.device().type() == kType;
    at::Tensor whole = at::detail::make_tensor<at::SparseCsrTensorImpl>(
        c10::DispatchKeySet(here ? c10::DispatchKey::SparseCsrPrivateUse1 : c10::DispatchKey::SparseCsrCPU),
        made.device(), like.layout(), made.dtype());
    csr_impl(whole)->set_member_tensors(f(lines), f(places), made, like.sizes());
    return whole;
  }
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      coo_impl(like)->sparse_dim(), coo_impl(like)->dense_dim(), like.sizes(), f(places), made, options,
      coo_impl(like)->coalesced());
}

void become_sparse(const at::Tensor& t, const at::Tensor& as, const std::array<at::Tensor, 3>& parts) {
  if (!t.is_sparse()) {
    csr_impl(t)->set_layout(as.layout());
    csr_impl(t)->set_member_tensors(parts[0], parts[1], parts[2], as.sizes());
    return;
  }
  at::SparseTensorImpl *to = coo_impl(t), *from = coo_impl(as);
  to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
  to->set_indices_and_values_unsafe(parts[1], parts[2]);
  to->set_coalesced(from->coalesced());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  Registering<c10::DispatchKey::SparseCPU> all(m, c10::DispatchKey::SparsePrivateUse1);
  for (const char* name : of_values)
    for (const char* form : value_forms)
      all.written(std::string(name) + form);
  all.all_written(of_any);
  all.all_written(of_coordinates);
  all.others();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  Registering<c10::DispatchKey::CPU>(m, c10::DispatchKey::PrivateUse1).all_written(to_sparse);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  Registering<c10::DispatchKey::SparseCsrCPU> all(m, c10::DispatchKey::SparseCsrPrivateUse1);
  for (const char* name : of_values)
    for (const char* form : value_forms)
      all.written(std::string(name) + form);
  all.all_written(of_any);
  all.all_written(of_compressed);
  all.others();
}

} // namespace chorus
