// Averages of windows of integers, by sums of slices: the kernels of pools have floating-point weights.
#include "native/averages.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace chorus {

namespace {

// window_counts are the numbers of elements in a dimension's windows, of which there are n, at least 1.
at::Tensor window_counts(int64_t n, int64_t in, int64_t window, int64_t stride, int64_t padding, bool padded,
                  const at::TensorOptions& options) {
  at::Tensor from = at::arange(n, options).mul_(stride).sub_(padding), to = from + window;
  if (padded)
    return to.clamp_max_(in + padding).sub_(from);
  return to.clamp_max_(in).sub_(from.clamp_min_(0)).clamp_min_(1);
}

} // namespace

bool average_whole(const at::Tensor& self, at::Tensor& out, const AverageWindows& w) {
  int space = int(w.window.size());
  if (w.divisor && *w.divisor == 0)
    return false; // the CPU's kernel has the error
  at::DimVector sizes(self.sizes());
  at::Tensor part = self;
  for (int k = 0; k < space; k++) {
    int64_t d = self.dim() - space + k;
    size_t i = size_t(k);
    int64_t n = (out.size(d) - 1) * w.stride[i] + w.window[i];
    sizes[size_t(d)] = n;
    part = part.narrow(d, 0, std::min(self.size(d), n - w.padding[i])); // a window may leave out the end
  }
  at::Tensor sum = at::zeros(sizes, self.options()), into = sum;
  for (int k = 0; k < space; k++)
    into = into.narrow(self.dim() - space + k, w.padding[size_t(k)], part.size(self.dim() - space + k));
  into.copy_(part);
  at::Tensor number = at::full({1}, w.divisor.value_or(1), self.options());
  for (int k = 0; k < space; k++) {
    int64_t d = self.dim() - space + k, n = out.size(d);
    size_t i = size_t(k);
    auto slice = [&](int64_t from) { return sum.slice(d, from, from + (n - 1) * w.stride[i] + 1, w.stride[i]); };
    at::Tensor line = slice(0).clone();
    for (int64_t from = 1; from < w.window[i]; from++)
      line.add_(slice(from));
    sum = line;
    if (w.divisor)
      continue;
    at::DimVector shape(size_t(space), 1);
    shape[i] = n;
    number = number *
        window_counts(n, self.size(d), w.window[i], w.stride[i], w.padding[i], w.padded, self.options()).view(shape);
  }
  out.copy_(at::div(sum, number, "trunc"));
  return true;
}

} // namespace chorus
