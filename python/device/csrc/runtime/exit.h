// The end of a child made by fork.
#pragma once

namespace chorus {

// exit_without_drivers makes this process exit without the destructors of libraries. A child made by fork needs that:
// those of a driver wait for threads and work of the device, which a fork doesn't copy.
void exit_without_drivers();

} // namespace chorus
