// Operators that run later on a stream: if it's busy, and in graphs.
#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>

#include "runtime/stream.h"

namespace chorus {

// defer enqueues an operator's CPU kernel on a stream of the device, and replaces the arguments on the stack by its
// results, with the shapes that its Meta kernel returns, and returns "". If an operator with such arguments can't be
// deferred, it does nothing and returns why.
std::string defer(
    const c10::OperatorHandle& op, const std::string& name, DeviceIndex index, chorus_stream stream,
    torch::jit::Stack* stack, c10::ArrayRef<int> generators);

} // namespace chorus
