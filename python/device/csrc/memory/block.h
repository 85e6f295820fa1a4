// Memory of the device's caching allocator, held by PyTorch's storages.
#pragma once

#include <atomic>

#include <c10/core/Allocator.h>

#include "runtime/stream.h"

namespace chorus {

// Block is an allocation. A storage of the device refers to it by its device address. A CPU storage, inside of the
// engine, refers to it by the address at which this process accesses it.
struct Block {
  char* memory;
  char* view;
  size_t bytes;
  DeviceIndex index;
  std::atomic<int> references;
};

// new_block allocates for a stream; bytes must not be 0.
Block* new_block(DeviceIndex index, chorus_stream stream, size_t bytes);

// release drops a reference to a Block; the last one frees it. It is the deleter of device memory.
void release(void* block) noexcept;

// device_memory is a block's memory, from an offset on, for a storage of the device.
c10::DataPtr device_memory(Block* block, size_t offset = 0);

// block_of is the block behind a storage's memory, NULL if it comes from elsewhere.
inline Block* block_of(const c10::DataPtr& p) {
  return p.get_deleter() == &release ? static_cast<Block*>(p.get_context()) : nullptr;
}

// view_of returns the address at which this process accesses a device's memory.
void* view_of(const c10::DataPtr& p, size_t bytes);

} // namespace chorus
