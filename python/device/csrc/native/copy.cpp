// Copies, fills, concatenations, triangles and ranges.
#include "native/copy.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>

#include "native/checks.h"
#include "native/kernels.h"

namespace chorus {

int32_t copy_op() {
  static const int32_t op = kernels::Elementwise::number("copy");
  return op;
}

namespace {

// Float8 are the conversions from and to a type of 8 bits.
struct Float8 {
  c10::ScalarType type;
  int32_t to, from;

  Float8(c10::ScalarType type, const std::string& name)
      : type(type),
        to(kernels::Elementwise::number(("to_" + name).c_str())),
        from(kernels::Elementwise::number(("from_" + name).c_str())) {}
};

// float8_of is that of such a type, or NULL.
const Float8* float8_of(c10::ScalarType type) {
  static const Float8 all[] = {
      {c10::ScalarType::Float8_e4m3fn, "f8e4m3fn"},
      {c10::ScalarType::Float8_e5m2, "f8e5m2"},
      {c10::ScalarType::Float8_e4m3fnuz, "f8e4m3fnuz"},
      {c10::ScalarType::Float8_e5m2fnuz, "f8e5m2fnuz"}};
  for (const Float8& each : all)
    if (each.type == type)
      return &each;
  return nullptr;
}

// Conversion is how a kernel copies elements: the operation, and the types in which it computes and has elements.
struct Conversion {
  int32_t op = 0; // none: no kernel does it
  c10::ScalarType compute, to, from;

  // Numbers of 8 bits are integers in memory. From one of their types to another one it's two conversions.
  Conversion(c10::ScalarType to_type, c10::ScalarType from_type) : to(to_type), from(from_type) {
    const Float8 *narrow = float8_of(to), *wide = float8_of(from);
    if (!narrow && !wide) {
      if (dtype_of(to) && dtype_of(from)) {
        op = copy_op();
        compute = computed_in(c10::promoteTypes(from, to));
      }
      return;
    }
    if (narrow && wide) {
      if (to == from)
        op = copy_op(), to = from = compute = at::kByte;
      return;
    }
    c10::ScalarType other = narrow ? from : to;
    if (!dtype_of(other) || c10::isComplexType(other))
      return;
    op = narrow ? narrow->to : wide->from;
    compute = other == at::kDouble ? at::kDouble : at::kFloat;
    (narrow ? to : from) = at::kByte;
  }
};

class Fill final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    if (self.is_cpu())
      return false;
    at::Scalar number = 0;
    if (call.arguments.size() > 1) {
      const c10::IValue& v = call.arguments[1];
      if (v.isTensor()) {
        const at::Tensor& t = v.toTensor();
        if (t.dim() != 0)
          return false;
        if (!t.is_cpu()) {
          if (t.is_alias_of(self) || !copy_native(call.index, t.expand_as(self), self))
            return false;
          call.results.push_back(self);
          return true;
        }
        number = t.item();
      } else {
        number = v.toScalar();
      }
    }
    if (!fill_native(call.index, self, number))
      return false;
    call.results.push_back(self);
    return true;
  }
};

class Cat final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor& out = call.arguments[2].toTensor();
    int64_t dim = call.arguments[1].toInt(), total = 0;
    if (!given_result(out) || out.dim() == 0 || dim < -out.dim() || dim >= out.dim())
      return false;
    dim = dim < 0 ? dim + out.dim() : dim;
    std::vector<at::Tensor> all;
    for (const at::Tensor& t : call.arguments[0].toTensorVector()) {
      if (t.is_cpu() || !dtype_of(t.scalar_type()) || t.is_alias_of(out) || (t.is_complex() && !out.is_complex()))
        return false;
      if (t.dim() == 1 && t.numel() == 0)
        continue; // it may have any number of dimensions
      if (t.dim() != out.dim())
        return false;
      for (int64_t d = 0; d < out.dim(); d++)
        if (d != dim && t.size(d) != out.size(d))
          return false;
      total += t.size(dim);
      all.push_back(t);
    }
    if (total != out.size(dim))
      return false;
    int64_t at = 0;
    for (const at::Tensor& t : all) {
      if (t.numel() > 0 && !copy_native(call.index, t, out.narrow(dim, at, t.size(dim))))
        return false;
      at += t.size(dim);
    }
    call.results.push_back(out);
    return true;
  }
};

class Triangle final : public Native {
 public:
  explicit Triangle(const char* name) : op_(kernels::Triangle::number(name)) {}

  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &out = call.arguments[2].toTensor();
    if (self.is_cpu() || !given_result(out) || self.dim() < 2 || self.sizes() != out.sizes() ||
        self.scalar_type() != out.scalar_type() || overlap(self, out))
      return false;
    kernels::Triangle kernel{.op = op_, .out = out, .in = self, .diagonal = call.arguments[1].toInt()};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }

 private:
  const int32_t op_;
};

