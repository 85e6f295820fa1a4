#include "aten/tensor_aliases.h"

#include <cstring>

#include <ATen/core/TensorBase.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include "aten/elements.h"
#include "aten/factory_ops.h"
#include "aten/layouts.h"
#include "aten/sparse.h"
#include "memory/allocator.h"
#include "memory/cpu_allocator.h"
#include "memory/staging.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

// borrows says whether a CPU storage has memory that it doesn't own.
bool borrows(const c10::Storage& s) {
  return bytes_of(s) && !s.data_ptr().get_context();
}

// end ends a loan, to which this is the caller's last reference.
void end(const c10::Storage& lent) {
  if (lent.use_count() == 1 || !borrows(lent))
    return;
  c10::DataPtr own = c10::GetCPUAllocator()->allocate(lent.nbytes());
  std::memcpy(own.get(), bytes_of(lent), lent.nbytes());
  lent.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(own));
}

} // namespace

TensorAliases::TensorAliases(DeviceIndex index, c10::DeviceType kind)
    : index_(index), kind_(kind), staged_(kind == c10::DeviceType::CPU && !chorus::device(index).views) {}

// adopt turns the memory of a CPU storage into device memory. It copies only memory that the device hasn't allocated.
c10::DataPtr TensorAliases::adopt(const c10::Storage& host) {
  size_t n = host.nbytes();
  if (kind_ == c10::DeviceType::Meta) {
    return n == 0 ? c10::DataPtr(nullptr, c10::Device(kType, index_))
                  : device_memory(new_block(index_, current_handle(index_), n));
  }
  const void* data = host.data();
  if (!data || n == 0)
    return c10::DataPtr(nullptr, c10::Device(kType, index_));
  if (Block* block = block_behind(host.data_ptr())) {
    block->references++;
    return device_memory(block, static_cast<const char*>(data) - block->view);
  }
  c10::DataPtr made = device_memory(new_block(index_, current_handle(index_), n));
  if (staged_)
    stage(index_, current_handle(index_), made.get(), data, n);
  else
    std::memcpy(block_of(made)->view, data, n);
  return made;
}

c10::Storage TensorAliases::host(const c10::Storage& storage) {
  for (const Shared& s : storages_)
    if (s.device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl())
      return s.host;
  size_t n = storage.nbytes();
  bool meta = kind_ == c10::DeviceType::Meta;
  void* view = meta || staged_ ? nullptr : view_of(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), n);
  c10::Allocator* allocator = meta ? c10::GetAllocator(c10::DeviceType::Meta) : view_allocator();
  c10::Storage made(
      c10::Storage::use_byte_size_t(), n, c10::DataPtr(view, c10::Device(kind_)), allocator, /*resizable=*/true);
  storages_.push_back({storage, made, view, false});
  return made;
}

at::Tensor TensorAliases::host(const at::Tensor& tensor) {
  c10::TensorImpl* from = tensor.unsafeGetTensorImpl();
  if (is_sparse(tensor) && kind_ == c10::DeviceType::CPU) {
    for (const Pair& p : sparse_)
      if (p.device.unsafeGetTensorImpl() == from)
        return p.host;
    at::Tensor made = with_parts(tensor, [&](const at::Tensor& part) { return host(part); });
    sparse_.push_back({tensor, made});
    return made;
  }
  for (const Pair& p : tensors_)
    if (p.device.unsafeGetTensorImpl() == from)
      return p.host;
  c10::DispatchKey key = kind_ == c10::DeviceType::Meta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
  at::Tensor made = stand_in(tensor, from->has_storage() ? host(from->storage()) : c10::Storage(), key);
  tensors_.push_back({tensor, made});
  return made;
}

c10::Storage TensorAliases::device(const c10::Storage& storage) {
  for (const Shared& s : storages_)
    if (s.host.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl())
      return s.device;
  c10::Storage made(
      c10::Storage::use_byte_size_t(), storage.nbytes(), adopt(storage), device_allocator(), /*resizable=*/true);
  storages_.push_back({made, storage, storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get(), true});
  return made;
}

