// Captured work of streams.
#pragma once

namespace chorus {

// register_graph registers them as torch.accelerator.Graph, once the type of device has its name.
void register_graph();

// captures_graph says that one of them is being captured. Other captures are those of other libraries.
bool captures_graph();

} // namespace chorus
