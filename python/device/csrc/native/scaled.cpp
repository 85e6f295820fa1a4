// Products of matrices of numbers of 8 bits: integers, and floating-point ones with scales.
#include "native/scaled.h"

#include <ATen/ops/empty.h>

#include "native/checks.h"
#include "native/kernels.h"

namespace chorus {

namespace {

// IntMm is _int_mm(self, mat2).
class IntMm final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &a = call.arguments[0].toTensor(), &b = call.arguments[1].toTensor();
    if (a.is_cpu() || b.is_cpu() || a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0))
      return false;
    if (b.scalar_type() != at::kChar || (a.scalar_type() != at::kChar && a.scalar_type() != at::kByte))
      return false;
    bool given = call.arguments.size() > 2;
    at::Tensor out = given ? call.arguments[2].toTensor()
                           : at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kInt));
    if (given &&
        (!given_result(out) || out.scalar_type() != at::kInt || out.dim() != 2 || out.size(0) != a.size(0) ||
         out.size(1) != b.size(1) || !out.is_contiguous() || out.is_alias_of(a) || out.is_alias_of(b)))
      return false;
    chorus_number one{}, zero{};
    one.is_integer = zero.is_integer = 1;
    one.integer = 1;
    kernels::Matmul kernel{.op = 0, .out = out, .a = a, .b = b, .alpha = one, .beta = zero};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }
};

// format_of is a type of 8 bits as chorus_kernel has it, 0 for other types.
int64_t format_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float8_e4m3fn:
      return 1;
    case c10::ScalarType::Float8_e5m2:
      return 2;
    case c10::ScalarType::Float8_e4m3fnuz:
      return 3;
    case c10::ScalarType::Float8_e5m2fnuz:
      return 4;
    default:
      return 0;
  }
}

bool is_wide(c10::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

// Scaled is (a @ b * scale_a * scale_b + bias) / scale_result. scale_result and bias may be undefined.
struct Scaled {
  at::Tensor a, b, scale_a, scale_b, bias, scale_result;

  // fits says whether kernels have it: with scales of whole matrices, or of rows and columns.
  bool fits() const {
    for (const at::Tensor* t : {&a, &b, &scale_a, &scale_b, &bias, &scale_result})
      if (t->defined() && t->is_cpu())
        return false;
    if (a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0) || !format_of(a.scalar_type()) ||
        !format_of(b.scalar_type()))
      return false;
    if (scale_a.scalar_type() != at::kFloat || scale_b.scalar_type() != at::kFloat || !(whole() || by_lines()))
      return false;
    if (scale_result.defined() && (scale_result.numel() != 1 || scale_result.scalar_type() != at::kFloat))
      return false;
    return !bias.defined() || (bias.numel() == b.size(1) && is_wide(bias.scalar_type()) && bias.is_contiguous());
  }

  bool whole() const {
    return scale_a.numel() == 1 && scale_b.numel() == 1;
  }

  bool by_lines() const {
    return scale_a.dim() == 2 && scale_a.size(0) == a.size(0) && scale_a.size(1) == 1 && scale_a.is_contiguous() &&
        scale_b.dim() == 2 && scale_b.size(0) == 1 && scale_b.size(1) == b.size(1) && scale_b.is_contiguous();
  }

  // run writes the result to a new tensor of a type, or to a given one, which is out then.
  bool run(NativeCall& call, c10::ScalarType type, at::Tensor out) const {
    std::array<int64_t, 2> sizes{a.size(0), b.size(1)};
    if (!format_of(type) && !is_wide(type))
      return false;
    if (!out.defined()) {
      out = at::empty(sizes, a.options().dtype(type));
    } else if (
        out.device().type() != kType || out.scalar_type() != type ||
        at::has_internal_overlap(out) != at::MemOverlap::No) {
      return false;
    } else if (out.sizes() != at::IntArrayRef(sizes)) {
      if (out.numel() > 0)
        return false;
      out.resize_(sizes);
    }
    for (const at::Tensor* t : {&a, &b, &scale_a, &scale_b, &bias, &scale_result})
      if (t->defined() && out.is_alias_of(*t))
        return false;
    static const int64_t one = 1;
    auto in = [](const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides) {
      return Input(t.const_data_ptr(), memory_of(t.scalar_type()), sizes, strides);
    };
    auto line = [&](const at::Tensor& t, const int64_t& n) {
      return in(t, at::IntArrayRef(&n, 1), at::IntArrayRef(&one, 1));
    };
    kernels::ScaledMatmul kernel{
        .out = Output(out.mutable_data_ptr(), memory_of(type), out.sizes(), out.strides()),
        .a = in(a, a.sizes(), a.strides()), .b = in(b, b.sizes(), b.strides()),
        .scale_a = line(scale_a, whole() ? one : sizes[0]), .scale_b = line(scale_b, whole() ? one : sizes[1]),
        .format_out = format_of(type), .format_a = format_of(a.scalar_type()), .format_b = format_of(b.scalar_type())};
    if (bias.defined())
      kernel.bias = line(bias, sizes[1]);
    if (scale_result.defined())
      kernel.scale_out = line(scale_result, one);
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

  // memory_of is the type of elements as kernels find them in memory.
  static c10::ScalarType memory_of(c10::ScalarType type) {
    return format_of(type) ? at::kByte : type;
  }
};

// type_of_result is that of an argument out_dtype, or else of the given result, or of the first matrix; Undefined if
// the two differ.
c10::ScalarType type_of_result(const c10::IValue& asked, const at::Tensor& a, const at::Tensor& given) {
  if (!given.defined())
    return asked.isNone() ? a.scalar_type() : asked.toScalarType();
  return asked.isNone() || asked.toScalarType() == given.scalar_type() ? given.scalar_type()
                                                                       : c10::ScalarType::Undefined;
}

at::Tensor or_none(const c10::IValue& v) {
  return v.toOptional<at::Tensor>().value_or(at::Tensor());
}

// ScaledMm is _scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum).
class ScaledMm final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& v = call.arguments;
    Scaled x{v[0].toTensor(), v[1].toTensor(), v[2].toTensor(), v[3].toTensor(), or_none(v[4]), or_none(v[5])};
    if (!x.fits())
      return false;
    at::Tensor given = v.size() > 8 ? v[8].toTensor() : at::Tensor();
    // As on the CPU, it counts for these types alone, and only if they are asked for.
    if (v[6].isNone() || (v[6].toScalarType() != at::kFloat8_e4m3fn && v[6].toScalarType() != at::kFloat8_e5m2))
      x.scale_result.reset();
    return x.run(call, type_of_result(v[6], x.a, given), given);
  }
};

