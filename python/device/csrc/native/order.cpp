// Operators that sort, search, count and choose elements. Where the size of a result depends on elements, the host waits
// for their count, as PyTorch does on every accelerator.
#include "native/kernels.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/topk.h>

#include "native/order.h"
#include "native/ordered.h"
#include "native/checks.h"
#include "native/copy.h"
#include "native/draws.h"

namespace chorus {

bool in_order(const at::Tensor& t) {
  return !t.is_cpu() && dtype_of(t.scalar_type()) != 0 && !t.is_complex();
}

bool ordered(DeviceIndex index, const at::Tensor& line, at::Tensor& values, at::Tensor* places) {
  values = at::empty_like(line);
  kernels::Sort kernel{.values = values, .in = line};
  if (places) {
    *places = at::empty(line.sizes(), line.options().dtype(at::kLong));
    kernel.indexes = *places;
  }
  return kernel.run(index);
}

int64_t found(const at::Tensor& t) {
  return t.numel() == 0 ? 0 : at::count_nonzero(t).item<int64_t>();
}

bool selected(DeviceIndex index, const at::Tensor& self, const at::Tensor& mask, int64_t n, at::Tensor& out) {
  out = at::empty({n}, self.options());
  kernels::MaskedSelect kernel{.out = out, .in = self, .mask = mask};
  return n == 0 || kernel.run(index);
}

namespace {

// sized makes a given result be of these sizes. It returns false for one that has others already, or of another type.
bool sized(const at::Tensor& out, c10::ScalarType type, at::IntArrayRef sizes, const at::Tensor& self) {
  if (!given_result(out) || out.scalar_type() != type || out.is_alias_of(self))
    return false;
  if (out.sizes() == sizes)
    return true;
  if (out.numel() > 0)
    return false;
  at::native::resize_output(out, sizes);
  return given_result(out);
}

// Sorted is an operator that sorts along a dimension, or takes one or some elements of the order.
class Sorted final : public Native {
 public:
  enum Kind { kSort, kTopk, kKth, kMedian, kMode };

  Sorted(Kind kind, const char* kernel, const c10::OperatorHandle& op)
      : kind_(kind),
        op_(kind == kMedian ? kernels::Median::number(kernel) : 0),
        where_(op.schema()),
        dim_(where_.named("dim")),
        keep_(where_.named("keepdim")) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& self = a[0].toTensor();
    int64_t dim = dim_ < 0 ? 0 : a[dim_].toInt(), n = -1, k = 0;
    bool lower = kind_ == kTopk || kind_ == kKth || kind_ == kMedian; // the CPU has no kernels of these for bool
    if (!in_order(self) || (lower && self.scalar_type() == at::kBool) || !wrapped(dim, std::max<int64_t>(self.dim(), 1)))
      return false;
    at::Tensor in = with_dimension(self);
    n = in.size(dim);
    bool descending = kind_ == kSort && a[where_.named("descending")].toBool();
    at::DimVector sizes(in.sizes());
    if (kind_ == kTopk || kind_ == kKth) {
      k = a[1].toInt();
      if (k < (kind_ == kKth) || k > n)
        return false;
    }
    if (kind_ == kTopk && self.dim() == 0)
      k = 1; // a number is the result, also with k = 0
    if (kind_ == kTopk) {
      descending = a[where_.named("largest")].toBool();
      sizes[size_t(dim)] = k;
    } else if (kind_ != kSort) {
      if (n == 0)
        return false;
      sizes[size_t(dim)] = 1;
    }
    at::DimVector told = sizes; // of the results
    if (self.dim() == 0)
      told.clear();
    else if (keep_ >= 0 && !a[keep_].toBool())
      told.erase(told.begin() + dim);
    if (where_.outs.empty()) {
      call.results = {at::empty(told, self.options()), at::empty(told, self.options().dtype(at::kLong))};
    } else {
      call.results = {a[where_.outs[0]].toTensor(), a[where_.outs[1]].toTensor()};
      if (!sized(call.results[0], self.scalar_type(), told, self) || !sized(call.results[1], at::kLong, told, self))
        return false;
    }
    if (call.results[0].numel() == 0)
      return true;
    std::array<at::DimVector, 2> strides;
    for (size_t i = 0; i < 2; i++) {
      const at::Tensor& out = call.results[i];
      strides[i] = at::DimVector(out.strides());
      if (out.dim() < in.dim())
        strides[i].insert(strides[i].begin() + dim, 1);
    }
    Output values(call.results[0], sizes, strides[0]), indexes(call.results[1], sizes, strides[1]);
    switch (kind_) {
      case kKth:
        return kernels::Kth{.values = values, .indexes = indexes, .in = in, .dim = dim, .k = k}.run(call.index);
      case kMedian:
        return kernels::Median{.op = op_, .values = values, .indexes = indexes, .in = in, .dim = dim}.run(call.index);
      case kMode:
        return kernels::Mode{.values = values, .indexes = indexes, .in = in, .dim = dim}.run(call.index);
      default:
        return kernels::Sort{.values = values, .indexes = indexes, .in = in, .dim = dim, .descending = descending}.run(
            call.index);
    }
  }

