// Dropout with its mask. The operator has no generator argument, so the CPU's kernel would draw from the CPU's
// generator. The mask has the input's strides, so that each element gets the same number as in the CPU's dropout.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include "native/draws.h"

namespace chorus {

namespace {

std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  at::TensorOptions mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true))
    return {input.clone(), at::ones_like(input, mask_options)};
  TORCH_CHECK( // as on the CPU, which draws a mask of what stays
      (p >= 0 && p <= 1) || input.numel() == 0, "bernoulli_ expects p to be in [0, 1], but got p=", 1 - p);
  at::Tensor out, mask;
  if (drop(input, 1 - p, out, mask))
    return {out, mask};
  mask = at::empty_like(input, mask_options);
  if (input.numel() > 0)
    mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0 : 1 / (1 - p)), mask};
}

at::Tensor dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  at::Tensor kept = grad.mul(mask);
  bool real = at::isFloatingType(kept.scalar_type()) || at::isComplexType(kept.scalar_type());
  return real ? kept.mul_(scale) : kept.mul(scale); // a scale makes integers floats, as on the CPU
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", &dropout);
  m.impl("native_dropout_backward", &dropout_backward);
}

} // namespace chorus
