#include "aten/elements.h"

#include <algorithm>
#include <utility>

#include "aten/factory_ops.h"
#include "aten/layouts.h"
#include "memory/staging.h"
#include "native/copy.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

using Lines = c10::SmallVector<std::pair<int64_t, int64_t>, 8>; // strides and sizes

// lines_of are a tensor's dimensions of more than one element, those of small strides first.
Lines lines_of(const c10::TensorImpl* t) {
  Lines dims;
  for (int64_t d = 0; d < t->dim(); d++)
    if (t->sizes()[d] > 1)
      dims.push_back({t->strides()[d], t->sizes()[d]});
  std::sort(dims.begin(), dims.end());
  return dims;
}

// distinct says that each element of a tensor has memory of its own: each stride is beyond all that the smaller ones
// reach. It's false of some others.
bool distinct(const c10::TensorImpl* t) {
  int64_t reach = 1;
  for (auto [stride, size] : lines_of(t)) {
    if (stride < reach)
      return false;
    reach += stride * (size - 1);
  }
  return true;
}

// each_run calls f for each part of a tensor's elements that lie in memory one after another: where in the storage, and
// how many, in elements.
template <typename F>
void each_run(const c10::TensorImpl* t, F f) {
  Lines dims = lines_of(t);
  int64_t run = 1, runs = 1;
  auto others = dims.begin();
  for (; others != dims.end() && others->first == run; others++)
    run *= others->second;
  for (auto d = others; d != dims.end(); d++)
    runs *= d->second;
  for (int64_t n = 0; n < runs; n++) {
    int64_t at = t->storage_offset(), rest = n;
    for (auto d = others; d != dims.end(); rest /= d->second, d++)
      at += rest % d->second * d->first;
    f(at, run);
  }
}

// bits is a tensor of integers, or pairs of numbers, over the elements of another one, as wide as they are.
at::Tensor bits(const at::Tensor& of, c10::ScalarType type) {
  c10::TensorImpl* t = of.unsafeGetTensorImpl();
  c10::DispatchKey key = of.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(of.storage()), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(type));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(t->sizes(), t->strides(), t->storage_offset());
  return made;
}

// send_by_kernel sends elements to memory of their own, from which a kernel copies. It returns false if none covers it.
bool send_by_kernel(DeviceIndex index, const at::Tensor& host, const at::Tensor& device) {
  static constexpr std::pair<size_t, c10::ScalarType> types[] = {
      {1, at::kByte}, {2, at::kShort}, {4, at::kInt}, {8, at::kLong}, {16, at::kComplexDouble}};
  for (auto [width, type] : types) {
    if (host.itemsize() != width || !has_natives() || !distinct(device.unsafeGetTensorImpl()))
      continue;
    at::Tensor packed = bits(host, type).contiguous(), sent = empty(host.sizes(), type, index);
    stage(index, current_handle(index), bytes_of(sent.storage()), packed.const_data_ptr(), packed.nbytes());
    return copy_native(index, sent, bits(device, type));
  }
  return false;
}

} // namespace

Reach reach_of(const c10::TensorImpl* t) {
  if (nested(t))
    return {0, t->storage().nbytes()};
  if (t->numel() == 0)
    return {0, 0};
  int64_t last = t->storage_offset();
  for (int64_t d = 0; d < t->dim(); d++)
    last += (t->sizes()[d] - 1) * t->strides()[d];
  size_t size = t->dtype().itemsize();
  return {size_t(t->storage_offset()) * size, size_t(last + 1) * size};
}

char* bytes_of(const c10::Storage& s) {
  return static_cast<char*>(s.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
}

void send_elements(DeviceIndex index, const at::Tensor& host, const at::Tensor& device) {
  const c10::TensorImpl* t = host.unsafeGetTensorImpl();
  char *to = bytes_of(device.storage()), *from = bytes_of(host.storage());
  auto send = [&](size_t at, size_t bytes) { stage(index, current_handle(index), to + at, from + at, bytes); };
  if (Reach r = reach_of(t); r.to <= r.from)
    return;
  else if (nested(t) || t->is_non_overlapping_and_dense())
    send(r.from, r.to - r.from);
  else if (size_t size = t->dtype().itemsize(); !send_by_kernel(index, host, device))
    each_run(t, [&](int64_t at, int64_t n) { send(size_t(at) * size, size_t(n) * size); });
}

} // namespace chorus
