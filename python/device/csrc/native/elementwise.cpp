// Operators on single elements. PyTorch's TensorIterator checks, promotes, broadcasts and allocates as for its own
// kernels; a table says which kernel an operator is.
#include "native/kernels.h"

#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sum.h>

#include "native/types.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

// Rule is the configuration of the iterator.
enum class Rule {
  kSame,     // one type, which isn't converted
  kCommon,   // the inputs' common type
  kFloating, // likewise, and floating-point for integers
  kTruth,    // one input, and bool
  kCompare,  // the inputs' common type, and bool, or the type of a given result
  kPart,     // one input, and the type of its parts
  kWhere,    // a condition, and the common type of the others
  kMasked,   // the first input, in place, whatever the types of the others are
  kPhase,    // one input, and the type of its parts, or the default type for integers
  kParts,    // real inputs, and the complex type of the given result
};

#include "native/element_rules.h"

// ElementOp is an operation on elements, with its rule.
struct ElementOp {
  explicit ElementOp(const std::string& kernel) : number(kernels::Elementwise::number(kernel.c_str())), rule(Rule::kSame) {
    auto found = std::find_if(
        std::begin(element_rules), std::end(element_rules), [&](const auto& each) { return kernel == each.kernel; });
    TORCH_INTERNAL_ASSERT(found != std::end(element_rules), "no rule of ", kernel);
    rule = found->rule;
  }

  int32_t number;
  Rule rule;
};

// Operands is what the kernel is given: inputs, which may be numbers in tensors of the CPU, and numbers.
struct Operands {
  explicit Operands(const ElementOp& of, c10::SmallVector<at::Tensor, 4> tensors = {})
      : op(of.number), rule(of.rule), ins(std::move(tensors)) {}

  int32_t op;
  Rule rule;
  c10::SmallVector<at::Tensor, 4> ins;
  c10::SmallVector<at::Scalar, 4> numbers;
  bool contiguous = false; // a new result is contiguous, of the sizes of the second input
};

class Elementwise;

// Choice sets the operands of a call whose arguments say more than the table; false if no kernel covers them.
using Choice = bool (*)(const Elementwise& of, const NativeCall& call, Operands& o);

// Entry is an operator by the name of its functional form.
struct Entry {
  const char* name;
  const char* kernel;
  Choice choose = nullptr;
  const char* other = nullptr; // another kernel, which choose may take
  std::optional<Rule> own{};   // instead of the kernel's
};

void set_rule(at::TensorIteratorConfig& config, Rule rule, const at::Tensor& out) {
  config.set_check_mem_overlap(true);
  switch (rule) {
    case Rule::kSame:
      config.check_all_same_dtype(true);
      break;
    case Rule::kFloating:
      config.allow_cpu_scalars(true)
          .promote_inputs_to_common_dtype(true)
          .cast_common_dtype_to_outputs(true)
          .enforce_safe_casting_to_output(true)
          .promote_integer_inputs_to_float(true);
      break;
    case Rule::kCommon:
      config.allow_cpu_scalars(true)
          .promote_inputs_to_common_dtype(true)
          .cast_common_dtype_to_outputs(true)
          .enforce_safe_casting_to_output(true);
      break;
    case Rule::kTruth:
    case Rule::kPart:
    case Rule::kPhase:
    case Rule::kParts:
      config.check_all_same_dtype(false);
      break;
    case Rule::kCompare:
      config.allow_cpu_scalars(true).promote_inputs_to_common_dtype(true);
      if (out.defined() && out.scalar_type() != at::kBool)
        config.cast_common_dtype_to_outputs(true);
      break;
    case Rule::kWhere:
      config.allow_cpu_scalars(true).check_all_same_dtype(false);
      break;
    case Rule::kMasked:
      config.check_all_same_dtype(false).resize_outputs(false);
      break;
  }
}

c10::ScalarType phase_type(const at::Tensor& t) {
  return c10::isIntegralType(t.scalar_type(), /*includeBool=*/true) ? c10::get_default_dtype_as_scalartype()
                                                                    : c10::toRealValueType(t.scalar_type());
}

// result_type is the type of a new result that the iterator doesn't infer.
std::optional<c10::ScalarType> static_type(const Operands& o) {
  switch (o.rule) {
    case Rule::kTruth:
    case Rule::kCompare:
      return at::kBool;
    case Rule::kPart:
      return c10::toRealValueType(o.ins[0].scalar_type());
    case Rule::kPhase:
      return phase_type(o.ins[0]);
    case Rule::kWhere:
      return at::result_type(o.ins[1], o.ins[2]);
    default:
      return std::nullopt;
  }
}

class Elementwise final : public Native {
 public:
  Elementwise(const Entry& entry, const c10::OperatorHandle& op)
      : where(op.schema()),
        entry(entry),
        other(entry.other ? kernels::Elementwise::number(entry.other) : 0),
        handle_(op),
        op_(entry.kernel) {
    op_.rule = entry.own.value_or(op_.rule);
  }

