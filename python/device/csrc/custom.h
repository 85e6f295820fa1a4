#pragma once

#include <string>

namespace chorus {

// register_custom makes the device's own operators those of torch.ops.<space>.
void register_custom(const std::string& space);

} // namespace chorus
