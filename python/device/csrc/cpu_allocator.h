// The allocator of CPU tensors: PyTorch's own, but that within an Inside what a CPU kernel allocates is device memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "block.h"

namespace chorus {

// wrap_cpu_allocator puts it in the place of the one that there is.
void wrap_cpu_allocator();

// view_allocator is what storages of the engine's CPU tensors are resized with.
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

// Reserved is memory that is to be what an operator returns. It's given out, once each, where as many bytes are
// allocated within a Reserving.
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

// block_behind is the block of a CPU storage's memory that was allocated within an Inside, else NULL. It is the
// storage's.
Block* block_behind(const c10::DataPtr& p);

} // namespace chorus
