// Captured work of streams.
#pragma once

namespace chorus {

// register_graph registers them as torch.accelerator.Graph, once the type of device has its name.
void register_graph();

} // namespace chorus
