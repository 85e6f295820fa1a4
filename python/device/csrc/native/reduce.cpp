// Reductions, over dimensions or over all elements.
#include "native/composed.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sum.h>

#include "native/kernels.h"

namespace chorus {

namespace {

// Results says what types the results of a reduction have.
enum class Results {
  kOut,       // that of the given result, or of an argument dtype, or of the input, with int64 for integers
  kTruth,     // bool, or uint8 for it
  kSame,      // the input's
  kIndex,     // int64
  kWithIndex, // the input's, and int64
  kTwo,       // the input's, twice
  kPart,      // the type of the parts, of floating-point and complex inputs
  kPartAnd,   // likewise, and the input's
};

constexpr const char* mean_name = "mean.out";
constexpr const char* logsumexp_name = "logsumexp.out";

struct Reduction {
  const char* name; // with the overload
  const char* kernel;
  Results results;
  bool needs = false; // at least one element
};

class Reduce final : public Native {
 public:
  Reduce(const Reduction& of, const c10::OperatorHandle& op)
      : of_(of),
        op_(kernels::Reduce::number(of.kernel)),
        where_(op.schema()),
        dim_(where_.named("dim")),
        keep_(where_.named("keepdim")),
        dtype_(where_.named("dtype")),
        correction_(where_.named("correction")),
        power_(std::max(where_.named("ord"), where_.named("p"))) {}

  bool run(NativeCall& call) const override {
    at::Tensor self = converted(call);
    if (of_.name == logsumexp_name && self.is_complex())
      return complex_logsumexp(call, self);
    if (self.is_cpu() || !dtype_of(self.scalar_type()) || (of_.needs && self.numel() == 0))
      return false;
    if (of_.results == Results::kTruth && dim_ >= 0 && call.arguments[dim_].isIntList() &&
        call.arguments[dim_].toDimVector().empty()) { // which reduces nothing
      if (!where_.outs.empty())
        return false;
      call.results.push_back(at::ne(self, 0).to(self.scalar_type() == at::kByte ? at::kByte : at::kBool));
      return true;
    }
    std::optional<at::DimVector> dims = dims_of(call);
    bool keep = keep_ >= 0 && call.arguments[keep_].toBool();
    if (dims) {
      at::DimVector wrapped;
      for (int64_t d : *dims) {
        int64_t most = std::max<int64_t>(self.dim(), 1);
        if (d < -most || d >= most)
          return false;
        wrapped.push_back(d < 0 ? d + most : d);
        if (std::count(wrapped.begin(), wrapped.end(), wrapped.back()) > 1)
          return false;
      }
      dims = std::move(wrapped);
    }
    at::native::DimMask mask = at::native::make_dim_mask(
        dims ? at::OptionalIntArrayRef(*dims) : at::OptionalIntArrayRef(std::nullopt), self.dim());
    at::DimVector sizes = at::native::shape_from_dim_mask(self, mask, keep);
    c10::SmallVector<c10::ScalarType, 2> types;
    if (!types_of(call, self, types))
      return false;
    int32_t op = op_;
    c10::SmallVector<chorus_number, 4> numbers;
    if (power_ >= 0 && !norm_of(call, self, op, numbers))
      return false;
    if (correction_ >= 0) {
      const c10::IValue& v = call.arguments[correction_];
      chorus_number n;
      if (!number_of(v.isNone() ? at::Scalar(1) : v.toScalar(), computed_in(self.scalar_type()), n))
        return false;
      numbers.push_back(n);
    }
    c10::ScalarType compute = computed_in(self.scalar_type());
    if (of_.results == Results::kOut)
      compute = computed_in(types[0]);
    if (power_ >= 0 && !self.is_complex())
      compute = computed_in(types[0]);
    kernels::Reduce kernel{.op = op, .compute = compute, .in = self, .numbers = std::move(numbers)};
    std::array<at::DimVector, 2> shape, strides;
    for (size_t k = 0; k < types.size(); k++) {
      at::Tensor out;
      if (where_.outs.empty()) {
        out = at::empty(sizes, self.options().dtype(types[k]));
      } else {
        out = call.arguments[where_.outs[k]].toTensor();
        if (out.is_cpu() || out.scalar_type() != types[k] || !dtype_of(types[k]) || out.is_alias_of(self) ||
            at::has_internal_overlap(out) != at::MemOverlap::No)
          return false;
        if (out.sizes() != sizes) {
          if (out.numel() > 0)
            return false;
          at::native::resize_output(out, sizes);
        }
      }
      shape[k] = at::native::shape_from_dim_mask(self, mask, /*keepdim=*/true);
      strides[k] = out.strides();
      if (!keep)
        for (int64_t d = 0; d < self.dim(); d++)
          if (mask[size_t(d)])
            strides[k].insert(strides[k].begin() + d, 0);
      kernel.outs.emplace_back(out, shape[k], strides[k]);
      call.results.push_back(std::move(out));
    }
    at::DimVector reduced;
    for (int64_t d = 0; d < self.dim(); d++)
      if (mask[size_t(d)])
        reduced.push_back(d);
    if (int64_t(reduced.size()) < self.dim()) // else all
      kernel.dims = reduced;
    return kernel.run(call.index); // of no elements as well: it knows the types
  }

