// Scaled dot product attention. PyTorch lets a device choose the kernel: the CPU's flash attention if the CPU would
// choose it, or the device's own, which alone has dropout.
#include <array>
#include <atomic>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "aten/fallback.h"
#include "aten/tensor_aliases.h"
#include "native/attention.h"
#include "native/copy.h"
#include "native/kernels.h"
#include "runtime/generator.h"

namespace chorus {

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// compiles says whether the driver's compiler takes the kernels with dropout for a type, which is tried once, with one
// query and key.
bool compiles(const at::TensorOptions& options) {
  enum { unknown, yes, no };
  static std::array<std::atomic<int>, int(c10::ScalarType::NumOptions)> known{};
  std::atomic<int>& is = known[size_t(c10::typeMetaToScalarType(options.dtype()))];
  if (is == unknown) {
    Tensor one = at::zeros({1, 1, 1, 1}, options), out, sums;
    Heads h{one, one, one, Tensor(), false, 0.5};
    std::array<Tensor, 3> grads;
    is = h.fit(std::nullopt) && attend(h, out, sums) && attend_backward(h, one, out, sums, grads) ? yes : no;
  }
  return is == yes;
}

// drops says whether the device has a kernel for an attention with dropout.
bool drops(Heads& h, std::optional<double> scale) {
  return uses_philox() && has_natives() && h.dropout > 0 && h.dropout <= 1 && h.fit(scale) &&
      h.key.size(1) == h.query.size(1) && h.value.size(1) == h.query.size(1) && compiles(h.query.options());
}

Heads heads_of(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& mask, double dropout, bool causal) {
  return {query, key, value, mask.value_or(Tensor()), causal, dropout};
}

int64_t choose_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& mask, double dropout, bool causal,
    std::optional<double> scale, bool enable_gqa) {
  if (mask.has_value() && mask->requires_grad())
    return int64_t(at::SDPBackend::math);
  Heads h = heads_of(query, key, value, mask, dropout, causal);
  if (!query.is_nested() && at::globalContext().userEnabledFlashSDP() && drops(h, scale))
    return int64_t(at::SDPBackend::overrideable);
  TensorAliases aliases(query.device().index());
  auto host = [&](const Tensor& t) { return t.device().type() == kType ? aliases.host(t) : t; };
  int64_t choice = at::_ops::_fused_sdp_choice::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::CPU), host(query), host(key), host(value),
      mask.has_value() ? MaybeTensor(host(*mask)) : mask, dropout, causal, scale, enable_gqa);
  return choice == int64_t(at::SDPBackend::flash_attention) ? int64_t(at::SDPBackend::overrideable) : choice;
}

using Attended = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

// attention_with_dropout also returns where its random numbers begin, for the gradients: seed and offset, numbers of
// the host. In a graph the seed is a tensor of the words that a replay begins with, and the offset is from there.
Attended attention_with_dropout(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& mask, double dropout, bool causal,
    std::optional<double> scale) {
  Heads h = heads_of(query, key, value, mask, dropout, causal);
  TORCH_CHECK_NOT_IMPLEMENTED(drops(h, scale), name(), " has no kernel for this attention with dropout");
  DeviceIndex index = query.device().index();
  h.draw = take_numbers(std::nullopt, index, 4);
  Tensor seed = at::scalar_tensor(int64_t(h.draw.seed), at::kLong), offset =
      at::scalar_tensor(int64_t(h.draw.offset), at::kLong);
  if (h.draw.state) {
    seed = at::empty({2}, query.options().dtype(at::kLong));
    kernels::Elementwise copy{
        .op = copy_op(), .compute = at::kLong, .outs = {seed},
        .ins = {Input(h.draw.state, at::kLong, seed.sizes(), seed.strides())}};
    TORCH_CHECK_NOT_IMPLEMENTED(copy.run(index), "the driver's compiler refuses a copy");
    h.draw.state = seed.const_data_ptr();
  }
  Tensor out, sums;
  TORCH_CHECK_NOT_IMPLEMENTED(attend(h, out, sums), "the driver's compiler refuses this attention with dropout");
  return {out, sums, Tensor(), Tensor(), query.size(2), key.size(2), seed, offset, Tensor()};
}

Attended attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& mask, double dropout, bool causal,
    bool, std::optional<double> scale) {
  if (dropout > 0)
    return attention_with_dropout(query, key, value, mask, dropout, causal, scale);
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
    double dropout, bool causal, const Tensor& seed, const Tensor& offset, std::optional<double> scale) {
  if (dropout > 0) {
    Heads h = heads_of(query, key, value, mask.defined() ? MaybeTensor(mask) : MaybeTensor(), dropout, causal);
    h.draw.offset = uint64_t(offset.item<int64_t>());
    if (seed.is_cpu())
      h.draw.seed = uint64_t(seed.item<int64_t>());
    else
      h.draw.state = seed.const_data_ptr();
    std::array<Tensor, 3> grads;
    TORCH_CHECK_NOT_IMPLEMENTED(
        h.fit(scale) && attend_backward(h, grad, out, logsumexp, grads), name(),
        " has no kernel for the gradients of this attention with dropout");
    return {grads[0], grads[1], grads[2], Tensor()};
  }
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::_scaled_dot_product_flash_attention_for_cpu_backward", "");
  torch::jit::Stack got = call_cpu(op, {grad, query, key, value, out, logsumexp, dropout, causal,
                                        mask.defined() ? c10::IValue(mask) : c10::IValue(), scale});
  return {got[0].toTensor(), got[1].toTensor(), got[2].toTensor(), Tensor()};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", &choose_attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable", &attention);
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward);
}

} // namespace chorus

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &chorus::choose_attention)
} // namespace at::native
