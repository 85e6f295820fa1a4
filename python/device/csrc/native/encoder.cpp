// The operators by which PyTorch's transformer layers run outside of training. PyTorch makes two of them of others on the
// CPU as well, by functions that it exports.
#include "native/composed.h"

#include <cmath>

#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>

namespace chorus {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// dense says whether the tensors among a layer's operands are the device's, not nested, and of one floating-point type.
bool dense(Arguments operands) {
  at::ScalarType type = operands[0].toTensor().scalar_type();
  for (const c10::IValue& v : operands) {
    if (!v.isTensor())
      continue;
    const at::Tensor& t = v.toTensor();
    if (!there(t) || t.is_nested() || t.scalar_type() != type || !t.is_floating_point())
      return false;
  }
  return true;
}

// masked says whether an optional mask is one of the device.
bool masked(const c10::IValue& mask) {
  return mask.isNone() || there(mask.toTensor());
}

// _masked_softmax(self, mask, dim, mask_type): 0 is a mask of all rows, 1 of each sequence's keys, 2 of everything. An
// element that is true in the mask has no weight.
bool masked_softmax(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor &self = a[0].toTensor(), &mask = a[1].toTensor();
  if (!dense({a[0]}) || !there(mask) || mask.scalar_type() != at::kBool || self.dim() != 4 || a[3].isNone())
    return false;
  int64_t kind = a[3].toInt(), batch = self.size(0), keys = self.size(3);
  at::Tensor wide = mask;
  if (kind == 0 && mask.sizes() == self.sizes().slice(2))
    wide = mask.view({1, 1, self.size(2), keys});
  else if (kind == 1 && mask.dim() == 2 && mask.size(0) == batch && mask.size(1) == keys && self.size(2) == keys)
    wide = mask.view({batch, 1, 1, keys});
  else if (kind != 2 || mask.sizes() != self.sizes())
    return false;
  return settle(call, self.masked_fill(wide, -INFINITY).softmax(a[2].isNone() ? 3 : a[2].toInt()));
}

// _transform_bias_rescale_qkv(qkv, qkv_bias, num_heads): queries, keys and values of each head, the queries scaled.
bool split_heads(NativeCall& call) {
  Arguments a = call.arguments;
  const at::Tensor &qkv = a[0].toTensor(), &bias = a[1].toTensor();
  int64_t heads = a[2].toInt();
  if (!dense(a.slice(0, 2)) || qkv.dim() != 3 || heads <= 0 || qkv.size(2) % (3 * heads) != 0 || bias.dim() != 1 ||
      bias.size(0) != qkv.size(2))
    return false;
  int64_t width = qkv.size(2) / (3 * heads);
  at::Tensor all = qkv.add(bias).view({qkv.size(0), qkv.size(1), 3, heads, width}).permute({2, 0, 3, 1, 4}).contiguous();
  all[0].mul_(1 / std::sqrt(double(width)));
  for (int64_t k = 0; k < 3; k++)
    call.results.push_back(all[k]);
  return true;
}

// _native_multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias,
// mask, need_weights, average_attn_weights, mask_type)
bool multi_head_attention(NativeCall& call) {
  Arguments a = call.arguments;
  if (!dense(a.slice(0, 3)) || !dense(a.slice(5, 4)) || !masked(a[9]))
    return false;
  auto [result, weights] = at::native::native_multi_head_attention_cpu(
      a[0].toTensor(), a[1].toTensor(), a[2].toTensor(), a[3].toInt(), a[4].toInt(), a[5].toTensor(), a[6].toTensor(),
      a[7].toTensor(), a[8].toTensor(), a[9].toOptional<at::Tensor>(), a[10].toBool(), a[11].toBool(),
      a[12].toOptional<int64_t>());
  call.results.push_back(std::move(result));
  call.results.push_back(std::move(weights));
  return true;
}

// _transformer_encoder_layer_fwd(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu,
// norm_first, eps, norm_weight_1, ..., ffn_bias_2, mask, mask_type)
bool encoder_layer(NativeCall& call) {
  Arguments a = call.arguments;
  if (!dense(a.slice(0, 18)) || !masked(a[18]))
    return false;
  auto t = [&](size_t k) -> const at::Tensor& { return a[k].toTensor(); };
  return settle(call, at::native::transformer_encoder_layer_forward(
      t(0), a[1].toInt(), a[2].toInt(), t(3), t(4), t(5), t(6), a[7].toBool(), a[8].toBool(), a[9].toDouble(), t(10),
      t(11), t(12), t(13), t(14), t(15), t(16), t(17), a[18].toOptional<at::Tensor>(), a[19].toOptional<int64_t>()));
}

} // namespace

void add_encoder() {
  add_composed("_masked_softmax", masked_softmax);
  add_composed("_transform_bias_rescale_qkv", split_heads);
  add_composed("_native_multi_head_attention", multi_head_attention);
  add_composed("_transformer_encoder_layer_fwd", encoder_layer);
}

} // namespace chorus
