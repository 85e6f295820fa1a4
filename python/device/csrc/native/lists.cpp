// Operators on lists of tensors: _foreach_*, steps of optimizers, and loss scaling.
#include "native/kernels.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include "native/checks.h"

namespace chorus {

namespace {

using Tensors = std::vector<at::Tensor>;

// alike says whether a list has tensors of the device with the sizes and types of another one's.
bool alike(const Tensors& list, const Tensors& other) {
  if (list.size() != other.size())
    return false;
  for (size_t j = 0; j < list.size(); j++)
    if (list[j].is_cpu() || list[j].sizes() != other[j].sizes() || list[j].scalar_type() != other[j].scalar_type())
      return false;
  return true;
}

// composed runs PyTorch's own composition of an operator: of the device's operators on each tensor.
void composed(const c10::OperatorHandle& op, NativeCall& call) {
  torch::jit::Stack stack(call.arguments.begin(), call.arguments.end());
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  if (!op.schema().returns().empty())
    call.list = stack.back().toTensorList();
}

// Foreach is a _foreach_ operator, functional or in place: of one list, or of several lists, a number for all, or a
// tensor of one element.
class Foreach final : public Native {
 public:
  Foreach(const char* kernel, bool alpha, const c10::OperatorHandle& op)
      : op_(kernels::Foreach::number(kernel)), alpha_(alpha), handle_(op) {}

  bool run(NativeCall& call) const override {
    if (!native(call))
      composed(handle_, call);
    return true;
  }

 private:
  bool native(NativeCall& call) const {
    std::vector<Tensors> lists;
    c10::SmallVector<at::Scalar, 2> numbers;
    const auto& arguments = handle_.schema().arguments();
    for (size_t i = 0; i < call.arguments.size(); i++) {
      const c10::IValue& v = call.arguments[i];
      if (v.isTensorList()) {
        lists.push_back(v.toTensorVector());
      } else if (v.isTensor()) { // of one element
        const at::Tensor& t = v.toTensor();
        if (t.dim() != 0 || lists.empty() || lists[0].empty() || t.scalar_type() != lists[0][0].scalar_type())
          return false;
        lists.push_back({t});
      } else if (v.isScalar()) {
        at::Scalar s = v.toScalar();
        if (s.isComplex() || s.isSymbolic() || lists.empty() || lists[0].empty())
          return false;
        if (arguments[i].name() == "alpha" || arguments[i].name() == "value")
          numbers.push_back(s);
        else // a number for all tensors, which the kernel reads from memory
          lists.push_back({at::full({}, s, lists[0][0].options().dtype(computed_in(lists[0][0].scalar_type())))});
      } else {
        return false;
      }
    }
    if (alpha_ && numbers.empty())
      numbers.push_back(1);
    const Tensors& self = lists[0];
    if (self.empty() || !alike(self, self))
      return false;
    c10::ScalarType type = self[0].scalar_type();
    for (const at::Tensor& t : self)
      if (t.scalar_type() != type || !t.is_floating_point() || !dtype_of(type))
        return false;
    for (size_t k = 1; k < lists.size(); k++)
      if (lists[k].size() == 1 && lists[k][0].dim() == 0 && self.size() > 0) {
        if (lists[k][0].is_cpu())
          lists[k][0] = at::full({}, lists[k][0].item(), self[0].options());
      } else if (!alike(lists[k], self)) {
        return false;
      }
    bool in_place = handle_.schema().returns().empty();
    Tensors outs;
    for (const at::Tensor& t : self) {
      outs.push_back(in_place ? t : at::empty_like(t));
      if (!given_result(outs.back()))
        return false;
    }
    for (size_t k = 1; k < lists.size(); k++)
      for (size_t j = 0; j < lists[k].size(); j++)
        for (size_t i = 0; i < (lists[k].size() == 1 ? self.size() : 1); i++)
          if (overlap(outs[lists[k].size() == 1 ? i : j], lists[k][j]))
            return false;
    at::DimVector lengths{int64_t(outs.size())};
    kernels::Foreach kernel{
        .op = op_, .compute = computed_in(type), .out_lists = 1, .in_lists = int64_t(lists.size()),
        .number_lists = int64_t(numbers.size())};
    kernel.outs.append(outs.begin(), outs.end());
    for (const Tensors& list : lists) {
      lengths.push_back(int64_t(list.size()));
      kernel.ins.append(list.begin(), list.end());
    }
    for (const at::Scalar& s : numbers) {
      chorus_number n;
      if (!number_of(s, computed_in(type), n))
        return false;
      lengths.push_back(1);
      kernel.numbers.push_back(n);
    }
    kernel.lengths = lengths;
    if (!kernel.run(call.index))
      return false;
    if (!in_place)
      call.list = c10::List<at::Tensor>(outs);
    return true;
  }

