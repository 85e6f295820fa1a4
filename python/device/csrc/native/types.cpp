#include "native/types.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "aten/boxed.h"

namespace chorus {

namespace {

// combination tells apart what a kernel's choice of types depends on: types, tensors without dimensions, which count
// less in promotion, kinds of numbers, and names of modes.
uint64_t combination(c10::ArrayRef<c10::IValue> arguments) {
  uint64_t hash = 14695981039346656037u;
  auto add = [&](uint64_t x) { hash = (hash ^ x) * 1099511628211u; };
  for (const c10::IValue& v : arguments) {
    add(uint64_t(v.isTensor() ? 1 : v.isDouble() ? 2 : v.isInt() ? 3 : v.isBool() ? 4 : v.isComplexDouble() ? 5 : 6));
    if (v.isTensor() && v.toTensor().defined()) {
      const at::Tensor& t = v.toTensor();
      add(1 + uint64_t(t.scalar_type()) * 4 + (t.dim() == 0) * 2 + t.unsafeGetTensorImpl()->is_wrapped_number());
    } else if (v.isString()) {
      for (char c : v.toStringRef())
        add(uint64_t(c));
    }
  }
  return hash;
}

// small is a tensor of the CPU of a type, without elements, or with one if it has no dimensions.
at::Tensor small(const at::Tensor& t, bool out) {
  if (!t.defined() || (t.is_cpu() && !out))
    return t;
  at::TensorOptions options = at::TensorOptions(c10::kCPU).dtype(t.scalar_type());
  if (out)
    return at::empty({0}, options);
  if (t.dim() > 0)
    return at::empty(at::DimVector(size_t(t.dim()), 0), options);
  at::Tensor one = at::ones({}, options);
  one.unsafeGetTensorImpl()->set_wrapped_number(t.unsafeGetTensorImpl()->is_wrapped_number());
  return one;
}

} // namespace

bool Types::take(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  uint64_t key = combination(arguments);
  if (last_.load(std::memory_order_relaxed) == key)
    return true;
  std::lock_guard<std::mutex> lock(mutex_);
  auto [known, first] = known_.emplace(key, true);
  if (first) {
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    torch::jit::Stack stack;
    for (size_t i = 0; i < arguments.size(); i++) {
      bool out = op.schema().arguments()[i].is_out();
      stack.push_back(map_tensors(arguments[i], [&](const at::Tensor& t) { return small(t, out); }));
    }
    try {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    } catch (const c10::Error&) {
      known->second = false;
    }
  }
  if (known->second)
    last_.store(key, std::memory_order_relaxed);
  return known->second;
}

} // namespace chorus
