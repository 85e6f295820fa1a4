// Operators on lists of tensors: _foreach_*, steps of optimizers, and loss scaling.
#include "native.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include "native_checks.h"

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
      : op_(kernel_op(CHORUS_KERNEL_FOREACH, kernel)), alpha_(alpha), handle_(op) {}

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
    Kernel kernel(CHORUS_KERNEL_FOREACH, op_, computed_in(type));
    kernel.integer(1);
    kernel.integer(int64_t(lists.size()));
    kernel.integer(int64_t(numbers.size()));
    kernel.integer(int64_t(outs.size()));
    for (const at::Tensor& t : outs)
      kernel.out(t);
    for (const Tensors& list : lists) {
      kernel.integer(int64_t(list.size()));
      for (const at::Tensor& t : list)
        kernel.in(t);
    }
    for (const at::Scalar& s : numbers) {
      chorus_number n;
      if (!number_of(s, computed_in(type), n))
        return false;
      kernel.integer(1);
      kernel.number(n);
    }
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
        kernel_op(CHORUS_KERNEL_FOREACH_REDUCE, "norm1"), kernel_op(CHORUS_KERNEL_FOREACH_REDUCE, "norm2"),
        kernel_op(CHORUS_KERNEL_FOREACH_REDUCE, "norm_inf")};
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
    Kernel kernel(CHORUS_KERNEL_FOREACH_REDUCE, ops[std::isinf(p) ? 2 : int(p) - 1], computed_in(type));
    for (size_t j = 0; j < self.size(); j++)
      results.push_back(norms.select(0, int64_t(j)));
    for (size_t j = 0; j < self.size(); j++) {
      kernel.out(results[j]);
      kernel.in(self[j]);
    }
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
      : op_(kernel_op(CHORUS_KERNEL_OPTIMIZE, kernel)), where_(op.schema()), lr_(where_.named("lr")) {}

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
    Kernel kernel(CHORUS_KERNEL_OPTIMIZE, op_);
    for (const char* name : {"found_inf", "grad_scale"}) {
      const c10::IValue& v = a[where_.named(name)];
      kernel.in_or_none(v.isTensor() ? v.toTensor() : at::Tensor());
      if (v.isTensor() && v.toTensor().defined() && v.toTensor().is_cpu())
        return false;
    }
    kernel.in_or_none(rate);
    for (const Tensors& list : lists)
      for (const at::Tensor& t : list)
        kernel.out(t);
    for (const at::Tensor& t : steps)
      kernel.in(t);
    kernel.integer(int64_t(lists.size()));
    for (const char* name : {"nesterov", "maximize", "is_first_step"}) {
      int i = where_.named(name);
      kernel.integer(i >= 0 && a[i].toBool());
    }
    kernel.number(real_number(lr));
    for (const char* name : {"weight_decay", "momentum", "dampening", "beta1", "beta2", "eps", "lr_decay"}) {
      int i = where_.named(name);
      kernel.number(real_number(i < 0 ? 0 : a[i].toDouble()));
    }
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
    Kernel kernel(CHORUS_KERNEL_UNSCALE, op_);
    for (const at::Tensor& t : self) {
      if (!given_result(t) || !t.is_floating_point())
        return false;
      kernel.out(t);
    }
    kernel.in(found);
    kernel.in(inverse);
    return kernel.run(call.index);
  }

 private:
  const int32_t op_ = kernel_op(CHORUS_KERNEL_UNSCALE, "unscale");
};

// UpdateScale is _amp_update_scale_(self, growth_tracker, found_inf, growth, backoff, interval).
class UpdateScale final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    for (size_t i : {0, 1, 2})
      if (a[i].toTensor().is_cpu() || a[i].toTensor().numel() != 1)
        return false;
    Kernel kernel(CHORUS_KERNEL_UPDATE_SCALE, op_);
    kernel.out(a[0].toTensor());
    kernel.out(a[1].toTensor());
    kernel.in(a[2].toTensor());
    kernel.number(real_number(a[3].toDouble()));
    kernel.number(real_number(a[4].toDouble()));
    kernel.integer(a[5].toInt());
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(a[0].toTensor());
    return true;
  }

 private:
  const int32_t op_ = kernel_op(CHORUS_KERNEL_UPDATE_SCALE, "update_scale");
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
