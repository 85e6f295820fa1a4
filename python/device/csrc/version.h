// What older versions of PyTorch lack, from 2.9 on. Where it's missing is told by headers, not by numbers of versions.
#pragma once

#if __has_include(<ATen/core/Dimname.h>)
#include <ATen/core/Dimname.h>
namespace chorus {
using at::DimnameList; // which PyTorch's list of operators for autocast names
}
#endif

#if __has_include(<c10/core/DeviceCapability.h>)
#include <c10/core/DeviceCapability.h>
#else
namespace c10 {
struct DeviceCapability {};
} // namespace c10
#endif

// CHORUS_LATER stands for override at a method that PyTorch has got since 2.9: there it overrides nothing.
#define CHORUS_LATER