// ScaledMmV2 is _scaled_mm_v2(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, out_dtype,
// contraction_dim, use_fast_accum).
class ScaledMmV2 final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& v = call.arguments;
    std::vector<at::Tensor> scale_a = v[2].toTensorVector(), scale_b = v[5].toTensorVector();
    std::vector<int64_t> recipe_a = v[3].toIntVector(), recipe_b = v[6].toIntVector(), dims = v[10].toIntVector();
    if (scale_a.size() != 1 || scale_b.size() != 1 || recipe_a.size() != 1 || recipe_a != recipe_b ||
        (!dims.empty() && dims != std::vector<int64_t>{1, 0}))
      return false;
    for (int i : {4, 7})
      for (int64_t swizzle : v[i].toIntVector())
        if (swizzle != 0)
          return false;
    Scaled x{v[0].toTensor(), v[1].toTensor(), scale_a[0], scale_b[0], or_none(v[8]), at::Tensor()};
    enum { kTensorWise = 0, kRowWise = 1 }; // of torch.nn.functional.ScalingType
    if (!x.fits() || !(recipe_a[0] == kTensorWise ? x.whole() : recipe_a[0] == kRowWise && x.by_lines()))
      return false;
    at::Tensor given = v.size() > 12 ? v[12].toTensor() : at::Tensor();
    if (x.a.size(1) == 0)
      x.bias.reset(); // as on the CPU, a product of nothing is 0
    return x.run(call, type_of_result(v[9], x.a, given), given);
  }
};

} // namespace

void add_scaled_matmul() {
  for (const char* name : {"_int_mm", "_int_mm.out"})
    add_native(schema_of(name), std::make_unique<IntMm>());
  for (const char* name : {"_scaled_mm", "_scaled_mm.out"})
    add_native(schema_of(name), std::make_unique<ScaledMm>());
  for (const char* name : {"_scaled_mm_v2", "_scaled_mm_v2.out"})
    add_native(schema_of(name), std::make_unique<ScaledMmV2>());
}

} // namespace chorus