 private:
  const Kind kind_;
  const int32_t op_; // of a median
  const FormArguments where_;
  const int dim_, keep_;
};

// MedianOfAll is median or nanmedian of all elements.
class MedianOfAll final : public Native {
 public:
  explicit MedianOfAll(const char* kernel) : op_(kernels::Median::number(kernel)) {}

  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    if (!in_order(self) || self.scalar_type() == at::kBool || self.numel() == 0)
      return false;
    at::Tensor line = self.reshape({-1}), out = at::empty({}, self.options());
    at::DimVector one{1};
    kernels::Median kernel{.op = op_, .values = Output(out, one, one), .in = line};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const int32_t op_;
};

// Search is searchsorted or bucketize, of a tensor or a number.
class Search final : public Native {
 public:
  Search(bool values_first, const c10::OperatorHandle& op)
      : values_(values_first ? 0 : 1),
        where_(op.schema()),
        out32_(where_.named("out_int32")),
        right_(where_.named("right")),
        side_(where_.named("side")),
        sorter_(where_.named("sorter")) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& sorted = a[size_t(1 - values_)].toTensor();
    if (!in_order(sorted) || sorted.scalar_type() == at::kBool || sorted.numel() == 0)
      return false;
    at::Tensor values, sorter;
    if (a[size_t(values_)].isTensor())
      values = a[size_t(values_)].toTensor();
    else
      values = at::scalar_tensor(a[size_t(values_)].toScalar(), sorted.options());
    if (sorter_ >= 0 && a[sorter_].isTensor())
      sorter = a[sorter_].toTensor();
    if (values.is_cpu() || values.scalar_type() != sorted.scalar_type() || (values_ == 0 && sorted.dim() != 1))
      return false; // PyTorch's own checks have the error
    std::optional<std::string> side;
    if (side_ >= 0 && !a[side_].isNone())
      side = a[side_].toStringRef();
    bool narrow = a[out32_].toBool(), right = a[right_].toBool();
    at::Tensor out;
    if (where_.outs.empty())
      out = at::empty(values.sizes(), values.options().dtype(narrow ? at::kInt : at::kLong));
    else
      out = a[where_.outs[0]].toTensor();
    at::native::searchsorted_pre_check(
        sorted, values, out, narrow, right, side ? std::optional<std::string_view>(*side) : std::nullopt, sorter);
    if (!sized(out, narrow ? at::kInt : at::kLong, values.sizes(), values) || out.is_alias_of(sorted))
      return false;
    kernels::Search kernel{
        .out = out, .values = values, .sorted = sorted, .sorter = sorter, .right = side ? *side == "right" : right};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const int values_;
  const FormArguments where_;
  const int out32_, right_, side_, sorter_;
};

// IsIn is isin.Tensor_Tensor_out(elements, test_elements, assume_unique, invert, out).
class IsIn final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor &elements = a[0].toTensor(), &test = a[1].toTensor(), &out = a[4].toTensor();
    c10::ScalarType type = elements.scalar_type();
    if (!in_order(elements) || test.is_cpu() || test.scalar_type() != type || test.numel() == 0 || type == at::kBool ||
        type == at::kBFloat16 || type == at::kHalf || !sized(out, at::kBool, elements.sizes(), elements))
      return false;
    at::Tensor line;
    if (!ordered(call.index, test.reshape({-1}).contiguous(), line, nullptr))
      return false;
    kernels::Contains kernel{.out = out, .values = elements, .sorted = line, .invert = a[3].toBool()};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }
};

// Bincount is bincount(self, weights, minlength).
class Bincount final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    int64_t bins = call.arguments[2].toInt();
    if (self.is_cpu() || self.dim() != 1 || self.numel() == 0 || bins < 0 || !dtype_of(self.scalar_type()) ||
        !at::isIntegralType(self.scalar_type(), /*includeBool=*/false))
      return false;
    at::Tensor weights;
    c10::ScalarType type = at::kLong;
    if (call.arguments[1].isTensor() && call.arguments[1].toTensor().defined()) {
      weights = call.arguments[1].toTensor();
      if (weights.is_cpu() || weights.sizes() != self.sizes() || weights.is_complex())
        return false;
      type = weights.scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
      weights = weights.to(type);
    }
    auto [least, most] = at::aminmax(self);
    if (least.item<int64_t>() < 0)
      return false;
    bins = std::max(bins, most.item<int64_t>() + 1);
    at::Tensor out = at::empty({bins}, self.options().dtype(type));
    if (weights.defined() && adds_in_order(type)) {
      at::DimVector strides{0};
      out.zero_();
      if (!add_in_order(call, out, without_gaps(out), {self.sizes(), strides, {{self, bins, 1, false}}}, weights, nullptr))
        return false;
    } else if (kernels::Bincount kernel{.out = out, .in = self, .weights = weights}; !kernel.run(call.index)) {
      return false;
    }
    call.results.push_back(std::move(out));
    return true;
  }
};

