// Operators of neural networks that aren't of images alone: attention, normalizations of channels, losses, bags.
#include "native/kernels.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "native/attention.h"
#include "native/checks.h"
#include "native/copy.h"
#include "native/draws.h"
#include "native/index_errors.h"

namespace chorus {

namespace {

// is_floating says whether a tensor is the device's, has elements, and these are of a floating-point type.
bool is_floating(const at::Tensor& t, c10::ScalarType type) {
  return t.defined() && !t.is_cpu() && t.scalar_type() == type && c10::isFloatingType(type) && dtype_of(type) &&
      t.numel() > 0;
}

at::Tensor optional_tensor(const c10::IValue& v) {
  return v.isTensor() ? v.toTensor() : at::Tensor();
}

// Attention

// Attention is _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask, scale),
// which the device calls for its own attention without dropout.
class Attention final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    Heads h{a[0].toTensor(), a[1].toTensor(), a[2].toTensor(), optional_tensor(a[5]), a[4].toBool()};
    at::Tensor out, sums;
    if (a[3].toDouble() != 0 || !h.fit(a[6].toOptional<double>()) || !attend(h, out, sums))
      return false;
    call.results = {out, sums};
    return true;
  }
};

// AttentionBackward is _scaled_dot_product_flash_attention_for_cpu_backward(grad_out, query, key, value, out,
// logsumexp, dropout_p, is_causal, attn_mask, scale).
class AttentionBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    Heads h{a[1].toTensor(), a[2].toTensor(), a[3].toTensor(), optional_tensor(a[8]), a[7].toBool()};
    std::array<at::Tensor, 3> grads;
    if (a[6].toDouble() != 0 || !h.fit(a[9].toOptional<double>()) ||
        !attend_backward(h, a[0].toTensor(), a[4].toTensor(), a[5].toTensor(), grads))
      return false;
    call.results = {grads[0], grads[1], grads[2]};
    return true;
  }
};

// Normalizations

// Channels is a tensor as one of batch, channels, and all other dimensions joined.
struct Channels {
  at::Tensor tensor;
  at::DimVector sizes, strides;

  explicit Channels(const at::Tensor& t) : tensor(t) {
    int64_t step = 0;
    for (int pass = 0; pass < 2; pass++) {
      int64_t count = 1;
      bool joined = true;
      step = 0;
      for (int64_t d = tensor.dim() - 1; d >= 2; d--) {
        if (tensor.size(d) == 1)
          continue;
        if (count == 1)
          step = tensor.stride(d);
        joined = joined && tensor.stride(d) == step * count;
        count *= tensor.size(d);
      }
      if (joined)
        break;
      tensor = tensor.contiguous();
    }
    sizes = {t.size(0), t.size(1), t.numel() / (t.size(0) * t.size(1))};
    strides = {tensor.stride(0), tensor.stride(1), step};
  }

  Input input() const {
    return Input(tensor, sizes, strides);
  }
};

// stats_type is the type of a normalization's statistics; Undefined if no kernel covers the types of its parameters.
c10::ScalarType stats_type(const at::Tensor& input, std::initializer_list<const at::Tensor*> parameters) {
  c10::ScalarType type = input.scalar_type();
  for (const at::Tensor* t : parameters)
    if (t->defined())
      type = t->scalar_type();
  if (type != input.scalar_type() && type != at::kFloat)
    return c10::ScalarType::Undefined;
  for (const at::Tensor* t : parameters)
    if (t->defined() && (t->is_cpu() || t->scalar_type() != type || !t->is_contiguous()))
      return c10::ScalarType::Undefined;
  return type;
}