  bool run(NativeCall& call) const override {
    if (!types_.take(handle_, call.arguments)) // the CPU's kernel has the error
      return false;
    Operands o(op_);
    for (int i : where.tensors) {
      if (!call.arguments[i].isTensor()) {
        if (!entry.choose)
          return false;
        continue;
      }
      o.ins.push_back(call.arguments[i].toTensor());
    }
    if (entry.choose) {
      if (!entry.choose(*this, call, o))
        return false;
    } else {
      for (int i : where.numbers)
        o.numbers.push_back(call.arguments[i].toScalar());
    }
    at::Tensor out;
    if (!where.outs.empty())
      out = call.arguments[where.outs[0]].toTensor();
    else if (where.in_place)
      out = call.arguments[where.tensors[0]].toTensor();
    else if (o.contiguous)
      out = at::empty_like(o.ins[1], at::MemoryFormat::Contiguous);
    if (!compute(call.index, o, out))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

  // compute enqueues the kernel. It allocates the result if none is given.
  static bool compute(DeviceIndex index, const Operands& o, at::Tensor& out) {
    bool any = false;
    for (const at::Tensor& t : o.ins) {
      if (!t.defined() || !dtype_of(t.scalar_type()))
        return false;
      any = any || !t.is_cpu();
    }
    if (!any || (out.defined() && (out.is_cpu() || !dtype_of(out.scalar_type()))))
      return false;
    at::TensorIteratorConfig config;
    set_rule(config, o.rule, out);
    std::optional<c10::ScalarType> made = out.defined() ? std::nullopt : static_type(o);
    if (made)
      config.declare_static_dtype_and_device(*made, c10::Device(kType, index));
    config.add_owned_output(out);
    for (const at::Tensor& t : o.ins)
      config.add_borrowed_const_input(t);
    at::TensorIterator it = config.build();
    c10::ScalarType compute;
    switch (o.rule) {
      case Rule::kSame:
      case Rule::kTruth:
      case Rule::kPart:
        compute = it.dtype(1);
        break;
      case Rule::kMasked:
      case Rule::kParts:
        compute = it.dtype(0);
        break;
      case Rule::kPhase:
        compute = c10::isComplexType(it.dtype(1)) ? it.dtype(1) : it.dtype(0);
        break;
      case Rule::kWhere:
        compute = at::result_type(o.ins[1], o.ins[2]);
        if (it.dtype(0) != compute)
          return false;
        break;
      default:
        compute = it.common_dtype();
    }
    if (!dtype_of(compute))
      return false;
    compute = computed_in(compute);
    kernels::Elementwise kernel{.op = o.op, .compute = compute};
    for (const at::Scalar& s : o.numbers) {
      chorus_number n;
      if (!number_of(s, compute, n) || !held(n, it.dtype(0), compute))
        return false;
      kernel.numbers.push_back(n);
    }
    // The iterator's dimensions begin with the innermost one, and its strides are of bytes.
    int dims = it.ndim(), operands = it.ntensors();
    at::DimVector sizes(it.shape().rbegin(), it.shape().rend());
    c10::SmallVector<int64_t, 20> strides(size_t(dims) * size_t(operands));
    c10::SmallVector<chorus_number, 4> values; // of inputs that are numbers
    values.resize(size_t(operands));
    for (int k = 0; k < operands; k++) {
      if (k > 0 && it.device(k).is_cpu()) {
        const at::Tensor& t = o.ins[size_t(k - 1)];
        if (!number_of(t.item(), compute, values[size_t(k)]))
          return false;
        kernel.ins.emplace_back(values[size_t(k)], t.scalar_type());
        continue;
      }
      int64_t* at = strides.data() + size_t(k) * size_t(dims);
      int64_t bytes = it.element_size(k);
      for (int d = 0; d < dims; d++)
        at[dims - 1 - d] = it.strides(k)[size_t(d)] / bytes;
      at::IntArrayRef of(at, size_t(dims));
      if (k == 0)
        kernel.outs.emplace_back(it.data_ptr(0), it.dtype(0), sizes, of);
      else
        kernel.ins.emplace_back(it.data_ptr(k), it.dtype(k), sizes, of);
    }
    if (!kernel.run(index)) // of no elements as well: it knows the types
      return false;
    if (!out.defined())
      out = it.output(0);
    return true;
  }

  const FormArguments where;
  const Entry& entry;
  const int32_t other;

 private:
  const c10::OperatorHandle handle_;
  ElementOp op_;
  mutable Types types_; // of the CPU's kernel, whose refusals are the device's as well

  // held says whether an integer is one of the result's type: for others PyTorch's kernels have an error.
  static bool held(const chorus_number& n, c10::ScalarType type, c10::ScalarType compute) {
    if (!n.is_integer || !c10::isIntegralType(compute, /*includeBool=*/true) || type == at::kBool)
      return true;
    int64_t bits = int64_t(8 * c10::elementSize(compute));
    if (bits == 64)
      return true;
    int64_t most = compute == at::kByte ? 255 : (int64_t(1) << (bits - 1)) - 1;
    return n.integer <= most && n.integer >= (compute == at::kByte ? -255 : -most - 1);
  }
};

at::Tensor as_tensor(const c10::IValue& scalar) {
  return at::native::wrapped_scalar_tensor(scalar.toScalar());
}

// The numbers among the arguments are inputs, in the order of the arguments.
bool scalars_are_inputs(const Elementwise& of, const NativeCall& call, Operands& o) {
  o.ins.clear();
  for (const c10::IValue& v : call.arguments)
    if (v.isTensor() && o.ins.size() < 2)
      o.ins.push_back(v.toTensor());
    else if (v.isScalar() && o.ins.size() < 2)
      o.ins.push_back(as_tensor(v));
  return o.ins.size() == 2;
}

// A power: the common ones have kernels that are exact. Those of complex numbers are the products that PyTorch's other
// devices make, which a logarithm would blur, and at infinities be NaN.
bool power(const Elementwise& of, const NativeCall& call, Operands& o) {
  const at::Tensor& base = o.ins[0];
  at::Scalar exponent = call.arguments[1].toScalar();
  if (base.scalar_type() == at::kBool || exponent.isBoolean())
    return false;
  if (c10::isIntegralType(base.scalar_type(), false) && exponent.isIntegral(false)) {
    if (exponent.toLong() < 0)
      return false;
  } else if (base.is_complex() || (!exponent.isComplex() && base.is_floating_point())) {
    using kernels::Elementwise;
    static const std::pair<double, int32_t> exact[] = {
        {1, Elementwise::number("copy")},        {2, Elementwise::number("square")}, {0.5, Elementwise::number("sqrt")},
        {-1, Elementwise::number("reciprocal")}, {-0.5, Elementwise::number("rsqrt")},
    };
    static const int32_t product = Elementwise::number("mul"), inverse = Elementwise::number("reciprocal");
    for (auto [e, op] : exact)
      if (exponent.equal(e)) {
        o.op = op;
        return true;
      }
    bool cube = exponent.equal(3.0);
    if (base.is_complex() && (cube || exponent.equal(-2.0))) {
      at::Tensor squared = at::square(base);
      o.op = cube ? product : inverse;
      o.ins = cube ? decltype(o.ins){squared, base} : decltype(o.ins){squared};
      return true;
    }
  }
  o.ins.push_back(as_tensor(call.arguments[1]));
  return true;
}

bool power_of_number(const Elementwise& of, const NativeCall& call, Operands& o) {
  at::Scalar base = call.arguments[0].toScalar();
  if (base.isBoolean() || o.ins[0].scalar_type() == at::kBool)
    return false;
  o.ins.insert(o.ins.begin(), as_tensor(call.arguments[0]));
  return true;
}

bool no_bools(const Elementwise&, const NativeCall&, Operands& o) {
  return o.ins[0].scalar_type() != at::kBool || o.ins[1].scalar_type() != at::kBool;
}

// swapped is rsub: as the CPU's it's a subtraction, whose first operand decides the strides of the result.
bool swapped(const Elementwise&, const NativeCall& call, Operands& o) {
  std::swap(o.ins[0], o.ins[1]);
  o.numbers.push_back(call.arguments[2].toScalar());
  return true;
}

// approximate is gelu's argument.
bool approximate(const Elementwise& of, const NativeCall& call, Operands& o) {
  const std::string& how = call.arguments[of.where.named("approximate")].toStringRef();
  if (how == "tanh")
    o.op = of.other;
  return how == "tanh" || how == "none";
}

bool rounding(const Elementwise& of, const NativeCall& call, Operands& o) {
  static const ElementOp exact("div");
  const c10::IValue& mode = call.arguments[of.where.named("rounding_mode")];
  if (mode.isNone()) {
    o.op = exact.number;
    o.rule = exact.rule;
    return true;
  }
  if (mode.toStringRef() == "floor")
    o.op = of.other;
  else if (c10::isReducedFloatingType(at::result_type(o.ins[0], o.ins[1])) && o.ins[1].numel() != 1) {
    static const int32_t trunc = kernels::Elementwise::number("trunc"); // of a quotient of these elements
    o.op = trunc;
    o.rule = Rule::kSame; // as trunc's
    o.ins = {at::div(o.ins[0], o.ins[1])};
  }
  return mode.toStringRef() == "floor" || mode.toStringRef() == "trunc";
}

// bounded is clamp by numbers. As the CPU's it has the common type of the input and the bounds.
bool bounded(const Elementwise& of, const NativeCall& call, Operands& o) {
  static const int32_t least = kernels::Elementwise::number("clamp_min"),
                       most = kernels::Elementwise::number("clamp_max");
  const c10::ScalarType type = o.ins[0].scalar_type();
  int named[] = {of.where.named("min"), of.where.named("max")}, given = 0;
  for (int i = 0; i < 2; i++) {
    if (named[i] < 0 || call.arguments[named[i]].isNone())
      continue;
    at::Scalar bound = call.arguments[named[i]].toScalar();
    if (at::result_type(o.ins[0], bound) != type || (bound.isFloatingPoint() && std::isnan(bound.toDouble())))
      return false;
    o.numbers.push_back(bound);
    given |= 1 << i;
  }
  if (given == 1)
    o.op = least;
  else if (given == 2)
    o.op = most;
  return given != 0 && type != at::kBool;
}

// whole_bounds are hardtanh's, which are cut to integers for such.
bool whole_bounds(const Elementwise& of, const NativeCall& call, Operands& o) {
  bool whole = c10::isIntegralType(o.ins[0].scalar_type(), /*includeBool=*/false);
  for (int i : of.where.numbers) {
    at::Scalar bound = call.arguments[i].toScalar();
    if (whole && bound.isFloatingPoint()) {
      double number = std::trunc(bound.toDouble());
      if (!(std::fabs(number) < 128))
        return false;
      bound = int64_t(number);
    }
    o.numbers.push_back(bound);
  }
  return !whole || o.ins[0].scalar_type() != at::kByte || (o.numbers[0].toLong() >= 0 && o.numbers[1].toLong() >= 0);
}

bool bounded_by_tensors(const Elementwise& of, const NativeCall& call, Operands& o) {
  static const int32_t least = kernels::Elementwise::number("maximum"),
                       most = kernels::Elementwise::number("minimum");
  o.ins.resize(1);
  int given = 0;
  for (int i = 1; i < 3; i++) {
    const c10::IValue& bound = call.arguments[size_t(i)];
    if (!bound.isTensor() || !bound.toTensor().defined())
      continue;
    o.ins.push_back(bound.toTensor());
    given |= i;
  }
  if (given == 1)
    o.op = least;
  else if (given == 2)
    o.op = most;
  return given != 0 && o.ins[0].scalar_type() != at::kBool;
}

bool all_of_one_type(const Elementwise& of, const NativeCall& call, Operands& o) {
  for (const at::Tensor& t : o.ins)
    if (t.scalar_type() != o.ins[0].scalar_type() || t.is_cpu())
      return false;
  for (int i : of.where.numbers)
    o.numbers.push_back(call.arguments[i].toScalar());
  return true;
}

bool weighed_by_number(const Elementwise& of, const NativeCall& call, Operands& o) {
  if (!all_of_one_type(of, call, o) || o.numbers.size() != 1)
    return false;
  at::Scalar weight = o.numbers[0];
  o.numbers.clear();
  if (weight.isComplex())
    return false;
  o.ins.push_back(at::native::wrapped_scalar_tensor(weight));
  return true;
}

// The numbers without a bool at their end.
bool without_flag(const Elementwise& of, const NativeCall& call, Operands& o) {
  for (int i : of.where.numbers)
    if (!call.arguments[i].isBool())
      o.numbers.push_back(call.arguments[i].toScalar());
  return true;
}

bool of_result(const Elementwise& of, const NativeCall& call, Operands& o) {
  if (call.arguments[of.where.named("is_result")].toBool())
    o.op = of.other;
  return without_flag(of, call, o);
}

bool logit_bounds(const Elementwise& of, const NativeCall& call, Operands& o) {
  const c10::IValue& eps = call.arguments[of.where.named("eps")];
  if (eps.isNone())
    return true;
  if (eps.toDouble() < 0) // as if there were none
    return true;
  o.op = of.other;
  o.numbers.push_back(eps.toScalar());
  return true;
}

bool replaced_nans(const Elementwise& of, const NativeCall& call, Operands& o) {
  c10::ScalarType type = o.ins[0].scalar_type();
  double most = 0;
  if (type == at::kFloat)
    most = std::numeric_limits<float>::max();
  else if (type == at::kDouble)
    most = std::numeric_limits<double>::max();
  else if (type == at::kHalf)
    most = 65504;
  else if (type == at::kBFloat16)
    most = double(std::numeric_limits<c10::BFloat16>::max());
  else if (c10::isIntegralType(type, /*includeBool=*/true)) {
    static const int32_t copy = kernels::Elementwise::number("copy");
    o.op = copy;
    return true;
  } else
    return false;
  auto given = [&](const char* name, double def) {
    const c10::IValue& v = call.arguments[of.where.named(name)];
    return v.isNone() ? def : double(v.toDouble());
  };
  o.numbers = {given("nan", 0), given("posinf", most), given("neginf", -most)};
  return true;
}

// condition is where's: it's bool, and the others have one type after promotion.
bool condition(const Elementwise&, const NativeCall&, Operands& o) {
  return o.ins[0].scalar_type() == at::kBool && !o.ins[0].is_cpu();
}

bool masked(const Elementwise& of, const NativeCall& call, Operands& o) {
  if (o.ins[1].scalar_type() != at::kBool || o.ins[1].is_cpu() || o.ins[0].is_cpu() ||
      o.ins[0].is_alias_of(o.ins[1]) || at::has_internal_overlap(o.ins[0]) == at::MemOverlap::Yes)
    return false;
  const c10::IValue& value = call.arguments[2];
  if (value.isTensor()) {
    const at::Tensor& number = value.toTensor();
    if (number.dim() != 0)
      return false;
    if (!number.is_cpu()) {
      static const int32_t where = kernels::Elementwise::number("where");
      if (number.scalar_type() != o.ins[0].scalar_type() || number.is_alias_of(o.ins[0]))
        return false;
      o.op = where;
      o.ins = {o.ins[1], number, o.ins[0]};
      return true;
    }
    o.ins.resize(2);
    o.numbers.push_back(value.toTensor().item());
  } else {
    o.numbers.push_back(value.toScalar());
  }
  return true;
}

// phase is angle's: a given result has the type that a new one would have.
bool phase(const Elementwise& of, const NativeCall& call, Operands& o) {
  return of.where.outs.empty() ||
      call.arguments[of.where.outs[0]].toTensor().scalar_type() == phase_type(o.ins[0]);
}

// parts are those of complex numbers.
bool parts(const Elementwise& of, const NativeCall& call, Operands& o) {
  c10::ScalarType type = o.ins[0].scalar_type();
  return (type == at::kFloat || type == at::kDouble) && o.ins[1].scalar_type() == type && !o.ins[0].is_cpu() &&
      !o.ins[1].is_cpu() &&
      call.arguments[of.where.outs[0]].toTensor().scalar_type() == c10::toComplexType(type);
}

// decimals are those that numbers are rounded to.
bool decimals(const Elementwise& of, const NativeCall& call, Operands& o) {
  static const int32_t scaled = kernels::Elementwise::number("round_scaled"),
                       divided = kernels::Elementwise::number("round_divided");
  int64_t n = call.arguments[of.where.named("decimals")].toInt();
  c10::ScalarType type = o.ins[0].scalar_type();
  if (type != at::kFloat && type != at::kDouble)
    return false; // in 16 bits the CPU's products are rounded as well
  if (n != 0) {
    o.op = n > 0 ? scaled : divided;
    o.numbers.push_back(std::pow(10.0, double(std::abs(n))));
  }
  return true;
}

// order is polygamma's.
bool order(const Elementwise& of, const NativeCall& call, Operands& o) {
  int64_t n = call.arguments[0].toInt();
  if (n == 1) {
    o.op = of.other;
  } else if (n > 1) {
    static const int32_t general = kernels::Elementwise::number("polygamma");
    o.op = general;
    o.numbers.push_back(n);
  }
  return n >= 0;
}

// of_loss is the gradient of a loss: of a mean each element has its part.
template <int times>
bool of_loss(const Elementwise& of, const NativeCall& call, Operands& o) {
  int64_t reduction = call.arguments[of.where.named("reduction")].toInt();
  double part = reduction == at::Reduction::Mean ? 1.0 / double(o.ins[1].numel()) : 1.0;
  o.numbers.push_back(times * part);
  for (const char* name : {"beta", "delta"})
    if (int i = of.where.named(name); i >= 0)
      o.numbers.push_back(call.arguments[i].toScalar());
  o.contiguous = true;
  return o.ins[1].numel() > 0;
}

// log_sigmoid_backward has a buffer of forward's, which the kernel doesn't need.
bool without_buffer(const Elementwise&, const NativeCall&, Operands& o) {
  o.ins.resize(2);
  return true;
}

// Loss is a loss of an input and a target, with a reduction.
class Loss final : public Native {
 public:
  Loss(const char* kernel, const c10::OperatorHandle& op)
      : where_(op.schema()), op_(kernel) {}

