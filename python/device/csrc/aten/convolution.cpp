// Convolutions, for which PyTorch calls separate operators on a device from outside.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "aten/fallback.h"

namespace chorus {

namespace {

using at::Tensor;

c10::IValue ints(c10::IntArrayRef list) {
  return list.vec();
}

Tensor convolution(
    const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    int64_t groups) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  return call_cpu(
             op, {input, weight, bias, ints(stride), ints(padding), ints(dilation), transposed, ints(output_padding),
                  groups})[0]
      .toTensor();
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad, const Tensor& input, const Tensor& weight, c10::IntArrayRef stride, c10::IntArrayRef padding,
    c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  c10::IValue bias;
  if (wanted[2])
    bias = std::vector<int64_t>{transposed ? weight.size(1) * groups : weight.size(0)};
  c10::List<bool> mask({wanted[0], wanted[1], wanted[2]});
  torch::jit::Stack got = call_cpu(
      op, {grad, input, weight, bias, ints(stride), ints(padding), ints(dilation), transposed, ints(output_padding),
           groups, mask});
  return {got[0].toTensor(), got[1].toTensor(), got[2].toTensor()};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

} // namespace chorus
