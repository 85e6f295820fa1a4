#pragma once

#include <string>

namespace chorus {

// register_custom registers the device's own operators in torch.ops.<space>.
void register_custom(const std::string& space);

} // namespace chorus