// BatchNorm is native_batch_norm and the operators like it. Statistics of an evaluation are empty.
class BatchNorm final : public Native {
 public:
  explicit BatchNorm(const c10::OperatorHandle& op)
      : where_(op.schema()),
        mean_(where_.named("running_mean")),
        training_(where_.named("training")),
        reserve_(op.schema().returns().size() == 4) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& input = a[0].toTensor();
    at::Tensor weight = optional_tensor(a[1]), bias = optional_tensor(a[2]), mean, variance;
    if (mean_ >= 0) {
      mean = optional_tensor(a[mean_]);
      variance = optional_tensor(a[mean_ + 1]);
    }
    bool training = training_ < 0 || a[training_].toBool();
    size_t numbers = a.size() - 2;
    if (!is_floating(input, input.scalar_type()) || input.dim() < 2 || mean.defined() != variance.defined() ||
        (!training && !mean.defined()))
      return false;
    int64_t channels = input.size(1);
    c10::ScalarType type = stats_type(input, {&weight, &bias, &mean, &variance});
    if (type == c10::ScalarType::Undefined || (training && input.numel() == channels))
      return false;
    for (const at::Tensor* t : {&weight, &bias, &mean, &variance})
      if (t->defined() && t->numel() != channels)
        return false;
    at::Tensor out = at::empty_like(input, input.suggest_memory_format());
    at::Tensor saved = at::empty({training ? channels : 0}, input.options().dtype(type));
    at::Tensor rstd = at::empty_like(saved);
    Channels of_input(input), of_out(out);
    if (!of_out.tensor.is_same(out))
      return false;
    kernels::BatchNorm kernel{
        .out = Output(out, of_out.sizes, of_out.strides), .in = of_input.input(), .weight = weight, .bias = bias,
        .running_mean = mean, .running_var = variance, .momentum = a[numbers].toDouble(),
        .eps = a[numbers + 1].toDouble(), .training = training};
    if (training) {
      kernel.mean = saved;
      kernel.rstd = rstd;
    }
    if (!kernel.run(call.index))
      return false;
    call.results = {out, saved, rstd};
    if (reserve_)
      call.results.push_back(at::empty({0}, input.options().dtype(at::kByte)));
    return true;
  }

 private:
  const FormArguments where_;
  const int mean_, training_;
  const bool reserve_;
};

// BatchNormBackward is native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean,
// save_invstd, train, eps, output_mask), or batch_norm_backward, which has one argument more.
class BatchNormBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &grad = a[0].toTensor(), &input = a[1].toTensor();
    at::Tensor parameters[5]; // weight, running mean and variance, mean, 1/deviation
    for (size_t k = 0; k < 5; k++)
      parameters[k] = optional_tensor(a[k + 2]);
    bool training = a[7].toBool();
    if (!is_floating(input, input.scalar_type()) || !is_floating(grad, input.scalar_type()) || input.dim() < 2 ||
        grad.sizes() != input.sizes())
      return false;
    int64_t channels = input.size(1);
    if (!training)
      parameters[3] = parameters[4] = at::Tensor();
    c10::ScalarType type = stats_type(
        input, {&parameters[3], &parameters[4], &parameters[1], &parameters[2], &parameters[0]});
    for (size_t k = 0; k < 5; k++)
      if (parameters[k].defined() ? parameters[k].numel() != channels : k > 0 && training == (k >= 3))
        return false;
    if (type == c10::ScalarType::Undefined)
      return false;
    auto mask = a[9].toBoolList();
    at::Tensor grads[3];
    if (mask[0])
      grads[0] = at::empty_like(input, input.suggest_memory_format());
    for (size_t k = 1; k < 3; k++)
      if (mask[k])
        grads[k] = at::empty({channels}, input.options().dtype(type));
    Channels of_grad(grad), of_input(input);
    std::optional<Channels> of_result;
    kernels::BatchNormBackward kernel{
        .grad_weight = grads[1], .grad_bias = grads[2], .grad = of_grad.input(), .in = of_input.input(),
        .weight = parameters[0], .running_mean = parameters[1], .running_var = parameters[2], .mean = parameters[3],
        .rstd = parameters[4], .eps = a[8].toDouble(), .training = training};
    if (mask[0]) {
      of_result.emplace(grads[0]);
      if (!of_result->tensor.is_same(grads[0]))
        return false;
      kernel.grad_in = Output(grads[0], of_result->sizes, of_result->strides);
    }
    if (!kernel.run(call.index))
      return false;
    call.results = {grads[0], grads[1], grads[2]};
    return true;
  }
};