  bool run(NativeCall& call) const override {
    Operands o(op_);
    for (int i : where_.tensors)
      o.ins.push_back(call.arguments[i].toTensor());
    for (const char* name : {"beta", "delta"})
      if (int i = where_.named(name); i >= 0) {
        if (!(call.arguments[i].toDouble() > 0))
          return false;
        o.numbers.push_back(call.arguments[i].toScalar());
      }
    at::Tensor each;
    if (!Elementwise::compute(call.index, o, each))
      return false;
    int64_t reduction = call.arguments[where_.named("reduction")].toInt();
    if (reduction != at::Reduction::None)
      each = reduction == at::Reduction::Mean ? at::mean(each) : at::sum(each);
    call.results.push_back(std::move(each));
    return true;
  }

 private:
  const FormArguments where_;
  const ElementOp op_;
};

// weigh multiplies a result by a weight that may be left out.
void weigh(at::Tensor& each, const c10::IValue& weight) {
  if (weight.isTensor() && weight.toTensor().defined())
    each.mul_(weight.toTensor());
}

// BinaryCrossEntropy is binary_cross_entropy(self, target, weight, reduction), or its gradient, which has grad_output
// first.
class BinaryCrossEntropy final : public Native {
 public:
  explicit BinaryCrossEntropy(bool backward)
      : first_(backward),
        op_(backward ? "binary_cross_entropy_backward" : "binary_cross_entropy") {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &self = a[first_].toTensor(), &target = a[first_ + 1].toTensor();
    const c10::IValue& weight = a[first_ + 2];
    if (self.is_cpu() || !self.is_floating_point() || target.scalar_type() != self.scalar_type() ||
        target.sizes() != self.sizes() || self.numel() == 0)
      return false;
    if (weight.isTensor() && weight.toTensor().defined() &&
        (weight.toTensor().scalar_type() != self.scalar_type() || weight.toTensor().is_cpu() ||
         !at::is_expandable_to(weight.toTensor().sizes(), self.sizes())))
      return false;
    Operands o(op_);
    at::Tensor each = at::empty_like(self);
    if (first_) {
      if (a[0].toTensor().scalar_type() != self.scalar_type() ||
          !at::is_expandable_to(a[0].toTensor().sizes(), self.sizes()))
        return false;
      o.ins.push_back(a[0].toTensor());
    } else if (capturing(current_handle(call.index)) || !at::logical_and(self.ge(0), self.le(1)).all().item<bool>()) {
      return false; // which the CPU refuses
    }
    o.ins.push_back(self);
    o.ins.push_back(target);
    if (!Elementwise::compute(call.index, o, each))
      return false;
    weigh(each, weight);
    int64_t reduction = a[first_ + 3].toInt();
    if (first_) {
      if (reduction == at::Reduction::Mean)
        each.div_(self.numel());
    } else if (reduction != at::Reduction::None) {
      each = reduction == at::Reduction::Mean ? at::mean(each) : at::sum(each);
    }
    call.results.push_back(std::move(each));
    return true;
  }

