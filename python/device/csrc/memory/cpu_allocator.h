// The allocator of CPU tensors: PyTorch's own, except that CPU kernels within an Inside allocate device memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "memory/block.h"

namespace chorus {

// wrap_cpu_allocator replaces the current allocator by it.
void wrap_cpu_allocator();

// view_allocator is the allocator that resizes storages of the engine's CPU tensors.
c10::Allocator* view_allocator();

// Inside makes this thread's CPU tensors take their memory from a device, for a stream, in a scope.
class Inside {
 public:
  Inside(DeviceIndex index, chorus_stream stream);
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  DeviceIndex outer_index_;
  chorus_stream outer_stream_;
};

// Reserved is memory for an operator's results. Within a Reserving, an allocation of the same number of bytes gets it,
// once each.
struct Reserved {
  void* view;
  size_t bytes;
  bool taken;
};

class Reserving {
 public:
  explicit Reserving(c10::ArrayRef<Reserved> memory);
  ~Reserving();
  Reserving(const Reserving&) = delete;
  Reserving& operator=(const Reserving&) = delete;

 private:
  c10::SmallVector<Reserved, 4> memory_;
  c10::SmallVector<Reserved, 4>* outer_;
};

// block_behind is the block of a CPU storage's memory that was allocated within an Inside, else NULL. The storage owns
// it.
Block* block_behind(const c10::DataPtr& p);

} // namespace chorus