// Groups are the rows of a normalization of groups of channels: images, channels, elements of a channel, groups.
struct Groups {
  int64_t channels, inner, groups;
  at::DimVector sizes, strides, row_sizes, row_strides{1};

  Groups(int64_t n, int64_t c, int64_t hw, int64_t g)
      : channels(c / g), inner(hw), groups(g), sizes{n * g, c / g * hw}, strides{c / g * hw, 1}, row_sizes{n * g} {}

  Output out(const at::Tensor& t) const {
    return Output(t, sizes, strides);
  }
  Input in(const at::Tensor& t) const {
    return Input(t, sizes, strides);
  }
  Output out_by_row(const at::Tensor& t) const {
    return Output(t, row_sizes, row_strides);
  }
  Input in_by_row(const at::Tensor& t) const {
    return Input(t, row_sizes, row_strides);
  }
};

// GroupNorm is native_group_norm(input, weight, bias, N, C, HxW, group, eps).
class GroupNorm final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    at::Tensor input = a[0].toTensor(), weight = optional_tensor(a[1]), bias = optional_tensor(a[2]);
    int64_t n = a[3].toInt(), c = a[4].toInt(), hw = a[5].toInt(), g = a[6].toInt();
    if (!is_floating(input, input.scalar_type()) || g <= 0 || c % g != 0 || input.numel() != n * c * hw)
      return false;
    c10::ScalarType type = stats_type(input, {&weight, &bias});
    if (type == c10::ScalarType::Undefined || (weight.defined() && weight.numel() != c) ||
        (bias.defined() && bias.numel() != c))
      return false;
    at::MemoryFormat format = input.suggest_memory_format();
    input = input.contiguous();
    at::Tensor out = at::empty_like(input), mean = at::empty({n, g}, input.options().dtype(type));
    at::Tensor rstd = at::empty_like(mean);
    Groups rows(n, c, hw, g);
    kernels::Norm kernel{
        .op = op_, .out = rows.out(out), .mean = rows.out_by_row(mean), .rstd = rows.out_by_row(rstd),
        .in = rows.in(input), .weight = weight, .bias = bias, .eps = a[7].toDouble(), .groups = rows.groups,
        .channels = rows.channels, .inner = rows.inner};
    if (!kernel.run(call.index))
      return false;
    call.results = {out.contiguous(format), mean, rstd};
    return true;
  }

 private:
  const int32_t op_ = kernels::Norm::number("layer_norm");
};

// GroupNormBackward is native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask).
class GroupNormBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    at::Tensor grad = a[0].toTensor(), input = a[1].toTensor(), mean = a[2].toTensor(), rstd = a[3].toTensor();
    at::Tensor weight = optional_tensor(a[4]);
    int64_t n = a[5].toInt(), c = a[6].toInt(), hw = a[7].toInt(), g = a[8].toInt();
    if (!is_floating(input, input.scalar_type()) || !is_floating(grad, input.scalar_type()) || g <= 0 || c % g != 0 ||
        input.numel() != n * c * hw || grad.numel() != input.numel() || mean.numel() != n * g)
      return false;
    c10::ScalarType type = stats_type(input, {&mean, &rstd, &weight});
    if (type == c10::ScalarType::Undefined || (weight.defined() && weight.numel() != c))
      return false;
    auto mask = a[9].toBoolList();
    at::MemoryFormat format = input.suggest_memory_format();
    input = input.contiguous();
    grad = grad.contiguous();
    at::Tensor grads[3];
    if (mask[0])
      grads[0] = at::empty_like(input);
    for (size_t k = 1; k < 3; k++)
      if (mask[k])
        grads[k] = at::empty({c}, input.options().dtype(type));
    Groups rows(n, c, hw, g);
    kernels::NormBackward kernel{
        .op = op_, .grad_in = OutputOrNone(grads[0], rows.sizes, rows.strides), .grad_weight = grads[1],
        .grad_bias = grads[2], .grad = rows.in(grad), .in = rows.in(input), .mean = rows.in_by_row(mean),
        .rstd = rows.in_by_row(rstd), .weight = weight, .groups = rows.groups, .channels = rows.channels,
        .inner = rows.inner};
    if (!kernel.run(call.index))
      return false;
    call.results = {mask[0] ? grads[0].contiguous(format) : grads[0], grads[1], grads[2]};
    return true;
  }

 private:
  const int32_t op_ = kernels::Norm::number("layer_norm_backward");
};

