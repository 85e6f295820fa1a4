// Examples of ways to register a device's kernel for a PyTorch operator that the other files don't show:
//
// - by a STUB: PyTorch's own operator, here abs, checks, allocates and promotes, and the device provides only the loop;
// - structured: PyTorch's meta function gives sizes and types, the device allocates and computes. In PyTorch's tree
//   such code is generated from a yaml file; here it's written by hand;
// - the fallback as an operator's own kernel, so that it doesn't depend on the fallback registered for all.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/maximum_meta.h>
#include <ATen/ops/minimum_meta.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "runtime/runtime.h"

namespace chorus {

namespace {

void abs_loop(at::TensorIteratorBase& it) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::abs", "out");
  call_cpu(op, {it.input(0), it.output(0)});
}

// PyTorch's operator, which calls abs_stub. For complex numbers it needs a loop with complex results, which PyTorch's
// Meta kernel doesn't have: for these the CPU's whole operator runs.
at::Tensor& abs_out(const at::Tensor& self, at::Tensor& out) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::abs", "out");
  if (!self.is_complex())
    return at::native::abs_out(self, out);
  call_cpu(op, {self, out});
  return out;
}

// Structured is an operator of two tensors, in its forms with a new result and with a given one.
template <typename Meta>
struct Structured final : Meta {
  explicit Structured(const at::Tensor& out = {}) : out_(out), given_(out.defined()) {}

#if __has_include(<ATen/core/Dimname.h>) // PyTorch before 2.13 has named dimensions
  void set_output_raw_strided(
      int64_t, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::TensorOptions options,
      at::DimnameList names) override {
    place(sizes, strides, options);
    Meta::set_output_raw_strided(0, sizes, strides, options, names);
  }
#else
  void set_output_raw_strided(
      int64_t, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::TensorOptions options) override {
    place(sizes, strides, options);
    Meta::set_output_raw_strided(0, sizes, strides, options);
  }
#endif

  void place(c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions& options) {
    Current scope(index_of(options.device()));
    if (!given_) {
      out_ = strides.empty() ? at::empty(sizes, options) : at::empty_strided(sizes, strides, options);
    } else {
      TORCH_CHECK(
          out_.dtype() == options.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ",
          out_.dtype(), " instead");
      TORCH_CHECK(
          out_.device() == options.device(), "Expected out tensor to have device ", options.device(), ", but got ",
          out_.device(), " instead");
      bool resized = at::native::resize_output(out_, sizes);
      if (resized && !strides.empty())
        out_.as_strided_(sizes, strides);
    }
  }

  const at::Tensor& maybe_get_output(int64_t) override {
    return out_;
  }

  at::Tensor run(const char* name, const at::Tensor& a, const at::Tensor& b) {
    this->meta(a, b);
    if (out_.numel() > 0)
      call_cpu(c10::Dispatcher::singleton().findSchemaOrThrow(name, "out"), {a, b, out_});
    return out_;
  }

 private:
  at::Tensor out_;
  bool given_;
};

using Maximum = Structured<at::meta::structured_maximum>;
using Minimum = Structured<at::meta::structured_minimum>;

at::Tensor maximum(const at::Tensor& a, const at::Tensor& b) {
  return Maximum().run("aten::maximum", a, b);
}

at::Tensor& maximum_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  Maximum(out).run("aten::maximum", a, b);
  return out;
}

at::Tensor minimum(const at::Tensor& a, const at::Tensor& b) {
  return Minimum().run("aten::minimum", a, b);
}

at::Tensor& minimum_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  Minimum(out).run("aten::minimum", a, b);
  return out;
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("abs.out", &abs_out); // abs and abs_ call it
  m.impl("maximum", &maximum);
  m.impl("maximum.out", &maximum_out);
  m.impl("minimum", &minimum);
  m.impl("minimum.out", &minimum_out);
  m.impl("sub.Tensor", torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

} // namespace chorus

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(abs_stub, &chorus::abs_loop)
} // namespace at::native
