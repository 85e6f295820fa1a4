// Fourier transforms by a library of the device's: cuFFT, hipFFT or clFFT. Where there's none, and for what it doesn't
// do, PyTorch's CPU kernel computes them.
#include "native/native.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/view_as_real.h>

#include "native/checks.h"
#include "native/copy.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

using Dims = at::DimVector;

// Transforms are those of a device.
class Transforms {
 public:
  explicit Transforms(DeviceIndex index) : index_(index) {
    info_.size = sizeof info_;
    if (lib.fft_get(device(index).handle, &info_) != CHORUS_OK)
      info_.dims = 0;
  }

  bool there() const {
    return info_.dims > 0;
  }

  // complex transforms dimensions of complex numbers. Results have the strides of the CPU's. An undefined tensor: the
  // library doesn't do it.
  at::Tensor complex(const at::Tensor& in, at::IntArrayRef dims, bool inverse) const {
    Dims sorted = by_strides(in, dims, dims.size());
    size_t most = size_t(info_.dims);
    if (sorted.size() <= most)
      return one(in, in.sizes(), sorted, CHORUS_COMPLEX_TO_COMPLEX, inverse, true);
    auto rest = at::IntArrayRef(sorted).slice(0, sorted.size() - most);
    auto inner = at::IntArrayRef(sorted).slice(rest.size());
    at::Tensor last = one(in, in.sizes(), inner, CHORUS_COMPLEX_TO_COMPLEX, inverse, true);
    return last.defined() ? as_result(complex(last, rest, inverse), in, sorted) : last;
  }

  // from_real transforms real numbers. Of the last dimension the result has the first half, or all.
  at::Tensor from_real(const at::Tensor& in, at::IntArrayRef dims, bool half) const {
    Dims sorted = by_strides(in, dims, dims.size() - 1);
    size_t most = size_t(info_.dims);
    Dims sizes(in.sizes());
    int64_t last = dims.back(), n = sizes[size_t(last)];
    if (half)
      sizes[size_t(last)] = n / 2 + 1;
    at::Tensor out;
    if (sorted.size() <= most) {
      out = one(in, sizes, sorted, CHORUS_REAL_TO_COMPLEX, false, false);
    } else {
      auto rest = at::IntArrayRef(sorted).slice(0, sorted.size() - most);
      out = one(in, sizes, at::IntArrayRef(sorted).slice(rest.size()), CHORUS_REAL_TO_COMPLEX, false, false);
      if (out.defined() && !half) // of which the second half isn't there yet
        mirror(out, at::IntArrayRef(sorted).slice(rest.size()));
      if (out.defined())
        out = as_result(complex(out, rest, false), in, sorted);
      return out;
    }
    if (out.defined() && !half)
      mirror(out, dims);
    return out;
  }

  // to_real is the inverse transform of a half of complex numbers to n real ones.
  at::Tensor to_real(const at::Tensor& in, at::IntArrayRef dims, int64_t n) const {
    at::Tensor from = in;
    if (dims.size() > 1)
      from = complex(in, dims.slice(0, dims.size() - 1), true);
    if (!from.defined())
      return from;
    Dims sizes(in.sizes());
    sizes[size_t(dims.back())] = n;
    return one(from, sizes, dims.slice(dims.size() - 1), CHORUS_COMPLEX_TO_REAL, true, !from.is_same(in));
  }

 private:
  // by_strides sorts the first dimensions as PyTorch does, the largest strides first.
  static Dims by_strides(const at::Tensor& t, at::IntArrayRef dims, size_t sorted) {
    Dims d(dims);
    auto larger = [&](int64_t a, int64_t b) { return t.stride(a) > t.stride(b); };
    std::sort(d.begin(), d.begin() + ptrdiff_t(sorted), larger);
    return d;
  }

  // order is the order of dimensions in the result's memory: others by their strides, then the transformed ones.
  static Dims order(const at::Tensor& in, at::IntArrayRef dims) {
    Dims all(size_t(in.dim()));
    std::iota(all.begin(), all.end(), int64_t(0));
    auto end = std::partition(all.begin(), all.end(), [&](int64_t d) {
      return std::find(dims.begin(), dims.end(), d) == dims.end();
    });
    std::sort(all.begin(), end, [&](int64_t a, int64_t b) { return in.stride(a) > in.stride(b); });
    std::copy(dims.begin(), dims.end(), end);
    return all;
  }