// Losses

// NLL is nll_loss_forward(self, target, weight, reduction, ignore_index), or its gradient, which has grad_output before
// and total_weight behind. nll_loss2d has images.
class NLL final : public Native {
 public:
  NLL(bool backward, const c10::OperatorHandle& op)
      : backward_(backward),
        where_(op.schema()) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    size_t i = backward_;
    const at::Tensor &self = a[i].toTensor(), &target = a[i + 1].toTensor();
    at::Tensor weight = optional_tensor(a[i + 2]);
    int64_t reduction = a[i + 3].toInt(), ignored = a[i + 4].toInt();
    c10::ScalarType type = self.scalar_type();
    void* bad = bad_word(call);
    if (!is_floating(self, type) || self.dim() < 1 || target.is_cpu() || target.dim() != self.dim() - 1 ||
        (target.scalar_type() != at::kLong && target.scalar_type() != at::kByte) || target.numel() == 0)
      return false;
    int64_t dim = self.dim() == 1 ? 0 : 1, classes = self.size(dim);
    at::DimVector rest(self.sizes());
    rest.erase(rest.begin() + dim);
    if (target.sizes() != rest ||
        (weight.defined() && (!is_floating(weight, type) || weight.dim() != 1 || weight.numel() != classes)))
      return false;
    bool separate = reduction == at::Reduction::None;
    if (separate)
      reduction = 0;
    at::Tensor out, total;
    bool ran;
    if (backward_) {
      const at::Tensor& grad = a[0].toTensor();
      total = a[6].toTensor();
      out = where_.outs.empty() ? at::empty_like(self, at::MemoryFormat::Contiguous) : a[where_.outs[0]].toTensor();
      if (!is_floating(grad, type) || !is_floating(total, type) || !given_result(out) || out.scalar_type() != type ||
          out.sizes() != self.sizes() || (separate ? grad.sizes() != target.sizes() : grad.numel() != 1))
        return false;
      ran = kernels::NllBackward{
          .out = out, .grad = grad, .target = target, .weight = weight, .total = total, .dim = dim,
          .averaging = reduction, .ignore = ignored, .bad = bad}
                .run(call.index);
    } else {
      if (where_.outs.empty()) {
        out = at::empty(separate ? target.sizes() : at::IntArrayRef{}, self.options());
        total = at::empty({}, self.options());
      } else {
        out = a[where_.outs[0]].toTensor();
        total = a[where_.outs[1]].toTensor();
      }
      if (!given_result(out) || !given_result(total) || out.scalar_type() != type || total.scalar_type() != type ||
          out.numel() != (separate ? target.numel() : 1) || total.numel() != 1)
        return false;
      ran = kernels::Nll{
          .out = out, .total = total, .in = self, .target = target, .weight = weight, .dim = dim,
          .averaging = reduction, .ignore = ignored, .bad = bad}
                .run(call.index);
    }
    if (!ran)
      return false;
    call.results.push_back(out);
    if (!backward_) {
      if (separate && !fill_native(call.index, total, 0))
        return false;
      call.results.push_back(total);
    }
    return true;
  }

 private:
  const bool backward_;
  const FormArguments where_;
};

