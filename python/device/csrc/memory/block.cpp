#include "memory/block.h"

#include "memory/alloc_sites.h"
#include "memory/stats.h"

namespace chorus {

namespace {

// report passes an allocation, or a free, to PyTorch's profiler if that records memory.
void report(DeviceIndex index, void* memory, int64_t bytes) noexcept try {
  if (!c10::memoryProfilingEnabled())
    return;
  Figures all = figures(index);
  c10::reportMemoryUsageToProfiler(
      memory, bytes, size_t(all["allocated_bytes.all.current"]), size_t(all["reserved_bytes.all.current"]),
      c10::Device(kType, index));
} catch (const std::exception&) { // freeing memory must not throw
}

} // namespace

Block* new_block(DeviceIndex index, chorus_stream stream, size_t bytes) {
  void *memory = nullptr, *view = nullptr;
  check(lib.cache_alloc(device(index).handle, int64_t(bytes), stream, &memory, &view));
  report(index, memory, int64_t(bytes));
  auto* block = new Block{static_cast<char*>(memory), static_cast<char*>(view), bytes, index, 1};
  report_alloc_site(*block);
  return block;
}

void release(void* p) noexcept {
  Block* block = static_cast<Block*>(p);
  if (!block || block->references.fetch_sub(1) > 1)
    return;
  lib.cache_free(device(block->index).handle, block->memory); // refused only in a child made by fork
  report(block->index, block->memory, -int64_t(block->bytes));
  delete block;
}

c10::DataPtr device_memory(Block* block, size_t offset) {
  return c10::DataPtr(block->memory + offset, block, &release, c10::Device(kType, block->index));
}

void* view_of(const c10::DataPtr& p, size_t bytes) {
  if (!p.get())
    return nullptr;
  if (Block* block = block_of(p)) {
    TORCH_CHECK(block->view, name(), " memory can't be touched by this process");
    return block->view + (static_cast<char*>(p.get()) - block->memory);
  }
  void* view = nullptr;
  check(lib.view(device(p.device().index()).handle, p.get(), int64_t(bytes), &view));
  return view;
}

} // namespace chorus
