// Operators without a kernel of the device run PyTorch's CPU kernel, in the engine, on the device's own memory.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace chorus {

// fallback is the boxed kernel of every operator that has no other.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// register_autograd_fallback gives operators without a kernel of autograd one that runs them, and whose backward pass
// warns, unless PyTorch has it already, which it has from 2.10 on.
void register_autograd_fallback();

// call_cpu runs an operator through the fallback, with all its arguments, and returns the results.
torch::jit::Stack call_cpu(const c10::OperatorHandle& op, torch::jit::Stack arguments);

// block makes the device refuse an operator, such as "aten::abs.out", or allows it again.
void block(const std::string& name, bool blocked);

// met returns the operators that used the fallback since the last call.
std::vector<std::string> met();

} // namespace chorus