// Gates

// HalvesOf are the two halves of a tensor along a dimension.
struct HalvesOf {
  at::Tensor first, second;

  bool split(const at::Tensor& t, int64_t dim) {
    if (dim < -t.dim() || dim >= t.dim() || t.size(dim) % 2 != 0)
      return false;
    int64_t n = t.size(dim) / 2;
    first = t.narrow(dim, 0, n);
    second = t.narrow(dim, n, n);
    return true;
  }
};

// GLU is glu.out(self, dim, out).
class GLU final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &out = call.arguments[2].toTensor();
    c10::ScalarType type = self.scalar_type();
    HalvesOf h;
    if (!is_floating(self, type) || !h.split(self, call.arguments[1].toInt()) || !given_result(out) ||
        out.scalar_type() != type || out.sizes() != h.first.sizes() || out.is_alias_of(self))
      return false;
    kernels::Elementwise kernel{
        .op = op_, .compute = computed_in(type), .outs = {out}, .ins = {h.first, h.second}};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }

 private:
  const int32_t op_ = kernels::Elementwise::number("glu");
};

// GLUBackward is glu_backward(grad_output, self, dim).
class GLUBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &grad = call.arguments[0].toTensor(), &self = call.arguments[1].toTensor();
    int64_t dim = call.arguments[2].toInt();
    c10::ScalarType type = self.scalar_type();
    HalvesOf h, to;
    if (!is_floating(self, type) || !is_floating(grad, type) || !h.split(self, dim) ||
        grad.sizes() != h.first.sizes())
      return false;
    at::Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
    to.split(out, dim);
    kernels::Elementwise kernel{
        .op = op_, .compute = computed_in(type), .outs = {to.first, to.second}, .ins = {grad, h.first, h.second}};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }

 private:
  const int32_t op_ = kernels::Elementwise::number("glu_backward_pair");
};

// Bags of embeddings

bool is_list(const at::Tensor& t, c10::ScalarType type) {
  return t.defined() && !t.is_cpu() && t.dim() == 1 && t.scalar_type() == type;
}

// EmbeddingBag is _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
// include_last_offset, padding_idx), or _embedding_bag_forward_only.
class EmbeddingBag final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &weight = a[0].toTensor(), &indices = a[1].toTensor(), &offsets = a[2].toTensor();
    at::Tensor weights = optional_tensor(a[6]);
    int64_t mode = a[4].toInt();
    c10::ScalarType type = weight.scalar_type(), places = indices.scalar_type();
    void* bad = bad_word(call);
    if (!is_floating(weight, type) || weight.dim() != 2 || (places != at::kLong && places != at::kInt) ||
        !is_list(indices, places) || !is_list(offsets, places) || indices.numel() == 0 || offsets.numel() == 0 ||
        mode < 0 || mode > 2 ||
        (weights.defined() && (mode != 0 || !is_list(weights, type) || weights.sizes() != indices.sizes())))
      return false;
    int64_t bags = offsets.size(0) - a[7].toBool(), columns = weight.size(1);
    if (bags == 0)
      return false;
    at::Tensor out = at::empty({bags, columns}, weight.options()), bag = at::empty_like(indices);
    at::Tensor size = at::empty({bags}, indices.options());
    at::Tensor most = mode == 2 ? at::empty({bags, columns}, indices.options()) : at::empty({bags}, indices.options());
    kernels::EmbeddingBag kernel{
        .out = out, .bags = bag, .counts = size, .most = mode == 2 ? OutputOrNone(most) : OutputOrNone(),
        .table = weight, .indexes = indices, .offsets = offsets, .weights = weights, .mode = mode,
        .padding = a[8].toInt(), .bad = bad};
    if (!kernel.run(call.index) || (mode != 2 && !fill_native(call.index, most, 0)))
      return false;
    call.results = {out, bag, size, most};
    return true;
  }
};

