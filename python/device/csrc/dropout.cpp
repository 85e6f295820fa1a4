// Dropout with its mask. The operator has no generator argument, so the CPU's kernel would draw from the CPU's
// generator. The mask has the input's strides, so that each element gets the same number as in the CPU's dropout.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

namespace chorus {

namespace {

std::tuple<at::Tensor, at::Tensor> dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  at::TensorOptions mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true))
    return {input.clone(), at::ones_like(input, mask_options)};
  at::Tensor mask = at::empty_like(input, mask_options);
  mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0 : 1 / (1 - p)), mask};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", &dropout);
}

} // namespace chorus
