// Kernels whose text torch.compile has generated.
#pragma once

#include <string>

#include "runtime/launch.h"

namespace chorus {

// add_source is the number of a text, which stays known.
int32_t add_source(const std::string& text);

// run_source enqueues such a kernel on the current stream of its tensors' device, for so many elements, or rows. Its
// arguments are tensors, and then integers. A tensor of the CPU with one element is copied to the device. A checked
// kernel has a pointer more behind the tensors: to the word that it sets where an index is out of range.
void run_source(
    int32_t source, const std::string& title, int64_t units, bool rows, bool checked,
    const std::vector<Argument>& arguments);

} // namespace chorus