 private:
  // converted is the input in the type that it's reduced in, if that's another one.
  at::Tensor converted(const NativeCall& call) const {
    const at::Tensor& self = call.arguments[0].toTensor();
    if (self.is_cpu())
      return self;
    if (of_.name == logsumexp_name && c10::isIntegralType(self.scalar_type(), /*includeBool=*/true))
      return self.to(c10::get_default_dtype_as_scalartype());
    if (of_.results == Results::kPart && power_ >= 0 && dtype_ >= 0 && !call.arguments[dtype_].isNone()) {
      c10::ScalarType type = call.arguments[dtype_].toScalarType();
      if (self.is_floating_point() == c10::isFloatingType(type) && self.is_complex() == c10::isComplexType(type))
        return self.to(type);
    }
    return self;
  }

  // complex_logsumexp composes logsumexp of complex numbers as PyTorch does: their largest real part is the largest.
  bool complex_logsumexp(NativeCall& call, const at::Tensor& self) const {
    at::DimVector dims(call.arguments[dim_].toDimVector());
    if (!there(self) || self.numel() == 0 || dims.empty()) // without dimensions PyTorch has an error
      return false;
    for (int64_t d : dims)
      if (!wrapped(d, std::max<int64_t>(self.dim(), 1)))
        return false;
    bool keep = call.arguments[keep_].toBool();
    at::Tensor most = at::amax(at::real(self), dims, /*keepdim=*/true);
    most.masked_fill_(most.abs().eq(INFINITY), 0);
    at::Tensor result = at::sum(self.sub(most).exp_(), dims, keep).log_();
    result.add_(keep ? most : most.squeeze(dims));
    return settle(call, result, &call.arguments[where_.outs[0]]);
  }

  // dims_of are the argument's; none for all.
  std::optional<at::DimVector> dims_of(const NativeCall& call) const {
    if (dim_ < 0 || call.arguments[dim_].isNone())
      return std::nullopt;
    const c10::IValue& v = call.arguments[dim_];
    if (v.isInt())
      return at::DimVector{v.toInt()};
    at::DimVector dims(v.toDimVector());
    if (dims.empty())
      return std::nullopt;
    return dims;
  }

  bool types_of(const NativeCall& call, const at::Tensor& self, c10::SmallVector<c10::ScalarType, 2>& types) const {
    c10::ScalarType type = self.scalar_type();
    switch (of_.results) {
      case Results::kOut:
        if (!where_.outs.empty())
          types = {call.arguments[where_.outs[0]].toTensor().scalar_type()};
        else if (dtype_ >= 0 && !call.arguments[dtype_].isNone())
          types = {call.arguments[dtype_].toScalarType()};
        else
          types = {c10::isIntegralType(type, true) ? at::kLong : type};
        // PyTorch's own checks have the error for other types.
        if (dtype_ >= 0 && !call.arguments[dtype_].isNone()) {
          if (call.arguments[dtype_].toScalarType() != types[0])
            return false;
        } else if (of_.name == mean_name && !self.is_floating_point() && !self.is_complex()) {
          return false;
        }
        return !self.is_complex() || c10::isComplexType(types[0]);
      case Results::kTruth:
        types = {type == at::kByte ? at::kByte : at::kBool};
        return true;
      case Results::kSame:
        types = {type};
        return true;
      case Results::kIndex:
        types = {at::kLong};
        return true;
      case Results::kWithIndex:
        types = {type, at::kLong};
        return true;
      case Results::kTwo:
        types = {type, type};
        return true;
      case Results::kPart:
      case Results::kPartAnd:
        if (!self.is_floating_point() && !self.is_complex())
          return false;
        if (dtype_ >= 0 && !call.arguments[dtype_].isNone() && call.arguments[dtype_].toScalarType() != type)
          return false;
        types = {c10::toRealValueType(type)};
        if (of_.results == Results::kPartAnd)
          types.push_back(type);
        return true;
    }
    return false;
  }

