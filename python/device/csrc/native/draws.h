// Operators that draw random numbers of CUDA's.
#pragma once

#include "native/native.h"

namespace chorus {

// draw_of is what computes an operator of this name after use_philox, on every device; else NULL.
const Native* draw_of(const c10::OperatorName& name);

std::vector<c10::OperatorName> draw_names();

// state_of is where a kernel's random numbers begin, if that's a state in memory.
InputOrNone state_of(const chorus_draw& at);

// drop is dropout by a kernel, with CUDA's numbers: out, and a mask of what stays. It returns false if no kernel covers
// the tensor.
bool drop(const at::Tensor& input, double keep, at::Tensor& out, at::Tensor& mask);

} // namespace chorus
