// Shutdown of autograd's threads before the interpreter's end.
#pragma once

namespace chorus {

// begin_thread records that another thread than the one that has plugged the device in uses it; it may be one of
// autograd's.
void begin_thread() noexcept;

// drain_autograd makes autograd's threads drop the objects of finished backward passes, and waits for that, for so many
// seconds at most. The caller doesn't hold the GIL.
void drain_autograd(double seconds);

} // namespace chorus
