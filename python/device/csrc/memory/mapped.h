// Mapped memory, which peers on this host can map, for ordinary CPU tensors.
#pragma once

#include <cstddef>

namespace chorus {

// map_cpu_memory gives new CPU tensors mapped memory, or PyTorch's own again.
void map_cpu_memory(bool on);

// take_mapped returns mapped memory for n bytes; NULL if it isn't wanted, wouldn't help, or isn't available.
void* take_mapped(size_t n) noexcept;

// give_mapped takes it back; false if the memory is another allocator's.
bool give_mapped(void* p) noexcept;

} // namespace chorus
