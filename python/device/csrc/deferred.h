// Operators that a stream does later: while it is busy, and in graphs.
#pragma once

#include <string>

#include <ATen/core/dispatch/Dispatcher.h>

#include "stream.h"

namespace chorus {

// defer enqueues an operator's CPU kernel on a stream of the device, and replaces the arguments on the stack by what it
// will return, as its Meta kernel says. It returns false, and has done nothing, if there is no telling that before it
// runs.
bool defer(
    const c10::OperatorHandle& op, const std::string& name, DeviceIndex index, chorus_stream stream,
    torch::jit::Stack* stack, c10::ArrayRef<int> generators);

} // namespace chorus
