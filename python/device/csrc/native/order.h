// Elements in order, and those that a mask chooses.
#pragma once

#include "native/native.h"

namespace chorus {

void add_unique();

// in_order says whether elements of a type have an order that kernels know.
bool in_order(const at::Tensor& t);

// ordered sorts a line, and keeps the order of equal elements. places are told unless they are NULL.
bool ordered(DeviceIndex index, const at::Tensor& line, at::Tensor& values, at::Tensor* places);

// found is how many elements of a tensor aren't zero.
int64_t found(const at::Tensor& t);

// selected takes the elements of a tensor for which a mask of its sizes is true: n of them.
bool selected(DeviceIndex index, const at::Tensor& self, const at::Tensor& mask, int64_t n, at::Tensor& out);

} // namespace chorus