// EmbeddingBagBackward is _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices,
// num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx), or _embedding_bag_dense_backward,
// which has neither offsets nor sparse.
class EmbeddingBagBackward final : public Native {
 public:
  explicit EmbeddingBagBackward(const c10::OperatorHandle& op)
      : bag_(FormArguments(op.schema()).named("offset2bag")), sparse_(FormArguments(op.schema()).named("sparse")) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    size_t i = size_t(bag_), j = i + 6 + (sparse_ >= 0); // per_sample_weights
    if (sparse_ >= 0 && a[sparse_].toBool() && a[i].toTensor().numel() == a[1].toTensor().numel()) {
      call.results.push_back(at::_embedding_bag_sparse_backward(
          a[0].toTensor(), a[1].toTensor(), a[2].toTensor(), a[i].toTensor(), a[i + 1].toTensor(), a[i + 3].toInt(),
          a[i + 4].toBool(), a[i + 5].toInt(), optional_tensor(a[j]), a[j + 1].toInt()));
      return true;
    }
    const at::Tensor &grad = a[0].toTensor(), &indices = a[1].toTensor(), &bag = a[i].toTensor();
    const at::Tensor &size = a[i + 1].toTensor(), &most = a[i + 2].toTensor();
    at::Tensor weights = optional_tensor(a[j]);
    int64_t rows = a[i + 3].toInt(), mode = a[i + 5].toInt();
    c10::ScalarType type = grad.scalar_type(), places = indices.scalar_type();
    if ((sparse_ >= 0 && a[sparse_].toBool()) || !is_floating(grad, type) || grad.dim() != 2 || rows == 0 ||
        (places != at::kLong && places != at::kInt) || !is_list(indices, places) || !is_list(bag, places) ||
        bag.numel() != indices.numel() || !is_list(size, places) || size.numel() != grad.size(0) || mode < 0 ||
        mode > 2 || (weights.defined() && (mode != 0 || !is_list(weights, type))) ||
        (mode == 2 && (most.is_cpu() || most.scalar_type() != places || most.sizes() != grad.sizes())))
      return false;
    void* bad = bad_word(call);
    if (mode == 2)
      at::globalContext().alertNotDeterministic("embedding_bag_backward_cuda_max"); // the name that torch.cuda has
    at::Tensor out = at::empty({rows, grad.size(1)}, grad.options());
    kernels::EmbeddingBackward kernel{
        .out = out, .grad = grad, .indexes = indices, .weights = weights, .bags = bag, .counts = size,
        .most = mode == 2 ? InputOrNone(most) : InputOrNone(), .mode = mode, .padding = a[j + 1].toInt(),
        .by_frequency = a[i + 4].toBool(), .bad = bad};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const int bag_, sparse_;
};

// BagWeightsBackward is _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode,
// padding_idx).
class BagWeightsBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &grad = a[0].toTensor(), &weight = a[1].toTensor(), &indices = a[2].toTensor();
    const at::Tensor& bag = a[4].toTensor();
    c10::ScalarType type = grad.scalar_type(), places = indices.scalar_type();
    void* bad = bad_word(call);
    if (a[5].toInt() != 0 || !is_floating(grad, type) || !is_floating(weight, type) || grad.dim() != 2 ||
        weight.dim() != 2 || weight.size(1) != grad.size(1) || (places != at::kLong && places != at::kInt) ||
        !is_list(indices, places) || !is_list(bag, places) || bag.numel() != indices.numel() || bag.numel() == 0)
      return false;
    at::Tensor out = at::empty({indices.numel()}, grad.options());
    kernels::WeightsBackward kernel{
        .out = out, .grad = grad, .table = weight, .indexes = indices, .bags = bag, .padding = a[6].toInt(),
        .bad = bad};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }
};

