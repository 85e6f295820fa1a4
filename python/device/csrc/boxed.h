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

// map_tensors is a value in which f of the tensor replaces each tensor, undefined ones included.
template <typename F>
c10::IValue map_tensors(const c10::IValue& value, F f) {
  if (value.isTensor())
    return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector())
      list.push_back(f(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
      list.push_back(t.has_value() ? std::optional<at::Tensor>(f(*t)) : std::nullopt);
    return list;
  }
  return value;
}

// each_tensor calls f with each tensor in a value.
template <typename F>
void each_tensor(const c10::IValue& value, F f) {
  map_tensors(value, [&](const at::Tensor& t) {
    f(t);
    return t;
  });
}

} // namespace chorus
