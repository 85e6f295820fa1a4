// What the device has no kernel for runs PyTorch's CPU kernel, in the engine, on the device's own memory.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace chorus {

// fallback is the boxed kernel of every operator that has no other.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// call_cpu is what the fallback makes of an operator with these arguments, all of them.
torch::jit::Stack call_cpu(const c10::OperatorHandle& op, torch::jit::Stack arguments);

// block makes an operator one that the device doesn't have, such as "aten::abs.out", or lets it have it again.
void block(const std::string& name, bool blocked);

// met are the operators that came to the fallback since they were last asked for.
std::vector<std::string> met();

} // namespace chorus