// EmbeddingBackward is embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq).
class EmbeddingBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    at::Tensor grad = a[0].toTensor(), indices = a[1].toTensor();
    int64_t rows = a[2].toInt();
    c10::ScalarType type = grad.scalar_type();
    void* bad = bad_word(call);
    if (!is_floating(grad, type) || grad.dim() == 0 || indices.is_cpu() || rows == 0 ||
        (indices.scalar_type() != at::kLong && indices.scalar_type() != at::kInt) ||
        grad.numel() != indices.numel() * grad.size(-1))
      return false;
    int64_t columns = grad.size(-1);
    grad = grad.reshape({indices.numel(), columns});
    indices = indices.reshape({indices.numel()});
    at::Tensor out = at::empty({rows, columns}, grad.options());
    kernels::EmbeddingBackward kernel{
        .out = out, .grad = grad, .indexes = indices, .padding = a[3].toInt(), .by_frequency = a[4].toBool(),
        .bad = bad};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }
};

// Distances

bool is_points(const at::Tensor& t, c10::ScalarType type) {
  return (type == at::kFloat || type == at::kDouble) && is_floating(t, type) && t.dim() >= 2;
}

// Distance is _cdist_forward(x1, x2, p, compute_mode).
class Distance final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &x1 = call.arguments[0].toTensor(), &x2 = call.arguments[1].toTensor();
    if (!is_points(x1, x1.scalar_type()) || !is_points(x2, x1.scalar_type()) || x1.size(-1) != x2.size(-1))
      return false;
    at::IntArrayRef batch1 = x1.sizes().slice(0, size_t(x1.dim() - 2)),
                    batch2 = x2.sizes().slice(0, size_t(x2.dim() - 2));
    at::DimVector sizes = at::infer_size_dimvector(batch1, batch2);
    sizes.push_back(x1.size(-2));
    sizes.push_back(x2.size(-2));
    at::Tensor out = at::empty(sizes, x1.options());
    kernels::Distance kernel{.out = out, .a = x1, .b = x2, .norm = call.arguments[2].toDouble()};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }
};

// DistanceBackward is _cdist_backward(grad, x1, x2, p, cdist).
class DistanceBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &grad = a[0].toTensor(), &x1 = a[1].toTensor(), &x2 = a[2].toTensor(), &out = a[4].toTensor();
    c10::ScalarType type = x1.scalar_type();
    if (!is_points(x1, type) || !is_points(x2, type) || !is_points(grad, type) || !is_points(out, type) ||
        grad.sizes() != out.sizes() || x1.dim() != grad.dim() ||
        x1.sizes().slice(0, size_t(x1.dim() - 1)) != grad.sizes().slice(0, size_t(x1.dim() - 1)))
      return false;
    at::Tensor of_x1 = at::empty_like(x1, at::MemoryFormat::Contiguous);
    kernels::DistanceBackward kernel{
        .grad_a = of_x1, .grad = grad, .a = x1, .b = x2, .distances = out, .norm = a[3].toDouble()};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(of_x1));
    return true;
  }
};

} // namespace

bool Heads::fit(std::optional<double> given_scale) {
  c10::ScalarType type = query.scalar_type();
  for (const at::Tensor* t : {&query, &key, &value})
    if (!is_floating(*t, type) || t->dim() != 4)
      return false;
  if (query.size(3) > 256 || value.size(3) > 256)
    return false;
  if (mask.defined()) {
    if (mask.is_cpu() || mask.dim() > 4 || (mask.scalar_type() != at::kBool && mask.scalar_type() != type))
      return false;
    at::DimVector sizes{query.size(0), query.size(1), query.size(2), key.size(2)};
    if (!at::is_expandable_to(mask.sizes(), sizes))
      return false;
  }
  scale.real = given_scale.value_or(1 / std::sqrt(double(query.size(3))));
  return true;
}

