// Arguments and results of operators in boxed kernels.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/List.h>
#include <ATen/core/operator_name.h>

namespace chorus {

// is_aten says whether an operator is PyTorch's own, whose kernels keep no tensor beyond a call. Others may.
inline bool is_aten(const c10::OperatorName& name) {
  return name.getNamespace() == "aten";
}

inline bool has_tensors(const c10::IValue& list) {
  for (const c10::IValue& v : list.toListRef())
    if (v.isTensor())
      return true;
  return false;
}

// map_tensors is a value in which f of the tensor replaces each tensor, undefined ones included. A list keeps its type,
// which in TorchScript needn't be one of PyTorch's lists of tensors.
template <typename F>
c10::IValue map_tensors(const c10::IValue& value, F f) {
  if (value.isTensor())
    return f(value.toTensor());
  if (!value.isList() || !has_tensors(value))
    return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue& v : value.toListRef())
    list.push_back(v.isTensor() ? c10::IValue(f(v.toTensor())) : v);
  return list;
}

// each_tensor calls f with each tensor in a value.
template <typename F>
void each_tensor(const c10::IValue& value, F f) {
  if (value.isTensor())
    f(value.toTensor());
  else if (value.isList())
    for (const c10::IValue& v : value.toListRef())
      if (v.isTensor())
        f(v.toTensor());
}

} // namespace chorus