at::Tensor TensorAliases::device(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kind_)
    return tensor;
  c10::TensorImpl* from = tensor.unsafeGetTensorImpl();
  if (is_sparse(tensor) && kind_ == c10::DeviceType::CPU) {
    for (const Pair& p : sparse_)
      if (p.host.unsafeGetTensorImpl() == from)
        return p.device;
    at::Tensor made = with_parts(tensor, [&](const at::Tensor& part) { return device(part); });
    sparse_.push_back({made, tensor});
    return made;
  }
  for (const Pair& p : tensors_)
    if (p.host.unsafeGetTensorImpl() == from)
      return p.device;
  TORCH_CHECK_NOT_IMPLEMENTED(
      from->has_storage() && from->layout() == c10::Layout::Strided, name(), " tensors are strided, not ",
      from->layout(), " as the result");
  c10::Storage storage = device(from->storage());
  // A view of an ordinary tensor stays ordinary in inference mode, and a view of an inference tensor stays one outside.
  std::optional<c10::InferenceMode> mode;
  for (const Pair& p : tensors_)
    if (p.device.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      if (p.device.is_inference() != c10::InferenceMode::is_enabled())
        mode.emplace(p.device.is_inference());
      break;
    }
  at::Tensor made = stand_in(tensor, std::move(storage), c10::DispatchKey::PrivateUse1);
  tensors_.push_back({made, tensor});
  return made;
}

void TensorAliases::fetch() {
  if (!staged_)
    return;
  std::vector<Reach> reaches(storages_.size(), Reach{SIZE_MAX, 0});
  for (const Pair& p : tensors_) {
    Reach r = reach_of(p.host.unsafeGetTensorImpl());
    for (size_t i = 0; i < storages_.size(); i++)
      if (r.to > r.from && p.host.storage().unsafeGetStorageImpl() == storages_[i].host.unsafeGetStorageImpl())
        reaches[i] = {std::min(reaches[i].from, r.from), std::max(reaches[i].to, r.to)};
  }
  for (size_t i = 0; i < storages_.size(); i++) {
    Shared& s = storages_[i];
    if (s.device.nbytes() == 0)
      continue;
    s.host.set_data_ptr_noswap(c10::GetCPUAllocator()->allocate(s.device.nbytes()));
    s.data = bytes_of(s.host);
    Reach r = reaches[i];
    TORCH_CHECK(r.to <= s.device.nbytes(), "a tensor of ", name(), " reaches beyond its storage's end");
    if (r.to > r.from)
      stage(
          index_, current_handle(index_), bytes_of(s.host) + r.from, bytes_of(s.device) + r.from, r.to - r.from);
  }
}

void TensorAliases::wrote(const at::Tensor& tensor) {
  if (staged_ && tensor.defined() && is_sparse(tensor)) {
    for (const at::Tensor& part : sparse_parts(tensor))
      wrote(part);
    return;
  }
  for (size_t i = 0; staged_ && i < tensors_.size(); i++)
    if (tensors_[i].device.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl())
      written_.push_back(i);
}

void TensorAliases::settle(Shared& s) {
  c10::StorageImpl *host = s.host.unsafeGetStorageImpl(), *device = s.device.unsafeGetStorageImpl();
  void* data = host->_mutable_data_ptr_no_checks().get();
  if (data == s.data && host->nbytes() == device->nbytes())
    return;
  if (kind_ == c10::DeviceType::Meta) {
    resize_bytes(device, host->nbytes());
    return;
  }
  if (staged_ && !s.made) { // the host has only a part of it
    c10::DataPtr memory(nullptr, c10::Device(kType, index_));
    size_t kept = std::min(device->nbytes(), host->nbytes());
    if (host->nbytes() > 0)
      memory = device_memory(new_block(index_, current_handle(index_), host->nbytes()));
    if (kept > 0)
      stage(index_, current_handle(index_), memory.get(), bytes_of(s.device), kept);
    device->set_data_ptr_noswap(std::move(memory));
  } else if (data != s.data) {
    device->set_data_ptr_noswap(adopt(s.host));
  }
  s.data = data;
  device->set_nbytes(host->nbytes());
}