bool attend(const Heads& h, at::Tensor& out, at::Tensor& sums) {
  int64_t batches = h.query.size(0), heads = h.query.size(1), rows = h.query.size(2);
  out = at::empty_like(h.query); // as its strides are
  if (h.value.size(3) != h.query.size(3))
    out = at::empty({batches, heads, rows, h.value.size(3)}, h.query.options());
  at::ScalarType exact = h.query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  sums = at::empty({batches, heads, rows}, h.query.options().dtype(exact));
  kernels::Attention kernel{
      .out = out, .sums = sums, .query = h.query, .key = h.key, .value = h.value, .mask = h.mask,
      .state = state_of(h.draw), .scale = h.scale, .dropout_rate = h.dropout, .causal = h.causal,
      .seed = int64_t(h.draw.seed), .offset = int64_t(h.draw.offset)};
  return kernel.run(h.query.device().index());
}

bool attend_backward(
    const Heads& h, const at::Tensor& grad, const at::Tensor& out, const at::Tensor& sums,
    std::array<at::Tensor, 3>& grads) {
  c10::ScalarType type = h.query.scalar_type();
  if (!is_floating(grad, type) || !is_floating(out, type) ||
      !is_floating(sums, type == at::kDouble ? at::kDouble : at::kFloat))
    return false;
  for (int k = 0; k < 3; k++) {
    const at::Tensor& of = k == 0 ? h.query : k == 1 ? h.key : h.value;
    grads[k] = at::empty({of.size(0), of.size(2), of.size(1), of.size(3)}, of.options()).transpose(1, 2);
  }
  kernels::AttentionBackward kernel{
      .grad_query = grads[0], .grad_key = grads[1], .grad_value = grads[2], .grad = grad, .out = out, .sums = sums,
      .query = h.query, .key = h.key, .value = h.value, .mask = h.mask, .state = state_of(h.draw), .scale = h.scale,
      .dropout_rate = h.dropout, .causal = h.causal, .seed = int64_t(h.draw.seed), .offset = int64_t(h.draw.offset)};
  return kernel.run(h.query.device().index());
}

void add_network() {
  add_native(schema_of("_scaled_dot_product_flash_attention_for_cpu"), std::make_unique<Attention>());
  add_native(schema_of("_scaled_dot_product_flash_attention_for_cpu_backward"), std::make_unique<AttentionBackward>());
  for (const char* name : {"native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit.no_stats",
                           "_batch_norm_with_update"}) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<BatchNorm>(*op));
  }
  add_native(schema_of("native_batch_norm_backward"), std::make_unique<BatchNormBackward>());
  add_native(schema_of("batch_norm_backward"), std::make_unique<BatchNormBackward>());
  add_native(schema_of("native_group_norm"), std::make_unique<GroupNorm>());
  add_native(schema_of("native_group_norm_backward"), std::make_unique<GroupNormBackward>());
  auto nll = [](const char* name, bool backward) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<NLL>(backward, *op));
  };
  nll("nll_loss_forward.output", false);
  nll("nll_loss_backward.grad_input", true);
  nll("nll_loss2d_forward", false);
  nll("nll_loss2d_backward", true);
  add_native(schema_of("glu.out"), std::make_unique<GLU>());
  add_native(schema_of("glu_backward"), std::make_unique<GLUBackward>());
  add_native(schema_of("_embedding_bag"), std::make_unique<EmbeddingBag>());
  add_native(schema_of("_embedding_bag_forward_only"), std::make_unique<EmbeddingBag>());
  for (const char* name : {"_embedding_bag_backward", "_embedding_bag_dense_backward"}) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<EmbeddingBagBackward>(*op));
  }
  add_native(schema_of("_embedding_bag_per_sample_weights_backward"), std::make_unique<BagWeightsBackward>());
  add_native(schema_of("embedding_dense_backward"), std::make_unique<EmbeddingBackward>());
  add_native(schema_of("_cdist_forward"), std::make_unique<Distance>());
  add_native(schema_of("_cdist_backward"), std::make_unique<DistanceBackward>());
}

} // namespace chorus
