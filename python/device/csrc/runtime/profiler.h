// A device's implementation of torch.profiler and torch.autograd.profiler.
#pragma once

namespace chorus {

void register_profiler();

} // namespace chorus
