// Types of elements that operators take.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "native/native.h"

namespace chorus {

// Types are those of the arguments that an operator was called with, and whether PyTorch's CPU kernel takes them.
class Types {
 public:
  // take says whether the CPU's kernel takes arguments of these types. For each combination it asks the kernel once, by
  // a call with tensors of no elements.
  bool take(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

 private:
  std::atomic<uint64_t> last_{0}; // combination that was taken
  std::mutex mutex_;
  std::unordered_map<uint64_t, bool> known_;
};

} // namespace chorus
