// Scaled dot product attention. PyTorch lets a device choose the kernel: the CPU's flash attention if the CPU would
// choose it.
#include <ATen/core/Tensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "fallback.h"
#include "tensor_aliases.h"

namespace chorus {

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

int64_t choose(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& mask, double dropout, bool causal,
    std::optional<double> scale, bool enable_gqa) {
  if (mask.has_value() && mask->requires_grad())
    return int64_t(at::SDPBackend::math);
  TensorAliases aliases(query.device().index());
  auto host = [&](const Tensor& t) { return t.device().type() == kType ? aliases.host(t) : t; };
  int64_t choice = at::_ops::_fused_sdp_choice::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::CPU), host(query), host(key), host(value),
      mask.has_value() ? MaybeTensor(host(*mask)) : mask, dropout, causal, scale, enable_gqa);
  return choice == int64_t(at::SDPBackend::flash_attention) ? int64_t(at::SDPBackend::overrideable) : choice;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& mask, double dropout, bool causal,
    bool, std::optional<double> scale) {
  static auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_scaled_dot_product_flash_attention_for_cpu", "");
  torch::jit::Stack got = call_cpu(op, {query, key, value, dropout, causal, mask, scale});
  Tensor none = at::empty({}, query.options().dtype(at::kLong));
  Tensor logsumexp = got[1].toTensor().contiguous(); // like the Meta kernel's; the CPU's isn't contiguous
  return {got[0].toTensor(), logsumexp, Tensor(), Tensor(), query.size(2), key.size(2), none, none, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
    std::array<bool, 4>, const Tensor& out, const Tensor& logsumexp, const Tensor&, const Tensor&, int64_t, int64_t,
    double dropout, bool causal, const Tensor&, const Tensor&, std::optional<double> scale) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::_scaled_dot_product_flash_attention_for_cpu_backward", "");
  torch::jit::Stack got = call_cpu(op, {grad, query, key, value, out, logsumexp, dropout, causal,
                                        mask.defined() ? c10::IValue(mask) : c10::IValue(), scale});
  return {got[0].toTensor(), got[1].toTensor(), got[2].toTensor(), Tensor()};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &choose);
  m.impl("_scaled_dot_product_fused_attention_overrideable", &attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward);
}

} // namespace chorus

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &chorus::choose)
} // namespace at::native