 private:
  const size_t first_;
  const ElementOp op_;
};

// PreluBackward is _prelu_kernel_backward(grad_output, self, weight).
class PreluBackward final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &grad = call.arguments[0].toTensor(), &self = call.arguments[1].toTensor(),
                     &weight = call.arguments[2].toTensor();
    c10::ScalarType type = self.scalar_type();
    if (!self.is_floating_point() || grad.scalar_type() != type || weight.scalar_type() != type)
      return false;
    Operands of_self(self_, {grad, self, weight}), of_weight(weight_, {grad, self});
    at::Tensor results[2];
    if (!Elementwise::compute(call.index, of_self, results[0]) ||
        !Elementwise::compute(call.index, of_weight, results[1]))
      return false;
    call.results = {results[0], results[1]};
    return true;
  }

 private:
  const ElementOp self_{"prelu_backward"}, weight_{"prelu_weight_backward"};
};

// LogSigmoid is log_sigmoid_forward, with the buffer that the CPU's backward pass reads.
class LogSigmoid final : public Native {
 public:
  bool run(NativeCall& call) const override {
    for (const ElementOp& op : {op_, buffer_}) {
      Operands o(op, {call.arguments[0].toTensor()});
      at::Tensor out = at::empty_like(o.ins[0], at::MemoryFormat::Contiguous);
      if (!Elementwise::compute(call.index, o, out))
        return false;
      call.results.push_back(std::move(out));
    }
    return true;
  }