// settle gives a sparse tensor of the device the parts of the one that stands for it, unless they are its own already.
void TensorAliases::settle(Pair& sparse) {
  auto now = sparse_parts(sparse.host), before = sparse_parts(sparse.device);
  std::array<at::Tensor, 3> made;
  bool changed = sparse.host.sizes() != sparse.device.sizes();
  for (size_t i = 0; i < now.size(); i++) {
    if (!now[i].defined())
      continue;
    c10::Storage storage = device(now[i].storage());
    bool same = storage.unsafeGetStorageImpl() == before[i].storage().unsafeGetStorageImpl() &&
        now[i].sizes() == before[i].sizes() && now[i].strides() == before[i].strides() &&
        now[i].storage_offset() == before[i].storage_offset();
    made[i] = same ? before[i] : device(now[i]);
    changed = changed || !same;
  }
  if (!changed && (!sparse.host.is_sparse() || sparse.host.is_coalesced() == sparse.device.is_coalesced()))
    return;
  become_sparse(sparse.device, sparse.host, made);
}

void TensorAliases::settle() {
  for (size_t i = 0; i < storages_.size(); i++)
    settle(storages_[i]);
  for (size_t i = 0; i < tensors_.size(); i++) {
    c10::TensorImpl *host = tensors_[i].host.unsafeGetTensorImpl(), *to = tensors_[i].device.unsafeGetTensorImpl();
    c10::Storage now = device(host->storage());
    if (now.unsafeGetStorageImpl() != to->storage().unsafeGetStorageImpl())
      to->set_storage_keep_dtype(std::move(now));
    if (nested(host))
      continue;
    requantize(tensors_[i].device, tensors_[i].host);
    if (host->sizes() != to->sizes() || host->strides() != to->strides() ||
        host->storage_offset() != to->storage_offset())
      to->set_sizes_and_strides(host->sizes(), host->strides(), host->storage_offset());
    if (host->is_conj() != to->is_conj()) // as linalg_lu_solve does to a given result
      to->_set_conj(host->is_conj());
    if (host->is_neg() != to->is_neg())
      to->_set_neg(host->is_neg());
  }
  for (Pair& p : sparse_)
    settle(p);
  for (size_t i : written_)
    send_elements(index_, tensors_[i].host, tensors_[i].device);
}

at::Tensor Loans::lend(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !borrows(tensor.storage()))
    return tensor;
  const c10::Storage& from = tensor.storage();
  for (const Loan& l : lent_)
    if (l.from.unsafeGetStorageImpl() == from.unsafeGetStorageImpl())
      return stand_in(tensor, l.to, c10::DispatchKey::CPU);
  c10::Storage to(
      c10::Storage::use_byte_size_t(), from.nbytes(), c10::DataPtr(bytes_of(from), c10::Device(c10::DeviceType::CPU)),
      view_allocator(), /*resizable=*/true);
  lent_.push_back({from, to});
  return stand_in(tensor, std::move(to), c10::DispatchKey::CPU);
}

void Loans::over() {
  auto lent = std::move(lent_);
  lent_.clear();
  TensorAliases* aliases = std::exchange(aliases_, nullptr);
  for (const Loan& l : lent)
    end(l.to);
  if (!aliases)
    return;
  aliases->tensors_.clear();
  aliases->sparse_.clear();
  for (const TensorAliases::Shared& s : aliases->storages_)
    end(s.host);
}

Loans::~Loans() {
  try {
    over();
  } catch (const std::exception&) {
    // There's no memory for a copy of what a failed call has kept.
  }
}

} // namespace chorus