  // norm_of chooses the kernel of a norm.
  bool norm_of(
      const NativeCall& call, const at::Tensor& self, int32_t& op, c10::SmallVector<chorus_number, 4>& numbers) const {
    static const int32_t ops[] = {
        kernels::Reduce::number("norm0"), kernels::Reduce::number("norm1"),
        kernels::Reduce::number("norm2"), kernels::Reduce::number("norm"),
        kernels::Reduce::number("norm_inf"), kernels::Reduce::number("norm_neg_inf")};
    const c10::IValue& v = call.arguments[power_];
    at::Scalar scalar = v.isNone() ? at::Scalar(2) : v.toScalar();
    if (scalar.isComplex())
      return false;
    double p = scalar.toDouble();
    if (self.numel() == 0 && !(p >= 0 && p < INFINITY))
      return false;
    if (std::isinf(p)) {
      op = ops[p > 0 ? 4 : 5];
    } else if (p == 0 || p == 1 || p == 2) {
      op = ops[int(p)];
    } else {
      op = ops[3];
      chorus_number n{};
      n.real = p;
      numbers.push_back(n);
    }
    return true;
  }

  const Reduction& of_;
  const int32_t op_;
  const FormArguments where_;
  const int dim_, keep_, dtype_, correction_, power_;
};

const Reduction all_reductions[] = {
    {"sum.IntList_out", "sum", Results::kOut},
    {mean_name, "mean", Results::kOut},
    {"nansum", "nansum", Results::kOut},
    {"nansum.out", "nansum", Results::kOut},
    {"prod", "prod", Results::kOut},
    {"prod.int_out", "prod", Results::kOut},
    {"all.out", "all", Results::kTruth},
    {"all.dims_out", "all", Results::kTruth},
    {"all.all_out", "all", Results::kTruth},
    {"all.dims", "all", Results::kTruth},
    {"any.out", "any", Results::kTruth},
    {"any.dims", "any", Results::kTruth},
    {"any.dims_out", "any", Results::kTruth},
    {"any.all_out", "any", Results::kTruth},
    {"count_nonzero.dim_IntList", "count_nonzero", Results::kIndex},
    {"amax.out", "amax", Results::kSame, true},
    {"amin.out", "amin", Results::kSame, true},
    {"max", "amax", Results::kSame, true},
    {"min", "amin", Results::kSame, true},
    {"max.unary_out", "amax", Results::kSame, true},
    {"min.unary_out", "amin", Results::kSame, true},
    {"argmax.out", "argmax", Results::kIndex, true},
    {"argmin.out", "argmin", Results::kIndex, true},
    {"max.dim_max", "max", Results::kWithIndex, true},
    {"min.dim_min", "min", Results::kWithIndex, true},
    {"aminmax.out", "aminmax", Results::kTwo, true},
    {"var.correction", "var", Results::kPart},
    {"var.correction_out", "var", Results::kPart},
    {"std.correction", "std", Results::kPart},
    {"std.correction_out", "std", Results::kPart},
    {"var_mean.correction", "var_mean", Results::kPartAnd},
    {"std_mean.correction", "std_mean", Results::kPartAnd},
    {"linalg_vector_norm.out", "norm2", Results::kPart},
    {"norm.out", "norm2", Results::kPart},
    {logsumexp_name, "logsumexp", Results::kSame, true},
};

} // namespace

void add_reductions() {
  for (const Reduction& of : all_reductions) {
    if (auto op = schema_of(of.name))
      add_native(*op, std::make_unique<Reduce>(of, *op));
  }
}

} // namespace chorus