// Histogram is histc(self, bins, min, max), of floating-point numbers.
class Histogram final : public Native {
 public:
  explicit Histogram(const c10::OperatorHandle& op) : where_(op.schema()) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& self = a[0].toTensor();
    int64_t bins = a[1].toInt();
    double low = a[2].toScalar().toDouble(), high = a[3].toScalar().toDouble();
    if (self.is_cpu() || (self.scalar_type() != at::kFloat && self.scalar_type() != at::kDouble) || bins < 1 ||
        self.numel() == 0)
      return false;
    if (low == high) {
      auto [least, most] = at::aminmax(self);
      low = least.item<double>();
      high = most.item<double>();
    }
    if (!std::isfinite(low) || !std::isfinite(high) || low > high)
      return false;
    at::Tensor out;
    if (where_.outs.empty())
      out = at::empty({bins}, self.options());
    else if (out = a[where_.outs[0]].toTensor(); !sized(out, self.scalar_type(), {bins}, self))
      return false;
    kernels::Histogram kernel{.out = out, .in = self, .low = low, .high = high};
    if (!kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const FormArguments where_;
};

// Nonzero is nonzero(self).
class Nonzero final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    if (self.is_cpu() || !dtype_of(self.scalar_type()))
      return false;
    int64_t n = found(self); // the strides are the CPU's
    at::Tensor out = at::empty_strided({n, self.dim()}, {1, n}, self.options().dtype(at::kLong));
    kernels::Nonzero kernel{.out = out, .in = self};
    if (out.numel() > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }
};

// MaskedSelect is masked_select(self, mask).
class MaskedSelect final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &mask = call.arguments[1].toTensor();
    if (self.is_cpu() || mask.is_cpu() || mask.scalar_type() != at::kBool || !dtype_of(self.scalar_type()))
      return false;
    auto [of, by] = at::expand_outplace(self, mask, "masked_select");
    at::Tensor out;
    if (!selected(call.index, *of, *by, found(*by), out))
      return false;
    call.results.push_back(std::move(out));
    return true;
  }
};

// MaskedScatter is masked_scatter_(self, mask, source).
class MaskedScatter final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const at::Tensor &self = call.arguments[0].toTensor(), &mask = call.arguments[1].toTensor();
    at::Tensor source = call.arguments[2].toTensor();
    if (!given_result(self) || mask.is_cpu() || source.is_cpu() || mask.scalar_type() != at::kBool ||
        source.scalar_type() != self.scalar_type() || source.is_alias_of(self) || mask.is_alias_of(self) ||
        !at::is_expandable_to(mask.sizes(), self.sizes()))
      return false;
    at::Tensor by = mask.expand(self.sizes());
    if (self.numel() > 0) {
      if (found(by) > source.numel())
        return false;
      source = source.reshape({-1});
      kernels::MaskedScatter kernel{.out = self, .mask = by, .in = source};
      if (source.numel() > 0 && !kernel.run(call.index))
        return false;
    }
    call.results.push_back(self);
    return true;
  }
};

// Roll is roll(self, shifts, dims).
class Roll final : public Native {
 public:
  bool run(NativeCall& call) const override {
    at::Tensor self = call.arguments[0].toTensor();
    at::DimVector shifts(call.arguments[1].toDimVector()), dims(call.arguments[2].toDimVector());
    bool all = dims.empty() && shifts.size() == 1;
    if (self.is_cpu() || !dtype_of(self.scalar_type()) || self.numel() == 0 || self.dim() == 0 || shifts.empty() ||
        (!all && shifts.size() != dims.size()))
      return false;
    if (all) {
      self = self.reshape({-1});
      dims = {0};
    }
    for (int64_t& d : dims)
      if (!wrapped(d, self.dim()))
        return false;
    at::Tensor out;
    for (size_t k = 0; k < dims.size(); k++) {
      out = at::empty(self.sizes(), self.options());
      kernels::Roll kernel{.out = out, .in = self, .shift = shifts[k], .dim = dims[k]};
      if (!kernel.run(call.index))
        return false;
      self = out;
    }
    call.results.push_back(all ? out.view(call.arguments[0].toTensor().sizes()) : out);
    return true;
  }
};

