#include "memory/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>

#include "memory/address_map.h"
#include "memory/mapped.h"

namespace chorus {

namespace {

thread_local DeviceIndex inside_index = 0;
thread_local chorus_stream inside_stream = 0; // 0: not inside
thread_local c10::SmallVector<Reserved, 4>* reserved = nullptr;

c10::Allocator* original = nullptr;
c10::DeleterFnPtr original_delete = nullptr;

// views are the blocks of CPU storages, by the addresses in the storages. Memory without a block is borrowed, and not
// freed.
AddressMap<Block*>& views() {
  static auto* all = new AddressMap<Block*>; // CPU tensors may be freed at the very end of the process
  return *all;
}

void delete_either(void* p) {
  if (std::optional<Block*> block = views().take(p))
    release(*block);
  else if (!give_mapped(p))
    original_delete(p);
}

class CPUAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    if (inside_stream == 0 || n == 0) {
      if (void* p = take_mapped(n))
        return c10::DataPtr(p, p, &delete_either, c10::DeviceType::CPU);
      return either(original->allocate(n));
    }
    if (reserved) {
      for (Reserved& r : *reserved)
        if (!r.taken && r.bytes == n) {
          r.taken = true;
          views().add(r.view, nullptr);
          return c10::DataPtr(r.view, r.view, &delete_either, c10::DeviceType::CPU);
        }
      // Not from the device's allocator: its free memory may still be in use by work that is enqueued after this.
      return either(original->allocate(n));
    }
    Block* block = new_block(inside_index, inside_stream, n);
    TORCH_CHECK(block->view, name(), " memory can't be touched by this process");
    views().add(block->view, block);
    return c10::DataPtr(block->view, block->view, &delete_either, c10::DeviceType::CPU);
  }

  // Raw memory may be allocated within an Inside and freed outside of it, and the other way round.
  c10::DeleterFnPtr raw_deleter() const override {
    return original_delete ? &delete_either : nullptr;
  }

  bool is_simple_data_ptr(const c10::DataPtr& p) const override {
    return p.get() == p.get_context();
  }

  void copy_data(void* to, const void* from, size_t n) const override {
    default_copy_data(to, from, n);
  }

 private:
  static c10::DataPtr either(c10::DataPtr p) {
    if (p.get() && original_delete)
      (void)p.compare_exchange_deleter(original_delete, &delete_either); // memory of another deleter keeps it
    return p;
  }
};

} // namespace

c10::Allocator* view_allocator() {
  static auto* allocator = new CPUAllocator;
  return allocator;
}

void wrap_cpu_allocator() {
  if (original)
    return;
  original = c10::GetCPUAllocator();
  original_delete = original->raw_deleter();
  c10::SetCPUAllocator(view_allocator(), /*priority=*/1);
  TORCH_CHECK(
      c10::GetCPUAllocator() == view_allocator(),
      "another library has set the allocator of CPU tensors with a higher priority; ", name(), " can't replace it");
}

Inside::Inside(DeviceIndex index, chorus_stream stream) : outer_index_(inside_index), outer_stream_(inside_stream) {
  inside_index = index;
  inside_stream = stream;
}

Inside::~Inside() {
  inside_index = outer_index_;
  inside_stream = outer_stream_;
}

Reserving::Reserving(c10::ArrayRef<Reserved> memory) : memory_(memory.begin(), memory.end()), outer_(reserved) {
  reserved = &memory_;
}

Reserving::~Reserving() {
  reserved = outer_;
}

Block* block_behind(const c10::DataPtr& p) {
  return p.get_deleter() == &delete_either ? views().find(p.get_context()).value_or(nullptr) : nullptr;
}

} // namespace chorus
