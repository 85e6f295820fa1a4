// Operators on rows: softmax, normalizations, and sums along a dimension.
#include "native/kernels.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/OpMathType.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "native/checks.h"

namespace chorus {

namespace {

// Softmax is softmax or log_softmax, whose result PyTorch has allocated, or its gradient.
class Softmax final : public Native {
 public:
  Softmax(const char* kernel, const c10::OperatorHandle& op)
      : op_(kernels::Softmax::number(kernel)), where_(op.schema()), dim_(where_.named("dim")) {}

  bool run(NativeCall& call) const override {
    const at::Tensor& out = call.arguments[where_.outs[0]].toTensor();
    int64_t dim = call.arguments[dim_].toInt(), dims = std::max<int64_t>(out.dim(), 1);
    if (dim < -dims || dim >= dims || !given_result(out) || !out.is_floating_point())
      return false;
    for (int i : where_.tensors) {
      const at::Tensor& t = call.arguments[i].toTensor();
      if (t.is_cpu() || t.sizes() != out.sizes() || t.scalar_type() != out.scalar_type() || overlap(t, out))
        return false;
    }
    if (out.numel() > 0 && !compute(call, out, dim < 0 ? dim + dims : dim))
      return false;
    call.results.push_back(out);
    return true;
  }

 private:
  bool compute(const NativeCall& call, const at::Tensor& out, int64_t dim) const {
    const at::Tensor& first = call.arguments[where_.tensors[0]].toTensor();
    if (where_.tensors.size() == 1)
      return kernels::Softmax{.op = op_, .out = out, .in = first, .dim = dim}.run(call.index);
    const at::Tensor& result = call.arguments[where_.tensors[1]].toTensor();
    return kernels::SoftmaxBackward{.op = op_, .out = out, .grad = first, .result = result, .dim = dim}.run(call.index);
  }

  const int32_t op_;
  const FormArguments where_;
  const int dim_;
};

// Rows are contiguous tensors as a kernel of m rows and n columns takes them: whole ones, those with a number for each
// row, and those with one for each column. One that's undefined is none.
class Rows {
 public:
  Rows(int64_t m, int64_t n) : whole_{m, n}, pitch_{n, 1}, rows_{m}, columns_{n} {}

  OutputOrNone out(const at::Tensor& t) const {
    return OutputOrNone(t, whole_, pitch_);
  }
  Output out_by_row(const at::Tensor& t) const {
    return Output(t, rows_, dense_);
  }
  OutputOrNone out_by_column(const at::Tensor& t) const {
    return OutputOrNone(t, columns_, dense_);
  }
  Input in(const at::Tensor& t) const {
    return Input(t, whole_, pitch_);
  }
  Input in_by_row(const at::Tensor& t) const {
    return Input(t, rows_, dense_);
  }
  InputOrNone in_by_column(const at::Tensor& t) const {
    return InputOrNone(t, columns_, dense_);
  }

 private:
  const at::DimVector whole_, pitch_, rows_, columns_, dense_{1};
};

// by_row is a new tensor with a number for each row of an input, whose rows have a shape.
at::Tensor by_row(const at::Tensor& input, const at::DimVector& shape, c10::ScalarType type) {
  at::DimVector sizes(input.sizes().slice(0, size_t(input.dim()) - shape.size()));
  sizes.resize(size_t(input.dim()), 1);
  return at::empty(sizes, input.options().dtype(type));
}

// like is a new contiguous tensor, or undefined as the given one.
at::Tensor like(const at::Tensor& t) {
  return t.defined() ? at::empty_like(t, at::MemoryFormat::Contiguous) : at::Tensor();
}

bool optional_like(const c10::IValue& v, c10::ScalarType type, at::Tensor& t) {
  if (!v.isTensor() || !v.toTensor().defined())
    return true;
  t = v.toTensor();
  if (t.is_cpu() || t.scalar_type() != type)
    return false;
  t = t.contiguous();
  return true;
}

class LayerNorm final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    at::Tensor input = a[0].toTensor(), weight, bias;
    c10::ScalarType type = input.scalar_type();
    if (input.is_cpu() || !input.is_floating_point() || !dtype_of(type))
      return false;
    c10::ScalarType of_weights = type;
    for (size_t i : {2, 3})
      if (a[i].isTensor() && a[i].toTensor().defined())
        of_weights = a[i].toTensor().scalar_type();
    if (of_weights != type && of_weights != at::kFloat)
      return false;
    if (!optional_like(a[2], of_weights, weight) || !optional_like(a[3], of_weights, bias))
      return false;
    at::DimVector shape(a[1].toDimVector());
    auto [m, n] = at::native::_check_layer_norm_inputs(input, shape, weight, bias);
    if (m == 0 || n == 0)
      return false;
    input = input.contiguous();
    at::Tensor out = like(input), mean = by_row(input, shape, of_weights), rstd = like(mean);
    Rows rows(m, n);
    kernels::Norm kernel{
        .op = op_, .out = rows.out(out), .mean = rows.out_by_row(mean), .rstd = rows.out_by_row(rstd),
        .in = rows.in(input), .weight = rows.in_by_column(weight), .bias = rows.in_by_column(bias),
        .eps = a[4].toDouble()};
    if (!kernel.run(call.index))
      return false;
    call.results = {out, mean, rstd};
    return true;
  }