  // result is memory for a result of some sizes. With MKL the CPU's has dimensions in an order.
  static at::Tensor result(at::IntArrayRef sizes, at::IntArrayRef order, at::TensorOptions options) {
    return at::hasMKL() ? ordered(sizes, order, options) : at::empty(sizes, options);
  }

  // ordered is memory whose dimensions lie in an order.
  static at::Tensor ordered(at::IntArrayRef sizes, at::IntArrayRef order, at::TensorOptions options) {
    Dims strides(sizes);
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0; step *= sizes[size_t(order[i])])
      strides[size_t(order[i])] = step;
    return at::empty_strided(sizes, strides, options);
  }

  // as_result is a tensor with the strides that the result of one transform would have.
  static at::Tensor as_result(at::Tensor t, const at::Tensor& in, at::IntArrayRef dims) {
    if (!t.defined())
      return t;
    at::Tensor out = result(t.sizes(), order(in, dims), t.options());
    return out.strides() == t.strides() ? t : out.copy_(t);
  }

  // batch joins dimensions into one, of a number of transforms and the distance between them. It returns false if they
  // have no common one.
  static bool batch(const at::Tensor& t, at::IntArrayRef dims, int64_t& count, int64_t& next) {
    count = 1, next = 0;
    for (size_t i = dims.size(); i-- > 0;) {
      int64_t size = t.size(dims[i]), stride = t.stride(dims[i]);
      if (size == 1)
        continue;
      if (stride < 1 || (count > 1 && stride != next * count))
        return false;
      if (count == 1)
        next = stride;
      count *= size;
    }
    return true;
  }

  // nested says whether each dimension's stride is a multiple of the next one's, and reaches beyond its elements.
  static bool nested(const at::Tensor& t, at::IntArrayRef dims) {
    int64_t inner = 0, sizes = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      int64_t size = t.size(dims[i]), stride = t.stride(dims[i]);
      if (stride < 1 || (inner > 0 && (stride % inner != 0 || stride < inner * sizes)))
        return false;
      inner = stride, sizes = size;
    }
    return true;
  }

  bool aligned(const at::Tensor& t) const {
    return uintptr_t(t.const_data_ptr()) % uintptr_t(info_.align) == 0;
  }

  // one is a transform of the library, to a new tensor.
  at::Tensor one(
      const at::Tensor& in, at::IntArrayRef sizes, at::IntArrayRef dims, int32_t kind, bool inverse,
      bool may_spoil) const {
    c10::ScalarType type = kind == CHORUS_COMPLEX_TO_REAL ? c10::toRealValueType(in.scalar_type())
                                                          : c10::toComplexType(in.scalar_type());
    Dims places = order(in, dims);
    at::IntArrayRef others = at::IntArrayRef(places).slice(0, places.size() - dims.size());
    at::Tensor out = result(sizes, places, in.options().dtype(type));
    if (out.numel() == 0)
      return out;
    at::Tensor from = in;
    int64_t count, in_next, out_count, out_next;
    bool spoils = kind == CHORUS_COMPLEX_TO_REAL || (kind == CHORUS_REAL_TO_COMPLEX && info_.spoils);
    if (!batch(in, others, count, in_next) || !nested(in, dims) || !aligned(in) || (spoils && !may_spoil)) {
      from = ordered(in.sizes(), places, in.options());
      from.copy_(in);
      batch(from, others, count, in_next);
    }
    at::Tensor to = out;
    if (!batch(out, others, out_count, out_next) || !nested(out, dims)) { // without MKL's strides
      to = ordered(sizes, places, out.options());
      batch(to, others, out_count, out_next);
    }
    c10::SmallVector<chorus_fft_dim, 4> list;
    for (int64_t d : dims) {
      chorus_fft_dim x{std::max(from.size(d), to.size(d)), from.stride(d), to.stride(d)};
      list.push_back(x);
    }
    if (kind == CHORUS_COMPLEX_TO_REAL)
      list.back().size = sizes[size_t(dims.back())];
    if (kind == CHORUS_REAL_TO_COMPLEX)
      list.back().size = in.size(dims.back());
    chorus_fft t{};
    t.size = sizeof t;
    t.kind = kind;
    t.dtype = dtype_of(c10::toRealValueType(in.scalar_type()));
    t.inverse = inverse;
    t.dims = int32_t(list.size());
    t.dim = list.data();
    t.in = const_cast<void*>(from.const_data_ptr());
    t.out = to.mutable_data_ptr();
    t.count = count, t.in_next = in_next, t.out_next = out_next;
    chorus_status status = lib.fft_run(current_handle(index_), &t);
    if (status == CHORUS_UNSUPPORTED)
      return at::Tensor();
    check(status);
    return to.is_same(out) ? out : out.copy_(to);
  }

  // mirror sets the second half of the last dimension of a transform of real numbers, by its symmetry.
  static void mirror(const at::Tensor& out, at::IntArrayRef dims) {
    int64_t last = dims.back(), n = out.size(last), half = n / 2 + 1;
    if (half >= n || out.numel() == 0)
      return;
    at::Tensor from = at::flip(out.narrow(last, 1, n - half), dims);
    for (int64_t d : dims.slice(0, dims.size() - 1)) // place 0 is its own opposite
      from = at::roll(from, 1, d);
    out.narrow(last, half, n - half).copy_(from.conj());
  }

  DeviceIndex index_;
  chorus_fft_info info_{};
};