 private:
  const ElementOp op_{"log_sigmoid"}, buffer_{"log_sigmoid_buffer"};
};

// Frexp is frexp.Tensor_out(self, mantissa, exponent), of which PyTorch makes the other form.
class Frexp final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &mantissa = call.arguments[1].toTensor(),
                     &exponent = call.arguments[2].toTensor();
    if (!self.is_floating_point() || mantissa.scalar_type() != self.scalar_type() || exponent.scalar_type() != at::kInt)
      return false;
    for (const at::Tensor* t : {&self, &mantissa, &exponent})
      if (t->is_cpu())
        return false;
    if (mantissa.sizes() != self.sizes() || exponent.sizes() != self.sizes() || !separate(mantissa, self) ||
        !separate(exponent, self) || !separate(mantissa, exponent))
      return false;
    kernels::Elementwise kernel{
        .op = op_, .compute = computed_in(self.scalar_type()), .outs = {mantissa, exponent}, .ins = {self}};
    if (!kernel.run(call.index))
      return false;
    call.results = {mantissa, exponent};
    return true;
  }

 private:
  static bool separate(const at::Tensor& out, const at::Tensor& other) {
    return !out.is_alias_of(other) && at::has_internal_overlap(out) == at::MemOverlap::No;
  }

  const int32_t op_ = kernels::Elementwise::number("frexp");
};

