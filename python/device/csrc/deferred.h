// Operators that a stream does later: while it is busy, and in graphs.
#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>

#include "stream.h"

namespace chorus {

// defer enqueues an operator's CPU kernel on a stream of the device, and replaces the arguments on the stack by what it
// will return, as its Meta kernel says. If an operator with such arguments has to be waited for, defer has done nothing
// and returns why; else it returns "".
std::string defer(
    const c10::OperatorHandle& op, const std::string& name, DeviceIndex index, chorus_stream stream,
    torch::jit::Stack* stack, c10::ArrayRef<int> generators);

} // namespace chorus
