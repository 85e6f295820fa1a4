// What torch.profiler and torch.autograd.profiler ask of a device.
#pragma once

namespace chorus {

void register_profiler();

} // namespace chorus