class Arange final : public Native {
 public:
  bool run(NativeCall& call) const override {
    at::Scalar start = call.arguments[0].toScalar(), end = call.arguments[1].toScalar(),
               step = call.arguments[2].toScalar();
    const at::Tensor& out = call.arguments[3].toTensor();
    c10::ScalarType type = out.scalar_type(), compute = type == at::kFloat ? at::kDouble : computed_in(type);
    if (!given_result(out) || type == at::kBool || out.is_complex())
      return false;
    bool whole = c10::isIntegralType(type, false);
    chorus_number from, by;
    if (!number_of(start, compute, from) || !number_of(step, compute, by))
      return false;
    int64_t n = whole && type == at::kLong ? at::native::compute_arange_size<int64_t>(start, end, step)
                                           : at::native::compute_arange_size<double>(start, end, step);
    if (out.numel() != n) {
      if (out.numel() > 0)
        return false;
      out.resize_({n});
    }
    kernels::Arange kernel{.compute = compute, .out = out, .start = from, .step = by};
    if (n > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }
};

class Eye final : public Native {
 public:
  bool run(NativeCall& call) const override {
    int64_t n = call.arguments[0].toInt(), m = call.arguments.size() == 3 ? call.arguments[1].toInt() : n;
    const at::Tensor& out = call.arguments.back().toTensor();
    if (!given_result(out) || n < 0 || m < 0)
      return false;
    if (out.dim() != 2 || out.size(0) != n || out.size(1) != m) {
      if (out.numel() > 0)
        return false;
      out.resize_({n, m});
    }
    kernels::Eye kernel{.out = out};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }
};

class Flip final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    if (!dtype_of(self.scalar_type()))
      return false;
    at::DimVector strides(self.strides());
    int64_t offset = 0;
    for (int64_t d : call.arguments[1].toDimVector()) {
      if (d < -self.dim() || d >= self.dim())
        return false;
      d = d < 0 ? d + self.dim() : d;
      if (strides[size_t(d)] < 0 || (strides[size_t(d)] == 0 && self.size(d) > 1))
        return false; // twice
      offset += std::max<int64_t>(self.size(d) - 1, 0) * strides[size_t(d)];
      strides[size_t(d)] = -strides[size_t(d)];
    }
    at::Tensor out = at::empty_like(self, at::MemoryFormat::Preserve);
    if (self.numel() > 0) {
      const char* memory = static_cast<const char*>(self.const_data_ptr());
      kernels::Elementwise kernel{
          .op = copy_op(), .compute = computed_in(self.scalar_type()), .outs = {out},
          .ins = {Input(memory + offset * self.itemsize(), self.scalar_type(), self.sizes(), strides)}};
      if (!kernel.run(call.index))
        return false;
    }
    call.results.push_back(std::move(out));
    return true;
  }
};

} // namespace

bool copy_native(DeviceIndex index, const at::Tensor& from, const at::Tensor& to) {
  static const int32_t conj = kernels::Elementwise::number("conj"),
                       neg = kernels::Elementwise::number("neg");
  Conversion as(to.scalar_type(), from.scalar_type());
  if (!as.op || from._is_zerotensor() || to._is_zerotensor() || (from.is_complex() && !to.is_complex()))
    return false;
  bool conjugate = from.is_conj() != to.is_conj(), negate = from.is_neg() != to.is_neg();
  if (conjugate && negate)
    return false;
  at::TensorIterator it = at::TensorIteratorConfig()
                              .add_borrowed_output(to)
                              .add_borrowed_const_input(from)
                              .resize_outputs(false)
                              .check_all_same_dtype(false)
                              .build();
  if (it.numel() == 0)
    return true;
  at::DimVector sizes(it.shape().rbegin(), it.shape().rend()), strides[2];
  for (int k = 0; k < 2; k++)
    for (int d = it.ndim() - 1; d >= 0; d--)
      strides[k].push_back(it.strides(k)[size_t(d)] / it.element_size(k));
  kernels::Elementwise kernel{
      .op = conjugate ? conj : negate ? neg : as.op, .compute = as.compute,
      .outs = {Output(it.data_ptr(0), as.to, sizes, strides[0])},
      .ins = {Input(it.data_ptr(1), as.from, sizes, strides[1])}};
  return kernel.run(index);
}

bool fill_native(DeviceIndex index, const at::Tensor& to, const at::Scalar& number) {
  c10::ScalarType type = to.scalar_type(), compute = computed_in(type);
  if (!dtype_of(type))
    return false;
  chorus_number n{};
  if (type == at::kBool && !number.isComplex()) {
    n.is_integer = 1;
    n.integer = number.toDouble() != 0;
  } else if (c10::isIntegralType(type, false) && number.isFloatingPoint()) {
    double d = std::trunc(number.toDouble());
    if (!(std::fabs(d) < 128))
      return false;
    n.is_integer = 1;
    n.integer = int64_t(d);
  } else if (!number_of(number, compute, n)) {
    return false;
  }
  if (n.is_integer && c10::isIntegralType(type, false) && type != at::kLong) {
    int64_t most = type == at::kByte ? 255 : (int64_t(1) << (8 * c10::elementSize(type) - 1)) - 1;
    if (n.integer > most || n.integer < (type == at::kByte ? 0 : -most - 1))
      return false; // which PyTorch's kernel refuses, or takes modulo
  }
  kernels::Elementwise kernel{.op = copy_op(), .compute = compute, .outs = {to}, .ins = {Input(n, type)}};
  return to.numel() == 0 || kernel.run(index);
}

void add_copies() {
  add_native(schema_of("fill_.Scalar"), std::make_unique<Fill>());
  add_native(schema_of("fill_.Tensor"), std::make_unique<Fill>());
  add_native(schema_of("zero_"), std::make_unique<Fill>());
  add_native(schema_of("cat.out"), std::make_unique<Cat>());
  add_native(schema_of("tril.out"), std::make_unique<Triangle>("tril"));
  add_native(schema_of("triu.out"), std::make_unique<Triangle>("triu"));
  add_native(schema_of("arange.start_out"), std::make_unique<Arange>());
  add_native(schema_of("eye.out"), std::make_unique<Eye>());
  add_native(schema_of("eye.m_out"), std::make_unique<Eye>());
  add_native(schema_of("flip"), std::make_unique<Flip>());
}

} // namespace chorus
