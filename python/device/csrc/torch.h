// PyTorch's headers that nearly every file needs, compiled once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>
