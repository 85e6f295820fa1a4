// Replacements for names that older versions of PyTorch lack, from 2.9 on. Headers decide, not version numbers.
#pragma once

#if __has_include(<ATen/core/Dimname.h>)
#include <ATen/core/Dimname.h>
namespace chorus {
using at::DimnameList; // PyTorch's list of operators for autocast uses it
}
#endif

#if __has_include(<c10/core/DeviceCapability.h>)
#include <c10/core/DeviceCapability.h>
#else
namespace c10 {
struct DeviceCapability {};
} // namespace c10
#endif

// CHORUS_LATER marks a method that overrides one which PyTorch has got after 2.9. It's empty, as in 2.9 the method
// overrides nothing.
#define CHORUS_LATER
