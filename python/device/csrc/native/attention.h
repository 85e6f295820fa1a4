// Attention by kernels of the device.
#pragma once

#include <array>

#include "native/native.h"

namespace chorus {

// Heads are the arguments of an attention.
struct Heads {
  at::Tensor query, key, value, mask;
  bool causal = false;
  double dropout = 0;
  chorus_draw draw{}; // of dropout
  chorus_number scale{};

  // fit says whether kernels cover them, and sets the scale.
  bool fit(std::optional<double> given_scale);
};

// attend computes the result and the logarithms of sums. It returns false if there's no kernel.
bool attend(const Heads& heads, at::Tensor& out, at::Tensor& sums);

// attend_backward computes the gradients of query, key and value from that of the result, likewise.
bool attend_backward(
    const Heads& heads, const at::Tensor& grad, const at::Tensor& out, const at::Tensor& sums,
    std::array<at::Tensor, 3>& grads);

} // namespace chorus
