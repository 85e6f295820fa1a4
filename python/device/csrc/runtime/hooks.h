#pragma once

#include <c10/core/Storage.h>

namespace chorus {

void register_hooks();

} // namespace chorus