// scale multiplies by PyTorch's factor: 1 by the root of the number of elements, or by the number.
bool scale(const at::Tensor& out, int64_t normalization, double n) {
  if (normalization == 0)
    return true;
  if (normalization != 1 && normalization != 2)
    return false;
  (out.is_complex() ? at::view_as_real(out) : out).mul_(normalization == 1 ? 1 / std::sqrt(n) : 1 / n);
  return true;
}

enum class Transform { kComplex, kFromReal, kToReal };

class Fft final : public Native {
 public:
  explicit Fft(Transform form) : form_(form) {}

  // (self, dim, normalization, forward or onesided or last_dim_size, out)
  bool run(NativeCall& call) const override {
    const at::Tensor& in = call.arguments[0].toTensor();
    Dims dims = call.arguments[1].toDimVector();
    int64_t normalization = call.arguments[2].toInt();
    c10::ScalarType type = in.scalar_type();
    if (in.is_cpu() || dims.empty() || normalization < 0 || normalization > 2 ||
        (form_ == Transform::kFromReal ? type != at::kFloat && type != at::kDouble
                                       : type != at::kComplexFloat && type != at::kComplexDouble))
      return false;
    for (size_t i = 0; i < dims.size(); i++)
      if (!wrapped(dims[i], in.dim()) || in.size(dims[i]) < 1 ||
          std::find(dims.begin(), dims.begin() + ptrdiff_t(i), dims[i]) != dims.begin() + ptrdiff_t(i))
        return false;
    Transforms library(call.index);
    if (!library.there())
      return false;
    double n = 1;
    for (int64_t d : dims)
      n *= double(in.size(d));
    at::Tensor out;
    switch (form_) {
      case Transform::kComplex:
        out = library.complex(in, dims, !call.arguments[3].toBool());
        break;
      case Transform::kFromReal:
        out = library.from_real(in, dims, call.arguments[3].toBool());
        break;
      case Transform::kToReal: {
        int64_t size = call.arguments[3].toInt();
        if (size < 1 || in.size(dims.back()) < size / 2 + 1)
          return false;
        n = n / double(in.size(dims.back())) * double(size);
        at::Tensor half = in.narrow(dims.back(), 0, size / 2 + 1);
        out = library.to_real(half, dims, size);
        break;
      }
    }
    if (!out.defined() || !scale(out, normalization, n))
      return false;
    if (call.arguments.size() > 4) {
      const at::Tensor& given = call.arguments[4].toTensor();
      if (!given_result(given) || given.scalar_type() != out.scalar_type() ||
          (given.sizes() != out.sizes() && given.numel() > 0))
        return false;
      if (given.sizes() != out.sizes())
        given.resize_(out.sizes());
      if (!copy_native(call.index, out, given))
        return false;
      out = given;
    }
    call.results.push_back(std::move(out));
    return true;
  }

 private:
  const Transform form_;
};

} // namespace

void add_transforms() {
  auto add = [](const char* name, Transform form) {
    add_native(schema_of(name), std::make_unique<Fft>(form));
    add_native(schema_of(std::string(name) + ".out"), std::make_unique<Fft>(form));
  };
  add("_fft_c2c", Transform::kComplex);
  add("_fft_r2c", Transform::kFromReal);
  add("_fft_c2r", Transform::kToReal);
}

} // namespace chorus