 private:
  const int32_t op_ = kernels::Norm::number("layer_norm");
};

class LayerNormBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    at::Tensor grad = a[0].toTensor(), input = a[1].toTensor(), mean = a[3].toTensor(), rstd = a[4].toTensor();
    c10::ScalarType type = input.scalar_type();
    if (grad.is_cpu() || input.is_cpu() || mean.is_cpu() || rstd.is_cpu() || !input.is_floating_point() ||
        !dtype_of(type) || grad.scalar_type() != type || grad.sizes() != input.sizes())
      return false;
    at::Tensor weight, bias;
    c10::ScalarType of_weights = mean.scalar_type();
    if (!optional_like(a[5], of_weights, weight) || !optional_like(a[6], of_weights, bias))
      return false;
    at::DimVector shape(a[2].toDimVector());
    auto [m, n] = at::native::_check_layer_norm_inputs(input, shape, weight, bias);
    if (m == 0 || n == 0 || mean.numel() != m || rstd.numel() != m)
      return false;
    auto mask = a[7].toBoolList();
    grad = grad.contiguous();
    input = input.contiguous();
    mean = mean.contiguous();
    rstd = rstd.contiguous();
    at::Tensor grads[3], of[] = {input, weight, bias};
    for (size_t k = 0; k < 3; k++)
      if (mask[k])
        grads[k] = like(of[k]);
    Rows rows(m, n);
    kernels::NormBackward kernel{
        .op = op_, .grad_in = rows.out(grads[0]), .grad_weight = rows.out_by_column(grads[1]),
        .grad_bias = rows.out_by_column(grads[2]), .grad = rows.in(grad), .in = rows.in(input),
        .mean = rows.in_by_row(mean), .rstd = rows.in_by_row(rstd), .weight = rows.in_by_column(weight)};
    if (!kernel.run(call.index))
      return false;
    call.results = {grads[0], grads[1], grads[2]};
    return true;
  }

 private:
  const int32_t op_ = kernels::Norm::number("layer_norm_backward");
};

// RmsNorm is _fused_rms_norm(input, normalized_shape, weight, eps).
class RmsNorm final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    at::Tensor input = a[0].toTensor(), weight;
    c10::ScalarType type = input.scalar_type();
    if (input.is_cpu() || !input.is_floating_point() || !dtype_of(type))
      return false;
    bool weighted = a[2].isTensor() && a[2].toTensor().defined();
    c10::ScalarType of_weight = weighted ? a[2].toTensor().scalar_type() : type;
    at::DimVector shape(a[1].toDimVector());
    if ((of_weight != type && of_weight != at::kFloat) || !optional_like(a[2], of_weight, weight))
      return false;
    at::native::_check_rms_norm_inputs_symint(input, c10::fromIntArrayRefSlow(shape), weight);
    int64_t n = c10::multiply_integers(shape), m = n == 0 ? 0 : input.numel() / n;
    if (m == 0 || n == 0)
      return false;
    input = input.contiguous();
    at::Tensor out = like(input), rstd = by_row(input, shape, at::toOpMathType(type));
    Rows rows(m, n);
    kernels::Norm kernel{
        .op = op_, .out = rows.out(out), .rstd = rows.out_by_row(rstd), .in = rows.in(input),
        .weight = rows.in_by_column(weight), .eps = a[3].isNone() ? epsilon(type) : a[3].toDouble()};
    if (!kernel.run(call.index))
      return false;
    call.results = {out, rstd};
    return true;
  }

 private:
  static double epsilon(c10::ScalarType type) {
    switch (type) {
      case at::kHalf:
        return std::numeric_limits<c10::Half>::epsilon();
      case at::kBFloat16:
        return std::numeric_limits<c10::BFloat16>::epsilon();
      case at::kDouble:
        return std::numeric_limits<double>::epsilon();
      default:
        return std::numeric_limits<float>::epsilon();
    }
  }

  const int32_t op_ = kernels::Norm::number("rms_norm");
};

