#include "aten/factory_ops.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "memory/allocator.h"
#include "memory/block.h"

namespace chorus {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty_memory_format(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  return empty(size, c10::dtype_or_default(dtype), place(layout, device, pin_memory), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  Current scope(place(layout, device, pin_memory));
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys, c10::dtype_or_default(dtype));
}

at::Tensor as_strided(
    const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  return at::native::view(self, size);
}

// grow enlarges a tensor's storage to the reach of its sizes and strides.
void grow(c10::TensorImpl* self) {
  if (self->numel() == 0)
    return;
  size_t bytes = at::detail::computeStorageNbytes(
      self->sizes(), self->strides(), self->dtype().itemsize(), self->storage_offset());
  if (bytes > self->storage().nbytes())
    resize_bytes(self->storage().unsafeGetStorageImpl(), bytes);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    for (int64_t n : size)
      TORCH_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", size);
    impl->set_sizes_contiguous(size);
    grow(impl);
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != c10::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage_offset(
    at::Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data())
    impl->set_sizes_and_strides(size, stride);
  else
    impl->set_sizes_contiguous(size);
  grow(impl);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source) {
  int64_t n = int64_t(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {n}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl())
    return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  Current scope(self.device().index());
  c10::Storage none(
      c10::Storage::use_byte_size_t(), 0, device_allocator()->allocate(0), device_allocator(), /*resizable=*/true);
  return set_storage_offset(self, std::move(none), 0, {0}, {});
}

// Zeros without memory, which autograd uses for zero gradients.
at::Tensor efficient_zeros(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  static auto* none = [] { // storages keep them
    auto* all = new std::vector<at::native::ZeroTensorAllocator>;
    for (DeviceIndex i = 0; i < kMostDevices; i++)
      all->emplace_back(c10::Device(kType, i));
    return all;
  }();
  return at::detail::empty_generic(
      size, &(*none)[place(layout, device, pin_memory)], kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype), std::nullopt);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  if (Block* block = block_of(self.storage().data_ptr()))
    check(lib.cache_uses(device(block->index).handle, block->memory, handle_of(stream)));
}

// compatible is the check of ``x.data = y``, and of nn.Module.to, which keeps the parameter object if it's true: a
// tensor of the CPU can become one of the device, and back.
bool compatible(const at::Tensor& self, const at::Tensor& from) {
  if (self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set()))
    return true;
  auto plain = [](const at::Tensor& t) {
    c10::DispatchKeySet keys = t.key_set();
    return (keys.has(c10::DispatchKey::CPU) || keys.has(c10::DispatchKey::PrivateUse1)) &&
        t.layout() == c10::Layout::Strided && !keys.has(c10::DispatchKey::Python);
  };
  return plain(self) && plain(from);
}

} // namespace

DeviceIndex place(
    std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  c10::Device d = device.value_or(c10::Device(kType));
  TORCH_CHECK(d.type() == kType, "expected a device of ", name(), ", not ", d);
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(c10::Layout::Strided) == c10::Layout::Strided, name(), " tensors are strided, not ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Pin memory can only be on CPU");
  return in_range(index_of(d));
}

at::Tensor empty(
    c10::IntArrayRef size, c10::ScalarType dtype, DeviceIndex index, std::optional<c10::MemoryFormat> format) {
  Current scope(index);
  return at::detail::empty_generic(size, device_allocator(), kKeys, dtype, format);
}

void resize_bytes(c10::StorageImpl* storage, size_t bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  DeviceIndex index = storage->device().index();
  Current scope(index);
  c10::DataPtr made = device_allocator()->allocate(bytes);
  size_t kept = std::min(bytes, storage->nbytes());
  if (kept > 0 && storage->data())
    check(lib.stream_copy(current_handle(index), made.get(), storage->data(), int64_t(kept)));
  storage->set_data_ptr_noswap(std::move(made));
  storage->set_nbytes(bytes);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("view", &view);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage_offset);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("record_stream", &record_stream);
  m.impl("_has_compatible_shallow_copy_type", &compatible);
  m.impl("_efficientzerotensor", &efficient_zeros);
}

} // namespace chorus