// Linspace is linspace.out(start, end, steps, out) of real numbers. Integers are those of float64, without fractions.
class Linspace final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& out = a[3].toTensor();
    int64_t n = a[2].toInt();
    bool whole = at::isIntegralType(out.scalar_type(), /*includeBool=*/false);
    if (a[0].isComplexDouble() || a[1].isComplexDouble() || n < 0 || !given_result(out) ||
        (!whole && !out.is_floating_point()))
      return false;
    double ends[] = {a[0].toScalar().toDouble(), a[1].toScalar().toDouble()};
    if (whole)
      for (double& end : ends) {
        end = std::trunc(end);
        if (!holds_whole(out.scalar_type(), end))
          return false; // the CPU's kernel has the error
      }
    if (out.numel() != n) {
      if (out.numel() > 0)
        return false;
      at::native::resize_output(out, {n});
    }
    if (whole) {
      if (n > 0 && !copy_native(call.index, at::linspace(ends[0], ends[1], n, out.options().dtype(at::kDouble)), out))
        return false;
      call.results.push_back(out);
      return true;
    }
    kernels::Linspace kernel{
        .compute = computed_in(out.scalar_type()), .out = out, .start = ends[0], .end = ends[1]};
    if (n > 0 && !kernel.run(call.index))
      return false;
    call.results.push_back(out);
    return true;
  }
};

// Multinomial is multinomial(self, num_samples, replacement, generator) without replacement, or of one sample: the
// largest quotients of the weights and exponential numbers, as PyTorch computes it on every device. Samples with
// replacement are drawn from CUDA's numbers alone.
class Multinomial final : public Native {
 public:
  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& self = a[0].toTensor();
    int64_t n = a[1].toInt();
    const Native* draw = draw_of({"aten::multinomial", ""}); // none before use_philox
    if (a[2].toBool() && n > 1)
      return draw && draw->run(call);
    if (self.is_cpu() || !self.is_floating_point() || self.dim() < 1 || self.dim() > 2 || self.numel() == 0 || n < 1 ||
        n > self.size(-1))
      return false;
    auto [least, most] = at::aminmax(self);
    double low = least.item<double>();
    if (!(low >= 0) || !std::isfinite(most.item<double>()) || self.sum(-1).eq(0).any().item<bool>())
      return false; // PyTorch's own checks have the error
    std::optional<at::Generator> generator;
    if (!a[3].isNone())
      generator = a[3].toGenerator();
    at::Tensor q = at::empty_like(self).exponential_(1, generator);
    at::div_out(q, self, q);
    if (n == 1)
      call.results = {at::argmax(q, -1, /*keepdim=*/true)};
    else
      call.results = {std::get<1>(at::topk(q, n))};
    return true;
  }
};

} // namespace

void add_ordered() {
  auto sorted = [](Sorted::Kind kind, const char* name, const char* kernel) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Sorted>(kind, kernel, *op));
  };
  sorted(Sorted::kSort, "sort.values_stable", "sort");
  sorted(Sorted::kTopk, "topk.values", "sort");
  sorted(Sorted::kKth, "kthvalue.values", "kthvalue");
  sorted(Sorted::kMedian, "median.dim_values", "median");
  sorted(Sorted::kMedian, "nanmedian.dim_values", "nanmedian");
  sorted(Sorted::kMode, "mode", "mode");
  add_native(schema_of("median"), std::make_unique<MedianOfAll>("median"));
  add_native(schema_of("nanmedian"), std::make_unique<MedianOfAll>("nanmedian"));
  auto search = [](const char* name, bool values_first) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Search>(values_first, *op));
  };
  for (const char* name : {"searchsorted.Tensor", "searchsorted.Tensor_out", "searchsorted.Scalar"})
    search(name, false);
  for (const char* name : {"bucketize.Tensor", "bucketize.Tensor_out", "bucketize.Scalar"})
    search(name, true);
  add_native(schema_of("isin.Tensor_Tensor_out"), std::make_unique<IsIn>());
  add_native(schema_of("bincount"), std::make_unique<Bincount>());
  for (const char* name : {"histc", "histc.out"}) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Histogram>(*op));
  }
  add_native(schema_of("nonzero"), std::make_unique<Nonzero>());
  add_native(schema_of("masked_select"), std::make_unique<MaskedSelect>());
  add_native(schema_of("masked_scatter_"), std::make_unique<MaskedScatter>());
  add_unique();
  add_native(schema_of("roll"), std::make_unique<Roll>());
  add_native(schema_of("linspace.out"), std::make_unique<Linspace>());
  add_native(schema_of("multinomial"), std::make_unique<Multinomial>());
}

} // namespace chorus
