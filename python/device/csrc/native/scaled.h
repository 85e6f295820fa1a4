// Products of matrices of numbers of 8 bits.
#pragma once

#include "native/native.h"

namespace chorus {

// add_scaled_matmul adds _int_mm, _scaled_mm and _scaled_mm_v2.
void add_scaled_matmul();

} // namespace chorus
