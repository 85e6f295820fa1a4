#include "aten/layouts.h"

#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <torch/library.h>

#include "aten/copy.h"
#include "aten/factory_ops.h"
#include "aten/fallback.h"

namespace chorus {

namespace {

using at::Tensor;

// kept is a copy of a quantizer without references to memory that a TensorAliases has only borrowed.
at::QuantizerPtr kept(const at::QuantizerPtr& quantizer) {
  if (quantizer->qscheme() == at::kPerTensorAffine)
    return quantizer;
  auto* of = static_cast<at::PerChannelAffineQuantizer*>(quantizer.get()); // the others are subclasses of it
  return at::make_per_channel_affine_quantizer(
      of->scales().clone(), of->zero_points().clone(), of->axis(), of->scalar_type());
}

Tensor empty_affine_quantized(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory, double scale, int64_t zero_point,
    std::optional<c10::MemoryFormat> format) {
  Current scope(place(layout, device, pin_memory));
  TORCH_CHECK(dtype.has_value(), "a quantized tensor needs a dtype");
  auto options = c10::TensorOptions(c10::Device(kType, current())).dtype(*dtype).memory_format(format);
  return at::new_qtensor(size, options, at::make_per_tensor_affine_quantizer(scale, zero_point, *dtype));
}

Tensor empty_per_channel_affine_quantized(
    c10::IntArrayRef size, const Tensor& scales, const Tensor& zero_points, int64_t axis,
    std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout, std::optional<c10::Device> device,
    std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  Current scope(place(layout, device, pin_memory));
  TORCH_CHECK(dtype.has_value(), "a quantized tensor needs a dtype");
  auto options = c10::TensorOptions(c10::Device(kType, current())).dtype(*dtype).memory_format(format);
  return at::new_qtensor(
      size, options, at::make_per_channel_affine_quantizer(scales.cpu(), zero_points.cpu(), axis, *dtype));
}

// register_kernels registers the CPU's kernels for a kind of tensors, even for operators that PyTorch can compose of
// others. Operators that have a kernel keep it.
void register_kernels(torch::Library& m, c10::DispatchKey of_cpu, c10::DispatchKey of_device) {
  c10::Dispatcher& all = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : all.getRegistrationsForDispatchKey(of_cpu)) {
    auto op = all.findOp(name);
    if (name.getNamespace() != "aten" || !op || op->hasKernelForDispatchKey(of_device))
      continue;
    std::string short_name = c10::toString(name).substr(sizeof("aten::") - 1);
    m.impl(short_name.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

} // namespace

bool nested(const c10::TensorImpl* t) {
  return t->key_set().has(c10::DispatchKey::NestedTensor);
}

at::Tensor stand_in(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKey key) {
  c10::TensorImpl* from = tensor.unsafeGetTensorImpl();
  bool of_device = key == c10::DispatchKey::PrivateUse1, meta = key == c10::DispatchKey::Meta;
  TORCH_CHECK_NOT_IMPLEMENTED(
      from->has_storage() && from->layout() == c10::Layout::Strided &&
          !(meta && (nested(from) || from->is_quantized())),
      name(), " tensors are strided, not ", from->layout());
  if (nested(from)) {
    auto* of = at::native::get_nested_tensor_impl(tensor);
    int64_t n = int64_t(storage.nbytes() / from->dtype().itemsize());
    at::Tensor buffer =
        at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), from->dtype());
    buffer.unsafeGetTensorImpl()->set_sizes_contiguous({n});
    return at::detail::make_tensor<at::native::NestedTensorImpl>(
        buffer, of->get_nested_sizes(), of->get_nested_strides(), of->get_storage_offsets());
  }
  at::Tensor made;
  if (from->is_quantized()) {
    at::QuantizerPtr quantizer = at::get_qtensorimpl(tensor)->quantizer();
    made = at::detail::make_tensor<at::QTensorImpl>(
        std::move(storage),
        c10::DispatchKeySet(of_device ? c10::DispatchKey::QuantizedPrivateUse1 : c10::DispatchKey::QuantizedCPU),
        from->dtype(), of_device ? kept(quantizer) : quantizer);
  } else {
    made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), from->dtype());
  }
  c10::TensorImpl* to = made.unsafeGetTensorImpl();
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  if (from->is_wrapped_number())
    to->set_wrapped_number(true);
  if (from->is_conj())
    to->_set_conj(true);
  if (from->is_neg())
    to->_set_neg(true);
  return made;
}

void requantize(const at::Tensor& tensor, const at::Tensor& as) {
  if (!as.is_quantized())
    return;
  at::QTensorImpl *to = at::get_qtensorimpl(tensor), *from = at::get_qtensorimpl(as);
  if (to->quantizer() != from->quantizer())
    to->set_quantizer_(kept(from->quantizer()));
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("empty_quantized", &at::native::empty_quantized);
  m.impl("_empty_affine_quantized", &empty_affine_quantized);
  m.impl("_empty_per_channel_affine_quantized", &empty_per_channel_affine_quantized);
  register_kernels(m, c10::DispatchKey::QuantizedCPU, c10::DispatchKey::QuantizedPrivateUse1);
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_nested_tensor_size", &at::native::_nested_tensor_size); // sizes and strides are tensors of the host
  m.impl("_nested_tensor_strides", &at::native::_nested_tensor_strides);
  m.impl("_nested_tensor_storage_offsets", &at::native::_nested_tensor_storage_offsets);
  m.impl("_to_copy", &at::native::_to_copy_nested); // to other devices, too
  m.impl("copy_", &at::native::copy_nested_);
  m.impl("empty_like", &at::native::empty_like_nested);
  register_kernels(m, c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::NestedTensorPrivateUse1);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_empty_affine_quantized", &empty_affine_quantized);
  m.impl("_empty_per_channel_affine_quantized", &empty_per_channel_affine_quantized);
}

} // namespace chorus
