#pragma once

namespace chorus {

void register_guard();

} // namespace chorus