const Entry entries[] = {
    {"neg", "neg"},
    {"sign", "sign"},
    {"sgn", "sgn"},
    {"logical_not", "logical_not"},
    {"isnan", "isnan"},
    {"isposinf", "isposinf"},
    {"isneginf", "isneginf"},
    {"signbit", "signbit"},
    {"bitwise_not", "bitwise_not"},
    {"ceil", "ceil"},
    {"floor", "floor"},
    {"trunc", "trunc"},
    {"round", "round"},
    {"frac", "frac"},
    {"exp", "exp"},
    {"exp2", "exp2"},
    {"expm1", "expm1"},
    {"log", "log"},
    {"log2", "log2"},
    {"log10", "log10"},
    {"log1p", "log1p"},
    {"sqrt", "sqrt"},
    {"rsqrt", "rsqrt"},
    {"reciprocal", "reciprocal"},
    {"sin", "sin"},
    {"cos", "cos"},
    {"tan", "tan"},
    {"asin", "asin"},
    {"acos", "acos"},
    {"atan", "atan"},
    {"sinh", "sinh"},
    {"cosh", "cosh"},
    {"tanh", "tanh"},
    {"asinh", "asinh"},
    {"acosh", "acosh"},
    {"atanh", "atanh"},
    {"sigmoid", "sigmoid"},
    {"erf", "erf"},
    {"erfc", "erfc"},
    {"erfinv", "erfinv"},
    {"lgamma", "lgamma"},
    {"digamma", "digamma"},
    {"i0", "i0"},
    {"special_i0e", "i0e"},
    {"special_i1", "i1"},
    {"special_i1e", "i1e"},
    {"special_entr", "entr"},
    {"polygamma", "digamma", order, "trigamma"},
    {"special_modified_bessel_i0", "i0"},
    {"special_modified_bessel_i1", "i1"},
    {"special_airy_ai", "airy_ai"},
    {"special_bessel_j0", "bessel_j0"},
    {"special_bessel_j1", "bessel_j1"},
    {"special_bessel_y0", "bessel_y0"},
    {"special_bessel_y1", "bessel_y1"},
    {"special_modified_bessel_k0", "modified_bessel_k0"},
    {"special_modified_bessel_k1", "modified_bessel_k1"},
    {"special_scaled_modified_bessel_k0", "scaled_modified_bessel_k0"},
    {"special_scaled_modified_bessel_k1", "scaled_modified_bessel_k1"},
    {"special_spherical_bessel_j0", "spherical_bessel_j0"},
    {"special_chebyshev_polynomial_t", "chebyshev_polynomial_t"},
    {"special_chebyshev_polynomial_u", "chebyshev_polynomial_u"},
    {"special_chebyshev_polynomial_v", "chebyshev_polynomial_v"},
    {"special_chebyshev_polynomial_w", "chebyshev_polynomial_w"},
    {"special_shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_t"},
    {"special_shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_u"},
    {"special_shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_v"},
    {"special_shifted_chebyshev_polynomial_w", "shifted_chebyshev_polynomial_w"},
    {"special_hermite_polynomial_h", "hermite_polynomial_h"},
    {"special_hermite_polynomial_he", "hermite_polynomial_he"},
    {"special_laguerre_polynomial_l", "laguerre_polynomial_l"},
    {"special_legendre_polynomial_p", "legendre_polynomial_p"},
    {"special_zeta", "zeta"},
    {"special_erfcx", "erfcx"},
    {"special_log_ndtr", "log_ndtr"},
    {"special_ndtri", "ndtri"},
    {"angle", "angle", phase, nullptr, Rule::kPhase},
    {"round.decimals", "round", decimals},
    {"sinc", "sinc"},
    {"logit", "logit", logit_bounds, "logit_eps"},
    {"nan_to_num", "nan_to_num", replaced_nans},
    {"relu", "relu"},
    {"clamp", "clamp", bounded},
    {"clamp_min", "clamp_min", bounded},
    {"clamp_max", "clamp_max", bounded},
    {"clamp.Tensor", "clamp_tensor", bounded_by_tensors},
    {"clamp_min.Tensor", "maximum", no_bools},
    {"clamp_max.Tensor", "minimum", no_bools},
    {"threshold", "threshold"},
    {"hardtanh", "hardtanh", whole_bounds},
    {"hardsigmoid", "hardsigmoid"},
    {"hardswish", "hardswish"},
    {"hardshrink", "hardshrink"},
    {"softshrink", "softshrink"},
    {"leaky_relu", "leaky_relu"},
    {"elu", "elu"},
    {"silu", "silu"},
    {"mish", "mish"},
    {"gelu", "gelu", approximate, "gelu_tanh"},
    {"softplus", "softplus"},

    {"add.Tensor", "add"},
    {"sub.Tensor", "sub"},
    {"rsub.Tensor", "sub", swapped},
    {"mul.Tensor", "mul"},
    {"div.Tensor", "div"},
    {"div.Tensor_mode", "div_trunc", rounding, "div_floor"},
    {"floor_divide", "div_floor"},
    {"remainder.Tensor", "remainder"},
    {"fmod.Tensor", "fmod"},
    {"pow.Tensor_Tensor", "pow", no_bools},
    {"pow.Tensor_Scalar", "pow", power},
    {"pow.Scalar", "pow", power_of_number},
    {"atan2", "atan2"},
    {"hypot", "hypot"},
    {"igamma", "igamma"},
    {"igammac", "igammac"},
    {"nextafter", "nextafter"},
    {"copysign.Tensor", "copysign"},
    {"heaviside", "heaviside", all_of_one_type},
    {"maximum", "maximum"},
    {"minimum", "minimum"},
    {"fmax", "fmax"},
    {"fmin", "fmin"},
    {"logaddexp", "logaddexp"},
    {"logaddexp2", "logaddexp2"},
    {"xlogy.Tensor", "xlogy"},
    {"special_xlog1py", "xlog1py"},
    {"bitwise_and.Tensor", "bitwise_and"},
    {"bitwise_or.Tensor", "bitwise_or"},
    {"bitwise_xor.Tensor", "bitwise_xor"},
    {"bitwise_left_shift.Tensor", "bitwise_left_shift"},
    {"bitwise_right_shift.Tensor", "bitwise_right_shift"},
    {"gcd", "gcd"},
    {"lcm", "lcm"},
    {"logical_and", "logical_and"},
    {"logical_or", "logical_or"},
    {"logical_xor", "logical_xor"},
    {"eq.Tensor", "eq"},
    {"ne.Tensor", "ne"},
    {"lt.Tensor", "lt"},
    {"le.Tensor", "le"},
    {"gt.Tensor", "gt"},
    {"ge.Tensor", "ge"},
    {"eq.Scalar", "eq", scalars_are_inputs},
    {"ne.Scalar", "ne", scalars_are_inputs},
    {"lt.Scalar", "lt", scalars_are_inputs},
    {"le.Scalar", "le", scalars_are_inputs},
    {"gt.Scalar", "gt", scalars_are_inputs},
    {"ge.Scalar", "ge", scalars_are_inputs},
    {"_prelu_kernel", "prelu"},

    {"sigmoid_backward", "sigmoid_backward"},
    {"tanh_backward", "tanh_backward"},
    {"threshold_backward", "threshold_backward"},
    {"hardtanh_backward", "hardtanh_backward"},
    {"hardsigmoid_backward", "hardsigmoid_backward"},
    {"hardswish_backward", "hardswish_backward"},
    {"hardshrink_backward", "hardshrink_backward"},
    {"softshrink_backward", "hardshrink_backward"},
    {"leaky_relu_backward", "leaky_relu_backward", without_flag},
    {"elu_backward", "elu_backward", of_result, "elu_backward_result"},
    {"silu_backward", "silu_backward"},
    {"gelu_backward", "gelu_backward", approximate, "gelu_tanh_backward"},
    {"softplus_backward", "softplus_backward"},
    {"logit_backward", "logit_backward", logit_bounds, "logit_backward_eps"},

    {"where.self", "where", condition, nullptr, Rule::kWhere},
    {"addcmul", "addcmul"},
    {"addcdiv", "addcdiv"},
    {"lerp.Tensor", "lerp", all_of_one_type},
    {"lerp.Scalar", "lerp", weighed_by_number},
};

