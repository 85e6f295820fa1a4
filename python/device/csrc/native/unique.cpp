// Operators that take each element, or each slice, once.
#include "native/kernels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "native/checks.h"
#include "native/order.h"

namespace chorus {

namespace {

// Runs are equal elements that follow each other.
class Runs {
 public:
  // starts says of each element of a line whether it's the first one of its run.
  bool starts(DeviceIndex index, const at::Tensor& line, at::Tensor& out) const {
    out = at::empty(line.sizes(), line.options().dtype(at::kBool));
    return kernels::Starts{.out = out, .in = line}.run(index);
  }

  // places are where the runs begin.
  bool places(DeviceIndex index, const at::Tensor& starts, at::Tensor& out) const {
    at::Tensor all = at::empty({found(starts), 1}, starts.options().dtype(at::kLong));
    out = all.select(1, 0);
    return kernels::Nonzero{.out = all, .in = starts}.run(index);
  }

  // numbers are those of each element's run, which was at another place if order is defined.
  bool numbers(
      DeviceIndex index, const at::Tensor& starts, const at::Tensor& order, const at::TensorOptions& options,
      at::Tensor& out) const {
    out = at::empty(starts.sizes(), options.dtype(at::kLong));
    return kernels::Inverse{.out = out, .starts = starts, .order = order}.run(index);
  }

  // lengths are those of runs that begin at these places, of n elements.
  bool lengths(DeviceIndex index, const at::Tensor& at, int64_t n, at::Tensor& out) const {
    out = at::empty(at.sizes(), at.options());
    return kernels::Lengths{.out = out, .places = at, .elements = n}.run(index);
  }
};

// Slices are unique_dim(self, dim, sorted, return_inverse, return_counts), unique_dim_consecutive, or
// unique_consecutive with a dim: the different slices along a dimension. They are sorted by each of their elements, from
// the last one on.
class Slices final : public Native {
 public:
  Slices(bool sorts, const c10::OperatorHandle& op) : sorts_(sorts), dim_(FormArguments(op.schema()).named("dim")) {}

  bool run(NativeCall& call) const override {
    const at::Tensor& self = call.arguments[0].toTensor();
    int64_t dim = call.arguments[size_t(dim_)].toInt();
    if (!in_order(self) || self.numel() == 0 || !wrapped(dim, self.dim()))
      return false;
    int64_t n = self.size(dim), elements = self.numel() / n;
    if (sorts_ && elements > kMostSorts)
      return false;
    at::Tensor first = self.movedim(dim, 0), slices = first.reshape({n, elements}), order;
    for (int64_t k = elements - 1; sorts_ && k >= 0; k--) {
      at::Tensor line = slices.select(1, k), values, places;
      line = order.defined() ? line.index_select(0, order) : line.contiguous();
      if (!ordered(call.index, line, values, &places))
        return false;
      order = order.defined() ? order.index_select(0, places) : places;
    }
    if (order.defined())
      slices = slices.index_select(0, order);
    at::Tensor starts = at::ones({n}, self.options().dtype(at::kBool));
    if (n > 1)
      starts.slice(0, 1).copy_(slices.slice(0, 1).ne(slices.slice(0, 0, n - 1)).any(1));
    at::Tensor at, numbers, lengths;
    if (!runs_.places(call.index, starts, at) || !runs_.numbers(call.index, starts, order, self.options(), numbers) ||
        !runs_.lengths(call.index, at, n, lengths))
      return false;
    at::DimVector sizes(first.sizes());
    sizes[0] = at.numel();
    call.results = {slices.index_select(0, at).view(sizes).movedim(0, dim), numbers, lengths};
    return true;
  }

 private:
  static constexpr int64_t kMostSorts = 64; // of longer slices the CPU's comparisons cost less

  const Runs runs_{};
  const bool sorts_;
  const int dim_;
};

// Unique is _unique2(self, sorted, return_inverse, return_counts), _unique, which has no counts, or unique_consecutive.
class Unique final : public Native {
 public:
  Unique(bool sorts, const c10::OperatorHandle& op)
      : sorts_(sorts),
        where_(op.schema()),
        inverse_(where_.named("return_inverse")),
        counts_(where_.named("return_counts")),
        dim_(where_.named("dim")),
        slices_(false, op) {}

  bool run(NativeCall& call) const override {
    const auto& a = call.arguments;
    const at::Tensor& self = a[0].toTensor();
    if (dim_ >= 0 && !a[dim_].isNone())
      return slices_.run(call);
    if (!in_order(self) || self.numel() == 0)
      return false;
    bool inverse = a[inverse_].toBool(), counts = counts_ >= 0 && a[counts_].toBool();
    at::Tensor line = self.reshape({-1}).contiguous(), order;
    if (sorts_ && !ordered(call.index, at::Tensor(line), line, inverse ? &order : nullptr))
      return false;
    at::TensorOptions index = self.options().dtype(at::kLong);
    at::Tensor starts, numbers = at::empty({0}, index), lengths = at::empty({0}, index), values;
    if (!runs_.starts(call.index, line, starts))
      return false;
    int64_t n = found(starts);
    if (!selected(call.index, line, starts, n, values))
      return false;
    if (inverse) {
      if (!runs_.numbers(call.index, starts, order, self.options(), numbers))
        return false;
      numbers = numbers.view(self.sizes());
    }
    at::Tensor at;
    if (counts && (!runs_.places(call.index, starts, at) || !runs_.lengths(call.index, at, line.numel(), lengths)))
      return false;
    call.results = {values, numbers};
    if (counts_ >= 0)
      call.results.push_back(lengths);
    return true;
  }

 private:
  const Runs runs_{};
  const bool sorts_;
  const FormArguments where_;
  const int inverse_, counts_, dim_;
  const Slices slices_;
};

} // namespace

void add_unique() {
  for (const char* name : {"_unique2", "_unique", "unique_consecutive"}) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Unique>(std::string(name) != "unique_consecutive", *op));
  }
  for (const char* name : {"unique_dim", "unique_dim_consecutive"}) {
    if (auto op = schema_of(name))
      add_native(*op, std::make_unique<Slices>(std::string(name) == "unique_dim", *op));
  }
}

} // namespace chorus