// RmsNormBackward is _fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask), of which
// the CPU has no kernel. Without one of the device it's composed of other operators.
class RmsNormBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    at::Tensor grad = a[0].toTensor(), input = a[1].toTensor(), rstd = a[3].toTensor(), weight;
    if (a[4].isTensor())
      weight = a[4].toTensor();
    auto wanted = a[5].toBoolList();
    at::DimVector shape(a[2].toDimVector());
    int64_t n = c10::multiply_integers(shape), m = n == 0 ? 0 : input.numel() / n;
    at::Tensor grads[2];
    if (m > 0 && n > 0 && dtype_of(input.scalar_type()) && grad.scalar_type() == input.scalar_type() &&
        rstd.numel() == m && by_kernel(call.index, grad, input, rstd, weight, m, n, wanted, grads)) {
      call.results = {grads[0], grads[1]};
      return true;
    }
    c10::ScalarType exact = at::toOpMathType(input.scalar_type());
    at::Tensor g = grad.to(exact), x = input.to(exact).mul(rstd), y = weight.defined() ? g.mul(weight) : g;
    at::DimVector inner, outer;
    for (int64_t k = 0; k < input.dim(); k++)
      (k < input.dim() - int64_t(shape.size()) ? outer : inner).push_back(k);
    if (wanted[0])
      grads[0] = y.sub(x.mul(y.mul(x).mean(inner, true))).mul(rstd).to(input.scalar_type());
    if (wanted[1] && weight.defined()) {
      at::Tensor of = g.mul(x);
      grads[1] = (outer.empty() ? of : of.sum(outer)).to(weight.scalar_type());
    }
    call.results = {grads[0], grads[1]};
    return true;
  }

 private:
  bool by_kernel(
      DeviceIndex index, at::Tensor grad, at::Tensor input, at::Tensor rstd, at::Tensor weight, int64_t m, int64_t n,
      const c10::List<bool>& wanted, at::Tensor* grads) const {
    if (weight.defined() && weight.scalar_type() != input.scalar_type() && weight.scalar_type() != at::kFloat)
      return false;
    grad = grad.contiguous();
    input = input.contiguous();
    rstd = rstd.contiguous();
    if (weight.defined())
      weight = weight.contiguous();
    if (wanted[0])
      grads[0] = like(input);
    if (wanted[1])
      grads[1] = like(weight);
    Rows rows(m, n);
    return kernels::NormBackward{
        .op = op_, .grad_in = rows.out(grads[0]), .grad_weight = rows.out_by_column(grads[1]), .grad = rows.in(grad),
        .in = rows.in(input), .rstd = rows.in_by_row(rstd), .weight = rows.in_by_column(weight)}
        .run(index);
  }

  const int32_t op_ = kernels::Norm::number("rms_norm_backward");
};

// Scan is cumsum and the like, whose results PyTorch has allocated, or which allocates its own.
class Scan final : public Native {
 public:
  Scan(const char* kernel, const c10::OperatorHandle& op)
      : op_(kernels::Scan::number(kernel)),
        where_(op.schema()),
        dim_(where_.named("dim")),
        dtype_(where_.named("dtype")),
        helper_(where_.outs.empty() && where_.tensors.size() == 3) {}

  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    int64_t dim = call.arguments[dim_].toInt(), dims = std::max<int64_t>(self.dim(), 1);
    if (self.is_cpu() || dim < -dims || dim >= dims || !dtype_of(self.scalar_type()))
      return false;
    c10::SmallVector<at::Tensor, 2> outs;
    if (helper_)
      outs = {call.arguments[1].toTensor(), call.arguments[2].toTensor()};
    else if (where_.outs.empty())
      outs = {at::empty_like(self, at::MemoryFormat::Contiguous)};
    else
      outs = {call.arguments[where_.outs[0]].toTensor()};
    for (at::Tensor& out : outs)
      if (!given_result(out) || out.sizes() != self.sizes() || out.is_alias_of(self))
        return false;
    if (dtype_ >= 0 && !call.arguments[dtype_].isNone() &&
        call.arguments[dtype_].toScalarType() != outs[0].scalar_type())
      return false;
    if (self.is_complex() && !outs[0].is_complex())
      return false;
    kernels::Scan kernel{
        .op = op_, .compute = computed_in(outs[0].scalar_type()), .in = self, .dim = dim < 0 ? dim + dims : dim};
    kernel.outs.append(outs.begin(), outs.end());
    if (!kernel.run(call.index)) // of no elements as well: it knows the types
      return false;
    if (!helper_)
      call.results = {outs[0]};
    return true;
  }

 private:
  const int32_t op_;
  const FormArguments where_;
  const int dim_, dtype_;
  const bool helper_;
};

} // namespace

void add_rows() {
  auto softmax = [](const char* name, const char* kernel) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Softmax>(kernel, *op));
  };
  softmax("_softmax.out", "softmax");
  softmax("_log_softmax.out", "log_softmax");
  softmax("_softmax_backward_data.out", "softmax_backward");
  softmax("_log_softmax_backward_data.out", "log_softmax_backward");
  add_native(schema_of("native_layer_norm"), std::make_unique<LayerNorm>());
  add_native(schema_of("native_layer_norm_backward"), std::make_unique<LayerNormBackward>());
  add_native(schema_of("_fused_rms_norm"), std::make_unique<RmsNorm>());
  add_native(schema_of("_fused_rms_norm_backward"), std::make_unique<RmsNormBackward>());
  auto scan = [](const char* name, const char* kernel) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Scan>(kernel, *op));
  };
  scan("cumsum.out", "cumsum");
  scan("cumprod.out", "cumprod");
  scan("_logcumsumexp", "logcumsumexp");
  scan("_logcumsumexp.out", "logcumsumexp");
  scan("_cummax_helper", "cummax");
  scan("_cummin_helper", "cummin");
}

} // namespace chorus