// Operators of which one form alone is the device's: PyTorch makes the others of it.
const Entry single[] = {
    {"abs.out", "abs"},
    {"mish_backward", "mish_backward"},
    {"conj_physical.out", "conj"},
    {"conj_physical_", "conj"},
    {"complex.out", "complex", parts, nullptr, Rule::kParts},
    {"polar.out", "polar", parts, nullptr, Rule::kParts},
    {"masked_fill_.Scalar", "masked_fill", masked, nullptr, Rule::kMasked},
    {"masked_fill_.Tensor", "masked_fill", masked, nullptr, Rule::kMasked},
    {"mse_loss_backward", "mse_loss_backward", of_loss<2>},
    {"mse_loss_backward.grad_input", "mse_loss_backward", of_loss<2>},
    {"smooth_l1_loss_backward.grad_input", "smooth_l1_loss_backward", of_loss<1>},
    {"huber_loss_backward.out", "huber_loss_backward", of_loss<1>},
    {"log_sigmoid_backward", "log_sigmoid_backward", without_buffer},
};

} // namespace

void add_elementwise_operators() {
  for (const Entry& entry : entries)
    forms_of(entry.name, [&](const c10::OperatorHandle& op) {
      if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
        add_native(op, std::make_unique<Elementwise>(entry, op));
    });
  for (const Entry& entry : single) {
    if (auto op = schema_of(entry.name))
      add_native(*op, std::make_unique<Elementwise>(entry, *op));
  }
  for (const char* name : {"mse_loss", "smooth_l1_loss", "huber_loss"}) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Loss>(name, *op));
  }
  add_native(schema_of("binary_cross_entropy"), std::make_unique<BinaryCrossEntropy>(false));
  add_native(schema_of("binary_cross_entropy_backward"), std::make_unique<BinaryCrossEntropy>(true));
  add_native(schema_of("_prelu_kernel_backward"), std::make_unique<PreluBackward>());
  add_native(schema_of("frexp.Tensor_out"), std::make_unique<Frexp>());
  add_native(schema_of("log_sigmoid_forward"), std::make_unique<LogSigmoid>());
}

} // namespace chorus
