// Operators that a device may define as its own, one for each of PyTorch's ways to do so. One has a kernel. Another has
// an autograd function with its own backward pass, and the third one that returns a view. They are in torch.ops, in a
// namespace that a device's package chooses.
#include "aten/examples.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "runtime/runtime.h"

namespace chorus {

namespace {

at::Tensor custom_abs(const at::Tensor& input) {
  return at::abs(input) + 1;
}

// Halves returns its argument, or an alias of it. It halves the gradient, so that a test can recognize its backward
// pass.
template <bool alias>
struct Halves : torch::autograd::Function<Halves<alias>> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor self) {
    at::AutoDispatchBelowAutograd below;
    return alias ? self.view_symint(self.sym_sizes()) : self;
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0] * 0.5};
  }
};

at::Tensor returns_self(const at::Tensor& self) {
  return self;
}

at::Tensor aliasing(const at::Tensor& self) {
  return self.view_symint(self.sym_sizes());
}

} // namespace

void register_examples(const std::string& space) {
  auto define = new torch::Library(torch::Library::DEF, space, std::nullopt, __FILE__, __LINE__);
  define->def("custom_abs(Tensor input) -> Tensor");
  define->def("custom_autograd_fn_returns_self(Tensor input) -> Tensor");
  define->def("custom_autograd_fn_aliasing(Tensor(a) input) -> Tensor(a)");
  auto kernels = new torch::Library(torch::Library::IMPL, space, c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  kernels->impl("custom_abs", &custom_abs);
  kernels->impl("custom_autograd_fn_returns_self", &returns_self);
  kernels->impl("custom_autograd_fn_aliasing", &aliasing);
  auto host = new torch::Library(torch::Library::IMPL, space, c10::DispatchKey::CPU, __FILE__, __LINE__);
  host->impl("custom_abs", &custom_abs);
  // The Meta kernel of custom_abs is in Python: examples.py.
  auto meta = new torch::Library(torch::Library::IMPL, space, c10::DispatchKey::Meta, __FILE__, __LINE__);
  meta->impl("custom_autograd_fn_returns_self", &returns_self);
  meta->impl("custom_autograd_fn_aliasing", &aliasing);
  auto autograd =
      new torch::Library(torch::Library::IMPL, space, c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  autograd->impl("custom_autograd_fn_returns_self", [](const at::Tensor& self) { return Halves<false>::apply(self); });
  autograd->impl("custom_autograd_fn_aliasing", [](const at::Tensor& self) { return Halves<true>::apply(self); });
}

} // namespace chorus
