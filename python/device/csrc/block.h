// Memory of the device's caching allocator, as PyTorch's storages hold it.
#pragma once

#include <atomic>

#include <c10/core/Allocator.h>

#include "stream.h"

namespace chorus {

// Block is an allocation. A storage of the device has it by its address there, and one of the CPU, inside of the
// engine, by the address at which this process touches it.
struct Block {
  char* memory;
  char* view;
  size_t bytes;
  DeviceIndex index;
  std::atomic<int> references;
};

// new_block allocates for a stream; bytes must not be 0.
Block* new_block(DeviceIndex index, chorus_stream stream, size_t bytes);

// release lets go of a Block, and frees it with the last who does. It is the deleter of device memory.
void release(void* block) noexcept;

// device_memory is what a storage of the device holds of a block, from an offset on.
c10::DataPtr device_memory(Block* block, size_t offset = 0);

// block_of is the block behind a storage's memory, NULL if it comes from elsewhere.
inline Block* block_of(const c10::DataPtr& p) {
  return p.get_deleter() == &release ? static_cast<Block*>(p.get_context()) : nullptr;
}

// view_of gives the address at which this process touches a device's memory.
void* view_of(const c10::DataPtr& p, size_t bytes);

} // namespace chorus
