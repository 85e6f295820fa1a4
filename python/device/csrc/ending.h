// What the interpreter's end needs of autograd's threads.
#pragma once

namespace chorus {

// begin_thread notes that a thread besides the one that has plugged the device in works for it: one of autograd's, for
// all that is known.
void begin_thread() noexcept;

// settle lets autograd's threads let go of what backward passes have left them with, for so many seconds at most. The
// caller doesn't have Python's lock.
void settle(double seconds);

} // namespace chorus
