#include "native/jiterator.h"

#include <ATen/TensorIterator.h>

#include "native/kernels.h"
#include "runtime/stream.h"

namespace chorus {

std::vector<at::Tensor> jitted(
    const std::string& text, int64_t results, const std::vector<at::Tensor>& tensors,
    const std::vector<at::Scalar>& numbers) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(true)
      .allow_cpu_scalars(false)
      .promote_inputs_to_common_dtype(true)
      .cast_common_dtype_to_outputs(true)
      .enforce_safe_casting_to_output(true);
  for (int64_t k = 0; k < results; k++)
    config.add_owned_output(at::Tensor());
  for (const at::Tensor& t : tensors) {
    TORCH_CHECK(
        t.device().type() == kType && t.layout() == c10::Layout::Strided, "jiterator takes tensors of ", name(),
        ", not of ", t.device(), t.layout() == c10::Layout::Strided ? "" : " that aren't strided");
    config.add_owned_const_input(t.is_conj() || t.is_neg() ? t.resolve_conj().resolve_neg() : t);
  }
  DeviceIndex index = tensors.front().device().index();
  Current scope(index);
  at::TensorIterator it = config.build();
  TORCH_CHECK(dtype_of(it.common_dtype()), "jiterator has no kernels for ", it.common_dtype());
  c10::ScalarType compute = computed_in(it.common_dtype());
  kernels::Elementwise kernel{.op = kernels::Elementwise::number(text.c_str()), .compute = compute};
  for (const at::Scalar& s : numbers) {
    chorus_number n{};
    if (s.isComplex()) {
      TORCH_CHECK(c10::isComplexType(compute), "jiterator: a complex number isn't one of ", it.common_dtype());
      n.real = s.toComplexDouble().real();
      n.imag = s.toComplexDouble().imag();
    } else if (s.isFloatingPoint()) {
      n.real = s.toDouble();
    } else {
      n.is_integer = 1;
      n.integer = s.isBoolean() ? s.toBool() : s.toLong();
    }
    kernel.numbers.push_back(n);
  }
  // The iterator's dimensions begin with the innermost one, and its strides are of bytes.
  size_t dims = size_t(it.ndim());
  at::DimVector sizes(it.shape().rbegin(), it.shape().rend());
  std::vector<at::DimVector> strides(size_t(it.ntensors()), at::DimVector(dims));
  for (int k = 0; k < it.ntensors(); k++) {
    at::DimVector& to = strides[size_t(k)];
    for (size_t d = 0; d < dims; d++)
      to[dims - 1 - d] = it.strides(k)[d] / int64_t(it.element_size(k));
    if (k < it.noutputs())
      kernel.outs.emplace_back(it.data_ptr(k), it.dtype(k), sizes, to);
    else
      kernel.ins.emplace_back(it.data_ptr(k), it.dtype(k), sizes, to);
  }
  if (!kernel.run(index))
    raise(CHORUS_UNSUPPORTED); // with what the compiler says
  std::vector<at::Tensor> outs;
  for (int k = 0; k < it.noutputs(); k++)
    outs.push_back(it.output(k));
  return outs;
}

} // namespace chorus
