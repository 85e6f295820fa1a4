// Histograms of integers. The CPU counts floating-point numbers alone. Other accelerators count integers, too, and
// models with a mixture of experts rely on that on every device but the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/histc.h>
#include <torch/library.h>

#include "aten/fallback.h"

namespace chorus {

namespace {

// Numbers beyond 2^53 are rounded on their way to a bin.
at::Tensor counts(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  return at::histc(self.to(at::kDouble), bins, min, max);
}

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "");
  if (at::isIntegralType(self.scalar_type(), /*includeBool=*/false))
    return counts(self, bins, min, max).to(self.scalar_type());
  return call_cpu(op, {self, bins, min, max}).back().toTensor();
}

at::Tensor& histc_out(
    const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::histc", "out");
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    call_cpu(op, {self, bins, min, max, out});
    return out;
  }
  TORCH_CHECK(
      out.scalar_type() == self.scalar_type() && out.device() == self.device(),
      "histc: the result has to be of the input's type and device, ", self.scalar_type(), " on ", self.device(),
      ", but it's ", out.scalar_type(), " on ", out.device());
  at::Tensor result = counts(self, bins, min, max);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histc", &histc);
  m.impl("histc.out", &histc_out);
}

} // namespace chorus