  const int32_t op_;
  const bool alpha_;
  const c10::OperatorHandle handle_;
};

// ForeachNorm is _foreach_norm.Scalar(self, ord, dtype), by the norms 1, 2 and infinity.
class ForeachNorm final : public Native {
 public:
  explicit ForeachNorm(const c10::OperatorHandle& op) : handle_(op) {}

  bool run(NativeCall& call) const override {
    if (!native(call))
      composed(handle_, call);
    return true;
  }

 private:
  bool native(NativeCall& call) const {
    static const int32_t ops[] = {
        kernels::ForeachReduce::number("norm1"), kernels::ForeachReduce::number("norm2"),
        kernels::ForeachReduce::number("norm_inf")};
    Tensors self = call.arguments[0].toTensorVector();
    at::Scalar power = call.arguments[1].toScalar();
    if (self.empty() || !alike(self, self) || !call.arguments[2].isNone() || power.isComplex() || power.isSymbolic())
      return false;
    double p = power.toDouble();
    if (p != 1 && p != 2 && !(std::isinf(p) && p > 0))
      return false;
    c10::ScalarType type = self[0].scalar_type();
    for (const at::Tensor& t : self)
      if (t.scalar_type() != type || !t.is_floating_point() || !dtype_of(type) || t.numel() == 0)
        return false;
    at::Tensor norms = at::empty({int64_t(self.size())}, self[0].options());
    Tensors results;
    kernels::ForeachReduce kernel{.op = ops[std::isinf(p) ? 2 : int(p) - 1], .compute = computed_in(type)};
    for (size_t j = 0; j < self.size(); j++)
      results.push_back(norms.select(0, int64_t(j)));
    kernel.outs.append(results.begin(), results.end());
    kernel.ins.append(self.begin(), self.end());
    if (!kernel.run(call.index))
      return false;
    call.list = c10::List<at::Tensor>(results);
    return true;
  }

  const c10::OperatorHandle handle_;
};

// Optimizer is a step of a fused optimizer.
class Optimizer final : public Native {
 public:
  Optimizer(const char* kernel, const c10::OperatorHandle& op)
      : op_(kernels::Optimize::number(kernel)), where_(op.schema()), lr_(where_.named("lr")) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    std::vector<Tensors> lists;
    Tensors steps;
    for (const c10::IValue& v : a)
      if (v.isTensorList())
        lists.push_back(v.toTensorVector());
    if (where_.named("state_steps") >= 0) {
      steps = std::move(lists.back());
      lists.pop_back();
    }
    for (const char* unless : {"amsgrad", "momentum"}) { // the last list counts with it
      int i = where_.named(unless);
      if (i >= 0 && (a[i].isBool() ? !a[i].toBool() : a[i].toDouble() == 0))
        lists.pop_back();
    }
    if (lists[0].empty())
      return false;
    for (const Tensors& list : lists) {
      if (list.size() != lists[0].size())
        return false;
      for (size_t j = 0; j < list.size(); j++)
        if (list[j].is_cpu() || list[j].sizes() != lists[0][j].sizes() || !given_result(list[j]))
          return false;
    }
    for (const at::Tensor& t : steps)
      if (t.is_cpu())
        return false;
    double lr = 0;
    at::Tensor rate;
    if (!a[lr_].isTensor())
      lr = a[lr_].toDouble();
    else if (a[lr_].toTensor().is_cpu())
      lr = a[lr_].toTensor().item<double>();
    else
      rate = a[lr_].toTensor();
    auto optional = [&](const char* name) {
      const c10::IValue& v = a[where_.named(name)];
      return v.isTensor() ? v.toTensor() : at::Tensor();
    };
    at::Tensor found = optional("found_inf"), scale = optional("grad_scale");
    for (const at::Tensor& t : {found, scale})
      if (t.defined() && t.is_cpu())
        return false;
    auto flag = [&](const char* name) {
      int i = where_.named(name);
      return i >= 0 && a[i].toBool();
    };
    auto number = [&](const char* name) {
      int i = where_.named(name);
      return i < 0 ? 0 : a[i].toDouble();
    };
    kernels::Optimize kernel{
        .op = op_, .found_inf = found, .grad_scale = scale, .rate = rate, .lr = lr,
        .weight_decay = number("weight_decay"), .momentum = number("momentum"), .dampening = number("dampening"),
        .beta1 = number("beta1"), .beta2 = number("beta2"), .eps = number("eps"), .lr_decay = number("lr_decay"),
        .lists = int64_t(lists.size()), .nesterov = flag("nesterov"), .maximize = flag("maximize"),
        .first = flag("is_first_step")};
    for (const Tensors& list : lists)
      kernel.outs.append(list.begin(), list.end());
    kernel.steps.append(steps.begin(), steps.end());
    return kernel.run(call.index);
  }

