#include "aten/copy.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/contiguous_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/to_ops.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_to_copy.h>
#include <torch/library.h>

#include "aten/deferred.h"
#include "aten/factory_ops.h"
#include "aten/tensor_aliases.h"
#include "memory/cpu_allocator.h"
#include "memory/host_allocator.h"
#include "memory/staging.h"
#include "native/copy.h"
#include "native/index_errors.h"

namespace chorus {

namespace {

bool own(const at::Tensor& t) {
  return t.device().type() == kType;
}

// alike says whether two tensors have the same type, sizes, strides and conjugation, and memory without gaps.
bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg() &&
         a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

// copy_later enqueues a copy between tensors of the stream's device.
void copy_later(DeviceIndex index, chorus_stream stream, const at::Tensor& from, const at::Tensor& to) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack{to, from, false};
  defer(op, "copy", index, stream, &stack, {}); // always possible, as it returns an argument
}

// copy_in_turn copies with the CPU's kernel and all its features: types, strides, conjugates.
void copy_in_turn(DeviceIndex index, const at::Tensor& from, const at::Tensor& to) {
  chorus_stream stream = current_handle(index);
  bool touchable = device(index).views;
  const char* why = "memory of the host that isn't pinned is read or written by its caller";
  std::optional<Drained> drained;
  if (!touchable) {
    drained.emplace(stream, "copy", why);
  } else if (!try_enter(stream, "copy")) {
    if (own(from) && own(to))
      return copy_later(index, stream, from, to);
    enter(stream, "copy", why);
  }
  Turn turn(touchable ? stream : 0);
  if (own(from))
    check_indexes(index, stream);
  TensorAliases aliases(index);
  at::Tensor source = own(from) ? aliases.host(from) : from;
  at::Tensor target = own(to) ? aliases.host(to) : to;
  std::optional<Inside> inside;
  if (touchable)
    inside.emplace(index, stream);
  aliases.fetch();
  aliases.wrote(to);
  at::AutoDispatchBelowADInplaceOrView below;
  at::native::copy_(target, source);
  aliases.settle();
}

void enqueue_copy(chorus_stream stream, const at::Tensor& from, const at::Tensor& to) {
  check(lib.stream_copy(stream, to.data_ptr(), from.data_ptr(), int64_t(to.nbytes())));
}

// order makes a stream wait for all work of another one.
void order(chorus_stream later, chorus_stream earlier) {
  check(lib.stream_wait_stream(later, earlier));
}

// copy_across copies between two devices: after the work of both, on the source's stream.
void copy_across(const at::Tensor& from, const at::Tensor& to) {
  DeviceIndex there = from.device().index(), here = to.device().index();
  chorus_stream source = current_handle(there), target = current_handle(here);
  at::Tensor sent = from;
  if (!alike(from, to)) {
    Current scope(there);
    sent = at::empty_like(from, from.options().dtype(to.dtype()), c10::MemoryFormat::Contiguous);
    copy_in_turn(there, from, sent);
  }
  at::Tensor got = to;
  if (!alike(sent, to)) {
    Current scope(here);
    got = empty(to.sizes(), c10::typeMetaToScalarType(to.dtype()), here);
  }
  order(source, target);
  enqueue_copy(source, sent, got);
  order(target, source);
  if (Block* block = block_of(sent.storage().data_ptr());
      block && sent.unsafeGetTensorImpl() != from.unsafeGetTensorImpl())
    check(lib.cache_uses(device(there).handle, block->memory, source));
  if (Block* block = block_of(got.storage().data_ptr()))
    check(lib.cache_uses(device(here).handle, block->memory, source));
  if (got.unsafeGetTensorImpl() != to.unsafeGetTensorImpl())
    copy_in_turn(here, got, to);
}

// copied_by_kernel enqueues a copy within a device whose driver compiles kernels.
bool copied_by_kernel(DeviceIndex index, chorus_stream stream, const at::Tensor& from, const at::Tensor& to) {
  if (!has_natives())
    return false;
  if (!alike(from, to) || from.is_alias_of(to))
    return copy_native(index, from, to);
  enqueue_copy(stream, from, to);
  return true;
}

} // namespace

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (self.is_same(dst))
    return dst;
  at::Tensor from = self.sizes() == dst.sizes() ? self : self.expand_as(dst); // or the error of sizes that don't fit
  if (dst.numel() == 0)
    return dst;
  if (own(from) && own(dst) && from.device() != dst.device()) {
    copy_across(from, dst);
    return dst;
  }
  DeviceIndex index = own(dst) ? dst.device().index() : from.device().index();
  chorus_stream stream = current_handle(index);
  const at::Tensor& host = own(dst) ? from : dst;
  bool inside = own(from) && own(dst);
  if (inside && copied_by_kernel(index, stream, from, dst))
    return dst;
  if (alike(from, dst) && !inside && non_blocking && pinned(host.data_ptr())) {
    enqueue_copy(stream, from, dst);
    return dst;
  }
  if (alike(from, dst) && !device(index).views && !(inside && from.is_alias_of(dst))) {
    if (!inside)
      waits("copy", "memory of the host that isn't pinned is read or written");
    enqueue_copy(stream, from, dst); // the device's own copy
    if (!inside)
      await_copy(stream);
    if (!own(dst))
      check_indexes(index, stream);
    return dst;
  }
  copy_in_turn(index, from, dst);
  return dst;
}

namespace {

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

// local_scalar is PyTorch's _local_scalar_dense, by which item() reads an element: a copy to the host that waits.
at::Scalar local_scalar(const at::Tensor& self) {
  const char *name = "aten::_local_scalar_dense", *why = "the host needs its result";
  DeviceIndex index = self.device().index();
  chorus_stream stream = current_handle(index);
  Current scope(index);
  if (!device(index).views) {
    at::Tensor host = at::detail::empty_cpu({}, self.scalar_type());
    TORCH_CHECK(!capturing(stream), name, " can't be captured: ", why);
    waits(name, why);
    check(lib.stream_copy(stream, host.data_ptr(), self.const_data_ptr(), int64_t(self.element_size())));
    await_copy(stream);
    check_indexes(index, stream);
    return at::native::_local_scalar_dense_cpu(host);
  }
  if (!try_enter(stream, name))
    enter(stream, name, why);
  Turn turn(stream);
  check_indexes(index, stream);
  TensorAliases aliases(index);
  return at::native::_local_scalar_dense_cpu(aliases.host(self));
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

// A copy handles conjugates and negatives itself; PyTorch's default for operators would make a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

} // namespace chorus
