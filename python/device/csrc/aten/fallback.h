// Operators without a kernel of the device run PyTorch's CPU kernel, in the engine, on the device's own memory.
#pragma once

#include <string>
#include <unordered_map>
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

// OperatorCalls is how often an operator was called since the program's start: computed by the device's kernels, and by
// the CPU's.
struct OperatorCalls {
  std::string name;
  int64_t by_kernels, by_host;
};
std::vector<OperatorCalls> operator_calls();

// met returns the operators that used the fallback since the last call; calls, how often each did in this process, but
// for operators that only make views.
std::vector<std::string> met();
std::unordered_map<std::string, int64_t> calls();

} // namespace chorus
