#pragma once

#include "runtime.h"

namespace chorus {

// check_indexes throws an IndexError if a kernel of the device has met an index that's out of range. The caller has
// waited for the device's work, or for that of the stream that matters.
void check_indexes(DeviceIndex index);

// bad_word is the word of a device that a kernel sets when it meets such an index, NULL if the host can't look at it.
void* bad_word(DeviceIndex index);

} // namespace chorus