 private:
  const int32_t op_;
  const FormArguments where_;
  const int lr_;
};

// Unscale is _amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale).
class Unscale final : public Native {
 public:
  bool run(NativeCall& call) const override {
    Tensors self = call.arguments[0].toTensorVector();
    const at::Tensor &found = call.arguments[1].toTensor(), &inverse = call.arguments[2].toTensor();
    if (self.empty() || found.is_cpu() || inverse.is_cpu())
      return false;
    for (const at::Tensor& t : self)
      if (!given_result(t) || !t.is_floating_point())
        return false;
    kernels::Unscale kernel{.found_inf = found, .inverse = inverse};
    kernel.grads.append(self.begin(), self.end());
    return kernel.run(call.index);
  }
};

// UpdateScale is _amp_update_scale_(self, growth_tracker, found_inf, growth, backoff, interval).
class UpdateScale final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    for (size_t i : {0, 1, 2})
      if (a[i].toTensor().is_cpu() || a[i].toTensor().numel() != 1)
        return false;
    kernels::UpdateScale kernel{
        .scale = a[0].toTensor(), .tracker = a[1].toTensor(), .found_inf = a[2].toTensor(), .growth = a[3].toDouble(),
        .backoff = a[4].toDouble(), .interval = a[5].toInt()};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(a[0].toTensor());
    return true;
  }
};

struct Listed {
  const char* name; // after _foreach_
  const char* kernel;
  std::vector<const char*> overloads;
  bool alpha = false; // the kernel has a factor
};

} // namespace

void add_lists() {
  const std::vector<const char*> binary = {"List", "Scalar"}, both = {"List", "Scalar", "Tensor"};
  std::vector<Listed> all = {
      {"add", "add", both, true},
      {"sub", "sub", binary, true},
      {"mul", "mul", both},
      {"div", "div", both},
      {"maximum", "maximum", binary},
      {"minimum", "minimum", binary},
      {"clamp_min", "maximum", binary},
      {"clamp_max", "minimum", binary},
      {"pow", "pow", {"List"}},
      {"addcmul", "addcmul", {"Scalar"}},
      {"addcdiv", "addcdiv", {"Scalar"}},
      {"lerp", "lerp", binary},
  };
  for (const char* name :
       {"abs",  "acos", "asin",  "atan",   "ceil", "cos",   "cosh",       "erf",   "erfc",    "exp",  "expm1", "floor", "frac", "lgamma",
        "log",  "log10", "log1p", "log2",  "neg",  "round", "reciprocal", "rsqrt", "sigmoid", "sign", "sin",   "sinh",
        "sqrt", "tan",  "tanh",  "trunc"})
    all.push_back({name, name, {""}});
  for (const Listed& of : all)
    for (const char* overload : of.overloads)
      for (const char* place : {"", "_"}) {
        if (auto op = schema_of(std::string("_foreach_") + of.name + place + (*overload ? "." : "") + overload))
          add_native(*op, std::make_unique<Foreach>(of.kernel, of.alpha, *op));
      }
  if (auto norm = schema_of("_foreach_norm.Scalar"))
    add_native(*norm, std::make_unique<ForeachNorm>(*norm));
  for (const char* name : {"sgd", "adam", "adamw", "adagrad"})
    for (const char* overload : {"", ".tensor_lr"}) {
      if (auto op = schema_of(std::string("_fused_") + name + "_" + overload))
        add_native(*op, std::make_unique<Optimizer>(name, *op));
    }
  add_native(schema_of("_amp_foreach_non_finite_check_and_unscale_"), std::make_unique<Unscale>());
  add_native(schema_of("_amp_update_scale_"), std::make_unique<UpdateScale>());
}

} // namespace chorus
